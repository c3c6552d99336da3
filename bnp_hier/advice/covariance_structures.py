"""Choose the form of the covariance matrices of continuous columns by fits at learned hyperparameters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.advice.column_kinds import Family, component_for, names_of_columns
from bnp_hier.components import FAMILIES, FORMS, LearnedPrior
from bnp_hier.components.learned import prior_of
from bnp_hier.deterministic import MAPDP
from bnp_hier.models import dpm
from bnp_hier.utils.wording import listed

__all__ = ["Structure", "best_component", "compare_structures"]

TITLES = {
    "normal": "full",
    "known": "shared by all clusters",
    "diagonal": "diagonal",
    "spherical": "spherical and shared",
}
"""Families that are compared, and their covariance matrices within clusters."""

MOST_ROWS = 1000
"""Size of the random sample of the rows to which the families are fitted."""

MOST_COLUMNS = 12
"""Largest number of columns for which a shared matrix is tried: its correlations are fitted one by one."""

MOST_COMPARED = 100
"""Largest number of columns for which structures are compared: full matrices of 300 x 100 values take a minute."""

CORRELATED = ("normal", "known")
"""Families with correlations within clusters, whose densities have no bound where columns are linearly dependent."""

LEAST_EIGENVALUE = 1e-12
"""Eigenvalue of the correlation matrix, divided by its size, up to which columns count as linearly dependent."""


class Structure(NamedTuple):
    """Fit of one family by MAP-DP.

    - **family**, **covariance** - its name as for `bnp-hier --family`, and the covariance matrices of its clusters.
    - **score** - log joint of the partition found, less the cost of the hyperparameters (nats).
    - **log_joint** - log joint at the learned hyperparameters (nats).
    - **clusters** - number of clusters.
    """

    family: str
    covariance: str
    score: float
    log_joint: float
    clusters: int


def compare_structures(X: Float[np.ndarray, "n d"], random_state: int = 0) -> tuple[Structure, ...]:
    """Fit covariance matrices of several forms to at most 1,000 random rows; the best score comes first.

    They are full, diagonal, full and shared by all clusters (of up to 12 columns), or spherical in columns of equal variance
    and shared. Where columns are linearly dependent, matrices with correlations are left out: the more exactly they fit the
    dependence, the larger the density, whatever the clusters.

    The score approximates the log joint with the hyperparameters integrated out: as in the Bayesian information criterion
    (Schwarz 1978), each hyperparameter costs ½ log(n / 2π). The share of the data's correlations in a full matrix has this
    cost, times its square, for each of these correlations.

    With missing values, log joints are those of the cells that are there: exact for diagonal matrices, and lower bounds for the
    others.

    Parameters
    ----------
    X
        Continuous data, at least two columns; NaN is a missing value.
    random_state
        Seed for the sample and the fits.
    """
    correlated = not dependent_columns(X)
    if len(X) > MOST_ROWS:
        X = X[np.sort(np.random.default_rng(random_state).choice(len(X), MOST_ROWS, replace=False))]
    n, d = X.shape
    found: list[Structure] = []
    start: np.ndarray | str = "sequential"
    for family, covariance in TITLES.items():
        if (family == "known" and d > MOST_COLUMNS) or (family in CORRELATED and not correlated):
            continue
        prior = prior_of(FAMILIES[family], X, learn=True, **FORMS.get(family, {}))
        model = partial(dpm, component=prior, concentration=dist.Gamma(1.0, 1.0))
        # single-row moves seldom find clusters of another shape than the first one they assume
        init = start if FAMILIES[family] is FAMILIES["known"] else "sequential"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = MAPDP(model, n_init=4, max_rounds=5, init=init, random_state=random_state).fit(X)
        if family == "normal":
            start = fit.labels_
        score = fit.log_joint_ - _cost(prior, fit.hyperparameters_, n, d)
        found.append(Structure(family, covariance, score, fit.log_joint_, fit.n_clusters_))
    return tuple(sorted(found, key=lambda structure: -structure.score))


def dependent_columns(X: Float[np.ndarray, "n d"]) -> tuple[int, ...]:
    """Columns that are linearly dependent up to rounding in the complete rows, such as a copy or a total; none for few rows."""
    rows, d = X[~np.isnan(X).any(axis=1)], X.shape[1]
    # at most d rows always lie in a plane
    if len(rows) <= d or (rows == rows[0]).all(axis=0).any():
        return ()
    values, vectors = np.linalg.eigh(np.corrcoef(rows.T))
    if values[0] > LEAST_EIGENVALUE * d:
        return ()
    return tuple(np.flatnonzero(np.abs(vectors[:, 0]) > 1e-3).tolist())


def _cost(prior: object, hyperparameters: Mapping[str, ArrayLike], n: int, d: int) -> float:
    assert isinstance(prior, LearnedPrior)
    free = 1.0  # the concentration
    pairs = d * (d - 1) / 2
    for name in prior.priors:
        if name == "factor":
            free += pairs
        elif name == "correlation":
            free += pairs * float(np.asarray(hyperparameters[name])) ** 2
        else:
            free += np.size(hyperparameters[name])
    return float(0.5 * free * max(np.log(n / (2 * np.pi)), 0.0))


def best_component(
    X: Float[np.ndarray, "n d"],
    family: str = "auto",
    feature_names: Sequence[str] | None = None,
    categories: Sequence[Sequence[int]] = (),
    random_state: int = 0,
    kinds: Mapping[str, str] | None = None,
) -> tuple[Family, tuple[Structure, ...]]:
    """`component_for`, and for several continuous columns the covariance structure with the best score.

    Returns
    -------
    family, structures
        The family, and what was compared; nothing if the family was given, there was nothing to choose, or there are more than
        100 columns, which are then independent within clusters.
    """
    suited = component_for(X, family, feature_names, categories, kinds)
    if family != "auto" or suited.name not in TITLES or X.shape[1] < 2:
        return suited, ()
    if X.shape[1] > MOST_COMPARED:
        reason = (
            f"the columns are continuous, and more than {MOST_COMPARED}, for which covariance matrices take long to compare: "
            "principal components have fewer (bnp_hier.datasets.principal_components)"
        )
        return component_for(X, "diagonal", feature_names, categories, kinds)._replace(reason=reason), ()
    absent = np.isnan(X)
    if absent.all(axis=1).any():
        empty = ", ".join(map(str, np.flatnonzero(absent.all(axis=1))[:5]))
        reason = f"all values are missing in row {empty}, which only independent columns allow: leave out such rows for others"
        return suited._replace(reason=reason), ()
    structures = compare_structures(X, random_state)
    best, second = structures[:2]
    better = f"{best.score - second.score:.1f} nats better than {_described(second)} ones"
    complete = f"with {absent.mean():.1%} of the values missing" if absent.any() else "and complete"
    reason = f"the columns are continuous {complete}, and {_described(best)} covariance matrices fit best, {better}"
    if not any(structure.family in CORRELATED for structure in structures):
        names = listed([names_of_columns(X, feature_names)[j] for j in dependent_columns(X)], 8)
        reason += (
            f"; correlations within clusters were not tried, because {names} are linearly dependent: leave one of them out"
        )
    return component_for(X, best.family, feature_names, categories, kinds)._replace(reason=reason), structures


def _described(structure: Structure) -> str:
    return structure.covariance.removesuffix(" and shared").removesuffix(" by all clusters")

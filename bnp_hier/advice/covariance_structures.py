"""Choose the form of the covariance matrices of continuous columns by fits at learned hyperparameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.advice.column_kinds import (
    STRUCTURES,
    Family,
    component_for,
    continuous_columns,
    infer_column_kinds,
    names_of_columns,
)
from bnp_hier.components import FAMILIES, FORMS, Component, LearnedPrior
from bnp_hier.components.learned import prior_of
from bnp_hier.deterministic import MAPDP
from bnp_hier.models import DEFAULT_CONCENTRATION, dpm
from bnp_hier.posterior.draws import draws_of, summaries
from bnp_hier.utils.deadlines import current_deadline

__all__ = ["Choice", "Structure", "best_component"]

MOST_ROWS, FEWEST_ROWS, MOST_CELLS = 1000, 400, 20_000
"""Rows of the random sample to which structures are fitted: for up to 20 columns; from 50 on, or with missing values, which
each fit imputes again and again; and cells between."""

MOST_COLUMNS = 12
"""Largest number of columns for which a shared matrix is tried: its correlations are fitted one by one."""

MOST_COMPARED = 100
"""Largest number of columns for which structures are compared: full matrices of 300 x 100 values take a minute."""

CORRELATED = ("normal", "known")
"""Families with correlations within clusters."""

LEAST_SPREAD = 1e-6
"""Ratio of singular values up to which a direction has no variance."""

ORDERS, ROUNDS = 4, 5
"""Numbers of row orders and of rounds of the fits that are compared."""


class Structure(NamedTuple):
    """Fit by MAP-DP with one covariance structure of the continuous columns.

    - **family**, **covariance** - its name as for `bnp-hier --family`, and the covariance matrices of its clusters.
    - **score** - log joint of the partition found, less the cost of the hyperparameters (nats).
    - **log_joint** - log joint at the learned hyperparameters (nats).
    - **leave_one_out** - sum of the leave-one-out log predictive densities of the rows, given the partition (nats).
    - **clusters** - number of clusters.
    """

    family: str
    covariance: str
    score: float
    log_joint: float
    leave_one_out: float
    clusters: int


class Choice(NamedTuple):
    """A family, and the fits from which it was chosen, of which the best can start other methods.

    - **family** - the family and its prior.
    - **structures** - what was compared, the best score first; empty if there was no choice.
    - **left_out** - covariance matrices that were not compared -> the reason.
    - **labels** - (n,) clusters of the best fit, −1 for rows outside its sample; None without a comparison.
    - **hyperparameters** - those of the best fit, by site.
    """

    family: Family
    structures: tuple[Structure, ...] = ()
    left_out: Mapping[str, str] = {}
    labels: Int[np.ndarray, " n"] | None = None
    hyperparameters: Mapping[str, ArrayLike] | None = None


def best_component(
    X: Float[np.ndarray, "n d"],
    family: str = "auto",
    feature_names: Sequence[str] | None = None,
    categories: Sequence[Sequence[int]] = (),
    random_state: int = 0,
    kinds: Mapping[str, str] | None = None,
    concentration: float | None = None,
) -> Choice:
    """`component_for`, and for several continuous columns, also beside others, the covariance structure with the best score.

    The structures are full matrices, full ones shared by all clusters (of up to 12 columns), diagonal ones, diagonal ones
    shared by all clusters, and spherical ones in columns of equal variance. Each is fitted by MAP-DP to a random
    sample of the rows: 1,000 of up to 20 columns, 400 from 50 columns on or where values are missing. Those with correlations
    are left out for fewer than two rows per column. A structure that cannot be fitted is left out with the reason. There is no
    comparison if another family than "mixed" was given, for a single continuous column, or
    for more than 100 of them, which are then independent within clusters.

    The score approximates the log joint with the hyperparameters integrated out: as in the Bayesian information criterion
    (Schwarz 1978), each hyperparameter costs ½ log(n / 2π). The share of the data's correlations in a full matrix has this
    cost, times its square, for each of these correlations. With missing values, log joints are those of the cells that are
    there: exact for diagonal matrices, and lower bounds for the others.

    Parameters
    ----------
    X, family, feature_names, categories, kinds
        As for `component_for`.
    random_state
        Seed for the sample and the fits.
    concentration
        Concentration of the Dirichlet process; None for the prior `DEFAULT_CONCENTRATION`.
    """
    names = names_of_columns(X, feature_names)
    suited = component_for(X, family, names, categories, kinds)
    if family not in ("auto", "mixed"):
        return Choice(suited)
    continuous = list(continuous_columns(suited, infer_column_kinds(X, names, categories, kinds), categories))
    if len(continuous) < 2:
        return Choice(suited)
    if len(continuous) > MOST_COMPARED:
        reason = (
            f"{suited.reason}; more than {MOST_COMPARED} columns are continuous, for which covariance matrices take long to "
            "compare: principal components have fewer (bnp_hier.datasets.principal_components)"
        )
        return Choice(component_for(X, family, names, categories, kinds, "diagonal")._replace(reason=reason))
    n = len(X)
    some = np.arange(n)
    most = min(MOST_ROWS, max(FEWEST_ROWS, MOST_CELLS // len(continuous)))
    most = FEWEST_ROWS if np.isnan(X[:, continuous]).any() else most
    if n > most:
        some = np.sort(np.random.default_rng(random_state).choice(n, most, replace=False))
    left_out = dict(_unsuited(len(some), len(continuous)))
    alpha = DEFAULT_CONCENTRATION if concentration is None else concentration
    found: list[tuple[Structure, Family, MAPDP]] = []
    options: dict[str, Any] = {"n_init": ORDERS, "max_rounds": ROUNDS, "random_state": random_state}
    starts: list[np.ndarray | str] = ["sequential"]
    deadline = current_deadline()
    for name, covariance in STRUCTURES.items():
        if covariance in left_out:
            continue
        if found and deadline.is_past():
            left_out[covariance] = "there was no time left in the budget"
            continue
        chosen = component_for(X, suited.name, names, categories, kinds, name)
        model = partial(dpm, component=chosen.prior, concentration=alpha)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if name == "normal" and len(continuous) <= MOST_COLUMNS:
                    starts.append(_along_components(X[some][:, continuous], alpha, options))
                fits = [MAPDP(model, init=start, **options).fit(X[some]) for start in starts[: 1 + (name in CORRELATED)]]
                fit = max(fits, key=lambda each: each.log_joint_)
                held = float(summaries(draws_of(fit, X[some])).log_likelihood.sum())
        except (ValueError, FloatingPointError, np.linalg.LinAlgError) as error:
            left_out[covariance] = f"it could not be fitted: {error}"
            continue
        score = fit.log_joint_ - _cost(chosen.prior, fit.hyperparameters_, len(some), len(continuous))
        found.append((Structure(name, covariance, score, fit.log_joint_, held, fit.n_clusters_), chosen, fit))
    if not found:
        return Choice(suited, left_out=left_out)
    found.sort(key=lambda each: -each[0].score)
    structures = tuple(each[0] for each in found)
    best, chosen, fit = found[0]
    labels = np.full(n, -1)
    labels[some] = fit.labels_
    reason, prior = _reason(structures, suited, X[:, continuous]), chosen.prior
    if isinstance(prior, LearnedPrior):  # further fits start from what this one has learned
        begun = {name: [fit.hyperparameters_[prior.prefix + name]] for name in prior.priors}
        prior = LearnedPrior(prior.family, prior.priors, prior.build, begun, prior.prefix)
    return Choice(Family(chosen.name, reason, chosen.component, prior), structures, left_out, labels, fit.hyperparameters_)


def _along_components(X: Float[np.ndarray, "n d"], alpha: Any, options: Mapping[str, Any]) -> Int[np.ndarray, " n"]:
    """Clusters in the directions of the principal components, each of which has its own variance within clusters.

    Single-row moves seldom find clusters of another shape than the first one they assume: of long clusters beside each other,
    such as those of measurements that grow together, these coordinates show the distances.
    """
    rows = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    left, values, _ = np.linalg.svd((rows - rows.mean(axis=0)) / rows.std(axis=0), full_matrices=False)
    rows = left[:, values > LEAST_SPREAD * values[0]]
    prior = prior_of(FAMILIES["shared-diagonal"], rows, True, **FORMS["shared-diagonal"])
    return MAPDP(partial(dpm, component=prior, concentration=alpha), **options).fit(rows).labels_


def _unsuited(n: int, d: int) -> Iterator[tuple[str, str]]:
    """Covariance matrices that the numbers of rows and columns do not allow, and the reasons."""
    for name in CORRELATED:
        if n < 2 * d:
            yield STRUCTURES[name], f"{n} rows are too few for the correlations of {d} columns"
        elif name == "known" and d > MOST_COLUMNS:
            yield STRUCTURES[name], f"correlations of more than {MOST_COLUMNS} columns take long to fit one by one"


def _cost(prior: Component | LearnedPrior, hyperparameters: Mapping[str, ArrayLike], n: int, d: int) -> float:
    """What the hyperparameters cost, of which d continuous columns have correlations (nats)."""
    free, pairs = 1.0, d * (d - 1) / 2  # the concentration
    for site in prior.priors if isinstance(prior, LearnedPrior) else ():
        name = site.rpartition("_")[2]
        share = float(np.asarray(hyperparameters[site])) ** 2 if name == "correlation" else 1.0
        free += pairs * share if name in ("factor", "correlation") else np.size(hyperparameters[site])
    return float(0.5 * free * max(np.log(n / (2 * np.pi)), 0.0))


def _described(structure: Structure) -> str:
    if structure.family == "shared-diagonal":
        return "shared diagonal"
    return structure.covariance.removesuffix(" and shared").removesuffix(" by all clusters")


def _reason(structures: Sequence[Structure], suited: Family, X: Float[np.ndarray, "n d"]) -> str:
    """Why the best structure was chosen, in a clause."""
    described = [_described(each) for each in structures]
    absent = np.isnan(X)
    what = f"{suited.reason}; of the continuous ones" if suited.name == "mixed" else "the columns are continuous"
    complete = f"with {absent.mean():.1%} of the values missing" if absent.any() else "and complete"
    reason = f"{what}{',' if suited.name == 'mixed' else f' {complete}, and'} {described[0]} covariance matrices fit best"
    if len(structures) > 1:
        reason += f", {structures[0].score - structures[1].score:.1f} nats better than {described[1]} ones"
    return reason

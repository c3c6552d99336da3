"""Convergence diagnostics of chains, based on variables that do not depend on cluster labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Num

from bnp_hier.posterior.credible_balls import large_clusters, least_share
from bnp_hier.posterior.draws import Draws, summaries
from bnp_hier.posterior.renumbering import numbered_sites

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LABEL_INVARIANT",
    "LARGEST_RHAT",
    "LEAST_ESS",
    "chain_diagnostics",
    "converged",
    "diagnostics",
    "entries",
    "has_posterior",
    "label_invariant",
    "posterior_group",
    "scalar_variables",
]

LARGEST_RHAT, LEAST_ESS = 1.01, 400.0
"""Largest R-hat and smallest effective sample size of chains that are said to have converged (Vehtari et al. 2021)."""

LABEL_INVARIANT = ("log_joint", "n_clusters", "largest_cluster", "entropy")
"""Posterior variables that do not depend on cluster labels; only these can be compared across draws and chains."""

LABEL_DEPENDENT = ("parameters", "weights")
"""Sites of models with explicit clusters, whose entries are permuted when the clusters are relabelled."""

TAILS = (0.05, 0.95)
"""Quantiles for the tail effective sample size; ArviZ 1.x has no default for arrays."""


def diagnostics(idata: Any, var_names: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Compute R-hat and effective sample sizes of the label-invariant variables and the hyperparameters.

    Parameters
    ----------
    idata
        Result of `to_arviz`.
    var_names
        Posterior variables; by default, all that do not depend on cluster labels.

    Returns
    -------
    table
        One row per variable, or per entry of an array-valued variable. Columns `rhat`, `ess_bulk` and `ess_tail` as defined by
        ArviZ. All are NaN if a variable never changes or there are fewer than four draws per chain; R-hat is also NaN for a
        single chain, and infinite if every chain is stuck at a value of its own.

    Warns
    -----
    RuntimeWarning
        If a requested variable depends on cluster labels: the labels themselves, or parameters or weights of numbered clusters.

    Raises
    ------
    TypeError, ValueError
        If `idata` is not the result of `to_arviz`, or its posterior lacks a requested variable.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> kernel = bnp.PartitionGibbs(partial(bnp.models.dpm, component=component))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=50, num_chains=2, chain_method="vectorized", progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)
    >>> table = bnp.diagnostics(bnp.to_arviz(mcmc, X))
    >>> table.columns.to_list(), table.index.to_list()
    (['rhat', 'ess_bulk', 'ess_tail'], ['log_joint', 'n_clusters', 'largest_cluster', 'entropy', 'n_large_clusters'])
    """
    return chain_diagnostics(scalar_variables(idata, var_names, stacklevel=3))


def chain_diagnostics(values: Mapping[str, Num[np.ndarray, "chain draw"]]) -> pd.DataFrame:
    """Return the table of `diagnostics` for named draws."""
    import arviz as az
    import pandas as pd

    rows = {}
    for name, draws in values.items():
        draws = np.asarray(draws, dtype=np.float64)
        row = dict.fromkeys(("rhat", "ess_bulk", "ess_tail"), np.nan)
        if draws.shape[1] >= 4 and np.ptp(draws) > 0:
            row["ess_bulk"] = float(az.ess(draws))
            row["ess_tail"] = float(az.ess(draws, method="tail", prob=TAILS))
            if len(draws) > 1:
                stuck = (np.ptp(draws, axis=1) == 0).all()  # every chain at a value of its own: no variance within chains
                row["rhat"] = np.inf if stuck else float(az.rhat(draws))
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def label_invariant(draws: Draws) -> dict[str, Num[np.ndarray, "chain draw"]]:
    """The variables `LABEL_INVARIANT` of each draw, and `n_large_clusters`, the number of clusters that reports call large."""
    values = summaries(draws)
    large = large_clusters(draws.labels, least_share(draws.labels.shape[-1]))
    return {**{name: getattr(values, name) for name in LABEL_INVARIANT}, "n_large_clusters": large}


def converged(draws: Draws) -> bool:
    """Whether R-hat and effective sample sizes of all variables of `diagnostics` that change are within their limits.

    R-hat is not considered for a single chain.
    """
    of_clusters = numbered_sites(draws)
    shared = {name: value for name, value in draws.hyperparameters.items() if name not in of_clusters}
    moving = chain_diagnostics(entries({**shared, **label_invariant(draws)})).dropna(subset=["ess_bulk"])
    return not (moving["rhat"] > LARGEST_RHAT).any() and bool((moving.filter(like="ess") >= LEAST_ESS).all(axis=None))


def scalar_variables(
    idata: Any, var_names: str | Sequence[str] | None = None, *, stacklevel: int = 2
) -> dict[str, Num[np.ndarray, "chain draw"]]:
    """Scalar draws from the posterior group, with arrays split into their entries; see `diagnostics`."""
    posterior = posterior_group(idata)
    chosen = [var_names] if isinstance(var_names, str) else var_names
    unknown = [name for name in chosen or () if name not in posterior.data_vars]
    if unknown:
        raise ValueError(f"the posterior has no variable {unknown[0]!r}; its variables are {', '.join(posterior.data_vars)}")
    dependent = [name for name, variable in posterior.data_vars.items() if _depends_on_labels(name, variable)]
    if chosen is None:
        chosen = [name for name in posterior.data_vars if name not in dependent]
    meaningless = [name for name in chosen if name in dependent]
    if meaningless:
        warnings.warn(
            f"{', '.join(meaningless)}: these values depend on the cluster labels, which change between draws and chains, so "
            f"their R-hat and effective sample size say nothing about convergence; use {', '.join(LABEL_INVARIANT)}",
            RuntimeWarning,
            stacklevel=stacklevel,
        )
    return entries({name: np.asarray(posterior[name].values) for name in chosen})


def posterior_group(idata: Any) -> Any:
    """The posterior group of ArviZ data.

    Raises
    ------
    TypeError
        If they are something else, such as an `MCMC` object.
    """
    if not has_posterior(idata):
        raise TypeError(
            f"expected the result of bnp_hier.to_arviz, but got {type(idata).__name__}"
            + (": pass bnp_hier.to_arviz(fit, X) instead of the fit" if hasattr(idata, "get_samples") else "")
        )
    return idata["posterior"]


def has_posterior(value: Any) -> bool:
    """Whether a value is ArviZ data with a posterior group."""
    return isinstance(value, Mapping) and "posterior" in value and hasattr(value["posterior"], "data_vars")


def entries(values: Mapping[str, Num[np.ndarray, "chain draw ..."]]) -> dict[str, Num[np.ndarray, "chain draw"]]:
    """Split arrays into scalar draws, one per entry, each named by its index."""
    out = {}
    for name, array in values.items():
        for index in np.ndindex(array.shape[2:]):
            entry = f"[{', '.join(map(str, index))}]" if index else ""
            out[name + entry] = array[(slice(None), slice(None), *index)]
    return out


def _depends_on_labels(name: str, variable: Any) -> bool:
    """Whether the values are labels (one whole number per item) or belong to numbered clusters."""
    labels = variable.ndim > 2 and np.issubdtype(variable.dtype, np.integer)
    return labels or name in LABEL_DEPENDENT or bool({"item", "cluster"} & set(variable.dims))

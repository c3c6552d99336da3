"""Every route's draws in ArviZ's form; the only file that knows ArviZ 0.23 from 1.x."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from bnp_hier.posterior.draws import Draws, Summaries, draws_of, summaries

if TYPE_CHECKING:
    import arviz as az
    import xarray as xr

__all__ = ["LABEL_INVARIANT", "convergence", "to_arviz"]

LABEL_INVARIANT = ("log_joint", "n_clusters", "largest_cluster", "entropy")
"""Posterior variables that do not depend on the clusters' names; only these can be compared across draws and chains."""


def to_arviz(fit: Any, X: ArrayLike, *, n_draws: int = 1000, random_state: int | Array = 0) -> az.InferenceData | xr.DataTree:
    """A fit as ArviZ data: `InferenceData` under ArviZ 0.23, `DataTree` under 1.x; the same groups and names for all routes.

    Groups: `posterior` with the partition site (chain, draw, item), the hyperparameter sites, and the label-invariant
    `log_joint`, `n_clusters`, `largest_cluster`, `entropy`; `log_likelihood` with the observed site (chain, draw, item),
    log p(x_i | partition and rows of the others) with the label of i summed out (nats); `observed_data` with the observed
    site (item, feature).

    Parameters
    ----------
    fit
        `MCMC` that has run a kernel with a partition site; `BHC` (draws of partitions from its tree posterior); or another
        estimator (its one partition).
    X
        The data that were fitted, (n, d).
    n_draws, random_state
        Number and seed (whole number or JAX key) of the draws from a tree.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not belong to X, or is of an unknown kind.

    Notes
    -----
    Summaries of the labels themselves mean nothing across draws and chains: diagnose the label-invariant variables.
    """
    draws = draws_of(fit, X, n_draws, random_state)
    return _package(draws, summaries(draws), type(fit).__name__)


def _package(draws: Draws, values: Summaries, route: str) -> Any:
    import arviz as az
    import xarray as xr

    sample = ("chain", "draw")
    chains, length, n = draws.labels.shape
    coords = {"chain": np.arange(chains), "draw": np.arange(length)}
    item, feature = np.arange(n), np.arange(draws.X.shape[1])
    posterior: dict[str, Any] = {
        name: ((*sample, *(f"{name}_dim_{i}" for i in range(value.ndim - 2))), value)
        for name, value in draws.hyperparameters.items()
    }
    posterior |= {name: (sample, getattr(values, name)) for name in LABEL_INVARIANT}
    posterior[draws.partition] = ((*sample, "item"), draws.labels)
    attributes = {"inference_library": "bnp_hier", "route": route}
    groups: dict[str, Any] = {
        "posterior": xr.Dataset(posterior, {**coords, "item": item}, attributes),
        "log_likelihood": xr.Dataset(
            {draws.observed: ((*sample, "item"), values.log_likelihood)}, {**coords, "item": item}, attributes
        ),
        "observed_data": xr.Dataset(
            {draws.observed: (("item", "feature"), draws.X)}, {"item": item, "feature": feature}, attributes
        ),
    }
    if int(az.__version__.split(".")[0]) < 1:
        return az.InferenceData(**groups)
    return xr.DataTree.from_dict(groups)


def convergence(idata: Any) -> dict[str, tuple[float, float]]:
    """R-hat and bulk effective sample size of each label-invariant variable; NaN where a variable never moves.

    Parameters
    ----------
    idata
        What `to_arviz` returns, from at least two chains or four draws.
    """
    import arviz as az

    out = {}
    for name in LABEL_INVARIANT:
        draws = np.asarray(idata["posterior"][name].values, dtype=np.float64)
        if draws.shape[1] < 4 or np.ptp(draws) == 0:
            out[name] = (np.nan, np.nan)
        else:
            out[name] = (float(az.rhat(draws)), float(az.ess(draws)))
    return out

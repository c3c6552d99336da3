"""Every route's draws in ArviZ's form; the only file that knows ArviZ 0.23 from 1.x."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from bnp_hier.posterior.cross_validation import LeaveOneOut, importance_leave_one_out
from bnp_hier.posterior.draws import Draws, Summaries, draws_of, summaries

if TYPE_CHECKING:
    import arviz as az
    import xarray as xr

__all__ = ["LABEL_INVARIANT", "convergence", "loo", "to_arviz"]

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
        `MCMC` that has run a kernel with a partition site, or NUTS on a model such as `dpm_stick_breaking` (labels `z` are
        recovered); `BHC` (draws of partitions from its tree posterior); or another estimator (its one partition).
    X
        The data that were fitted, (n, d).
    n_draws, random_state
        Number and seed (whole number or JAX key) of the draws from a tree; the seed is also that of recovered labels.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not belong to X, or is of an unknown kind.

    Notes
    -----
    Summaries of the labels themselves mean nothing across draws and chains, nor do those
    of the clusters' parameters, where these are sites of the model. `AuxiliaryGibbs` draws have parameters that cannot be
    integrated out: their `log_joint` is log p(partition) + Σ_i log f(x_i|θ_{z_i}), and their `log_likelihood`
    log p(x_i | θ, labels of the others). With labels summed out by the model the latter is log Σ_k w_k f(x_i|θ_k).
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


LEAST_KISH, MOST_MCSE, MOST_RHAT, LEAST_ESS = 0.1, 0.1, 1.01, 400
"""Where `loo` warns: Kish share and Monte Carlo error of a row; R-hat and effective sample size of the summaries."""


def loo(fit: Any, X: ArrayLike, *, n_draws: int = 1000, random_state: int | Array = 0) -> Any:
    """Expected log predictive density of a row left out, with the label of every row summed out (nats).

    Parameters
    ----------
    fit, X, n_draws, random_state
        As of `to_arviz`. Of an estimator with one partition, that partition of the other rows is held fixed.

    Returns
    -------
    result
        ArviZ's `ELPDData`, fit for its `compare`: `elpd_loo` (`elpd` under ArviZ 1.x), `se`, `p_loo` (`p`), `n_samples`,
        `n_data_points`, `warning`, `scale`, pointwise `loo_i` (`elpd_i`); and, in the place of Pareto k, `mcse_i`, the Monte
        Carlo standard error of each row, and `kish_i`, the Kish effective share of the draws. Ties between draws of discrete
        labels make Pareto k large, or NaN, at rows that are well determined.

    Warns
    -----
    RuntimeWarning
        If R-hat of a label-invariant summary exceeds 1.01 or its effective sample size is below 400, or a row has a Kish share
        below 0.1 or a Monte Carlo error above 0.1: refit without those rows.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not belong to X, or is of an unknown kind.
    """
    import arviz as az
    import xarray as xr

    draws = draws_of(fit, X, n_draws, random_state)
    values = summaries(draws)
    found = importance_leave_one_out(values.log_likelihood, _ess_of_weights(values.log_likelihood))
    trouble = _trouble(found, convergence(_package(draws, values, type(fit).__name__)))
    for message in trouble:
        warnings.warn(f"loo: {message}", RuntimeWarning, stacklevel=2)
    n = len(found.elpd_i)
    arrays = {name: xr.DataArray(getattr(found, name), dims=["item"], name=name) for name in ("elpd_i", "mcse_i", "kish_i")}
    numbers = [
        float(found.elpd_i.sum()),
        float(np.sqrt(n * found.elpd_i.var())),
        float(found.p_i.sum()),
        int(np.prod(draws.labels.shape[:2])),
        n,
    ]
    if int(az.__version__.split(".")[0]) < 1:
        from arviz.stats.stats_utils import ELPDData

        names = ["elpd_loo", "se", "p_loo", "n_samples", "n_data_points", "warning", "loo_i", "scale", "mcse_i", "kish_i"]
        pointwise = [arrays["elpd_i"].rename("loo_i"), "log", arrays["mcse_i"], arrays["kish_i"]]
        return ELPDData(data=[*numbers, bool(trouble), *pointwise], index=names)
    from arviz_stats.utils import ELPDDataLOO

    keys = ("elpd", "se", "p", "n_samples", "n_data_points")
    # no Pareto k is computed, so that there is no threshold on it
    result = ELPDDataLOO(
        **dict(zip(keys, numbers, strict=True)),
        scale="log",
        warning=bool(trouble),
        good_k=np.nan,
        elpd_i=arrays["elpd_i"],
    )
    result.mcse_i, result.kish_i = arrays["mcse_i"], arrays["kish_i"]
    return result


def _ess_of_weights(log_likelihood: np.ndarray) -> np.ndarray:
    """Effective sample size of the mean of exp(−log_likelihood) for every row; all draws where the weights are one number."""
    import arviz as az

    s = int(np.prod(log_likelihood.shape[:2]))
    weight = np.exp(-(log_likelihood - log_likelihood.min(axis=(0, 1))))
    moving = np.ptp(weight, axis=(0, 1)) > 1e-12
    out = np.full(log_likelihood.shape[-1], float(s))
    if log_likelihood.shape[1] < 4:
        return out
    for i in np.flatnonzero(moving):
        out[i] = float(az.ess(weight[:, :, i], method="mean"))
    return out


def _trouble(found: LeaveOneOut, chains: dict[str, tuple[float, float]]) -> list[str]:
    out = []
    rhat, ess = np.array(list(chains.values())).T
    if (rhat > MOST_RHAT).any() or (ess < LEAST_ESS).any():
        worst = f"worst R-hat {np.nanmax(rhat):.3f}, least effective sample size {np.nanmin(ess):.0f}"
        out.append(f"the chains have not mixed or are short ({worst}); expected at most {MOST_RHAT} and at least {LEAST_ESS}")
    for name, bad in (
        (f"a Kish share of the draws below {LEAST_KISH}", found.kish_i < LEAST_KISH),
        (f"a Monte Carlo error above {MOST_MCSE} nats", found.mcse_i > MOST_MCSE),
    ):
        if bad.any():
            rows = ", ".join(map(str, np.flatnonzero(bad)[:10]))
            out.append(f"{bad.sum()} rows have {name} (rows {rows}{', ...' if bad.sum() > 10 else ''}): refit without them")
    return out

"""Conversion of fits to ArviZ data; the only module that distinguishes ArviZ 0.23 from 1.x."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.capabilities import Chains
from bnp_hier.inspection.model_arguments import Data
from bnp_hier.posterior.convergence import LABEL_INVARIANT, chain_diagnostics, label_invariant
from bnp_hier.posterior.cross_validation import LeaveOneOut, importance_leave_one_out, standard_error
from bnp_hier.posterior.draws import Draws, draws_of, summaries
from bnp_hier.posterior.hierarchies import HierarchyDraws, hierarchy_draws, is_hierarchical
from bnp_hier.posterior.parameter_draws import replicated_data
from bnp_hier.posterior.renumbering import numbered_sites

if TYPE_CHECKING:
    import arviz as az
    import pandas as pd
    import xarray as xr

__all__ = ["cross_validate", "loo", "to_arviz"]


def to_arviz(
    fit: Any,
    X: Data,
    *,
    num_samples: int = 1000,
    random_state: int | Array = 0,
    posterior_predictive: bool | int = False,
    feature_names: Sequence[str] | None = None,
    item_names: Sequence[str] | None = None,
) -> az.InferenceData | xr.DataTree:
    """Convert a fit to ArviZ data: `InferenceData` under ArviZ 0.23, `DataTree` under 1.x.

    Groups and names are the same for all methods. `posterior` contains the partition site (chain, draw, item), the
    hyperparameter sites, and the label-invariant `log_joint`, `n_clusters`, `n_large_clusters` (of at least 2% of the rows,
    and two rows), `largest_cluster` and `entropy`. `log_likelihood` contains, under the name of the observed site
    (chain, draw, item), log p(x_i | partition and rows of the others) with the label of i summed out (nats).
    `observed_data` contains the observed site (item, feature). On request,
    `posterior_predictive` contains replicated data under the name of the observed site (chain, draw, item, feature): new rows
    that keep the labels of the draw, with cluster parameters drawn given the rows of their cluster. If the model has several
    data arguments, `observed_data` contains what it observes, and `constant_data` the other arguments with one entry per row.

    Parameters
    ----------
    fit
        `MCMC` or `ResumableRun` that has run a kernel with a partition site, or NUTS on a model such as `dpm_stick_breaking`
        (labels `z` are recovered); `BHC` (partitions are drawn from its tree posterior); or another estimator (its single
        partition).
    X
        The data the model was fitted to, (n, d), or `ModelArguments` of a model with several data arguments.
    num_samples, random_state
        Number of draws from a tree, and their seed (whole number or JAX key); the seed is also used for recovered labels and
        for replicated data.
    posterior_predictive
        If True, replicate the data for every draw; if a whole number, for that many evenly spaced draws of every chain.
    feature_names, item_names
        Coordinates of the columns and rows of X, such as those of a data set; by default, 0, 1, ....

    Returns
    -------
    idata
        `arviz.InferenceData` under ArviZ 0.23, `xarray.DataTree` under 1.x.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or is of an unknown kind, if the number of names differs from the number of
        rows or columns, or if more replicates are requested than there are draws.

    Notes
    -----
    Summaries of the labels themselves are meaningless across draws and chains, and so are those of cluster parameters that
    are sites of the model. `AuxiliaryGibbs` samples parameters that cannot be integrated out: its `log_joint` is
    log p(partition) + Σ_i log f(x_i|θ_{z_i}), and its `log_likelihood` is log p(x_i | θ, labels of the others). If the model
    sums out the labels, the latter is log Σ_k w_k f(x_i|θ_k).

    For `BHMCGibbs`, `posterior` contains `paths` (chain, draw, item, level), the labels, the hyperparameters and the
    label-invariant scalars of `HierarchyDraws.summaries`, but neither the node proportions nor the component parameters;
    `log_likelihood` is that of `HierarchyDraws`; and `sample_stats` contains the truncated probability and the capacity hits.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> bhc = bnp.BHC(partial(bnp.models.dpm, component=component)).fit(X)
    >>> idata = bnp.to_arviz(bhc, X, num_samples=100)
    >>> idata["posterior"]["z"].shape, idata["log_likelihood"]["X"].shape
    ((1, 100, 5), (1, 100, 5))
    """
    import xarray as xr

    if is_hierarchical(fit, X):
        trees = hierarchy_draws(fit, X)
        return _grouped(_hierarchy_groups(trees, posterior_predictive, feature_names, item_names, random_state))
    draws = draws_of(fit, X, num_samples, random_state)
    n, d = draws.X.shape
    item, feature = _coordinate("item_names", item_names, n, "rows"), _coordinate("feature_names", feature_names, d, "columns")
    chosen = _replicated_draws(posterior_predictive, draws.labels.shape[1])
    values = summaries(draws)
    sample = ("chain", "draw")
    coords = {"chain": np.arange(draws.labels.shape[0]), "draw": np.arange(draws.labels.shape[1])}
    posterior: dict[str, Any] = {}
    of_clusters = numbered_sites(draws)
    for name, value in draws.hyperparameters.items():
        dims = [f"{name}_dim_{i}" for i in range(value.ndim - 2)]
        if name in of_clusters:
            dims[0] = "cluster"  # excludes them from convergence diagnostics
        posterior[name] = ((*sample, *dims), value)
    posterior |= {name: (sample, value) for name, value in label_invariant(draws).items()}
    posterior[draws.partition] = ((*sample, "item"), draws.labels)
    attributes = {"inference_library": "bnp_hier", "method": type(fit).__name__}
    groups: dict[str, Any] = {
        "posterior": xr.Dataset(posterior, {**coords, "item": item}, attributes),
        "log_likelihood": xr.Dataset(
            {draws.observed: ((*sample, "item"), values.log_likelihood)}, {**coords, "item": item}, attributes
        ),
        "observed_data": xr.Dataset(
            {draws.observed: (("item", "feature"), draws.X)}, {"item": item, "feature": feature}, attributes
        ),
    }
    covariates = _covariates(draws)
    if covariates:
        groups["constant_data"] = xr.Dataset(covariates, {"item": item}, attributes)
    if len(chosen):
        few = draws._replace(
            labels=draws.labels[:, chosen], hyperparameters={name: v[:, chosen] for name, v in draws.hyperparameters.items()}
        )
        groups["posterior_predictive"] = xr.Dataset(
            {draws.observed: ((*sample, "item", "feature"), replicated_data(few, random_state))},
            {"chain": coords["chain"], "draw": chosen, "item": item, "feature": feature},
            attributes,
        )
    return _grouped(groups)


def _covariates(draws: Draws) -> dict[str, Any]:
    """Columns of the arguments with one entry per row, other than what the model observes."""
    data = draws.mixture.data
    if data.is_table:
        return {}
    observed = list(draws.X.T)
    return {
        name: ("item", column)
        for name, column in data.columns.items()
        if not any(np.array_equal(column, one, equal_nan=True) for one in observed)
    }


def _grouped(groups: dict[str, Any]) -> az.InferenceData | xr.DataTree:
    import arviz as az
    import xarray as xr

    if int(az.__version__.split(".")[0]) < 1:
        return az.InferenceData(**groups)
    return xr.DataTree.from_dict(groups)


def _hierarchy_groups(
    draws: HierarchyDraws,
    replicates: bool | int,
    feature_names: Sequence[str] | None,
    item_names: Sequence[str] | None,
    random_state: int | Array,
) -> dict[str, xr.Dataset]:
    """Groups of `to_arviz` for a hierarchical mixture."""
    import xarray as xr

    sites, (n, d) = draws.sites, draws.X.shape
    item, feature = _coordinate("item_names", item_names, n, "rows"), _coordinate("feature_names", feature_names, d, "columns")
    chosen, sample = _replicated_draws(replicates, draws.shape[1]), ("chain", "draw")
    coords = {name: np.arange(length) for name, length in zip(sample, draws.shape, strict=True)}
    attributes = {"inference_library": "bnp_hier", "method": "BHMCGibbs"}
    level = {"level": np.arange(1, sites.depth + 1)}
    posterior: dict[str, Any] = {
        name: (sample + tuple(f"{name}_dim_{i}" for i in range(draws.samples[name].ndim - 2)), draws.samples[name])
        for name in (*sites.hyperparameters, *sites.others)
        if name in draws.samples
    }
    posterior |= {
        name: (sample + ("level",) * (value.ndim - 2), value.astype(float) if value.ndim > 2 else value)
        for name, value in draws.summaries().items()
    }
    posterior[sites.labels] = ((*sample, "item"), draws.labels)
    posterior[sites.paths] = ((*sample, "item", "level"), draws.paths)
    groups = {
        "posterior": xr.Dataset(posterior, {**coords, **level, "item": item}, attributes),
        "log_likelihood": xr.Dataset(
            {sites.observed: ((*sample, "item"), draws.log_likelihood())}, {**coords, "item": item}, attributes
        ),
        "observed_data": xr.Dataset(
            {sites.observed: (("item", "feature"), draws.X)}, {"item": item, "feature": feature}, attributes
        ),
    }
    if draws.sample_stats:
        stats = {name: (sample, value) for name, value in draws.sample_stats.items()}
        groups["sample_stats"] = xr.Dataset(stats, coords, attributes)
    if len(chosen):
        groups["posterior_predictive"] = xr.Dataset(
            {sites.observed: ((*sample, "item", "feature"), draws.replicates(chosen, random_state))},
            {"chain": coords["chain"], "draw": chosen, "item": item, "feature": feature},
            attributes,
        )
    return groups


def _coordinate(argument: str, names: Sequence[str] | None, length: int, what: str) -> np.ndarray:
    if names is None:
        return np.arange(length)
    if isinstance(names, str) or len(names) != length:
        raise ValueError(f"{argument} must contain one name for each of the {length} {what} of X, but it is {names!r:.200}")
    return np.array([str(name) for name in names])


def _replicated_draws(replicates: bool | int, length: int) -> Int[np.ndarray, " chosen"]:
    """Indices of the draws in each chain that get replicated data, evenly spaced."""
    count = length * replicates if isinstance(replicates, bool) else replicates
    if not isinstance(count, int | np.integer) or not 0 <= count <= length:
        raise ValueError(
            f"posterior_predictive must be True, False or a whole number from 0 to {length}, the number of draws per chain, "
            f"but it is {replicates!r}"
        )
    return np.linspace(0, length - 1, count).round().astype(int)


LEAST_KISH, MOST_MCSE, MOST_RHAT, LEAST_ESS = 0.1, 0.1, 1.01, 400
"""Thresholds at which `loo` warns: Kish share and Monte Carlo error of a row; R-hat and effective sample size of summaries."""


FEWEST_DRAWS = 4
"""Number of draws per chain below which R-hat and effective sample sizes are undefined."""


def loo(fit: Any, X: Data, *, num_samples: int = 1000, random_state: int | Array = 0) -> Any:
    """Compute the leave-one-out expected log predictive density (nats), with the label of each left-out row summed out.

    Parameters
    ----------
    fit, X, num_samples, random_state
        As in `to_arviz`. For an estimator with a single partition, the partition of the other rows is held fixed.

    Returns
    -------
    result
        ArviZ's `ELPDData`, accepted by its `compare`: `elpd_loo` (`elpd` under ArviZ 1.x), `se`, `p_loo` (`p`), `n_samples`,
        `n_data_points`, `warning`, `scale` and pointwise `loo_i` (`elpd_i`). Also `mcse` and `mcse_i`, the Monte Carlo standard
        errors of the total and of each row; `kish_i`, the Kish effective share of the draws; and, from 25 draws on,
        `pareto_k` and `good_k`: where a row's k exceeds the threshold, few draws have much of its weight, and its `mcse_i` is
        too small. Ties between draws of discrete labels are broken before k is computed. The printed result counts the rows
        below and above the threshold.

    Warns
    -----
    RuntimeWarning
        If there is a single Markov chain, the chains have fewer than four draws, the R-hat of a label-invariant summary exceeds
        1.01 or its effective sample size is below 400, or if a row has a Kish share below 0.1, a Monte Carlo error above
        0.1 nats or a Pareto k above `good_k`; for such rows, refit the model without them.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or is of an unknown kind.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> fit = bnp.MAPDP(partial(bnp.models.dpm, component=component)).fit(X)
    >>> result = bnp.loo(fit, X)
    >>> result.n_data_points, round(float(result.se), 2)
    (5, 1.11)
    """
    import arviz as az
    import xarray as xr

    scores, n_samples, trouble = cross_validate(fit, X, num_samples, random_state)
    for message in trouble:
        warnings.warn(f"loo: {message}", RuntimeWarning, stacklevel=2)
    pointwise = ("elpd_i", "mcse_i", "kish_i", "pareto_k")
    arrays = {name: xr.DataArray(getattr(scores, name), dims=["item"], name=name) for name in pointwise}
    has_k = not np.isnan(scores.good_k)
    elpd_i, p_i = scores.elpd_i, scores.p_i
    numbers = [float(elpd_i.sum()), standard_error(elpd_i), float(p_i.sum()), n_samples, len(elpd_i)]
    if int(az.__version__.split(".")[0]) < 1:
        from arviz.stats.stats_utils import ELPDData

        names = ["elpd_loo", "se", "p_loo", "n_samples", "n_data_points", "warning", "loo_i", "scale", "mcse"]
        data = [
            *numbers,
            bool(trouble),
            arrays["elpd_i"].rename("loo_i"),
            "log",
            scores.mcse,
            arrays["mcse_i"],
            arrays["kish_i"],
            *((arrays["pareto_k"], scores.good_k) if has_k else ()),
        ]
        return ELPDData(data=data, index=[*names, "mcse_i", "kish_i", *(("pareto_k", "good_k") if has_k else ())])
    from arviz_stats.utils import ELPDDataLOO

    keys = ("elpd", "se", "p", "n_samples", "n_data_points")
    result = ELPDDataLOO(
        **dict(zip(keys, numbers, strict=True)),
        scale="log",
        warning=bool(trouble),
        good_k=scores.good_k,
        elpd_i=arrays["elpd_i"],
        pareto_k=arrays["pareto_k"] if has_k else None,
    )
    result.mcse, result.mcse_i, result.kish_i = scores.mcse, arrays["mcse_i"], arrays["kish_i"]
    return result


def cross_validate(fit: Any, X: Data, num_samples: int, random_state: int | Array) -> tuple[LeaveOneOut, int, list[str]]:
    """Compute what `loo` reports: densities with their errors, the number of draws, and one message per warning."""
    if is_hierarchical(fit, X):
        trees = hierarchy_draws(fit, X)
        log_likelihood, scalars = trees.log_likelihood(), {n: v for n, v in trees.summaries().items() if v.ndim == 2}
    else:
        values = summaries(draws_of(fit, X, num_samples, random_state))
        log_likelihood, scalars = values.log_likelihood, {name: getattr(values, name) for name in LABEL_INVARIANT}
    scores = importance_leave_one_out(log_likelihood, _ess, _pareto_k)
    trouble = _trouble(scores, chain_diagnostics(scalars), isinstance(fit, Chains) and fit.num_chains == 1)
    length = log_likelihood.shape[1]
    if isinstance(fit, Chains) and length < FEWEST_DRAWS:
        trouble.append(
            f"the chains have {length} draws each, too few to see whether they have mixed: R-hat and effective sample sizes "
            f"need at least {FEWEST_DRAWS}"
        )
    return scores, int(np.prod(log_likelihood.shape[:2])), trouble


def _ess(draws: Float[np.ndarray, "chain draw m"]) -> Float[np.ndarray, " m"]:
    """Effective sample sizes of the means of m variables."""
    import arviz as az
    import xarray as xr

    named = xr.Dataset({"draws": (("chain", "draw", "variable"), draws)})
    return np.asarray(az.ess(named, method="mean")["draws"].values)


def _pareto_k(log_weights: Float[np.ndarray, "m s"]) -> Float[np.ndarray, " m"]:
    """Shapes of the generalised Pareto distributions of the largest weights."""
    import arviz as az

    if int(az.__version__.split(".")[0]) < 1:
        return np.asarray(az.psislw(log_weights)[1])
    from arviz_stats.base import array_stats

    return np.array([array_stats.psislw(-row)[1] for row in log_weights], dtype=float)


def _trouble(scores: LeaveOneOut, chains: pd.DataFrame, single: bool) -> list[str]:
    out = []
    if single:
        out.append("there is only one chain, so that nothing shows whether it has mixed: R-hat compares chains; run several")
    rhat, ess = chains["rhat"].max(), chains["ess_bulk"].min()
    if rhat > MOST_RHAT or ess < LEAST_ESS:
        worst = f"largest R-hat {rhat:.3f}, smallest effective sample size {ess:.0f}"
        out.append(
            f"the chains have not mixed or are too short ({worst}); expected an R-hat of at most {MOST_RHAT} and a size of at "
            f"least {LEAST_ESS}"
        )
    for name, bad in (
        (f"a Kish share of the draws below {LEAST_KISH}", scores.kish_i < LEAST_KISH),
        (f"a Monte Carlo error above {MOST_MCSE} nats", scores.mcse_i > MOST_MCSE),
        (f"a Pareto k above {scores.good_k:.2f}, with Monte Carlo errors that are too small,", scores.pareto_k > scores.good_k),
    ):
        if bad.any():
            rows = ", ".join(map(str, np.flatnonzero(bad)[:10]))
            out.append(
                f"{name} in {bad.sum()} of {len(bad)} rows: refit without them (rows {rows}{', ...' if bad.sum() > 10 else ''})"
            )
    return out

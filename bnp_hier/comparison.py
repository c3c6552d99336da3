"""Comparison of fitted methods in one table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int
from numpyro.infer.mcmc import MCMCKernel

from bnp_hier.capabilities import Chains, EvidenceBound
from bnp_hier.components import Component
from bnp_hier.datasets.dataset import combined_labels
from bnp_hier.deterministic.completion import settled_imputation
from bnp_hier.deterministic.hard_assignment.free_energies import log_joint_objective
from bnp_hier.inspection.model_arguments import Data, as_arguments, as_table
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.base import PartitionKernel
from bnp_hier.partitions.imputation import impute
from bnp_hier.posterior.convergence import LABEL_INVARIANT, chain_diagnostics, entries
from bnp_hier.posterior.draws import Draws, draws_of, log_predictive, partition_of, shared_summaries, summaries
from bnp_hier.posterior.mixtures import CollapsedMixture
from bnp_hier.posterior.renumbering import numbered_sites
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.options import check_options

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare", "shared_component", "shared_hyperparameters", "tabulate"]


@blas_on_one_core()
def compare(
    fits: Mapping[str, Any],
    X: Data,
    held_out: Data | None = None,
    truth: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    seconds: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Compare fitted methods on the data they were fitted to.

    Parameters
    ----------
    fits
        Name -> fit: `MCMC` objects or `ResumableRun`s that have run a kernel with a partition site, or NUTS on
        `dpm_stick_breaking` (whose labels are then recovered), and fitted estimators.
    X
        The data, (n, d), or `ModelArguments` of a model with several data arguments.
    held_out
        Rows that were not used in any of the fits, (m, d), or `ModelArguments` with such rows.
    truth
        Known classes of the rows of X, (n,), or name -> (n,) for several kinds of classes.
    seconds
        Run time of each method (s); without it, that of fits that do not record their own (chains) is NaN.

    Returns
    -------
    table
        One row per method, in the order of `fits`. Columns:

        - `clusters`: number of clusters in the point estimate (MCMC: `point_estimate` of the draws, the partition with the
          smallest expected variation of information found by its search; estimators: `labels_`).
        - `log_joint`: log p(X, point estimate) at the method's hyperparameters (MCMC: their posterior medians), in nats; NaN,
          like the bound, if the cluster parameters cannot be integrated out (`AuxiliaryGibbs`).
        - `log_joint_shared`: log p(X, point estimate) at hyperparameters shared by all methods: those of the first estimator,
          or of the first chains if there is none (nats). NaN where `log_joint` is, and for a fit of a model other than the
          first.
        - `log_posterior`: log p(X, point estimate, hyperparameters), with the hyperpriors, at the hyperparameters that maximise
          it for this partition (a local maximum, from those of the fit): the unnormalised log posterior (nats). Compare
          partitions between methods by this column. NaN where `log_joint` is, and for models with hyperparameters that have
          several data arguments or sum the labels out.
        - `evidence_bound` and `bound_kind`: a lower bound on log p(X) at the same hyperparameters (nats), and its kind: the
          tree bound for BHC, the variational bound together with the model it bounds, and otherwise the log joint of one
          partition.
        - `same_hyperparameters`: whether `log_joint` and `evidence_bound` are at the shared hyperparameters. Where it is False,
          do not compare them with those of other methods.
        - `held_out`, `held_out_se`: mean log predictive density per held-out row and its standard error over rows (nats), NaN
          for a single row; for MCMC, the density is averaged over the draws. Only with `held_out`.
        - `held_out_diff`, `held_out_dse`: `held_out` minus that of the best method, at most 0, and the standard error of this
          difference, computed from the differences of individual rows (nats). Judge methods by these: their densities of one
          row are alike, so that `held_out_se` is far larger than the error of a difference. Only with `held_out`.
        - `NMI`, `ARI`: agreement of the point estimate with `truth`, or with the combinations of several kinds of classes.
          Only with `truth`.
        - `ARI <name>`: agreement of the point estimate with each of several kinds of classes.
        - `NMI <method>`: agreement between the point estimates of two methods.
        - `seconds`: run time.
        - `rhat`, `ess`: largest R-hat and smallest effective sample size (bulk or tail) over the label-invariant summaries
          (log joint, number of clusters, size of the largest cluster, entropy) and the hyperparameters, as in `diagnostics`;
          MCMC only.
        - `capacity_hits`: number of times a kernel reached its capacity; MCMC only.

    Raises
    ------
    ValueError, TypeError, NotFittedError
        If `fits` is empty, a fit has not run or does not match X, lengths disagree, a true class is missing, or `seconds` has
        a name that `fits` does not have.

    Examples
    --------
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> iris = bnp.datasets.load("iris")
    >>> X, species = iris.X[::5], iris.y[::5]
    >>> model = partial(bnp.models.dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False))
    >>> table = bnp.compare({"MAP-DP": bnp.MAPDP(model).fit(X), "BHC": bnp.BHC(model).fit(X)}, X, truth=species)
    >>> table[["clusters", "ARI"]].round(1).to_dict("index")
    {'MAP-DP': {'clusters': 3, 'ARI': 0.6}, 'BHC': {'clusters': 3, 'ARI': 0.6}}
    """
    import pandas as pd

    check_options("compare", {"fits": [Mapping], "seconds": [None, Mapping]}, {"fits": fits, "seconds": seconds})
    if not fits:
        raise ValueError("compare needs at least one fit")
    unknown = sorted(set(seconds or {}) - set(fits))
    if unknown:
        raise ValueError(f"seconds has run times of {', '.join(unknown)}, but the fits are {', '.join(fits)}")
    n = len(as_arguments(X))
    for name, classes in _kinds_of_classes(truth).items():
        what = f"truth[{name!r}]" if name else "truth"
        if np.shape(classes) != (n,):
            raise ValueError(f"{what} must have one class per row, shape ({n},), but it has shape {np.shape(classes)}")
        missing = pd.isna(np.asarray(classes, dtype=object))
        if missing.any():
            raise ValueError(f"{what} must have one class per row, but that of row {missing.argmax()} is missing")
    return tabulate(fits, X, {name: partition_of(fit, X) for name, fit in fits.items()}, held_out, truth, seconds)


def tabulate(
    fits: Mapping[str, Any],
    X: Data,
    labels: Mapping[str, Int[np.ndarray, " n"]],
    held_out: Data | None = None,
    truth: ArrayLike | Mapping[str, ArrayLike] | None = None,
    seconds: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Return the table of `compare`, given the partition of each fit."""
    import pandas as pd
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    rows, scores, kinds = {}, {}, {name: np.asarray(classes) for name, classes in _kinds_of_classes(truth).items()}
    with shared_summaries():
        values = shared_hyperparameters(fits, X)
        shared, posterior = _log_joints_at(values, fits, X, labels), _log_posteriors(fits, X, labels)
        for name, fit in fits.items():
            row: dict[str, Any] = {"clusters": int(labels[name].max()) + 1}
            row |= {"log_joint": np.nan, "log_joint_shared": shared.get(name, np.nan)}
            row |= {"log_posterior": np.nan} | _evidence(fit, X, labels[name])
            row["log_posterior"] = posterior.get(name, row["log_joint"])
            row["same_hyperparameters"] = _same(_hyperparameters(fit, X), values)
            if held_out is not None:
                scores[name] = _held_out(fit, X, held_out)
                row |= {"held_out": scores[name].mean(), "held_out_se": _standard_error_of_mean(scores[name])}
            if kinds:
                known = combined_labels(kinds)
                row["NMI"] = normalized_mutual_info_score(known, labels[name])
                row["ARI"] = adjusted_rand_score(known, labels[name])
                row |= {f"ARI {kind}": adjusted_rand_score(of, labels[name]) for kind, of in kinds.items() if kind}
            for other, theirs in labels.items():
                row[f"NMI {other}"] = normalized_mutual_info_score(theirs, labels[name])
            row["seconds"] = (seconds or {}).get(name, getattr(fit, "fit_seconds_", np.nan))
            row |= _diagnostics(name, fit, X)
            rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "method"
    if held_out is not None:
        best, after = table["held_out"].idxmax(), table.columns.get_loc("held_out_se") + 1
        table.insert(after, "held_out_diff", table["held_out"] - table["held_out"].max())
        table.insert(after + 1, "held_out_dse", [_standard_error_of_mean(scores[name] - scores[best]) for name in fits])
    return table


def _standard_error_of_mean(values: Float[np.ndarray, " m"]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def _kinds_of_classes(truth: ArrayLike | Mapping[str, ArrayLike] | None) -> Mapping[str, ArrayLike]:
    """Name -> known classes; the only ones have no name."""
    return truth if isinstance(truth, Mapping) else {} if truth is None else {"": truth}


def shared_hyperparameters(fits: Mapping[str, Any], X: Data) -> dict[str, np.ndarray]:
    """Hyperparameters at which the partitions of all fits are compared: the first estimator's, else the first chains' medians.

    Parameters
    ----------
    fits
        Name -> fit.
    X
        The data, (n, d).
    """
    return {name: np.asarray(value) for name, value in _hyperparameters(_first(fits), X).items()}


def shared_component(fits: Mapping[str, Any], X: Data) -> Component | None:
    """The component at the shared hyperparameters; None if the model has one set of parameters per cluster instead."""
    first = _first(fits)
    if not draws_of(first, X, num_samples=1).mixture.integrated:
        return None
    with double_precision():
        values = Problem(_model(first), as_table(X), allow_missing=True).values_at(shared_hyperparameters(fits, X))
        return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), values.component)


def _first(fits: Mapping[str, Any]) -> Any:
    """The first fit that is no chains, or else the first."""
    return next((fit for fit in fits.values() if not isinstance(fit, Chains)), next(iter(fits.values())))


def _model(fit: Any) -> Any:
    """The NumPyro model of a fit."""
    return fit.sampler.model if isinstance(fit, Chains) else fit.model


def _medians(draws: Draws) -> dict[str, np.ndarray]:
    """Medians of the hyperparameters over all draws."""
    kept = {name: values for name, values in draws.hyperparameters.items() if name != draws.missing}
    return {name: np.asarray(np.median(values, axis=(0, 1))) for name, values in kept.items()}


def _hyperparameters(fit: Any, X: Data) -> Mapping[str, ArrayLike]:
    return _medians(draws_of(fit, X)) if isinstance(fit, Chains) else fit.hyperparameters_


def _same(one: Mapping[str, ArrayLike], other: Mapping[str, ArrayLike]) -> bool:
    """Whether hyperparameters have the same names and, but for rounding, the same values, in whatever units."""
    if set(one) != set(other):
        return False
    return all(np.shape(one[n]) == np.shape(other[n]) and np.allclose(one[n], other[n], rtol=1e-6, atol=0.0) for n in one)


def _log_joints_at(
    hyperparameters: Mapping[str, np.ndarray],
    fits: Mapping[str, Any],
    X: Data,
    labels: Mapping[str, Int[np.ndarray, " n"]],
) -> dict[str, float]:
    """Log p(X, partition) of every fit of the first fit's model, in one call for those that do not know it."""
    model = _model(_first(fits))
    known = {
        name: float(fit.log_joint_)
        for name, fit in fits.items()
        if _model(fit) is model and not isinstance(fit, Chains) and not hasattr(fit, "missing_values_")
        if _same(fit.hyperparameters_, hyperparameters)
    }
    names = [name for name, fit in fits.items() if _model(fit) is model and name not in known]
    if not names:
        return known
    first = draws_of(_first(fits), X, num_samples=1)
    if not first.mixture.integrated:
        return {}
    if first.missing is not None:
        return known | {name: _observed_log_joint(model, X, hyperparameters, labels[name]) for name in names}
    stacked = np.stack([labels[name] for name in names])[None]
    values = {name: np.broadcast_to(value, (1, len(names), *np.shape(value))) for name, value in hyperparameters.items()}
    joints = summaries(first._replace(labels=stacked, hyperparameters=values)).log_joint[0]
    return known | dict(zip(names, map(float, joints), strict=True))


def _log_posteriors(fits: Mapping[str, Any], X: Data, labels: Mapping[str, Int[np.ndarray, " n"]]) -> dict[str, float]:
    """Log p(X, partition, hyperparameters) of every fit whose model has hyperparameters, at the best ones for its partition."""
    found, problems = {}, {}
    for name, fit in fits.items():
        draws = draws_of(fit, X, num_samples=1)
        given = {site: values for site, values in draws.hyperparameters.items() if site != draws.missing}
        if not given:
            continue
        if not isinstance(draws.mixture, CollapsedMixture) or not draws.mixture.data.is_table:
            found[name] = np.nan
            continue
        best: tuple[Any, ...] = (0, 0)
        if isinstance(fit, Chains):  # medians may be outside the support of a prior of several variables
            best = np.unravel_index(np.argmax(summaries(draws).log_joint), draws.labels.shape[:2])
        with double_precision():
            key = id(_model(fit))
            if key not in problems:
                problems[key] = Problem(_model(fit), as_table(X), allow_missing=True)
            problem = problems[key]
            problem.set({site: values[best] for site, values in given.items()})
            if draws.missing is not None:
                joint = settled_imputation(problem, labels[name], True).log_joint
                found[name] = float(joint + problem.prior.log_prob(problem.hyperparameters))
                continue
            partition, objective = _Partition(labels[name]), log_joint_objective(problem, "dp")
            objective.ascend(partition)
            found[name] = float(objective.value(partition))
    return found


class _Partition(NamedTuple):
    """Labels, as an objective takes them."""

    labels: Int[np.ndarray, " n"]


def _observed_log_joint(
    model: Model, X: Data, hyperparameters: Mapping[str, np.ndarray], labels: Int[np.ndarray, " n"]
) -> float:
    """Lower bound on log p(observed cells, partition), with missing values integrated out approximately (see `impute`)."""
    with double_precision():
        problem = Problem(model, as_table(X), allow_missing=True)
        return impute(problem.values_at(hyperparameters), problem.X, labels).log_joint


def _evidence(fit: Any, X: Data, labels: Int[np.ndarray, " n"]) -> dict[str, Any]:
    if isinstance(fit, Chains):
        draws = draws_of(fit, X)
        medians = {name: value[None, None] for name, value in _medians(draws).items()}
        if not draws.mixture.integrated:  # a density given the parameters is not a lower bound on the evidence
            return {"log_joint": np.nan, "evidence_bound": np.nan, "bound_kind": "none"}
        if draws.missing is not None:
            log_joint = _observed_log_joint(_model(fit), X, _medians(draws), labels)
        else:
            one = draws._replace(labels=labels[None, None], hyperparameters=medians)
            log_joint = float(summaries(one).log_joint[0, 0])
    else:
        log_joint = fit.log_joint_
    bound, kind = log_joint, "one partition"
    if isinstance(fit, EvidenceBound):
        bound, kind = fit.log_evidence_bound_, fit.bound_kind_
    return {"log_joint": log_joint, "evidence_bound": bound, "bound_kind": kind}


def _held_out(fit: Any, X: Data, held_out: Data) -> np.ndarray:
    if isinstance(fit, Chains):
        return log_predictive(draws_of(fit, X), held_out)
    return fit.score_samples(as_table(held_out))


def _diagnostics(name: str, fit: Any, X: Data) -> dict[str, Any]:
    if not isinstance(fit, Chains):
        return {"rhat": np.nan, "ess": np.nan, "capacity_hits": np.nan}
    draws = draws_of(fit, X)
    values = summaries(draws)
    scalars = {name: getattr(values, name) for name in LABEL_INVARIANT}
    left_out = (*numbered_sites(draws), draws.missing)
    others = {name: value for name, value in draws.hyperparameters.items() if name not in left_out}
    chains = chain_diagnostics(scalars | entries(others))
    hits = _capacity_hits(fit.last_state)
    if hits:
        warnings.warn(
            f"{name} reached its capacity {hits} times, so its draws target the posterior restricted to that many clusters; "
            f"{'; '.join(_capacity_advice(fit.sampler))}",
            RuntimeWarning,
            stacklevel=3,
        )
    return {"rhat": chains["rhat"].max(), "ess": chains[["ess_bulk", "ess_tail"]].min(axis=None), "capacity_hits": hits}


def _capacity_advice(kernel: MCMCKernel) -> list[str]:
    """Capacity advice of a kernel, or of each block of a composite kernel that has a capacity."""
    if isinstance(kernel, PartitionKernel):
        return [kernel.capacity_advice]
    return [advice for block, _ in getattr(kernel, "blocks", ()) for advice in _capacity_advice(block)]


def _capacity_hits(state: Any) -> int:
    """Number of capacity hits over all chains, for the kernel and any blocks of a composite kernel."""
    own = getattr(state, "capacity_hits", None)
    total = 0 if own is None else int(np.asarray(own).sum())
    return total + sum(_capacity_hits(block) for block in getattr(state, "block_states", ()))

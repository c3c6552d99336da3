"""Partition draws of any fitted method, and label-invariant quantities computed from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bnp_hier.capabilities import Chains, Clustering, FitsWithData, TreePosterior
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.inspection.collapsed import MixtureSites, find_sites
from bnp_hier.inspection.forms import find_any_sites
from bnp_hier.inspection.model_arguments import Data, ModelArguments, as_arguments, as_table
from bnp_hier.inspection.nested import has_tree
from bnp_hier.inspection.slots import SlotSites
from bnp_hier.kernels.spread_rows import gathered_labels
from bnp_hier.native.cores import on_cores
from bnp_hier.partitions.scoring import check_log_weights
from bnp_hier.partitions.sizes import size_summaries
from bnp_hier.posterior.explicit_mixtures import SlotMixture, StickMixture
from bnp_hier.posterior.item_uncertainty import without_improbable_clusters
from bnp_hier.posterior.mixtures import CollapsedMixture, Mixture
from bnp_hier.posterior.point_estimates import point_estimate
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.programs import compiled
from bnp_hier.utils.randomness import random_key
from bnp_hier.utils.sharded_arrays import replicated

__all__ = [
    "Draws",
    "Summaries",
    "draws_of",
    "log_predictive",
    "log_predictive_of_table",
    "map_draws",
    "of_many_draws",
    "partition_of",
    "shared_summaries",
    "summaries",
    "thinned",
]


class Draws(NamedTuple):
    """Draws of a partition and of the other sites of the model, on one data set.

    - **labels** - (chain, draw, n) whole numbers from 0; recovered from the other sites if the model has no labels.
    - **hyperparameters** - an array (chain, draw, ...) for each other latent site, including cluster parameters and missing
      values.
    - **mixture** - the model, its data, and how to evaluate a draw.
    """

    labels: Int[np.ndarray, "chain draw n"]
    hyperparameters: dict[str, np.ndarray]
    mixture: Mixture

    @property
    def X(self) -> Float[np.ndarray, "n d"]:
        """The data, in float64."""
        return self.mixture.X

    @property
    def partition(self) -> str:
        """Name of the labels."""
        return self.mixture.partition

    @property
    def observed(self) -> str:
        """Name of the observed site."""
        return self.mixture.observed

    @property
    def missing(self) -> str | None:
        """The site of missing values, if the model has one."""
        return self.mixture.sites.missing if isinstance(self.mixture, CollapsedMixture) else None

    @property
    def n_clusters(self) -> Int[np.ndarray, "chain draw"]:
        """Number of clusters of each draw."""
        labels = np.sort(self.labels, axis=-1)
        return 1 + (np.diff(labels, axis=-1) > 0).sum(-1)


class Summaries(NamedTuple):
    """Label-invariant quantities of each draw.

    - **log_joint** - log p(X, partition) at the draw's hyperparameters (nats), (chain, draw); conditional on the draw's
      cluster parameters if they cannot be integrated out (`Mixture.integrated`).
    - **n_clusters** - number of clusters, (chain, draw).
    - **largest_cluster** - size of the largest cluster, (chain, draw).
    - **entropy** - entropy of the cluster shares (nats), (chain, draw).
    - **log_likelihood** - log p(x_i | labels and rows of the others), with the label of i summed out (nats), (chain, draw, n);
      if cluster parameters are sites of the model, log p(x_i | parameters, labels of the others).
    """

    log_joint: Float[np.ndarray, "chain draw"]
    n_clusters: Int[np.ndarray, "chain draw"]
    largest_cluster: Int[np.ndarray, "chain draw"]
    entropy: Float[np.ndarray, "chain draw"]
    log_likelihood: Float[np.ndarray, "chain draw n"]


def draws_of(fit: Any, X: Data, num_samples: int = 1000, random_state: int | Array = 0) -> Draws:
    """Return the partition draws of a fit.

    Parameters
    ----------
    fit
        An `MCMC` object or `ResumableRun` that has run a kernel with a partition site, or NUTS on a model such as
        `dpm_stick_breaking`, whose labels are then recovered; a `BHC`, from whose tree posterior partitions are drawn; or
        another fitted estimator, whose partition is the only draw.
    X
        The data the model was fitted to: a table, or `ModelArguments` of a model with several data arguments.
    num_samples
        Number of partitions drawn from a tree.
    random_state
        Whole number or JAX key for these draws and for recovered labels.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or is of an unknown kind.
    """
    if isinstance(fit, Chains):
        return _draws_of_chains(fit, as_arguments(X), random_state)
    matrix = as_table(X)
    if not isinstance(fit, Clustering):
        if isinstance(fit, BaseEstimator) and not _contains_fit(fit):
            check_is_fitted(fit, "labels_")
        raise TypeError(
            f"expected an MCMC object or a fitted bnp_hier estimator, but got {type(fit).__name__}{_contains_fit(fit)}"
        )
    if len(fit.labels_) != len(matrix):
        raise ValueError(f"X has {len(matrix)} rows, but the estimator was fitted to {len(fit.labels_)}")
    with double_precision():
        sites = find_sites(fit.model, (matrix,))
    labels = fit.sample_partitions(random_state, num_samples) if isinstance(fit, TreePosterior) else fit.labels_[None]
    hyperparameters = {
        name: np.broadcast_to(value, (1, len(labels), *np.shape(value))) for name, value in fit.hyperparameters_.items()
    }
    if sites.missing is not None:
        cells = np.asarray(getattr(fit, "missing_values_"))  # noqa: B009 - only estimators of completed tables have it
        hyperparameters[sites.missing] = np.broadcast_to(cells, (1, len(labels), len(cells)))
    return Draws(labels[None], hyperparameters, CollapsedMixture(fit.model, as_arguments(matrix), sites))


def _contains_fit(fit: Any) -> str:
    """How to get at the fit inside a pipeline, a search or a result; empty for anything else."""
    from sklearn.pipeline import Pipeline

    if isinstance(fit, Pipeline):
        return ": pass its last step, pipeline[-1], and the data of this step, pipeline[:-1].transform(X)"
    if hasattr(fit, "best_estimator_"):
        return ": pass its best_estimator_"
    return ": pass one of its fits, and data.X" if isinstance(fit, FitsWithData) else ""


def _draws_of_chains(mcmc: Chains, data: ModelArguments, random_state: int | Array) -> Draws:
    if mcmc.last_state is None:
        raise ValueError("the MCMC object has no draws: call its run method first")
    model = getattr(mcmc.sampler, "model", None)
    if model is None:
        raise ValueError(f"the kernel {type(mcmc.sampler).__name__} has no model from which to read the partition")
    data = data.named_by(model)
    with double_precision():
        try:
            sites = find_any_sites(model, data.args, data.kwargs)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise TypeError(
                f"the model does not run on {data!r} ({error}): pass the arguments that the kernel ran on, as "
                "bnp_hier.ModelArguments(...)"
            ) from error
        except ValueError:
            if not has_tree(model, data.args):
                raise
            raise ValueError(
                "the chains sample a hierarchical mixture, whose draws are trees: read them with "
                "bnp_hier.hierarchy_draws(fit, X); the nodes of each draw at one level form a partition"
            ) from None
    samples = mcmc.get_samples(group_by_chain=True)
    others = sites.others if isinstance(sites, MixtureSites) else sites.parameters
    hyperparameters = {name: np.asarray(replicated(samples[name]), dtype=np.float64) for name in others}
    if not isinstance(sites, MixtureSites | SlotSites):
        mixture = StickMixture(model, data, sites)
        return Draws(_recovered_labels(mixture, hyperparameters, random_key(random_state)), hyperparameters, mixture)
    if sites.partition not in samples:
        raise ValueError(
            f"the run collected {sorted(samples)}, but not the labels {sites.partition!r}, which are required: "
            "run it with keep_labels=True, or collect them once per chunk (ResumableRun(chunk_fields=...))"
        )
    labels = gathered_labels(samples[sites.partition])
    if labels.shape[-1] != len(data):
        raise ValueError(f"X has {len(data)} rows, but the draws label {labels.shape[-1]} items")
    if isinstance(sites, SlotSites):
        return Draws(labels, hyperparameters, SlotMixture(model, data, sites))
    return Draws(labels, hyperparameters, CollapsedMixture(model, data, sites))


def partition_of(fit: Any, X: Data) -> Int[np.ndarray, " n"]:
    """Return one partition: an estimator's `labels_`, or the point estimate of MCMC draws (variation of information).

    Clusters of the point estimate whose rows all belong to another cluster with a higher probability are dissolved.
    """
    draws = draws_of(fit, X, num_samples=1)
    if isinstance(fit, Clustering):
        return fit.labels_
    return without_improbable_clusters(draws.labels, point_estimate(draws.labels))


def _recovered_labels(
    mixture: StickMixture, hyperparameters: dict[str, np.ndarray], key: Array
) -> Int[np.ndarray, "chain draw n"]:
    shape = hyperparameters[mixture.sites.weights].shape[:2]
    with double_precision():
        keys = jax.random.split(key, shape)
        batch = _batch(mixture, mixture.sites.truncation)
        program = of_many_draws(lambda item: (mixture.draw_labels(*item),))
        (labels,) = map_draws(program, (keys, hyperparameters), batch)
    return labels


@contextmanager
def shared_summaries() -> Iterator[None]:
    """Context in which `summaries` are computed once for the same draws, by one program for fits of a model to the same rows.

    Neither is kept longer, because a model may read state that changes between two calls.
    """
    known = _SHARED.get()
    token = _SHARED.set(_Shared({}, {}) if known is None else known)
    try:
        yield
    finally:
        _SHARED.reset(token)


ManyDraws: TypeAlias = Callable[[Any, bool], Callable[[Any], tuple[Array, ...]]]
"""(Draws of the shapes of later ones, whether there are few calls) -> compiled function of draws."""

FEW_CALLS = 8
"""Number of calls up to which a function of draws takes longer to optimise than to run."""


class _Shared(NamedTuple):
    """Functions of draws by model, data and number of slots, and their results by draws."""

    programs: dict[Any, ManyDraws]
    summaries: dict[Any, Summaries]


_SHARED: ContextVar[_Shared | None] = ContextVar("shared", default=None)


def summaries(draws: Draws) -> Summaries:
    """Label-invariant quantities of each draw, in float64."""
    mixture, slots = draws.mixture, draws.mixture.slots(draws.labels)

    def one(item: tuple[Array, dict[str, Array]]) -> tuple[Array, ...]:
        labels, hyperparameters = item
        joint, pointwise = mixture.summarize(labels, hyperparameters, slots)
        _, largest, entropy = size_summaries(cluster_counts(labels, slots))
        return joint, largest, entropy, pointwise

    # the closure of the program keeps the model alive, so its id is not reused
    same = (type(mixture), id(mixture.model), mixture.data.digest(), slots)
    shared = _SHARED.get()
    shared = _Shared({}, {}) if shared is None else shared
    program = shared.programs.setdefault(same, of_many_draws(one))
    items = draws.labels, draws.hyperparameters
    these = (same, _digest(items))
    if these not in shared.summaries:
        with double_precision():
            joint, largest, entropy, pointwise = map_draws(program, items, _batch(mixture, slots))
        shared.summaries[these] = Summaries(joint, draws.n_clusters, largest, entropy, pointwise)
    return shared.summaries[these]


def _digest(items: Any) -> str:
    """Digest of arrays, their shapes and their names."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(items):
        digest.update(f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).data)
    return digest.hexdigest()


def log_predictive(draws: Draws, X: Data) -> Float[np.ndarray, " m"]:
    """Log predictive density of new rows, averaged over the draws (nats), in float64.

    Parameters
    ----------
    draws
        Draws on the fitted data.
    X
        New rows, (m, d), or `ModelArguments` with new rows; each row is scored separately.

    Raises
    ------
    ValueError
        If the rows are not valid for the model.

    Notes
    -----
    If labels refer to slots (`AuxiliaryGibbs`), the model is run on the new rows; the density of a row must not depend on
    the other rows.
    """
    return _log_predictive(draws, draws.mixture.data.new_rows(X))


def log_predictive_of_table(draws: Draws, table: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
    """`log_predictive` of rows of the table that a model with a conjugate component observes, whatever its arguments are."""
    return _log_predictive(draws, as_arguments(table))


def _log_predictive(draws: Draws, new_rows: ModelArguments) -> Float[np.ndarray, " m"]:
    slots = draws.mixture.slots(draws.labels)

    def one(item: tuple[Array, dict[str, Array]]) -> tuple[Array]:
        return (draws.mixture.log_predictive(*item, slots, new_rows),)

    with double_precision():
        first = {name: jnp.asarray(value[0, 0]) for name, value in draws.hyperparameters.items()}
        draws.mixture.validate(first, new_rows)
        (scores,) = map_draws(of_many_draws(one), (draws.labels, draws.hyperparameters), _batch(draws.mixture, slots))
        scores = scores.reshape(-1, len(new_rows))
    if isinstance(draws.mixture, CollapsedMixture):  # with sampled parameters, a density of 0 is legitimate
        check_log_weights(scores.T, draws.mixture.table(new_rows))
    return np.logaddexp.reduce(scores, axis=0) - np.log(len(scores))


def thinned(draws: Draws, most: int) -> Draws:
    """At most `most` draws over all chains together (at least one of each), evenly spaced."""
    chains, length = draws.labels.shape[:2]
    taken = np.linspace(0, length - 1, min(max(1, most // chains), length)).round().astype(int)
    kept = {name: values[:, taken] for name, values in draws.hyperparameters.items()}
    return draws._replace(labels=draws.labels[:, taken], hyperparameters=kept)


def _batch(mixture: Mixture, slots: int) -> int:
    """Number of draws processed at once, limited to bound memory."""
    return max(1, min(64, 2_000_000 // (len(mixture.data) * slots)))


def of_many_draws(function: Callable[[Any], tuple[Array, ...]]) -> ManyDraws:
    """Compile a function of one draw into a function of many draws, for `map_draws`, at its first call with their shapes."""
    programs: dict[Any, Callable[[Any], tuple[Array, ...]]] = {}

    def program(block: Any, few_calls: bool) -> Callable[[Any], tuple[Array, ...]]:
        same = few_calls, jax.tree.structure(block), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(block))
        if same not in programs:
            programs[same] = compiled(jax.vmap(function), block, few_calls=few_calls)
        return programs[same]

    return program


def map_draws(program: ManyDraws, draws: Any, batch: int) -> tuple[np.ndarray, ...]:
    """Apply a function to all draws in a pytree of arrays (chain, draw, ...); results have the same leading dimensions.

    The function, made by `of_many_draws`, receives `batch` draws at a time. The last batch is padded with copies of the last
    draw, so that the function is compiled only once for any number of draws, except for fewer than a batch.
    """
    shape = jax.tree.leaves(draws)[0].shape[:2]
    total = shape[0] * shape[1]
    batch = min(batch, total)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)

    def some(start: int) -> tuple[Any, ...]:
        block = np.minimum(np.arange(start, start + batch), total - 1)
        return jax.tree.map(lambda leaf: leaf[block], flat)

    run = program(some(0), -(-total // batch) <= FEW_CALLS)

    def results(start: int) -> tuple[np.ndarray, ...]:
        return jax.tree.map(np.asarray, run(some(start)))

    found = on_cores(results, range(0, total, batch))
    whole = (np.concatenate(parts)[:total] for parts in zip(*found, strict=True))
    return tuple(part.reshape(*shape, *part.shape[1:]) for part in whole)

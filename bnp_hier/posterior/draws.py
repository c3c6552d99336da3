"""Partition draws of any fitted route, and the label-invariant quantities that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpyro.infer import MCMC
from sklearn.utils.validation import check_is_fitted

from bnp_hier.allocation import Prior, log_joint
from bnp_hier.components.base import as_matrix
from bnp_hier.deterministic.base import DeterministicClustering, mixture_log_weights
from bnp_hier.deterministic.bhc import BHC
from bnp_hier.deterministic.leave_one_out import leave_one_out
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.kernels import ResumableRun
from bnp_hier.model_sites import Model, as_arrays, find_sites, read_values

__all__ = ["CHAINS", "Draws", "Summaries", "draws_of", "log_predictive", "summaries"]

CHAINS = (MCMC, ResumableRun)
"""Types of fits that hold the chains of a kernel."""


class Draws(NamedTuple):
    """Draws of a partition and of hyperparameters, on one data set.

    - **labels** - (chain, draw, n) whole numbers from 0.
    - **hyperparameters** - for each hyperparameter site, an array (chain, draw, ...).
    - **model** - the NumPyro model.
    - **X** - the data, (n, d) float64.
    - **partition** - name of the partition site.
    - **observed** - name of the observed site.
    """

    labels: Int[np.ndarray, "chain draw n"]
    hyperparameters: dict[str, np.ndarray]
    model: Model
    X: Float[np.ndarray, "n d"]
    partition: str
    observed: str

    @property
    def n_clusters(self) -> Int[np.ndarray, "chain draw"]:
        """Number of clusters of each draw."""
        labels = np.sort(self.labels, axis=-1)
        return 1 + (np.diff(labels, axis=-1) > 0).sum(-1)


class Summaries(NamedTuple):
    """Label-invariant quantities of each draw.

    - **log_joint** - log p(X, partition) at the draw's hyperparameters (nats), (chain, draw).
    - **n_clusters** - number of clusters, (chain, draw).
    - **largest_cluster** - items in the largest cluster, (chain, draw).
    - **entropy** - entropy of the cluster shares (nats), (chain, draw).
    - **log_likelihood** - log p(x_i | labels and rows of the others), the label of i summed out (nats),
      (chain, draw, n).
    """

    log_joint: Float[np.ndarray, "chain draw"]
    n_clusters: Int[np.ndarray, "chain draw"]
    largest_cluster: Int[np.ndarray, "chain draw"]
    entropy: Float[np.ndarray, "chain draw"]
    log_likelihood: Float[np.ndarray, "chain draw n"]


def draws_of(fit: Any, X: ArrayLike, n_draws: int = 1000, random_state: int | Array = 0) -> Draws:
    """Partition draws of a fit.

    Parameters
    ----------
    fit
        An `MCMC` object or `ResumableRun` that has run a kernel with a partition site; a `BHC`, whose tree posterior is drawn
        from; or another fitted estimator, whose partition is the only draw.
    X
        The data that were fitted.
    n_draws
        Draws taken from a tree.
    random_state
        Whole number or JAX key of those draws.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not belong to X, or is of an unknown kind.
    """
    matrix = as_matrix(X)
    if isinstance(fit, CHAINS):
        return _draws_of_mcmc(fit, matrix)
    if not isinstance(fit, DeterministicClustering):
        raise TypeError(f"expected an MCMC object or a fitted bnp_hier estimator, but got {type(fit).__name__}")
    check_is_fitted(fit, "counts_")
    if len(fit.labels_) != len(matrix):
        raise ValueError(f"X has {len(matrix)} rows, but the estimator was fitted to {len(fit.labels_)}")
    with jax.enable_x64(True):
        sites = find_sites(fit.model, (matrix,))
    labels = fit.sample_partitions(random_state, n_draws) if isinstance(fit, BHC) else fit.labels_[None]
    hyperparameters = {
        name: np.broadcast_to(value, (1, len(labels), *np.shape(value))) for name, value in fit.hyperparameters_.items()
    }
    return Draws(labels[None], hyperparameters, fit.model, matrix, sites.partition, sites.observed)


def _draws_of_mcmc(mcmc: MCMC | ResumableRun, X: Float[np.ndarray, "n d"]) -> Draws:
    if mcmc.last_state is None:
        raise ValueError("the MCMC object has no draws: call its run method first")
    model = getattr(mcmc.sampler, "model", None)
    if model is None:
        raise ValueError(f"the kernel {type(mcmc.sampler).__name__} holds no model to read the partition from")
    with jax.enable_x64(True):
        sites = find_sites(model, (X,))
    samples = mcmc.get_samples(group_by_chain=True)
    labels = np.asarray(samples[sites.partition])
    if labels.shape[-1] != len(X):
        raise ValueError(f"X has {len(X)} rows, but the draws label {labels.shape[-1]} items")
    hyperparameters = {name: np.asarray(samples[name], dtype=np.float64) for name in sites.hyperparameters}
    return Draws(labels, hyperparameters, model, X, sites.partition, sites.observed)


def summaries(draws: Draws) -> Summaries:
    """Label-invariant quantities of each draw, in float64."""

    def one(item: tuple[Array, dict[str, Array]]) -> tuple[Array, ...]:
        labels, hyperparameters = item
        values = as_arrays(read_values(draws.model, sites, hyperparameters, (draws.X,)))
        prior = Prior(values.concentration, values.discount)
        rows = values.component.suff_stats(values.X)
        counts = cluster_counts(labels, slots)
        shares = counts.astype(float) / labels.shape[0]
        entropy = -jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), 0.0).sum()
        return (
            log_joint(values.component, rows, labels, prior, slots),
            counts.max(),
            entropy,
            leave_one_out(values.component, values.X, labels, prior, slots),
        )

    with jax.enable_x64(True):
        sites = find_sites(draws.model, (draws.X,))
        slots = _slots(draws)
        joint, largest, entropy, pointwise = _map_draws(one, draws)
    return Summaries(joint, draws.n_clusters, largest, entropy, pointwise)


def log_predictive(draws: Draws, X: ArrayLike) -> Float[np.ndarray, " m"]:
    """Log predictive density of new rows, averaged over the draws (nats), in float64.

    Parameters
    ----------
    draws
        Draws on the fitted data.
    X
        New rows, (m, d); each is scored on its own.

    Raises
    ------
    ValueError
        If the rows do not fit the component.
    """

    def one(item: tuple[Array, dict[str, Array]]) -> Array:
        labels, hyperparameters = item
        values = as_arrays(read_values(draws.model, sites, hyperparameters, (draws.X,)))
        stats = cluster_statistics(values.component.suff_stats(values.X), labels, slots)
        prior = Prior(values.concentration, values.discount)
        weights = mixture_log_weights(values.component, stats, cluster_counts(labels, slots), prior, new)
        return logsumexp(weights, axis=1)

    new_rows = as_matrix(X)
    with jax.enable_x64(True):
        sites = find_sites(draws.model, (draws.X,))
        first = {name: value[0, 0] for name, value in draws.hyperparameters.items()}
        read_values(draws.model, sites, first, (draws.X,)).component.validate(new_rows)
        slots = _slots(draws)
        new = jnp.asarray(new_rows)
        (scores,) = _map_draws(lambda item: (one(item),), draws)
        scores = scores.reshape(-1, len(new_rows))
        return np.logaddexp.reduce(scores, axis=0) - np.log(len(scores))


def _slots(draws: Draws) -> int:
    """Slots for the largest draw, in steps of 8 so that similar runs share a compiled program."""
    return -(-(int(draws.labels.max()) + 1) // 8) * 8


def _map_draws(function: Callable[[Any], tuple[Array, ...]], draws: Draws) -> tuple[np.ndarray, ...]:
    """Apply a function of (labels, hyperparameters) to every draw; results have leading dimensions (chain, draw)."""
    shape = draws.labels.shape[:2]
    flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(-1, *leaf.shape[2:]), (draws.labels, draws.hyperparameters))
    batch = max(1, min(64, 2_000_000 // (draws.labels.shape[-1] * _slots(draws))))
    results = jax.jit(lambda items: jax.lax.map(function, items, batch_size=batch))(flat)
    return tuple(np.asarray(result).reshape(*shape, *result.shape[1:]) for result in results)

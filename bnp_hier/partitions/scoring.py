"""Log weights of new rows for the clusters of a partition."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.seating import GibbsTypePrior, log_seating
from bnp_hier.utils.padding import padded

__all__ = ["CHUNK", "check_log_weights", "in_chunks", "log_weighted_densities", "mixture_log_weights", "with_empty"]

CHUNK = 4096
"""Maximum number of rows predicted at once, to bound memory."""


def in_chunks(
    function: Callable[[Float[np.ndarray, "c d"]], Float[Array, "c k"]], X: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "m k"]:
    """Apply a row-wise function in padded chunks, so that few programs are compiled."""
    chunks = [X[at : at + CHUNK] for at in range(0, len(X), CHUNK)]
    return np.concatenate([np.asarray(function(padded(chunk)))[: len(chunk)] for chunk in chunks])


def check_log_weights(log_weights: Float[np.ndarray, "m k"], X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m k"]:
    """Check that the log weights of new rows at their clusters are usable for every row, and return them.

    Raises
    ------
    ValueError
        If the log weights of a row are NaN, infinite or all −inf, as happens when the square of a value overflows; the message
        names the row and its largest value.
    """
    highest = log_weights.max(axis=1, initial=-np.inf)  # NaN if any entry is NaN
    wrong = ~np.isfinite(highest)
    if wrong.any():
        row = int(wrong.argmax())
        cells = np.nan_to_num(X[row])
        column = int(np.abs(cells).argmax())
        what = "not a number" if np.isnan(highest[row]) else "infinite" if highest[row] > 0 else "0 under every cluster"
        raise ValueError(
            f"the predictive density of row {row} is {what} in floating point; the row's largest value is "
            f"{cells[column]:g}, in column {column}"
        )
    return log_weights


def with_empty(component: Component, stats: Statistics) -> Statistics:
    """Append the statistics of an empty cluster to those of the clusters."""
    return jax.tree.map(lambda leaf, zero: jnp.concatenate([leaf, zero[None]]), stats, component.empty())


def log_weighted_densities(
    component: Component, stats: Statistics, log_weights: Float[Array, " k"], X: Float[Array, "m d"]
) -> Float[Array, "m k"]:
    """Log of (weight × predictive density) of each row for each cluster (nats)."""
    cache = component.cache(stats)
    log_predictive = jax.vmap(lambda row: component.cached_log_predictive(cache, row))(component.suff_stats(X))
    return log_predictive + log_weights[None]


@jax.jit
def mixture_log_weights(
    component: Component,
    stats: Statistics,
    counts: Float[Array, " k"],
    prior: GibbsTypePrior,
    X: Float[Array, "m d"],
    max_clusters: ArrayLike = np.inf,
) -> Float[Array, "m k1"]:
    """Log of (seating probability × predictive density) of new rows for each cluster and, last, for a new one (nats).

    If there are already `max_clusters` clusters, the value for a new one is −inf.
    """
    weights = jnp.asarray(log_seating(counts, prior, max_clusters))
    return log_weighted_densities(component, with_empty(component, stats), weights, X)

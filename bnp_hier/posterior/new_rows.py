"""Probabilistic assignment of new rows to the clusters of an estimate."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.capabilities import Clustering
from bnp_hier.inspection.model_arguments import Data, ModelArguments, as_table
from bnp_hier.partitions.scoring import CHUNK, check_log_weights
from bnp_hier.posterior.draws import draws_of, map_draws, of_many_draws, thinned
from bnp_hier.posterior.partitions import one_partition
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.options import require_count

__all__ = ["cluster_probabilities"]


def cluster_probabilities(
    fit: Any, X: Data, estimate: ArrayLike, new_rows: Data, *, num_samples: int = 200
) -> Float[np.ndarray, "m k1"]:
    """Compute the posterior probability that each new row belongs to each cluster of an estimate, given X and the row.

    In each draw, the row joins one of the draw's clusters or a new one, according to its predictive probabilities. The
    probability of a draw's cluster is divided among the clusters of the estimate in proportion to the number of members
    that they share with it. The draws are averaged with weights proportional to the row's predictive density p(row | draw),
    because they were drawn without the row. The result is therefore the probability, given X and the row, that a random
    member of the cluster that the row joins belongs to the given cluster of the estimate.

    Parameters
    ----------
    fit
        `MCMC` or `ResumableRun` that has run a kernel with a partition site, or a fitted estimator. If the estimate equals the
        estimator's `labels_`, the result is that of its `predict_proba`.
    X
        The data the model was fitted to, (n, d), or `ModelArguments` of a model with several data arguments.
    estimate
        (n,) whole numbers, such as a `point_estimate`.
    new_rows
        The new rows, (m, d), or `ModelArguments` with the new rows.
    num_samples
        Maximum number of draws used, over all chains together, evenly spaced.

    Returns
    -------
    probabilities
        (m, K + 1), for the clusters of the estimate in the order of their labels and, last, for a new cluster: of
        `AuxiliaryGibbs`, any of the empty slots.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or has no labels, the rows are not valid for the model, a row's density is
        zero or not finite in all draws, or `num_samples` is not a whole number of at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> X = [[0.0], [0.2], [0.1], [6.0], [6.1]]
    >>> fit = bnp.MAPDP(partial(bnp.models.dpm, component=component)).fit(X)
    >>> bnp.cluster_probabilities(fit, X, fit.labels_, [[0.3], [5.8], [-9.0]]).round(2)
    array([[0.89, 0.  , 0.11],
           [0.  , 0.97, 0.03],
           [0.  , 0.  , 1.  ]])
    """
    require_count("num_samples", num_samples)
    draws = draws_of(fit, X, num_samples=num_samples)
    labels = one_partition(estimate, len(draws.mixture.data))
    if isinstance(fit, Clustering) and np.array_equal(labels, fit.labels_):
        return fit.predict_proba(as_table(new_rows))
    clusters, which = np.unique(labels, return_inverse=True)
    mixture = draws.mixture
    rows = mixture.data.new_rows(new_rows)
    few = thinned(draws, num_samples)
    kept = few.labels, few.hyperparameters
    slots = mixture.slots(draws.labels)
    members = np.eye(len(clusters))[which]

    def one(chunk: ModelArguments, item: tuple[Array, dict[str, Array]]) -> tuple[Array, Array]:
        log_weights = mixture.log_weights(*item, slots, chunk)
        peak = log_weights.max(1)
        weights = jnp.exp(log_weights - jnp.nan_to_num(peak)[:, None])
        together = jax.ops.segment_sum(jnp.asarray(members), item[0], slots)
        shares = together / jnp.maximum(together.sum(1, keepdims=True), 1.0)
        scaled = jnp.concatenate([weights[:, :-1] @ shares, weights[:, -1:]], axis=1)
        return scaled, jnp.where(jnp.isnan(log_weights).any(1), jnp.nan, peak)

    found = []
    with double_precision():
        mixture.validate({name: jnp.asarray(value[0, 0]) for name, value in draws.hyperparameters.items()}, rows)
        for at in range(0, len(rows), CHUNK):
            chunk = rows.take(slice(at, at + CHUNK))
            scaled, peaks = map_draws(of_many_draws(partial(one, chunk)), kept, batch=1)
            top = peaks.max((0, 1))
            # exp(peak) × scaled is p(cluster of the estimate, row | draw)
            found.append((np.einsum("cdm,cdmk->mk", np.exp(peaks - np.nan_to_num(top)), scaled), top))
    joint, highest = map(np.concatenate, zip(*found, strict=True))
    if not np.isfinite(highest).all():
        check_log_weights(highest[:, None], mixture.table(rows))
    return joint / joint.sum(axis=1, keepdims=True)

"""One partition from fits of the same model to disjoint parts of a table, by the statistics of their clusters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Int
from sklearn.base import clone

from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.partitions.cluster_unions import merge_by_joint
from bnp_hier.partitions.seating import Prior
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["merge_fits"]

_Fit = TypeVar("_Fit", bound=StreamingClustering)

COPIED = ("component_", "concentration_", "discount_", "hyperparameters_", "_max_clusters_", "n_features_in_")
"""Attributes that the merged estimator has in common with all fits."""


def merge_fits(fits: Sequence[_Fit]) -> _Fit:
    """Combine fits to disjoint sets of rows (shards) into one, of which the statistics of the clusters are all that is needed.

    The clusters of all fits are put together, and the two clusters whose union increases log p(all rows, labels) most are
    merged as long as any union does. This takes O(K²) log marginal likelihoods for K clusters in total, no pass over the rows.
    Clusters are not split.

    Parameters
    ----------
    fits
        Fitted `BayesianKMeans` or `MAPDP` estimators with the same component, concentration and discount: fix the
        hyperparameters, for example at those of a fit to a sample, by ``optimize=sample_fit.hyperparameters_``.

    Returns
    -------
    merged
        An estimator with the parameters of the first fit. `statistics_`, `counts_`, `n_clusters_`, `n_seen_` and `log_joint_`
        describe all rows, and `predict` and `partial_fit` work as after `fit`. If every fit has the labels of all its rows,
        `labels_` are those of all rows, in the order of the fits; they are computed when they are first accessed. Attributes
        of the search, such as `objective_trace_` and `free_energy_`, are missing.

    Raises
    ------
    ValueError
        If there are no fits, or two of them differ in the component, the concentration, the discount, the maximum number of
        clusters or the columns, or have imputed missing values; the message names what differs.
    TypeError, NotFittedError
        If one of them is another kind of estimator, or is not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component, concentration=1.0)
    >>> shards = [[[0.0], [0.2], [6.0]], [[6.1], [0.1], [5.9]]]
    >>> merged = bnp.merge_fits([bnp.MAPDP(model).fit(shard) for shard in shards])
    >>> merged.counts_, merged.labels_
    (array([3, 3]), array([0, 0, 1, 1, 0, 1]))
    """
    if not fits:
        raise ValueError("fits is empty; expected at least one fitted estimator")
    first = fits[0]
    for number, fit in enumerate(fits):
        if not isinstance(fit, StreamingClustering):
            raise TypeError(f"fit {number} is a {type(fit).__name__}; expected BayesianKMeans or MAPDP")
        fit._check_exact_statistics("merged")
        different = _difference(first, fit)
        if different is not None:
            raise ValueError(
                f"fits 0 and {number} differ in {different}; fit all shards with the same hyperparameters, such as "
                "optimize=fits[0].hyperparameters_"
            )
    stats = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(fit.statistics_ for fit in fits))
    counts = np.concatenate([fit.counts_ for fit in fits]).astype(float)
    prior, limit = Prior(first.concentration_, first.discount_), float(first._max_clusters_ or np.inf)
    merged: _Fit = clone(first)
    for name in (*COPIED, *(["feature_names_in_"] if hasattr(first, "feature_names_in_") else [])):
        setattr(merged, name, getattr(first, name))
    with double_precision():
        names, stats, counts = merge_by_joint(first.component_, stats, counts, prior, limit)
        merged._set_clusters(stats, counts, np.arange(len(counts)))
    if all(fit._has_all_labels for fit in fits):
        merged._label_later(partial(_labels, list(fits), np.split(names, np.cumsum([fit.n_clusters_ for fit in fits])[:-1])))
    return merged


def _labels(fits: list[StreamingClustering], names: list[Int[np.ndarray, " _"]]) -> Int[np.ndarray, " n"]:
    return np.concatenate([name[fit.labels_] for name, fit in zip(names, fits, strict=True)])


def _difference(one: StreamingClustering, other: StreamingClustering) -> str | None:
    """What two fits do not have in common; None if their clusters can be merged."""
    if type(one.component_) is not type(other.component_):
        return f"the component: {type(one.component_).__name__} and {type(other.component_).__name__}"
    mine, theirs = (jax.tree_util.tree_leaves_with_path(fit.component_) for fit in (one, other))
    for (path, value), (_, another) in zip(mine, theirs, strict=True):
        if not np.array_equal(value, another):
            shown = f": {value} and {another}" if np.ndim(value) == 0 == np.ndim(another) else ""
            return f"the component's {jax.tree_util.keystr(path).lstrip('.')}{shown}"
    for name, what in (
        ("concentration_", "the concentration"),
        ("discount_", "the discount"),
        ("_max_clusters_", "the maximum number of clusters"),
    ):
        if getattr(one, name) != getattr(other, name):
            return f"{what}: {getattr(one, name)} and {getattr(other, name)}"
    columns, others = (list(getattr(fit, "feature_names_in_", [])) for fit in (one, other))
    return None if columns == others else f"the names of the columns: {columns} and {others}"

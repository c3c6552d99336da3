"""What the statistics of fitted clusters allow without any rows: merging fits to shards, and trees of the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Int
from sklearn.base import clone

from bnp_hier.components.special import log_gamma_ratio_in_numpy
from bnp_hier.deterministic.agglomeration.greedy_merging import merge_greedily
from bnp_hier.deterministic.agglomeration.merge_scores import Forest
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.distributions.seating import process_of
from bnp_hier.partitions.cluster_unions import merge_by_joint
from bnp_hier.partitions.clusters import packed
from bnp_hier.trees import Dendrogram
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["ClusterTree", "merge_fits", "tree_of_clusters"]

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
    prior, limit = process_of(first._prior), float(first._max_clusters_ or np.inf)
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
        values = [getattr(fit, name, None) for fit in (one, other)]
        if values[0] != values[1]:
            return f"{what}: {values[0]} and {values[1]}"
    columns, others = (list(getattr(fit, "feature_names_in_", [])) for fit in (one, other))
    return None if columns == others else f"the names of the columns: {columns} and {others}"


class ClusterTree(NamedTuple):
    """A tree whose leaves are clusters.

    - **dendrogram** - `Dendrogram` whose items are the clusters, with the log odds of each merge (nats).
    - **counts** - (K,) number of rows of each cluster.
    - **log_evidence_bound** - lower bound on log p(X) from the partitions of the rows that are consistent with the tree, none
      of which splits a cluster (nats).
    """

    dendrogram: Dendrogram
    counts: Int[np.ndarray, " k"]
    log_evidence_bound: float


def tree_of_clusters(fit: DeterministicClustering) -> ClusterTree:
    """Build the tree of Bayesian hierarchical clustering over the clusters of a fit, from their statistics alone.

    For tables that do not fit in memory: the leaves are whole clusters, so that no rows are needed. Each merge joins the pair
    of trees with the largest posterior odds of being one cluster rather than any partition consistent with the two trees, as
    in `BHC`, in O(K²) time and memory for K clusters.

    Parameters
    ----------
    fit
        Fitted estimator, such as `BayesianKMeans`, `MAPDP` or the result of `merge_fits`.

    Returns
    -------
    tree
        The `Dendrogram` of the clusters (`dendrogram`), their numbers of rows (`counts`), and a lower bound on log p(X)
        (`log_evidence_bound`, nats), which is at least `fit.log_joint_`. ``tree.dendrogram.cut()[fit.labels_]`` are labels of
        rows.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    ValueError
        If the fit's discount is not 0, its model sets a maximum number of clusters, missing values have been imputed, or the
        odds of all merges are infinite.

    Notes
    -----
    Heller & Ghahramani (2005), section 2, with the mass log α + lgamma(n_k) + m(D_k) of a single cluster for a leaf of n_k
    rows, as in Bayes k-means BHC (Xu, Heller & Ghahramani 2009).

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> X = [[-9.0], [-8.9], [4.0], [4.2], [9.0], [9.1]]
    >>> fit = bnp.MAPDP(partial(bnp.models.dpm, component=component, concentration=1.0)).fit(X)
    >>> tree = bnp.tree_of_clusters(fit)
    >>> tree.dendrogram.children, tree.counts
    (array([[1, 2],
           [0, 3]]), array([2, 2, 2]))
    """
    fit._check_exact_statistics("made into a tree")
    if fit.discount_ != 0 or fit._max_clusters_ is not None:
        raise ValueError(
            f"the tree needs a Dirichlet process, but the fit has discount {fit.discount_:g} and at most "
            f"{fit._max_clusters_ or 'any number of'} clusters"
        )
    component, counts, alpha = fit.component_, fit.counts_, fit.concentration_
    with double_precision():
        forest = Forest(component, packed(fit.statistics_), counts, alpha, [f"cluster {k}" for k in range(len(counts))])
        children, log_odds, _ = merge_greedily(forest)
    bound = forest.log_mass - log_gamma_ratio_in_numpy(alpha, counts.sum())
    return ClusterTree(Dendrogram(children, log_odds), counts, float(bound))

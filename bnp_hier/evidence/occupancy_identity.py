"""The evidence from a tree's bound and the share of posterior draws that the tree holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int
from sklearn.utils.validation import check_is_fitted

from bnp_hier.deterministic.bhc import BHC
from bnp_hier.trees import Dendrogram

__all__ = ["FEWEST_HITS", "OccupancyEstimate", "occupancy"]

FEWEST_HITS = 50
"""Draws consistent with the tree below which the estimate counts as failed."""


class OccupancyEstimate(NamedTuple):
    """Estimate of the log evidence.

    - **value** - log evidence (nats); NaN if no draw is consistent with the tree.
    - **standard_error** - of `value`, by the delta method with the effective number of draws (nats).
    - **hits** - number of draws that are consistent with the tree.
    - **num_samples** - number of draws.
    - **failed** - whether there are too few hits for the value to be trusted.
    - **verdict** - the same in words.
    """

    value: float
    standard_error: float
    hits: int
    num_samples: int
    failed: bool
    verdict: str


def occupancy(bhc: BHC, draws: ArrayLike) -> OccupancyEstimate:
    """Log evidence log p(X) at the hyperparameters of a fitted tree, from posterior draws of the partition.

    Parameters
    ----------
    bhc
        A fitted `BHC`.
    draws
        Labels (s, n), or (chain, draw, n), of partitions drawn from the posterior of the same Dirichlet-process mixture on
        the same rows, at the same fixed hyperparameters, as by `PartitionGibbs`. Not draws from the tree itself.

    Returns
    -------
    estimate
        Value and standard error first (nats).

    Raises
    ------
    NotFittedError, ValueError
        If the estimator is not fitted, or the draws are not labels of its rows.

    Notes
    -----
    The bound is the log mass log p(X, v) of all partitions v that are consistent with the tree (every cluster is the leaf
    set of a node; Heller & Ghahramani 2005), hence p(consistent | X) = exp(bound)/p(X) and
    log p(X) = bound − log p(consistent | X). The probability is the share of the draws; its effective number of draws is
    that of the 0/1 indicator, between and within chains. With all draws consistent the error is put at one draw, 1/s.
    """
    check_is_fitted(bhc, "dendrogram_")
    labels = np.asarray(draws)
    n = bhc.dendrogram_.n_items
    if labels.ndim not in (2, 3) or labels.size == 0:
        raise ValueError(f"draws must have shape (s, n) or (chain, draw, n), but their shape is {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise ValueError(f"draws must be whole-number labels, but their type is {labels.dtype}")
    if labels.shape[-1] != n:
        raise ValueError(f"the draws label {labels.shape[-1]} items, but the tree has {n}")
    labels = labels.reshape(-1, *labels.shape[-2:])
    consistent = tree_consistent(bhc.dendrogram_, labels.reshape(-1, n)).reshape(labels.shape[:2])
    hits, size = int(consistent.sum()), consistent.size
    failed = hits < FEWEST_HITS
    if failed:
        verdict = (
            f"failed: only {hits} of {size} draws are consistent with the tree, fewer than {FEWEST_HITS}; draw more, or find "
            "a better tree"
        )
    else:
        verdict = f"{hits} of {size} draws are consistent with the tree"
    if hits == 0:
        return OccupancyEstimate(np.nan, np.nan, hits, size, failed, verdict)
    share = hits / size
    error = np.sqrt((1 - share) / (share * _effective_draws(consistent))) if hits < size else 1 / size
    return OccupancyEstimate(float(bhc.log_evidence_bound_ - np.log(share)), float(error), hits, size, failed, verdict)


def tree_consistent(tree: Dendrogram, labels: Int[np.ndarray, "s n"]) -> Bool[np.ndarray, " s"]:
    """Whether every cluster of each partition is the set of items under some node of the tree.

    Items that the tree merges for certain (infinite log odds) are taken as one: nodes below have no mass in its bound.
    """
    n = tree.n_items
    s = len(labels)
    # in the tree's leaf order every node is an interval: a partition is consistent iff its runs of equal labels are nodes,
    # and no label has two runs
    labels = labels[:, tree.leaf_order()]
    begins = np.ones((s, n), dtype=bool)
    begins[:, 1:] = labels[:, 1:] != labels[:, :-1]
    flat = np.flatnonzero(begins)
    lengths = np.diff(np.append(flat, s * n))
    first, sizes = tree.first_positions(), tree.sizes
    nodes = np.flatnonzero(~_below_certain_merge(tree))
    is_node = np.isin(flat % n * (n + 1) + lengths, first[nodes] * (n + 1) + sizes[nodes])
    strays = np.bincount(flat // n, weights=~is_node, minlength=s)
    distinct = 1 + (np.diff(np.sort(labels, axis=1), axis=1) != 0).sum(1)
    return (strays == 0) & (begins.sum(1) == distinct)


def _below_certain_merge(tree: Dendrogram) -> Bool[np.ndarray, " nodes"]:
    n = tree.n_items
    below = np.zeros(2 * n - 1, dtype=bool)
    for t in range(n - 2, -1, -1):
        below[tree.children[t]] = below[n + t] or tree.log_odds[t] == np.inf
    return below


def _effective_draws(indicator: Bool[np.ndarray, "chain draw"]) -> float:
    """Effective number of draws behind the mean of a 0/1 indicator that is not constant; at most their number."""
    import arviz as az

    if indicator.shape[1] < 4:
        return np.nan
    return min(float(az.ess(indicator.astype(np.float64), method="mean")), indicator.size)

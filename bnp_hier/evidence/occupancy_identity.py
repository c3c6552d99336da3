"""Evidence estimate from a tree's bound and the proportion of posterior draws that are consistent with the tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Int
from sklearn.utils.validation import check_is_fitted

from bnp_hier.deterministic.bhc import BHC
from bnp_hier.evidence.tree_bounds import check_all_observed
from bnp_hier.trees import Dendrogram

__all__ = ["FEWEST_HITS", "OccupancyEstimate", "occupancy"]

FEWEST_HITS = 50
"""Minimum number of draws consistent with the tree; with fewer, the estimate counts as failed."""


class OccupancyEstimate(NamedTuple):
    """Estimate of the log evidence.

    - **value** - log evidence (nats); NaN if no draw is consistent with the tree.
    - **standard_error** - standard error of `value` (nats), by the delta method with the effective sample size.
    - **hits** - number of draws that are consistent with the tree.
    - **num_samples** - number of draws.
    - **failed** - whether there are too few hits for a reliable value.
    - **verdict** - assessment in words.
    """

    value: float
    standard_error: float
    hits: int
    num_samples: int
    failed: bool
    verdict: str


def occupancy(bhc: BHC, draws: ArrayLike) -> OccupancyEstimate:
    """Estimate the log evidence log p(X) from a fitted tree and posterior draws of the partition.

    Parameters
    ----------
    bhc
        A fitted `BHC`.
    draws
        Labels, (s, n) or (chain, draw, n), of partitions drawn from the posterior of the same Dirichlet-process mixture for
        the same rows, at the hyperparameters of the fitted tree, for example by `PartitionGibbs`. Samples from the tree
        itself are not suitable.

    Returns
    -------
    estimate
        `OccupancyEstimate`, whose first two fields are the value and its standard error (nats).

    Raises
    ------
    NotFittedError, ValueError
        If the estimator is not fitted or has imputed missing values, or the draws are not labels of its rows.

    Notes
    -----
    The bound is the log of the total mass p(X, v) of all partitions v that are consistent with the tree (every cluster is the
    leaf set of a node; Heller & Ghahramani 2005). Hence p(consistent | X) = exp(bound)/p(X) and
    log p(X) = bound − log p(consistent | X). The probability is estimated by the proportion of consistent draws; the effective
    sample size is that of the 0/1 indicator, between and within chains. If all draws are consistent, the standard error is set
    to 1/s, the equivalent of one draw.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> mcmc = MCMC(bnp.PartitionGibbs(model), num_warmup=20, num_samples=500, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)
    >>> estimate = bnp.evidence.occupancy(bnp.BHC(model).fit(X), mcmc.get_samples()["z"])
    >>> round(estimate.value, 1), estimate.failed
    (-13.2, False)
    """
    check_is_fitted(bhc, "dendrogram_")
    check_all_observed(bhc)
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
            f"failed: only {hits} of {size} draws are consistent with the tree, fewer than {FEWEST_HITS}; increase the number "
            "of draws or find a better tree"
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

    Nodes below a certain merge (infinite log odds) do not count, because they have no mass in the bound.
    """
    n = tree.n_items
    s = len(labels)
    # in the tree's leaf order every node is an interval: a partition is consistent iff every run of equal labels is a node
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
    """Effective sample size for the mean of a non-constant 0/1 indicator; at most the number of draws."""
    import arviz as az

    if indicator.shape[1] < 4:
        return np.nan
    return min(float(az.ess(indicator.astype(np.float64), method="mean")), indicator.size)

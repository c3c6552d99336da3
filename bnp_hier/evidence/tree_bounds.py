"""Lower bounds on the evidence from a tree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Int
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.special import log_gamma_ratio_in_numpy
from bnp_hier.evidence.union_family import UnionFamily, union_masses
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.options import WholeNumber, check_options, require_count
from bnp_hier.utils.randomness import random_key

__all__ = ["KINDS", "TreeBound", "check_all_observed", "tree_bound"]

KINDS = ("bhc", "alternatives", "recursive", "pairs", "intervals")
"""Bounds available in `tree_bound`."""


class TreeBound(float):
    """A lower bound on log p(X) in nats: a float with attributes that describe how it was computed.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    start : int
        First merge for which relocations or pairs were considered.
    n_relocations : int
        Number of clusters considered that are not nodes of the tree.
    increments : ndarray or None
        (n − 1,) for "alternatives": the increase of the "bhc" bound (nats) due to the relocations at each merge alone; NaN if
        a merge has none.
    """

    kind: str
    start: int
    n_relocations: int
    increments: Float[np.ndarray, " m"] | None
    _family: UnionFamily | None

    def __new__(
        cls,
        value: float,
        kind: str,
        start: int = 0,
        n_relocations: int = 0,
        increments: np.ndarray | None = None,
        family: UnionFamily | None = None,
    ) -> TreeBound:
        """Create the float and set its attributes."""
        bound = super().__new__(cls, value)
        bound.kind, bound.start, bound.n_relocations = kind, start, n_relocations
        bound.increments, bound._family = increments, family
        return bound

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.kind  # copies and pickles restore the other attributes from __dict__

    def _partitions(self) -> UnionFamily:
        if self._family is None:
            raise ValueError(
                'weights, co-clustering and draws are available for bounds of kind "recursive" or "pairs", but this one has '
                f"kind {self.kind!r}"
            )
        return self._family

    def cluster_weights(self) -> tuple[Int[np.ndarray, "c 2"], Float[np.ndarray, " c"], Float[np.ndarray, " n"]]:
        """Posterior probability of every cluster, over the partitions included in the bound.

        Returns
        -------
        pairs, weights, singletons
            Pairs of tree nodes whose union is the cluster (a node of the tree is the pair of its children); their
            probabilities; and the probability of each item of being a singleton. Σ weights × sizes + Σ singletons = n.

        Raises
        ------
        ValueError
            If the kind is not "recursive" or "pairs".
        """
        return self._partitions().weights()

    def coclustering(self) -> Float[np.ndarray, "n n"]:
        """Posterior co-clustering probability of each pair of items, over the partitions included in the bound.

        Raises
        ------
        ValueError
            If the kind is not "recursive" or "pairs".
        """
        return self._partitions().coclustering()

    def sample_partitions(self, key: int | Array, num_samples: int) -> Int[np.ndarray, "s items"]:
        """Draw exact, independent samples from the posterior over the partitions included in the bound.

        Parameters
        ----------
        key
            JAX key or integer seed.
        num_samples
            Number of samples.

        Returns
        -------
        labels
            (num_samples, items) cluster labels, integers from 0 in order of appearance.

        Raises
        ------
        ValueError
            If the kind is not "recursive" or "pairs", or `num_samples` is not an integer of at least 1.
        """
        family = self._partitions()
        require_count("num_samples", num_samples)
        with double_precision():
            uniforms = np.asarray(jax.random.uniform(random_key(key), (num_samples, 2 * family.tree.n_items - 1)))
        return family.sample(uniforms)


def tree_bound(
    bhc: Any, kind: str = "bhc", *, start: int = 0, max_pairs: int = 5_000_000, both_children: bool = False
) -> TreeBound:
    """Compute a lower bound on log p(X) from a fitted tree, at its hyperparameters (nats).

    Parameters
    ----------
    bhc
        A fitted `BHC`, or an object with the attributes of `bnp_hier.capabilities.TreePosterior`.
    kind
        "bhc": the mass of all partitions consistent with the tree. "alternatives": also partitions in which one branch moves
        next to its uncle, one such move at a time. "recursive": such moves at all nodes in all combinations. "pairs": every
        pair of disjoint nodes may form a cluster. "intervals": all partitions into runs of consecutive leaves of the drawn
        tree. bhc ≤ alternatives ≤ recursive ≤ pairs, and bhc ≤ intervals.
    start
        First merge (0, ..., n − 2, in the order of `dendrogram_.children`) for which moves or pairs are considered; the later
        merges, near the root, matter most. For "alternatives", "recursive" and "pairs".
    max_pairs
        Maximum number of pairs evaluated by "pairs". For larger trees, pairs far below their lowest common ancestor are left
        out, which keeps the bound valid.
    both_children
        For "alternatives": whether to move the branches of both children of a node, which allows up to four moves. False
        is the paper's choice: two moves per node with more than two leaves, those of the branches of its larger child (the
        first one if both have the same size).

    Returns
    -------
    bound
        A float with the attributes and methods of `TreeBound`.

    Raises
    ------
    NotFittedError, ValueError
        If the estimator is not fitted or has imputed missing values, the kind is unknown, an option is out of range, or the
        log marginal likelihood of a union of rows is not finite.

    Notes
    -----
    "bhc": Heller & Ghahramani (2005), Corollary 1. "alternatives": Xu, Heller & Ghahramani (2009), section 4, Theorem 1. The
    other kinds extend the latter. Every partition is counted once.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> bhc = bnp.BHC(model, refine=None).fit([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> {kind: round(bnp.evidence.tree_bound(bhc, kind), 2) for kind in ("bhc", "intervals", "pairs")}
    {'bhc': -13.45, 'intervals': -13.31, 'pairs': -13.18}
    """
    check_is_fitted(bhc, "dendrogram_")
    check_options(
        "tree_bound",
        {
            "kind": [StrOptions(set(KINDS))],
            "start": [WholeNumber(0)],
            "max_pairs": [WholeNumber()],
            "both_children": ["boolean"],
        },
        locals(),
    )
    check_all_observed(bhc)
    tree = bhc.dendrogram_
    n = tree.n_items
    if start > n - 2:
        raise ValueError(f"start must be a merge number from 0 to {n - 2}, but it is {start}")
    if kind == "bhc":
        return TreeBound(bhc.log_evidence_bound_, kind)
    component, X, alpha = bhc.component_, bhc.X_fit_, bhc.concentration_
    constant = -float(log_gamma_ratio_in_numpy(alpha, n))
    with double_precision():
        if kind == "alternatives":
            moves, at_merge = _relocations(tree.children, tree.sizes, start, both_children)
            single, masses = union_masses(component, X, alpha, tree, moves[:, :2])
            log_mass, rest = _rest_of_tree(single, tree.children)
            terms = masses + log_mass[moves[:, 2]] + rest[n + at_merge] + constant
            value = np.logaddexp(bhc.log_evidence_bound_, np.logaddexp.reduce(terms, initial=-np.inf))
            increments = np.full(n - 1, np.nan)
            for t in np.unique(at_merge):
                gain = np.logaddexp.reduce(terms[at_merge == t]) - bhc.log_evidence_bound_
                increments[t] = np.logaddexp(0.0, gain)
            return TreeBound(value, kind, start, len(moves), increments)
        if kind == "intervals":
            order = tree.leaf_order()
            reached = np.asarray(_interval_masses(component, X[order], alpha))
            undefined = ~(reached < np.inf)
            if undefined.any():
                raise ValueError(
                    f"the log marginal likelihood of {type(component).__name__} is not finite for a "
                    f"cluster of row {order[undefined.argmax()]} and some of the rows before it in the tree's leaf order"
                )
            return TreeBound(float(reached[-1]) + constant, kind, 0, n * (n + 1) // 2 - 2 * n + 1)
        family = UnionFamily(component, X, alpha, tree, 1 if kind == "recursive" else None, max_pairs, start)
    return TreeBound(family.log_mass + constant, kind, start, family.n_unions, None, family)


def check_all_observed(bhc: Any) -> None:
    """Raise ValueError if a tree is that of a completed table, whose evidence is not that of the observed cells."""
    if hasattr(bhc, "missing_values_"):
        cells = len(bhc.missing_values_)
        raise ValueError(
            f"the tree is that of a table in which {cells} missing values were imputed, so that its masses say nothing of the "
            "evidence of the observed cells; use a component with independent columns, which integrates missing values out"
        )


def _relocations(
    children: Int[np.ndarray, "m 2"], sizes: Int[np.ndarray, " nodes"], start: int, both_children: bool
) -> tuple[Int[np.ndarray, "r 3"], Int[np.ndarray, " r"]]:
    """Return the moves as (branch, uncle, sibling of the branch), and the merge at which each is made."""
    n = len(children) + 1
    moves, at_merge = [], []
    for t in range(start, n - 1):
        pair = children[t]
        larger = int(sizes[pair[1]] > sizes[pair[0]])
        for side in (0, 1) if both_children else (larger,):
            child, uncle = pair[side], pair[1 - side]
            if child >= n:
                first, second = children[child - n]
                moves += [(first, uncle, second), (second, uncle, first)]
                at_merge += [t, t]
    return np.array(moves, int).reshape(-1, 3), np.array(at_merge, int)


def _rest_of_tree(
    single: Float[np.ndarray, " nodes"], children: Int[np.ndarray, "m 2"]
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """φ of each node, and of everything outside it if no cluster crosses its boundary: Σ φ of the siblings up to the root."""
    n = len(children) + 1
    mass = np.concatenate([single[:n], np.zeros(n - 1)])
    for t, (left, right) in enumerate(children):
        mass[n + t] = np.logaddexp(single[n + t], mass[left] + mass[right])
    rest = np.zeros(2 * n - 1)
    for t in range(n - 2, -1, -1):
        left, right = children[t]
        rest[left], rest[right] = rest[n + t] + mass[right], rest[n + t] + mass[left]
    return mass, rest


@jax.jit
def _interval_masses(component: Component, X: Float[Array, "n d"], concentration: Array) -> Float[Array, " n"]:
    """Log mass of all partitions of the first rows, up to each row, into runs: F_j = logsumexp_i [F_i + φ1(rows i..j)]."""
    rows = component.suff_stats(X)
    n = X.shape[0]
    index = jnp.arange(n)
    log_marginal = component.log_marginal_up_to(n)
    log_gamma = gammaln(jnp.arange(n + 1).astype(float))

    def extend(carry: tuple[Statistics, Array], j: Array) -> tuple[tuple[Statistics, Array], Array]:
        stats, before = carry  # statistics of rows i..j, and F_i, for every i
        started = index <= j
        stats = jax.tree.map(
            lambda leaf, row: leaf + jnp.where(started.reshape((-1,) + (1,) * (leaf.ndim - 1)), row[j], 0.0), stats, rows
        )
        run = jnp.log(concentration) + log_gamma[jnp.maximum(j - index + 1, 0)] + log_marginal(stats)
        reached = logsumexp(jnp.where(started, before + run, -jnp.inf))
        return (stats, jnp.where(index == j + 1, reached, before)), reached

    start = jax.tree.map(jnp.zeros_like, rows), jnp.where(index == 0, 0.0, -jnp.inf)
    return jax.lax.scan(extend, start, index)[1]

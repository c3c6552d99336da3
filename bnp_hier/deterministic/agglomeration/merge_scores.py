"""Merge scores of pairs of trees from sufficient statistics, and tie-breaking; shared by the agglomeration engines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics

__all__ = [
    "CRITERIA",
    "LAST",
    "TIE",
    "MergeScore",
    "MergeScorer",
    "Trees",
    "at",
    "best_of",
    "better_of",
    "cut",
    "leaf_trees",
    "masked_scores",
    "merge_scorer",
    "paste",
    "put",
    "tolerance",
]

TIE = 1e-9
"""Relative difference below which scores count as tied; among tied pairs, the one with the smallest node numbers is merged."""

CRITERIA = ("odds", "ratio", "normalised", "dp", "finite")
"""Merge scores: "odds", the posterior odds of one cluster (as in the paper); "ratio", the marginal likelihood ratio;
"normalised", that ratio normalised for size; "dp" and "finite", the gain in log joint from merging two clusters, up to a
constant, under the prior over partitions or over labels with Dirichlet weights."""

LAST = np.iinfo(np.int64).max
"""Larger than every node number."""


class Trees(NamedTuple):
    """Trees not merged yet, one per slot.

    - **stats** - sufficient statistics, with the slot axis last so that every statistic is contiguous.
    - **mass** - φ: log mass of all tree-consistent partitions of the tree's items.
    - **marginal** - log marginal likelihood of the tree's items as one cluster.
    - **items** - number of items.
    - **node** - node number.
    - **group** - group label; only trees of the same group are merged.
    """

    stats: Statistics
    mass: Float[Array, "..."]
    marginal: Float[Array, "..."]
    items: Int[Array, "..."]
    node: Int[Array, "..."]
    group: Int[Array, "..."]


@partial(jax.tree_util.register_dataclass, data_fields=["component", "concentration"], meta_fields=["criterion", "n_items"])
@dataclass(frozen=True)
class MergeScore:
    """Specification of the merge score.

    - **component** - conjugate component.
    - **concentration** - α of the Dirichlet process.
    - **criterion** - one of `CRITERIA`.
    - **n_items** - maximum number of items in a pair of trees.
    """

    component: Component
    concentration: Float[Array, ""] | Float[np.ndarray, ""]
    criterion: str
    n_items: int


class MergeScorer(NamedTuple):
    """Computes the scores of merging two trees; see `CRITERIA`.

    With N the number of items of the pair, "odds" is log α + lgamma(N) + m(D_i ∪ D_j) − φ_i − φ_j and "ratio" is
    m(D_i ∪ D_j) − m(D_i) − m(D_j); "normalised" divides the ratio by √(N_i N_j/N); "dp" and "finite" add
    g(N) − g(N_i) − g(N_j) to it, where g(N) is lgamma(N) or lgamma(N + α), respectively.
    """

    log_marginal: Any
    log_alpha: Float[Array, ""]
    log_gamma: Float[Array, " counts"]
    log_label: Float[Array, " counts"]
    criterion: str

    def score(self, joint: Array, a: Trees, b: Trees, criterion: str | None = None) -> Float[Array, "..."]:
        """Scores of pairs from the log marginal likelihoods `joint` of their unions; the fields of a and b are broadcast."""
        criterion = criterion or self.criterion
        if criterion == "odds":
            return self.log_alpha + self.log_gamma[a.items + b.items] + joint - a.mass - b.mass
        ratio = joint - a.marginal - b.marginal
        if criterion == "ratio":
            return ratio
        if criterion in ("dp", "finite"):
            return ratio + self.log_label[a.items + b.items] - self.log_label[a.items] - self.log_label[b.items]
        items, others = a.items.astype(ratio.dtype), b.items.astype(ratio.dtype)
        return ratio * jax.lax.rsqrt(items * others / (items + others))

    def merged(self, a: Trees, b: Trees, node: Array) -> tuple[Trees, Float[Array, ""]]:
        """Merge two trees; also return the log odds of the merge."""
        stats = jax.tree.map(jnp.add, a.stats, b.stats)
        marginal = self.log_marginal(stats)
        odds = self.score(marginal, a, b, "odds")
        mass = a.mass + b.mass + jnp.logaddexp(odds, 0.0)
        return Trees(stats, mass, marginal, a.items + b.items, node, a.group), odds

    def block(self, trees: Trees, left: Array, slot: Array, start: Array, width: int) -> Float[Array, " w"]:
        """Scores of merging the tree in a slot with each tree in a block of slots, in the form returned by `masked_scores`."""
        one, others = at(trees, slot), cut(trees, start, width)
        joint = jax.tree.map(lambda leaf, mine: leaf + mine[..., None], others.stats, one.stats)
        scores = self.score(jax.vmap(self.log_marginal, in_axes=-1)(joint), others, one)
        index = start + jnp.arange(width)
        return masked_scores(scores, (index < left) & (index != slot) & (others.group == one.group))


def at(columns: Any, slot: Array) -> Any:
    """Values in one slot; slots are the last axis of every leaf."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, slot, -1, keepdims=False), columns)


def cut(columns: Any, start: Array, width: int) -> Any:
    """Values in a block of slots."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, width, -1), columns)


def put(columns: Any, values: Any, slot: Array) -> Any:
    """Replace the values in one slot."""
    return jax.tree.map(lambda leaf, value: jax.lax.dynamic_update_index_in_dim(leaf, value, slot, -1), columns, values)


def paste(columns: Any, values: Any, start: Array) -> Any:
    """Replace the values in a block of slots."""
    return jax.tree.map(lambda leaf, value: jax.lax.dynamic_update_slice_in_dim(leaf, value, start, -1), columns, values)


def masked_scores(scores: Float[Array, "..."], possible: Bool[Array, "..."]) -> Float[Array, "..."]:
    """Set forbidden pairs to −inf and NaN to +inf, so that a NaN wins and is reported.

    XLA's maximum of NaN and a number may be either, so that a NaN could go unnoticed.
    """
    return jnp.where(possible, jnp.where(jnp.isnan(scores), jnp.inf, scores), -jnp.inf)


def tolerance(score: Float[Array, "..."]) -> Float[Array, "..."]:
    """Distance below a score within which other scores count as tied with it."""
    return TIE * jnp.maximum(1.0, jnp.abs(score))


def best_of(scores: Float[Array, "*b s"], node: Int[Array, " s"]) -> tuple[Float[Array, "*b"], Int[Array, "*b"]]:
    """Largest score along the last axis, and the node number of its tree; the smallest one in case of ties."""
    best = scores.max(-1)
    ties = scores >= (best - tolerance(best))[..., None]
    return best, jnp.where(ties, node, LAST).min(-1)


def better_of(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Combine two results of `best_of` into the better one."""
    best = jnp.maximum(one[0], other[0])
    low = best - tolerance(best)
    return best, jnp.minimum(jnp.where(one[0] >= low, one[1], LAST), jnp.where(other[0] >= low, other[1], LAST))


def merge_scorer(by: MergeScore) -> MergeScorer:
    """Precompute the tables needed for a merge score."""
    counts = jnp.arange(by.n_items + 1).astype(float)
    log_gamma = gammaln(counts)
    log_label = gammaln(counts + by.concentration) if by.criterion == "finite" else log_gamma
    log_marginal = by.component.log_marginal_up_to(by.n_items)
    return MergeScorer(log_marginal, jnp.log(by.concentration), log_gamma, log_label, by.criterion)


def leaf_trees(scorer: MergeScorer, stats: Statistics, items: Int[Array, " s"], group: Int[Array, " s"], n: Array) -> Trees:
    """Make every leaf a separate tree whose slot is its node number; leaves from n on are padding."""
    index = jnp.arange(items.shape[0])
    active = index < n
    stats = jax.tree.map(lambda leaf: jnp.where(active.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0.0), stats)
    marginal = scorer.log_marginal(stats)
    return Trees(
        stats=jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), stats),
        mass=scorer.log_alpha + scorer.log_gamma[jnp.where(active, items, 1)] + marginal,
        marginal=marginal,
        items=jnp.where(active, items, 0),
        node=index,
        group=group,
    )

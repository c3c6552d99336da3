"""Exact greedy agglomeration by BHC's merge odds, without a matrix of pairs."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int
from tqdm import tqdm

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics

__all__ = ["TIE", "greedy_tree"]

TIE = 1e-9
"""Scores that differ by less than this, relatively, are equal; then the pair with the smallest node numbers is merged."""

BAR_FROM = 2000
"""Number of rows from which a progress bar is worth showing."""


class _Forest(NamedTuple):
    """Trees still to be merged, one per active slot.

    - **stats** - statistics of each slot, the slot axis last, so that every statistic is contiguous.
    - **mass** - φ of each slot: log mass of all tree-consistent partitions of its items.
    - **items** - number of items of each slot.
    - **node** - node number of each slot.
    - **active** - whether the slot holds a tree.
    - **best** - for each slot, the largest merge odds with another; an upper bound where `stale`.
    - **partner** - the slot that gives `best`.
    - **stale** - whether the partner has gone since `best` was found.
    - **step** - number of merges made.
    - **rescans** - number of times a stale slot was evaluated again.
    - **children**, **log_odds** - the merges made.
    """

    stats: Statistics
    mass: Float[Array, " s"]
    items: Int[Array, " s"]
    node: Int[Array, " s"]
    active: Bool[Array, " s"]
    best: Float[Array, " s"]
    partner: Int[Array, " s"]
    stale: Bool[Array, " s"]
    step: Int[Array, ""]
    rescans: Int[Array, ""]
    children: Int[Array, "s 2"]
    log_odds: Float[Array, " s"]


class _Scorer(NamedTuple):
    """Merge odds: log α + lgamma(N) + m(D_i ∪ D_j) − φ_i − φ_j."""

    log_marginal: Any
    log_alpha: Float[Array, ""]
    log_gamma: Float[Array, " counts"]

    def pairs(self, forest: _Forest, slot: Array, others: Any) -> Float[Array, "..."]:
        """Log odds of merging a slot with `others`: an index, or a slice for all."""
        # the slot axis goes first as components expect; the transpose is fused away
        joint = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[..., others] + leaf[..., slot, None], -1, 0), forest.stats)
        size = forest.items[others] + forest.items[slot]
        odds = self.log_alpha + self.log_gamma[size] + self.log_marginal(joint)
        return odds - forest.mass[others] - forest.mass[slot]

    def row(self, forest: _Forest, slot: Array) -> Float[Array, " s"]:
        """Log odds of merging a slot with every other active one, −inf elsewhere."""
        odds = self.pairs(forest, slot, slice(None))
        return jnp.where(forest.active & (jnp.arange(odds.shape[0]) != slot), odds, -jnp.inf)


def _tolerance(score: Float[Array, "..."]) -> Float[Array, "..."]:
    return TIE * jnp.maximum(1.0, jnp.abs(score))


def _best_of_row(odds: Float[Array, " s"], node: Int[Array, " s"]) -> tuple[Float[Array, ""], Int[Array, ""]]:
    best = odds.max()
    ties = odds >= best - _tolerance(best)
    return best, jnp.argmin(jnp.where(ties, node, jnp.iinfo(node.dtype).max))


def _scorer(component: Component, concentration: Array, slots: int) -> _Scorer:
    log_gamma = gammaln(jnp.arange(2 * slots + 1).astype(float))
    return _Scorer(component.log_marginal_up_to(2 * slots), jnp.log(concentration), log_gamma)


@partial(jax.jit, static_argnames="slots")
def _plant(component: Component, X: Array, n: Array, concentration: Array, slots: int) -> _Forest:
    """Every row a tree of its own, with its best partner."""
    scorer = _scorer(component, concentration, slots)
    rows = component.suff_stats(X)
    index = jnp.arange(slots)
    active = index < n
    forest = _Forest(
        stats=jax.tree.map(lambda leaf: jnp.moveaxis(jnp.where(_expand(active, leaf), leaf, 0.0), 0, -1), rows),
        mass=scorer.log_alpha + scorer.log_marginal(rows),
        items=active.astype(int),
        node=index,
        active=active,
        best=jnp.full(slots, -jnp.inf),
        partner=index,
        stale=jnp.zeros(slots, bool),
        step=jnp.int64(0),
        rescans=jnp.int64(0),
        children=jnp.zeros((slots, 2), int),
        log_odds=jnp.zeros(slots),
    )
    best, partner = jax.lax.map(lambda slot: _best_of_row(scorer.row(forest, slot), forest.node), index)
    return forest._replace(best=jnp.where(active, best, -jnp.inf), partner=partner)


def _expand(mask: Bool[Array, " s"], leaf: Float[Array, "s ..."]) -> Bool[Array, "s ..."]:
    return mask.reshape(mask.shape + (1,) * (leaf.ndim - 1))


@partial(jax.jit, donate_argnames="forest")
def _grow(component: Component, forest: _Forest, n: Array, concentration: Array, until: Array) -> _Forest:
    """Merge until `until` merges have been made; every turn evaluates one row, of a new tree or of a stale one."""
    slots = forest.mass.shape[0]
    scorer = _scorer(component, concentration, slots)

    def turn(forest: _Forest) -> _Forest:
        best = jnp.where(forest.active, forest.best, -jnp.inf)
        top = best.max()
        ties = best >= top - _tolerance(top)
        stale = ties & forest.stale
        rescan = stale.any()
        # the pair with the smallest node numbers among the tied ones
        partner_node = forest.node[forest.partner]
        low, high = jnp.minimum(forest.node, partner_node), jnp.maximum(forest.node, partner_node)
        order = jnp.where(ties, low * (2 * slots) + high, jnp.iinfo(jnp.int64).max)
        slot = jnp.where(rescan, jnp.argmax(stale), jnp.argmin(order))
        gone = forest.partner[slot]
        merge = ~rescan

        odds = scorer.pairs(forest, slot, gone[None])[0]
        mass = forest.mass[slot] + forest.mass[gone] + jnp.logaddexp(odds, 0.0)
        items = forest.items[slot] + forest.items[gone]
        step = forest.step
        keep = partial(jnp.where, merge)
        grown = forest._replace(
            stats=jax.tree.map(
                lambda leaf: leaf.at[..., slot].set(keep(leaf[..., slot] + leaf[..., gone], leaf[..., slot])),
                forest.stats,
            ),
            mass=forest.mass.at[slot].set(keep(mass, forest.mass[slot])),
            items=forest.items.at[slot].set(keep(items, forest.items[slot])),
            node=forest.node.at[slot].set(keep(n + step, forest.node[slot])),
            active=forest.active.at[gone].set(keep(False, forest.active[gone])),
            children=forest.children.at[step].set(keep(jnp.stack([low[slot], high[slot]]), forest.children[step])),
            log_odds=forest.log_odds.at[step].set(keep(odds, forest.log_odds[step])),
            step=step + merge,
            rescans=forest.rescans + rescan,
        )
        row = scorer.row(grown, slot)
        row_best, row_partner = _best_of_row(row, grown.node)
        # others: their partner may have gone, and the new tree may be their best; its node number is the largest,
        # so it never wins a tie
        better = merge & (row > grown.best + _tolerance(row))
        orphaned = merge & ((grown.partner == slot) | (grown.partner == gone))
        return grown._replace(
            best=jnp.where(better, row, grown.best).at[slot].set(row_best),
            partner=jnp.where(better, slot, grown.partner).at[slot].set(row_partner),
            stale=(~better & (grown.stale | orphaned)).at[slot].set(False),
        )

    return jax.lax.while_loop(lambda forest: forest.step < until, turn, forest)


def _capacity(n: int) -> int:
    unit = 64 if n <= 256 else 256
    return -(-n // unit) * unit


def greedy_tree(
    component: Component, X: np.ndarray, concentration: float, progress_bar: bool = True
) -> tuple[Int[np.ndarray, "m 2"], Float[np.ndarray, " m"]]:
    """Merge, again and again, the two trees with the largest posterior odds of being one cluster.

    Every tree remembers its best partner; when the partner is merged away the remembered odds stay as an upper bound and
    the tree is evaluated again only once it comes out on top. Time O(n²) in practice, memory O(n). Call in float64.

    Parameters
    ----------
    component
        Conjugate component.
    X
        Data, (n, d).
    concentration
        α of the Dirichlet process.
    progress_bar
        Whether to show a bar when there are many rows.

    Returns
    -------
    children, log_odds
        As in `Dendrogram`: (n − 1, 2) node numbers, smaller first, and (n − 1,) log odds of each merge (nats).

    Notes
    -----
    Heller & Ghahramani (2005), section 2, in log space: the pair with the largest r is the pair with the largest odds
    r/(1 − r), which do not saturate.
    """
    n = X.shape[0]
    slots = _capacity(n)
    # padding repeats the first row, a valid value for any family; the slots are never active
    padded = np.concatenate([X, np.broadcast_to(X[:1], (slots - n, X.shape[1]))])
    size, alpha = jnp.asarray(n), jnp.asarray(concentration, float)
    forest = _plant(component, jnp.asarray(padded), size, alpha, slots)
    chunk = n if n < BAR_FROM else max(n // 50, 1)
    with tqdm(total=n - 1, desc="BHC", disable=not progress_bar or n < BAR_FROM, unit="merge") as bar:
        done = 0
        while done < n - 1:
            goal = min(done + chunk, n - 1)
            forest = _grow(component, forest, size, alpha, jnp.asarray(goal))
            forest.step.block_until_ready()
            bar.update(goal - done)
            done = goal
    return np.asarray(forest.children)[: n - 1], np.asarray(forest.log_odds)[: n - 1]

"""Point estimates of partitions: a greedy search for the smallest posterior expected loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.native.cores import on_cores
from bnp_hier.posterior.partitions import flat_draws, unique_draws
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.padding import padded

__all__ = ["LOSSES", "cluster_costs", "expected_losses", "point_estimate"]

LOSSES = ("vi", "binder")
"""Variation of information (nats), and Binder's loss: the share of item pairs that only one of two partitions joins."""

MOST_SWEEPS = 50
"""Maximum number of sweeps per search."""

MOST_CANDIDATES = 1000
"""Maximum number of draws whose expected loss is computed."""

MOST_FINALISTS = 50
"""Maximum number of draws whose expected loss over all draws is computed, each in a time proportional to their number."""

MOST_SEARCHED = 2000
"""Number of draws from which losses of candidates and searches from random orders are estimated, if there are more."""

SPARE = 4
"""Number of clusters that the search may open beyond those of the draw with the most clusters."""

LEAST_GAIN = 1e-10
"""Smallest decrease of the expected loss for which an item is moved."""

BATCHES = 20
"""Number of batches of consecutive draws whose means give the Monte Carlo error; it takes twice as many draws."""


class _Tables(NamedTuple):
    """Draws in the form that the search needs.

    - **labels** - (n, u) labels of the distinct draws, with one row per item; then copies of the first one, up to a size that
      similar numbers of draws share, and with it the programs.
    - **weight** - (u,) their shares of all draws, 0 for the copies.
    - **cost** - (n + 1,) `cluster_costs`.
    """

    labels: Int[Array, "n u"]
    weight: Float[Array, " u"]
    cost: Float[Array, " n1"]


def cluster_costs(n: int, loss: str) -> Float[np.ndarray, " n1"]:
    """Costs f(0), ..., f(n), with loss(a, b) = Σ f(|cluster of a|) + Σ f(|cluster of b|) − 2 Σ f(|intersection|).

    Raises
    ------
    ValueError
        If the loss is unknown.
    """
    if loss not in LOSSES:
        raise ValueError(f'loss must be "vi" or "binder", but it is {loss!r}')
    sizes = np.arange(n + 1.0)
    return sizes * np.log(np.maximum(sizes, 1.0)) / n if loss == "vi" else sizes**2 / max(n * (n - 1), 1)


def _likely(tables: _Tables) -> Int[np.ndarray, "c n"]:
    """Return the distinct draws, or those with the largest shares; of equal ones, some that are spread over the draws.

    Copies of the first follow, up to a size that similar numbers share.
    """
    there = np.asarray(tables.weight) > 0
    labels, share = np.asarray(tables.labels).T[there], np.asarray(tables.weight)[there]
    spread = np.random.default_rng(0).permutation(len(share))
    return padded(labels[spread[np.argsort(-share[spread], kind="stable")[:MOST_CANDIDATES]]])


def _tables(flat: Int[np.ndarray, "s n"], loss: str) -> _Tables:
    labels, weight, _ = unique_draws(flat)
    costs = jnp.asarray(cluster_costs(labels.shape[1], loss))
    return _Tables(jnp.asarray(padded(labels).T), jnp.asarray(padded(weight, 0.0)), costs)


def _width(tables: _Tables) -> int:
    """Number of labels of the draws, rounded up to a multiple of `SPARE`, so that similar draws share programs."""
    n = len(tables.labels)
    return min(n, -(-(int(tables.labels.max()) + 1) // SPARE) * SPARE)


def _losses_of(tables: _Tables, candidates: Int[np.ndarray, "c n"], slots: int) -> Float[np.ndarray, " c"]:
    """Expected loss of each candidate over the draws."""
    return np.asarray(_losses(tables, jnp.asarray(candidates), slots, _width(tables)))


@partial(jax.jit, static_argnames=("slots", "width"))
def _losses(tables: _Tables, candidates: Int[Array, "c n"], slots: int, width: int) -> Float[Array, " c"]:
    """Expected loss of each candidate over the draws."""
    of_draws = _costs(tables, tables.labels + width * jnp.arange(tables.labels.shape[1])[None], width) @ tables.weight
    return of_draws + jax.lax.map(lambda z: _losses_less_draws(tables, z, slots, width) @ tables.weight, candidates)


def _costs(tables: _Tables, index: Int[Array, "n u"], slots: int) -> Float[Array, " u"]:
    """Sum of the costs of the clusters of each of several partitions, with separate labels below `slots` times their number."""
    u = index.shape[1]
    sizes = jax.ops.segment_sum(jnp.ones(index.size, int), index.ravel(), slots * u)
    return tables.cost[sizes].reshape(u, slots).sum(1)


@partial(jax.jit, static_argnames=("slots", "width"))
def _losses_less_draws(tables: _Tables, z: Int[Array, " n"], slots: int, width: int) -> Float[Array, " u"]:
    """Loss of a partition relative to each draw, less the costs of the clusters of the draw."""
    u = tables.labels.shape[1]
    own = tables.cost[jax.ops.segment_sum(jnp.ones(len(z), int), z, slots)].sum()
    return own - 2 * _costs(tables, (z[:, None] + slots * jnp.arange(u)[None]) * width + tables.labels, slots * width)


@partial(jax.jit, static_argnames=("slots", "width"))
def _search(
    tables: _Tables, start: Int[Array, " n"], orders: Int[Array, "sweeps n"], most: Int[Array, ""], slots: int, width: int
) -> Int[Array, " n"]:
    """Move items one at a time to where the expected loss is smallest, until a sweep moves none.

    −1 means not yet seated. Labels remain below `most`, which is at most `slots`.
    """
    n, u = tables.labels.shape
    draws = jnp.arange(u)
    seated = start >= 0
    where = jnp.where(seated, start, slots)
    flat = (where[:, None] * u + draws[None]) * width + tables.labels
    meeting = jax.ops.segment_sum(jnp.ones(flat.size, jnp.int32), flat.ravel(), slots * u * width).reshape(slots, u, width)
    sizes = jax.ops.segment_sum(jnp.ones(n, jnp.int32), where, slots)
    step = jnp.diff(tables.cost)

    def visit(carry: tuple[Array, Array, Array, Array], item: Array) -> tuple[tuple[Array, Array, Array, Array], None]:
        labels, sizes, meeting, moved = carry
        old, row = labels[item], tables.labels[item]
        there = (old >= 0).astype(sizes.dtype)
        home = jnp.maximum(old, 0)
        sizes = sizes.at[home].add(-there)
        meeting = meeting.at[home, draws, row].add(-there)
        rise = step[sizes] - 2 * step[meeting[:, draws, row]] @ tables.weight
        best = jnp.where(jnp.arange(slots) < most, rise, jnp.inf).argmin()
        stays = (old >= 0) & (rise[best] > rise[home] - LEAST_GAIN)
        new = jnp.where(stays, home, best).astype(labels.dtype)
        carry = (labels.at[item].set(new), sizes.at[new].add(1), meeting.at[new, draws, row].add(1), moved | (new != old))
        return carry, None

    def sweep(state: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        t, labels, sizes, meeting, _ = state
        (labels, sizes, meeting, moved), _ = jax.lax.scan(visit, (labels, sizes, meeting, jnp.bool_(False)), orders[t])
        return t + 1, labels, sizes, meeting, moved

    def unfinished(state: tuple[Array, Array, Array, Array, Array]) -> Array:
        return state[-1] & (state[0] < orders.shape[0])

    return jax.lax.while_loop(unfinished, sweep, (jnp.int64(0), start, sizes, meeting, jnp.bool_(True)))[1]


def expected_losses(candidates: ArrayLike, draws: ArrayLike, loss: str = "vi") -> Float[np.ndarray, " c"]:
    """Posterior expected loss of partitions, the mean loss over the draws.

    Parameters
    ----------
    candidates
        Partitions, (c, n) whole numbers from 0.
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    loss
        "vi": variation of information (nats). "binder": Binder's loss with equal costs, as a share of all pairs of items.

    Raises
    ------
    ValueError
        If the draws or candidates have the wrong shape or type, or the loss is unknown.
    """
    flat, proposed = flat_draws(draws), flat_draws(candidates)
    if proposed.shape[1] != flat.shape[1]:
        raise ValueError(f"the candidates label {proposed.shape[1]} items, but the draws label {flat.shape[1]}")
    proposed = np.stack([canonical_labels(z) for z in proposed])
    with double_precision():
        return _losses_of(_tables(flat, loss), padded(proposed), int(proposed.max()) + 1)[: len(proposed)]


def point_estimate(draws: ArrayLike, loss: str = "vi", *, n_init: int = 8, random_state: int = 0) -> Int[np.ndarray, " n"]:
    """Search for the partition with the fewest clusters among those with the smallest posterior expected loss.

    The expected loss is known up to Monte Carlo error: of partitions whose mean loss exceeds the smallest one by at most one
    standard error of this difference (by the means of 20 batches of consecutive draws), the one with the fewest clusters is
    returned. If there are fewer than 40 draws, it is the partition with the smallest mean loss itself.

    Items are moved one at a time to the cluster, possibly a new one, that minimises the mean loss over all draws, until no
    item moves. The search starts from the best draw, and from partitions built item by item in random orders, so that, but
    for the error, the result is never worse than the draws that are compared: all of them, or, of more than 1000 distinct
    draws, the 1000 that occur most often (of equally frequent ones, a random subset). Then the smallest clusters are dissolved
    one at a time while the error permits it, and the search goes on with one cluster less. If there are more than 2000 draws,
    2000 of them, evenly spaced, serve to choose the 50 draws that are compared, to build partitions and to dissolve clusters;
    the best partition of each kind is then improved for all draws.

    Parameters
    ----------
    draws
        Label draws, (s, n) or (chain, draw, n) whole numbers.
    loss
        "vi": variation of information. "binder": Binder's loss with equal costs.
    n_init
        Number of partitions built in random orders, in addition to the best draw, and number of the smallest clusters that
        are candidates for being dissolved.
    random_state
        Seed of the orders.

    Returns
    -------
    labels
        (n,) whole numbers from 0, in order of appearance.

    Raises
    ------
    ValueError, TypeError
        If the draws have the wrong shape or type, the loss is unknown, or `n_init` is not a whole number of at least 0.

    Notes
    -----
    The losses are those of Wade & Ghahramani (2018), except that the expected variation of information itself is minimised
    instead of their lower bound. The search is similar to that of Dahl, Johnson & Müller (2022).

    Examples
    --------
    >>> from bnp_hier import point_estimate
    >>> point_estimate([[0, 0, 1], [0, 0, 0], [5, 5, 2], [1, 0, 0]])
    array([0, 0, 1])
    """
    if isinstance(n_init, bool) or not isinstance(n_init, int | np.integer) or n_init < 0:
        raise ValueError(f"n_init must be a whole number of at least 0, but it is {n_init!r}")
    flat = flat_draws(draws)
    n = flat.shape[1]
    rng = np.random.default_rng(random_state)
    with double_precision():
        tables, which = _tables(flat, loss), unique_draws(flat)[2]
        width = _width(tables)
        slots = min(n, width + SPARE)
        candidates = _likely(tables)
        spread = np.linspace(0, len(flat) - 1, min(len(flat), MOST_SEARCHED)).round().astype(int)
        some = tables if len(spread) == len(flat) else _tables(flat[spread], loss)
        if some is not tables and len(candidates) > MOST_FINALISTS:
            halves = np.array_split(candidates, 2)
            rough = np.concatenate(on_cores(lambda half: _losses_of(some, half, width), halves))
            candidates = candidates[np.argsort(rough, kind="stable")[:MOST_FINALISTS]]
        losses = _losses_of(tables, candidates, width)

        def orders() -> np.ndarray:
            return np.stack([rng.permutation(n) for _ in range(MOST_SWEEPS)])

        def improved(start: np.ndarray, of: _Tables, orders: np.ndarray, most: int = slots) -> np.ndarray:
            return np.asarray(_search(of, jnp.asarray(start), jnp.asarray(orders), jnp.asarray(most), slots, width))

        found = [improved(candidates[int(losses.argmin())], tables, orders())]
        if n_init:
            several, nothing = [orders() for _ in range(n_init)], np.full(n, -1)
            first = improved(nothing, some, several[0])  # which compiles
            built = np.stack([first, *on_cores(lambda orders: improved(nothing, some, orders), several[1:])])
            if some is not tables:
                losses = _losses_of(tables, built, slots)
                built = improved(built[int(losses.argmin())], tables, orders())[None]
            found.extend(built)
        losses = _losses_of(tables, np.stack(found), slots)
        ordered = [canonical_labels(z) for z in np.stack(found)[np.argsort(losses, kind="stable")]]
        if len(flat) < 2 * BATCHES:
            return ordered[0]

        def of_draws(z: np.ndarray) -> np.ndarray:
            return np.asarray(_losses_less_draws(tables, jnp.asarray(z), slots, width))[which]

        def dissolved(z: np.ndarray) -> Iterator[np.ndarray]:
            sizes = np.bincount(z)
            for cluster in np.argsort(sizes, kind="stable")[:n_init] if len(sizes) > 1 else ():
                yield improved(np.where(z == cluster, -1, z - (z > cluster)), some, orders(), len(sizes) - 1)

        return _fewest_clusters(ordered, of_draws, dissolved)


def _fewest_clusters(
    found: Sequence[Int[np.ndarray, " n"]],
    losses: Callable[[Int[np.ndarray, " n"]], Float[np.ndarray, " s"]],
    dissolved: Callable[[Int[np.ndarray, " n"]], Iterator[Int[np.ndarray, " n"]]],
) -> Int[np.ndarray, " n"]:
    """Choose the partition with the fewest clusters among those as good as the best up to Monte Carlo error.

    Parameters
    ----------
    found
        Partitions, the best first.
    losses
        Partition -> its loss relative to each draw, up to a constant of the draw.
    dissolved
        Partition -> partitions without one of its clusters, to try one after the other.
    """
    least = losses(found[0])

    def as_good(z: np.ndarray) -> bool:
        means = np.array([batch.mean() for batch in np.array_split(losses(z) - least, BATCHES)])
        return bool(means.mean() <= means.std(ddof=1) / np.sqrt(BATCHES) + LEAST_GAIN)

    chosen = min(filter(as_good, found), key=np.max)
    while (fewer := next(filter(as_good, dissolved(chosen)), None)) is not None:
        chosen = canonical_labels(fewer)
    return chosen

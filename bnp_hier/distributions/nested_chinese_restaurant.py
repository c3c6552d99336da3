"""The nested Chinese restaurant process: a prior on trees of fixed depth, represented by one path from the root per item."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.distributions.model_draws import RememberedDraws
from bnp_hier.utils.arrays import is_traced

__all__ = ["NestedChineseRestaurantProcess", "Tree", "log_tree_prior", "read_tree"]


class Tree(NamedTuple):
    """The tree that paths describe, with M node numbers, some of which are unused; node 0 is the root.

    - **counts** - number of items below each node, (M,); 0 for an unused number.
    - **level** - level of each node, (M,): 0 for the root, depth for leaves, −1 for an unused number.
    - **parent** - parent of each node, (M,); −1 for the root and for unused numbers.
    - **valid** - whether the paths form a tree: no number occurs on two levels or under two parents.
    """

    counts: Int[Array, " m"]
    level: Int[Array, " m"]
    parent: Int[Array, " m"]
    valid: Bool[Array, ""]


def read_tree(paths: Int[Array, "n depth"], max_nodes: int) -> Tree:
    """Build the tree of paths, each of which lists the node numbers of one item from the root's child to the leaf."""
    n, depth = paths.shape
    nodes = jnp.concatenate([jnp.zeros((n, 1), paths.dtype), paths], axis=1)
    below = jax.vmap(lambda column: jax.ops.segment_sum(jnp.ones(n, int), column, max_nodes), 1)(nodes)  # by level
    parent, valid = jnp.full(max_nodes, -1), ((below > 0).sum(0) <= 1).all()
    for level in range(1, depth + 1):
        above = nodes[:, level - 1].astype(int)
        highest = jax.ops.segment_max(above, nodes[:, level], max_nodes)
        lowest = jax.ops.segment_min(above, nodes[:, level], max_nodes)
        used = below[level] > 0
        valid &= jnp.where(used, highest == lowest, True).all()
        parent = jnp.where(used, highest, parent)
    counts = below.sum(0)
    return Tree(counts, jnp.where(counts > 0, below.argmax(0), -1), parent, valid)


def log_tree_prior(tree: Tree, concentration: ArrayLike, depth: int) -> Float[Array, ""]:
    """Log probability of a tree under the nested Chinese restaurant process, however its nodes are numbered (nats).

    Σ over internal nodes z with m_z children of [m_z log α + lgamma(α) − lgamma(N_z + α)] + Σ over all nodes z except the root
    of lgamma(N_z), where N_z is the number of items below z. Huang et al. (2021), section 3.1.
    """
    alpha = jnp.asarray(concentration)
    counts = tree.counts.astype(jnp.result_type(float))
    child, internal = tree.level > 0, (tree.level >= 0) & (tree.level < depth)
    # where(...) inside and outside keeps gradients finite at unused numbers
    joining = jnp.where(child, gammaln(jnp.where(child, counts, 1.0)), 0.0).sum()
    seating = jnp.where(internal, gammaln(alpha) - gammaln(jnp.where(internal, counts, 1.0) + alpha), 0.0).sum()
    return child.sum(dtype=counts.dtype) * jnp.log(alpha) + joining + seating


class NestedChineseRestaurantProcess(RememberedDraws):
    """Distribution of a tree of fixed depth over `size` items, as the path of every item from the root's child to a leaf.

    A Chinese restaurant process seats the items at the root; each table is a child node with its own restaurant, and so on down
    to the leaves at level `depth`.

    Parameters
    ----------
    concentration
        α > 0 of the restaurant at every node; larger values favour more branches.
    size
        Number of items n.
    depth
        Number of levels L ≥ 1 below the root; with one level this is the Chinese restaurant process.
    max_nodes
        Maximum number of nodes M ≥ L + 1, including the root; larger trees have probability zero. The density is not
        renormalised, so that the joint density with a prior on `concentration` is the untruncated one restricted to the
        remaining trees. None means 1 + nL, which no tree exceeds.

    Notes
    -----
    Introduced by Blei, Griffiths, Jordan & Tenenbaum (2004).

    Values are (n, L) node numbers from 1, ..., M − 1; the root, number 0, is omitted. Each number occurs on one level, under
    one parent. `log_prob` is the log probability of the tree, however its nodes are numbered, and −inf if the numbers do not
    form a tree; the probabilities of all trees (not of all numberings) sum to one. Draws number the nodes in the order in which
    the items open them and never exceed the capacity: no branch opens if there is no room for the rest of its path.

    Raises
    ------
    ValueError
        If size or depth is below one, the capacity is too small for a single path, or the concentration is not finite and
        positive.

    Examples
    --------
    >>> import jax
    >>> from bnp_hier import NestedChineseRestaurantProcess
    >>> tree_prior = NestedChineseRestaurantProcess(1.0, size=6, depth=2)
    >>> paths = tree_prior.sample(jax.random.key(0))
    >>> paths.shape, paths[0].tolist()  # the first item opens the first node on every level
    ((6, 2), [1, 2])
    """

    arg_constraints = {"concentration": constraints.positive}
    pytree_data_fields = ("concentration",)
    pytree_aux_fields = ("size", "depth", "max_nodes")
    reparametrized_params: list[str] = []

    def __init__(
        self,
        concentration: ArrayLike,
        size: int,
        depth: int,
        max_nodes: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        name = type(self).__name__
        for what, value in (("size", size), ("depth", depth)):
            if value != int(value) or value < 1:
                raise ValueError(f"{name}: {what} must be a whole number of at least 1, but it is {value}")
        if max_nodes is not None and (max_nodes != int(max_nodes) or max_nodes < depth + 1):
            raise ValueError(
                f"{name}: max_nodes must be a whole number of at least depth + 1 = {depth + 1} (the root and one path), "
                f"but it is {max_nodes}"
            )
        if not is_traced(concentration):
            alpha = np.asarray(concentration)
            if not ((alpha > 0) & np.isfinite(alpha)).all():
                raise ValueError(f"{name}: concentration must be finite and positive, but it is {alpha}")
        largest = 1 + int(size) * int(depth)
        self.concentration, self.size, self.depth = concentration, int(size), int(depth)
        self.max_nodes = largest if max_nodes is None else int(max_nodes)
        super().__init__(batch_shape=jnp.shape(concentration), event_shape=(self.size, self.depth), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=2)
    def support(self) -> Any:
        """Tables with entries 1, ..., M − 1."""
        return constraints.independent(constraints.integer_interval(1, self.max_nodes - 1), 2)

    @validate_sample
    def log_prob(self, value: Int[Array | np.ndarray, "... n depth"]) -> Float[Array, "..."]:
        """Log probability of the tree that the paths describe (nats)."""
        value, alpha = jnp.asarray(value), jnp.asarray(self.concentration, jnp.result_type(float))
        batch = jnp.broadcast_shapes(value.shape[:-2], alpha.shape)
        flat = jnp.broadcast_to(value, (*batch, *self.event_shape)).reshape(-1, *self.event_shape)

        def one(paths: Array, concentration: Array) -> Array:
            tree = read_tree(paths, self.max_nodes)
            return jnp.where(
                tree.valid & (tree.level != 0)[1:].all(), log_tree_prior(tree, concentration, self.depth), -jnp.inf
            )

        return jax.vmap(one)(flat, jnp.broadcast_to(alpha, batch).reshape(-1)).reshape(batch)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Int[Array, "... n depth"]:
        """Draw trees one item at a time, with nodes numbered in the order in which they open."""
        assert key is not None
        shape = (*sample_shape, *self.batch_shape)
        alpha = jnp.broadcast_to(jnp.asarray(self.concentration, jnp.result_type(float)), shape).reshape(-1)
        capacity = min(self.max_nodes, 1 + self.size * self.depth)
        return _walk_all(key, alpha, self.size, self.depth, capacity).reshape(*shape, *self.event_shape)


@partial(jax.jit, static_argnames=("size", "depth", "capacity"))
def _walk_all(key: Array, concentration: Float[Array, " b"], size: int, depth: int, capacity: int) -> Int[Array, "b n depth"]:
    """Draw one tree per concentration, with items walking down one at a time."""
    numbers = jnp.arange(capacity)

    def one(uniforms: Array, alpha: Array) -> Array:
        def walk(carry: tuple[Array, Array, Array], uniform: Array) -> tuple[tuple[Array, Array, Array], Array]:
            counts, parent, used = carry
            at, path = jnp.zeros((), int), []
            for level in range(depth):
                fits = used + depth - level <= capacity  # a new branch adds a node on every level below
                child = jnp.where((parent == at) & (numbers < used), counts, 0.0)
                opening = jnp.where(fits, alpha, 0.0)
                cumulative = jnp.cumsum(jnp.where(numbers == used, opening, child))
                at, before = (cumulative <= uniform[level] * cumulative[-1]).sum().astype(int), at
                parent = parent.at[at].set(before)
                counts = counts.at[at].add(1.0)
                used = jnp.maximum(used, at + 1)
                path.append(at)
            return (counts, parent, used), jnp.stack(path)

        start = jnp.zeros(capacity, concentration.dtype), jnp.full(capacity, -1), jnp.ones((), int)
        return jax.lax.scan(walk, start, uniforms)[1]

    uniforms = jax.random.uniform(key, (concentration.shape[0], size, depth), concentration.dtype)
    return jax.vmap(one)(uniforms, concentration)

"""Moves of single items to other paths of a tree, with their labels; the core of `BHMCGibbs`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.distributions.tree_mixing import log_dirichlet_draw, proportions
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.partitions.seating import draw_index
from bnp_hier.utils.arrays import pack

__all__ = ["Sweep", "densities_of", "log_likelihood_of", "path_sweep", "path_weights"]


class Nodes(NamedTuple):
    """The tree and its mixtures while items move.

    - **counts** - items below each node, (M,); 0 for an unused number.
    - **parent** - parent of each node, (M,); any number at the root and where unused.
    - **level** - level of each node, (M,); −1 where unused.
    - **mixing** - proportions of the components at each node, (M, K).
    - **sizes** - items of each component, (K,).
    - **coefficients** - of each component's log likelihood, (K, p); see `Densities`.
    - **parameters** - of each component, (K, ...).
    """

    counts: Float[Array, " m"]
    parent: Int[Array, " m"]
    level: Int[Array, " m"]
    mixing: Float[Array, "m k"]
    sizes: Float[Array, " k"]
    coefficients: Float[Array, "k p"]
    parameters: Float[Array, "k ..."]


class Densities(NamedTuple):
    """What an item's densities are computed from; leaves have the items' dimension.

    - **row** - the item's sufficient statistics, flattened, (n, p); or the row itself where the family does not give its log
      likelihood as a product of natural parameters and statistics.
    - **alone** - log prior predictive density of the item, which an empty component has (nats), (n,).
    - **coefficients** - of a component with parameters drawn given this item alone, (n, p).
    - **parameters** - those parameters, (n, ...).
    """

    row: Float[Array, "n p"]
    alone: Float[Array, " n"]
    coefficients: Float[Array, "n p"]
    parameters: Float[Array, "n ..."]


class Sweep(NamedTuple):
    """Result of a sweep.

    - **paths** - (n, depth) node numbers.
    - **labels** - (n,) components.
    - **mixing** - (M, K) proportions, those of nodes that opened drawn from their conditional, zeros at unused numbers.
    - **parameters** - (K, ...) parameters, those of components that were empty drawn given their first item.
    - **hits** - items that the capacity kept from opening a branch, or an infinite root from a component, or that proposed one.
    - **refused** - mean over items of the conditional probability of the refused branches; of "mh", share of the proposals.
    """

    paths: Int[Array, "n depth"]
    labels: Int[Array, " n"]
    mixing: Float[Array, "m k"]
    parameters: Float[Array, "k ..."]
    hits: Int[Array, ""]
    refused: Float[Array, ""]


def path_weights(
    counts: Float[Array, " m"],
    parent: Int[Array, " m"],
    level: Int[Array, " m"],
    concentration: Float[Array, ""],
    depth: int,
) -> Float[Array, " m"]:
    """Probability of the path of one item more given those of the others: to each leaf, and new below each inner node.

    Parameters
    ----------
    counts, parent, level
        Items, parent (any number at the root) and level (−1 where unused) of every node.
    concentration
        α.
    depth
        Level of the leaves.
    """
    weight = jnp.where(level == 0, 1.0, 0.0)
    for at in range(1, depth + 1):
        step = weight[parent] * counts / (counts[parent] + concentration)
        weight = jnp.where(level == at, step, weight)
    inner = (level >= 0) & (level < depth)
    return jnp.where(inner, weight * concentration / (counts + concentration), weight)


def coefficients_of(component: Component, parameters: Float[Array, "k ..."]) -> Float[Array, "k p"]:
    """Natural parameters, flattened; the parameters themselves where the family does not give them."""
    try:
        return pack(component.natural_parameters(parameters), 1)
    except NotImplementedError:
        return parameters.reshape(parameters.shape[0], -1)


def densities_of(component: Component, X: Num[Array | np.ndarray, "n d"], key: Array) -> Densities:
    """Everything about the items that the sweep reads and that no move changes."""
    rows = component.suff_stats(X)
    parameters = component.sample_parameters(key, rows)
    coefficients = coefficients_of(component, parameters)
    row = pack(rows, 1) if _is_linear(component, parameters) else jnp.asarray(X)
    return Densities(row, component.log_marginal_up_to(1)(rows), coefficients, parameters)


def _is_linear(component: Component, parameters: Float[Array, "k ..."]) -> bool:
    try:
        component.natural_parameters(parameters)
    except NotImplementedError:
        return False
    return True


def log_likelihood_of(
    component: Component, rows: Statistics, X: Num[Array | np.ndarray, "n d"], parameters: Float[Array, "k ..."]
) -> Float[Array, "n k"]:
    """Log density of every item under every component (nats)."""
    if _is_linear(component, parameters):
        return pack(rows, 1) @ coefficients_of(component, parameters).T
    return jax.vmap(lambda one: component.likelihood(one).log_prob(X), out_axes=1)(parameters)


def path_sweep(
    component: Component,
    densities: Densities,
    paths: Int[Array, "n depth"],
    labels: Int[Array, " n"],
    mixing: Float[Array, "m k"],
    parameters: Float[Array, "k ..."],
    concentration: Float[Array, ""],
    mixing_concentration: Float[Array, ""],
    root: RootPrior,
    key: Array,
    *,
    metropolis: bool,
) -> Sweep:
    """Visit all items once in random order; draw each one's path with its label summed out, then its label.

    A component without items has its parameters integrated out: its density is the prior predictive, and its parameters are
    drawn given the item that chooses it. With one candidate per node (join a leaf; open a branch below an inner node) the
    weight is the nested Chinese restaurant process' times S_z = Σ_k β_zk f_k(x), which is exact for a new branch because the
    proportions of its nodes have the mean β_z. New nodes' proportions are then drawn from Dir(γβ + e_label), level by level.
    "mh" proposes by the process alone, new proportions from their prior, and accepts by the ratio of the likelihoods (Huang
    et al. 2021, Algorithm 2, whose other factors cancel).

    With an infinite root a component that loses its last item becomes part of what is left for all others; an item that chooses
    this opens a new component, for which every node's remainder is split: b ~ Beta(1, γ0) of the root's, and
    Beta(γβ_parent,new, γβ_parent,rest) of the others', with one added to the first at the nodes of the item's own path.

    Parameters
    ----------
    component, densities
        The component, and the items' part from `densities_of`.
    paths, labels, mixing, parameters
        The state; `mixing` is zero at unused numbers or whatever.
    concentration, mixing_concentration
        α of the tree and γ of the proportions.
    root
        Prior of the components.
    key
        Random key.
    metropolis
        Whether to propose and accept instead of drawing from the conditional.
    """
    n, depth = paths.shape
    capacity, components = mixing.shape
    tree = read_tree(paths, capacity)
    linear = _is_linear(component, parameters)
    coefficients = coefficients_of(component, parameters)
    dtype = mixing.dtype
    start = Nodes(
        tree.counts.astype(dtype),
        jnp.maximum(tree.parent, 0),
        tree.level,
        jnp.where((tree.level >= 0)[:, None], mixing, 0.0),
        cluster_counts(labels, components).astype(dtype),
        coefficients,
        parameters,
    )
    below = jnp.arange(1, depth + 1)

    def log_density(nodes: Nodes, item: Densities) -> Float[Array, " k"]:
        if linear:
            logs = nodes.coefficients @ item.row
        else:
            logs = component.likelihood(nodes.parameters).log_prob(item.row)
        return jnp.where(nodes.sizes > 0, logs, item.alone)

    def split_rest(mixing: Array, parent: Array, level: Array, path: Array, label: Array, key: Array) -> Array:
        """A new component's proportions, taken from every node's rest, given one item on the path that has it."""
        own = jnp.zeros(capacity, dtype).at[path].set(1.0)
        first = jnp.stack([jnp.ones((), dtype), root.concentration.astype(dtype)])

        def split_level(at: Array, parts: Array) -> Array:
            given = (mixing_concentration * parts[parent]).at[:, 0].add(own)
            shares = log_dirichlet_draw(jax.random.fold_in(key, at), jnp.where((level == 0)[:, None], first, given))
            return jnp.where((level == at)[:, None], mixing[:, -1:] * jnp.exp(shares), parts)

        parts = jax.lax.fori_loop(0, depth + 1, split_level, jnp.ones((capacity, 2), dtype))
        return mixing.at[:, label].set(parts[:, 0]).at[:, -1].set(parts[:, 1])

    def visit(nodes: Nodes, item: Any) -> tuple[Nodes, Any]:
        path, label, density, uniforms, key_item = item
        key_item, key_birth = jax.random.split(key_item) if root.infinite else (key_item, key_item)
        sizes = nodes.sizes.at[label].add(-1.0)
        nodes = nodes._replace(sizes=sizes)
        logs = log_density(nodes, density)
        if root.infinite:
            died = sizes[label] <= 0
            back = jnp.where(died, nodes.mixing[:, label], 0.0)
            nodes = nodes._replace(mixing=nodes.mixing.at[:, label].add(-back).at[:, -1].add(back))
            label = jnp.where(died, components - 1, label)
        shifted = jnp.exp(logs - logs.max())
        opening = jnp.zeros((), dtype)  # likelihood of a new component that the capacity refuses
        if root.infinite:
            full = ((sizes > 0) | ~root.usable).all()
            opening = jnp.where(full, shifted[-1], opening)
            shifted = shifted.at[-1].add(-opening)
        counts = nodes.counts.at[path].add(-1.0).at[0].add(-1.0)
        # an item that is alone below the root still leaves the root
        level = jnp.where((counts > 0) | (jnp.arange(capacity) == 0), nodes.level, -1)
        prior = path_weights(counts, nodes.parent, level, concentration, depth)
        # a new branch takes a node on every level below
        refused = (level >= 0) & (level < depth) & (depth - level > (level < 0).sum())
        likelihood = nodes.mixing @ shifted
        posterior = prior if metropolis else prior * likelihood
        allowed = posterior if metropolis else jnp.where(refused, 0.0, posterior)
        at = draw_index(allowed, uniforms[0])
        opens = level[at] < depth

        pseudo_count = jnp.zeros(components, dtype)
        if not metropolis:
            # the label of an item that opens a branch is known before the branch's proportions are
            own = draw_index(nodes.mixing[at] * shifted, uniforms[1])
            pseudo_count = (jnp.arange(components) == own).astype(dtype)

        def draw_next(step: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            above, chain = state
            key_step = jax.random.fold_in(key_item, step)
            drawn = proportions(log_dirichlet_draw(key_step, mixing_concentration * above + pseudo_count.astype(dtype))).astype(
                dtype
            )
            return drawn, chain.at[step].set(drawn)

        # none where a leaf is joined
        empty = nodes.mixing[at], jnp.zeros((depth, components), dtype)
        _, chain = jax.lax.fori_loop(0, depth - level[at], draw_next, empty)
        # where the new path goes: the candidate's ancestors, then unused numbers
        free = jnp.nonzero(level < 0, size=depth, fill_value=capacity)[0]
        ahead = below - level[at] - 1  # position in the chain, negative for ancestors
        ancestors, node = [], at
        for step in range(depth, 0, -1):
            here = level[node] == step
            ancestors.append(node)
            node = jnp.where(here, nodes.parent[node], node)
        new_path = jnp.where(ahead >= 0, free[jnp.maximum(ahead, 0)], jnp.stack(ancestors[::-1]))
        if metropolis:
            leaf = jnp.where(opens, chain[depth - 1 - level[at]], nodes.mixing[at])
            accepted = (uniforms[2] * likelihood[path[-1]] < leaf @ shifted) & ~refused[at]
            leaf = jnp.where(accepted, leaf, nodes.mixing[path[-1]])
            new_label = draw_index(leaf * shifted, uniforms[1])
            unmade = opening * leaf[-1]
            hit, mass = refused[at] | (unmade > 0), jnp.maximum(refused[at].astype(dtype), unmade / (leaf @ shifted + unmade))
        else:
            unmade = (prior * nodes.mixing[:, -1]).sum() * opening
            total, lost = posterior.sum() + unmade, jnp.where(refused, posterior, 0.0).sum() + unmade
            accepted = total - lost > 0  # false where every density underflows
            new_label = jnp.where(accepted, draw_index(nodes.mixing[at] * shifted, uniforms[1]), label)
            hit, mass = lost > 0, lost / jnp.where(total > 0, total, 1.0)
        # nothing is left of what was not accepted: the item stays where it was
        new_path = jnp.where(accepted, new_path, path)
        ahead = jnp.where(accepted, ahead, -1)
        level = jnp.where(accepted, level, nodes.level)
        opened = jnp.where(ahead >= 0, new_path, capacity)  # beyond the end: dropped
        parent = nodes.parent.at[new_path].set(jnp.concatenate([jnp.zeros(1, new_path.dtype), new_path[:-1]]))
        level = level.at[new_path].set(below)
        mixing = nodes.mixing.at[opened].set(chain[jnp.maximum(ahead, 0)], mode="drop")
        if root.infinite:
            born = new_label == components - 1
            new_label = jnp.where(born, jnp.argmin(sizes > 0), new_label).astype(new_label.dtype)
            birth = partial(split_rest, mixing, parent, level, new_path, new_label, key_birth)
            mixing = jax.lax.cond(born, birth, lambda: mixing)
        moved = Nodes(
            counts.at[new_path].add(1.0).at[0].add(1.0),
            parent,
            level,
            mixing,
            sizes.at[new_label].add(1.0),
            nodes.coefficients.at[new_label].set(
                jnp.where(sizes[new_label] > 0, nodes.coefficients[new_label], density.coefficients)
            ),
            nodes.parameters.at[new_label].set(
                jnp.where(sizes[new_label] > 0, nodes.parameters[new_label], density.parameters)
            ),
        )
        return moved, (new_path, new_label, hit, mass)

    # a fresh random order of the items, which does not depend on the paths that the visits change
    key_order, key_uniform, key_chain = jax.random.split(key, 3)
    order = jnp.argsort(jax.random.uniform(key_order, (n,)))
    uniforms = jax.random.uniform(key_uniform, (n, 3), dtype)
    items = jax.tree.map(lambda leaf: leaf[order], (paths, labels, densities))
    end, (moved, relabelled, hits, masses) = jax.lax.scan(visit, start, (*items, uniforms, jax.random.split(key_chain, n)))
    return Sweep(
        paths.at[order].set(moved.astype(paths.dtype)),
        labels.at[order].set(relabelled.astype(labels.dtype)),
        jnp.where((end.level >= 0)[:, None], end.mixing, 0.0),
        end.parameters,
        hits.sum(),
        masses.mean(),
    )

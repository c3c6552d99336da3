"""Moves of single items and their labels to other paths of a tree: the core of `BHMCGibbs`."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.linear_algebra import computed_after
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.distributions.seating import draw_index
from bnp_hier.distributions.tree_mixing import log_dirichlet_draw, proportions
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.partitions.engine import call_kernel, has_calls, key_words
from bnp_hier.utils.arrays import in_floats, pack

__all__ = ["Concentrations", "Mixture", "Sweep", "densities_of", "log_likelihood_of", "path_sweep", "path_weights"]


class Nodes(NamedTuple):
    """The tree and its mixtures while items move.

    - **counts** - number of items below each node, (M,); 0 for an unused number.
    - **parent** - parent of each node, (M,); any number at the root and where unused.
    - **level** - level of each node, (M,); −1 where unused.
    - **mixing** - proportions of the components at each node, (M, K).
    - **sizes** - number of items of each component, (K,).
    - **coefficients** - coefficients of each component's log likelihood, (K, p); see `Densities`.
    - **parameters** - parameters of each component, (K, ...).
    """

    counts: Float[Array, " m"]
    parent: Int[Array, " m"]
    level: Int[Array, " m"]
    mixing: Float[Array, "m k"]
    sizes: Float[Array, " k"]
    coefficients: Float[Array, "k p"]
    parameters: Float[Array, "k ..."]


class Densities(NamedTuple):
    """Data from which the items' densities are computed; the leading dimension of all leaves is that of the items.

    - **row** - the item's flattened sufficient statistics, (n, p), or the row itself if the family does not provide its log
      likelihood as a product of natural parameters and statistics.
    - **alone** - log prior predictive density of the item, that is, its density in an empty component (nats), (n,).
    - **coefficients** - coefficients of a component with parameters drawn given this item alone, (n, p).
    - **parameters** - these parameters, (n, ...).
    """

    row: Float[Array, "n p"]
    alone: Float[Array, " n"]
    coefficients: Float[Array, "n p"]
    parameters: Float[Array, "n ..."]


class Sweep(NamedTuple):
    """Result of a sweep.

    - **paths** - (n, depth) node numbers.
    - **labels** - (n,) components.
    - **mixing** - (M, K) proportions, drawn from their conditional at newly opened nodes; zeros at unused numbers.
    - **parameters** - (K, ...) parameters, drawn given their first item for components that were empty.
    - **hits** - number of items for which the capacity ruled out a branch or, with an infinite root, a component; with "mh",
      only branches that were proposed count.
    - **refused** - mean over items of the conditional probability that the capacity ruled out; with "mh", branches count as the
      share of proposals that were refused.
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
    """Probabilities of the next item's path given those of the others: to each leaf, or on a new branch below each inner node.

    Parameters
    ----------
    counts, parent, level
        Number of items, parent (any number at the root) and level (−1 where unused) of every node.
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


def natural_rows(component: Component, parameters: Float[Array, "k ..."]) -> Float[Array, "k p"] | None:
    """Return the flattened natural parameters; None if the family does not provide them."""
    try:
        return pack(component.natural_parameters(parameters), 1)
    except NotImplementedError:
        return None


def coefficients_of(component: Component, parameters: Float[Array, "k ..."]) -> Float[Array, "k p"]:
    """Return the flattened natural parameters, or the parameters themselves if the family does not provide them."""
    natural = natural_rows(component, parameters)
    return parameters.reshape(parameters.shape[0], -1) if natural is None else natural


def densities_of(component: Component, X: Num[Array | np.ndarray, "n d"], key: Array) -> Densities:
    """Compute everything about the items that the sweep reads and that no move changes."""
    rows = component.suff_stats(X)
    parameters = component.sample_parameters(key, rows)
    row = jnp.asarray(X) if natural_rows(component, parameters) is None else pack(rows, 1)
    coefficients = coefficients_of(component, parameters)
    alone = component.log_marginal_up_to(1)(computed_after(rows, coefficients))
    return Densities(row, alone, coefficients, parameters)


def log_likelihood_of(
    component: Component, rows: Statistics, X: Num[Array | np.ndarray, "n d"], parameters: Float[Array, "k ..."]
) -> Float[Array, "n k"]:
    """Log density of every item under every component (nats)."""
    natural = natural_rows(component, parameters)
    if natural is not None:
        return pack(rows, 1) @ natural.T
    return jax.vmap(lambda one: component.likelihood(one).log_prob(X), out_axes=1)(parameters)


class Mixture(NamedTuple):
    """State of a hierarchical mixture: the items' paths and labels, the proportions, and the component parameters.

    - **paths** - (n, depth) node numbers.
    - **labels** - (n,) components.
    - **mixing** - (M, K) proportions; any values at unused numbers.
    - **parameters** - (K, ...) parameters of the components.
    """

    paths: Int[Array, "n depth"]
    labels: Int[Array, " n"]
    mixing: Float[Array, "m k"]
    parameters: Float[Array, "k ..."]


class Concentrations(NamedTuple):
    """Concentrations of the priors of a hierarchical mixture.

    - **tree** - α of the nested Chinese restaurant process.
    - **root** - prior of the components at the root, with γ0.
    - **mixing** - γ of the proportions below it.
    """

    tree: Float[Array, ""]
    root: RootPrior
    mixing: Float[Array, ""]


def path_sweep(
    component: Component,
    densities: Densities,
    state: Mixture,
    concentrations: Concentrations,
    key: Array,
    *,
    metropolis: bool,
) -> Sweep:
    """Visit all items once in random order; draw each one's path with its label summed out, then its label.

    The parameters of a component without items are integrated out: its density is the prior predictive density, and its
    parameters are drawn given the item that chooses it. There is one candidate per node: to join a leaf, or to open a branch
    below an inner node. Its weight is that of the nested Chinese restaurant process times S_z = Σ_k β_zk f_k(x), which is exact
    for a new branch because the proportions of its nodes have the mean β_z. The proportions of new nodes are then drawn from
    Dir(γβ + e_label), level by level. "mh" proposes a path from the process and new proportions from their prior, and accepts
    them by the ratio of the likelihoods (Huang et al. 2021, Algorithm 2, whose other factors cancel).

    With an infinite root, a component that loses its last item becomes part of the remainder, the total of all other
    components. An item that chooses the remainder opens a new component, for which the remainder of every node is split by
    b ~ Beta(1, γ0) at the root and Beta(γβ_parent,new, γβ_parent,rest) elsewhere, with one added to the first parameter at the
    nodes of the item's path.

    Parameters
    ----------
    component, densities
        The component, and the items' part from `densities_of`.
    state
        The mixture.
    concentrations
        Concentrations of its priors.
    key
        Random key.
    metropolis
        Whether to propose and accept instead of drawing from the conditional.
    """
    paths, labels, mixing, parameters = state
    n, depth = paths.shape
    capacity = len(mixing)
    linear = natural_rows(component, parameters) is not None
    if has_calls() and linear:
        return _native_sweep(component, densities, state, concentrations, key, metropolis)
    tree = read_tree(paths, capacity)
    start = Nodes(
        tree.counts.astype(mixing.dtype),
        jnp.maximum(tree.parent, 0),
        tree.level,
        jnp.where((tree.level >= 0)[:, None], mixing, 0.0),
        cluster_counts(labels, mixing.shape[1]).astype(mixing.dtype),
        coefficients_of(component, parameters),
        parameters,
    )
    # a new random order of the items, which does not depend on the paths that the visits change
    key_order, key_uniform, key_chain = jax.random.split(key, 3)
    order = jnp.argsort(jax.random.uniform(key_order, (n,)))
    uniforms = jax.random.uniform(key_uniform, (n, 3), mixing.dtype)
    items = jax.tree.map(lambda leaf: leaf[order], (paths, labels, densities))
    visit = partial(_visit, component, concentrations, metropolis, linear)
    end, (moved, relabelled, hits, masses) = jax.lax.scan(visit, start, (*items, uniforms, jax.random.split(key_chain, n)))
    return Sweep(
        paths.at[order].set(moved.astype(paths.dtype)),
        labels.at[order].set(relabelled.astype(labels.dtype)),
        jnp.where((end.level >= 0)[:, None], end.mixing, 0.0),
        end.parameters,
        hits.sum(),
        masses.mean(),
    )


def _native_sweep(
    component: Component,
    densities: Densities,
    state: Mixture,
    concentrations: Concentrations,
    key: Array,
    metropolis: bool,
) -> Sweep:
    paths, labels, mixing, parameters = state
    root, flat = concentrations.root, parameters.reshape(len(parameters), -1)
    results = [*((leaf.shape, leaf.dtype) for leaf in (paths, labels, mixing, flat)), ((), int), ((), float)]
    paths, labels, mixing, flat, hits, refused = call_kernel(
        "path_sweep.SWEEP_PATHS",
        results,
        key_words(jax.random.split(key, 3)),
        in_floats(concentrations.tree, root.concentration, concentrations.mixing, jnp.finfo(mixing.dtype).tiny),
        np.array([paths.shape[1], root.infinite, metropolis]),
        densities.row,
        densities.alone,
        densities.coefficients,
        densities.parameters.reshape(len(labels), -1),
        coefficients_of(component, parameters),
        flat,
        # traced initial values are not checked, and a kernel must not leave its arrays
        jnp.clip(paths, 0, len(mixing) - 1),
        jnp.clip(labels, 0, len(parameters) - 1),
        mixing,
    )
    return Sweep(paths, labels, mixing, flat.reshape(parameters.shape), hits, refused)


def _visit(
    component: Component, concentrations: Concentrations, metropolis: bool, linear: bool, nodes: Nodes, item: Any
) -> tuple[Nodes, tuple[Array, ...]]:
    """Remove an item, draw a candidate, decide, and insert the item; also return its path, label, hit and mass.

    The item is its path and label, its entries of `Densities`, three uniform draws (for the candidate, the label and the
    acceptance), and a random key for the proportions of new nodes.
    """
    path, label, density, uniforms, key = item
    root, depth, (capacity, components), dtype = concentrations.root, len(path), nodes.mixing.shape, nodes.mixing.dtype
    key_chain, key_birth = jax.random.split(key) if root.infinite else (key, key)

    # without the item, counts and levels change, and its component may disappear
    sizes = nodes.sizes.at[label].add(-1.0)
    mixing, unmade = nodes.mixing, jnp.zeros((), dtype)
    logs = nodes.coefficients @ density.row if linear else component.likelihood(nodes.parameters).log_prob(density.row)
    logs = jnp.where(sizes > 0, logs, density.alone)  # parameters of empty components are integrated out
    likelihood = jnp.exp(logs - logs.max())
    if root.infinite:
        died = sizes[label] <= 0
        back = jnp.where(died, mixing[:, label], 0.0)
        mixing = mixing.at[:, label].add(-back).at[:, -1].add(back)
        label = jnp.where(died, components - 1, label)
        # the likelihood of a new component if the capacity has no number left for it
        unmade = jnp.where(((sizes > 0) | ~root.usable).all(), likelihood[-1], unmade)
        likelihood = likelihood.at[-1].add(-unmade)
    counts = nodes.counts.at[path].add(-1.0).at[0].add(-1.0)
    # the root remains even if the item was alone below it
    level = jnp.where((counts > 0) | (jnp.arange(capacity) == 0), nodes.level, -1)

    # nested CRP: Π n_z/(n_parent + α) down to z, times α/(n_z + α) if a branch is opened there
    prior = path_weights(counts, nodes.parent, level, concentrations.tree, depth)
    # a new branch needs a node on every level below
    refused = (level >= 0) & (level < depth) & (depth - level > (level < 0).sum())
    expected = mixing @ likelihood  # S_z = Σ_k β_zk f(x|θ_k)
    # P(via z) ∝ prior_z S_z: a new branch's proportions have the mean β_z, so that S_z is the expected density
    posterior = prior if metropolis else prior * expected
    at = draw_index(posterior if metropolis else jnp.where(refused, 0.0, posterior), uniforms[0])
    own = draw_index(mixing[at] * likelihood, uniforms[1])  # P(k) ∝ β_zk f(x|θ_k)
    # the label is drawn before the proportions of a new branch, which then have one more count of it
    pseudo_count = ((jnp.arange(components) == own) & (not metropolis)).astype(dtype)

    chain = _draw_chain(concentrations.mixing, mixing[at], pseudo_count, depth, key_chain)
    ahead = jnp.arange(1, depth + 1) - level[at] - 1  # place in the chain of each level's node; negative above it
    new_path = _path_through(nodes.parent, level, at, ahead)

    if metropolis:
        # the proposal is the prior of paths and proportions, so the ratio is S_new leaf / S_old leaf
        leaf = jnp.where(level[at] < depth, chain[depth - 1 - level[at]], mixing[at])
        accepted = (uniforms[2] * expected[path[-1]] < leaf @ likelihood) & ~refused[at]
        leaf = jnp.where(accepted, leaf, mixing[path[-1]])
        label, lost = draw_index(leaf * likelihood, uniforms[1]), unmade * leaf[-1]
        total, hit = leaf @ likelihood + lost, refused[at] | (lost > 0)
    else:
        lost = (prior * mixing[:, -1]).sum() * unmade
        total, lost = posterior.sum() + lost, jnp.where(refused, posterior, 0.0).sum() + lost
        accepted, hit = total - lost > 0, lost > 0  # false where every density underflows
        label = jnp.where(accepted, own, label)
    mass = lost / jnp.where(total > 0, total, 1.0)
    mass = jnp.maximum(refused[at].astype(dtype), mass) if metropolis else mass

    # the item at its new place, or at its old one if the candidate was not accepted
    path, opened = jnp.where(accepted, new_path, path), jnp.where(accepted & (ahead >= 0), new_path, capacity)
    parent = nodes.parent.at[path].set(jnp.concatenate([jnp.zeros(1, path.dtype), path[:-1]]))
    level = jnp.where(accepted, level, nodes.level).at[path].set(jnp.arange(1, depth + 1))
    mixing = mixing.at[opened].set(chain[jnp.maximum(ahead, 0)], mode="drop")
    if root.infinite:
        born = label == components - 1
        label = jnp.where(born, jnp.argmin(sizes > 0), label).astype(label.dtype)
        birth = partial(_split_rest, concentrations, mixing, parent, level, path, label, key_birth)
        mixing = jax.lax.cond(born, birth, lambda: mixing)
    coefficients, parameters = (  # those of the item's component are replaced if it was empty
        now.at[label].set(jnp.where(sizes[label] > 0, now[label], drawn))
        for now, drawn in ((nodes.coefficients, density.coefficients), (nodes.parameters, density.parameters))
    )
    counts = counts.at[path].add(1.0).at[0].add(1.0)
    return Nodes(counts, parent, level, mixing, sizes.at[label].add(1.0), coefficients, parameters), (path, label, hit, mass)


def _draw_chain(
    concentration: Float[Array, ""], shares: Float[Array, " k"], pseudo_count: Float[Array, " k"], depth: int, key: Array
) -> Float[Array, "depth k"]:
    """Draw the proportions of new nodes, one below the other; a branch needs all of them only below the root."""

    def draw_next(above: Array, step: Array) -> tuple[Array, Array]:
        drawn = log_dirichlet_draw(jax.random.fold_in(key, step), concentration * above + pseudo_count)
        below = proportions(drawn).astype(above.dtype)
        return below, below

    return jax.lax.scan(draw_next, shares, jnp.arange(depth))[1]


def _path_through(
    parent: Int[Array, " m"], level: Int[Array, " m"], node: Int[Array, ""], ahead: Int[Array, " depth"]
) -> Int[Array, " depth"]:
    """Return the path to a leaf or, at an inner node, to a new branch below it: the node's ancestors, then unused numbers."""
    depth = len(ahead)
    free = jnp.nonzero(level < 0, size=depth, fill_value=len(level))[0]
    ancestors = []
    for step in range(depth, 0, -1):
        ancestors.append(node)
        node = jnp.where(level[node] == step, parent[node], node)
    return jnp.where(ahead >= 0, free[jnp.maximum(ahead, 0)], jnp.stack(ancestors[::-1]))


def _split_rest(
    concentrations: Concentrations, mixing: Array, parent: Array, level: Array, path: Array, label: Array, key: Array
) -> Array:
    """Split the new component's proportions from the remainder at every node, given one item with it on the path."""
    capacity, dtype = mixing.shape[0], mixing.dtype
    own = jnp.zeros(capacity, dtype).at[path].set(1.0)
    first = jnp.stack([jnp.ones((), dtype), concentrations.root.concentration.astype(dtype)])

    def split_level(at: Array, parts: Array) -> Array:
        given = (concentrations.mixing * parts[parent]).at[:, 0].add(own)
        shares = log_dirichlet_draw(jax.random.fold_in(key, at), jnp.where((level == 0)[:, None], first, given))
        return jnp.where((level == at)[:, None], mixing[:, -1:] * jnp.exp(shares), parts)

    parts = jax.lax.fori_loop(0, len(path) + 1, split_level, jnp.ones((capacity, 2), dtype))
    return mixing.at[:, label].set(parts[:, 0]).at[:, -1].set(parts[:, 1])

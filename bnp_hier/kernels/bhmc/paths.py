"""Moves of single items and their labels to other paths of a tree: the core of `BHMCGibbs`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.components.linear_algebra import computed_after
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.distributions.tree_mixing import log_dirichlet_draw, proportions
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.native.availability import ffi_available
from bnp_hier.partitions.engine import key_words
from bnp_hier.partitions.seating import draw_index
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


def coefficients_of(component: Component, parameters: Float[Array, "k ..."]) -> Float[Array, "k p"]:
    """Return the flattened natural parameters, or the parameters themselves if the family does not provide them."""
    try:
        return pack(component.natural_parameters(parameters), 1)
    except NotImplementedError:
        return parameters.reshape(parameters.shape[0], -1)


def densities_of(component: Component, X: Num[Array | np.ndarray, "n d"], key: Array) -> Densities:
    """Compute everything about the items that the sweep reads and that no move changes."""
    rows = component.suff_stats(X)
    parameters = component.sample_parameters(key, rows)
    coefficients = coefficients_of(component, parameters)
    row = pack(rows, 1) if _is_linear(component, parameters) else jnp.asarray(X)
    alone = component.log_marginal_up_to(1)(computed_after(rows, coefficients))
    return Densities(row, alone, coefficients, parameters)


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


class _Item(NamedTuple):
    """An item before it is visited.

    - **path**, **label** - its present path and component.
    - **densities** - its entries of `Densities`.
    - **uniforms** - three uniform draws: for the candidate, the label and the acceptance.
    - **key** - random key for the proportions of a new branch.
    """

    path: Int[Array, " depth"]
    label: Int[Array, ""]
    densities: Densities
    uniforms: Float[Array, " three"]
    key: Array


class _Left(NamedTuple):
    """The state without an item, and the likelihoods of the components for it.

    - **nodes** - the nodes without the item, except that the counts and levels still include it.
    - **counts**, **level** - counts and levels of the nodes without the item; emptied nodes have level −1.
    - **label** - the item's component; with an infinite root, the last component if the item was alone in its own.
    - **likelihood** - likelihood of each component, divided by the largest one, (K,).
    - **unmade** - likelihood of a new component of an infinite root if the capacity has no number left for it.
    """

    nodes: Nodes
    counts: Float[Array, " m"]
    level: Int[Array, " m"]
    label: Int[Array, ""]
    likelihood: Float[Array, " k"]
    unmade: Float[Array, ""]


class _Candidate(NamedTuple):
    """A new place for an item: a leaf to join, or an inner node below which to open a branch.

    - **at** - the node.
    - **path** - the item's path by way of this node, with unused numbers for new nodes.
    - **ahead** - position of each level in the new branch; negative for existing nodes.
    - **chain** - proportions of the new nodes, from the top, (depth, K).
    """

    at: Int[Array, ""]
    path: Int[Array, " depth"]
    ahead: Int[Array, " depth"]
    chain: Float[Array, "depth k"]


class _Outcome(NamedTuple):
    """Whether an item moves to its candidate, its new label, and what the capacity ruled out.

    - **accepted** - whether the item moves; otherwise it stays on its path.
    - **label** - its new component.
    - **hit** - whether the capacity ruled anything out.
    - **mass** - probability of what the capacity ruled out.
    """

    accepted: Bool[Array, ""]
    label: Int[Array, ""]
    hit: Bool[Array, ""]
    mass: Float[Array, ""]


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
    capacity, components = mixing.shape
    if ffi_available() and _is_linear(component, parameters):
        return _native_sweep(component, densities, state, concentrations, key, metropolis)
    tree = read_tree(paths, capacity)
    start = Nodes(
        tree.counts.astype(mixing.dtype),
        jnp.maximum(tree.parent, 0),
        tree.level,
        jnp.where((tree.level >= 0)[:, None], mixing, 0.0),
        cluster_counts(labels, components).astype(mixing.dtype),
        coefficients_of(component, parameters),
        parameters,
    )
    visitor = _Visitor(component, concentrations, depth, metropolis, _is_linear(component, parameters))
    # a new random order of the items, which does not depend on the paths that the visits change
    key_order, key_uniform, key_chain = jax.random.split(key, 3)
    order = jnp.argsort(jax.random.uniform(key_order, (n,)))
    uniforms = jax.random.uniform(key_uniform, (n, 3), mixing.dtype)
    path, label, density = jax.tree.map(lambda leaf: leaf[order], (paths, labels, densities))
    items = _Item(path, label, density, uniforms, jax.random.split(key_chain, n))
    end, (moved, relabelled, hits, masses) = jax.lax.scan(visitor.visit, start, items)
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
    from bnp_hier.native.path_sweep import SWEEP_PATHS

    paths, labels, mixing, parameters = state
    root, dtype = concentrations.root, jnp.result_type(float)
    arguments = (
        key_words(jax.random.split(key, 3)),
        in_floats(concentrations.tree, root.concentration, concentrations.mixing, jnp.finfo(mixing.dtype).tiny),
        np.array([paths.shape[1], root.infinite, metropolis]),
        densities.row,
        densities.alone,
        densities.coefficients,
        densities.parameters.reshape(len(labels), -1),
        coefficients_of(component, parameters),
        parameters.reshape(len(parameters), -1),
        # traced initial values are not checked, and a kernel must not leave its arrays
        jnp.clip(paths, 0, len(mixing) - 1),
        jnp.clip(labels, 0, len(parameters) - 1),
        mixing,
    )
    results = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in (paths, labels, mixing, arguments[8])]
    results += [jax.ShapeDtypeStruct((), jnp.result_type(int)), jax.ShapeDtypeStruct((), dtype)]
    paths, labels, mixing, flat, hits, refused = SWEEP_PATHS.ffi_call(results, *arguments)
    return Sweep(paths, labels, mixing, flat.reshape(parameters.shape), hits, refused)


@dataclass(frozen=True)
class _Visitor:
    """The visit of one item, step by step."""

    component: Component
    concentrations: Concentrations
    depth: int
    metropolis: bool
    is_linear: bool

    def visit(self, nodes: Nodes, item: _Item) -> tuple[Nodes, tuple[Array, ...]]:
        """Remove an item, draw a candidate, decide, and insert the item; also return its path, label, hit and mass."""
        key_chain, key_birth = jax.random.split(item.key) if self.concentrations.root.infinite else (item.key, item.key)
        left = self._take_out(nodes, item)
        # nested CRP: Π n_z/(n_parent + α) down to z, times α/(n_z + α) if a branch is opened there
        prior = path_weights(left.counts, left.nodes.parent, left.level, self.concentrations.tree, self.depth)
        # a new branch needs a node on every level below
        refused = (left.level >= 0) & (left.level < self.depth) & (self.depth - left.level > (left.level < 0).sum())
        likelihood = left.nodes.mixing @ left.likelihood  # S_z = Σ_k β_zk f(x|θ_k)
        # P(via z) ∝ prior_z S_z: a new branch's proportions have the mean β_z, so that S_z is the expected density
        posterior = prior if self.metropolis else prior * likelihood
        at = draw_index(posterior if self.metropolis else jnp.where(refused, 0.0, posterior), item.uniforms[0])
        candidate = self._candidate(left, at, item.uniforms[1], key_chain)
        if self.metropolis:
            outcome = self._accept(left, item, candidate, likelihood, refused)
        else:
            outcome = self._draw(left, item, candidate, prior, posterior, refused)
        return self._put_in(nodes, left, item, candidate, outcome, key_birth)

    def _take_out(self, nodes: Nodes, item: _Item) -> _Left:
        root, label, density = self.concentrations.root, item.label, item.densities
        sizes = nodes.sizes.at[label].add(-1.0)
        nodes = nodes._replace(sizes=sizes)
        if self.is_linear:
            logs = nodes.coefficients @ density.row
        else:
            logs = self.component.likelihood(nodes.parameters).log_prob(density.row)
        logs = jnp.where(sizes > 0, logs, density.alone)  # parameters of empty components are integrated out
        if root.infinite:
            died = sizes[label] <= 0
            back = jnp.where(died, nodes.mixing[:, label], 0.0)
            nodes = nodes._replace(mixing=nodes.mixing.at[:, label].add(-back).at[:, -1].add(back))
            label = jnp.where(died, sizes.shape[0] - 1, label)
        shifted = jnp.exp(logs - logs.max())
        unmade = jnp.zeros((), nodes.mixing.dtype)
        if root.infinite:
            full = ((sizes > 0) | ~root.usable).all()
            unmade = jnp.where(full, shifted[-1], unmade)
            shifted = shifted.at[-1].add(-unmade)
        counts = nodes.counts.at[item.path].add(-1.0).at[0].add(-1.0)
        # the root remains even if the item was alone below it
        level = jnp.where((counts > 0) | (jnp.arange(counts.shape[0]) == 0), nodes.level, -1)
        return _Left(nodes, counts, level, label, shifted, unmade)

    def _candidate(self, left: _Left, at: Array, uniform: Array, key: Array) -> _Candidate:
        """Return the path by way of a node, with the proportions of the nodes that it would open."""
        nodes, level, dtype = left.nodes, left.level, left.nodes.mixing.dtype
        capacity, components = nodes.mixing.shape
        depth = self.depth
        pseudo_count = jnp.zeros(components, dtype)
        if not self.metropolis:
            # if an item opens a branch, its label is drawn before the branch's proportions
            own = draw_index(nodes.mixing[at] * left.likelihood, uniform)
            pseudo_count = (jnp.arange(components) == own).astype(dtype)

        # β_child ~ Dirichlet(γ β_parent), with one more count of the label if that is known
        def draw_next(step: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            above, chain = state
            shares = log_dirichlet_draw(
                jax.random.fold_in(key, step), self.concentrations.mixing * above + pseudo_count.astype(dtype)
            )
            drawn = proportions(shares).astype(dtype)
            return drawn, chain.at[step].set(drawn)

        # no new nodes if a leaf is joined
        empty = nodes.mixing[at], jnp.zeros((depth, components), dtype)
        _, chain = jax.lax.fori_loop(0, depth - level[at], draw_next, empty)
        # where the new path goes: the candidate's ancestors, then unused numbers
        free = jnp.nonzero(level < 0, size=depth, fill_value=capacity)[0]
        ahead = jnp.arange(1, depth + 1) - level[at] - 1
        ancestors, node = [], at
        for step in range(depth, 0, -1):
            here = level[node] == step
            ancestors.append(node)
            node = jnp.where(here, nodes.parent[node], node)
        return _Candidate(at, jnp.where(ahead >= 0, free[jnp.maximum(ahead, 0)], jnp.stack(ancestors[::-1])), ahead, chain)

    def _accept(self, left: _Left, item: _Item, candidate: _Candidate, likelihood: Array, refused: Array) -> _Outcome:
        """Accept or reject the proposal by the ratio of the likelihoods at the leaves, and draw the label."""
        nodes, at = left.nodes, candidate.at
        opens = left.level[at] < self.depth
        leaf = jnp.where(opens, candidate.chain[self.depth - 1 - left.level[at]], nodes.mixing[at])
        # the proposal is the prior of paths and proportions, so the ratio is S_new leaf / S_old leaf
        accepted = (item.uniforms[2] * likelihood[item.path[-1]] < leaf @ left.likelihood) & ~refused[at]
        leaf = jnp.where(accepted, leaf, nodes.mixing[item.path[-1]])
        unmade = left.unmade * leaf[-1]
        total = leaf @ left.likelihood + unmade
        return _Outcome(
            accepted,
            draw_index(leaf * left.likelihood, item.uniforms[1]),
            refused[at] | (unmade > 0),
            # no mass is lost where every density underflows
            jnp.maximum(refused[at].astype(unmade.dtype), unmade / jnp.where(total > 0, total, 1.0)),
        )

    def _draw(
        self, left: _Left, item: _Item, candidate: _Candidate, prior: Array, posterior: Array, refused: Array
    ) -> _Outcome:
        """Draw the label at the candidate, and compute the probability of what the capacity rules out."""
        mixing = left.nodes.mixing
        unmade = (prior * mixing[:, -1]).sum() * left.unmade
        total, lost = posterior.sum() + unmade, jnp.where(refused, posterior, 0.0).sum() + unmade
        accepted = total - lost > 0  # false where every density underflows
        drawn = draw_index(mixing[candidate.at] * left.likelihood, item.uniforms[1])  # P(k) ∝ β_zk f(x|θ_k)
        return _Outcome(accepted, jnp.where(accepted, drawn, left.label), lost > 0, lost / jnp.where(total > 0, total, 1.0))

    def _put_in(
        self, before: Nodes, left: _Left, item: _Item, candidate: _Candidate, outcome: _Outcome, key: Array
    ) -> tuple[Nodes, tuple[Array, ...]]:
        """Insert the item at its new place, or at its old one if the candidate was not accepted."""
        nodes, capacity = left.nodes, left.counts.shape[0]
        path = jnp.where(outcome.accepted, candidate.path, item.path)
        ahead = jnp.where(outcome.accepted, candidate.ahead, -1)
        level = jnp.where(outcome.accepted, left.level, before.level)
        opened = jnp.where(ahead >= 0, path, capacity)  # beyond the end: dropped
        parent = nodes.parent.at[path].set(jnp.concatenate([jnp.zeros(1, path.dtype), path[:-1]]))
        level = level.at[path].set(jnp.arange(1, self.depth + 1))
        mixing = nodes.mixing.at[opened].set(candidate.chain[jnp.maximum(ahead, 0)], mode="drop")
        label, sizes = outcome.label, nodes.sizes
        if self.concentrations.root.infinite:
            born = label == sizes.shape[0] - 1
            label = jnp.where(born, jnp.argmin(sizes > 0), label).astype(label.dtype)
            birth = partial(self._split_rest, mixing, parent, level, path, label, key)
            mixing = jax.lax.cond(born, birth, lambda: mixing)

        def of_new(now: Array, drawn: Array) -> Array:
            """Update values of the components: those of the item's component are replaced if it was empty."""
            return now.at[label].set(jnp.where(sizes[label] > 0, now[label], drawn))

        moved = Nodes(
            left.counts.at[path].add(1.0).at[0].add(1.0),
            parent,
            level,
            mixing,
            sizes.at[label].add(1.0),
            of_new(nodes.coefficients, item.densities.coefficients),
            of_new(nodes.parameters, item.densities.parameters),
        )
        return moved, (path, label, outcome.hit, outcome.mass)

    def _split_rest(self, mixing: Array, parent: Array, level: Array, path: Array, label: Array, key: Array) -> Array:
        """Split the new component's proportions from the remainder at every node, given one item with it on the path."""
        capacity, dtype = mixing.shape[0], mixing.dtype
        own = jnp.zeros(capacity, dtype).at[path].set(1.0)
        first = jnp.stack([jnp.ones((), dtype), self.concentrations.root.concentration.astype(dtype)])

        def split_level(at: Array, parts: Array) -> Array:
            given = (self.concentrations.mixing * parts[parent]).at[:, 0].add(own)
            shares = log_dirichlet_draw(jax.random.fold_in(key, at), jnp.where((level == 0)[:, None], first, given))
            return jnp.where((level == at)[:, None], mixing[:, -1:] * jnp.exp(shares), parts)

        parts = jax.lax.fori_loop(0, self.depth + 1, split_level, jnp.ones((capacity, 2), dtype))
        return mixing.at[:, label].set(parts[:, 0]).at[:, -1].set(parts[:, 1])

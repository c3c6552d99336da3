"""Moves of single items and their labels to other paths of a tree; the native form of `kernels.bhmc.paths.path_sweep`.

Matrices with a value per node or per component have these as columns, so that a product with a vector uses whole registers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.arithmetic import LANES, everywhere, get, load, put
from bnp_hier.native.bridge import Kernel
from bnp_hier.native.dirichlet import draw_proportions
from bnp_hier.native.drawing import TINY, draw_index
from bnp_hier.native.memory import compiled, copy, integers, numbers, separate
from bnp_hier.native.sorting import sort_by
from bnp_hier.native.threefry import child, key_at, uniform

__all__ = ["SWEEP_PATHS"]

BLOCK = 4 * LANES
"""Number of columns of a product that are computed together."""

TOTAL, LOST, UNMADE = range(3)
"""Places in `Weights.mass`."""


class Sizes(NamedTuple):
    """Numbers of items, levels below the root, node numbers and components; lengths of rows and of parameters.

    - **nodes_padded**, **components_padded** - numbers of columns, multiples of `BLOCK`.
    """

    items: Any
    depth: Any
    nodes: Any
    components: Any
    row: Any
    parameters: Any
    nodes_padded: Any
    components_padded: Any


class Setting(NamedTuple):
    """Concentrations α, γ0 and γ, the smallest proportion, and whether the root is infinite and paths are proposed."""

    tree: Any
    root: Any
    mixing: Any
    smallest: Any
    infinite: Any
    metropolis: Any


class Nodes(NamedTuple):
    """The tree and its mixtures while items move; see `kernels.bhmc.paths.Nodes`.

    - **mixing** - (K, M) proportions.
    - **coefficients** - (p, K) coefficients of the components.
    - **listed** - (depth + 1, M) the nodes of every level, in no particular order.
    - **place** - position of every node in this list.
    - **number** - number of nodes on every level.
    - **free** - number of unused node numbers, and an upper limit of the used ones.
    """

    counts: Any
    parent: Any
    level: Any
    mixing: Any
    sizes: Any
    coefficients: Any
    parameters: Any
    listed: Any
    place: Any
    number: Any
    free: Any


class Weights(NamedTuple):
    """What is computed for one item.

    - **likelihood** - likelihood of every component, divided by the largest one, (K,).
    - **expected** - expected likelihood at every node, (M,).
    - **prior** - prior probability of a path by way of every node, (M,).
    - **below** - factor of the probabilities of its children, (M,).
    - **drawn** - weights to draw from.
    - **share** - proportions by component.
    - **chain** - proportions of new nodes, (depth, K).
    - **mass** - total weight of the candidates, that of what the capacity rules out, and likelihood of a component for which no
      number is left.
    """

    likelihood: Any
    expected: Any
    prior: Any
    below: Any
    drawn: Any
    share: Any
    chain: Any
    mass: Any


class Item(NamedTuple):
    """An item before it is visited.

    - **row**, **alone**, **coefficients**, **parameters** - see `kernels.bhmc.paths.Densities`.
    - **uniforms** - three uniform draws: for the candidate, the label and the acceptance.
    - **key_branch**, **key_birth** - random keys for the proportions of a new branch and of a new component.
    """

    row: Any
    alone: Any
    coefficients: Any
    parameters: Any
    uniforms: Any
    key_branch: Any
    key_birth: Any


@compiled
def _padded(size):
    return (size + BLOCK - 1) // BLOCK * BLOCK


@separate
def _product(vector, length, matrix, width, columns, out):
    """Multiply a vector with a matrix whose rows have `width` columns, of which the first are needed; all are addresses."""
    for first in range(0, columns, BLOCK):
        one = two = three = four = everywhere(0.0)
        for t in range(length):
            factor, place = everywhere(load(vector, t)), t * width + first
            one = one + factor * get(matrix, place)
            two = two + factor * get(matrix, place + LANES)
            three = three + factor * get(matrix, place + 2 * LANES)
            four = four + factor * get(matrix, place + 3 * LANES)
        put(out, first, one)
        put(out, first + LANES, two)
        put(out, first + 2 * LANES, three)
        put(out, first + 3 * LANES, four)


@compiled
def _enlist(nodes, node, level):
    nodes.level[node], nodes.place[node] = level, nodes.number[level]
    nodes.listed[level, nodes.number[level]] = node
    nodes.number[level] += 1
    nodes.free[0] -= 1
    nodes.free[1] = max(nodes.free[1], node + 1)


@compiled
def _strike(nodes, node):
    level, place = nodes.level[node], nodes.place[node]
    nodes.number[level] -= 1
    last = nodes.listed[level, nodes.number[level]]
    nodes.listed[level, place], nodes.place[last] = last, place
    nodes.level[node] = -1
    nodes.free[0] += 1


@compiled
def _build(sizes, paths, labels, mixing, coefficients, parameters):
    m, depth, wide = sizes.nodes, sizes.depth, sizes.nodes_padded
    listed = np.empty((depth + 1, m), np.int64)
    nodes = Nodes(
        np.zeros(m),
        np.zeros(m, np.int64),
        np.empty(m, np.int64),
        np.zeros(sizes.components * wide),
        np.zeros(sizes.components, np.int64),
        np.zeros(sizes.row * sizes.components_padded),
        parameters,
        listed,
        np.zeros(m, np.int64),
        np.zeros(depth + 1, np.int64),
        np.zeros(2, np.int64),
    )
    for z in range(m):
        nodes.level[z] = -1
    nodes.free[0] = m
    _enlist(nodes, 0, 0)
    for i in range(sizes.items):
        above = 0
        for at in range(depth):
            node = paths[i * depth + at]
            if nodes.level[node] < 0:
                _enlist(nodes, node, at + 1)
            nodes.parent[node], above = above, node
            nodes.counts[node] += 1
        nodes.sizes[labels[i]] += 1
    nodes.counts[0] = sizes.items
    for z in range(m):
        for k in range(sizes.components):
            nodes.mixing[k * wide + z] = mixing[z * sizes.components + k] if nodes.level[z] >= 0 else 0.0
    for k in range(sizes.components):
        for t in range(sizes.row):
            nodes.coefficients[t * sizes.components_padded + k] = coefficients[k * sizes.row + t]
    return nodes


@compiled
def _weights(sizes):
    m, k = sizes.nodes, sizes.components
    return Weights(
        np.zeros(sizes.components_padded),
        np.zeros(sizes.nodes_padded),
        np.zeros(m),
        np.zeros(m),
        np.zeros(max(m, k)),
        np.zeros(k),
        np.zeros((sizes.depth, k)),
        np.zeros(3),
    )


@separate
def _likelihoods(sizes, setting, nodes, weights, item):
    """Compute the likelihood of every component without the item."""
    k, likelihood, held = sizes.components, weights.likelihood, nodes.sizes
    coefficients = nodes.coefficients.ctypes.data
    _product(item.row.ctypes.data, sizes.row, coefficients, sizes.components_padded, k, likelihood.ctypes.data)
    highest, full = -np.inf, True
    for c in range(k):
        if held[c] == 0:
            likelihood[c] = item.alone  # parameters of empty components are integrated out
            full = full and c == k - 1
        highest = max(highest, likelihood[c])
    for c in range(k):
        likelihood[c] = math.exp(likelihood[c] - highest)
    weights.mass[UNMADE] = 0.0
    if setting.infinite and full:
        weights.mass[UNMADE], likelihood[k - 1] = likelihood[k - 1], 0.0


@separate
def _path_weights(sizes, setting, nodes, weights):
    """Probabilities of a path by way of every node; see `kernels.bhmc.paths.path_weights`."""
    alpha, depth, number, listed = setting.tree, sizes.depth, nodes.number, nodes.listed
    counts, parent, prior, below = nodes.counts, nodes.parent, weights.prior, weights.below
    below[0] = 1.0 / (counts[0] + alpha)
    prior[0] = below[0] * alpha
    for level in range(1, depth + 1):
        for place in range(number[level]):
            node = listed[level, place]
            prior[node] = below[parent[node]] * counts[node]
            if level < depth:
                below[node] = prior[node] / (counts[node] + alpha)
                prior[node] = below[node] * alpha


@separate
def _weigh_nodes(sizes, setting, nodes, weights):
    """Weigh the candidates, and sum the weights."""
    depth, free, level, rest = sizes.depth, nodes.free[0], nodes.level, (sizes.components - 1) * sizes.nodes_padded
    prior, expected, drawn, mixing = weights.prior, weights.expected, weights.drawn, nodes.mixing
    total, lost, unmade = 0.0, 0.0, weights.mass[UNMADE]
    for z in range(nodes.free[1]):
        drawn[z] = 0.0
        if level[z] < 0:
            continue
        weight = prior[z] if setting.metropolis else prior[z] * expected[z]
        mass = prior[z] * mixing[rest + z] * unmade
        refused = level[z] < depth and depth - level[z] > free
        total += weight + mass
        lost += weight + mass if refused else mass
        drawn[z] = 0.0 if refused and not setting.metropolis else weight
    weights.mass[TOTAL], weights.mass[LOST] = total, lost


@separate
def _weigh_components(sizes, weights):
    """Weigh the components at the node whose proportions are in `share`; return the total."""
    share, likelihood, drawn, total = weights.share, weights.likelihood, weights.drawn, 0.0
    for c in range(sizes.components):
        drawn[c] = share[c] * likelihood[c]
        total += drawn[c]
    return total


@separate
def _shares_at(sizes, nodes, node, share):
    mixing = nodes.mixing
    for k in range(sizes.components):
        share[k] = mixing[k * sizes.nodes_padded + node]


@separate
def _open_branch(sizes, setting, nodes, weights, at, own, key):
    """Draw the proportions of the nodes between an inner node and a leaf; `own` is the component of the item, −1 if unknown."""
    k, base, share = sizes.components, np.empty(sizes.components), weights.share
    for step in range(sizes.depth - nodes.level[at]):
        for c in range(k):
            base[c] = setting.mixing * share[c]
        if own >= 0:
            base[own] += 1.0
        share = weights.chain[step]
        draw_proportions(child(key, step), 0, base, setting.smallest, share)


@compiled
def _candidate_path(sizes, nodes, at, path):
    """Path by way of a node: its ancestors, then the smallest unused numbers."""
    level, node = nodes.level[at], at
    for step in range(level, 0, -1):
        path[step - 1] = node
        node = nodes.parent[node]
    node = 0
    for step in range(level, sizes.depth):
        node += 1
        while nodes.level[node] >= 0:
            node += 1
        path[step] = node


@separate
def _split_rest(sizes, setting, nodes, path, label, key):
    """Split the proportions of a new component from the remainder at every node, given one item with it on the path."""
    rest = (sizes.components - 1) * sizes.nodes_padded
    base, pair, mixing, own = np.empty(2), np.empty(2), nodes.mixing, label * sizes.nodes_padded
    for level in range(sizes.depth + 1):
        key_level = child(key, level)
        for place in range(nodes.number[level]):
            node = nodes.listed[level, place]
            if level == 0:
                base[0], base[1] = 1.0, setting.root
            else:
                above = nodes.parent[node]
                base[0] = setting.mixing * mixing[own + above] + (1.0 if path[level - 1] == node else 0.0)
                base[1] = setting.mixing * mixing[rest + above]
            draw_proportions(key_level, 2 * node, base, TINY, pair)
            total = mixing[rest + node]
            mixing[own + node], mixing[rest + node] = total * pair[0], total * pair[1]


@separate
def _take_out(sizes, setting, nodes, path, label):
    """Remove an item; return its component, or the last one if a component of an infinite root has lost its last item."""
    last, counts = sizes.components - 1, nodes.counts
    nodes.sizes[label] -= 1
    for at in range(sizes.depth):
        counts[path[at]] -= 1
        if counts[path[at]] == 0:
            _strike(nodes, path[at])
    counts[0] -= 1
    if not setting.infinite or nodes.sizes[label] > 0:
        return label
    mixing, wide = nodes.mixing, sizes.nodes_padded
    for z in range(nodes.free[1]):
        mixing[last * wide + z] += mixing[label * wide + z]
        mixing[label * wide + z] = 0.0
    return last


@separate
def _propose(sizes, setting, nodes, weights, item, at, leaf):
    """Accept or reject a proposed path, and draw the label; see `_draw`.

    `leaf` is the present leaf of the item.
    """
    branch = sizes.depth - nodes.level[at]
    refused = branch > nodes.free[0]
    _open_branch(sizes, setting, nodes, weights, at, -1, item.key_branch)
    if branch > 0:
        copy(weights.chain[branch - 1], weights.share)
    total = _weigh_components(sizes, weights)
    accepted = item.uniforms[2] * weights.expected[leaf] < total and not refused
    if not accepted:
        _shares_at(sizes, nodes, leaf, weights.share)
        total = _weigh_components(sizes, weights)
    unmade = weights.mass[UNMADE] * weights.share[sizes.components - 1]
    total += unmade
    lost = max(1.0 if refused else 0.0, unmade / total if total > 0 else unmade)
    return accepted, draw_index(weights.drawn, sizes.components, item.uniforms[1]), refused or unmade > 0, lost


@separate
def _draw(sizes, setting, nodes, weights, item, at, label):
    """Draw the label at the candidate, then the proportions of a new branch.

    Returns whether the item moves, its label, whether the capacity ruled anything out, and with which probability.
    """
    _weigh_components(sizes, weights)
    total, lost = weights.mass[TOTAL], weights.mass[LOST]
    accepted = total - lost > 0  # false where every density underflows
    if accepted:
        label = draw_index(weights.drawn, sizes.components, item.uniforms[1])
        _open_branch(sizes, setting, nodes, weights, at, label, item.key_branch)
    return accepted, label, lost > 0, lost / (total if total > 0 else 1.0)


@separate
def _put_on_path(sizes, nodes, weights, path, opened):
    """Insert an item on a path; the nodes from level `opened` on are new and get the proportions in `chain`."""
    k, wide, mixing, above = sizes.components, sizes.nodes_padded, nodes.mixing, 0
    nodes.counts[0] += 1
    for step in range(sizes.depth):
        node = path[step]
        if nodes.level[node] < 0:
            _enlist(nodes, node, step + 1)
            nodes.parent[node] = above
        if step >= opened:
            share = weights.chain[step - opened]
            for c in range(k):
                mixing[c * wide + node] = share[c]
        nodes.counts[node] += 1
        above = node


@separate
def _put_in_component(sizes, setting, nodes, item, path, label):
    """Insert an item in a component, a new one if the label is the last of an infinite root; return its number."""
    if setting.infinite and label == sizes.components - 1:
        label = 0
        while nodes.sizes[label] > 0:
            label += 1
        _split_rest(sizes, setting, nodes, path, label, item.key_birth)
    if nodes.sizes[label] == 0:
        for t in range(sizes.row):
            nodes.coefficients[t * sizes.components_padded + label] = item.coefficients[t]
        copy(item.parameters, nodes.parameters[label * sizes.parameters :])
    nodes.sizes[label] += 1
    return label


@separate
def _visit(sizes, setting, nodes, weights, item, path, label):
    """Move one item; return its new component, whether the capacity ruled anything out, and with which probability."""
    label = _take_out(sizes, setting, nodes, path, label)
    top = nodes.free[1]
    _likelihoods(sizes, setting, nodes, weights, item)
    mixing, likelihood = nodes.mixing.ctypes.data, weights.likelihood.ctypes.data
    _product(likelihood, sizes.components, mixing, sizes.nodes_padded, top, weights.expected.ctypes.data)
    _path_weights(sizes, setting, nodes, weights)
    _weigh_nodes(sizes, setting, nodes, weights)
    at = draw_index(weights.drawn, top, item.uniforms[0])
    _shares_at(sizes, nodes, at, weights.share)
    if setting.metropolis:
        accepted, label, hit, lost = _propose(sizes, setting, nodes, weights, item, at, path[sizes.depth - 1])
    else:
        accepted, label, hit, lost = _draw(sizes, setting, nodes, weights, item, at, label)
    opened = sizes.depth
    if accepted:
        _candidate_path(sizes, nodes, at, path)
        opened = nodes.level[at]
    _put_on_path(sizes, nodes, weights, path, opened)
    return _put_in_component(sizes, setting, nodes, item, path, label), hit, lost


@compiled
def _item(table, words, t, i):
    """The item with an index, the t-th to be visited."""
    alone, draws, key, key_draws = numbers(table, 4), np.empty(3), child(key_at(words, 2), t), key_at(words, 1)
    row, own = len(numbers(table, 3)) // len(alone), len(numbers(table, 6)) // len(alone)
    for place in range(3):
        draws[place] = uniform(key_draws, 3 * t + place, 0.0)
    return Item(
        numbers(table, 3)[i * row : (i + 1) * row],
        alone[i],
        numbers(table, 5)[i * row : (i + 1) * row],
        numbers(table, 6)[i * own : (i + 1) * own],
        draws,
        child(key, 0) if integers(table, 2)[1] == 1 else key,
        child(key, 1),
    )


def sweep_paths(table):
    """Visit all items once.

    Arguments: keys of the order, of the draws and of new branches; α, γ0, γ and the smallest proportion; depth, whether the
    root is infinite and paths are proposed; the items' rows, densities in an empty component, and coefficients and parameters
    drawn given each alone; the components' coefficients and parameters; paths, labels, proportions. Results: paths, labels,
    proportions, parameters, number of hits, mean of what the capacity ruled out.
    """
    words, reals, flags, coefficients = integers(table, 0), numbers(table, 1), integers(table, 2), numbers(table, 7)
    paths, labels, mixing, parameters = integers(table, 12), integers(table, 13), numbers(table, 14), numbers(table, 15)
    copy(numbers(table, 8), parameters)
    copy(integers(table, 9), paths)
    copy(integers(table, 10), labels)
    n, depth = len(labels), flags[0]
    row = len(numbers(table, 3)) // n
    k = len(coefficients) // row
    m, q = len(mixing) // k, len(parameters) // k
    sizes = Sizes(n, depth, m, k, row, q, _padded(m), _padded(k))
    setting = Setting(reals[0], reals[1], reals[2], reals[3], flags[1] == 1, flags[2] == 1)
    nodes, weights = _build(sizes, paths, labels, numbers(table, 11), coefficients, parameters), _weights(sizes)
    order, random = np.empty(n, np.int64), np.empty(n)
    for i in range(n):
        order[i], random[i] = i, uniform(key_at(words, 0), i, 0.0)
    sort_by(random, order)
    hits, refused = 0, 0.0
    for t in range(n):
        i = order[t]
        item, path = _item(table, words, t, i), paths[i * depth : (i + 1) * depth]
        labels[i], hit, lost = _visit(sizes, setting, nodes, weights, item, path, labels[i])
        hits += hit
        refused += lost
    for z in range(m):
        for c in range(k):
            mixing[z * k + c] = nodes.mixing[c * sizes.nodes_padded + z] if nodes.level[z] >= 0 else 0.0
    integers(table, 16)[0], numbers(table, 17)[0] = hits, refused / n


SWEEP_PATHS = Kernel(sweep_paths, 1, 1, 1, 2, 1, 2, 2, 2, 2, 2, 1, 2, 2, 1, 2, 2, 0, 0)

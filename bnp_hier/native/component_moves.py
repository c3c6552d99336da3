"""Splits and merges of components on a tree; the native form of `kernels.bhmc.component_moves`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.bridge import Kernel
from bnp_hier.native.drawing import draw_index
from bnp_hier.native.memory import compiled, copy, hold, integers, numbers, separate
from bnp_hier.native.mixtures import log_marginals, mixture_from, predict, refresh, update
from bnp_hier.native.sorting import sort_by
from bnp_hier.native.threefry import child, key_at, uniform
from bnp_hier.native.tree_mixing import Prior, draw_tree

__all__ = ["DIVIDE_COMPONENTS"]

TRIES, ANEW = 16, 0.5
"""As in `kernels.bhmc.component_moves`."""


class Setting(NamedTuple):
    """Concentrations γ0 and γ, the smallest proportion, and the number K of components.

    - **infinite** - whether the root is infinite.
    - **at_once** - number of nodes whose proportions are drawn from the same key.
    """

    root: Any
    mixing: Any
    smallest: Any
    components: Any
    infinite: Any


class Tree(NamedTuple):
    """Paths of the items, number of levels below the root, and level (−1 where unused) and parent of every node."""

    paths: Any
    depth: Any
    level: Any
    parent: Any


class Problem(NamedTuple):
    """What no attempt changes: the rows with their component, the setting, the tree, and the logs of 0, ..., n."""

    mixture: Any
    setting: Any
    tree: Any
    log_counts: Any


class Tables(NamedTuple):
    """How two sides share the nodes; see `kernels.bhmc.component_moves.Tables`.

    - **mass** - total share of the two sides at each node and, with an infinite root, of all other components.
    - **opening** - c_z of each node.
    """

    mass: Any
    opening: Any
    log_opening: Any
    log_shares: Any


class Allocation(NamedTuple):
    """Items on two sides.

    - **given** - side of every item, −1 if it is to be drawn.
    - **seated** - whether the present tables are drawn, instead of proposed ones.
    - **sides** - side of every item that has been allocated.
    - **customers** - (M, 2) customers at every node.
    - **logs** - (levels, 2) log probabilities of the sides on the path of an item.
    """

    given: Any
    seated: Any
    sides: Any
    customers: Any
    logs: Any


@compiled
def _log_add(a, b):
    """log(eᵃ + eᵇ)."""
    highest = max(a, b)
    return highest if highest == -np.inf else highest + math.log1p(math.exp(min(a, b) - highest))


@compiled
def _read_tree(paths, depth, m):
    level, parent = np.full(m, -1), np.zeros(m, np.int64)
    level[0] = 0
    for place in range(len(paths)):
        at = place % depth
        level[paths[place]] = at + 1
        parent[paths[place]] = paths[place - 1] if at > 0 else 0
    return Tree(paths, depth, level, parent)


@separate
def _tables(problem, mixing, one, two):
    setting, tree = problem.setting, problem.tree
    m, k = len(tree.level), setting.components
    mass, opening, log_opening, log_shares = np.zeros(m), np.empty(m), np.empty(m), np.empty(2 * m)
    for z in range(m):
        mass[z] = mixing[z * k + one] + mixing[z * k + two]
        if setting.infinite:
            mass[z] += mixing[z * k + k - 1]
    for z in range(m):
        above, smallest = tree.parent[z], setting.smallest
        opening[z] = setting.mixing * mass[above]
        log_opening[z] = math.log(max(opening[z], smallest))
        log_shares[2 * z] = math.log(max(setting.mixing * mixing[above * k + one], smallest))
        log_shares[2 * z + 1] = math.log(max(setting.mixing * mixing[above * k + two], smallest))
    return Tables(mass, opening, log_opening, log_shares)


@separate
def _log_weights(problem, tables, allocation, item):
    """Compute the log probabilities of the two sides at every node of an item's path, from the root down."""
    setting, log_counts, customers, logs = problem.setting, problem.log_counts, allocation.customers, allocation.logs
    depth, paths = problem.tree.depth, problem.tree.paths
    both = customers[0] + customers[1]
    for side in range(2):
        here = customers[side]
        if setting.infinite:
            logs[side] = math.log((here if here > 0 else setting.root) / (both + setting.root))
        else:
            share = setting.root / setting.components
            logs[side] = math.log((share + here) / (2.0 * share + both))
    for at in range(1, depth + 1):
        node = paths[item * depth + at - 1]
        log_c, one, two = tables.log_opening[node], customers[2 * node], customers[2 * node + 1]
        norm = _log_add(log_counts[one + two], log_c)
        logs[2 * at] = _log_add(log_counts[one], log_c + logs[2 * at - 2]) - norm
        logs[2 * at + 1] = _log_add(log_counts[two], log_c + logs[2 * at - 1]) - norm


@separate
def _seat(problem, tables, allocation, item, side, key):
    """Make an item a customer at its leaf, and at every node above as far as it opens tables."""
    depth, customers, logs = problem.tree.depth, allocation.customers, allocation.logs
    for at in range(depth, 0, -1):
        node = problem.tree.paths[item * depth + at - 1]
        here = customers[2 * node + side]
        customers[2 * node + side] += 1
        if here > 0:
            if allocation.seated:
                opening = tables.log_shares[2 * node + side]
            else:
                opening = tables.log_opening[node] + logs[2 * at - 2 + side]
            log_opens = opening - _log_add(problem.log_counts[here], opening)
            if not math.log1p(-uniform(key, item * (depth + 1) + at, 0.0)) < log_opens:
                return
    customers[side] += 1


@separate
def _allocate(problem, tables, order, allocation, key):
    """Put items on two sides; see `kernels.bhmc.component_moves.allocate`.

    Returns the log density of sides, rows and tables, minus the log probability of drawing these tables; and the log
    probability of drawing these sides.
    """
    mixture, depth, logs = problem.mixture, problem.tree.depth, allocation.logs
    row, cache = mixture.row, mixture.cache
    totals, caches, found = np.zeros(2 * row), np.empty(2 * cache), np.empty(2)
    for side in range(2):
        refresh(mixture, totals.ctypes.data, caches.ctypes.data + 8 * side * cache)
    log_joint = log_probability = 0.0
    for t in range(len(order)):
        item = order[t]
        at = mixture.rows.ctypes.data + 8 * item * row
        _log_weights(problem, tables, allocation, item)
        found[0] = found[1] = 0.0
        predict(mixture, caches.ctypes.data, 2, at, found.ctypes.data)
        one, two = logs[2 * depth] + found[0], logs[2 * depth + 1] + found[1]
        norm, side = _log_add(one, two), allocation.given[item]
        if side < 0:
            side = 1 if math.log1p(-uniform(key, item * (depth + 1), 0.0)) < two - norm else 0
        allocation.sides[item] = side
        _seat(problem, tables, allocation, item, side, key)
        update(mixture, caches.ctypes.data + 8 * side * cache, at, 1.0)
        for place in range(row):
            totals[side * row + place] += mixture.rows[item * row + place]
        log_joint += logs[2 * depth + side]
        if t >= 2:  # the first item of each side is given
            log_probability += (two if side == 1 else one) - norm
    log_marginals(mixture, totals, 2, found)
    log_joint += found[0] + found[1]
    hold(totals)
    hold(caches)
    hold(found)
    return log_joint, log_probability


@separate
def _members(labels, one, two, first, other, key):
    """Items of two components in random order, after the two given ones."""
    n, size = len(labels), 0
    order, ranks = np.empty(n, np.int64), np.empty(n)
    for i in range(n):
        if labels[i] == one or labels[i] == two:
            ranks[i], order[size] = uniform(key, i, 0.0), i
            size += 1
    ranks[first], ranks[other] = -2.0, -1.0
    sort_by(ranks, order[:size])
    return order[:size]


@separate
def _share_anew(problem, tables, customers, one, two, key, mixing):
    """Draw how two components, and with an infinite root those without items, share their total at every node."""
    setting, tree = problem.setting, problem.tree
    m, k, width = len(tree.level), setting.components, 3 if setting.infinite else 2
    counts, shared, shares = np.zeros(m * width), np.empty(m * width), np.empty(width)
    for z in range(m):
        for side in range(2):
            counts[z * width + side] = customers[2 * z + side]
    for side in range(2):
        shares[side] = 0.0 if setting.infinite else setting.root / k
    if setting.infinite:
        shares[2] = setting.root
    prior = Prior(shares, tables.opening, setting.smallest)
    draw_tree(tree.level, tree.parent, counts, prior, key, shared)
    for z in range(m):
        for side in range(width):
            column = one if side == 0 else two if side == 1 else k - 1
            share = tables.mass[z] * shared[z * width + side]
            mixing[z * k + column] = 0.0 if share < setting.smallest else share


@compiled
def _another(first, n, draw):
    return (first + 1 + min(int(draw * (n - 1)), n - 2)) % n


@separate
def _similar(mixture, first, n, key):
    """Of some random items, the one with the highest density given an item, relative to its density alone."""
    row, items = mixture.row, np.empty(TRIES, np.int64)
    alone, together = np.empty(TRIES * row), np.empty(TRIES * row)
    log_alone, log_together = np.empty(TRIES), np.empty(TRIES)
    for t in range(TRIES):
        items[t] = _another(first, n, uniform(key, 5 + t, 0.0))
        for place in range(row):
            alone[t * row + place] = mixture.rows[items[t] * row + place]
            together[t * row + place] = alone[t * row + place] + mixture.rows[first * row + place]
    log_marginals(mixture, alone, TRIES, log_alone)
    log_marginals(mixture, together, TRIES, log_together)
    best = 0
    for t in range(1, TRIES):
        if log_together[t] - log_alone[t] > log_together[best] - log_alone[best]:
            best = t
    hold(alone)
    hold(together)
    return items[best]


@separate
def _choose(problem, labels, key):
    """Draw two items; return them, the component of the second or, for a split, an empty one, and how many are empty.

    The empty one is random or, with an infinite root, the first. The number is that in the merged state.
    """
    setting, n = problem.setting, len(labels)
    k, first = setting.components, min(int(uniform(key, 0, 0.0) * n), n - 1)
    if uniform(key, 4, 0.0) < 0.5:
        other = _similar(problem.mixture, first, n, key)
    else:
        other = _another(first, n, uniform(key, 1, 0.0))
    two, empty, number = labels[other], np.ones(k), 0
    for i in range(n):
        empty[labels[i]] = 0.0
    if setting.infinite:
        empty[k - 1] = 0.0  # the last component represents all others
    for c in range(k):
        number += empty[c] > 0
    if labels[first] == two:
        return first, other, draw_index(empty, k, 0.0 if setting.infinite else uniform(key, 3, 0.0)), number
    return first, other, two, number + 1


@compiled
def _allocations(problem, labels, order, two, divides):
    """The present allocation of the items in an order, and the proposal: to be drawn but for two items, or all on one side."""
    n, m, logs = len(labels), len(problem.tree.level), np.empty(2 * problem.tree.depth + 2)
    present, proposed = np.empty(n, np.int64), np.empty(n, np.int64)
    for t in range(len(order)):
        item = order[t]
        present[item] = 1 if labels[item] == two else 0
        proposed[item] = (t if t < 2 else -1) if divides else 0
    old = Allocation(present, True, np.empty(n, np.int64), np.zeros(2 * m, np.int64), logs)
    return old, Allocation(proposed, False, np.empty(n, np.int64), np.zeros(2 * m, np.int64), logs)


@separate
def _attempt(problem, labels, mixing, key):
    """Attempt a split, merge or new division; return whether labels changed, and whether a split found no empty component."""
    infinite, keys, key_choice = problem.setting.infinite, child(key, 3), child(key, 1)
    first, other, two, choices = _choose(problem, labels, key_choice)
    one, splits = labels[first], labels[first] == labels[other]
    refused = splits and choices == 0
    anew = not splits and uniform(key_choice, 5 + TRIES, 0.0) < ANEW
    if len(labels) < 2 or refused:
        return False, refused
    order, tables = _members(labels, one, two, first, other, child(key, 2)), _tables(problem, mixing, one, two)
    old, new = _allocations(problem, labels, order, two, splits or anew)
    log_old, replayed = _allocate(problem, tables, order, old, child(keys, 0))
    log_new, drawn = _allocate(problem, tables, order, new, child(keys, 1))
    log_choices = math.log1p(-ANEW) + (0.0 if infinite else math.log(choices))
    log_ratio = log_new - log_old
    if anew:
        log_ratio += replayed - drawn
    else:
        log_ratio += log_choices - drawn if splits else replayed - log_choices
    accepted = math.log1p(-uniform(key_choice, 2, 0.0)) < log_ratio
    sides, customers = (new.sides, new.customers) if accepted else (old.sides, old.customers)
    changed = False
    for item in order:
        label = two if sides[item] == 1 else one
        changed = changed or label != labels[item]
        labels[item] = label
    _share_anew(problem, tables, customers, one, two, child(key, 4), mixing)
    return changed, False


def divide_components(table):
    """Attempt to split or merge components a number of times.

    Arguments: component, rows, key, γ0 with γ and the smallest proportion, numbers of attempts and of components with whether
    the root is infinite, paths, labels, proportions. Results: labels, proportions, number of attempts that changed labels,
    number of splits that found no empty component.
    """
    reals, counts, paths = numbers(table, 5), integers(table, 6), integers(table, 7)
    labels, mixing, key = integers(table, 10), numbers(table, 11), key_at(integers(table, 4), 0)
    copy(integers(table, 8), labels)
    copy(numbers(table, 9), mixing)
    n = len(labels)
    setting = Setting(reals[0], reals[1], reals[2], counts[1], counts[2] == 1)
    tree = _read_tree(paths, len(paths) // n, len(mixing) // counts[1])
    log_counts = np.empty(n + 1)
    for i in range(n + 1):
        log_counts[i] = math.log(i) if i > 0 else -np.inf
    problem, accepted, refused = Problem(mixture_from(table, 0, 0), setting, tree, log_counts), 0, 0
    for _ in range(counts[0]):
        moved, lacking = _attempt(problem, labels, mixing, key)
        accepted += moved
        refused += lacking
        key = child(key, 0)
    integers(table, 12)[0], integers(table, 13)[0] = accepted, refused


DIVIDE_COMPONENTS = Kernel(divide_components, 1, 1, 1, 2, 1, 1, 1, 2, 1, 2, 1, 2, 0, 0)

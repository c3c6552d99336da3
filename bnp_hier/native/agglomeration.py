"""Exact greedy agglomeration by a merge score; the native form of `deterministic.agglomeration.greedy_merging`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bnp_hier.native.arithmetic import largest, load, load_integer, store
from bnp_hier.native.bridge import Kernel
from bnp_hier.native.memory import compiled, integers, numbers, separate
from bnp_hier.native.mixtures import cluster_statistics, features, joined, log_marginals, mixture_from

__all__ = ["AGGLOMERATE", "CRITERIA", "PROGRESS"]

CRITERIA = ("odds", "ratio", "normalised", "dp", "finite")
"""Merge scores; the position of each is its number. See `merge_scores.CRITERIA`."""

ODDS, RATIO, NORMALISED = range(3)

TIE = 1e-9
"""Relative difference below which scores count as tied."""

NONE = np.iinfo(np.int64).max
"""Larger than every node number."""

BLOCK = 64
"""Number of slots that are searched at once."""

TILE_ROWS, TILE_COLUMNS = 64, 512
"""Pairs of leaves are scored in tiles whose statistics fit in the processor's cache."""

PROGRESS = ("left", "merges", "evaluations", "paired", "undefined", "one", "other")
"""Numbers that a call leaves for the next: trees left, merges made, scores computed, leaves whose pairs have been scored, and
whether a score was not finite, with the two nodes."""

LEFT, MERGES, EVALUATIONS, PAIRED, UNDEFINED, ONE, OTHER = range(len(PROGRESS))


class Forest(NamedTuple):
    """Trees not merged yet, one per slot; those of a group are neighbours.

    - **columns** - features, one statistic of all slots after another.
    - **marginal**, **mass** - log marginal of a tree's items as one cluster, and log mass of its tree-consistent partitions.
    - **score**, **low** - largest score with another tree, an upper bound where `stale`; and the smallest score that ties with
      it.
    - **items**, **node**, **group**, **partner**, **stale** - number of items, node number, group, node number of the best
      partner, and whether that has been merged since.
    - **slot_of** - slot of each node.
    - **ranges** - for every group: its first slot, the first one after its single rows, which come first because their scores
      are quicker to compute, and the one after its last.
    - **progress** - see `PROGRESS`.
    - **log_gamma**, **log_label** - tables of what the scores need of numbers of items.
    - **log_alpha**, **criterion** - log α and the number of the criterion.
    """

    columns: Any
    marginal: Any
    mass: Any
    score: Any
    low: Any
    items: Any
    node: Any
    group: Any
    partner: Any
    stale: Any
    slot_of: Any
    ranges: Any
    progress: Any
    log_gamma: Any
    log_label: Any
    log_alpha: Any
    criterion: Any


@compiled
def _tolerance(score):
    return TIE * max(1.0, abs(score))


@compiled
def _score(forest, criterion, joint, a, b):
    """Score of merging the trees in two slots, from the log marginal likelihood of their union."""
    together = forest.items[a] + forest.items[b]
    if criterion == ODDS:
        return forest.log_alpha + forest.log_gamma[together] + joint - forest.mass[a] - forest.mass[b]
    ratio = joint - forest.marginal[a] - forest.marginal[b]
    if criterion == RATIO:
        return ratio
    if criterion == NORMALISED:
        return ratio / math.sqrt(forest.items[a] * forest.items[b] / together)
    return ratio + forest.log_label[together] - forest.log_label[forest.items[a]] - forest.log_label[forest.items[b]]


@separate
def _scores(mixture, forest, slot, first, last, one, scores):
    """Compute the scores of one slot with those from `first` to before `last`; its own is −inf.

    If one is not finite, the pair is noted in the progress.
    """
    n = len(forest.node)
    for t in range(mixture.row):
        one[t] = forest.columns[t * n + slot]
    for other in range(first, last):
        scores[other] = 0.0
    # a tree has no union with itself, which would have more items than there are and so lie outside the tables of the families
    before = min(max(slot, first), last)
    after = min(max(slot + 1, first), last)
    at, out = forest.columns.ctypes.data, scores.ctypes.data
    joined(mixture, at + 8 * first, n, before - first, one, out + 8 * first)
    joined(mixture, at + 8 * after, n, last - after, one, out + 8 * after)
    if forest.criterion == ODDS:  # written out, so that the loop is vectorised
        at, mass, items = scores.ctypes.data, forest.mass.ctypes.data, forest.items.ctypes.data
        own, size, table = forest.log_alpha - forest.mass[slot], forest.items[slot], forest.log_gamma.ctypes.data
        for other in range(first, last):
            together = load_integer(items, other) + size
            store(at, other, own + load(table, together) + load(at, other) - load(mass, other))
    else:
        for other in range(first, last):
            scores[other] = _score(forest, forest.criterion, scores[other], slot, other)
    if first <= slot < last:
        scores[slot] = -np.inf
    wrong = 0
    for other in range(first, last):
        wrong |= not load(scores.ctypes.data, other) < np.inf
    if wrong:
        forest.progress[UNDEFINED], forest.progress[ONE] = 1, forest.node[slot]
        for other in range(first, last):
            if not scores[other] < np.inf:
                forest.progress[OTHER] = forest.node[other]
                return


@compiled
def _take(forest, slot, best, node):
    """Combine the best partner of a slot with another: the larger score wins, and the smaller node number where they tie."""
    top = max(forest.score[slot], best)
    low = top - _tolerance(top)
    if forest.score[slot] < low or (best >= low and node < forest.partner[slot]):
        forest.partner[slot] = node
    forest.score[slot], forest.low[slot] = top, low


@compiled
def _offer_all(forest, scores, first, last, slot):
    """Make the slot whose scores are given the best partner of others, where it is; in blocks, of which few have any."""
    at, low = scores.ctypes.data, forest.low.ctypes.data
    for start in range(first, last, BLOCK):
        end, some = min(start + BLOCK, last), 0
        for other in range(start, end):
            some |= load(at, other) >= load(low, other)
        if some:
            for other in range(start, end):
                if scores[other] >= forest.low[other] and other != slot:
                    _take(forest, other, scores[other], forest.node[slot])


@separate
def _best(forest, scores, first, last, slot):
    """Combine the best partner of the slot whose scores are given with the best of the others."""
    top = largest(scores.ctypes.data, first, last)
    if top >= forest.low[slot] and top > -np.inf:
        low, node, at = top - _tolerance(top), NONE, scores.ctypes.data
        for start in range(first, last, BLOCK):
            end, some = min(start + BLOCK, last), 0
            for other in range(start, end):
                some |= load(at, other) >= low
            if some:
                for other in range(start, end):
                    if scores[other] >= low:
                        node = min(node, forest.node[other])
        _take(forest, slot, top, node)


@compiled
def _pair_up(mixture, forest, until):
    """Find the best partners within the groups, scoring every pair once, for the slots before `until`."""
    one, scores = np.empty(mixture.row), np.empty(len(forest.node))
    for top in range(forest.progress[PAIRED], until, TILE_ROWS):
        bottom = min(top + TILE_ROWS, until)
        end = forest.ranges[3 * forest.group[bottom - 1] + 2]
        for left in range(top, end, TILE_COLUMNS):
            right = min(left + TILE_COLUMNS, end)
            for slot in range(top, bottom):
                first, last = max(left, slot + 1), min(right, forest.ranges[3 * forest.group[slot] + 2])
                if first < last:
                    _scores(mixture, forest, slot, first, last, one, scores)
                    if forest.progress[UNDEFINED]:
                        return
                    forest.progress[EVALUATIONS] += last - first
                    _best(forest, scores, first, last, slot)
                    _offer_all(forest, scores, first, last, slot)
        forest.progress[PAIRED] = bottom


@separate
def _move(mixture, forest, source, target):
    """Move the tree of a slot to another slot."""
    n = len(forest.node)
    for t in range(mixture.row):
        forest.columns[t * n + target] = forest.columns[t * n + source]
    forest.marginal[target], forest.mass[target] = forest.marginal[source], forest.mass[source]
    forest.score[target], forest.low[target] = forest.score[source], forest.low[source]
    forest.items[target], forest.node[target] = forest.items[source], forest.node[source]
    forest.partner[target], forest.stale[target] = forest.partner[source], forest.stale[source]
    forest.slot_of[forest.node[target]] = target


@compiled
def _remove(mixture, forest, group, slot):
    """Remove the tree of a slot; others move so that no slot is empty between those of the group."""
    split, last = forest.ranges[3 * group + 1], forest.ranges[3 * group + 2] - 1
    if slot < split:
        _move(mixture, forest, split - 1, slot)
        forest.ranges[3 * group + 1] = split - 1
        slot = split - 1
    if slot < last:
        _move(mixture, forest, last, slot)
    forest.score[last], forest.low[last] = -np.inf, -np.inf
    forest.ranges[3 * group + 2] = last


@compiled
def _merge(mixture, forest, pair, union, one):
    """Merge the trees of two nodes into a new node; return its slot and the log odds of the merge."""
    n, a, b = len(forest.node), forest.slot_of[pair[0]], forest.slot_of[pair[1]]
    group = forest.group[a]
    union[0] = 0.0
    for t in range(mixture.row):
        one[t] = forest.columns[t * n + a]
    joined(mixture, forest.columns.ctypes.data + 8 * b, n, 1, one, union.ctypes.data)
    odds, mass = _score(forest, ODDS, union[0], a, b), forest.mass[a] + forest.mass[b]
    items = forest.items[a] + forest.items[b]
    for t in range(mixture.row):
        one[t] += forest.columns[t * n + b]
    _remove(mixture, forest, group, a)
    _remove(mixture, forest, group, forest.slot_of[pair[1]])
    home = forest.ranges[3 * group + 2]
    for t in range(mixture.row):
        forest.columns[t * n + home] = one[t]
    forest.marginal[home], forest.items[home] = union[0], items
    forest.mass[home] = mass + max(odds, 0.0) + math.log1p(math.exp(-abs(odds)))
    forest.node[home] = n + forest.progress[MERGES]
    forest.slot_of[forest.node[home]] = home
    forest.ranges[3 * group + 2] = home + 1
    forest.progress[LEFT] -= 1
    forest.progress[MERGES] += 1
    return home, odds


@compiled
def _choose(forest, pair):
    """Choose what to do next: return the node to be scored again, or −1 after writing the pair to be merged; −2 if none may be.

    Among tied pairs, the one with the smallest node numbers is merged; if a tied score is an old bound, its tree is scored
    first.
    """
    at, size = forest.score.ctypes.data, forest.ranges[len(forest.ranges) - 1]
    top = largest(at, 0, size)
    if top == -np.inf:
        return -2
    low, again = top - _tolerance(top), NONE
    pair[0], pair[1] = NONE, NONE
    for start in range(0, size, BLOCK):
        end, some = min(start + BLOCK, size), 0
        for slot in range(start, end):
            some |= load(at, slot) >= low
        if some:
            for slot in range(start, end):
                if forest.score[slot] >= low:
                    node, partner = forest.node[slot], forest.partner[slot]
                    if forest.stale[slot]:
                        again = min(again, node)
                    else:
                        one, other = min(node, partner), max(node, partner)
                        if one < pair[0] or (one == pair[0] and other < pair[1]):
                            pair[0], pair[1] = one, other
    return again if again < NONE else -1


@compiled
def _renew(forest, scores, first, last, home, pair):
    """After a merge, make the new tree the best partner of others where it is, and mark those whose partner is gone.

    The new tree has the largest node number, so it never wins a tie.
    """
    at, low, partner = scores.ctypes.data, forest.low.ctypes.data, forest.partner.ctypes.data
    for start in range(first, last, BLOCK):
        end, some = min(start + BLOCK, last), 0
        for other in range(start, end):
            named = load_integer(partner, other)
            some |= (load(at, other) >= load(low, other)) | (named == pair[0]) | (named == pair[1])
        if some:
            for other in range(start, end):
                if other == home:
                    continue
                if scores[other] > forest.score[other] + _tolerance(scores[other]):
                    forest.score[other], forest.partner[other] = scores[other], forest.node[home]
                    forest.stale[other], forest.low[other] = 0, scores[other] - _tolerance(scores[other])
                elif forest.partner[other] == pair[0] or forest.partner[other] == pair[1]:
                    forest.stale[other] = 1


@compiled
def _grow(mixture, forest, children, log_odds, until, budget):
    """Merge until enough merges have been made, a budget of scores is spent, or no merge is allowed."""
    one, union, pair = np.empty(mixture.row), np.empty(1), np.empty(2, np.int64)
    scores, progress = np.empty(len(forest.node)), forest.progress
    while progress[MERGES] < until and progress[EVALUATIONS] < budget:
        again = _choose(forest, pair)
        if again == -2:
            return
        if again < 0:
            children[2 * progress[MERGES]], children[2 * progress[MERGES] + 1] = pair[0], pair[1]
            home, odds = _merge(mixture, forest, pair, union, one)
            log_odds[progress[MERGES] - 1] = odds
        else:
            home = forest.slot_of[again]
        first, last = forest.ranges[3 * forest.group[home]], forest.ranges[3 * forest.group[home] + 2]
        _scores(mixture, forest, home, first, last, one, scores)
        if progress[UNDEFINED]:
            return
        progress[EVALUATIONS] += last - first - 1
        forest.score[home], forest.low[home] = -np.inf, -np.inf
        forest.partner[home], forest.stale[home] = NONE, 0
        if again < 0:
            _renew(forest, scores, first, last, home, pair)
        _best(forest, scores, first, last, home)


@compiled
def _plant(mixture, forest, leaf_of, order):
    """Make every leaf a tree: the leaves in the given order, in which those of a group are neighbours."""
    n, row = len(forest.node), mixture.row
    stats, one, marginals = cluster_statistics(mixture, leaf_of, n), np.empty(row), np.empty(n)
    log_marginals(mixture, stats, n, marginals)
    for slot in range(n):
        forest.items[slot] = 0
    for leaf in leaf_of:
        forest.items[leaf] += 1
    sizes = forest.items.copy()
    for slot in range(n):
        leaf = order[slot]
        features(mixture, stats[leaf * row : (leaf + 1) * row], one)
        for t in range(row):
            forest.columns[t * n + slot] = one[t]
        forest.items[slot], forest.node[slot], forest.slot_of[leaf] = sizes[leaf], leaf, slot
        forest.marginal[slot] = marginals[leaf]
        forest.mass[slot] = forest.log_alpha + forest.log_gamma[sizes[leaf]] + marginals[leaf]
        forest.score[slot], forest.low[slot], forest.partner[slot], forest.stale[slot] = -np.inf, -np.inf, NONE, 0
    forest.progress[LEFT] = n


def agglomerate(table):
    """Merge trees greedily, as far as a budget of scores reaches; called again, it goes on.

    Arguments: component, rows, leaf of every row, leaves in the order of the slots, α, the number of the criterion with the
    number of merges to reach and the budget. Results, which are also the state: features (statistics, slots), four vectors and
    five vectors of slots as in `Forest`, slots of nodes, ranges of groups, progress, children, log odds.
    """
    leaf_of, order, goal = integers(table, 4), integers(table, 5), integers(table, 7)
    n, alpha, total = len(order), numbers(table, 6)[0], len(leaf_of)
    reals, whole, progress = numbers(table, 9), integers(table, 10), integers(table, 13)
    mixture = mixture_from(table, 0, 1)
    log_gamma, log_label = np.empty(total + 1), np.empty(total + 1)
    log_gamma[0] = log_label[0] = 0.0
    for count in range(1, total + 1):
        log_gamma[count] = math.lgamma(count)
        log_label[count] = math.lgamma(count + alpha) if goal[0] == 4 else log_gamma[count]
    forest = Forest(
        numbers(table, 8),
        reals[:n],
        reals[n : 2 * n],
        reals[2 * n : 3 * n],
        reals[3 * n :],
        whole[:n],
        whole[n : 2 * n],
        whole[2 * n : 3 * n],
        whole[3 * n : 4 * n],
        whole[4 * n :],
        integers(table, 11),
        integers(table, 12),
        progress,
        log_gamma,
        log_label,
        math.log(alpha),
        goal[0],
    )
    if progress[LEFT] == 0:
        _plant(mixture, forest, leaf_of, order)
    budget = progress[EVALUATIONS] + goal[2]
    while progress[PAIRED] < n and progress[EVALUATIONS] < budget and not progress[UNDEFINED]:
        _pair_up(mixture, forest, min(progress[PAIRED] + TILE_ROWS, n))
    if progress[PAIRED] == n and not progress[UNDEFINED]:
        _grow(mixture, forest, integers(table, 14), numbers(table, 15), goal[1], budget)


AGGLOMERATE = Kernel(agglomerate, 1, 1, 1, 2, 1, 1, 0, 1, 2, 2, 2, 1, 2, 1, 2, 1)

"""Conga lines against the other engine, a plain scan of all pairs, and both engines in plain Python that count scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import jax
import numpy as np
import pytest
from scipy.special import gammaln

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.conga_lines import conga_line_merges
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import Merges, row_leaves
from tests.oracles.problems import FAMILIES, Problem, random_problem
from tests.parameters import few

Pair = tuple[int, int]


class Scores:
    """Fall of the free energy when two nodes are merged; counts how often it is asked for."""

    def __init__(self, problem: Problem, prior: str) -> None:
        shift = problem.alpha if prior == "finite" else 0.0
        self._energy: Callable[[list[int]], float] = lambda rows: problem.log_marginal(rows) + gammaln(len(rows) + shift)
        self.members = {i: [i] for i in range(problem.n)}
        self.alone = {i: self._energy([i]) for i in range(problem.n)}
        self._known: dict[Pair, float] = {}
        self.count = 0

    def __call__(self, a: int, b: int) -> float:
        self.count += 1
        pair = min(a, b), max(a, b)
        if pair not in self._known:
            both = self._energy(self.members[a] + self.members[b])
            self._known[pair] = both - self.alone[a] - self.alone[b]
        return self._known[pair]

    def merge(self, pair: Pair, node: int) -> None:
        self.members[node] = self.members[pair[0]] + self.members[pair[1]]
        self.alone[node] = self._energy(self.members[node])


def first_of_the_best(scored: Iterable[tuple[float, Pair]]) -> Pair:
    """The pair with the largest score; of equal ones the first."""
    found = list(scored)
    top = max(score for score, _ in found)
    return min(pair for score, pair in found if score >= top - 1e-9 * max(1.0, abs(top)))


def by_scan(problem: Problem, prior: str) -> tuple[list[Pair], int]:
    score, live, merges = Scores(problem, prior), list(range(problem.n)), []
    while len(live) > 1:
        pair = first_of_the_best((score(a, b), (a, b)) for k, a in enumerate(live) for b in live[k + 1 :])
        node = problem.n + len(merges)
        score.merge(pair, node)
        merges.append(pair)
        live = [*(k for k in live if k not in pair), node]
    return merges, score.count


def by_conga_lines(problem: Problem, prior: str) -> tuple[list[Pair], int]:
    """Eppstein's structure by sets and lists: `of` says in which subset a node is, `lines` hold (from, to, score)."""
    score, merges, n = Scores(problem, prior), list[Pair](), problem.n
    of, lines, newest = dict.fromkeys(range(n), 0), dict[int, list[tuple[int, int, float]]](), 0
    while len(of) > 1:
        for name in sorted(set(of.values()) - set(lines)):
            path, edges = [min(k for k in of if of[k] == name)], []
            while True:
                here = path[-1]
                options = [k for k in of if k not in path and name in (of[here], of[k])]
                if not options:
                    break
                scores = {k: score(here, k) for k in options}
                path.append(first_of_the_best((s, (k, 0)) for k, s in scores.items())[0])
                edges.append((here, path[-1], scores[path[-1]]))
            lines[name] = edges
        pair = first_of_the_best((s, (min(a, b), max(a, b))) for edges in lines.values() for a, b, s in edges)
        node = n + len(merges)
        score.merge(pair, node)
        merges.append(pair)
        orphans = {a for edges in lines.values() for a, b, _ in edges if b in pair} - set(pair)
        for k in pair:
            del of[k]
        for group in (orphans, {node}):
            newest += bool(group)
            of |= dict.fromkeys(group, newest)
        while len(names := sorted(set(of.values()))) > max(1, np.floor(np.log2(len(of)))):
            sized = sorted((list(of.values()).count(name), name) for name in names)
            ratios = [b[0] / a[0] for a, b in zip(sized, sized[1:], strict=False)]
            both = {sized[k][1] for k in (ratios.index(min(ratios)), ratios.index(min(ratios)) + 1)}
            newest += 1
            of |= {k: newest for k in of if of[k] in both}
        lines = {
            name: [(a, b, s) for a, b, s in edges if a in of and b in of and of[a] <= name]
            for name, edges in lines.items()
            if name in names
        }
    return merges, score.count


def by_row_best(problem: Problem, prior: str) -> tuple[list[Pair], int]:
    """Every node remembers its best partner; one that has lost it is scored again only when it comes out on top."""
    score, merges, n = Scores(problem, prior), list[Pair](), problem.n
    live = list(range(n))

    def best(k: int, ask: Callable[[int, int], float]) -> tuple[float, int]:
        scored = [(ask(k, j), (j, 0)) for j in live if j != k]
        return max(s for s, _ in scored), first_of_the_best(scored)[0]

    free = Scores(problem, prior)  # at first every pair is scored once, for both of its nodes
    remembered = {k: best(k, free) for k in live}
    score.count = n * (n - 1) // 2
    while len(live) > 1:
        top = max(s for s, _ in remembered.values())
        tied = [k for k in live if remembered[k][0] >= top - 1e-9 * max(1.0, abs(top))]
        stale = [k for k in tied if remembered[k][1] not in live]
        if stale:
            remembered[min(stale)] = best(min(stale), score)
            continue
        pair = min((min(k, remembered[k][1]), max(k, remembered[k][1])) for k in tied)
        node = n + len(merges)
        score.merge(pair, node)
        merges.append(pair)
        live = [k for k in live if k not in pair]
        if not live:
            break
        scores = {k: score(node, k) for k in live}
        for k, s in scores.items():
            if s > remembered[k][0] + 1e-9 * max(1.0, abs(s)):
                remembered[k] = s, node
        first = first_of_the_best((s, (k, 0)) for k, s in scores.items())[0]
        remembered = {**{k: remembered[k] for k in live}, node: (max(scores.values()), first)}
        live.append(node)
    return merges, score.count


def merged(problem: Problem, prior: str, engine: str) -> tuple[list[Pair], int]:
    fit = bnp.AgglomerativeBayesianClustering(problem.model, prior, engine=engine).fit(problem.X)
    return list(map(tuple, fit.dendrogram_.children.tolist())), fit.evaluations_


@pytest.mark.parametrize(("family", "prior"), few(product(FAMILIES, ("dp", "finite")), plain=0))
def test_merges_and_counts_of_both_engines(family: str, prior: str) -> None:
    """Small discrete problems have many ties; both engines break them as the scan does."""
    for n, seed in ((2, 0), (3, 0), *((24, seed) for seed in range(8))):
        problem = random_problem(family, n, seed)
        merges, scored = by_scan(problem, prior)
        assert scored == (n - 1) * n * (n + 1) // 6
        assert merged(problem, prior, "conga_line") == by_conga_lines(problem, prior)
        assert merged(problem, prior, "row_best") == by_row_best(problem, prior)
        assert merged(problem, prior, "conga_line")[0] == merges == merged(problem, prior, "row_best")[0]


def both(problem: Problem, n: int) -> tuple[Merges, Merges]:
    """Merges of the first n rows by conga lines and by the other engine."""
    with jax.enable_x64(True):
        leaves = row_leaves(problem.X[:n])
        conga, other = (f(problem.component, leaves, problem.alpha, "dp") for f in (conga_line_merges, agglomerate))
    np.testing.assert_array_equal(conga.children, other.children)
    np.testing.assert_allclose(conga.log_odds, other.log_odds, atol=1e-8)
    return conga, other


@pytest.mark.slow
def test_evaluations_grow_like_the_square_and_two_logarithms() -> None:
    shares, problem = [], random_problem("nig", 512, 0)
    for n in (64, 256, 512):
        conga, other = both(problem, n)
        assert n * (n - 1) / 2 <= other.evaluations < conga.evaluations
        shares.append(conga.evaluations / (n * np.log2(n)) ** 2)
    assert max(shares) < 0.15 and shares[-1] < 1.2 * shares[0]

"""Tree search against brute force over neighbouring trees; other merge scores against plain NumPy."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import row_leaves
from bnp_hier.deterministic.agglomeration.prune_and_regraft import LEAST_GAIN, prune_regraft
from bnp_hier.deterministic.agglomeration.tree_search import search
from bnp_hier.models import dpm
from tests.oracles.problems import Problem, random_problem
from tests.parameters import few

Tree = tuple


def nested(children: np.ndarray) -> Tree | int:
    """The tree as nested pairs."""
    nodes: list = list(range(len(children) + 1))
    for left, right in children:
        nodes.append((nodes[left], nodes[right]))
    return nodes[-1]


def leaves(tree: Tree | int) -> list[int]:
    return [tree] if isinstance(tree, int) else leaves(tree[0]) + leaves(tree[1])


def subtrees(tree: Tree | int) -> list:
    return [tree] if isinstance(tree, int) else [*subtrees(tree[0]), *subtrees(tree[1]), tree]


def without(tree: Tree | int, part: Tree | int) -> Tree | int | None:
    if tree == part:
        return None
    if isinstance(tree, int):
        return tree
    kept = [t for t in (without(tree[0], part), without(tree[1], part)) if t is not None]
    return kept[0] if len(kept) == 1 else tuple(kept)


def insertions(tree: Tree | int, part: Tree | int) -> list:
    out = [(tree, part)]
    if not isinstance(tree, int):
        out += [(new, tree[1]) for new in insertions(tree[0], part)] + [(tree[0], new) for new in insertions(tree[1], part)]
    return out


def mass(problem: Problem, tree: Tree | int) -> float:
    """φ of the root, by the recursion written plainly."""
    rows = leaves(tree)
    single = np.log(problem.alpha) + float(np.sum(np.log(np.arange(1, len(rows))))) + problem.log_marginal(rows)
    return single if isinstance(tree, int) else float(np.logaddexp(single, mass(problem, tree[0]) + mass(problem, tree[1])))


def random_tree(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    active, children = list(range(n)), []
    for t in range(n - 1):
        pair = sorted(rng.choice(active, 2, replace=False).tolist())
        active = [k for k in active if k not in pair] + [n + t]
        children.append(pair)
    return np.array(children)


@pytest.mark.parametrize("family", ["niw", "bernoulli"])
def test_regraft_finds_the_best_place_of_every_subtree(family: str, x64: None) -> None:
    for seed in range(3):
        problem = random_problem(family, 7, 50 + seed)
        start = random_tree(7, seed)
        tree = nested(start)
        nodes: list = list(range(7))
        for left, right in start:
            nodes.append((nodes[left], nodes[right]))
        for node in range(12):  # all but the root
            moved, moves = prune_regraft(problem.component, problem.X, problem.alpha, start, np.array([node]))
            best = max(mass(problem, t) for t in insertions(without(tree, nodes[node]), nodes[node]))
            reached = mass(problem, nested(moved))
            assert reached == pytest.approx(best, abs=LEAST_GAIN + 1e-9)
            assert moves == (reached > mass(problem, tree) + LEAST_GAIN / 2)


def test_a_sweep_of_moves_keeps_its_books(x64: None) -> None:
    """After many moves the tree is whole, its bound has risen, and no subtree can be moved to gain more."""
    problem = random_problem("nig", 24, 8)
    children = random_tree(24, 1)
    before = mass(problem, nested(children))
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(47)
        children, moves = prune_regraft(problem.component, problem.X, problem.alpha, children, order)
        after = mass(problem, nested(children))
        assert after >= before - 1e-9
        before = after
        if moves == 0:
            break
    assert moves == 0
    greedy, *_ = agglomerate(problem.component, row_leaves(problem.X), problem.alpha)
    assert before > mass(problem, nested(greedy)) - 1.0


@pytest.mark.parametrize("criterion", ["ratio", "normalised"])
@pytest.mark.parametrize("family", few(["niw", "bernoulli"]))
def test_other_scores_equal_plain_numpy(family: str, criterion: str, x64: None) -> None:
    for seed in range(4):
        problem = random_problem(family, 9, 60 + seed)
        marginal = cache(lambda rows, problem=problem: problem.log_marginal(list(rows)))
        members = {k: (k,) for k in range(9)}
        children, *_ = agglomerate(problem.component, row_leaves(problem.X), problem.alpha, criterion)
        for t, pair in enumerate(children.tolist()):
            scores = {}
            for i in members:
                for j in members:
                    if i < j:
                        a, b = members[i], members[j]
                        score = marginal(tuple(sorted(a + b))) - marginal(a) - marginal(b)
                        size = len(a) * len(b) / (len(a) + len(b))
                        scores[i, j] = score / np.sqrt(size) if criterion == "normalised" else score
            assert scores[tuple(pair)] == pytest.approx(max(scores.values()), abs=1e-8)
            members[9 + t] = tuple(sorted(members.pop(pair[0]) + members.pop(pair[1])))


def test_groups_are_merged_inside_first(x64: None) -> None:
    problem = random_problem("niw", 20, 5)
    groups = np.arange(20) % 3
    children, log_odds, _ = agglomerate(problem.component, row_leaves(problem.X), problem.alpha, groups=groups)
    members = [{g} for g in groups.tolist()]
    for left, right in children:
        members.append(members[left] | members[right])
    assert all(len(m) == 1 for m in members[: 20 + 17]) and len(members[-1]) == 3
    # the log odds are those of the tree that was built
    nodes: list = list(range(20))
    for (left, right), odds in zip(children, log_odds, strict=True):
        nodes.append((nodes[left], nodes[right]))
        rows = leaves(nodes[-1])
        single = np.log(problem.alpha) + gammaln(len(rows)) + problem.log_marginal(rows)
        assert odds == pytest.approx(single - mass(problem, nodes[left]) - mass(problem, nodes[right]), abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["niw", "bernoulli"])
def test_search_never_falls_below_greedy(family: str) -> None:
    for seed in range(3):
        problem = random_problem(family, 30, seed)
        fits = {refine: bnp.BHC(problem.model, refine=refine).fit(problem.X) for refine in (None, "polish", "full")}
        bounds = [fit.log_evidence_bound_ for fit in fits.values()]
        assert (np.diff(bounds) >= -1e-9).all()
        for fit in fits.values():
            assert (np.diff(fit.objective_trace_) >= 0).all()
            assert fit.objective_trace_[0] == pytest.approx(bounds[0]) and fit.objective_trace_[-1] == fit.log_evidence_bound_
        assert len(fits["polish"].objective_trace_) > 4
        again = bnp.BHC(problem.model, refine="full").fit(problem.X)
        assert (again.dendrogram_.children == fits["full"].dendrogram_.children).all()


@pytest.mark.slow
def test_polish_mends_a_greedy_failure() -> None:
    """Ten clusters: greedy merges are hundreds of nats below the best tree; a polished tree is within half a nat."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 400)
    X = 6.0 * rng.normal(size=(10, 2))[labels] + rng.normal(size=(400, 2))
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    greedy, polished = bnp.BHC(model, refine=None).fit(X), bnp.BHC(model).fit(X)
    full = bnp.BHC(model, refine="full", random_state=3).fit(X)
    assert polished.log_evidence_bound_ > greedy.log_evidence_bound_ + 50
    assert polished.log_evidence_bound_ > full.log_evidence_bound_ - 0.5
    assert adjusted_rand_score(labels, polished.labels_) > adjusted_rand_score(labels, greedy.labels_)


@pytest.mark.parametrize(("data", "best"), few([(load_iris, -308.2293), (load_wine, -3586.2595)]))
def test_polish_finds_the_best_known_tree(data: Any, best: float) -> None:
    """From most seeds; the bounds are the largest that "full" finds."""
    X = data().data
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
    bounds = [bnp.BHC(model, optimize=False, random_state=seed).fit(X).log_evidence_bound_ for seed in range(5)]
    assert max(bounds) < best + 1e-3 and np.median(bounds) > best - 0.02


@pytest.mark.slow
def test_ratio_shape_keeps_clusters_and_reports_its_own_bound() -> None:
    X = load_iris().data
    y = load_iris().target
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    plain, drawn = (bnp.BHC(model, refine=None, shape=shape).fit(X) for shape in ("bound", "ratio"))
    assert adjusted_rand_score(plain.labels_, drawn.labels_) == 1.0
    assert plain.log_evidence_bound_ - 1.0 < drawn.log_evidence_bound_ <= plain.log_evidence_bound_
    assert drawn.log_evidence_bound_ == bnp.evidence.tree_bound(drawn)
    assert drawn.dendrogram_.purity(y) > plain.dendrogram_.purity(y)
    assert _depth(drawn.dendrogram_.children) < _depth(plain.dendrogram_.children) / 2


def _depth(children: np.ndarray) -> int:
    depth = np.zeros(2 * len(children) + 1, int)
    for t, pair in enumerate(children):
        depth[len(children) + 1 + t] = depth[pair].max() + 1
    return int(depth[-1])


@pytest.mark.slow
def test_refits_of_one_shape_compile_nothing(compilations: list[str]) -> None:
    rng = np.random.default_rng(0)
    component = bnp.NormalInverseGamma(np.zeros(2), 0.5, 2.0, 1.0)
    model = partial(dpm, component=component, concentration=1.0)
    # the first is unclear, so that its search takes every step
    one, other = (rng.normal(size=(37, 2)) + shift * (np.arange(37) % 2)[:, None] for shift in (2, 4))
    for options in ({}, {"shape": "ratio"}):
        bnp.BHC(model, **options).fit(one)
        compilations.clear()
        bnp.BHC(model, **options).fit(other)
        assert compilations == []


KNOWN_MISSES = {
    ("glass", "polish"): "ends about 3 nats under full",
    ("digits", "polish"): "ends 0.9 nats under full",
}


SEARCHED = {"animals": pytest.mark.slow, "iris": pytest.mark.exhaustive}
SEARCHED |= dict.fromkeys(("mixture", "wine6", "wine13", "glass", "digits", "pendigits"), pytest.mark.benchmark)  # minutes


@pytest.mark.optimised
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in SEARCHED.items()])
def test_gap_to_the_best_tree(name: str) -> None:
    """Gap to the best of three seeded full searches: of polish the median of five seeds; full at most 2 nats."""
    X = real_data(name)
    bits = np.isin(X, (0.0, 1.0)).all()
    component = (bnp.BetaBernoulli if bits else bnp.NormalInverseWishart).from_data(X, learn=False)
    with jax.enable_x64(True):
        greedy, *_ = agglomerate(component, row_leaves(X), 1.0)
        bounds, polished = (
            [search(component, X, 1.0, greedy, refine, np.random.default_rng(k)).trace[-1] for k in range(seeds)]
            for refine, seeds in (("full", 3), ("polish", 5))
        )
    best = max(bounds)
    print(f"{name}: best full {best:.3f}; gaps of polish {best - np.array(polished)}, of full {best - np.array(bounds)}")
    limits = {"polish": 12.0 if name == "pendigits" else 0.5, "full": 2.0}
    gaps = {"polish": best - np.median(polished), "full": best - min(bounds)}
    missed = {(name, refine) for refine, gap in gaps.items() if gap > limits[refine]}
    assert missed <= set(KNOWN_MISSES)
    if missed:
        pytest.xfail("; ".join(f"{refine} {KNOWN_MISSES[name, refine]}" for name, refine in missed))


def real_data(name: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if name == "iris":
        return load_iris().data
    if name.startswith("wine"):
        return load_wine().data[:, : int(name[4:])]
    if name == "digits":
        return (load_digits(n_class=3).data[:300] > 8).astype(float)
    if name == "mixture":
        return 6.0 * rng.normal(size=(10, 2))[rng.integers(0, 10, 1000)] + rng.normal(size=(1000, 2))
    if name == "pendigits":
        return bnp.datasets.load("pendigits_sample").X[:500]
    return bnp.datasets.load({"animals": "animals50_binary"}.get(name, name)).X

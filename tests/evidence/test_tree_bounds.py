"""Tree bounds against sums over partitions; cluster weights, co-clustering and draws against enumeration."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chi2

import bnp_hier as bnp
from bnp_hier.evidence import KINDS, tree_bound
from bnp_hier.models import dpm
from tests.oracles.bhc import node_members, tree_partitions
from tests.oracles.partitions import all_partitions, log_prior
from tests.oracles.problems import Problem, random_problem
from tests.parameters import few

FAMILIES = ("niw", "nig", "bernoulli", "multinomial")


@cache
def fitted(family: str, n: int, seed: int) -> tuple[Problem, bnp.BHC]:
    problem = random_problem(family, n, seed)
    return problem, bnp.BHC(problem.model, refine=None).fit(problem.X)


def blocks(labels: tuple[int, ...]) -> frozenset[frozenset[int]]:
    """A partition as the set of its clusters."""
    return frozenset(frozenset(np.flatnonzero(np.array(labels) == k).tolist()) for k in set(labels))


def union_partitions(children: np.ndarray, reach: int | None) -> set[frozenset[frozenset[int]]]:
    """All partitions of the family, built from its definition: recursively, as sets of clusters."""
    n = len(children) + 1
    members = [frozenset(rows) for rows in node_members(children)]

    def paths(node: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """Every node under a node, its distance, and the siblings on the path."""
        found = [(node, 0, ())]
        if node >= n:
            left, right = (int(c) for c in children[node - n])
            for child, sibling in ((left, right), (right, left)):
                found += [(a, d + 1, (*beside, sibling)) for a, d, beside in paths(child)]
        return found

    @cache
    def product(nodes: tuple[int, ...]) -> frozenset[frozenset[frozenset[int]]]:
        if not nodes:
            return frozenset({frozenset()})
        return frozenset(a | b for a in below(nodes[0]) for b in product(nodes[1:]))

    @cache
    def below(node: int) -> frozenset[frozenset[frozenset[int]]]:
        if node < n:
            return frozenset({frozenset({members[node]})})
        left, right = (int(c) for c in children[node - n])
        out = set(product((left, right)))
        for a, da, beside_a in paths(left):
            for b, db, beside_b in paths(right):
                if reach is None or da + db <= reach:
                    out |= {rest | {members[a] | members[b]} for rest in product((*beside_a, *beside_b))}
        return frozenset(out)

    return set(below(2 * n - 2))


def log_joints(problem: Problem) -> dict[frozenset[frozenset[int]], float]:
    """Log p(X, v) of every partition."""
    marginal = cache(lambda block: problem.log_marginal(sorted(block)))
    return {
        blocks(z): log_prior(z, problem.alpha) + sum(marginal(block) for block in blocks(z)) for z in all_partitions(problem.n)
    }


@pytest.mark.parametrize("family", few(["nig", "multinomial", "niw", "bernoulli"], plain=0))
def test_order_of_bounds_on_300_problems(family: str) -> None:
    """bhc ≤ alternatives ≤ recursive ≤ pairs ≤ exact and bhc ≤ intervals ≤ exact."""
    alphas = []
    for seed in range(75):
        n = 3 + seed % 7
        problem, bhc = fitted(family, n, seed)
        bound = {kind: tree_bound(bhc, kind) for kind in KINDS}
        exact = bnp.evidence.exact(problem.model, problem.X)
        both = tree_bound(bhc, "alternatives", both_children=True)
        chain = [bound["bhc"], bound["alternatives"], both, bound["recursive"], bound["pairs"], exact]
        assert (np.diff(chain) >= -1e-9).all(), (family, seed, chain)
        assert bound["bhc"] - 1e-9 <= bound["intervals"] <= exact + 1e-9
        if problem.n == 3:
            assert bound["alternatives"] == pytest.approx(exact, abs=1e-9)
        alphas.append(problem.alpha)
    assert min(alphas) < 1.0 and max(alphas) > 2.0


@pytest.mark.parametrize("family", few(FAMILIES, 2))
@pytest.mark.parametrize("n", few([6, 3]))
def test_bounds_are_the_mass_of_their_partitions(family: str, n: int) -> None:
    problem, bhc = fitted(family, n, 40 + n)
    mass, children = log_joints(problem), bhc.dendrogram_.children
    for kind, reach in (("bhc", 0), ("recursive", 1), ("pairs", None)):
        expected = np.logaddexp.reduce([mass[v] for v in union_partitions(children, reach)])
        assert tree_bound(bhc, kind) == pytest.approx(expected, abs=1e-9)
    order = bhc.dendrogram_.leaf_order()
    runs = [np.repeat(np.arange(n), 1)]
    runs = [np.concatenate([[0], np.cumsum([mask >> i & 1 for i in range(n - 1)])]) for mask in range(2 ** (n - 1))]
    intervals = [mass[blocks(tuple(run[np.argsort(order)].tolist()))] for run in runs]
    assert tree_bound(bhc, "intervals") == pytest.approx(np.logaddexp.reduce(intervals), abs=1e-9)


def test_reach_zero_is_the_tree() -> None:
    _, bhc = fitted("niw", 6, 3)
    own = union_partitions(bhc.dendrogram_.children, 0)
    members = [frozenset(rows) for rows in node_members(bhc.dendrogram_.children)]
    assert own == {frozenset(members[k] for k in nodes) for nodes in tree_partitions(bhc.dendrogram_.children)}


@pytest.mark.parametrize("family", few(FAMILIES))
def test_alternatives_are_the_tree_and_one_relocation(family: str) -> None:
    problem, bhc = fitted(family, 7, 5)
    mass, children = log_joints(problem), bhc.dendrogram_.children
    n, members = 7, [frozenset(rows) for rows in node_members(children)]
    own = union_partitions(children, 0)
    increments = np.full(n - 1, np.nan)
    everything = set(own)
    for t, (left, right) in enumerate(children):
        child, uncle = (right, left) if len(members[right]) > len(members[left]) else (left, right)
        if child < n:
            continue
        moved = set()
        for branch, sibling in (children[child - n], children[child - n][::-1]):
            joined = members[branch] | members[uncle]
            # one cluster is the branch with its uncle; the sibling, and all outside the merge, follow the tree
            for v in {w for w in map(frozenset, mass) if joined in w}:
                inside = [block for block in v if block <= members[n + t]]
                outside = [block for block in v if not block & members[n + t]]
                if len(inside) + len(outside) < len(v):
                    continue
                rest_inside = frozenset(block for block in inside if block != joined)
                fits = any(rest_inside == frozenset(b for b in w if b <= members[sibling]) for w in own)
                fits = fits and frozenset().union(*rest_inside) == members[sibling]
                if fits and any(frozenset(outside) == frozenset(b for b in w if not b & members[n + t]) for w in own):
                    moved.add(v)
        assert not moved & everything
        everything |= moved
        increments[t] = np.logaddexp.reduce([mass[v] for v in moved | own]) - np.logaddexp.reduce([mass[v] for v in own])
    bound = tree_bound(bhc, "alternatives")
    assert bound == pytest.approx(np.logaddexp.reduce([mass[v] for v in everything]), abs=1e-9)
    np.testing.assert_allclose(bound.increments, increments, atol=1e-9)
    assert bound.n_relocations == 2 * np.isfinite(increments).sum() and bound.start == 0


@pytest.mark.parametrize("kind", ["alternatives", "recursive", "pairs"])
def test_start_leaves_out_early_merges(kind: str) -> None:
    _, bhc = fitted("nig", 9, 2)
    bounds = [tree_bound(bhc, kind, start=start) for start in range(8)]
    assert (np.diff(bounds) <= 1e-12).all() and bounds[0] > bounds[-1]
    assert bounds[-1] >= bhc.log_evidence_bound_
    assert [b.start for b in bounds] == list(range(8))
    assert (np.diff([b.n_relocations for b in bounds]) <= 0).all()


def test_max_pairs_keeps_pairs_near_their_meeting_node() -> None:
    problem, bhc = fitted("niw", 40, 0)
    full, recursive = tree_bound(bhc, "pairs"), tree_bound(bhc, "recursive")
    n = 40
    # every pair of disjoint nodes that are not siblings
    sizes = 2 * bhc.dendrogram_.sizes - 1
    assert full.n_relocations == sum(int(sizes[a] * sizes[b]) - 1 for a, b in bhc.dendrogram_.children)
    some = tree_bound(bhc, "pairs", max_pairs=full.n_relocations // 3)
    assert 0 < some.n_relocations <= full.n_relocations // 3
    assert recursive <= some <= full
    assert tree_bound(bhc, "pairs", max_pairs=1) == pytest.approx(bhc.log_evidence_bound_, abs=1e-9)
    assert full >= bhc.log_evidence_bound_ and problem.n == n


@pytest.mark.parametrize("family", few(FAMILIES, 2, 2))
@pytest.mark.parametrize(("kind", "reach"), [("recursive", 1), ("pairs", None)])
def test_weights_coclustering_and_draws_equal_sums_over_partitions(family: str, kind: str, reach: int | None) -> None:
    """Draws: chi-square over the partitions, false alarm 1e-4 each."""
    problem, bhc = fitted(family, 6, 17)
    n, children = problem.n, bhc.dendrogram_.children
    mass = {v: m for v, m in log_joints(problem).items() if v in union_partitions(children, reach)}
    total = np.logaddexp.reduce(list(mass.values()))
    probability = {v: float(np.exp(m - total)) for v, m in mass.items()}
    bound = tree_bound(bhc, kind)

    members = [frozenset(rows) for rows in node_members(children)]
    pairs, weights, singletons = bound.cluster_weights()
    found = Counter({frozenset({i}): p for i, p in enumerate(singletons.tolist())})
    for (a, b), weight in zip(pairs, weights.tolist(), strict=True):
        found[members[a] | members[b]] += weight
    expected: Counter = Counter()
    for v, p in probability.items():
        for block in v:
            expected[block] += p
    assert max(abs(found[block] - expected[block]) for block in found.keys() | expected.keys()) < 1e-12

    together = np.zeros((n, n))
    for v, p in probability.items():
        for block in v:
            together[np.ix_(sorted(block), sorted(block))] += p
    np.testing.assert_allclose(bound.coclustering(), together, atol=1e-12)

    draws = bound.sample_partitions(3, 4000)
    counts = Counter(blocks(tuple(z)) for z in draws.tolist())
    assert counts.keys() <= probability.keys()
    expectations = np.array([4000 * p for p in probability.values()])
    seen = np.array([counts[v] for v in probability])
    often = expectations >= 5
    cells = np.append(((seen - expectations) ** 2 / expectations)[often], 0.0)
    if (~often).any() and expectations[~often].sum() >= 5:
        cells[-1] = (seen[~often].sum() - expectations[~often].sum()) ** 2 / expectations[~often].sum()
    assert cells.sum() < chi2.isf(1e-4, max(often.sum(), 1))
    assert (bound.sample_partitions(3, 4000) == draws).all()


@pytest.mark.slow
def test_weights_are_the_gradient_of_the_recursion(x64: None) -> None:
    """The pass back through the recursion against autodiff of the same recursion written plainly."""
    problem, bhc = fitted("niw", 7, 1)
    n, children = 7, bhc.dendrogram_.children
    members = node_members(children)
    below = [[k] for k in range(n)]
    for left, right in children:
        below.append(below[left] + below[right] + [len(below)])
    pairs = [(a, b) for left, right in children for a in below[left] for b in below[right]]
    rows = [members[a] + members[b] for a, b in pairs]
    unions = jnp.array([np.log(problem.alpha) + gammaln(len(r)) + problem.log_marginal(r) for r in rows])
    single = jnp.array([np.log(problem.alpha) + problem.log_marginal([i]) for i in range(n)])

    def mass(unions: jax.Array) -> jax.Array:
        phi, path = list(single), {k: jnp.zeros(()) for k in range(n)}
        table = dict(zip(pairs, unions, strict=True))
        for left, right in children:
            terms = [table[a, b] + path[a] + path[b] for a in below[left] for b in below[right]]
            for here, there in ((left, right), (right, left)):
                for node in below[here]:
                    path[node] = path[node] + phi[there]
            path[len(phi)] = jnp.zeros(())
            phi.append(jax.nn.logsumexp(jnp.array([*terms, phi[left] + phi[right]])))
        return phi[-1]

    gradient = dict(zip(pairs, np.asarray(jax.grad(mass)(unions)), strict=True))
    found_pairs, weights, _ = tree_bound(bhc, "pairs").cluster_weights()
    assert float(mass(unions) + gammaln(problem.alpha) - gammaln(n + problem.alpha)) == pytest.approx(tree_bound(bhc, "pairs"))
    for (a, b), weight in zip(found_pairs.tolist(), weights, strict=True):
        assert weight == pytest.approx(gradient[a, b], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1e-8, 1e6])
def test_extreme_concentrations_are_finite_and_right(alpha: float) -> None:
    problem = random_problem("nig", 7, 3)
    model = partial(dpm, component=problem.component, concentration=alpha)
    bhc = bnp.BHC(model).fit(problem.X)
    exact = bnp.evidence.exact(model, problem.X)
    for kind in KINDS:
        bound = tree_bound(bhc, kind)
        assert np.isfinite(bound) and bound <= exact + 1e-9
    # nearly all mass is in one cluster, or in none shared
    assert tree_bound(bhc) == pytest.approx(exact, abs=1e-3)
    assert bhc.n_clusters_ == (1 if alpha < 1 else 7)


@pytest.mark.slow
def test_two_rows() -> None:
    problem, _ = fitted("niw", 5, 0)
    two = bnp.BHC(problem.model).fit(problem.X[:2])
    exact = bnp.evidence.exact(problem.model, problem.X[:2])
    for kind in KINDS:
        assert tree_bound(two, kind) == pytest.approx(exact, abs=1e-10)
        assert isinstance(tree_bound(two, kind), float)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda bound: pickle.loads(pickle.dumps(bound))])
def test_copies_and_pickles(kind: str, way: Callable[[bnp.evidence.TreeBound], bnp.evidence.TreeBound]) -> None:
    _, bhc = fitted("niw", 5, 0)
    bound = tree_bound(bhc, kind)
    again = way(bound)
    assert type(again) is type(bound) and again == bound
    assert (again.kind, again.start, again.n_relocations) == (kind, bound.start, bound.n_relocations)
    np.testing.assert_array_equal(again.increments, bound.increments)
    if kind in ("recursive", "pairs"):
        np.testing.assert_array_equal(again.coclustering(), bound.coclustering())
        np.testing.assert_array_equal(again.sample_partitions(0, 5), bound.sample_partitions(0, 5))


def test_bad_input() -> None:
    _, bhc = fitted("niw", 5, 0)
    with pytest.raises(ValueError, match="'kind' parameter of tree_bound must be .*pairs"):
        tree_bound(bhc, "best")
    with pytest.raises(ValueError, match="start must be a merge number from 0 to 3, but it is 4"):
        tree_bound(bhc, "pairs", start=4)
    with pytest.raises(ValueError, match="'max_pairs' parameter of tree_bound must be a whole number of at least 1"):
        tree_bound(bhc, "pairs", max_pairs=0)
    with pytest.raises(ValueError, match="'both_children' parameter of tree_bound must be .*bool.* Got 'no' instead"):
        tree_bound(bhc, "alternatives", both_children="no")
    with pytest.raises(ValueError, match="draws are available for bounds of kind"):
        tree_bound(bhc, "intervals").coclustering()
    with pytest.raises(ValueError, match="num_samples must be a whole number"):
        tree_bound(bhc, "pairs").sample_partitions(0, 0)


@pytest.mark.slow
def test_trees_of_completed_tables_have_no_bounds() -> None:
    X = np.random.default_rng(0).normal(size=(12, 2))
    X[[1, 5, 7], [0, 1, 0]] = np.nan
    by_column = bnp.BHC(partial(dpm, component=bnp.NormalInverseGamma(np.zeros(2), 0.5, 2.0, 1.0))).fit(X)
    bounds = [tree_bound(by_column, kind) for kind in KINDS]
    assert max(bounds) == max(bounds[-2:]) and bounds[0] <= bounds[1] <= bounds[2] <= bounds[3]
    bhc = bnp.BHC(partial(dpm, component=bnp.NormalInverseWishart(np.zeros(2), 0.5, 4.0, np.eye(2)))).fit(X)
    for kind in KINDS:
        with pytest.raises(ValueError, match=r"a table in which 3 missing values were imputed.*independent columns"):
            tree_bound(bhc, kind)
    with pytest.raises(ValueError, match="3 missing values were imputed"):
        bnp.evidence.occupancy(bhc, np.zeros((4, 12), int))

"""The occupancy identity: tree-consistency against brute force, the value against the exact evidence, and on bad input."""

from __future__ import annotations

from functools import partial

import arviz as az
import jax
import numpy as np
import pytest
from numpyro.infer import MCMC
from sklearn.exceptions import NotFittedError

import bnp_hier as bnp
from bnp_hier.evidence.occupancy_identity import _effective_draws, tree_consistent
from bnp_hier.trees import Dendrogram
from tests.oracles.partitions import Enumeration, all_partitions
from tests.oracles.problems import Problem, random_problem


def fitted(problem: Problem) -> bnp.BHC:
    return bnp.BHC(problem.model, progress_bar=False).fit(problem.X)


def leaf_sets(tree: Dendrogram) -> list[frozenset[int]]:
    sets = [frozenset([item]) for item in range(tree.n_items)]
    for left, right in tree.children:
        sets.append(sets[left] | sets[right])
    return sets


def random_tree(n: int, seed: int) -> Dendrogram:
    rng = np.random.default_rng(seed)
    roots, children = list(range(n)), []
    for t in range(n - 1):
        pair = rng.choice(len(roots), 2, replace=False)
        children.append([roots[i] for i in pair])
        roots = [node for i, node in enumerate(roots) if i not in pair] + [n + t]
    return Dendrogram(np.array(children), rng.normal(size=n - 1))


@pytest.mark.parametrize("n", [2, 5, 7])
def test_consistency_equals_brute_force(n: int) -> None:
    labels = np.array(list(all_partitions(n)))
    # names of labels do not matter
    renamed = np.array([7, -3, 100, 5, 0, 2, 9])[labels]
    for seed in range(5):
        tree = random_tree(n, seed)
        nodes = set(leaf_sets(tree))
        expected = [all(frozenset(np.flatnonzero(z == k)) in nodes for k in set(z)) for z in labels]
        np.testing.assert_array_equal(tree_consistent(tree, labels), expected)
        np.testing.assert_array_equal(tree_consistent(tree, renamed), expected)


def test_items_that_are_merged_for_certain_are_one() -> None:
    """Below a merge with infinite odds the tree's bound holds no partition."""
    tree = Dendrogram(np.array([[0, 1], [4, 2], [5, 3]]), np.array([0.3, np.inf, -0.2]))
    labels = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]])
    np.testing.assert_array_equal(tree_consistent(tree, labels), [True, True, False, False])


@pytest.mark.parametrize(
    "family", ["bernoulli", *(pytest.param(family, marks=pytest.mark.slow) for family in ("niw", "nig", "multinomial"))]
)
def test_identity_on_enumerated_partitions(family: str) -> None:
    """The posterior probability of the consistent partitions is exp(bound)/p(X), without any sampling."""
    for seed in range(3):
        problem = random_problem(family, 6, seed)
        exact = Enumeration(6, problem.log_marginal, problem.alpha)
        bhc = fitted(problem)
        consistent = tree_consistent(bhc.dendrogram_, np.array(exact.labels))
        share = exact.probabilities[consistent].sum()
        assert bhc.log_evidence_bound_ - np.log(share) == pytest.approx(exact.log_evidence, abs=1e-9)


def test_estimate_from_independent_draws() -> None:
    """Six problems of 3000 draws: within 4 standard errors, false-alarm rate 4e-4 in all."""
    for seed in range(6):
        problem = random_problem("bernoulli", 6, seed)
        exact = Enumeration(6, problem.log_marginal, problem.alpha)
        rng = np.random.default_rng(seed)
        draws = np.array(exact.labels)[rng.choice(len(exact.labels), 3000, p=exact.probabilities)]
        found = bnp.evidence.occupancy(fitted(problem), draws)
        value, error, *_ = found
        assert (value, error) == (found.value, found.standard_error)
        assert abs(value - exact.log_evidence) < 4 * error
        assert found.num_samples == 3000
        # of independent draws: sqrt((1 − p)/(p s)), up to the error of the effective number of draws
        share = found.hits / 3000
        assert error == pytest.approx(np.sqrt((1 - share) / share / 3000), rel=0.25)
        assert not found.failed
        assert found.verdict == f"{found.hits} of 3000 draws are consistent with the tree"
        # the same draws as chains
        chains = bnp.evidence.occupancy(fitted(problem), draws.reshape(3, 1000, 6))
        assert chains.value == value


@pytest.mark.slow
def test_estimate_from_the_kernel() -> None:
    """Within 4 standard errors: false-alarm rate 6e-5, and that of a badly estimated effective number of draws."""
    problem = random_problem("nig", 7, 2)
    mcmc = MCMC(
        bnp.PartitionGibbs(problem.model, split_merge=0),
        num_warmup=100,
        num_samples=2000,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), problem.X)
    found = bnp.evidence.occupancy(fitted(problem), mcmc.get_samples(group_by_chain=True)["z"])
    exact = Enumeration(7, problem.log_marginal, problem.alpha).log_evidence
    assert found.num_samples == 4000
    assert found.hits < 4000
    assert abs(found.value - exact) < 4 * found.standard_error < 0.2


def test_correlated_draws_have_a_larger_error() -> None:
    rng = np.random.default_rng(0)
    independent = rng.random((2, 2000)) < 0.3
    sticky = np.repeat(rng.random((2, 100)) < 0.3, 20, axis=1)
    assert _effective_draws(independent) == pytest.approx(4000, rel=0.15)
    assert _effective_draws(sticky) < 500
    assert _effective_draws(sticky) == pytest.approx(float(az.ess(sticky.astype(float), method="mean")))
    # chains that never agree are worth about as many draws as there are chains
    stuck = np.repeat([[True], [False]], 1000, axis=1)
    stuck[0, 0] = False
    assert _effective_draws(stuck) < 10


def two_groups() -> tuple[bnp.BHC, np.ndarray, np.ndarray]:
    X = np.repeat([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]], 3, axis=0)
    component = bnp.BetaBernoulli(np.full(4, 0.1), np.full(4, 0.1))
    bhc = fitted(Problem(component, X, 1.0))
    return bhc, np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 0, 1])


def test_too_few_hits_are_called_failed() -> None:
    bhc, inside, outside = two_groups()
    found = bnp.evidence.occupancy(bhc, np.stack([inside] * 49 + [outside] * 951))
    assert found.failed
    assert found.verdict.startswith("failed: only 49 of 1000 draws are consistent with the tree, fewer than 50; increase")
    assert found.value == pytest.approx(bhc.log_evidence_bound_ - np.log(0.049))
    assert not bnp.evidence.occupancy(bhc, np.stack([inside] * 50 + [outside] * 950)).failed


def test_constant_indicators() -> None:
    bhc, inside, outside = two_groups()
    none = bnp.evidence.occupancy(bhc, np.stack([outside] * 1000))
    assert none.hits == 0
    assert none.failed
    assert np.isnan(none.value)
    assert np.isnan(none.standard_error)
    every = bnp.evidence.occupancy(bhc, np.stack([inside] * 1000))
    assert every.hits == every.num_samples == 1000
    assert not every.failed
    assert (every.value, every.standard_error) == (bhc.log_evidence_bound_, 1e-3)
    # too few draws for an effective number
    assert np.isnan(bnp.evidence.occupancy(bhc, np.stack([inside, outside])).standard_error)


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (np.zeros(6, int), r"draws must have shape \(s, n\) or \(chain, draw, n\), but their shape is \(6,\)"),
        (np.zeros((1, 2, 3, 6), int), r"but their shape is \(1, 2, 3, 6\)"),
        (np.zeros((0, 6), int), r"but their shape is \(0, 6\)"),
        (np.zeros((4, 6)), "whole-number labels, but their type is float64"),
        (np.zeros((4, 5), int), "the draws label 5 items, but the tree has 6"),
    ],
)
def test_bad_draws(draws: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bnp.evidence.occupancy(two_groups()[0], draws)


def test_unfitted() -> None:
    with pytest.raises(NotFittedError):
        bnp.evidence.occupancy(bnp.BHC(partial(print)), np.zeros((4, 6), int))

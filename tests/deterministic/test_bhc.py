"""Bayesian hierarchical clustering against a plain NumPy version and against enumeration of the tree's partitions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.special import digamma, gammaln
from scipy.stats import chisquare, gamma
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bnp_hier as bnp
import tests.oracles.bhc as oracle
from bnp_hier.deterministic.agglomeration import greedy_merging as agglomeration
from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree
from bnp_hier.deterministic.agglomeration.tree_evidence import node_weights, single_cluster_mass, tree_bound, tree_masses
from bnp_hier.models import dpm, dpm_stick_breaking, pitman_yor_mixture
from bnp_hier.utils import progress_bars
from tests.oracles.partitions import Enumeration
from tests.oracles.problems import FAMILIES, Problem, log_marginal, random_problem
from tests.parameters import few

COMPILED = (4, 8, 12)
"""Sizes at which `tree_bound`, compiled anew for every size, is called."""

SPREAD = {"niw": (32, 42), "nig": (14, 26), "bernoulli": (40, 3)}
"""Seeds of problems of eight rows whose trees hold 13 to 22 partitions, most of them probable."""


def tree_of(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        return greedy_tree(problem.component, problem.X, problem.alpha)


def bound_of(problem: Problem, children: np.ndarray) -> float:
    with jax.enable_x64(True):
        alpha = jnp.asarray(problem.alpha)
        return float(tree_bound(problem.component, jnp.asarray(problem.X), alpha, jnp.asarray(children)))


@functools.cache
def fitted(family: str, n: int = 8, which: int = 0) -> tuple[Problem, bnp.BHC]:
    problem = random_problem(family, n, SPREAD[family][which])
    return problem, bnp.BHC(problem.model, refine=None).fit(problem.X)


@functools.cache
def tree_posterior(family: str, n: int = 8, which: int = 0) -> tuple[list[tuple[int, ...]], np.ndarray, list[list[int]]]:
    """All partitions of a fitted tree (as nodes), their probabilities, and the items of every node."""
    problem, bhc = fitted(family, n, which)
    children = bhc.dendrogram_.children
    partitions, masses = oracle.partition_masses(children, problem.log_marginal, problem.alpha)
    return partitions, np.exp(masses - np.logaddexp.reduce(masses)), oracle.node_members(children)


def new_rows(problem: Problem) -> np.ndarray:
    """Rows of the data, and rows unlike them."""
    far = 3.0 * problem.X[:2] + 4.0 if not isinstance(problem.component, bnp.BetaBernoulli) else 1.0 - problem.X[:2]
    return np.vstack([problem.X[:3], far])


# ---- the tree ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family",
    few(FAMILIES),
)
def test_merges_and_bound_equal_plain_numpy_and_bound_is_below_the_evidence(family: str) -> None:
    gaps = []
    for seed in range(40):
        problem = random_problem(family, 3 + seed % 10, seed)
        children, log_odds = tree_of(problem)
        expected, expected_odds, expected_bound = oracle.bhc(problem.n, problem.log_marginal, problem.alpha)
        np.testing.assert_array_equal(children, expected, err_msg=f"seed {seed}")
        # sums of some hundred terms of size 1 to 100 in double precision
        np.testing.assert_allclose(log_odds, expected_odds, rtol=1e-10, atol=1e-10)
        if problem.n in COMPILED:
            assert bound_of(problem, children) == pytest.approx(expected_bound, rel=1e-11, abs=1e-11)
        gaps.append(oracle.evidence(problem.n, problem.log_marginal, problem.alpha) - expected_bound)
    assert min(gaps) > -1e-10
    assert max(gaps) > 0.1  # the bound is no equality: the comparison means something


def test_the_oracles_agree_with_enumeration() -> None:
    problem = random_problem("nig", 6, 3)
    enumeration = Enumeration(6, problem.log_marginal, problem.alpha)
    assert oracle.evidence(6, problem.log_marginal, problem.alpha) == pytest.approx(enumeration.log_evidence, abs=1e-11)
    children, _, bound = oracle.bhc(6, problem.log_marginal, problem.alpha)
    partitions, masses = oracle.partition_masses(children, problem.log_marginal, problem.alpha)
    assert np.logaddexp.reduce(masses) == pytest.approx(bound, abs=1e-11)
    for nodes, mass in zip(partitions, masses, strict=True):
        labels = oracle.labels_of(children, nodes)
        assert mass == pytest.approx(enumeration.log_joint[enumeration.index[labels]], abs=1e-11)


@pytest.mark.parametrize(("family", "n"), [("niw", 150), ("bernoulli", 64)])
def test_every_merge_of_a_larger_tree_is_the_best_available(family: str, n: int) -> None:
    problem = random_problem(family, n, 0)
    children, log_odds = tree_of(problem)
    odds, best = oracle.replay(problem.log_marginal, problem.alpha, children)
    np.testing.assert_allclose(log_odds, odds, atol=1e-8, rtol=0)
    assert (best - odds).max() <= 1e-8
    weights = node_weights(log_odds, children)
    sizes = np.array([len(rows) for rows in oracle.node_members(children)])
    assert weights @ sizes == pytest.approx(n, rel=1e-12)


def test_ties_go_to_the_smallest_nodes_and_refits_are_identical() -> None:
    rng = np.random.default_rng(5)
    grid = bnp.NormalInverseWishart(np.zeros(2), np.asarray(0.5), np.asarray(4.0), np.eye(2))
    problems = [random_problem(family, 40, seed) for family in ("bernoulli", "multinomial", "poisson") for seed in range(6)]
    problems += [Problem(grid, rng.integers(-2, 3, (40, 2)).astype(float), alpha) for alpha in (0.1, 0.5, 1.0, 3.0, 10.0)]
    # mirror images and quarter turns of a grid: nearly every score occurs several times
    problems += [Problem(grid, np.array(list(product((-3.0, -1.0, 1.0, 3.0), repeat=2))), alpha) for alpha in (0.3, 1.0)]
    problems += [Problem(grid, np.tile([[1.0, -2.0]], (20, 1)), 1.0)]  # all rows equal
    repeated = 0
    for problem in problems:
        children, log_odds = tree_of(problem)
        expected, expected_odds, _ = oracle.bhc(problem.n, problem.log_marginal, problem.alpha)
        np.testing.assert_array_equal(children, expected)
        np.testing.assert_allclose(log_odds, expected_odds, rtol=1e-9, atol=1e-9)
        again, odds_again = tree_of(problem)
        np.testing.assert_array_equal(again, children)
        np.testing.assert_array_equal(odds_again, log_odds)
        repeated += problem.n - len(np.unique(problem.X, axis=0))
    assert repeated > 200


def test_growing_in_steps_with_a_progress_bar_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    problem = random_problem("niw", 60, 1)
    children, log_odds = tree_of(problem)
    monkeypatch.setattr(agglomeration, "BAR_FROM", 10)
    monkeypatch.setattr(progress_bars, "can_redraw", lambda: True)
    with jax.enable_x64(True):
        stepwise = greedy_tree(problem.component, problem.X, problem.alpha, True)
        assert "BHC" in capfd.readouterr().err
        silent = greedy_tree(problem.component, problem.X, problem.alpha, False)
        assert capfd.readouterr().err == ""
    for result in (stepwise, silent):
        np.testing.assert_array_equal(result[0], children)
        np.testing.assert_array_equal(result[1], log_odds)


# ---- the tree's partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", few(["niw", "nig", "bernoulli"]))
@pytest.mark.parametrize("which", [0, 1])
def test_node_weights_are_sums_over_partitions_and_gradients_of_the_mass(family: str, which: int) -> None:
    problem, bhc = fitted(family, which=which)
    partitions, probabilities, members = tree_posterior(family, which=which)
    expected = np.zeros(2 * problem.n - 1)
    for nodes, probability in zip(partitions, probabilities, strict=True):
        expected[list(nodes)] += probability
    np.testing.assert_allclose(bhc.node_weights_, expected, atol=1e-12)

    children = jnp.asarray(bhc.dendrogram_.children)
    with jax.enable_x64(True):
        single = single_cluster_mass(problem.component, jnp.asarray(problem.X), problem.alpha, children)
        gradient = jax.grad(lambda s: tree_masses(s, children)[0][-1])(single)
    np.testing.assert_allclose(bhc.node_weights_, np.asarray(gradient), atol=1e-12)
    sizes = np.array([len(rows) for rows in members])
    np.testing.assert_array_equal(bhc.dendrogram_.sizes, sizes)
    assert bhc.node_weights_ @ sizes == pytest.approx(problem.n, rel=1e-13)
    clusters = np.array([len(nodes) for nodes in partitions])
    assert bhc.node_weights_.sum() == pytest.approx(probabilities @ clusters, rel=1e-12)


@pytest.mark.parametrize("family", ["niw", "nig", "bernoulli"])
def test_coclustering_equals_enumeration(family: str) -> None:
    problem, bhc = fitted(family)
    partitions, probabilities, _ = tree_posterior(family)
    expected = np.zeros((problem.n, problem.n))
    for nodes, probability in zip(partitions, probabilities, strict=True):
        labels = np.array(oracle.labels_of(bhc.dendrogram_.children, nodes))
        expected += probability * (labels[:, None] == labels)
    np.testing.assert_allclose(bhc.coclustering(), expected, atol=1e-12)
    assert bhc.coclustering().dtype == np.float64


def test_sampled_partitions_follow_the_tree_posterior() -> None:
    """Chi-square over 20,000 draws; with another key a right sampler fails with probability 1e-4 per family."""
    for family in ("niw", "bernoulli"):
        problem, bhc = fitted(family)
        partitions, probabilities, _ = tree_posterior(family)
        index = {oracle.labels_of(bhc.dendrogram_.children, nodes): k for k, nodes in enumerate(partitions)}
        draws = bhc.sample_partitions(jax.random.key(3), 20_000)
        assert draws.shape == (20_000, problem.n)
        counts = np.zeros(len(partitions))
        for labels, count in zip(*np.unique(draws, axis=0, return_counts=True), strict=True):
            counts[index[tuple(labels.tolist())]] += count  # KeyError: not consistent with the tree, or not canonical
        common = probabilities * 20_000 >= 5
        observed = np.append(counts[common], counts[~common].sum())
        expected = np.append(probabilities[common], probabilities[~common].sum()) * 20_000
        assert common.sum() >= 8
        if expected[-1] < 5:
            observed, expected = observed[:-1], expected[:-1]
            expected *= observed.sum() / expected.sum()
        assert chisquare(observed, expected).pvalue > 1e-4


def test_sampled_partitions_depend_on_the_key_alone() -> None:
    _, bhc = fitted("niw")
    draws = bhc.sample_partitions(7, 50)
    np.testing.assert_array_equal(bhc.sample_partitions(jax.random.key(7), 50), draws)
    assert (bhc.sample_partitions(8, 50) != draws).any()
    with jax.enable_x64(True):  # the user's precision setting is none of its business
        np.testing.assert_array_equal(bhc.sample_partitions(7, 50), draws)


def test_sample_partitions_refuses_no_draws() -> None:
    _, bhc = fitted("niw")
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            bhc.sample_partitions(0, wrong)
    with pytest.raises(TypeError, match="random_state|key"):
        bhc.sample_partitions("seed", 3)


# ---- fitted attributes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["niw", "nig", "bernoulli"])
def test_fitted_attributes(family: str) -> None:
    problem, bhc = fitted(family)
    children, log_odds, bound = oracle.bhc(problem.n, problem.log_marginal, problem.alpha)
    assert isinstance(bhc.dendrogram_, bnp.Dendrogram)
    np.testing.assert_array_equal(bhc.dendrogram_.children, children)
    assert bhc.log_evidence_bound_ == pytest.approx(bound, abs=1e-10)
    assert isinstance(bhc.log_evidence_bound_, float)
    np.testing.assert_allclose(bhc.objective_trace_, [bound], atol=1e-10)
    assert bhc.concentration_ == problem.alpha
    assert bhc.hyperparameters_ == {}
    assert bhc.n_features_in_ == problem.X.shape[1]

    # the labels: from the root down, stop where one cluster is more probable than the split
    def clusters(node: int) -> list[int]:
        if node < problem.n or log_odds[node - problem.n] >= 0:
            return [node]
        left, right = children[node - problem.n]
        return clusters(left) + clusters(right)

    expected = oracle.labels_of(children, tuple(clusters(2 * problem.n - 2)))
    np.testing.assert_array_equal(bhc.labels_, expected)
    assert bhc.n_clusters_ == max(expected) + 1

    # log p(X, labels_) is what NumPyro says of the model
    with jax.enable_x64(True):
        joint = jax.jit(lambda z: log_density(problem.model, (problem.X,), {}, {"z": z})[0])(jnp.asarray(bhc.labels_))
    assert bhc.log_joint_ == pytest.approx(float(joint), abs=1e-10)
    assert bhc.log_joint_ <= bhc.log_evidence_bound_  # the cut is one of the tree's partitions


def test_missing_cells() -> None:
    problem = random_problem("nig", 12, 4)
    X = problem.X.copy()
    X[0, 0] = X[3, 1] = X[7, 0] = np.nan
    X[5] = np.nan
    holes = Problem(problem.component, X, problem.alpha)
    bhc = bnp.BHC(holes.model, refine=None).fit(X)
    children, _, bound = oracle.bhc(12, holes.log_marginal, holes.alpha)
    np.testing.assert_array_equal(bhc.dendrogram_.children, children)
    assert bhc.log_evidence_bound_ == pytest.approx(bound, abs=1e-10)
    assert bhc.score_samples(X)[5] == pytest.approx(0.0, abs=1e-12)  # a row without cells has density one


# ---- prediction ----------------------------------------------------------------------------------------------------------


def brute_force_shares(family: str, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Probabilities of the fitted labels and a new cluster for one row, and its log predictive density."""
    problem, bhc = fitted(family)
    partitions, probabilities, members = tree_posterior(family)
    n, alpha = problem.n, problem.alpha
    density = {node: np.exp(problem.log_predictive(members[node], x)) for node in set().union(*partitions)}
    weights = np.zeros(bhc.n_clusters_ + 1)
    weights[-1] = alpha / (n + alpha) * np.exp(problem.log_predictive([], x))
    for nodes, probability in zip(partitions, probabilities, strict=True):
        for node in nodes:
            for item in members[node]:  # seated next to each item with equal probability
                weights[bhc.labels_[item]] += probability * density[node] / (n + alpha)
    return weights / weights.sum(), float(np.log(weights.sum()))


@pytest.mark.parametrize("family", ["niw", "nig", "bernoulli"])
def test_predictions_are_averages_over_the_trees_partitions(family: str) -> None:
    problem, bhc = fitted(family)
    incomplete = problem.X[3:5].copy()
    incomplete[:, 0] = np.nan
    rows = np.vstack([new_rows(problem), incomplete])
    expected = [brute_force_shares(family, x) for x in rows]
    np.testing.assert_allclose(bhc.score_samples(rows), [score for _, score in expected], atol=1e-10)
    probabilities = bhc.predict_proba(rows)
    np.testing.assert_allclose(probabilities, np.array([shares for shares, _ in expected]), atol=1e-10)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(bhc.predict(rows), probabilities.argmax(1))
    assert bhc.score(rows) == pytest.approx(bhc.score_samples(rows).mean(), abs=1e-14)
    assert probabilities.dtype == bhc.score_samples(rows).dtype == np.float64


def test_a_far_row_belongs_to_a_new_cluster() -> None:
    problem, bhc = fitted("niw")
    far = problem.X.mean(0) + [[1e4, -1e4]]
    assert bhc.predict_proba(far).shape == (1, bhc.n_clusters_ + 1)
    assert bhc.predict_proba(far)[0, -1] == pytest.approx(brute_force_shares("niw", far[0])[0][-1], abs=1e-9)


@pytest.mark.slow
def test_predictive_density_integrates_to_one_in_one_column() -> None:
    # substitution x = 2 tan(t), Gauss-Legendre
    nodes, weights = np.polynomial.legendre.leggauss(2000)
    t = nodes * np.pi / 2
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, (6, 1)), rng.normal(2, 0.5, (6, 1))])
    component = bnp.NormalInverseGamma(np.zeros(1), 0.2, 1.5, 1.0)
    bhc = bnp.BHC(partial(dpm, component=component, concentration=2.0)).fit(X)
    jacobian = weights * np.pi / 2 * 2 / np.cos(t) ** 2
    assert jacobian @ np.exp(bhc.score_samples(2 * np.tan(t)[:, None])) == pytest.approx(1.0, abs=1e-8)


def test_predictive_density_integrates_to_one() -> None:
    # two columns: polar coordinates about the mean, r = 2 tan(t); angles by the trapezium rule
    problem, bhc = fitted("niw")
    nodes, weights = np.polynomial.legendre.leggauss(80)
    t, angle = (nodes + 1) * np.pi / 4, np.arange(50) * 2 * np.pi / 50
    r = 2 * np.tan(t)
    points = problem.X.mean(0) + (r[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)).reshape(-1, 2)
    jacobian = np.repeat(weights * np.pi / 4 * 2 / np.cos(t) ** 2 * r * 2 * np.pi / 50, 50)
    assert jacobian @ np.exp(bhc.score_samples(points)) == pytest.approx(1.0, abs=1e-4)

    # bits: the sum over all rows
    _, bhc = fitted("bernoulli")
    bits = np.array(list(product((0.0, 1.0), repeat=4)))
    assert np.exp(bhc.score_samples(bits)).sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.slow
def test_predictive_is_close_to_the_exact_one_where_the_bound_is_tight() -> None:
    """The exact predictive is (1 − ε) × the tree's + ε × another one, with 1 − ε = exp(bound − log evidence)."""
    X = np.array([[1, 1, 1, 1]] * 5 + [[0, 0, 0, 0]] * 4, dtype=float)
    component = bnp.BetaBernoulli(np.full(4, 0.2), np.full(4, 0.2))
    problem = Problem(component, X, 0.03)
    bhc = bnp.BHC(problem.model).fit(X)
    log_evidence = oracle.evidence(9, problem.log_marginal, 0.03)
    missing = -np.expm1(bhc.log_evidence_bound_ - log_evidence)
    assert 0 < missing < 0.01
    bits = np.array(list(product((0.0, 1.0), repeat=4)))
    exact = np.array(
        [
            np.exp(oracle.evidence(10, Problem(component, np.vstack([X, x]), 0.03).log_marginal, 0.03) - log_evidence)
            for x in bits
        ]
    )
    tree = np.exp(bhc.score_samples(bits))
    assert exact.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(exact - tree).sum() / 2 <= missing
    assert (exact >= (1 - missing) * tree - 1e-14).all()


def test_predicting_many_rows_in_chunks_changes_nothing() -> None:
    problem, bhc = fitted("nig")
    rows = np.random.default_rng(0).normal(scale=3.0, size=(5000, 2))
    for method in (bhc.score_samples, bhc.predict_proba, bhc.predict):
        halves = np.concatenate([method(rows[:2500]), method(rows[2500:])])
        np.testing.assert_allclose(method(rows), halves, rtol=1e-12, atol=1e-12)
    assert bhc.score_samples(rows[:4097]).shape == (4097,)
    np.testing.assert_allclose(bhc.score_samples(np.vstack([rows, rows[:3192]]))[5000:], bhc.score_samples(rows)[:3192])


# ---- hyperparameters -----------------------------------------------------------------------------------------------------


def rate_component(X: np.ndarray) -> bnp.Component:
    """Vectors as in the random problems, so that compiled programs are shared."""
    rate = numpyro.sample("rate", dist.LogNormal(0.5, 1.0))
    return bnp.NormalInverseGamma(np.zeros(2), np.full(2, 0.1), np.full(2, 2.0), jnp.full(2, rate))


hyper_model = partial(dpm, component=rate_component, concentration=dist.Gamma(2.0, 3.0))


def log_hyperprior(alpha: float, rate: float) -> float:
    log_normal = -np.log(rate) - np.log(2 * np.pi) / 2 - (np.log(rate) - 0.5) ** 2 / 2
    return float(gamma.logpdf(alpha, 2.0, scale=1 / 3)) + log_normal


def numpy_bound(X: np.ndarray, children: np.ndarray, alpha: float, rate: float) -> float:
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, rate)
    return float(
        np.logaddexp.reduce(oracle.partition_masses(children, lambda rows: log_marginal(component, X[rows]), alpha)[1])
    )


@functools.cache
def optimised(seed: int) -> tuple[np.ndarray, bnp.BHC, bnp.BHC]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 2)) * rng.choice([0.3, 1.0, 3.0]) + rng.choice([-4.0, 4.0], size=(12, 1))
    return X, bnp.BHC(hyper_model, refine=None, optimize=False).fit(X), bnp.BHC(hyper_model, refine=None, optimize=True).fit(X)


def test_hyperparameters_sit_at_prior_medians() -> None:
    _, fixed, _ = optimised(0)
    assert set(fixed.hyperparameters_) == {"alpha", "rate"}
    assert fixed.hyperparameters_["alpha"] == pytest.approx(gamma.median(2.0, scale=1 / 3), rel=1e-10)
    assert fixed.hyperparameters_["rate"] == pytest.approx(np.exp(0.5), rel=1e-12)
    assert fixed.concentration_ == fixed.hyperparameters_["alpha"]
    assert (fixed.component_.rate == fixed.hyperparameters_["rate"]).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_optimize_climbs(seed: int) -> None:
    X, fixed, best = optimised(seed)
    start = fixed.log_evidence_bound_ + log_hyperprior(**fixed.hyperparameters_)
    assert fixed.objective_trace_ == pytest.approx([start], abs=1e-9)
    assert best.objective_trace_[0] >= start - 1e-9  # the best of several starts, of which this is one
    assert (np.diff(best.objective_trace_) >= 0).all()
    assert best.objective_trace_[-1] > start + 1e-3
    # what is reported belongs to the tree and the hyperparameters that are reported
    found = best.hyperparameters_
    bound = numpy_bound(X, best.dendrogram_.children, **found)
    assert best.log_evidence_bound_ == pytest.approx(bound, abs=1e-9)
    assert best.objective_trace_[-1] == pytest.approx(bound + log_hyperprior(**found), abs=1e-9)
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, found["rate"])
    odds, _ = oracle.replay(lambda rows: log_marginal(component, X[rows]), found["alpha"], best.dendrogram_.children)
    np.testing.assert_allclose(best.dendrogram_.log_odds, odds, atol=1e-9)
    # and it is a stationary point on that tree
    for name in found:
        sides = []
        for step in (1e-4, -1e-4):
            moved = {**found, name: found[name] * np.exp(step)}
            sides.append(numpy_bound(X, best.dendrogram_.children, **moved) + log_hyperprior(**moved))
        assert abs(sides[0] - sides[1]) / 2e-4 < 0.02


def test_gradient_of_the_bound() -> None:
    problem = random_problem("nig", 12, 2)
    children, log_odds = tree_of(problem)
    with jax.enable_x64(True):
        gradient = jax.grad(tree_bound, argnums=(0, 2))(
            problem.component, jnp.asarray(problem.X), problem.alpha, jnp.asarray(children)
        )
    by_component, by_alpha = jax.tree.map(np.asarray, gradient)

    def value(component: bnp.Component, alpha: float) -> float:
        masses = oracle.partition_masses(children, lambda rows: log_marginal(component, problem.X[rows]), alpha)[1]
        return float(np.logaddexp.reduce(masses))

    def slope(function: Callable[[float], float]) -> float:
        return (function(1e-5) - function(-1e-5)) / 2e-5

    # central differences of step 1e-5: truncation and rounding errors of about 1e-9
    by_difference = slope(lambda h: value(problem.component, problem.alpha + h))
    assert by_alpha == pytest.approx(by_difference, rel=1e-6, abs=1e-7)
    fields = {name: np.asarray(getattr(problem.component, name)) for name in ("mean", "kappa", "shape", "rate")}
    for name, field in fields.items():
        for column in range(2):
            step = np.eye(2)[column]

            def moved(h: float, name: str = name, field: np.ndarray = field, step: np.ndarray = step) -> float:
                return value(bnp.NormalInverseGamma(**{**fields, name: field + h * step}), problem.alpha)

            assert getattr(by_component, name)[column] == pytest.approx(slope(moved), rel=1e-6, abs=1e-7)

    # by hand: φ = log(e^φ1 + e^(φ_l + φ_r)) and φ1 = log α + ..., so φ' = r/α + (1 − r)(φ_l' + φ_r')
    r = 1 / (1 + np.exp(-log_odds))
    slopes = [1 / problem.alpha] * problem.n
    for t, (left, right) in enumerate(children):
        slopes.append(r[t] / problem.alpha + (1 - r[t]) * (slopes[left] + slopes[right]))
    by_hand = slopes[-1] + digamma(problem.alpha) - digamma(problem.n + problem.alpha)
    assert by_alpha == pytest.approx(by_hand, rel=1e-10)


def test_the_bound_of_two_rows_by_hand() -> None:
    problem = random_problem("nig", 2, SPREAD["nig"][0])
    alpha, m = problem.alpha, problem.log_marginal
    together, apart = m([0, 1]) - np.log1p(alpha), m([0]) + m([1]) + np.log(alpha) - np.log1p(alpha)
    _, bhc = fitted("nig", 2)
    np.testing.assert_array_equal(bhc.dendrogram_.children, [[0, 1]])
    assert bhc.log_evidence_bound_ == pytest.approx(np.logaddexp(together, apart), abs=1e-12)
    assert bhc.dendrogram_.log_odds[0] == pytest.approx(together - apart, abs=1e-12)


# ---- errors --------------------------------------------------------------------------------------------------------------


def test_unknown_options() -> None:
    problem, _ = fitted("niw")
    with pytest.raises(ValueError, match="method.*'quick'"):
        bnp.BHC(problem.model, method="quick").fit(problem.X)
    with pytest.raises(ValueError, match="refine.*'perfect'"):
        bnp.BHC(problem.model, refine="perfect").fit(problem.X)


def test_max_rounds_must_be_positive() -> None:
    problem, _ = fitted("niw")
    for wrong in (0, -3, 1.5):
        with pytest.raises(ValueError, match="max_rounds"):
            bnp.BHC(problem.model, max_rounds=wrong).fit(problem.X)


def test_models_that_do_not_suit() -> None:
    problem, _ = fitted("niw")
    X = problem.X
    for discount in (0.3, dist.Uniform(0.0, 0.5)):
        model = partial(pitman_yor_mixture, component=problem.component, discount=discount)
        with pytest.raises(ValueError, match="discount"):
            bnp.BHC(model).fit(X)
    with pytest.raises(ValueError, match="no hyperparameter"):
        bnp.BHC(problem.model, optimize=True).fit(X)
    with pytest.raises(ValueError, match="no partition site.*parameters"):
        bnp.BHC(partial(dpm_stick_breaking, component=problem.component)).fit(X)

    def no_likelihood(X: np.ndarray) -> None:
        numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0]))

    with pytest.raises(ValueError, match="ConjugateMixture"):
        bnp.BHC(no_likelihood).fit(X)

    def capped(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(5.0, X.shape[0], max_clusters=2))
        numpyro.sample("X", bnp.ConjugateMixture(problem.component, z), obs=X)

    # a tree's partitions cannot be restricted to two clusters: silence would bound the evidence of another model
    with pytest.raises(ValueError, match="max_clusters"):
        bnp.BHC(capped).fit(X)


def test_unfitted() -> None:
    problem, _ = fitted("niw")
    bhc = bnp.BHC(problem.model)
    calls = [lambda: bhc.sample_partitions(0, 1), bhc.coclustering]
    calls += [partial(method, problem.X) for method in (bhc.predict, bhc.predict_proba, bhc.score_samples, bhc.score)]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


def test_bad_data() -> None:
    problem, bhc = fitted("niw")
    X = problem.X
    for method in (bhc.predict, bhc.predict_proba, bhc.score_samples):
        with pytest.raises(ValueError, match="X has 3 features, but BHC is expecting 2"):
            method(np.zeros((4, 3)))
        with pytest.raises(ValueError, match=r"(?s)Expected 2D array.*reshape\(-1, 1\)"):
            method(X[0])
    fit = bnp.BHC(problem.model, refine=None).fit
    with pytest.raises(ValueError, match="1 sample.*minimum of 2"):
        fit(X[:1])
    holes = X.copy()
    holes[3] = np.nan
    with pytest.raises(ValueError, match="all values are missing in row 3"):
        fit(holes)
    holes = X.copy()
    holes[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinite.*row 3, column 1"):
        fit(holes)
    with pytest.raises(ValueError, match="X has 'a' at row 0, column 0; expected a number"):
        fit([["a", "b"], ["c", "d"]])
    bits, _ = fitted("bernoulli")
    with pytest.raises(ValueError, match=r"0 or 1.*2 at row 1, column 2"):
        bnp.BHC(bits.model).fit(np.array([[0, 1, 0, 1], [1, 1, 2, 0]]))


# ---- scikit-learn's habits, precision, compilation -----------------------------------------------------------------------


@pytest.mark.slow
def test_scikit_learn_habits() -> None:
    problem, bhc = fitted("niw")
    options = {"model": hyper_model, "method": "x", "refine": "y", "shape": "z", "optimize": 1}
    options |= {"max_rounds": -2, "random_state": "seed", "progress_bar": None}
    strange = bnp.BHC(**options)
    assert set(inspect.signature(bnp.BHC).parameters) == set(options)
    for name, value in options.items():
        assert getattr(strange, name) is value
        assert strange.get_params()[name] is value
    copy = clone(bnp.BHC(problem.model, max_rounds=3))
    assert copy.max_rounds == 3
    assert not hasattr(copy, "labels_")
    assert copy.fit(problem.X) is copy
    np.testing.assert_array_equal(copy.dendrogram_.children, bhc.dendrogram_.children)
    assert copy.set_params(max_rounds=5).max_rounds == 5
    np.testing.assert_array_equal(copy.fit_predict(problem.X), bhc.labels_)
    assert "BHC" in repr(copy)
    as_lists = bnp.BHC(problem.model, refine=None).fit(problem.X.tolist(), y=None)
    np.testing.assert_array_equal(as_lists.labels_, bhc.labels_)


@pytest.mark.slow
def test_double_precision_whatever_the_setting() -> None:
    problem, bhc = fitted("niw")
    X, fixed, _ = optimised(0)
    before = jax.config.jax_enable_x64
    for setting in (False, True):
        with jax.enable_x64(setting):
            again, hyper = bnp.BHC(problem.model).fit(problem.X), bnp.BHC(hyper_model, optimize=False).fit(X)
            assert jax.config.jax_enable_x64 == setting
            with pytest.raises(ValueError):
                bnp.BHC(problem.model).fit(problem.X[:1])
            assert jax.config.jax_enable_x64 == setting
            scores = again.score_samples(problem.X)
        for name in ("node_weights_", "objective_trace_"):
            assert getattr(again, name).dtype == np.float64
        assert again.labels_.dtype == np.int64
        assert again.dendrogram_.log_odds.dtype == scores.dtype == np.float64
        assert all(np.asarray(leaf).dtype == np.float64 for leaf in jax.tree.leaves(again.component_))
        np.testing.assert_array_equal(again.dendrogram_.log_odds, bhc.dendrogram_.log_odds)
        np.testing.assert_array_equal(scores, bhc.score_samples(problem.X))
        assert again.log_evidence_bound_ == bhc.log_evidence_bound_
        assert again.log_joint_ == bhc.log_joint_
        assert hyper.hyperparameters_ == fixed.hyperparameters_
        assert hyper.log_evidence_bound_ == fixed.log_evidence_bound_
    assert jax.config.jax_enable_x64 == before


@pytest.mark.slow
def test_a_second_fit_of_the_same_shape_compiles_nothing(compilations: list[str]) -> None:
    rng = np.random.default_rng(2)
    component = bnp.NormalInverseWishart(np.zeros(2), np.asarray(0.1), np.asarray(4.0), np.eye(2))
    one = 0.3 * rng.normal(size=(12, 2))
    three = 0.3 * rng.normal(size=(12, 2)) + np.repeat([[0.0, 9.0], [9.0, 0.0], [-9.0, -9.0]], 4, axis=0)
    model = partial(dpm, component=component)
    first, other = bnp.BHC(model).fit(one), bnp.BHC(model).fit(three)  # between them they take every step
    assert (first.n_clusters_, other.n_clusters_) == (1, 3)
    compilations.clear()
    bnp.BHC(model).fit(one)
    assert not compilations, "the same data again"
    bnp.BHC(model).fit(three + 0.1)
    assert not compilations, "other data"
    jax.jit(lambda x: x * 3.25 + 17.0)(jnp.ones(37))
    assert compilations, "the counter does not count"


@pytest.mark.slow
def test_a_family_of_the_users_own() -> None:
    from tests.components.user_family import ExponentialGamma

    rng = np.random.default_rng(0)
    X = np.concatenate([rng.exponential(1.0, (5, 1)), rng.exponential(100.0, (4, 1))])
    component = ExponentialGamma(np.ones(1), np.ones(1))
    bhc = bnp.BHC(partial(dpm, component=component)).fit(X)

    def marginal(rows: list[int]) -> float:
        # likelihood rate^N exp(−rate Σx), prior Gamma(1, 1): Γ(1 + N) / (1 + Σx)^(1 + N)
        return float(gammaln(1 + len(rows)) - (1 + len(rows)) * np.log1p(X[rows].sum()))

    children, _, bound = oracle.bhc(9, marginal, 1.0)
    np.testing.assert_array_equal(bhc.dendrogram_.children, children)
    assert bhc.log_evidence_bound_ == pytest.approx(bound, abs=1e-10)

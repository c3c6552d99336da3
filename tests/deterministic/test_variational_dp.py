"""Variational Dirichlet processes against enumeration of all labellings and closed forms."""

from __future__ import annotations

import functools
import inspect
import warnings
from functools import partial
from itertools import permutations, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import betaln, digamma, gammaln
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bnp_hier as bnp
from bnp_hier.deterministic.variational.responsibilities import (
    INFERENCES,
    expected_weights,
    label_scores,
    log_label_prior,
    poisson_binomial,
)
from bnp_hier.deterministic.variational_dp import _reordered, _update, log_likelihood_term, lower_bound
from bnp_hier.models import dpm, pitman_yor_mixture
from tests.components.user_family import ExponentialGamma
from tests.oracles.partitions import Enumeration, log_crp
from tests.oracles.problems import Problem, log_marginal, random_problem
from tests.parameters import few

# few shapes, so that compiled programs are shared
N, K = 6, 3
STICKS = INFERENCES[:2]
prior_term = jax.jit(log_label_prior, static_argnames=("inference", "infinite"))
bound_of = jax.jit(lower_bound, static_argnames=("inference", "infinite"))
scores_of, weights_of, updated = (jax.jit(f, static_argnames="inference") for f in (label_scores, expected_weights, _update))
distribution_of = jax.jit(poisson_binomial)


def log_prior_of(labels: np.ndarray, alpha: float, inference: str, infinite: bool = False, k: int = K) -> float:
    """Log probability of labels from 0 to k − 1, weights integrated out, straight from the definitions."""
    counts = np.bincount(labels, minlength=k)
    if inference == "collapsed_dirichlet":
        one = gammaln(alpha / k + counts) - gammaln(alpha / k)
        return float(gammaln(alpha) - gammaln(len(labels) + alpha) + one.sum())
    later = counts[::-1].cumsum()[::-1] - counts
    pieces = betaln(1 + counts, alpha + later) - betaln(1, alpha)
    return float(pieces[: k if infinite else k - 1].sum())


def exact_evidence(problem: Problem, inference: str) -> float:
    """Log p(X) of the truncated or finite model by all Kⁿ labellings."""
    block = functools.cache(lambda rows: problem.log_marginal(rows) if rows else 0.0)
    logs = []
    for z in product(range(K), repeat=problem.n):
        labels = np.array(z)
        blocks = sum(block(tuple(np.flatnonzero(labels == k).tolist())) for k in range(K))
        logs.append(log_prior_of(labels, problem.alpha, inference) + blocks)
    return float(np.logaddexp.reduce(logs))


def random_responsibilities(n: int, k: int, seed: int, hardness: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng([n, k, seed])
    return rng.dirichlet(np.full(k, hardness), size=n)


def variational(model: Any, inference: str = "stick_breaking", **options: Any) -> bnp.VariationalDP:
    return bnp.VariationalDP(model, inference, **({"truncation": K, "n_init": 3} | options))


@functools.cache
def fitted(family: str, inference: str, seed: int) -> tuple[Problem, bnp.VariationalDP]:
    problem = random_problem(family, N, seed)
    return problem, variational(problem.model, inference).fit(problem.X)


def two_clusters() -> tuple[np.ndarray, np.ndarray]:
    truth = np.repeat([0, 1], 20)
    return np.random.default_rng(0).normal(size=(40, 2)) + 12.0 * truth[:, None], truth


@functools.cache
def separated(inference: str) -> tuple[np.ndarray, np.ndarray, bnp.VariationalDP]:
    X, truth = two_clusters()
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False))
    return X, truth, bnp.VariationalDP(model, inference, truncation=8).fit(X)


# ---- expectations --------------------------------------------------------------------------------------------------------


def test_distribution_of_a_count_equals_the_sum_over_all_outcomes(x64: None) -> None:
    for n in (1, 2, 5, 8):
        p = np.random.default_rng(n).random(n)
        p[0] = [0.0, 1.0, 0.3][n % 3]
        expected = np.zeros(n + 1)
        for outcome in product((0, 1), repeat=n):
            expected[sum(outcome)] += np.where(outcome, p, 1 - p).prod()
        got = np.asarray(distribution_of(jnp.asarray(p)))
        np.testing.assert_allclose(got[: n + 1], expected, atol=1e-15)
        np.testing.assert_allclose(got[n + 1 :], 0.0, atol=1e-16)


def test_distribution_of_a_large_count_equals_repeated_convolution(x64: None) -> None:
    p = np.random.default_rng(0).random(1000) ** 3
    expected = functools.reduce(lambda old, q: np.convolve(old, [1 - q, q]), p, np.ones(1))
    got = np.asarray(distribution_of(jnp.asarray(p)))
    np.testing.assert_allclose(got[:1001], expected, atol=1e-15)


@pytest.mark.parametrize(("inference", "infinite"), [*product(STICKS[1:], (False, True)), ("collapsed_dirichlet", False)])
def test_expected_log_prior_equals_the_sum_over_all_labels(inference: str, infinite: bool, x64: None) -> None:
    for n, hardness in product((1, 5), (1.0, 0.1)):
        for alpha in (0.05, 1.0, 7.0):
            r = random_responsibilities(n, K, 0, hardness)
            expected = sum(
                r[np.arange(n), list(z)].prod() * log_prior_of(np.array(z), alpha, inference, infinite)
                for z in product(range(K), repeat=n)
            )
            got = prior_term(jnp.asarray(r), alpha, inference=inference, infinite=infinite)
            assert float(got) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("infinite", [False, True])
def test_stick_breaking_term_is_the_optimum_over_the_pieces(infinite: bool, x64: None) -> None:
    """Equal to Blei & Jordan's sum of digamma terms and KL divergences at q(v_k) = Beta(1 + N_k, α + N_>k)."""
    r, alpha = random_responsibilities(6, K, 1), 0.7
    counts = r.sum(0)
    later = counts[::-1].cumsum()[::-1] - counts
    pieces = K if infinite else K - 1
    a, b = (1 + counts)[:pieces], (alpha + later)[:pieces]
    log_v, log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    labels = counts[:pieces] @ log_v + later[:pieces] @ log_rest
    prior = ((alpha - 1) * log_rest - betaln(1, alpha)).sum()
    entropy = (betaln(a, b) - (a - 1) * log_v - (b - 1) * log_rest).sum()
    got = log_label_prior(jnp.asarray(r), alpha, "stick_breaking", infinite)
    assert float(got) == pytest.approx(labels + prior + entropy, abs=1e-12)


def test_scores_of_single_labels_are_those_of_the_exact_expectation(x64: None) -> None:
    """The expectation is linear in each row of probabilities: its derivative is the exact score, up to a row's constant."""
    for inference, tolerance in zip(INFERENCES, (1e-10, 0.06, 0.06), strict=True):
        gradient = jax.jit(jax.grad(log_label_prior), static_argnums=2)
        for seed, alpha in product(range(4), (0.05, 1.0, 5.0)):
            r = random_responsibilities(16, 6, seed, 0.1) * [1.0, 1.0, 1.0, 0.5, 1e-2, 1e-6]
            r = jnp.asarray(r / r.sum(1, keepdims=True))
            difference = np.asarray(gradient(r, alpha, inference) - scores_of(r, alpha, inference=inference))
            assert np.abs(difference - difference[:, :1]).max() < tolerance, (inference, alpha)
    hard = jnp.eye(3)[jnp.array([0, 0, 1, 2, 2, 2])]
    for inference in INFERENCES:  # certain labels give finite scores
        assert np.isfinite(scores_of(hard, 0.5, inference=inference)).all()
    counts = np.array([2.0, 1.0, 3.0]) - np.asarray(hard)
    np.testing.assert_allclose(scores_of(hard, 0.6, inference="collapsed_dirichlet"), np.log(0.2 + counts), atol=1e-9)


def test_expected_weights(x64: None) -> None:
    r = random_responsibilities(5, K, 3)
    for alpha in (0.2, 3.0):
        for inference in INFERENCES:
            assert float(weights_of(jnp.asarray(r), alpha, inference=inference).sum()) == pytest.approx(1.0, abs=1e-14)
        finite = np.zeros(K)
        for z in product(range(K), repeat=5):
            weight = r[np.arange(5), list(z)].prod()
            finite += weight * (alpha / K + np.bincount(z, minlength=K)) / (alpha + 5)
        np.testing.assert_allclose(weights_of(jnp.asarray(r), alpha, inference="collapsed_dirichlet"), finite, atol=1e-13)
        counts = r.sum(0)
        later = counts[::-1].cumsum()[::-1] - counts
        v = (1 + counts) / (1 + alpha + counts + later)
        sticks = np.array([v[0], (1 - v[0]) * v[1], (1 - v[0]) * (1 - v[1])])
        np.testing.assert_allclose(weights_of(jnp.asarray(r), alpha, inference="stick_breaking"), sticks, atol=1e-13)


# ---- likelihood term -----------------------------------------------------------------------------------------------------


def test_derivative_is_the_expected_log_density_of_a_normal(x64: None) -> None:
    """E[log N(x|µ, Σ)] under normal-inverse-Wishart, with d = 2 (unrolled determinants)."""
    problem = random_problem("niw", 7, 0)
    component, X, r = problem.component, problem.X, random_responsibilities(7, K, 0)
    assert isinstance(component, bnp.NormalInverseWishart)
    rows = component.suff_stats(X)
    got = jax.grad(log_likelihood_term, argnums=2)(component, rows, jnp.asarray(r))
    m0, kappa0, nu0 = np.asarray(component.mean), float(component.kappa), float(component.nu)
    for k in range(K):
        w, d = r[:, k], 2
        kappa, nu = kappa0 + w.sum(), nu0 + w.sum()
        mean = (kappa0 * m0 + w @ X) / kappa
        scale = np.asarray(component.scale) + (w[:, None] * (X - m0)).T @ (X - m0) - kappa * np.outer(mean - m0, mean - m0)
        log_det = np.linalg.slogdet(scale)[1] - d * np.log(2) - digamma((nu - np.arange(d)) / 2).sum()  # E log det Σ
        square = nu * np.einsum("ni,ij,nj->n", X - mean, np.linalg.inv(scale), X - mean) + d / kappa
        np.testing.assert_allclose(got[:, k], -(d * np.log(2 * np.pi) + log_det + square) / 2, atol=1e-10)


def test_derivative_is_the_expected_log_density_of_bits_and_of_waiting_times(x64: None) -> None:
    """A family of the user's own goes through the same lines."""
    problem = random_problem("bernoulli", 6, 0)
    r = random_responsibilities(6, K, 0)
    bits = problem.component
    assert isinstance(bits, bnp.BetaBernoulli)
    got = jax.grad(log_likelihood_term, argnums=2)(bits, bits.suff_stats(problem.X), jnp.asarray(r))
    a, b = bits.a + r.T @ problem.X, bits.b + r.T @ (1 - problem.X)
    both = digamma(a + b)
    np.testing.assert_allclose(got, problem.X @ (digamma(a) - both).T + (1 - problem.X) @ (digamma(b) - both).T, atol=1e-11)

    X = np.random.default_rng(0).exponential(size=(6, 2))
    times = ExponentialGamma(np.array([1.5, 2.0]), np.array([0.5, 1.0]))
    got = jax.grad(log_likelihood_term, argnums=2)(times, times.suff_stats(X), jnp.asarray(r))
    a, b = times.a + r.sum(0)[:, None], times.b + r.T @ X
    np.testing.assert_allclose(got, (digamma(a) - np.log(b)).sum(1) - X @ (a / b).T, atol=1e-11)


@pytest.mark.parametrize("family", ["niw", "nig", "poisson"])
def test_bound_of_certain_labels_is_their_log_joint(family: str, x64: None) -> None:
    problem = random_problem(family, 5, 2)
    rows = problem.component.suff_stats(problem.X)
    labels = np.array([0, 2, 2, 0, 1])
    blocks = sum(problem.log_marginal(np.flatnonzero(labels == k)) for k in range(K))
    for inference in INFERENCES:
        got = bound_of(problem.component, rows, jnp.eye(K)[labels], problem.alpha, inference=inference)
        expected = blocks + log_prior_of(labels, problem.alpha, inference)
        assert float(got) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("family", ["niw", "nig", "bernoulli", "multinomial", "poisson"])
def test_an_update_of_the_stick_breaking_form_never_lowers_the_bound(family: str, x64: None) -> None:
    """Without the guard of the ascent, from soft and from certain labels."""
    problem = random_problem(family, 16, 5)
    rows = problem.component.suff_stats(problem.X)
    update, bound = (partial(function, inference="stick_breaking") for function in (updated, bound_of))
    certain = np.eye(4)[np.random.default_rng(1).integers(0, 4, 16)]
    for start in (random_responsibilities(16, 4, 0), random_responsibilities(16, 4, 1, 0.1), certain):
        r, trace = jnp.asarray(start), []
        for _ in range(25):
            trace.append(float(bound(problem.component, rows, r, problem.alpha)))
            r = update(problem.component, rows, r, problem.alpha)
        assert (np.diff(trace) >= -1e-10).all()
        assert trace[-1] > trace[0] + 1e-3


# ---- bounds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "inference"),
    few(product(["niw", "nig", "bernoulli", "multinomial"], INFERENCES), len(INFERENCES)),  # the prior knows no family
)
def test_bounds_lie_below_the_exact_evidence(family: str, inference: str) -> None:
    for seed in range(5):
        problem, fit = fitted(family, inference, seed)
        evidence = exact_evidence(problem, inference)
        assert fit.log_evidence_bound_ <= evidence + 1e-9, seed
        assert fit.log_evidence_bound_ > evidence - 5.0, seed  # a bound that says something
        assert fit.log_evidence_bound_ == pytest.approx(fit.init_bounds_.max(), abs=1e-9)
        assert fit.log_evidence_bound_ == pytest.approx(fit.objective_trace_[-1], abs=1e-9)
        assert (np.diff(fit.objective_trace_) >= 0).all()
        if inference == "collapsed_dirichlet":
            assert fit.infinite_bound_ is None
            assert fit.bound_target_ == "finite Dirichlet"
        else:
            exact = Enumeration(problem.n, problem.log_marginal, problem.alpha)
            assert fit.infinite_bound_ is not None
            assert fit.infinite_bound_ <= exact.log_evidence + 1e-9, seed
            assert fit.bound_target_ == "truncated stick-breaking"
        assert fit.bound_space_ == "labels"


def test_integrating_the_pieces_out_tightens_the_bound(x64: None) -> None:
    """For the same q(labels) the collapsed bound is never lower."""
    problem = random_problem("nig", 6, 1)
    rows = problem.component.suff_stats(problem.X)
    for seed, hardness, infinite in product(range(3), (0.1, 1.0), (False, True)):
        r = jnp.asarray(random_responsibilities(6, K, seed, hardness))
        plain, collapsed = (
            bound_of(problem.component, rows, r, problem.alpha, inference=name, infinite=infinite) for name in STICKS
        )
        assert float(collapsed) >= float(plain) - 1e-12


def test_order_of_the_components_is_the_best_of_all_orders(x64: None) -> None:
    reorder = jax.jit(_reordered)
    for seed, alpha in product(range(10), (0.2, 1.0, 6.0)):
        r = random_responsibilities(12, 4, seed, 0.2)
        best = max(float(prior_term(r[:, list(o)], alpha, inference="stick_breaking")) for o in permutations(range(4)))
        got = np.asarray(reorder(jnp.asarray(r), alpha))
        assert float(prior_term(got, alpha, inference="stick_breaking")) == pytest.approx(best, abs=1e-12)
        assert sorted(got.sum(0)) == pytest.approx(sorted(r.sum(0)))


@pytest.mark.parametrize("inference", few(INFERENCES))
def test_bound_and_trace_on_more_rows(inference: str) -> None:
    X, _, fit = separated(inference)
    assert fit.converged_
    assert 1 <= fit.n_iter_ <= 500
    assert (np.diff(fit.objective_trace_) >= 0).all()
    np.testing.assert_allclose(fit.responsibilities_.sum(1), 1.0, atol=1e-12)
    assert fit.responsibilities_.shape == (len(X), 8)
    assert fit.init_bounds_.shape == (5,)
    assert fit.weights_.sum() == pytest.approx(1.0, abs=1e-12)
    if inference != "collapsed_dirichlet":
        assert (np.diff(fit.responsibilities_.sum(0)[:-1]) <= 1e-9).all()  # large ones first


def component_in_plane() -> bnp.NormalInverseWishart:
    return bnp.NormalInverseWishart(np.zeros(2), np.asarray(0.01), np.asarray(4.0), np.eye(2))


# ---- clusters and predictions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", few(INFERENCES))
def test_two_separated_clusters_are_found(inference: str) -> None:
    X, truth, fit = separated(inference)
    np.testing.assert_array_equal(fit.labels_, truth)
    assert fit.n_clusters_ == 2
    own = fit.responsibilities_[np.arange(len(X)), fit.label_components_[fit.labels_]]
    assert (own > 0.99).all()
    assert fit.predict([X[0], X[-1], [500.0, -500.0]]).tolist() == [0, 1, 2]
    blocks = sum(log_marginal(fit.component_, X[truth == k]) for k in (0, 1))
    assert fit.log_joint_ == pytest.approx(log_crp([20, 20], 1.0) + blocks, abs=1e-9)


@pytest.mark.parametrize("inference", few(INFERENCES))
def test_predictions_follow_from_the_soft_statistics(inference: str) -> None:
    problem, fit = fitted("nig", inference, 3)
    rows = np.vstack([problem.X[:3], problem.X[:2] + 4.0])
    logs = np.empty((5, K))
    with jax.enable_x64(True):
        stats = problem.component.suff_stats(problem.X)
        soft = [jax.tree.map(lambda leaf, k=k: (fit.responsibilities_[:, k, None] * leaf).sum(0), stats) for k in range(K)]
        for k in range(K):
            with_row = [jax.tree.map(lambda a, b: a + b, soft[k], problem.component.suff_stats(x)) for x in rows]
            logs[:, k] = [problem.component.log_marginal(s) - problem.component.log_marginal(soft[k]) for s in with_row]
    logs += np.log(fit.weights_)
    scores = np.logaddexp.reduce(logs, axis=1)
    np.testing.assert_allclose(fit.score_samples(rows), scores, atol=1e-10)
    proba = fit.predict_proba(rows)
    assert proba.shape == (5, fit.n_clusters_ + 1)
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-12)
    expected = np.exp(logs - scores[:, None])
    np.testing.assert_allclose(proba[:, :-1], expected[:, fit.label_components_], atol=1e-10)
    np.testing.assert_array_equal(fit.predict(rows), proba.argmax(1))


@pytest.mark.parametrize("inference", few(INFERENCES))
def test_predictive_density_integrates_to_one(inference: str) -> None:
    _, fit = fitted("nig", inference, 1)
    nodes, gauss = np.polynomial.legendre.leggauss(120)
    t = nodes * np.pi / 2
    points, weights = 2.0 * np.tan(t), gauss * np.pi / np.cos(t) ** 2
    density = np.exp(fit.score_samples(np.array(list(product(points, points)))))
    assert np.outer(weights, weights).ravel() @ density == pytest.approx(1.0, abs=1e-3)


def test_predictive_probabilities_of_all_rows_of_bits_sum_to_one() -> None:
    _, fit = fitted("bernoulli", "stick_breaking", 1)
    everything = np.array(list(product((0.0, 1.0), repeat=4)))
    assert np.exp(fit.score_samples(everything)).sum() == pytest.approx(1.0, abs=1e-12)


def test_all_components_may_own_rows() -> None:
    X = np.array([[0.0, 0.0], [0.1, 0.2], [50.0, 50.0], [50.3, 50.1], [-50.0, 50.0], [-50.2, 50.2]])
    fit = variational(partial(dpm, component=component_in_plane())).fit(X)
    np.testing.assert_array_equal(fit.labels_, [0, 0, 1, 1, 2, 2])
    proba = fit.predict_proba(X)
    assert proba.shape == (N, K + 1)
    np.testing.assert_array_equal(proba[:, K], 0.0)


def test_missing_cells() -> None:
    X = np.array([[0.0, np.nan], [0.1, 0.2], [0.3, -0.1], [np.nan, 50.0], [50.3, 50.1], [50.0, 51.0]])
    component = bnp.NormalInverseGamma(np.zeros(2), np.full(2, 0.01), np.full(2, 2.0), np.full(2, 0.5))
    fit = variational(partial(dpm, component=component)).fit(X)
    np.testing.assert_array_equal(fit.labels_, [0, 0, 0, 1, 1, 1])
    assert np.isfinite(fit.score_samples(X)).all()


# ---- hyperparameters, compilation, habits --------------------------------------------------------------------------------


def rate_component(X: np.ndarray) -> bnp.Component:
    rate = numpyro.sample("rate", dist.LogNormal(0.5, 1.0))
    return bnp.NormalInverseGamma(np.zeros(2), np.full(2, 0.1), np.full(2, 2.0), jnp.full(2, rate))


@pytest.mark.parametrize("inference", few(["stick_breaking", "collapsed_dirichlet"], plain=0, slow=2))
def test_optimize_climbs(inference: str) -> None:
    gamma, normal = dist.Gamma(2.0, 3.0), dist.LogNormal(0.5, 1.0)
    model = partial(dpm, component=rate_component, concentration=gamma)
    X = random_problem("nig", N, 3).X
    fixed, best = (variational(model, inference, optimize=o).fit(X) for o in (False, True))

    def objective(fit: bnp.VariationalDP) -> float:
        with jax.enable_x64(True):
            prior = gamma.log_prob(fit.hyperparameters_["alpha"]) + normal.log_prob(fit.hyperparameters_["rate"])
        return fit.log_evidence_bound_ + float(prior)

    assert objective(best) > objective(fixed) + 1e-3
    assert best.concentration_ == best.hyperparameters_["alpha"] != fixed.concentration_


@pytest.mark.slow
@pytest.mark.parametrize("inference", INFERENCES[1:])
def test_a_second_fit_of_the_same_shape_compiles_nothing(inference: str, compilations: list[str]) -> None:
    rng = np.random.default_rng(2)
    one = 0.3 * rng.normal(size=(N, 2))
    three = one + np.repeat([[0.0, 90.0], [90.0, 0.0], [-90.0, -90.0]], 2, axis=0)
    first = variational(partial(dpm, component=component_in_plane(), concentration=0.1), inference).fit(one)
    scores = first.score_samples(one)
    compilations.clear()
    other = variational(partial(dpm, component=component_in_plane()), inference, tol=1e-5).fit(three)
    assert other.score_samples(three).shape == scores.shape
    assert (first.n_clusters_, other.n_clusters_) == (1, 3)
    assert not compilations
    jax.jit(lambda x: x * 3.5 + 19.0)(jnp.ones(41))
    assert compilations, "the counter does not count"


def test_bad_options() -> None:
    problem = random_problem("niw", 6, 0)
    with pytest.raises(ValueError, match="no hyperparameter"):
        bnp.VariationalDP(problem.model, optimize=True).fit(problem.X)


def test_bad_models_and_data() -> None:
    problem = random_problem("niw", 6, 0)

    def capped(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0], max_clusters=2))
        numpyro.sample("X", bnp.ConjugateMixture(problem.component, z), obs=X)

    with pytest.raises(ValueError, match="must not set max_clusters"):
        bnp.VariationalDP(capped).fit(problem.X)
    with pytest.raises(ValueError, match="discount must be the number 0"):
        bnp.VariationalDP(partial(pitman_yor_mixture, component=problem.component)).fit(problem.X)
    with pytest.raises(ValueError, match="1 sample.*minimum of 2"):
        bnp.VariationalDP(problem.model).fit(problem.X[:1])
    unfitted = bnp.VariationalDP(problem.model)
    for method in (unfitted.predict, unfitted.predict_proba, unfitted.score_samples, unfitted.score):
        with pytest.raises(NotFittedError):
            method(problem.X)
    _, _, fit = separated("stick_breaking")
    with pytest.raises(ValueError, match="X has 1 features, but VariationalDP is expecting 2"):
        fit.predict(np.zeros((3, 1)))


@pytest.mark.slow
def test_too_few_updates_warn() -> None:
    problem, longer = fitted("niw", "stick_breaking", 3)
    with pytest.warns(RuntimeWarning, match="max_iter=1 .*increase max_iter"):
        fit = variational(problem.model, max_iter=1).fit(problem.X)
    assert fit.n_iter_ == len(fit.objective_trace_) == 1
    assert not fit.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        variational(problem.model).fit(problem.X)
    assert longer.converged_
    assert longer.log_evidence_bound_ >= fit.log_evidence_bound_


def test_scikit_learn_habits_and_precision() -> None:
    X, _, fit = separated("stick_breaking")
    options = {
        "model": fit.model,
        "inference": None,
        "truncation": "many",
        "n_init": -1,
        "max_iter": 0.5,
        "tol": "small",
        "optimize": "yes",
        "max_rounds": 0,
        "random_state": 1.5,
    }
    strange = bnp.VariationalDP(**options)
    assert set(inspect.signature(bnp.VariationalDP).parameters) == set(options)
    for name, value in options.items():
        assert getattr(strange, name) is value
        assert strange.get_params()[name] is value
    for setting in (False, True):
        with jax.enable_x64(setting):
            again = clone(fit).set_params(random_state=jax.random.key(0))
            assert again.fit(X) is again
            assert jax.config.jax_enable_x64 == setting
            scores = again.score_samples(X)
        np.testing.assert_array_equal(again.responsibilities_, fit.responsibilities_)
        np.testing.assert_array_equal(scores, fit.score_samples(X))
        assert (
            scores.dtype == again.responsibilities_.dtype == again.weights_.dtype == again.objective_trace_.dtype == np.float64
        )
        assert again.labels_.dtype == np.int64
        assert again.log_evidence_bound_ == fit.log_evidence_bound_

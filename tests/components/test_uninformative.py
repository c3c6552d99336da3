"""Normal rows with an improper prior: its integrals, limits, posterior, and where it can and cannot be used."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC
from scipy.integrate import dblquad
from scipy.special import gammaln, multigammaln, psi
from scipy.stats import multivariate_normal

import bnp_hier as bnp
from bnp_hier.components.normal_family import NormalStatistics
from bnp_hier.deterministic.hard_assignment.free_energies import scores_from
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm
from tests.parameters import few

RNG = np.random.default_rng(3)
X3 = RNG.normal(size=(9, 3)) @ RNG.normal(size=(3, 3)) + [0.0, 40.0, -1.0]
THREE = np.concatenate([RNG.normal(size=(25, 2)) * [1.0, 0.4] + center for center in ([0, 0], [9, 1], [2, 8])])
BOX3 = bnp.UninformativeNormal(low=[-6.0, 30.0, -9.0], high=[5.0, 52.0, 3.0])


def total(component: bnp.UninformativeNormal, X: np.ndarray) -> NormalStatistics:
    return jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(X))


def of_rows(component: bnp.UninformativeNormal, stats: NormalStatistics, X: np.ndarray) -> np.ndarray:
    """E[log p(x|θ)] of each row under the posterior of one cluster."""
    products = jax.tree.map(
        lambda c, t: (c * t).reshape(len(X), -1).sum(1), component.expected_natural_parameters(stats), component.suff_stats(X)
    )
    return np.asarray(sum(jax.tree.leaves(products)))


def scatter_of(X: np.ndarray) -> np.ndarray:
    return len(X) * np.cov(X.T, bias=True).reshape(X.shape[1], X.shape[1])


def free_energy_term(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """One summand of Kurihara & Welling (2009), Eq. 32, with (d/2) log N, without the terms of the labels."""
    n, d = X.shape
    return (
        d * (n - 1) / 2 * np.log(np.pi)
        + d / 2 * np.log(n)
        + (n - 1) / 2 * np.linalg.slogdet(scatter_of(X))[1]
        - multigammaln((n - 1) / 2, d)
        + np.log(np.subtract(high, low)).sum()
    )


@pytest.mark.parametrize("n", [2, 3, 7])
def test_log_marginal_is_the_integral(n: int, x64: None) -> None:
    """d = 1: ∫∫ (1/width) Ω⁻¹ Π N(x|µ, 1/Ω) dµ dΩ, with Ω = exp(t), by adaptive quadrature."""
    X = np.random.default_rng(n).normal(2.0, 1.5, (n, 1))
    component = bnp.UninformativeNormal(low=[-5.0], high=[8.0])
    peak = float(component.log_marginal(total(component, X)))

    def integrand(mean: float, t: float) -> float:
        square = ((X - mean) ** 2).sum()
        return np.exp(n / 2 * (t - np.log(2 * np.pi)) - np.exp(t) / 2 * square - np.log(13.0) - peak)

    center, spread = X.mean(), X.std()

    def reach(t: float) -> float:
        return 9.0 * np.exp(-t / 2) / np.sqrt(n)

    begin = -2 * np.log(spread) - 60.0 / (n - 1)
    ratio, _ = dblquad(
        integrand, begin, -2 * np.log(spread) + 8.0, lambda t: center - reach(t), lambda t: center + reach(t), epsabs=1e-10
    )
    np.testing.assert_allclose(ratio, 1.0, rtol=1e-6)


def test_log_marginal_is_the_corrected_free_energy(x64: None) -> None:
    for n in (4, 6, 9):
        expected = -free_energy_term(X3[:n], BOX3.low, BOX3.high)
        np.testing.assert_allclose(BOX3.log_marginal(total(BOX3, X3[:n])), expected, rtol=0, atol=1e-9)


def test_is_the_limit_of_proper_priors(x64: None) -> None:
    """The normal-inverse-Wishart marginal at ν = −1, κ → 0, scale → 0, up to one constant for all clusters."""
    kappa, nu, d = 1e-14, -1.0, 3

    def proper(X: np.ndarray) -> float:
        n = len(X)
        scale = scatter_of(X) + 1e-14 * np.eye(d) + kappa * n / (kappa + n) * np.outer(X.mean(0), X.mean(0))
        return (
            -n * d / 2 * np.log(np.pi)
            - d / 2 * np.log(kappa + n)
            - (nu + n) / 2 * np.linalg.slogdet(scale)[1]
            + multigammaln((nu + n) / 2, d)
        )

    clusters = [X3[:4], X3[2:8], X3, 0.3 * X3[:5]]
    gaps = [float(BOX3.log_marginal(total(BOX3, X))) - proper(X) for X in clusters]
    constant = d / 2 * np.log(np.pi) - np.log(BOX3.high - BOX3.low).sum()
    np.testing.assert_allclose(gaps, constant, rtol=0, atol=1e-6)


def test_units_change_nothing(x64: None) -> None:
    """In other units densities change by the same factor for every row."""
    units, shift = np.array([2.0, 0.1, 30.0]), np.array([5.0, -1.0, 1e3])
    other = bnp.UninformativeNormal(low=BOX3.low * units + shift, high=BOX3.high * units + shift)
    for X in (X3[:5], X3):
        expected = BOX3.log_marginal(total(BOX3, X)) - len(X) * np.log(units).sum()
        np.testing.assert_allclose(other.log_marginal(total(other, X * units + shift)), expected, rtol=0, atol=1e-8)


def test_predictive_is_the_ratio_of_marginals(x64: None) -> None:
    new = RNG.normal(size=(6, 3)) * 4.0 + [0.0, 40.0, -1.0]
    for n in (4, 9):
        stats = total(BOX3, X3[:n])
        ratio = [
            float(BOX3.log_marginal(jax.tree.map(jnp.add, stats, BOX3.suff_stats(x))) - BOX3.log_marginal(stats)) for x in new
        ]
        np.testing.assert_allclose(BOX3.log_predictive(stats, jnp.asarray(new)), ratio, rtol=0, atol=1e-8)
        np.testing.assert_allclose(BOX3.predictive(stats).log_prob(jnp.asarray(new)), ratio, rtol=0, atol=1e-8)


def test_posterior_is_the_paper_s(x64: None) -> None:
    """Eq. 31, and Bayes' theorem: log likelihood + log prior − log posterior is the log marginal at any parameters."""
    stats = total(BOX3, X3)
    posterior = BOX3.posterior(stats)
    np.testing.assert_allclose(posterior.loc, X3.mean(0), rtol=1e-10)
    for parameters in np.asarray(posterior.sample(jax.random.key(1), (3,))):
        mean, covariance = parameters[0], parameters[1:]
        likelihood = multivariate_normal(mean, covariance).logpdf(X3).sum()
        # |Ω|^(−(d+1)/2) dΩ is |Σ|^(−(d+1)/2) dΣ
        prior = -np.linalg.slogdet(covariance)[1] * 2 - np.log(BOX3.high - BOX3.low).sum()
        value = likelihood + prior - float(posterior.log_prob(jnp.asarray(parameters)))
        np.testing.assert_allclose(BOX3.log_marginal(stats), value, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_expected_log_likelihood_equals_monte_carlo(x64: None) -> None:
    """40,000 draws, |z| < 5 for 9 rows: false-alarm rate below 1e-5."""
    stats = total(BOX3, X3)
    parameters = BOX3.posterior(stats).sample(jax.random.key(0), (40_000,))
    draws = np.asarray(jax.vmap(lambda theta: BOX3.likelihood(theta).log_prob(jnp.asarray(X3)))(parameters))
    errors = draws.std(0) / np.sqrt(len(draws))
    assert errors.max() < 0.1
    assert (np.abs(of_rows(BOX3, stats, X3) - draws.mean(0)) < 5 * errors).all()


def test_equals_the_corrected_labelling_cost(x64: None) -> None:
    """Eq. 34 with (N − 1)/(2N) S⁻¹ and −ψ(N + 1), plus the (d/2) log π that it leaves out."""
    n, d = X3.shape
    stats, scatter = total(BOX3, X3), np.cov(X3.T, bias=True)
    centred = X3 - X3.mean(0)
    cost = (
        (n - 1) / (2 * n) * np.einsum("ni,ij,nj->n", centred, np.linalg.inv(scatter), centred)
        + np.linalg.slogdet(n * scatter)[1] / 2
        + d / (2 * n)
        - psi((n - np.arange(1, d + 1)) / 2).sum() / 2
        - psi(n + 1)
    )
    scores = scores_from(
        BOX3, jax.tree.map(lambda leaf: leaf[None], stats), jnp.full(1, float(n)), Prior(jnp.asarray(1.0)), "finite"
    )
    found = of_rows(BOX3, stats, X3) + float(scores.log_weight[0])
    np.testing.assert_allclose(found, -cost - d / 2 * np.log(np.pi), rtol=0, atol=1e-8)


def test_quadratic_form_is_the_expected_log_likelihood(x64: None) -> None:
    natural = BOX3.expected_natural_parameters(total(BOX3, X3))
    form, y = BOX3.row_quadratic(natural), BOX3.coordinates(X3)
    value = form.constant + y @ form.linear + jnp.einsum("ni,ij,nj->n", y, form.square, y)
    np.testing.assert_allclose(value, of_rows(BOX3, total(BOX3, X3), X3), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_too_few_rows_and_flats_are_refused(x64: None) -> None:
    flat = np.column_stack([X3[:, 0], X3[:, 1], 2 * X3[:, 0] - X3[:, 1]])
    clusters = [X3[:0], X3[:1], X3[:3], X3[:4], flat, np.repeat(X3[:1], 9, 0), X3]
    stats = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(total(BOX3, X) for X in clusters))
    found = np.asarray(BOX3.log_marginal(stats))
    assert found[0] == 0.0
    np.testing.assert_array_equal(np.isfinite(found), [True, False, False, True, False, False, True])
    assert (found[[1, 2, 4, 5]] == -np.inf).all()

    natural = BOX3.expected_natural_parameters(stats)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(natural))
    scores = np.asarray(jax.vmap(lambda one: of_row(one, X3[0]))(natural))
    assert (scores[[0, 1, 2, 4, 5]] < -1e100).all() and (np.abs(scores[[3, 6]]) < 100).all()
    densities = np.asarray(BOX3.log_predictive(stats, jnp.asarray(X3[0])))
    np.testing.assert_array_equal(np.isfinite(densities), [False, False, False, True, False, False, True])


def of_row(natural: NormalStatistics, x: np.ndarray) -> jax.Array:
    """Score of one row at one cluster."""
    return sum(jax.tree.leaves(jax.tree.map(lambda c, t: (c * t).sum(), natural, BOX3.suff_stats(x))))


MODEL = partial(dpm, component=bnp.UninformativeNormal.from_data(THREE), concentration=1.0)


@pytest.mark.parametrize("prior", few(["dp", "finite"]))
def test_bayesian_kmeans_finds_the_clusters_by_splits(prior: str) -> None:
    truth = np.repeat(np.arange(3), 25)
    fit = bnp.BayesianKMeans(MODEL, label_prior=prior, n_init=1, polish=False).fit(THREE)
    np.testing.assert_array_equal(fit.labels_, truth)
    trace = fit.objective_trace_
    assert len(trace) > 2 and np.isfinite(trace).all() and (np.diff(trace) <= 0).all()
    low, high = THREE.min(0), THREE.max(0)
    terms = sum(free_energy_term(THREE[truth == k], low, high) for k in range(3))
    if prior == "finite":  # Eq. 32: Dirichlet(1, ..., 1) weights
        labels = gammaln(3) - gammaln(75 + 3) + 3 * gammaln(26)
    else:
        labels = 3 * gammaln(25) + gammaln(1) - gammaln(75 + 1)
    np.testing.assert_allclose(fit.free_energy_, terms - labels, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_small_clusters_of_a_start_dissolve_and_the_tree_agrees() -> None:
    """k-means++ with 32 seeds leaves clusters of one or two rows, which have no posterior."""
    dense, tree = (
        bnp.BayesianKMeans(MODEL, n_init=(32,), polish=False, assignment=assignment).fit(THREE)
        for assignment in ("dense", "kd_tree")
    )
    assert np.isfinite(dense.free_energy_) and dense.counts_.min() > 2
    np.testing.assert_array_equal(dense.labels_, tree.labels_)


@pytest.mark.parametrize(
    "use",
    [
        lambda: bnp.MAPDP(MODEL).fit(THREE),
        lambda: bnp.BHC(MODEL).fit(THREE),
        lambda: bnp.BHC(MODEL, refine=None).fit(THREE),
        lambda: bnp.AgglomerativeBayesianClustering(MODEL).fit(THREE),
        lambda: bnp.AgglomerativeBayesianClustering(MODEL, engine="conga_line").fit(THREE),
        lambda: bnp.VariationalDP(MODEL).fit(THREE),
        lambda: bnp.BayesianKMeans(MODEL, n_init=1).fit(THREE),
        lambda: bnp.BayesianKMeans(MODEL, n_init=1, polish=False).fit(THREE).score_samples(THREE),
        lambda: bnp.BayesianKMeans(MODEL, n_init=1, polish=False).fit(THREE).predict(THREE),
        lambda: MCMC(bnp.PartitionGibbs(MODEL), num_warmup=0, num_samples=1, progress_bar=False).run(jax.random.key(0), THREE),
    ],
    ids=["MAPDP", "BHC", "BHC greedy", "agglomerative", "conga lines", "variational", "polish", "score", "predict", "Gibbs"],
)
def test_other_uses_say_why_not(use: object) -> None:
    with pytest.raises(ValueError, match="improper prior: a new cluster of one row has no density"):
        use()  # type: ignore[operator]


def test_no_posterior_without_enough_rows() -> None:
    for use in (BOX3.prior, lambda: BOX3.predictive(BOX3.empty()), lambda: BOX3.posterior(total(BOX3, X3[:3]))):
        with pytest.raises(ValueError, match="a posterior needs at least 4 rows"):
            use()
    with pytest.raises(ValueError, match="a posterior needs at least 4 rows"):
        BOX3.sample_parameters(jax.random.key(0), BOX3.empty())


@pytest.mark.slow
def test_rows_in_a_flat_have_no_fit() -> None:
    flat = np.column_stack([np.arange(30.0), 2.0 * np.arange(30.0)])
    model = partial(dpm, component=bnp.UninformativeNormal.from_data(flat))
    with pytest.raises(
        ValueError, match="no partition with a finite free energy was found under UninformativeNormal; use a proper prior"
    ):
        bnp.BayesianKMeans(model, n_init=1, polish=False).fit(flat)


def test_bad_boxes() -> None:
    with pytest.raises(ValueError, match="low must be less than high in every column"):
        bnp.UninformativeNormal(low=[0.0, 1.0], high=[1.0, 1.0])
    with pytest.raises(ValueError, match="same length"):
        bnp.UninformativeNormal(low=[0.0, 1.0], high=[1.0])
    with pytest.raises(ValueError, match="constant in column 1"):
        bnp.UninformativeNormal.from_data(np.column_stack([np.arange(4.0), np.ones(4)]))

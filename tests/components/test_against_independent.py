"""Marginals and predictives against first principles: quadrature, NumPyro's own densities, and 50-digit arithmetic."""

import jax
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import jit
from scipy import integrate, stats
from scipy.special import gammaln

from bnp_hier.components import (
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
)

RNG = np.random.default_rng(7)
X1 = RNG.normal(1.0, 1.5, size=(4, 1))
X2 = RNG.normal(size=(4, 2)) @ np.array([[1.0, 0.7], [0.0, 0.6]])
BITS = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [1, 0]], dtype=float)
COUNTS = np.array([[3, 0, 1], [0, 2, 2], [5, 2, 0], [1, 1, 4]], dtype=float)


def total(component, X):
    return jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(X))


evidence = jit(lambda component, X: component.log_marginal(total(component, X)))
log_predictive = jit(lambda component, X, probes: component.log_predictive(total(component, X), probes))


def log_integral(log_integrand, *axes):
    """Log of an integral over a box, by the trapezoidal rule (exponentially accurate where the integrand dies smoothly)."""
    values = log_integrand(*np.meshgrid(*axes, indexing="ij"))
    top = values.max()
    integral = np.exp(values - top)
    for axis in reversed(axes):
        integral = integrate.trapezoid(integral, axis, axis=-1)
    assert np.exp(values - top)[[0, -1]].max() < 1e-13  # the box holds the mass along the first axis
    return top + np.log(integral)


# ---- quadrature of prior × likelihood with SciPy's densities ---------------------------------------------------------


def log_normal_column(x, mean, kappa, shape, rate):
    """∫∫ Π N(x_i; m, v) N(m; mean, v/kappa) InverseGamma(v; shape, rate) dm dv, in coordinates (m, log v)."""

    def log_integrand(m, log_v):
        v = np.exp(log_v)
        prior = stats.norm.logpdf(m, mean, np.sqrt(v / kappa)) + stats.invgamma.logpdf(v, shape, scale=rate) + log_v
        return prior + sum(stats.norm.logpdf(value, m, np.sqrt(v)) for value in x)

    # m given v is normal around the posterior mean: measured in its own standard deviations the box is simple
    center = (kappa * mean + x.sum()) / (kappa + len(x))

    def standardized(z, log_v):
        sd = np.exp(log_v / 2) / np.sqrt(kappa + len(x))
        return log_integrand(center + z * sd, log_v) + np.log(sd)

    return log_integral(standardized, np.linspace(-10, 10, 121), np.linspace(-9, 25, 341))


def test_normal_inverse_gamma_by_quadrature(x64):
    component = NormalInverseGamma(np.array([0.3, -0.2]), np.array([0.4, 1.5]), 1.7, np.array([0.6, 2.1]))
    expected = log_normal_column(X2[:, 0], 0.3, 0.4, 1.7, 0.6) + log_normal_column(X2[:, 1], -0.2, 1.5, 1.7, 2.1)
    np.testing.assert_allclose(evidence(component, X2), expected, rtol=1e-10)


def test_normal_inverse_wishart_in_one_dimension_by_quadrature(x64):
    """InverseWishart(nu, s) in one dimension is InverseGamma(nu/2, s/2)."""
    component = NormalInverseWishart(np.array([0.3]), 0.4, 3.4, np.array([[1.2]]))
    expected = log_normal_column(X1[:, 0], 0.3, 0.4, 1.7, 0.6)
    np.testing.assert_allclose(evidence(component, X1), expected, rtol=1e-10)


@pytest.mark.slow
def test_normal_inverse_wishart_in_two_dimensions_by_quadrature(x64):
    """Given Σ the table is normal with row covariance I + 11ᵀ/κ; the three numbers of Σ are integrated on a grid.

    Σ = L Lᵀ in the coordinates (log L₁₁, log L₂₂, L₂₁/L₂₂), with Jacobian |dΣ| = 4 L₁₁³ L₂₂³.
    """
    mean, kappa, nu, scale = np.array([0.3, -0.2]), 0.4, 5.5, np.array([[1.2, 0.3], [0.3, 0.8]])
    n = len(X2)
    rows = np.eye(n) + np.ones((n, n)) / kappa
    residual = X2 - mean
    cross = residual.T @ np.linalg.solve(rows, residual)

    def log_integrand(log_l11, log_l22, ratio):
        l11, l22 = np.exp(log_l11), np.exp(log_l22)
        l21 = ratio * l22
        sigma = np.stack([np.stack([l11**2, l11 * l21]), np.stack([l11 * l21, l21**2 + l22**2])])
        # SciPy factorises one matrix at a time: far from the mass the density is nought
        inverse = np.moveaxis(np.linalg.inv(np.moveaxis(sigma, (0, 1), (-2, -1))), (-2, -1), (0, 1))
        log_det = 2 * (log_l11 + log_l22)
        data = -(inverse * cross[..., None, None, None]).sum((0, 1)) / 2
        data = data - n / 2 * log_det - np.linalg.slogdet(rows)[1] - n * np.log(2 * np.pi)
        jacobian = np.log(4) + 3 * (log_l11 + log_l22)
        keep = (data + jacobian + nu * -log_det / 2) > (data + jacobian + nu * -log_det / 2).max() - 60
        prior = np.full(data.shape, -np.inf)
        prior[keep] = stats.invwishart.logpdf(sigma[:, :, keep], nu, scale)
        return prior + data + jacobian

    grid = np.linspace(-3.0, 4.5, 51), np.linspace(-3.0, 4.5, 51), np.linspace(-14, 14, 113)
    component = NormalInverseWishart(mean, kappa, nu, scale)
    expected = log_integral(log_integrand, *grid)
    np.testing.assert_allclose(evidence(component, X2), expected, rtol=1e-6)


def test_normal_known_covariance_by_quadrature(x64):
    prior, noise = stats.norm(0.5, 1.3), 0.8
    component = NormalKnownCovariance(np.array([0.5]), np.array([[1.3**2]]), np.array([[noise**2]]))
    integral, _ = integrate.quad(lambda m: prior.pdf(m) * stats.norm.pdf(X1[:, 0], m, noise).prod(), -12, 12, limit=200)
    np.testing.assert_allclose(evidence(component, X1), np.log(integral), rtol=1e-9)


def test_normal_known_covariance_in_two_dimensions_by_quadrature(x64):
    mean, prior, noise = np.array([0.5, 0.1]), np.array([[1.3, 0.5], [0.5, 0.9]]), np.array([[0.6, -0.2], [-0.2, 0.4]])

    def log_integrand(a, b):
        m = np.stack([a, b], axis=-1)
        data = sum(stats.multivariate_normal.logpdf(row - m, np.zeros(2), noise) for row in X2)
        return stats.multivariate_normal.logpdf(m, mean, prior) + data

    component = NormalKnownCovariance(mean, prior, noise)
    grid = np.linspace(-6, 6, 161)
    expected = log_integral(log_integrand, grid, grid)
    np.testing.assert_allclose(evidence(component, X2), expected, rtol=1e-10)


def log_bits_column(x, a, b):
    prior = stats.beta(a, b)
    integral, _ = integrate.quad(lambda p: prior.pdf(p) * stats.bernoulli.pmf(x, p).prod(), 0, 1, epsabs=0, limit=200)
    return np.log(integral)


def test_beta_bernoulli_by_quadrature(x64):
    component = BetaBernoulli(np.array([1.7, 0.8]), np.array([1.2, 2.5]))
    expected = log_bits_column(BITS[:, 0], 1.7, 1.2) + log_bits_column(BITS[:, 1], 0.8, 2.5)
    np.testing.assert_allclose(evidence(component, BITS), expected, rtol=1e-9)


def test_dirichlet_multinomial_by_quadrature(x64):
    """Three categories: a double integral over the simplex."""
    concentration = np.array([1.8, 1.3, 2.2])
    component = DirichletMultinomial(concentration)

    def integrand(q, p):
        probabilities = np.array([p, q, 1 - p - q])
        data = np.prod([stats.multinomial.pmf(row, row.sum(), probabilities) for row in COUNTS[:2]])
        return stats.dirichlet.pdf(probabilities, concentration) * data

    integral, _ = integrate.dblquad(integrand, 0, 1, 0, lambda p: 1 - p, epsabs=0, epsrel=1e-7)
    np.testing.assert_allclose(evidence(component, COUNTS[:2]), np.log(integral), rtol=1e-7)


def test_gamma_poisson_by_quadrature(x64):
    shape, rate = np.array([1.7, 0.8, 2.0]), np.array([0.9, 1.4, 0.3])
    component = GammaPoisson(shape, rate)
    expected = 0.0
    for j in range(3):
        prior = stats.gamma(shape[j], scale=1 / rate[j])

        def integrand(r, prior=prior, x=COUNTS[:, j]):
            return prior.pdf(r) * stats.poisson.pmf(x, r).prod()

        expected += np.log(integrate.quad(integrand, 0, 40, epsabs=0, limit=200)[0])
    np.testing.assert_allclose(evidence(component, COUNTS), expected, rtol=1e-9)


def test_product_by_quadrature(x64):
    """One bit and one real column, in the opposite order of the parts."""
    parts = [BetaBernoulli(np.array([1.7]), np.array([1.2])), NormalInverseGamma(np.array([0.3]), 0.4, 1.7, 0.6)]
    component = ProductComponent(parts, [[1], [0]])
    X = np.column_stack([X1[:, 0], BITS[:4, 0]])
    expected = log_normal_column(X1[:, 0], 0.3, 0.4, 1.7, 0.6) + log_bits_column(BITS[:4, 0], 1.7, 1.2)
    np.testing.assert_allclose(evidence(component, X), expected, rtol=1e-9)


# ---- densities that SciPy and NumPyro have -----------------------------------------------------------------------------


def test_normal_inverse_wishart_against_the_textbook_student_t(x64):
    """Murphy (2007): the predictive is Student-t with ν_N − d + 1 degrees of freedom around the posterior mean."""
    mean, kappa, nu, scale = np.array([0.3, -0.2]), 0.4, 5.5, np.array([[1.2, 0.3], [0.3, 0.8]])
    component = NormalInverseWishart(mean, kappa, nu, scale)
    n, average = len(X2), X2.mean(0)
    scatter = (X2 - average).T @ (X2 - average)
    shift = np.outer(average - mean, average - mean) * kappa * n / (kappa + n)
    posterior_mean = (kappa * mean + n * average) / (kappa + n)
    df = nu + n - 1
    spread = (scale + scatter + shift) * (kappa + n + 1) / ((kappa + n) * df)
    probes = np.array([[0.0, 0.0], [2.0, -3.0], [40.0, 10.0]])
    actual = log_predictive(component, X2, probes)
    np.testing.assert_allclose(actual, stats.multivariate_t.logpdf(probes, posterior_mean, spread, df), rtol=1e-11)
    own = dist.MultivariateStudentT(df, posterior_mean, np.linalg.cholesky(spread))
    np.testing.assert_allclose(actual, own.log_prob(probes), rtol=1e-11)


def test_normal_inverse_gamma_is_the_wishart_family_column_by_column(x64):
    """shape = nu/2 and rate = scale/2 in one dimension."""
    nig = NormalInverseGamma(np.array([0.3, -0.2]), np.array([0.4, 1.5]), np.array([1.7, 2.2]), np.array([0.6, 2.1]))
    expected = 0.0
    for j in range(2):
        scale = np.array([[2 * nig.rate[j]]])
        niw = NormalInverseWishart(nig.mean[j : j + 1], nig.kappa[j], 2 * nig.shape[j], scale)
        expected += evidence(niw, X2[:, j : j + 1])
    np.testing.assert_allclose(evidence(nig, X2), expected, rtol=1e-12)


def test_normal_inverse_gamma_against_student_t(x64):
    component = NormalInverseGamma(np.array([0.3]), 0.4, 1.7, 0.6)
    probes = np.array([[-3.0], [0.0], [50.0]])
    expected = stats.t.logpdf(probes[:, 0], 2 * 1.7, 0.3, np.sqrt(0.6 * (0.4 + 1) / (1.7 * 0.4)))
    np.testing.assert_allclose(log_predictive(component, np.zeros((0, 1)), probes), expected, rtol=1e-12)


def test_normal_known_covariance_is_one_large_normal(x64):
    """The whole table is normal, with covariance noise on the diagonal blocks plus the prior's everywhere."""
    mean, prior, noise = np.array([0.5, 0.1]), np.array([[1.3, 0.5], [0.5, 0.9]]), np.array([[0.6, -0.2], [-0.2, 0.4]])
    component = NormalKnownCovariance(mean, prior, noise)
    covariance = np.kron(np.eye(4), noise) + np.kron(np.ones((4, 4)), prior)
    expected = stats.multivariate_normal.logpdf(X2.ravel(), np.tile(mean, 4), covariance)
    np.testing.assert_allclose(evidence(component, X2), expected, rtol=1e-12)


@pytest.mark.parametrize("correlated", [False, True])
def test_means_in_the_basis_of_the_prior(correlated, x64):
    prior, noise = np.diag([2.0, 0.5, 1.0]), np.diag([0.3, 1.0, 0.6])  # without correlations, nothing is decomposed
    if correlated:
        prior[0, 1] = prior[1, 0] = 0.4
    component = NormalKnownCovariance(np.array([0.5, -1.0, 0.0]), prior, noise)
    X = RNG.normal(size=(5, 3))
    sums = jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(X))
    precision = np.linalg.inv(prior) + len(X) * np.linalg.inv(noise)
    covariance = np.linalg.inv(precision)
    mean = covariance @ (np.linalg.inv(prior) @ component.mean + np.linalg.inv(noise) @ X.sum(0))
    expected = component.expected_parameters(sums)
    np.testing.assert_allclose(expected.mean, mean, rtol=1e-12)
    many = jax.tree.map(lambda leaf: jax.numpy.broadcast_to(leaf, (20_000, *leaf.shape)), sums)
    draws = np.asarray(jit(component.sample_parameters)(jax.random.key(0), many))
    # a z-score over 4.5 happens by chance once in 10,000 runs of both cases
    assert np.abs((draws.mean(0) - mean) / np.sqrt(np.diagonal(covariance) / 20_000)).max() < 4.5
    assert np.abs((np.cov(draws.T) - covariance) / np.sqrt(np.outer(*[np.diagonal(covariance)] * 2) / 10_000)).max() < 4.5
    np.testing.assert_allclose(component.log_marginal_up_to(5)(sums), component.log_marginal(sums), rtol=1e-12)


@pytest.mark.parametrize("prior", [2.0 * np.eye(3), np.diag([2.0, 0.5, 1.0])], ids=["spherical", "diagonal"])
@pytest.mark.parametrize("correlation", [0.0, 0.2])
@pytest.mark.parametrize("far", [False, True])
def test_derivatives_where_eigenvalues_are_equal(prior, correlation, far, x64):
    """Those by the basis and those without one, with respect to the rows and to variances and covariances, some of them 0."""
    X, mean = RNG.normal(size=(5, 3)), np.array([0.5, -1.0, 0.0])
    change = np.array([[0.0, correlation, 0.0], [correlation, 0.0, 0.0], [0.0, 0.0, 0.0]])

    def log_marginal(prior, noise, X, by_basis):
        component = NormalKnownCovariance(mean, (prior + prior.T) / 2, (noise + noise.T) / 2, origin=mean + 1 if far else None)
        sums = jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(X))
        return (component.log_marginal_up_to(5) if by_basis else component.log_marginal)(sums)

    given = prior + change, 0.5 * np.eye(3), X
    found, expected = (
        jax.jit(jax.value_and_grad(log_marginal, (0, 1, 2)), static_argnums=3)(*given, way) for way in (True, False)
    )
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12), found, expected)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))

    def moments(prior, noise, X, by_basis):
        component = NormalKnownCovariance(mean, (prior + prior.T) / 2, (noise + noise.T) / 2, origin=mean + 1 if far else None)
        sums = jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(X))
        normal = component.density_of_cells(sums) if by_basis else component.predictive(sums)
        return jax.numpy.sin(normal.loc).sum() + jax.numpy.sin(normal.scale if by_basis else normal.covariance_matrix).sum()

    found, expected = (jax.jit(jax.value_and_grad(moments, (0, 1, 2)), static_argnums=3)(*given, way) for way in (True, False))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12), found, expected)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_beta_bernoulli_is_beta_binomial_without_its_coefficient(x64):
    component = BetaBernoulli(np.array([1.7, 0.8]), np.array([1.2, 2.5]))
    n, ones = len(BITS), BITS.sum(0)
    coefficient = gammaln(n + 1) - gammaln(ones + 1) - gammaln(n - ones + 1)
    binomial = np.asarray(dist.BetaBinomial(component.a, component.b, n).log_prob(ones))
    np.testing.assert_allclose(binomial, stats.betabinom.logpmf(ones, n, component.a, component.b), rtol=1e-9)
    actual = evidence(component, BITS)
    np.testing.assert_allclose(actual, (binomial - coefficient).sum(), rtol=1e-10)


def test_dirichlet_multinomial_row_by_row(x64):
    """Each row given the earlier ones is NumPyro's DirichletMultinomial with the counts so far added to the prior."""
    concentration = np.array([1.8, 0.3, 2.2])
    component = DirichletMultinomial(concentration)
    expected, seen = [], np.zeros(3)
    for row in COUNTS:
        expected.append(stats.dirichlet_multinomial.logpmf(row.astype(int), concentration + seen, int(row.sum())))
        own = dist.DirichletMultinomial(concentration + seen, int(row.sum())).log_prob(row)
        assert float(own) == pytest.approx(expected[-1], rel=1e-6)
        seen = seen + row
    np.testing.assert_allclose(evidence(component, COUNTS), sum(expected), rtol=1e-10)
    np.testing.assert_allclose(log_predictive(component, COUNTS[:-1], COUNTS[-1]), expected[-1], rtol=1e-9)


def test_gamma_poisson_cell_by_cell(x64):
    """Each cell given the earlier ones in its column is negative binomial (NumPyro's GammaPoisson is good to 1e-7)."""
    shape, rate = np.array([1.7, 0.8, 2.0]), np.array([0.9, 1.4, 0.3])
    component = GammaPoisson(shape, rate)
    expected = []
    for i, row in enumerate(COUNTS):
        a, b = shape + COUNTS[:i].sum(0), rate + i
        expected.append(stats.nbinom.logpmf(row, a, b / (b + 1)).sum())
        assert float(dist.GammaPoisson(a, b).log_prob(row).sum()) == pytest.approx(expected[i], rel=1e-6)
    np.testing.assert_allclose(evidence(component, COUNTS), sum(expected), rtol=1e-11)
    np.testing.assert_allclose(log_predictive(component, COUNTS[:3], COUNTS[3]), expected[3], rtol=1e-11)


every_size = pytest.mark.parametrize("n", [3, 9, 12, 30, 200, 5000])


@every_size
def test_bits_keep_float64(n, x64):
    """Exact to rounding, from a few rows to thousands; `jax.scipy.special.betaln` is off by up to 8e-7 near ten."""
    a, b, ones = np.array([1.7, 0.4]), np.array([1.2, 2.5]), np.array([n // 3, n - 2.0])
    component = BetaBernoulli(a, b)
    exact = log_beta(a + ones, b + n - ones) - log_beta(a, b)
    actual = component.log_marginal(type(component.empty())(ones, n - ones))
    np.testing.assert_allclose(actual, exact.sum(), rtol=1e-12)


@every_size
def test_counts_keep_float64(n, x64):
    a, b, x = np.array([1.7, 0.4]), np.array([1.2, 2.5]), np.array([[float(n), 2.0 * n]])
    poisson, multinomial = GammaPoisson(a, b), DirichletMultinomial(a)
    exact = stats.nbinom.logpmf(x, a, b / (b + 1)).sum()
    np.testing.assert_allclose(evidence(poisson, x), exact, rtol=1e-11)
    # the probability of the split of 3n counts, as a beta-binomial in 50 digits
    exact = log_beta(a[:1] + n, a[1:] + 2 * n) - log_beta(a[:1], a[1:])
    exact += gammaln(3 * n + 1) - gammaln(n + 1) - gammaln(2 * n + 1)
    np.testing.assert_allclose(evidence(multinomial, x), exact[0], rtol=1e-10)


def log_beta(a, b):
    """50-digit log beta function, entry by entry."""
    with mpmath.workdps(50):
        return np.array([float(mpmath.log(mpmath.beta(float(x), float(y)))) for x, y in zip(a, b, strict=True)])


# ---- far from the origin: 50-digit arithmetic --------------------------------------------------------------------------

FAR = 1e6 + RNG.normal(size=(20, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 3.0, 0.0], [0.0, 0.1, 0.2]])


def exact_inverse_wishart(X, mean, kappa, nu, scale):
    """Textbook formula on raw moments, in 50 digits: where float64 would lose everything this does not."""
    n, d = X.shape
    rows = [mpmath.matrix([mpmath.mpf(float(v)) for v in row]) for row in X]
    m0, kappa, nu = mpmath.matrix([mpmath.mpf(float(v)) for v in mean]), mpmath.mpf(kappa), mpmath.mpf(nu)
    s0 = mpmath.matrix([[mpmath.mpf(float(v)) for v in row] for row in scale])
    mean_n = (kappa * m0 + sum(rows[1:], rows[0])) / (kappa + n)
    s_n = s0 + kappa * m0 * m0.T - (kappa + n) * mean_n * mean_n.T
    for row in rows:
        s_n = s_n + row * row.T

    def log_multigamma(a):
        terms = mpmath.fsum(mpmath.loggamma(a - mpmath.mpf(j) / 2) for j in range(d))
        return mpmath.mpf(d * (d - 1)) / 4 * mpmath.log(mpmath.pi) + terms

    return (
        -mpmath.mpf(n * d) / 2 * mpmath.log(mpmath.pi)
        + mpmath.mpf(d) / 2 * mpmath.log(kappa / (kappa + n))
        + nu / 2 * mpmath.log(mpmath.det(s0))
        - (nu + n) / 2 * mpmath.log(mpmath.det(s_n))
        + log_multigamma((nu + n) / 2)
        - log_multigamma(nu / 2)
    )


def exact_inverse_gamma(X, mean, kappa, shape, rate):
    return mpmath.fsum(
        exact_inverse_wishart(X[:, j : j + 1], mean[j : j + 1], kappa, 2 * shape, np.array([[2 * rate[j]]]))
        for j in range(X.shape[1])
    )


def exact_known_covariance(X, mean, prior_covariance, covariance):
    """Diagonal covariances: every column is one large normal, by the Sherman-Morrison formula in 50 digits."""
    n, out = len(X), mpmath.mpf(0)
    for j in range(X.shape[1]):
        v, s = mpmath.mpf(float(prior_covariance[j, j])), mpmath.mpf(float(covariance[j, j]))
        y = [mpmath.mpf(float(x)) - mpmath.mpf(float(mean[j])) for x in X[:, j]]
        square = mpmath.fsum(a * a for a in y) / s - mpmath.fsum(y) ** 2 * v / (s * (s + n * v))
        log_det = (n - 1) * mpmath.log(s) + mpmath.log(s + n * v)
        out -= (square + log_det + n * mpmath.log(2 * mpmath.pi)) / 2
    return out


def far_case(name):
    with mpmath.workdps(50):
        if name == "NormalInverseWishart":
            c = NormalInverseWishart.from_data(FAR, learn=False)
            return c, exact_inverse_wishart(FAR, c.mean, c.kappa, c.nu, c.scale)
        if name == "NormalInverseGamma":
            c = NormalInverseGamma.from_data(FAR, learn=False)
            return c, exact_inverse_gamma(FAR, c.mean, c.kappa, c.shape, c.rate)
        c = NormalKnownCovariance.from_data(FAR, learn=False)
        return c, exact_known_covariance(FAR, c.mean, c.prior_covariance, c.covariance)


normal_families = pytest.mark.parametrize("name", ["NormalInverseWishart", "NormalInverseGamma", "NormalKnownCovariance"])


@normal_families
def test_a_million_from_the_origin_in_double_precision(name, x64):
    """Cells are exact to 1e-10 (their last bit); nothing more may be lost."""
    component, exact = far_case(name)
    actual = evidence(component, FAR)
    assert abs(float((mpmath.mpf(float(actual)) - exact) / exact)) < 1e-9


@normal_families
def test_a_million_from_the_origin_in_single_precision(name):
    """float32 has no digit left for these cells, but NumPy data are centred before they are rounded.

    The statistics are made outside ``jit``, as the estimators do; `log_evidence` is in double precision anyway.
    """
    component, exact = far_case(name)
    actual = jit(component.log_marginal)(total(component, FAR))
    assert actual.dtype == np.float32
    assert float(actual) == pytest.approx(float(exact), rel=1e-3)
    assert component.log_evidence(FAR) == pytest.approx(float(exact), rel=1e-9)
    assert not np.allclose(np.float32(FAR) - FAR, 0.0, atol=1e-3)
    single = jit(lambda stats, row: component.cached_log_predictive(component.cache(stats), row))(
        total(component, FAR[:-1]), component.suff_stats(FAR[-1])
    )
    with jax.enable_x64(True):
        double = log_predictive(component, FAR[:-1], FAR[-1])
    assert float(single) == pytest.approx(float(double), rel=1e-4)


def test_from_data_far_away_is_from_data_at_home(x64):
    """Shifting the data shifts the prior with it: the evidence does not change."""
    shift = np.array([2.0**20, -(2.0**22), 2.0**19])  # powers of two: the shifted cells are nearly exact
    near = RNG.integers(-1000, 1000, size=(20, 3)) / 64.0
    for family in (NormalInverseWishart, NormalInverseGamma, NormalKnownCovariance):
        here = evidence(family.from_data(near, learn=False), near)
        there = evidence(family.from_data(near + shift, learn=False), near + shift)
        np.testing.assert_allclose(here, there, rtol=1e-10)

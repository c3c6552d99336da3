"""Proportions along a tree: Dirichlet draws around the parent's, at any size of their concentrations."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from bnp_hier.distributions import TreeMixing
from bnp_hier.distributions.tree_mixing import log_dirichlet_draw
from tests.parameters import few

PATHS = np.array([[2, 5], [2, 1], [4, 3]])  # the root 0, its children 2 and 4, leaves 5 and 1 under 2, 3 under 4; 6 unused
PARENT = {2: 0, 4: 0, 5: 2, 1: 2, 3: 4}


def mixing(root=1.5, concentration=0.8, components=3, paths=PATHS, max_nodes=7, **options):
    return TreeMixing(jnp.asarray(paths), root, concentration, components, max_nodes, **options)


# ---- the density -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("root", "concentration"), few([(1.5, 0.8), (4.0, 20.0)], plain=0, slow=2))
def test_equals_numpyro_s_dirichlet_in_its_measure(root, concentration, x64):
    prior = mixing(root, concentration)
    for value in np.asarray(mixing(30.0, 30.0).sample(jax.random.key(0), (5,))):
        expected = dist.Dirichlet(np.full(3, root / 3)).log_prob(value[0]) + np.log(value[0]).sum()
        for node, parent in PARENT.items():
            expected += dist.Dirichlet(concentration * value[parent]).log_prob(value[node]) + np.log(value[node]).sum()
        np.testing.assert_allclose(prior.log_prob(value), expected, rtol=1e-12)
        value = value.copy()
        value[6] = [0.2, 0.3, 0.5]  # an unused number
        np.testing.assert_allclose(prior.log_prob(value), expected, rtol=1e-12)


def test_an_infinite_root_counts_its_components():
    """With concentrations that are plain numbers, under strict promotion: γ0^K β_rest^γ0 at a root without children."""
    prior = TreeMixing(np.zeros((1, 0), int), 1.5, 1.0, 4, 1, "infinite")
    value = np.array([[0.5, 0.2, 0.0, 0.3]], np.float32)
    np.testing.assert_allclose(prior.log_prob(value), 2 * np.log(1.5) + 1.5 * np.log(0.3), rtol=1e-6)


@pytest.mark.slow
def test_density_and_zeros_together_have_mass_one(x64):
    """Two components at the root with Dir(a, a): the density in the measure dβ/β over (ε, 1 − ε), and a zero at either end.

    With a = 1e-3 the ends hold nearly half of the mass each: the density alone would miss it.
    """
    a, smallest = 1e-3, float(np.finfo(np.float64).tiny)
    prior = mixing(2 * a, 1.0, 2, paths=np.zeros((1, 0), int), max_nodes=1)

    def density(logit):  # in the measure dβ₁/β₁ dβ₂/β₂ on the simplex: the line element of the logit is β₁ β₂ times it
        one = stats.logistic.cdf(logit)
        return float(jnp.exp(prior.log_prob(jnp.array([[one, stats.logistic.sf(logit)]]))))

    middle = integrate.quad(density, np.log(smallest) * 0.999999, -np.log(smallest) * 0.999999, limit=200)[0]
    end = float(jnp.exp(prior.log_prob(jnp.array([[0.0, 1.0]]))))
    assert middle + 2 * end == pytest.approx(1.0, abs=1e-4)
    assert end == pytest.approx(stats.beta.cdf(smallest, a, a), rel=1e-9)
    assert end > 0.2


def test_zeros_stay_zero_below(x64):
    """A component absent at a node is absent below it; the contrary is impossible."""
    value = np.zeros((7, 3))
    value[[0, 4, 3]] = [0.2, 0.3, 0.5]
    value[[2, 5, 1]] = [0.4, 0.6, 0.0]
    prior = mixing()
    expected = prior.log_prob(value)
    assert np.isfinite(expected)
    value[5] = [0.4, 0.5, 0.1]
    assert prior.log_prob(value) == -np.inf


@pytest.mark.parametrize("argument", few([0, 1]))
def test_gradients_in_the_concentrations(argument, x64):
    """Central differences at a draw with zeros and with proportions down to 1e-300; rounding about 1e-8."""
    value = mixing(0.4, 0.2, 9).sample(jax.random.key(1))
    assert (value == 0).any() and ((value > 0) & (value < 1e-20)).any()
    both = [0.3, 0.25]
    log_prob = jax.jit(lambda *c: mixing(*c, 9).log_prob(value))
    gradient = jax.jit(jax.grad(log_prob, argnums=argument))(*both)
    step = 1e-5 * np.eye(2)[argument] * both[argument]
    numeric = (log_prob(*(both + step)) - log_prob(*(both - step))) / (2 * step.sum())
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6)


def plain_log_prob(value, paths, root, concentration, smallest):
    """The density in NumPy, zeros censored at the smallest number."""
    total, parents = 0.0, {0: None}
    for path in paths:
        parents.update(zip(path, (0, *path[:-1]), strict=True))
    for node, parent in parents.items():
        prior = np.full(value.shape[1], root / value.shape[1]) if parent is None else concentration * value[parent]
        prior, own = prior[prior > 0], value[node][prior > 0]
        total += gammaln(prior.sum()) - np.where(own > 0, gammaln(prior), gammaln(prior + 1)).sum()
        total += (prior * np.log(np.maximum(own, smallest))).sum()
    return total


@pytest.mark.slow
def test_single_precision_keeps_the_digits():
    """Sixty nodes of thirty components, their proportions down to zero: differences in γ to three digits."""
    paths = np.stack([np.repeat(np.arange(1, 7), 9), np.arange(7, 61)], axis=1)
    value = mixing(1.0, 0.3, 30, paths, 61).sample(jax.random.key(2))
    assert 0.1 < float((value == 0).mean()) < 0.99
    single = np.array([float(mixing(1.0, c, 30, paths, 61).log_prob(value)) for c in (0.27, 0.3, 0.33)])
    smallest = float(np.finfo(np.float32).tiny)
    double = [plain_log_prob(np.asarray(value, np.float64), paths, 1.0, c, smallest) for c in (0.27, 0.3, 0.33)]
    np.testing.assert_allclose(single, double, rtol=1e-5)
    np.testing.assert_allclose(np.diff(single), np.diff(double), atol=2e-3)


# ---- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_draws_follow_the_dirichlet_of_the_parent(x64):
    """20,000 draws; Kolmogorov-Smirnov of every probability integral transform, at level 1e-6 a node (six nodes)."""
    root, concentration = 2.0, 3.0
    draws = np.asarray(mixing(root, concentration).sample(jax.random.key(3), (20_000,)), np.float64)
    np.testing.assert_allclose(draws[:, [0, *PARENT]].sum(-1), 1.0, atol=1e-12)
    assert not draws[:, 6].any()
    first = draws[:, :, 0]
    assert stats.kstest(first[:, 0], stats.beta(root / 3, 2 * root / 3).cdf).pvalue > 1e-6
    for node, parent in PARENT.items():
        a = np.clip(concentration * first[:, parent], 1e-12, None)
        b = np.clip(concentration * (1 - first[:, parent]), 1e-12, None)
        keep = (a > 0.05) & (b > 0.3)  # elsewhere the transform is rounded to an end
        assert keep.mean() > 0.5
        assert stats.kstest(stats.beta.cdf(first[keep, node], a[keep], b[keep]), "uniform").pvalue > 1e-6


def test_tiny_concentrations():
    """Concentrations down to 1e-30: log Γ variates are −E/a with E exponential, and one component takes all."""
    a = jnp.array([1e-30, 1e-30, 0.0, 3e-30])
    logs = np.asarray(jax.vmap(lambda key: log_dirichlet_draw(key, a))(jax.random.split(jax.random.key(4), 20_000)))
    assert np.isneginf(logs[:, 2]).all()
    assert not np.isnan(logs).any() and (logs.max(-1) == 0).all()
    shares = np.bincount(logs.argmax(-1), minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.2, 0.2, 0, 0.6], atol=5 * np.sqrt(0.25 / 20_000))  # five standard errors
    assert (np.asarray(jnp.exp(log_dirichlet_draw(jax.random.key(5), jnp.array([1e-38, 0.0])))) == [1, 0]).all()


@pytest.mark.slow
def test_shapes_and_batches():
    prior = mixing(np.array([1.0, 2.0]), 0.5)
    draws = prior.sample(jax.random.key(6), (4,))
    assert prior.batch_shape == (2,) and prior.event_shape == (7, 3) and draws.shape == (4, 2, 7, 3)
    assert prior.log_prob(draws).shape == (4, 2)
    np.testing.assert_allclose(prior.log_prob(draws)[1, 1], mixing(2.0, 0.5).log_prob(draws[1, 1]), rtol=1e-6)
    assert prior.support(draws).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concentration": 0.0}, "concentration must be finite and positive, but it is 0.0"),
        ({"concentration": -1.0}, "concentration must be finite and positive, but it is -1.0"),
        ({"root": np.inf}, "root_concentration must be finite and positive, but it is inf"),
        ({"components": 0}, "components must be a whole number of at least 1, but it is 0"),
        ({"max_nodes": 2.5}, "max_nodes must be a whole number of at least 1, but it is 2.5"),
        ({"paths": np.array([1, 2])}, r"paths must be a table of node numbers, \(n, depth\), but it has shape \(2,\)"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        mixing(**options)

"""The partition prior: an exchangeable probability on set partitions, read off any labels."""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import jit
from scipy import stats

from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.distributions import ChineseRestaurantProcess
from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from tests.oracles.partitions import all_partitions, log_crp, log_prior

PARAMETERS = [(0.3, 0.0), (1.0, 0.0), (7.5, 0.0), (0.6, 0.25), (2.0, 0.9), (-0.2, 0.5), (0.0, 0.4)]
every_parameter = pytest.mark.parametrize(("alpha", "discount"), PARAMETERS)


prior_log_prob = jit(lambda prior, labels: prior.log_prob(labels))


def plain_log_prob(labels, alpha, discount, max_clusters=None):
    prior = ChineseRestaurantProcess(alpha, labels.shape[-1], discount=discount, max_clusters=max_clusters)
    return prior.log_prob(labels)


log_prob = jit(plain_log_prob, static_argnames="max_clusters")
gradients = jit(jax.grad(plain_log_prob, argnums=(1, 2)), static_argnames="max_clusters")


@functools.cache
def partitions(n):
    return np.array(list(all_partitions(n)))


# ---- the density -----------------------------------------------------------------------------------------------------


@every_parameter
@pytest.mark.parametrize("n", [1, 4, 7])
def test_sums_to_one_over_all_partitions(n, alpha, discount, x64):
    assert len(partitions(n)) == {1: 1, 4: 15, 7: 877}[n]  # Bell numbers
    total = np.exp(log_prob(partitions(n), alpha, discount)).sum()
    assert total == pytest.approx(1.0, abs=1e-12)


@every_parameter
def test_equals_the_chain_rule(alpha, discount, x64):
    """One customer at a time, for all 203 partitions of six items."""
    expected = [log_prior(tuple(z), alpha, discount) for z in partitions(6)]
    np.testing.assert_allclose(log_prob(partitions(6), alpha, discount), expected, rtol=1e-11, atol=1e-12)


def test_equals_the_closed_form_of_the_dirichlet_process(x64):
    expected = [log_crp(np.bincount(z).tolist(), 1.7) for z in partitions(6)]
    np.testing.assert_allclose(log_prob(partitions(6), 1.7, 0.0), expected, rtol=1e-12)


@pytest.mark.parametrize("alpha", [-0.4, 1e-8, 0.3, 25.0, 1e4, 1e6, 1e8])
def test_large_concentrations_and_many_items_in_single_precision(alpha):
    """A difference of log gammas alone would be wrong by up to hundreds of nats."""

    def seating(alpha, n):
        return log_gamma_ratio(alpha + 1.0, n - 1.0)

    for n in (1, 2, 30, 100, 100_000):
        expected = np.log(alpha + np.arange(1.0, n)).sum()
        found, slope = jax.value_and_grad(seating)(jnp.float32(alpha), jnp.float32(n))
        np.testing.assert_allclose(found, expected, rtol=3e-6, atol=1e-5)
        np.testing.assert_allclose(slope, (1.0 / (alpha + np.arange(1.0, n))).sum(), rtol=1e-3, atol=1e-6)


def test_float32_agrees_with_float64():
    """n = 1000 items: relative 1e-5 of a number near −2000."""
    labels = np.minimum(np.random.default_rng(0).geometric(0.2, size=1000) - 1, 40)
    single = log_prob(labels, 2.5, 0.3)
    assert single.dtype == jnp.float32
    with jax.enable_x64(True):
        double = log_prob(labels, 2.5, 0.3)
    np.testing.assert_allclose(single, double, rtol=1e-5)


partition_and_renaming = st.integers(2, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, n - 1), min_size=n, max_size=n), st.permutations(range(n)), st.permutations(range(n))
    )
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(partition_and_renaming)
def test_names_and_order_do_not_matter(case):
    """The same probability under any renaming of the labels and any permutation of the items: exchangeability."""
    labels, names, order = (np.array(part) for part in case)
    with jax.enable_x64(True):
        expected = log_prior(canonical(labels), 0.8, 0.35)
        for z in (labels, names[labels], labels[order], names[labels][order]):
            np.testing.assert_allclose(log_prob(z, 0.8, 0.35), expected, rtol=1e-11)


def canonical(labels):
    """Labels in order of appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(int(z), len(names)) for z in labels)


@every_parameter
def test_gradients_in_both_parameters(alpha, discount, x64):
    """Central differences with step 1e-6 (rounding and truncation about 1e-9); one-sided at discount 0."""
    labels = np.array([3, 3, 0, 3, 5, 0, 1, 6, 6, 6])
    gradient = gradients(labels, alpha, discount)
    step = 1e-6
    in_alpha = (log_prob(labels, alpha + step, discount) - log_prob(labels, alpha - step, discount)) / (2 * step)
    np.testing.assert_allclose(gradient[0], in_alpha, rtol=1e-7, atol=1e-7)
    if discount > 0:
        in_discount = (log_prob(labels, alpha, discount + step) - log_prob(labels, alpha, discount - step)) / (2 * step)
    else:  # second-order forward difference: the discount cannot be negative
        values = [log_prob(labels, alpha, k * 1e-5) for k in range(3)]
        in_discount = (-3 * values[0] + 4 * values[1] - values[2]) / 2e-5
    np.testing.assert_allclose(gradient[1], in_discount, rtol=1e-6, atol=1e-6)
    assert abs(gradient[0]) > 1e-3 and abs(gradient[1]) > 1e-3


def test_log_partition_prior_ignores_empty_slots(x64):
    """Sizes in any order among zeros, also under ``grad``."""
    compact = jit(log_partition_prior)(np.array([3.0, 1.0, 2.0]), 0.7, 0.2)
    both = jit(jax.value_and_grad(log_partition_prior, argnums=(1, 2)))
    padded, gradient = both(np.array([0.0, 2.0, 0.0, 0.0, 3.0, 1.0, 0.0]), 0.7, 0.2)
    np.testing.assert_allclose(padded, compact, rtol=1e-13)
    np.testing.assert_allclose(compact, log_prior((0, 0, 0, 1, 2, 2), 0.7, 0.2), rtol=1e-12)
    assert np.isfinite(gradient).all()


def test_cluster_counts():
    labels = jnp.array([[0, 2, 2, 3], [1, 1, 1, 1]])
    np.testing.assert_array_equal(cluster_counts(labels, 4), [[1, 0, 2, 1], [0, 4, 0, 0]])
    np.testing.assert_array_equal(cluster_counts(labels[0], 4), [1, 0, 2, 1])


# ---- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "discount"), [(0.8, 0.0), (0.5, 0.45), (-0.3, 0.6)])
def test_sample_frequencies_are_the_probabilities(alpha, discount):
    """All 52 partitions of five items, 20,000 draws, chi-square at level 1e-6: that is the false-alarm rate."""
    draws = ChineseRestaurantProcess(alpha, 5, discount=discount).sample(jax.random.key(1), (20_000,))
    counts = Counter(map(tuple, np.asarray(draws).tolist()))
    expected = np.array([np.exp(log_prior(tuple(z), alpha, discount)) for z in partitions(5).tolist()]) * 20_000
    observed = np.array([counts.pop(tuple(z), 0) for z in partitions(5).tolist()])
    assert not counts  # every draw is labelled in order of appearance
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum() + 1e-300)
    keep = expected > 1e-6
    assert stats.chisquare(observed[keep], expected[keep], sum_check=False).pvalue > 1e-6


def test_same_key_same_draw():
    prior = ChineseRestaurantProcess(1.3, 12)
    first, again, other = (prior.sample(jax.random.key(k), (4,)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert len({tuple(row) for row in np.asarray(first).tolist()}) == 4


def test_mean_number_of_clusters():
    """E[K] = Σ α/(α + i) with variance Σ αi/(α + i)²: z-score of 2000 draws below 5, false-alarm rate 6e-7."""
    alpha, n, i = 3.0, 60, np.arange(60)
    draws = np.asarray(ChineseRestaurantProcess(alpha, n).sample(jax.random.key(7), (2000,)))
    z = (draws.max(1) + 1 - (alpha / (alpha + i)).sum()).mean() / np.sqrt((alpha * i / (alpha + i) ** 2).sum() / 2000)
    assert abs(z) < 5


def test_batches():
    """Parameters, draws and values broadcast as NumPyro's own distributions do."""
    prior = ChineseRestaurantProcess(jnp.array([0.5, 1.0, 4.0]), 6, discount=jnp.array([[0.0], [0.3]]))
    assert prior.batch_shape == (2, 3) and prior.event_shape == (6,)
    draws = np.asarray(prior.sample(jax.random.key(0), (200,)))
    assert draws.shape == (200, 2, 3, 6) and np.issubdtype(draws.dtype, np.integer)
    # batches really have their own parameters: more concentration, more clusters
    assert np.all(np.diff(draws.max(-1).mean(0), axis=1) > 0.3)
    values = prior_log_prob(prior, draws[:4])
    assert values.shape == (4, 2, 3)
    for i, discount in enumerate((0.0, 0.3)):
        for j, alpha in enumerate((0.5, 1.0, 4.0)):
            np.testing.assert_allclose(values[:, i, j], log_prob(draws[:4, i, j], alpha, discount), rtol=1e-5)
    one_value = prior_log_prob(prior, draws[0, 0, 0])
    assert one_value.shape == (2, 3) and len(np.unique(one_value)) == 6
    assert log_prob(draws[:4], 1.0, 0.0).shape == (4, 2, 3)


# ---- truncation --------------------------------------------------------------------------------------------------------


def test_max_clusters(x64):
    """The same density on partitions into few clusters, nothing elsewhere; draws stop opening clusters."""
    free, truncated = log_prob(partitions(5), 1.5, 0.2), log_prob(partitions(5), 1.5, 0.2, max_clusters=2)
    few = partitions(5).max(1) < 2
    np.testing.assert_array_equal(truncated[few], free[few])
    assert np.all(np.isneginf(truncated[~few])) and 0 < few.sum() < 52
    draws = np.asarray(ChineseRestaurantProcess(50.0, 12, max_clusters=3).sample(jax.random.key(0), (50,)))
    assert draws.max() == 2 and np.all(draws[:, 0] == 0)
    values = log_prob(draws, 50.0, 0.0, max_clusters=3)
    assert np.isfinite(values).all()
    names = np.array([0, 11, 4])[draws]  # counted by name, not by size of label
    np.testing.assert_allclose(log_prob(names, 50.0, 0.0, max_clusters=3), values, rtol=1e-13)


def test_gradient_of_a_truncated_density_is_finite(x64):
    gradient = gradients(np.array([0, 1, 2, 0]), 1.5, 0.2, max_clusters=2)
    assert np.isfinite(gradient).all()


def test_a_capacity_beyond_the_items_changes_nothing(x64):
    free, truncated = (log_prob(partitions(4), 1.5, 0.2, max_clusters=m) for m in (None, 9))
    np.testing.assert_array_equal(free, truncated)


# ---- a NumPyro distribution ------------------------------------------------------------------------------------------


def test_validation_of_samples():
    """With `validate_args=True`, draws pass, and labels outside 0, ..., n − 1 are called out as NumPyro's own do."""
    prior = ChineseRestaurantProcess(1.0, 4, validate_args=True)
    draws = prior.sample(jax.random.key(0))
    assert prior.support(draws) and np.isfinite(prior.log_prob(draws))
    for wrong in ([0, 1, 9, 9], [0, -1, 0, 0]):
        assert not prior.support(jnp.array(wrong))
        with pytest.warns(UserWarning, match="[Oo]ut-of-support"):
            assert np.isneginf(prior.log_prob(jnp.array(wrong)))


def test_validation_of_arguments_lets_negative_concentrations_pass():
    """Pitman-Yor allows −discount < α < 0."""
    prior = ChineseRestaurantProcess(-0.1, 4, discount=0.25, validate_args=True)
    assert float(prior.log_prob(jnp.zeros(4, int))) == pytest.approx(log_prior((0, 0, 0, 0), -0.1, 0.25), rel=1e-5)


def test_pytree_round_trip_jit_and_vmap(x64):
    prior = ChineseRestaurantProcess(jnp.array(1.5), 5, discount=jnp.array(0.2), max_clusters=4)
    leaves, structure = jax.tree.flatten(prior)
    assert len(leaves) == 2
    again = jax.tree.unflatten(structure, leaves)
    assert (again.size, again.max_clusters, again.event_shape, again.batch_shape) == (5, 4, (5,), ())
    expected = log_prob(partitions(5), 1.5, 0.2, max_clusters=4)
    np.testing.assert_allclose(prior_log_prob(prior, partitions(5)), expected, rtol=1e-13)
    np.testing.assert_allclose(jit(jax.vmap(prior.log_prob))(partitions(5)), expected, rtol=1e-13)
    stacked = jit(jax.vmap(plain_log_prob, in_axes=(None, 0, None)))(partitions(5)[7], np.array([0.5, 2.0]), 0.0)
    np.testing.assert_allclose(stacked, [log_prior(tuple(partitions(5)[7]), a) for a in (0.5, 2.0)], rtol=1e-12)
    draw = jit(lambda p, key: p.sample(key))(prior, jax.random.key(3))
    np.testing.assert_array_equal(draw, prior.sample(jax.random.key(3)))


def test_support_and_expand():
    prior = ChineseRestaurantProcess(1.0, 4)
    assert prior.support.is_discrete and prior.support.event_dim == 1
    assert not prior.has_enumerate_support
    expanded = prior.expand([3])
    assert isinstance(expanded, dist.Distribution) and expanded.batch_shape == (3,)
    draw = jax.eval_shape(expanded.sample, jax.random.key(0))
    assert draw.shape == (3, 4) and jax.eval_shape(expanded.log_prob, draw).shape == (3,)


BAD = {
    "size zero": (lambda: ChineseRestaurantProcess(1.0, 0), "size must be a whole number of at least 1, but it is 0"),
    "size fractional": (lambda: ChineseRestaurantProcess(1.0, 2.5), "size must be a whole number.*2.5"),
    "concentration zero": (lambda: ChineseRestaurantProcess(0.0, 3), "concentration must exceed.*it is 0"),
    "concentration negative": (lambda: ChineseRestaurantProcess(-1.0, 3), "concentration must exceed.*it is -1"),
    "concentration NaN": (lambda: ChineseRestaurantProcess(np.nan, 3), "concentration must exceed.*nan"),
    "concentration infinite": (lambda: ChineseRestaurantProcess(np.inf, 3), "concentration.*inf"),
    "one of a batch": (lambda: ChineseRestaurantProcess(np.array([1.0, -2.0]), 3), "concentration must exceed"),
    "below minus discount": (lambda: ChineseRestaurantProcess(-0.5, 3, discount=0.5), r"concentration must exceed -0.5"),
    "discount one": (lambda: ChineseRestaurantProcess(1.0, 3, discount=1.0), r"discount must lie in \[0, 1\), but it is 1"),
    "discount negative": (lambda: ChineseRestaurantProcess(1.0, 3, discount=-0.1), "discount must lie in"),
    "discount NaN": (lambda: ChineseRestaurantProcess(1.0, 3, discount=np.nan), "discount must lie in"),
    "no clusters": (
        lambda: ChineseRestaurantProcess(1.0, 3, max_clusters=0),
        "max_clusters must be a whole number.*is 0",
    ),
    "fractional capacity": (lambda: ChineseRestaurantProcess(1.0, 5, max_clusters=2.5), "max_clusters must be.*2.5"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, match = BAD[name]
    with pytest.raises(ValueError, match=f"ChineseRestaurantProcess: {match}"):
        call()


def test_the_bound_in_the_message_has_no_minus_zero():
    with pytest.raises(ValueError, match=r"concentration must exceed 0, but it is -1"):
        ChineseRestaurantProcess(-1.0, 3)


def test_traced_arguments_do_not_raise():
    value = jax.jit(lambda a: ChineseRestaurantProcess(a, 3).log_prob(jnp.array([0, 0, 1])))
    assert np.isfinite(value(1.0)) and value(-1.0).shape == ()

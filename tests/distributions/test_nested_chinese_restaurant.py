"""The tree prior: an exchangeable probability on trees of fixed depth, read off any node numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bnp_hier.distributions import ChineseRestaurantProcess, NestedChineseRestaurantProcess
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from tests.oracles.trees import all_trees, in_order_of_opening, log_nested_crp, node_count


def tree_log_prob(paths, alpha, max_nodes=None):
    paths = jnp.asarray(paths)
    return NestedChineseRestaurantProcess(alpha, *paths.shape[-2:], max_nodes).log_prob(paths)


log_prob = jax.jit(tree_log_prob, static_argnames="max_nodes")

# ---- the density -----------------------------------------------------------------------------------------------------

SIZES = {(1, 1): 1, (4, 1): 15, (5, 1): 52, (3, 2): 12, (4, 2): 60, (5, 2): 358, (3, 3): 22, (4, 3): 154, (5, 3): 1304}


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
@pytest.mark.parametrize(("n", "depth"), SIZES)
def test_sums_to_one_over_all_trees(n, depth, alpha, x64):
    """As many trees as chains of partitions (1, 3, 12, 60, 358 of two levels; 1, 4, 22, 154, 1304 of three)."""
    trees = np.array(all_trees(n, depth))
    assert len(trees) == len(set(all_trees(n, depth))) == SIZES[n, depth]
    assert np.exp(log_prob(trees, alpha)).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_equals_the_chain_rule(depth, x64):
    trees = all_trees(4, depth)
    np.testing.assert_allclose(log_prob(np.array(trees), 0.7), [log_nested_crp(tree, 0.7) for tree in trees], rtol=1e-12)


def test_one_level_is_the_chinese_restaurant_process(x64):
    trees = np.array(all_trees(5, 1))
    plain = ChineseRestaurantProcess(1.9, 5).log_prob(trees[:, :, 0] - 1)
    np.testing.assert_allclose(log_prob(trees, 1.9), plain, rtol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 1303), st.permutations(range(5)), st.permutations(range(1, 16)))
def test_names_and_order_do_not_matter(which, order, names):
    """Exchangeable in the items, and the same under any renumbering of the nodes."""
    paths = np.array(all_trees(5, 3)[which])
    with jax.enable_x64(True):
        expected = log_nested_crp(paths.tolist(), 0.8)
        renamed = np.array([0, *names])[paths]
        for case in (paths, renamed, paths[list(order)], renamed[list(order)]):
            np.testing.assert_allclose(log_prob(case, 0.8), expected, rtol=1e-11)


@pytest.mark.parametrize(
    "paths",
    [
        [[1, 2], [3, 2]],  # node 2 under two parents
        [[1, 2], [2, 3]],  # node 2 on two levels
        [[1, 2], [0, 3]],  # the root below itself
    ],
)
def test_what_is_no_tree_has_probability_zero(paths):
    assert log_prob(paths, 1.0) == -np.inf


def test_trees_over_the_capacity_have_probability_zero(x64):
    trees = all_trees(4, 2)
    sizes = np.array([node_count(tree) for tree in trees])
    for capacity in (3, 5, 7):
        fitting = [tree for tree in trees if node_count(tree) <= capacity]
        np.testing.assert_allclose(
            log_prob(np.array(fitting), 0.9, capacity), [log_nested_crp(tree, 0.9) for tree in fitting], rtol=1e-12
        )
        outside = NestedChineseRestaurantProcess(0.9, 4, 2, capacity, validate_args=True)
        assert not outside.support(np.array([tree for tree in trees if node_count(tree) > capacity])).any()
    assert sizes.max() == 9


def test_gradient_in_the_concentration(x64):
    """Central differences with step 1e-6; rounding and truncation about 1e-9."""
    paths = np.array([[1, 2], [1, 2], [1, 3], [4, 5], [1, 2]])
    gradient = jax.jit(jax.grad(lambda alpha: tree_log_prob(paths, alpha)))(0.6)
    step = 1e-6
    numeric = (log_prob(paths, 0.6 + step) - log_prob(paths, 0.6 - step)) / (2 * step)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-7)
    assert abs(gradient) > 0.1


def test_read_tree():
    tree = read_tree(jnp.array([[2, 5], [2, 1], [4, 3]]), 7)
    np.testing.assert_array_equal(tree.counts, [3, 1, 2, 1, 1, 1, 0])
    np.testing.assert_array_equal(tree.level, [0, 2, 1, 2, 1, 2, -1])
    np.testing.assert_array_equal(tree.parent, [-1, 2, 0, 4, 0, 2, -1])
    assert tree.valid


def test_batches_of_concentrations_and_trees(x64):
    trees = np.array(all_trees(3, 2))
    alphas = np.array([0.5, 2.0])
    prior = NestedChineseRestaurantProcess(alphas, 3, 2)
    table = prior.log_prob(trees[:, None])
    assert prior.batch_shape == (2,) and prior.event_shape == (3, 2) and table.shape == (12, 2)
    for j, alpha in enumerate(alphas):
        np.testing.assert_allclose(table[:, j], log_prob(trees, alpha), rtol=1e-12)
    assert prior.sample(jax.random.key(0), (4,)).shape == (4, 2, 3, 2)


# ---- draws -----------------------------------------------------------------------------------------------------------


def frequencies_match(draws, probabilities) -> float:
    """p-value of chi-square of how often each tree was drawn; trees expected fewer than five times are counted together."""
    index = {tree: k for k, tree in enumerate(probabilities)}
    observed = np.zeros(len(index))
    for tree in map(tuple, (tuple(map(tuple, draw)) for draw in np.asarray(draws).tolist())):
        observed[index[tree]] += 1  # a KeyError: not numbered in order of opening, or over the capacity
    expected = np.array(list(probabilities.values())) * len(draws)
    rare = expected < 5
    observed, expected = (np.append(a[~rare], a[rare].sum()) for a in (observed, expected))
    return stats.chisquare(observed[expected > 0], expected[expected > 0], sum_check=False).pvalue


@pytest.mark.parametrize(("n", "depth", "alpha"), [(5, 1, 0.8), (4, 2, 0.8), (4, 3, 2.5)])
def test_sample_frequencies_are_the_probabilities(n, depth, alpha):
    """20,000 draws, chi-square at level 1e-6: that is the false-alarm rate."""
    draws = NestedChineseRestaurantProcess(alpha, n, depth).sample(jax.random.key(1), (20_000,))
    assert frequencies_match(draws, {tree: np.exp(log_nested_crp(tree, alpha)) for tree in all_trees(n, depth)}) > 1e-6


def test_draws_keep_to_the_capacity():
    """Every draw fits, large trees come up to the capacity, and each walk is renormalised where no branch may open."""
    prior = NestedChineseRestaurantProcess(3.0, 6, 3, 8)
    draws = np.asarray(prior.sample(jax.random.key(2), (2000,)))
    assert np.isfinite(prior.log_prob(draws)).all()
    sizes = np.array([node_count(draw) for draw in draws.tolist()])
    assert sizes.max() == 8
    assert all(tuple(map(tuple, draw)) == in_order_of_opening(draw) for draw in draws.tolist())


def test_same_key_same_draw():
    prior = NestedChineseRestaurantProcess(1.3, 12, 3, 30)
    np.testing.assert_array_equal(prior.sample(jax.random.key(5)), prior.sample(jax.random.key(5)))
    assert not np.array_equal(prior.sample(jax.random.key(5), (3,)), prior.sample(jax.random.key(6), (3,)))


def test_is_a_numpyro_distribution():
    """It goes through ``jit`` and ``vmap`` as a pytree, and its support says what node numbers may be."""
    prior = NestedChineseRestaurantProcess(jnp.float32(1.3), 4, 2, 8)
    assert isinstance(prior, dist.Distribution) and prior.support.is_discrete and prior.support.event_dim == 2
    paths = jnp.array([[1, 2], [1, 3], [4, 5], [1, 2]])
    assert jax.jit(lambda p, v: p.log_prob(v))(prior, paths) == pytest.approx(float(prior.log_prob(paths)))
    assert prior.support(paths).all() and not prior.support(paths - 1).all() and not prior.support(paths + 5).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 0, 2), "size must be a whole number of at least 1, but it is 0"),
        ((1.0, 5, 0), "depth must be a whole number of at least 1, but it is 0"),
        ((1.0, 5, 1.5), "depth must be a whole number of at least 1, but it is 1.5"),
        ((1.0, 5, 3, 3), r"max_nodes must be a whole number of at least depth \+ 1 = 4 .*, but it is 3"),
        ((0.0, 5, 2), "concentration must be finite and positive, but it is 0.0"),
        ((np.nan, 5, 2), "concentration must be finite and positive, but it is nan"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        NestedChineseRestaurantProcess(*arguments)

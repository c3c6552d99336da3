"""What every conjugate family must satisfy, whatever its formulas."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to, constraints

from bnp_hier.components import (
    BetaBernoulli,
    Component,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
)
from bnp_hier.components.base import ComponentPredictive
from tests.parameters import few


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A component, six rows of data, and which entries of a flattened parameter array are free coordinates."""

    component: Component
    X: np.ndarray
    free: tuple[int, ...]

    def __str__(self) -> str:
        return type(self.component).__name__


_rng = np.random.default_rng(20)
_real = _rng.normal(size=(6, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) + np.array([0.5, -1.0])
_bits = np.array([[1, 0], [1, 1], [0, 0], [1, 0], [1, 1], [0, 0]], dtype=float)
_counts = np.array([[3, 0, 1], [0, 2, 0], [5, 2, 1], [1, 1, 9], [2, 0, 4], [0, 7, 1]], dtype=float)

_niw = NormalInverseWishart(np.array([0.2, -0.7]), 0.4, 4.5, np.array([[1.5, 0.4], [0.4, 0.9]]))
_nig = NormalInverseGamma(np.array([0.1, -0.4]), np.array([0.3, 1.2]), 2.5, np.array([0.8, 1.7]))
_known = NormalKnownCovariance(np.array([0.1, -0.3]), np.array([[2.0, 0.5], [0.5, 1.2]]), np.array([[0.9, -0.2], [-0.2, 0.6]]))
_bernoulli = BetaBernoulli(np.array([0.7, 2.0]), np.array([1.3, 0.6]))
_multinomial = DirichletMultinomial(np.array([0.8, 1.5, 2.2]), total_count=9)
_poisson = GammaPoisson(np.array([1.4, 0.6, 2.0]), np.array([0.5, 0.9, 0.4]))
_product = ProductComponent(
    [_nig, BetaBernoulli(np.array([0.7]), np.array([1.3])), GammaPoisson(np.array([1.4]), 0.5)],
    [[3, 1], [0], [2]],
)
_mixed = np.column_stack([_bits[:, 0], _real[:, 1], _counts[:, 0], _real[:, 0]])

CASES = [
    Case(_niw, _real, (0, 1, 2, 4, 5)),  # the mean, and the lower triangle of the covariance
    Case(_nig, _real, (0, 1, 2, 3)),
    Case(_known, _real, (0, 1)),
    Case(_bernoulli, _bits, (0, 1)),
    Case(_multinomial, _counts, (0, 1)),  # the last probability is one minus the others
    Case(_poisson, _counts, (0, 1, 2)),
    Case(_product, _mixed, (0, 1, 2, 3, 4, 5)),
]

every_family = pytest.mark.parametrize("case", CASES, ids=str)

_suff_stats = jit(lambda c, X: c.suff_stats(X))


@jit
def evaluate(component, stats, X):
    """Log marginals of a batch of k statistics, and log predictives of n rows given each of them, (n, k)."""
    batch = jax.tree.map(lambda leaf: leaf[:, None], stats)  # two batch dimensions, broadcast against the rows' (n, 1, 1)
    return component.log_marginal(batch)[:, 0], component.log_predictive(batch, X[:, None, None])[..., 0]


def suff_stats(component, X):
    """Statistics of every row, as NumPy arrays."""
    return jax.tree.map(np.asarray, _suff_stats(component, X))


def prefixes(rows):
    """Statistics of the first 0, 1, ..., n rows."""
    return jax.tree.map(lambda leaf: np.concatenate([np.zeros_like(leaf[:1]), np.cumsum(leaf, 0)]), rows)


@functools.cache
def reference(case):
    """Statistics of the rows and of their prefixes, with marginals (7,) and predictives (6, 7), in double precision."""
    with jax.enable_x64(True):
        rows = suff_stats(case.component, case.X)
        stats = prefixes(rows)
        return rows, stats, *map(np.asarray, evaluate(case.component, stats, case.X))


# ---- marginal, predictives, caches -----------------------------------------------------------------------------------


@every_family
def test_log_marginal_is_the_chain_of_predictives(case):
    _, _, marginals, predictives = reference(case)
    assert marginals.dtype == np.float64 and marginals.shape == (7,) and predictives.shape == (6, 7)
    steps = np.diagonal(predictives)
    np.testing.assert_allclose(np.cumsum(steps), marginals[1:], rtol=1e-12, atol=1e-12)
    assert np.all(np.abs(steps) > 1e-3)


@every_family
def test_the_order_of_the_rows_does_not_matter(case, x64):
    X = case.X[[2, 1, 5, 0, 3, 4]]
    marginals, predictives = evaluate(case.component, prefixes(suff_stats(case.component, X)), X)
    expected = reference(case)[2]
    np.testing.assert_allclose(np.diagonal(predictives).sum(), expected[6], rtol=1e-12)
    assert abs(marginals[4] - expected[4]) > 1e-6  # the chains differ on the way


@every_family
def test_statistics_are_one_row_each_and_zero_for_the_empty_set(case, x64):
    rows, empty = _suff_stats(case.component, case.X), case.component.empty((6,))
    assert jax.tree.structure(rows) == jax.tree.structure(empty)
    for row, zero in zip(jax.tree.leaves(rows), jax.tree.leaves(empty), strict=True):
        assert row.shape == zero.shape and row.dtype == zero.dtype == jnp.float64
        assert not np.any(zero) and np.any(row)


@every_family
def test_statistics_of_disjoint_sets_add_up(case, x64):
    """{0, 3} and {1, 2, 4} together are the first five rows."""
    rows, _, marginals, predictives = reference(case)
    sets = [[0, 3], [1, 2, 4], [0, 3, 1, 2, 4], [], [5], [2], [0]]
    parts = jax.tree.map(lambda leaf: np.stack([leaf[members].sum(0) for members in sets]), rows)
    joined = jax.tree.map(lambda leaf: np.stack([leaf[0] + leaf[1], *leaf[1:]]), parts)
    for stats, entry in ((joined, 0), (parts, 2)):
        marginal, predictive = evaluate(case.component, stats, case.X)
        np.testing.assert_allclose(marginal[entry], marginals[5], rtol=1e-12)
        np.testing.assert_allclose(predictive[:, entry], predictives[:, 5], rtol=1e-11)


@pytest.mark.parametrize("case", [CASES[0], CASES[3]], ids=str)
def test_log_evidence_is_the_marginal_of_all_rows_in_float64(case):
    """Without x64 switched on the float is as exact as in double precision, and the global setting is left alone."""
    evidence = case.component.log_evidence(case.X)
    assert isinstance(evidence, float) and not jax.config.jax_enable_x64
    assert evidence == pytest.approx(reference(case)[2][6], rel=1e-13)


@every_family
def test_caches_follow_additions_and_removals(case, x64):
    """After every step the cache is that of the statistics, and its predictive the difference of two marginals."""
    rows = reference(case)[0]
    moves = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (2, -1), (5, -1), (0, -1), (2, 1), (3, -1), (0, 1)]
    items, signs = map(np.array, zip(*moves, strict=True))
    present = np.cumsum((items[:, None] == np.arange(6)) * signs[:, None], axis=0)
    assert present.min() == 0 and present[-1].tolist() == [1, 1, 1, 0, 1, 0]

    @jit
    def walk(component, rows):
        def step(cache, move):
            item, sign = move
            cache = component.update_cache(cache, jax.tree.map(lambda leaf: leaf[item], rows), sign)
            return cache, (cache, component.cached_log_predictive(cache, rows))

        _, (caches, predictives) = jax.lax.scan(step, component.cache(component.empty()), (items, signs))
        stats = jax.tree.map(lambda leaf: jnp.tensordot(present.astype(float), leaf, 1), rows)
        joined = jax.tree.map(lambda whole, row: whole[:, None] + row, stats, rows)
        difference = component.log_marginal(joined) - component.log_marginal(stats)[:, None]
        return caches, component.cache(stats), predictives, difference

    caches, fresh, predictives, expected = walk(case.component, rows)
    for updated, right in zip(jax.tree.leaves(caches), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_allclose(updated, right, rtol=1e-10, atol=1e-11)
    assert predictives.shape == (12, 6)
    np.testing.assert_allclose(predictives, expected, rtol=1e-9, atol=1e-10)


@every_family
def test_caches_keep_their_digits_in_float32(case):
    """Ten rounds in which every row leaves and comes back; the reference is in double precision."""
    rows, stats, _, expected = reference(case)

    @jit
    def rounds(component, rows, stats):
        def leave_and_return(cache, i):
            row = jax.tree.map(lambda leaf: leaf[i], rows)
            return component.update_cache(component.update_cache(cache, row, -1), row, 1), None

        cache, _ = jax.lax.scan(leave_and_return, component.cache(stats), jnp.tile(jnp.arange(6), 10))
        return component.cached_log_predictive(cache, rows)

    cached = rounds(case.component, rows, jax.tree.map(lambda leaf: leaf[6], stats))
    assert cached.dtype == jnp.float32
    np.testing.assert_allclose(cached, expected[:, 6], rtol=2e-4, atol=2e-4)


@every_family
def test_default_methods_agree_with_the_overrides(case, x64):
    """The interface's own cache, predictive and table are right for every family that replaces them."""
    rows, stats, marginals, predictives = reference(case)

    @jit
    def defaults(component, stats, rows, X):
        rows = jax.tree.map(lambda leaf: leaf[:, None], rows)
        cache = Component.cache(component, stats)
        return (
            Component.cached_log_predictive(component, cache, rows),
            component.log_marginal(Component.update_cache(component, cache, rows, 1)),
            ComponentPredictive(component, stats).log_prob(X[:, None]),
            component.log_marginal_up_to(6)(stats),
            Component.log_marginal_up_to(component, 6)(stats),
        )

    predictive, joined, density, *tables = defaults(case.component, stats, rows, case.X)
    np.testing.assert_allclose(predictive, predictives, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(joined - marginals, predictives, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(density, predictives, rtol=1e-11, atol=1e-11)
    for table in tables:  # every count from 0 to 6
        np.testing.assert_allclose(table, marginals, rtol=1e-13, atol=1e-13)


# ---- batches, transformations, precision -----------------------------------------------------------------------------


@every_family
def test_a_batch_is_a_loop(case, x64):
    """Batched calls, which made the reference, equal `vmap` over calls without any batch dimension."""
    _, stats, marginals, predictives = reference(case)

    def one(component, stats, row):
        values = component.log_marginal(stats), component.log_predictive(stats, row)
        assert [value.shape for value in values] == [(), ()]
        return values

    mapped = jit(jax.vmap(jax.vmap(one, in_axes=(None, 0, None)), in_axes=(None, None, 0)))
    values = mapped(case.component, stats, case.X)
    np.testing.assert_allclose(values[0], np.tile(marginals, (6, 1)), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(values[1], predictives, rtol=1e-12, atol=1e-13)


@every_family
def test_vmap_over_hyperparameters(case, x64):
    """Two components stacked leaf by leaf are two components."""
    other = jax.tree.map(lambda leaf: leaf * 1.5, case.component)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), case.component, other)

    @jit
    @jax.vmap
    def evidence(component):
        return component.log_marginal(jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(case.X)))

    marginals, _ = evaluate(other, prefixes(suff_stats(other, case.X)), case.X)
    both = evidence(stacked)
    np.testing.assert_allclose(both, [reference(case)[2][6], marginals[6]], rtol=1e-12)
    assert abs(both[0] - both[1]) > 1e-3


@every_family
def test_pytree_round_trip_keeps_the_hyperparameters_as_given(case):
    leaves, structure = jax.tree.flatten(case.component)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(case.component)
    for old, new in zip(leaves, jax.tree.leaves(again), strict=True):
        assert new is old
    assert all(isinstance(leaf, (float, np.ndarray)) for leaf in leaves)
    fields = [f.name for f in dataclasses.fields(case.component) if not f.metadata.get("static")]
    fields = [name for name in fields if getattr(case.component, name) is not None]
    paths = jax.tree_util.tree_leaves_with_path(case.component)
    assert {jax.tree_util.keystr(path[:1]) for path, _ in paths} == {f".{name}" for name in fields}
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(case.component, fields[0], None)


@pytest.mark.parametrize("case", few(CASES, 3), ids=str)
def test_gradients_in_every_hyperparameter(case, x64):
    """Of marginal and predictive, through the statistics (which depend on the prior mean and scale), entry by entry.

    Central differences with step 1e-5: truncation and rounding errors are both about 1e-10. The empty set costs nothing
    whatever the hyperparameters: its gradient is zero, finite above all.
    """
    flat, unravel = ravel_pytree(case.component)
    steps = 1e-5 * np.eye(len(flat))

    def values(flat):
        component = unravel(flat)
        rows = component.suff_stats(case.X)
        stats = jax.tree.map(lambda leaf: jnp.stack([jnp.zeros(leaf.shape[1:]), leaf[:5].sum(0)]), rows)
        cached = component.cached_log_predictive(component.cache(stats), jax.tree.map(lambda leaf: leaf[5], rows))
        return jnp.concatenate([component.log_marginal(stats), cached])

    points = np.concatenate([flat + steps, flat - steps])
    gradient, sides = jit(lambda flat: (jax.jacrev(values)(flat), jax.lax.map(values, points)))(flat)
    above, below = np.split(np.asarray(sides), 2)
    assert np.isfinite(gradient).all()
    assert np.all(np.abs(gradient[1:]).max(0) > 1e-4)  # every hyperparameter matters
    np.testing.assert_allclose(gradient, (above - below).T / 2e-5, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(gradient[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(sides[:, 0], 0.0, atol=1e-12)


@every_family
def test_float32_agrees_with_float64(case):
    """Relative 1e-4: some tens of float32 roundings of sums of moderate size."""
    stats = prefixes(suff_stats(case.component, case.X))
    marginals, predictives = evaluate(case.component, stats, case.X)
    assert marginals.dtype == predictives.dtype == jnp.float32
    np.testing.assert_allclose(marginals[1:], reference(case)[2][1:], rtol=1e-4)
    np.testing.assert_allclose(predictives, reference(case)[3], rtol=1e-4)
    assert abs(marginals[0]) < 1e-6


@every_family
def test_float32_predictives_of_large_clusters(case):
    """A cluster of 12,000 rows, as kernels meet without x64: differences of log gammas must not cancel."""
    stats = jax.tree.map(lambda leaf: leaf * 2000, reference(case)[1])
    with jax.enable_x64(True):
        expected = evaluate(case.component, stats, case.X)[1]
    single = evaluate(case.component, stats, case.X)[1]
    np.testing.assert_allclose(single[:, 6], expected[:, 6], rtol=1e-4, atol=1e-3)


# ---- parameters and draws --------------------------------------------------------------------------------------------


@functools.cache
def draws(case):
    """4000 parameters from the posterior given all rows, with a row from each, and 4000 rows from the predictive."""

    @jit
    def sample(component, stats, key):
        many = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], 4000, 0), stats)
        key_parameters, key_rows, key_predictive = jax.random.split(key, 3)
        parameters = component.sample_parameters(key_parameters, many)
        rows = component.likelihood(parameters).sample(key_rows)
        return parameters, rows, component.predictive(stats).sample(key_predictive, (4000,))

    with jax.enable_x64(True):
        return sample(case.component, jax.tree.map(lambda leaf: leaf[6], reference(case)[1]), jax.random.key(11))


@functools.cache
def densities(case):
    """Log densities at the drawn parameters: prior and posterior of the first four, and of the rows given all, (s, 6)."""

    @jit
    def log_prob(component, stats, parameters):
        few = parameters[:4]
        rows = component.likelihood(parameters[:, None]).log_prob(case.X)
        return component.prior().log_prob(few), component.posterior(stats).log_prob(few), rows

    with jax.enable_x64(True):
        stats = jax.tree.map(lambda leaf: leaf[6], reference(case)[1])
        return tuple(map(np.asarray, log_prob(case.component, stats, draws(case)[0])))


@pytest.mark.parametrize("case", few(CASES, 3), ids=str)
def test_bayes_identity(case):
    """prior × likelihood / posterior = marginal likelihood, at any parameter."""
    prior, posterior, rows = densities(case)
    expected = np.full(4, reference(case)[2][6])
    np.testing.assert_allclose(prior + rows[:4].sum(-1) - posterior, expected, rtol=1e-10)
    assert np.all(np.abs(prior - posterior) > 1e-3)


@every_family
def test_predictive_distribution_has_the_predictive_density(case, x64):
    """In batches; given nothing it is the marginal of one row."""
    rows, stats, _, predictives = reference(case)

    @jit
    def log_prob(component, stats, rows, X):
        predictive = component.predictive(stats)
        assert predictive.batch_shape == (7,) and predictive.event_shape == (component.dim,)
        return predictive.log_prob(X[:, None]), component.log_marginal(rows)

    density, alone = log_prob(case.component, stats, rows, case.X)
    np.testing.assert_allclose(density, predictives, rtol=1e-10)
    np.testing.assert_allclose(density[:, 0], alone, rtol=1e-10)


@pytest.mark.parametrize("case", few(CASES, 3), ids=str)
def test_posterior_draws_average_the_likelihood_to_the_predictive(case):
    """E[f(x | parameters)] over posterior draws is the predictive density of x.

    Six probe rows, z-scores below 5: false-alarm rate under 4e-6 a family; the key is fixed.
    """
    density, expected = np.exp(densities(case)[2]), np.exp(reference(case)[3][:, 6])
    error = density.std(0) / np.sqrt(len(density))
    assert np.all(error < 0.05 * expected)  # the test has power: five standard errors are under a quarter
    assert np.all(np.abs(density.mean(0) - expected) < 5 * error)


@pytest.mark.parametrize("case", few(CASES, 3), ids=str)
def test_predictive_draws(case):
    """First and second moments of draws from the predictive and of draws through the parameters.

    At most 14 moments, z-scores below 5: false-alarm rate under 1e-5 a family; the keys are fixed.
    """
    i, j = np.triu_indices(case.component.dim)
    moments, errors = [], []
    for rows in draws(case)[1:]:
        assert rows.shape == (4000, case.component.dim)
        x = np.asarray(rows, dtype=float)
        features = np.column_stack([x, x[:, i] * x[:, j]])
        moments.append(features.mean(0))
        errors.append(features.std(0) / np.sqrt(4000))
        assert np.all(errors[-1] > 0)
    assert np.all(np.abs(moments[0] - moments[1]) < 5 * np.hypot(*errors))


@every_family
def test_shapes_of_draws(case):
    component = case.component

    def some(component, key):
        stats, event = component.empty((3,)), component.prior().event_shape
        posterior = component.posterior(stats)
        assert component.prior().batch_shape == () and component.dim == case.X.shape[1]
        assert posterior.batch_shape == (3,) and posterior.event_shape == event
        parameters = component.sample_parameters(key, stats)
        return (
            jnp.zeros(event),
            parameters,
            posterior.sample(key, (5,)),
            component.prior().expand([4]).sample(key),
            component.likelihood(parameters).sample(key, (2,)),
            component.predictive(stats).sample(key, (2, 1)),
            ComponentPredictive(component, stats).sample(key, (2, 1)),
        )

    d = component.dim
    event, *shapes = [leaf.shape for leaf in jax.eval_shape(some, component, jax.random.key(0))]
    assert shapes == [(3, *event), (5, 3, *event), (4, *event), (2, 3, d), (2, 1, 3, d), (2, 1, 3, d)]
    parameters = np.asarray(draws(case)[0]).reshape(4000, -1)
    assert len(np.unique(parameters, axis=0)) == 4000  # one draw per batch entry, never the same again


@every_family
def test_unconstrained_parameters(case, x64):
    """`biject_to` of the prior's support: round trip, and the log Jacobian on the free coordinates by autodiff."""
    size = len(case.free)
    x = np.random.default_rng(5).normal(size=(3, size))

    @jit
    def check(component, x):
        prior = component.prior()
        transform = biject_to(prior.support)
        assert transform.inverse_shape(prior.event_shape) == (size,)
        assert transform.forward_shape((size,)) == prior.event_shape
        y = transform(x)
        assert y.shape == (3, *prior.event_shape)
        free = jax.vmap(jax.jacfwd(lambda flat: transform(flat).reshape(-1)[np.array(case.free)]))
        _, expected = jnp.linalg.slogdet(free(x))
        return transform.inv(y), transform.log_abs_det_jacobian(x, y), expected, prior.support(y)

    back, log_jacobian, expected, valid = check(case.component, x)
    assert valid.all()
    np.testing.assert_allclose(back, x, rtol=1e-9, atol=1e-10)
    assert log_jacobian.shape == (3,)
    np.testing.assert_allclose(log_jacobian, expected, rtol=1e-9, atol=1e-9)


def test_the_covariance_block_uses_numpyros_own_transform(x64):
    """Mean as it is; covariance and its Jacobian from `biject_to(positive_definite)`; also as a part of a product."""
    x = np.random.default_rng(6).normal(size=(4, 6))
    product = ProductComponent([_niw, BetaBernoulli(np.ones(1), np.ones(1))], [[0, 1], [2]])

    @jit
    def transformed(x):
        whole = biject_to(product.prior().support)
        ours, own = biject_to(_niw.prior().support), biject_to(constraints.positive_definite)
        outputs = ours(x[:, :5]), own(x[:, 2:5]), whole(x)
        log_jacobians = (
            ours.log_abs_det_jacobian(x[:, :5], outputs[0]),
            own.log_abs_det_jacobian(x[:, 2:5], outputs[1]),
            whole.log_abs_det_jacobian(x, outputs[2]),
        )
        return outputs, log_jacobians, whole.inv(outputs[2]), product.prior().support(outputs[2])

    (y, covariance, joined), log_jacobians, back, valid = transformed(x)
    np.testing.assert_array_equal(y[:, 0], x[:, :2])
    np.testing.assert_allclose(y[:, 1:], covariance, rtol=1e-14)
    np.testing.assert_allclose(log_jacobians[0], log_jacobians[1], rtol=1e-13)
    assert valid.all() and joined.shape == (4, 7)
    probability = 1 / (1 + np.exp(-x[:, 5]))
    np.testing.assert_allclose(joined[:, :6], np.reshape(y, (4, 6)), rtol=1e-14)
    np.testing.assert_allclose(joined[:, 6], probability, rtol=1e-13)
    np.testing.assert_allclose(back, x, rtol=1e-9)
    expected = log_jacobians[0] + np.log(probability * (1 - probability))
    np.testing.assert_allclose(log_jacobians[2], expected, rtol=1e-12)


@every_family
def test_supports_know_what_lies_outside(case, x64):
    """Parameters and rows that were drawn are inside; spoilt ones are not."""
    parameters, *rows = (np.asarray(array[:6], dtype=float) for array in draws(case))
    spoilt_parameters = parameters * np.nan if isinstance(case.component, NormalKnownCovariance) else -parameters
    spoilt_rows = np.where(np.arange(case.component.dim) == 0, np.inf, case.X)

    @jit
    def inside(component, parameters, rows):
        return component.prior().support(parameters), component.support(rows)

    for good in (case.X, *rows):
        assert np.array(inside(case.component, parameters, good)).tolist() == [[True] * 6, [True] * 6]
    assert not np.array(inside(case.component, spoilt_parameters, spoilt_rows)).any()


# ---- priors read off the data ----------------------------------------------------------------------------------------


@every_family
def test_from_data_gives_a_component_that_fits_the_data(case):
    component = type(case.component).from_data(case.X, learn=False)
    assert type(component) is type(case.component) and component.dim == case.X.shape[1]
    component.validate(case.X)
    stats = prefixes(suff_stats(component, case.X))
    marginals, _ = evaluate(component, stats, case.X)
    assert np.isfinite(marginals).all() and marginals[6] < -1


def test_from_data_rules():
    """Every documented rule, by hand."""
    mean, variance = _real.mean(0), _real.var(0)
    niw = NormalInverseWishart.from_data(_real, kappa=0.2, nu=6.0, within=0.4, learn=False)
    np.testing.assert_allclose(niw.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(niw.scale) / (6.0 - 2 - 1), 0.4 * np.diag(variance), rtol=1e-14)
    assert (niw.kappa, niw.nu) == (0.2, 6.0)
    assert NormalInverseWishart.from_data(_real, learn=False).nu == 4.0

    nig = NormalInverseGamma.from_data(_real, shape=3.0, within=0.4, learn=False)
    np.testing.assert_allclose(nig.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(nig.rate) / (3.0 - 1), 0.4 * variance, rtol=1e-14)

    known = NormalKnownCovariance.from_data(_real, within=0.4, learn=False)
    np.testing.assert_allclose(known.prior_covariance, np.diag(variance), rtol=1e-14)
    np.testing.assert_allclose(known.covariance, 0.4 * np.diag(variance), rtol=1e-14)

    bernoulli = BetaBernoulli.from_data(_bits, strength=3.0, learn=False)
    np.testing.assert_allclose(bernoulli.a, 3.0 * np.array([5 / 8, 3 / 8]), rtol=1e-14)
    np.testing.assert_allclose(bernoulli.b, 3.0 * np.array([3 / 8, 5 / 8]), rtol=1e-14)

    multinomial = DirichletMultinomial.from_data(_counts, strength=2.0, learn=False)
    shares = np.array([12.0, 13.0, 17.0]) / 42.0
    np.testing.assert_allclose(multinomial.concentration, 2.0 * 3 * shares, rtol=1e-14)
    assert multinomial.total_count == 7  # row totals 4, 2, 8, 11, 6, 8

    poisson = GammaPoisson.from_data(_counts, shape=2.0, learn=False)
    np.testing.assert_allclose(np.asarray(poisson.shape) / np.asarray(poisson.rate), np.array([12, 13, 17]) / 7, rtol=1e-14)

    product = ProductComponent.from_data(_mixed, learn=False)  # column 0 is bits, the rest are not
    assert [type(part) for part in product.parts] == [BetaBernoulli, NormalInverseGamma]
    assert product.columns == ((0,), (1, 2, 3))
    families, columns = [BetaBernoulli, NormalInverseWishart], [[0], [3, 1, 2]]
    chosen = ProductComponent.from_data(_mixed, families=families, columns=columns, learn=False)
    assert chosen.columns == ((0,), (3, 1, 2))
    np.testing.assert_array_equal(
        chosen.parts[1].scale, NormalInverseWishart.from_data(_mixed[:, [3, 1, 2]], learn=False).scale
    )


@pytest.mark.parametrize("case", CASES[:-1], ids=str)
def test_from_data_works_on_traced_data(case, x64):
    """Inside ``jit`` the rule is the same (row totals are numbers, so that a traced multinomial cannot know them)."""
    family = type(case.component)
    traced = jit(lambda X: jax.tree.leaves(family.from_data(X, learn=False)))(case.X)
    for inside, outside in zip(traced, jax.tree.leaves(family.from_data(case.X, learn=False)), strict=True):
        np.testing.assert_allclose(inside, outside, rtol=1e-12)

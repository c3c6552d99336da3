"""What every conjugate family must satisfy, whatever its formulas."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
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


@dataclasses.dataclass(frozen=True)
class Case:
    """A component, six rows of data, and which entries of a flattened parameter array are free coordinates."""

    component: Component
    X: np.ndarray
    free: tuple[int, ...]

    @property
    def name(self) -> str:
        return type(self.component).__name__


_rng = np.random.default_rng(20)
_real = _rng.normal(size=(6, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]]) + np.array([0.5, -1.0])
_bits = np.array([[1, 0], [1, 1], [0, 0], [1, 0], [1, 1], [0, 0]], dtype=float)
_counts = np.array([[3, 0, 1], [0, 2, 0], [5, 2, 1], [1, 1, 9], [2, 0, 4], [0, 7, 1]], dtype=float)

_niw = NormalInverseWishart(np.array([0.2, -0.7]), 0.4, 4.5, np.array([[1.5, 0.4], [0.4, 0.9]]))
_nig = NormalInverseGamma(np.array([0.1, -0.4]), np.array([0.3, 1.2]), 2.5, np.array([0.8, 1.7]))
_known = NormalKnownCovariance(
    np.array([0.1, -0.3]), np.array([[2.0, 0.5], [0.5, 1.2]]), np.array([[0.9, -0.2], [-0.2, 0.6]])
)
_bernoulli = BetaBernoulli(np.array([0.7, 2.0]), np.array([1.3, 0.6]))
_multinomial = DirichletMultinomial(np.array([0.8, 1.5, 2.2]), total_count=9)
_poisson = GammaPoisson(np.array([1.4, 0.6, 2.0]), np.array([0.5, 0.9, 0.4]))
_product = ProductComponent(
    [
        _niw,
        BetaBernoulli(np.array([0.7]), np.array([1.3])),
        GammaPoisson(np.array([1.4]), 0.5),
        NormalInverseGamma(np.array([0.1]), 0.3, 2.5, 0.8),
    ],
    [[3, 1], [0], [4], [2]],
)
_mixed = np.column_stack([_bits[:, 0], _real[:, 1], _rng.normal(size=6), _real[:, 0], _counts[:, 2]])

CASES = [
    Case(_niw, _real, (0, 1, 2, 4, 5)),  # the mean, and the lower triangle of the covariance
    Case(_nig, _real, (0, 1, 2, 3)),
    Case(_known, _real, (0, 1)),
    Case(_bernoulli, _bits, (0, 1)),
    Case(_multinomial, _counts, (0, 1)),  # the last probability is one minus the others
    Case(_poisson, _counts, (0, 1, 2)),
    Case(_product, _mixed, (0, 1, 2, 4, 5, 6, 7, 8, 9)),
]

every_family = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

# Compiling takes nearly all the time here, so XLA's optimisations are skipped and plain calls are kept few.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

# One compiled function per method; components are pytrees, so that they are ordinary arguments.
_suff_stats = jit(lambda c, X: c.suff_stats(X))
log_marginal = jit(lambda c, s: c.log_marginal(s))
log_predictive = jit(lambda c, s, X: c.log_predictive(s, X))
make_cache = jit(lambda c, s: c.cache(s))
update_cache = jit(lambda c, k, row, sign: c.update_cache(k, row, sign))
cached_log_predictive = jit(lambda c, k, row: c.cached_log_predictive(k, row))


def suff_stats(component, X):
    """Statistics of every row, as NumPy arrays."""
    return jax.tree.map(np.asarray, _suff_stats(component, X))


def total(rows, members=slice(None)):
    """Statistics of the set of rows, from the statistics of every row."""
    return jax.tree.map(lambda leaf: leaf[members].sum(0), rows)


def prefixes(rows):
    """Statistics of the first 0, 1, ..., n rows."""
    return jax.tree.map(lambda leaf: np.concatenate([np.zeros_like(leaf[:1]), np.cumsum(leaf, 0)]), rows)


def without_last(stats):
    return jax.tree.map(lambda leaf: leaf[:-1], stats)


# ---- marginal, predictives, caches ---------------------------------------------------------------------------------


@every_family
def test_log_marginal_is_the_chain_of_predictives(case, x64):
    rows = suff_stats(case.component, case.X)
    marginals = log_marginal(case.component, prefixes(rows))
    steps = log_predictive(case.component, without_last(prefixes(rows)), case.X)
    assert marginals.dtype == jnp.float64 and steps.shape == (6,)
    np.testing.assert_allclose(np.cumsum(steps), marginals[1:], rtol=1e-12, atol=1e-12)
    assert np.all(np.abs(steps) > 1e-3)


@every_family
def test_the_order_of_the_rows_does_not_matter(case, x64):
    order = np.array([4, 1, 5, 0, 3, 2])
    stats = prefixes(suff_stats(case.component, case.X[order]))
    chain = log_predictive(case.component, without_last(stats), case.X[order]).sum()
    whole = log_marginal(case.component, total(suff_stats(case.component, case.X)))
    np.testing.assert_allclose(chain, whole, rtol=1e-12)


@every_family
def test_statistics_are_one_row_each_and_zero_for_the_empty_set(case, x64):
    rows, empty = suff_stats(case.component, case.X), case.component.empty((6,))
    assert jax.tree.structure(rows) == jax.tree.structure(empty)
    for row, zero in zip(jax.tree.leaves(rows), jax.tree.leaves(empty), strict=True):
        assert row.shape == zero.shape and row.dtype == zero.dtype == jnp.float64
        assert not zero.any() and row.any()


@every_family
def test_statistics_add_up(case, x64):
    """Statistics of two halves, added, give the marginal of the whole and the predictive of a new row given it."""
    rows = suff_stats(case.component, case.X)
    five = jax.tree.map(np.add, total(rows, np.array([3, 0])), total(rows, np.array([4, 1, 2])))
    chain = log_predictive(case.component, without_last(prefixes(rows)), case.X)
    np.testing.assert_allclose(log_marginal(case.component, five), chain[:5].sum(), rtol=1e-12)
    np.testing.assert_allclose(log_predictive(case.component, five, case.X[5]), chain[5], rtol=1e-11)


@every_family
def test_log_evidence_is_the_marginal_of_all_rows_in_float64(case):
    """Without x64 switched on: the float is as exact as in double precision, and the global setting is left alone."""
    evidence = case.component.log_evidence(case.X)
    assert isinstance(evidence, float) and not jax.config.jax_enable_x64
    with jax.enable_x64(True):
        expected = float(log_marginal(case.component, total(suff_stats(case.component, case.X))))
    assert evidence == pytest.approx(expected, rel=1e-13)


@every_family
def test_the_empty_set_costs_nothing_whatever_the_hyperparameters(case, x64):
    """Log marginal zero, hence a gradient of zero (finite above all)."""
    value, gradient = jit(jax.value_and_grad(lambda c: c.log_marginal(c.empty())))(case.component)
    assert abs(value) < 1e-12
    np.testing.assert_allclose(ravel_pytree(gradient)[0], 0.0, atol=1e-12)


@every_family
def test_caches_follow_additions_and_removals(case, x64):
    """After every step the cache is that of the statistics, and its predictive the difference of two marginals."""
    component = case.component
    rows = suff_stats(component, case.X)
    cache, members = make_cache(component, component.empty()), []
    for step in [0, 1, 2, 3, 4, 5, -2, -5, 2, -3, 5, -4]:  # negative: the row leaves
        sign, i = (1, step) if step not in members and step >= 0 else (-1, -step)
        members = members + [i] if sign == 1 else [j for j in members if j != i]
        cache = update_cache(component, cache, jax.tree.map(lambda leaf, i=i: leaf[i], rows), sign)
        stats = total(rows, np.array(sorted(members)))
        for updated, fresh in zip(jax.tree.leaves(cache), jax.tree.leaves(make_cache(component, stats)), strict=True):
            np.testing.assert_allclose(updated, fresh, rtol=1e-10, atol=1e-11)
        cached = cached_log_predictive(component, cache, rows)
        joined = jax.tree.map(np.add, stats, rows)
        expected = log_marginal(component, joined) - log_marginal(component, stats)
        np.testing.assert_allclose(cached, expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(log_predictive(component, stats, case.X), expected, rtol=1e-10, atol=1e-11)
    assert members == [0, 1, 2, 5]


@every_family
def test_caches_keep_their_digits_in_float32(case):
    """Ten rounds in which every row leaves and comes back; the reference is computed in double precision."""
    component = case.component

    @jit
    def rounds(component, rows):
        def leave_and_return(cache, i):
            row = jax.tree.map(lambda leaf: leaf[i], rows)
            return component.update_cache(component.update_cache(cache, row, -1), row, 1), None

        cache = component.cache(jax.tree.map(lambda leaf: leaf.sum(0), rows))
        cache, _ = jax.lax.scan(leave_and_return, cache, jnp.tile(jnp.arange(6), 10))
        return component.cached_log_predictive(cache, rows)

    cached = rounds(component, suff_stats(component, case.X))
    assert cached.dtype == jnp.float32
    with jax.enable_x64(True):
        expected = log_predictive(component, total(suff_stats(component, case.X)), case.X)
    np.testing.assert_allclose(cached, expected, rtol=2e-4, atol=2e-4)


@every_family
def test_default_methods_agree_with_the_overrides(case, x64):
    """The interface's own cache, predictive and table are right for every family that replaces them."""
    component, rows = case.component, suff_stats(case.component, case.X)
    stats = total(rows, slice(0, 4))

    @jit
    def defaults(component, stats, rows):
        cache = Component.update_cache(component, Component.cache(component, stats), rows, 1)
        return (
            Component.cached_log_predictive(component, stats, rows),
            component.log_marginal(cache),
            ComponentPredictive(component, stats).log_prob(case.X),
        )

    predictive, joined, density = defaults(component, stats, rows)
    expected = log_predictive(component, stats, case.X)
    np.testing.assert_allclose(predictive, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(joined - log_marginal(component, stats), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(density, expected, rtol=1e-11, atol=1e-11)


@every_family
def test_tabulated_marginal(case, x64):
    """`log_marginal_up_to(n)` for every count from 0 to n, in batches."""
    stats = prefixes(suff_stats(case.component, case.X))
    tabulated = jit(lambda c, s: c.log_marginal_up_to(6)(s))(case.component, stats)
    np.testing.assert_allclose(tabulated, log_marginal(case.component, stats), rtol=1e-13, atol=1e-13)


# ---- batches, transformations, precision -----------------------------------------------------------------------------


@every_family
def test_a_batch_is_a_loop(case, x64):
    """Batches of statistics broadcast against batches of rows; `vmap`, `jit` and plain calls agree."""
    component, rows = case.component, suff_stats(case.component, case.X)
    stats = jax.tree.map(lambda leaf: leaf[1:].reshape(2, 3, *leaf.shape[1:]), prefixes(rows))
    single = [[jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], stats) for j in range(3)] for i in range(2)]
    marginals = [[log_marginal(component, s) for s in line] for line in single]
    np.testing.assert_allclose(log_marginal(component, stats), marginals, rtol=1e-13)
    mapped = jit(jax.vmap(jax.vmap(component.log_marginal)))(stats)
    np.testing.assert_allclose(mapped, marginals, rtol=1e-13)
    np.testing.assert_allclose(component.log_marginal(single[1][1]), marginals[1][1], rtol=1e-13)  # no jit

    # statistics (2, 3) against rows (6, 1, 1) give (6, 2, 3)
    loop = np.array([[log_predictive(component, s, case.X) for s in line] for line in single])
    broadcast = log_predictive(component, stats, case.X[:, None, None])
    assert broadcast.shape == (6, 2, 3)
    np.testing.assert_allclose(broadcast, np.moveaxis(loop, 2, 0), rtol=1e-12, atol=1e-12)
    mapped = jit(jax.vmap(component.log_predictive, in_axes=(None, 0)))(stats, case.X)
    np.testing.assert_allclose(mapped, broadcast, rtol=1e-12, atol=1e-12)


@every_family
def test_vmap_over_hyperparameters(case, x64):
    """Two components stacked leaf by leaf are two components."""
    other = jax.tree.map(lambda leaf: leaf * 1.5, case.component)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), case.component, other)
    evidence = jit(lambda c: c.log_marginal(total(c.suff_stats(case.X))))
    both = jax.vmap(evidence)(stacked)
    np.testing.assert_allclose(both, [evidence(case.component), evidence(other)], rtol=1e-13)
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
    paths = jax.tree_util.tree_leaves_with_path(case.component)
    assert {jax.tree_util.keystr(path[:1]) for path, _ in paths} == {f".{name}" for name in fields}
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(case.component, fields[0], None)


@every_family
def test_gradients_in_every_hyperparameter(case, x64):
    """Of marginal and predictive, through the statistics (which depend on the prior mean and scale), entry by entry.

    Central differences with step 1e-5: truncation and rounding errors are both about 1e-10.
    """
    flat, unravel = ravel_pytree(case.component)

    def values(flat):
        component = unravel(flat)
        rows = component.suff_stats(case.X)
        stats = total(rows, slice(0, 5))
        cached = component.cached_log_predictive(component.cache(stats), jax.tree.map(lambda leaf: leaf[5], rows))
        return jnp.stack([component.log_marginal(stats), cached])

    gradient = jit(jax.jacrev(values))(flat)
    steps = 1e-5 * np.eye(len(flat))
    sides = jit(jax.vmap(values))(np.concatenate([flat + steps, flat - steps]))
    difference = (sides[: len(flat)] - sides[len(flat) :]).T / 2e-5
    assert np.isfinite(gradient).all()
    assert np.all(np.abs(gradient).max(0) > 1e-4)  # every hyperparameter matters
    np.testing.assert_allclose(gradient, difference, rtol=1e-7, atol=1e-8)


@every_family
def test_float32_agrees_with_float64(case):
    """Relative 1e-4: some tens of float32 roundings of sums of moderate size."""
    stats = total(suff_stats(case.component, case.X))
    single = log_marginal(case.component, stats), log_predictive(case.component, stats, case.X)
    assert single[0].dtype == single[1].dtype == jnp.float32
    with jax.enable_x64(True):
        stats = total(suff_stats(case.component, case.X))
        double = log_marginal(case.component, stats), log_predictive(case.component, stats, case.X)
    np.testing.assert_allclose(single[0], double[0], rtol=1e-4)
    np.testing.assert_allclose(single[1], double[1], rtol=1e-4)


# ---- parameters and draws --------------------------------------------------------------------------------------------


@functools.cache
def draws(name):
    """Posterior parameters, rows from the closed-form predictive, and rows through the parameters: 4000 each."""
    case = next(case for case in CASES if case.name == name)

    @jit
    def sample(component, key):
        stats = total(component.suff_stats(case.X))
        many = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], 4000, 0), stats)
        key_parameters, key_direct, key_ancestral = jax.random.split(key, 3)
        return (
            component.sample_parameters(key_parameters, many),
            component.predictive(stats).sample(key_direct, (4000,)),
            ComponentPredictive(component, stats).sample(key_ancestral, (4000,)),
        )

    with jax.enable_x64(True):
        return sample(case.component, jax.random.key(11))


@every_family
def test_bayes_identity(case, x64):
    """prior × likelihood / posterior = marginal likelihood, at any parameter."""

    @jit
    def marginal(component, parameters):
        posterior, prior = component.posterior(total(component.suff_stats(case.X))), component.prior()
        data = component.likelihood(parameters[:, None]).log_prob(case.X).sum(-1)
        return prior.log_prob(parameters) + data - posterior.log_prob(parameters)

    expected = log_marginal(case.component, total(suff_stats(case.component, case.X)))
    parameters = draws(case.name)[0][:4]
    np.testing.assert_allclose(marginal(case.component, parameters), np.full(4, expected), rtol=1e-10)


@every_family
def test_predictive_distribution_has_the_predictive_density(case, x64):
    """In batches; given nothing it is the marginal of one row."""
    component, rows = case.component, suff_stats(case.component, case.X)

    @jit
    def log_prob(component, stats, X):
        predictive = component.predictive(stats)
        assert predictive.batch_shape == (7,) and predictive.event_shape == (component.dim,)
        return predictive.log_prob(X)

    stats = prefixes(rows)
    densities = log_prob(component, stats, case.X[:, None])
    assert densities.shape == (6, 7)
    np.testing.assert_allclose(densities, log_predictive(component, stats, case.X[:, None]), rtol=1e-10)
    np.testing.assert_allclose(densities[:, 0], log_marginal(component, rows), rtol=1e-11)


@every_family
def test_posterior_draws_average_the_likelihood_to_the_predictive(case, x64):
    """E[f(x | parameters)] over posterior draws is the predictive density of x.

    Three probe rows, z-scores below 5: false-alarm rate under 2e-6 a family; the key is fixed.
    """
    densities = jit(lambda c, p: c.likelihood(p[:, None]).log_prob(case.X[:3]))(case.component, draws(case.name)[0])
    density = np.exp(densities)
    assert density.shape == (4000, 3)
    expected = np.exp(log_predictive(case.component, total(suff_stats(case.component, case.X)), case.X)[:3])
    error = density.std(0) / np.sqrt(4000)
    assert np.all(error < 0.05 * expected)  # the test has power: five standard errors are under a quarter
    assert np.all(np.abs(density.mean(0) - expected) < 5 * error)


@every_family
def test_predictive_draws(case, x64):
    """First and second moments of draws from the closed-form predictive and of draws through the parameters.

    At most 20 moments, z-scores below 5: false-alarm rate under 2e-5 a family; the keys are fixed.
    """
    i, j = np.triu_indices(case.component.dim)
    moments, errors = [], []
    for rows in draws(case.name)[1:]:
        assert rows.shape == (4000, case.component.dim)
        assert np.all(case.component.support(rows))
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
        )

    d = component.dim
    event, *shapes = [leaf.shape for leaf in jax.eval_shape(some, component, jax.random.key(0))]
    assert shapes == [(3, *event), (5, 3, *event), (4, *event), (2, 3, d), (2, 1, 3, d)]
    parameters = np.asarray(draws(case.name)[0]).reshape(4000, -1)
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
        valid = prior.support(y) & jnp.isfinite(prior.log_prob(y))
        return transform.inv(y), transform.log_abs_det_jacobian(x, y), expected, valid

    back, log_jacobian, expected, valid = check(case.component, x)
    assert valid.all()
    np.testing.assert_allclose(back, x, rtol=1e-9, atol=1e-10)
    assert log_jacobian.shape == (3,)
    np.testing.assert_allclose(log_jacobian, expected, rtol=1e-9, atol=1e-9)


def test_the_covariance_block_uses_numpyros_own_transform(x64):
    """Mean as it is; covariance and its Jacobian from `biject_to(positive_definite)`."""
    transform = biject_to(_niw.prior().support)
    x = np.random.default_rng(6).normal(size=(4, 5))
    y = transform(x)
    own = biject_to(constraints.positive_definite)
    np.testing.assert_array_equal(y[:, 0], x[:, :2])
    np.testing.assert_allclose(y[:, 1:], own(x[:, 2:]), rtol=1e-14)
    np.testing.assert_allclose(
        transform.log_abs_det_jacobian(x, y), own.log_abs_det_jacobian(x[:, 2:], y[:, 1:]), rtol=1e-14
    )


@every_family
def test_supports_know_what_lies_outside(case, x64):
    """Parameters and rows that were drawn are inside; spoilt ones are not."""
    parameters = draws(case.name)[0][:5]
    spoilt_parameters = parameters * np.nan if isinstance(case.component, NormalKnownCovariance) else -parameters
    spoilt_rows = np.where(np.arange(case.component.dim) == 0, np.inf, case.X)

    @jit
    def inside(component, parameters, rows):
        return component.prior().support(parameters), component.support(rows)

    right, wrong = inside(case.component, parameters, case.X), inside(case.component, spoilt_parameters, spoilt_rows)
    assert [mask.shape for mask in right] == [(5,), (6,)]
    assert right[0].all() and right[1].all()
    assert not wrong[0].any() and not wrong[1].any()


# ---- priors read off the data ----------------------------------------------------------------------------------------


@every_family
def test_from_data_gives_a_component_that_fits_the_data(case):
    component = type(case.component).from_data(case.X)
    assert type(component) is type(case.component) and component.dim == case.X.shape[1]
    component.validate(case.X)
    assert np.isfinite(component.log_evidence(case.X))


def test_from_data_rules():
    """Every documented rule, by hand."""
    mean, variance = _real.mean(0), _real.var(0)
    niw = NormalInverseWishart.from_data(_real, kappa=0.2, nu=6.0, within=0.4)
    np.testing.assert_allclose(niw.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(niw.scale) / (6.0 - 2 - 1), 0.4 * np.diag(variance), rtol=1e-14)
    assert (niw.kappa, niw.nu) == (0.2, 6.0)
    assert NormalInverseWishart.from_data(_real).nu == 4.0

    nig = NormalInverseGamma.from_data(_real, shape=3.0, within=0.4)
    np.testing.assert_allclose(nig.mean, mean, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(nig.rate) / (3.0 - 1), 0.4 * variance, rtol=1e-14)

    known = NormalKnownCovariance.from_data(_real, within=0.4)
    np.testing.assert_allclose(known.prior_covariance, np.diag(variance), rtol=1e-14)
    np.testing.assert_allclose(known.covariance, 0.4 * np.diag(variance), rtol=1e-14)

    bernoulli = BetaBernoulli.from_data(_bits, strength=3.0)
    np.testing.assert_allclose(bernoulli.a, 3.0 * np.array([5 / 8, 3 / 8]), rtol=1e-14)
    np.testing.assert_allclose(bernoulli.b, 3.0 * np.array([3 / 8, 5 / 8]), rtol=1e-14)

    multinomial = DirichletMultinomial.from_data(_counts, strength=2.0)
    shares = np.array([12.0, 13.0, 17.0]) / 42.0
    np.testing.assert_allclose(multinomial.concentration, 2.0 * 3 * shares, rtol=1e-14)
    assert multinomial.total_count == 7  # row totals 4, 2, 8, 11, 6, 8

    poisson = GammaPoisson.from_data(_counts, shape=2.0)
    np.testing.assert_allclose(
        np.asarray(poisson.shape) / np.asarray(poisson.rate), np.array([12, 11, 17]) / 7, rtol=1e-14
    )

    product = ProductComponent.from_data(_mixed)  # column 0 is bits, the rest are not
    assert [type(part) for part in product.parts] == [BetaBernoulli, NormalInverseGamma]
    assert product.columns == ((0,), (1, 2, 3, 4))
    chosen = ProductComponent.from_data(
        _mixed, families=[GammaPoisson, NormalInverseWishart], columns=[[4, 0], [1, 2, 3]]
    )
    np.testing.assert_allclose(chosen.parts[0].rate, GammaPoisson.from_data(_mixed[:, [4, 0]]).rate, rtol=0)


@pytest.mark.parametrize("case", CASES[:-1], ids=lambda case: case.name)
def test_from_data_works_on_traced_data(case, x64):
    """Inside ``jit`` the rule is the same (row totals are numbers, so that a traced multinomial cannot know them)."""
    family = type(case.component)
    traced = jit(lambda X: jax.tree.leaves(family.from_data(X)))(case.X)
    for inside, outside in zip(traced, jax.tree.leaves(family.from_data(case.X)), strict=True):
        np.testing.assert_allclose(inside, outside, rtol=1e-12)

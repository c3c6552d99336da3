"""Reading a NumPyro model: its partition, its likelihood, and the prior of its hyperparameters."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import jit
from numpyro.infer.util import log_density
from scipy import stats

from bnp_hier.components import NormalInverseGamma, NormalInverseWishart
from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture, StickBreaking
from bnp_hier.inspection.collapsed import as_arrays, find_sites, read_values
from bnp_hier.inspection.forms import find_any_sites
from bnp_hier.inspection.hyperpriors import hyperprior
from bnp_hier.inspection.slots import check_row_densities, find_slot_sites, read_slot_values
from bnp_hier.inspection.sticks import find_stick_sites
from bnp_hier.models import dpm, dpm_stick_breaking, pitman_yor_mixture

X = np.random.default_rng(4).normal(size=(6, 2))
FIXED = NormalInverseWishart.from_data(X, learn=False)


def users_model(x):
    """As in the package's introduction: priors on the concentration and on a component's rate."""
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
    rate = numpyro.sample("rate", dist.LogNormal(0.3, 1.0))
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, x.shape[0], max_clusters=5))
    component = NormalInverseGamma(mean=np.zeros(2), kappa=0.1, shape=2.0, rate=rate)
    numpyro.sample("x", ConjugateMixture(component, z), obs=x)


def prior_of(**priors):
    """A mixture model with the given priors, in order; a prior may be a function of the values before it."""

    def model(x):
        values: list = []
        for name, prior in priors.items():
            values.append(numpyro.sample(name, prior if isinstance(prior, dist.Distribution) else prior(*values)))
        z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
        numpyro.sample("x", ConjugateMixture(NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0), z), obs=x)

    return model


# ---- finding the sites -----------------------------------------------------------------------------------------------


def test_sites_of_a_dirichlet_process_mixture():
    """Arguments may be given by `partial`, by position and by name; a fixed concentration is no hyperparameter."""
    fixed = partial(dpm, component=FIXED)
    sites = find_sites(partial(fixed, concentration=dist.Gamma(1.0, 1.0)), (X,))
    assert (sites.partition, sites.observed, sites.hyperparameters) == ("z", "X", ("alpha",))
    assert (sites.size, sites.max_clusters) == (6, None)
    assert find_sites(fixed, (X,)).hyperparameters == ()
    assert find_sites(fixed, (), {"X": X, "concentration": dist.Gamma(1.0, 1.0)}) == sites
    assert find_sites(dpm, (X,)).hyperparameters == ("alpha", "within", "correlation", "kappa", "extra_nu")


def test_sites_of_a_pitman_yor_mixture():
    model = partial(pitman_yor_mixture, component=FIXED, concentration=dist.Gamma(1.0, 1.0), discount=dist.Beta(1.0, 3.0))
    assert find_sites(model, (X,)).hyperparameters == ("alpha", "discount")


def test_sites_of_a_users_model():
    sites = find_sites(users_model, (X,))
    assert (sites.partition, sites.observed, sites.hyperparameters) == ("z", "x", ("alpha", "rate"))
    assert (sites.size, sites.max_clusters) == (6, 5)


def test_component_built_inside_the_model():
    """A function as component may put priors on its hyperparameters."""

    def component(x):
        return NormalInverseGamma(x.mean(0), 0.1, 2.0, numpyro.sample("rate", dist.LogNormal(0.0, 1.0)))

    model = partial(dpm, component=component, concentration=dist.Gamma(1.0, 1.0))
    assert sorted(find_sites(model, (X,)).hyperparameters) == ["alpha", "rate"]


def test_other_kinds_of_sites():
    """The model may hold deterministic sites, factors and plates of hyperparameters."""

    def model(x):
        with numpyro.plate("columns", 2):
            rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        numpyro.deterministic("scale", jnp.sqrt(rate))
        numpyro.factor("nothing", 0.0)
        z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
        numpyro.sample("x", ConjugateMixture(NormalInverseGamma(np.zeros(2), 0.1, 2.0, rate), z), obs=x)

    assert find_sites(model, (X,)).hyperparameters == ("rate",)
    prior = hyperprior(model, find_sites(model, (X,)), (X,))
    assert prior.constrain(prior.start)["rate"].shape == (2,)
    expected = 2 * stats.lognorm.logpdf(1.0, 1.0)
    np.testing.assert_allclose(prior.log_prob({"rate": jnp.ones(2)}), expected, rtol=1e-6)


def no_partition(x):
    numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("x", dist.Normal(0.0, 1.0).expand([2]).to_event(1), obs=x[0])


def two_partitions(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    numpyro.sample("w", ChineseRestaurantProcess(1.0, x.shape[0]))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z), obs=x)


def observed_partition(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]), obs=jnp.zeros(6, int))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z), obs=x)


def no_likelihood(x):
    numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    numpyro.sample("y", dist.Normal(0.0, 1.0).expand([2]).to_event(1), obs=x[0])


def unobserved_likelihood(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z))


def two_likelihoods(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    for name in ("x", "y"):
        numpyro.sample(name, ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z), obs=x)


def another_partitions_likelihood(x):
    numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    fixed = jnp.arange(6) % 2
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), fixed), obs=x)


def in_a_plate(x):
    with numpyro.plate("copies", 3):
        z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z[0]), obs=x)


def a_batch(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(jnp.ones(3), x.shape[0]))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z), obs=x)


def fewer_items(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, 4))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z), obs=x)


def other_columns(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X[:, :1], learn=False), z), obs=x)


def one_dimension(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X[:, :1], learn=False), z), obs=x[:, 0])


def no_sites(x):
    return x


def scaled(x, site="x"):
    with numpyro.handlers.scale(scale=0.5 if site == "z" else 1.0):
        z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    with numpyro.handlers.scale(scale=0.5 if site == "x" else 1.0):
        numpyro.sample("x", ConjugateMixture(NormalInverseWishart.from_data(X, learn=False), z), obs=x)


def other_uses_of_the_labels(x, use):
    """The labels affect something other than the mixture."""
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
    rate = 1.0 + (z == 0).sum() if use == "component" else 1.0
    assignments = z[::-1] if use == "order" else z // 2 if use == "pairs" else z
    table = x + z[:, None] if use == "table" else x
    numpyro.sample("x", ConjugateMixture(NormalInverseGamma(np.zeros(2), 0.1, 2.0, rate), assignments), obs=table)
    if use == "factor":
        numpyro.factor("bonus", -1.0 * (z[0] == z[1]))
    if use == "second":
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(jnp.arange(6.0)[z], 1.0), obs=x[:, 0])
    if use == "latent":
        numpyro.sample("share", dist.Beta(1.0 + (z == 0).sum(), 1.0))


BAD = {
    "no partition": (no_partition, r"no partition site; expected exactly one.*ChineseRestaurantProcess.*mu: Normal"),
    "no sites": (no_sites, "no partition site.*no sample sites"),
    "truncated sticks": (dpm_stick_breaking, "no partition site.*weights: StickBreaking"),
    "two partitions": (two_partitions, r"2 partition sites \['z', 'w'\]"),
    "observed partition": (observed_partition, "no partition site; expected exactly one unobserved site"),
    "no likelihood": (
        no_likelihood,
        '0 observed sites with a ConjugateMixture; expected exactly one.*"z".*; use AuxiliaryGibbs if the '
        "clusters' parameters are sites of the model",
    ),
    "unobserved likelihood": (unobserved_likelihood, "0 observed sites with a ConjugateMixture"),
    "two likelihoods": (two_likelihoods, "2 observed sites with a ConjugateMixture"),
    "a likelihood on other labels": (another_partitions_likelihood, "assignments"),
    "plate": (in_a_plate, "outside any plate.*its sites are z: ExpandedDistribution"),
    "batch": (a_batch, "must not have batch dimensions or be inside a plate"),
    "fewer items": (fewer_items, r'"x" is observed with shape \(6, 2\), but the partition has 4 items'),
    "other columns": (other_columns, r"observed with shape \(6, 2\).*component 1 columns; expected \(6, 1\)"),
    "one dimension": (one_dimension, r"observed with shape \(6,\).*expected \(6, 1\)"),
    "scaled partition": (partial(scaled, site="z"), 'the density of site "z" is scaled'),
    "scaled likelihood": (partial(scaled, site="x"), 'the density of site "x" is scaled'),
    "component": (partial(other_uses_of_the_labels, use="component"), 'the component depends on the labels of "z"'),
    "table": (partial(other_uses_of_the_labels, use="table"), 'the observed table depends on the labels of "z"'),
    "factor": (partial(other_uses_of_the_labels, use="factor"), 'site "bonus" depends on the labels of "z", which would be'),
    "second": (partial(other_uses_of_the_labels, use="second"), 'site "y" depends on the labels.*use AuxiliaryGibbs'),
    "latent": (partial(other_uses_of_the_labels, use="latent"), 'site "share" depends on the labels'),
    "order": (partial(other_uses_of_the_labels, use="order"), "it has different labels"),
    "pairs": (partial(other_uses_of_the_labels, use="pairs"), "it has different labels"),
}


@pytest.mark.parametrize("name", BAD)
def test_models_that_are_no_mixtures(name):
    model, match = BAD[name]
    with pytest.raises(ValueError, match=match):
        find_sites(model, (X,))


def test_scales_of_one_and_labels_that_affect_no_density():
    find_sites(partial(scaled, site=""), (X,))

    def model(x):
        z = numpyro.sample("z", ChineseRestaurantProcess(1.0, x.shape[0]))
        numpyro.deterministic("first", (z == 0).sum())
        numpyro.sample("x", ConjugateMixture(FIXED, z.astype(jnp.int16)), obs=x)
        numpyro.sample("apart", dist.Normal(0.0, 1.0))

    assert find_sites(model, (X,)).hyperparameters == ("apart",)


# ---- reading values --------------------------------------------------------------------------------------------------


def test_values_at_given_hyperparameters():
    sites = find_sites(users_model, (X,))
    values = read_values(users_model, sites, {"alpha": 1.7, "rate": 0.4}, (X,))
    assert (float(values.concentration), float(values.discount)) == (pytest.approx(1.7), 0.0)
    assert isinstance(values.component, NormalInverseGamma) and float(values.component.rate) == pytest.approx(0.4)
    np.testing.assert_array_equal(values.X, X)

    model = partial(pitman_yor_mixture, concentration=dist.Gamma(1.0, 1.0), discount=dist.Beta(1.0, 3.0))
    values = read_values(model, find_sites(model, (X,)), {"alpha": 0.2, "discount": 0.3}, (X,))
    assert (float(values.concentration), float(values.discount)) == (pytest.approx(0.2), pytest.approx(0.3))
    np.testing.assert_allclose(values.component.mean, X.mean(0))


def test_double_precision_after_a_live_program_in_single_precision():
    """JAX knows the NumPy arrays of that program again."""
    rows, scale = X + 1e-9, np.array([[1.1, 0.3], [0.3, 0.7]])
    component = NormalInverseWishart(np.zeros(2), 0.1, 4.0, scale)
    exact = component.log_evidence(rows)
    program = jax.jit(lambda x: x @ jnp.asarray(scale) + jnp.asarray(rows).sum(0))
    program(jnp.zeros(2))
    model = partial(dpm, component=component, concentration=1.0)
    with jax.enable_x64(True):
        values = as_arrays(read_values(model, find_sites(model, (rows,)), {}, (rows,)))
        np.testing.assert_array_equal(values.X, rows)
        np.testing.assert_array_equal(values.component.scale, scale)
    assert component.log_evidence(rows) == exact


def test_values_under_jit_and_grad(x64):
    """The evidence of one cluster as a function of the rate, through the model."""
    sites = find_sites(users_model, (X,))

    @jax.jit
    @jax.value_and_grad
    def evidence(rate, table):
        values = read_values(users_model, sites, {"alpha": 1.0, "rate": rate}, (table,))
        total = jax.tree.map(lambda leaf: leaf.sum(0), values.component.suff_stats(values.X))
        return values.component.log_marginal(total)

    value, gradient = evidence(0.4, X)
    component = NormalInverseGamma(np.zeros(2), 0.1, 2.0, 0.4)
    assert float(value) == pytest.approx(component.log_evidence(X), rel=1e-12)
    step = 1e-6
    sides = [NormalInverseGamma(np.zeros(2), 0.1, 2.0, 0.4 + s).log_evidence(X) for s in (step, -step)]
    assert float(gradient) == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-7)


# ---- models whose clusters' parameters are sites ---------------------------------------------------------------------


def lines(x, slots=4, plate=None, partition=None, center=lambda loc, z: loc[z], rows=slice(None)):
    """A mixture of regressions of the second column on the first, which has a density of its own."""
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    z = numpyro.sample("z", partition or ChineseRestaurantProcess(alpha, len(x), max_clusters=slots))
    with numpyro.plate("clusters", plate or slots):
        loc, slope = (numpyro.sample(name, dist.Normal(0.0, 3.0)) for name in ("loc", "slope"))
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 1.0))
    numpyro.sample("unrelated", dist.Normal(noise, 1.0), obs=0.3)
    with numpyro.plate("items", len(x[rows])):
        numpyro.sample("x", dist.Normal(center(loc, z)[rows], 1.0), obs=x[rows, 0])
        numpyro.sample("y", dist.Normal(slope[z][rows] * x[rows, 0], noise), obs=x[rows, 1])


def test_slots_and_their_densities(x64):
    sites = find_slot_sites(lines, (X,))
    assert (sites.partition, sites.observed, sites.local) == ("z", ("x", "y"), ())
    assert (sites.parameters, sites.size, sites.slots) == (("alpha", "loc", "slope", "noise"), 6, 4)
    assert find_slot_sites(partial(lines, slots=20), (X,)).slots == 6
    check_row_densities(lines, sites, (X,))
    loc, slope = np.array([-1.0, 0.0, 1.0, 2.0]), np.array([3.0, -1.0, 0.5, 0.0])
    given = {"alpha": 0.7, "loc": jnp.asarray(loc), "slope": jnp.asarray(slope), "noise": 0.4}
    read = jit(lambda given, x: read_slot_values(lines, sites, given, (x,)))
    values = read(given, X)
    expected = stats.norm.logpdf(X[:, :1], loc) + stats.norm.logpdf(X[:, 1:], slope * X[:, :1], 0.4)
    np.testing.assert_allclose(values.log_density, expected, rtol=1e-12)
    assert float(values.concentration) == 0.7
    # the same parameters on another number of rows
    np.testing.assert_allclose(read(given, X[:2]).log_density, expected[:2], rtol=1e-12)


def test_slots_with_latent_values_of_rows_factors_and_scales(x64):
    """Whatever depends on the labels belongs to a row's density, scaled as the model says."""

    def model(x):
        z = numpyro.sample("z", ChineseRestaurantProcess(1.0, len(x), max_clusters=3))
        with numpyro.plate("clusters", 3):
            loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
        with numpyro.plate("items", len(x)):
            true = numpyro.sample("true", dist.Normal(loc[z], 1.0))
            with numpyro.handlers.scale(scale=0.5):
                numpyro.sample("x", dist.Normal(loc[z], 2.0), obs=x[:, 0])
            numpyro.sample("second", dist.Normal(true, 1.0), obs=x[:, 1])
            numpyro.factor("bonus", 0.1 * z)

    sites = find_slot_sites(model, (X,))
    assert (sites.observed, sites.local, sites.parameters) == (("bonus", "x"), ("true",), ("loc",))
    loc, true = np.array([-1.0, 0.0, 1.0]), np.linspace(0.0, 1.0, 6)
    values = jit(lambda given: read_slot_values(model, sites, given, (X,)))({"loc": loc, "true": true})
    expected = stats.norm.logpdf(true[:, None], loc) + 0.5 * stats.norm.logpdf(X[:, :1], loc, 2.0) + 0.1 * np.arange(3)
    np.testing.assert_allclose(values.log_density, expected, rtol=1e-12)


def independent_of_labels(x):
    numpyro.sample("z", ChineseRestaurantProcess(1.0, len(x), max_clusters=3))
    numpyro.sample("x", dist.Normal(0.0, 1.0), obs=x[0, 0])


def columns_in_the_batch(x):
    z = numpyro.sample("z", ChineseRestaurantProcess(1.0, len(x), max_clusters=3))
    loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([3, 2]).to_event(2))
    numpyro.sample("x", dist.Normal(loc[z], 1.0), obs=x)


NO_SLOTS = {
    "scaled partition": (numpyro.handlers.scale(lines, 0.5), 'the density of site "z" is scaled'),
    "no partition": (no_partition, "no partition site"),
    "two partitions": (two_partitions, r"2 partition sites \['z', 'w'\]"),
    "plate": (in_a_plate, "outside any plate"),
    "batch": (a_batch, "must not have batch dimensions or be inside a plate"),
    "no capacity": (partial(lines, partition=ChineseRestaurantProcess(1.0, 6)), r'"z" has max_clusters=None; expected .*K'),
    "one item": (partial(lines, partition=ChineseRestaurantProcess(1.0, 1, max_clusters=3)), '"z" has 1 item; clustering'),
    "no likelihood": (independent_of_labels, 'no observed site depends on the labels of the partition site "z".*x: Normal'),
    "fewer rows": (partial(lines, rows=slice(4)), r"shape \(4,\), but the partition has 6 items"),
    "columns in the batch": (columns_in_the_batch, r'"x".*shape \(6, 2\), but the partition has 6 items.*to_event\(1\)'),
}


@pytest.mark.parametrize("name", NO_SLOTS)
def test_models_without_slots(name):
    model, match = NO_SLOTS[name]
    with pytest.raises(ValueError, match=match):
        find_slot_sites(model, (X,))


BAD_DENSITIES = {
    "clusters' sizes": (
        partial(lines, center=lambda loc, z: loc[z] + (z == z[0]).mean()),
        X,
        "log density of row .* other rows",
    ),
    "the row before": (partial(lines, center=lambda loc, z: loc[jnp.roll(z, 1)]), X, "log density of row .* other rows"),
    "a smaller plate": (partial(lines, plate=3), X, "last two of 4 slots; .* smaller than max_clusters"),
    "a missing value": (
        lines,
        np.where(np.eye(6, 2) > 0, np.nan, X),
        "'x' is missing at row 0, column 0: covariates and responses must not be missing",
    ),
}


@pytest.mark.filterwarnings("ignore:Out-of-support values")  # NumPyro's own, of the missing value
@pytest.mark.parametrize("name", BAD_DENSITIES)
def test_rows_that_depend_on_other_rows_labels(name):
    model, table, match = BAD_DENSITIES[name]
    with pytest.raises(ValueError, match=match):
        check_row_densities(model, find_slot_sites(model, (table,)), (table,))


# ---- truncated stick-breaking models -----------------------------------------------------------------------------------


def sticks(x, truncation=3, components=3, copies=1, observed=True, per_row=False):
    """A user's own truncated mixture of Student-t distributions."""
    for copy in range(copies):
        weights = numpyro.sample(f"weights{copy}", StickBreaking(1.0, truncation))
    with numpyro.plate("components", components):
        loc = numpyro.sample("loc", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    if per_row:
        loc = loc + x[:, None]
    mixture = dist.MixtureSameFamily(dist.Categorical(probs=weights[:components]), dist.StudentT(4.0, loc).to_event(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", mixture, obs=x if observed else None)


def test_sticks():
    sites = find_stick_sites(
        partial(dpm_stick_breaking, component=FIXED, concentration=dist.Gamma(1.0, 1.0), truncation=7), (X,)
    )
    assert (sites.weights, sites.observed, sites.truncation, sites.conjugate) == ("weights", "X", 7, True)
    assert sites.parameters == ("alpha", "weights", "parameters")
    sites = find_stick_sites(sticks, (X,))
    assert (sites.weights, sites.observed, sites.parameters, sites.conjugate) == ("weights0", "x", ("weights0", "loc"), False)


def test_mixtures_of_every_form_are_told_apart():
    assert find_any_sites(dpm, (X,)) == find_sites(dpm, (X,))
    assert find_any_sites(lines, (X,)) == find_slot_sites(lines, (X,))
    assert find_any_sites(sticks, (X,)) == find_stick_sites(sticks, (X,))
    for model in (no_partition, no_sites):
        with pytest.raises(ValueError, match="no partition site"):
            find_any_sites(model, (X,))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"copies": 2}, "2 latent sites with StickBreaking weights; expected exactly one"),
        ({"observed": False}, '0 observed sites with a FiniteMixture.*weighted by the site "weights0"'),
        ({"truncation": 4}, "batch shape .* and 3 components; expected one mixture for all rows, with the 4 components"),
        ({"per_row": True}, r"batch shape \(6,\) and 3 components; expected one mixture for all rows"),
    ],
)
def test_models_that_are_no_stick_breaking_mixtures(options, match):
    with pytest.raises(ValueError, match=match):
        find_stick_sites(partial(sticks, **options), (X,))


# ---- the prior of the hyperparameters ----------------------------------------------------------------------------------


def start_of(**priors):
    """Constrained values at which fitting starts."""
    model = prior_of(**priors)
    prior = hyperprior(model, find_sites(model, (X,)), (X,))
    assert set(prior.start) == set(priors)
    return {name: np.asarray(value) for name, value in prior.constrain(prior.start).items()}


MEDIANS = {
    "Gamma": (dist.Gamma(2.0, 3.0), stats.gamma(2.0, scale=1 / 3).median()),
    "Gamma of shape .1": (dist.Gamma(0.1, 1.0), stats.gamma(0.1).median()),
    "InverseGamma": (dist.InverseGamma(3.0, 2.0), stats.invgamma(3.0, scale=2.0).median()),
    "LogNormal": (dist.LogNormal(0.7, 1.3), np.exp(0.7)),
    "HalfCauchy": (dist.HalfCauchy(2.5), 2.5),
    "HalfNormal": (dist.HalfNormal(2.0), stats.halfnorm(scale=2.0).median()),
    "Exponential": (dist.Exponential(2.0), np.log(2) / 2),
    "Uniform": (dist.Uniform(1.0, 4.0), 2.5),
    "Beta": (dist.Beta(1.3, 3.0), stats.beta(1.3, 3.0).median()),
    "Normal": (dist.Normal(-3.0, 2.0), -3.0),
    "StudentT": (dist.StudentT(3.0, 1.0, 2.0), 1.0),
    "truncated above": (dist.TruncatedNormal(0.0, 1.0, high=-0.5), stats.truncnorm(-np.inf, -0.5).median()),
    "truncated below": (dist.TruncatedNormal(0.0, 1.0, low=0.5), stats.truncnorm(0.5, np.inf).median()),
    "Weibull": (dist.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2.0).median()),
    "minus a Gamma": (
        dist.TransformedDistribution(dist.Gamma(2.0, 3.0), dist.transforms.AffineTransform(0.0, -1.0)),
        -stats.gamma(2.0, scale=1 / 3).median(),
    ),
    "Pareto": (dist.Pareto(2.0, 1.5), stats.pareto(1.5, scale=2.0).median()),
}


@pytest.mark.parametrize("name", MEDIANS)
def test_medians(name, x64):
    prior, expected = MEDIANS[name]
    assert float(start_of(theta=prior)["theta"]) == pytest.approx(expected, rel=1e-6)


def test_medians_in_single_precision():
    for name in ("Gamma", "LogNormal", "HalfCauchy"):
        prior, expected = MEDIANS[name]
        value = start_of(theta=prior)["theta"]
        assert value.dtype == np.float32 and float(value) == pytest.approx(expected, rel=1e-5)


VECTORS = {
    "batch": (dist.Gamma(np.array([1.0, 4.0]), 2.0), stats.gamma([1.0, 4.0], scale=0.5).median()),
    "expanded": (dist.LogNormal(0.5, 1.0).expand([3]), np.full(3, np.exp(0.5))),
    "expanded without quantiles": (dist.Gamma(2.0, 3.0).expand([3]), np.full(3, stats.gamma(2.0, scale=1 / 3).median())),
    "product": (dist.HalfNormal(np.array([1.0, 2.0])).to_event(1), stats.halfnorm(scale=[1.0, 2.0]).median()),
    "many columns": (dist.LogNormal(0.0, 1.0).expand([64]).to_event(1), np.ones(64)),
}


@pytest.mark.parametrize("name", VECTORS)
def test_medians_of_vectors(name, x64):
    """Coordinate by coordinate where the coordinates are independent: batched, expanded (as in a plate), or a product."""
    prior, expected = VECTORS[name]
    np.testing.assert_allclose(start_of(theta=prior)["theta"], expected, rtol=1e-6)


def test_medians_from_draws(x64):
    """Without quantiles or a distribution function: the draw nearest the coordinate-wise median."""
    start = start_of(normal=dist.MultivariateNormal(np.array([5.0, -5.0]), np.array([[1.0, 0.9], [0.9, 1.0]])))
    np.testing.assert_allclose(start["normal"], [5.0, -5.0], atol=0.3)


def test_a_prior_that_depends_on_another_hyperparameter(x64):
    """Medians, supports and densities follow the model: Uniform(0, scale), its median half the other's."""
    model = prior_of(scale=dist.LogNormal(1.0, 0.5), theta=lambda scale: dist.Uniform(0.0, scale))
    sites = find_sites(model, (X,))
    prior = hyperprior(model, sites, (X,))
    start = prior.constrain(prior.start)
    assert float(start["scale"]) == pytest.approx(np.exp(1.0), rel=1e-9)
    assert float(start["theta"]) == pytest.approx(np.exp(1.0) / 2, rel=1e-9)
    moved = prior.constrain({"scale": jnp.log(10.0), "theta": jnp.array(0.0)})
    assert float(moved["scale"]) == pytest.approx(10.0) and float(moved["theta"]) == pytest.approx(5.0)
    expected = stats.lognorm.logpdf(10.0, 0.5, scale=np.exp(1.0)) - np.log(10.0)
    assert float(prior.log_prob(moved)) == pytest.approx(expected, rel=1e-9)


def test_log_prob_is_the_models_own(x64):
    """NumPyro's log density of the whole model, less the partition's prior and the likelihood."""
    prior = hyperprior(users_model, find_sites(users_model, (X,)), (X,))
    z = np.array([0, 1, 0, 0, 2, 1])
    values = prior.constrain({"alpha": jnp.array(0.3), "rate": jnp.array(-0.6)})
    assert float(values["alpha"]) == pytest.approx(np.exp(0.3)) and float(values["rate"]) == pytest.approx(np.exp(-0.6))

    @jit
    def densities(values):
        whole, _ = log_density(users_model, (X,), {}, {**values, "z": z})
        component = NormalInverseGamma(np.zeros(2), 0.1, 2.0, values["rate"])
        rest = ChineseRestaurantProcess(values["alpha"], 6).log_prob(z) + ConjugateMixture(component, z).log_prob(X)
        return whole - rest, prior.log_prob(values)

    assert float(prior.log_prob(values)) == pytest.approx(float(densities(values)[1]), rel=1e-13)
    assert float(prior.log_prob(values)) == pytest.approx(float(densities(values)[0]), rel=1e-11)
    expected = stats.gamma.logpdf(np.exp(0.3), 2.0, scale=0.5) + stats.lognorm.logpdf(np.exp(-0.6), 1.0, scale=np.exp(0.3))
    assert float(prior.log_prob(values)) == pytest.approx(expected, rel=1e-9)


def test_log_prob_has_factors_scales_and_other_data(x64):
    """All of the model's density that depends on the hyperparameters, except for the partition's prior and the likelihood."""

    def model(x):
        numpyro.sample("unrelated", dist.Normal(0.0, 1.0), obs=0.3)
        with numpyro.handlers.scale(scale=0.5):
            alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
        numpyro.sample("alphas", dist.Normal(alpha, 0.5), obs=1.2)
        numpyro.factor("penalty", -3.0 * alpha)
        z = numpyro.sample("z", ChineseRestaurantProcess(alpha, x.shape[0]))
        numpyro.sample("x", ConjugateMixture(FIXED, z), obs=x)

    prior = hyperprior(model, find_sites(model, (X,)), (X,))
    expected = 0.5 * stats.gamma.logpdf(0.7, 2.0, scale=0.5) + stats.norm.logpdf(1.2, 0.7, 0.5) - 2.1
    assert float(prior.log_prob({"alpha": jnp.array(0.7)})) == pytest.approx(expected, rel=1e-9)


def test_fitting_functions_are_differentiable(x64):
    """Gradient of the log prior through `constrain`, under ``jit``, against differences."""
    prior = hyperprior(users_model, find_sites(users_model, (X,)), (X,))
    objective = jax.jit(lambda u: prior.log_prob(prior.constrain(u)))
    at = {"alpha": 0.3, "rate": -0.6}
    gradient = jax.grad(objective)(at)
    for name in at:
        sides = [objective({**at, name: at[name] + s}) for s in (1e-6, -1e-6)]
        assert float(gradient[name]) == pytest.approx(float(sides[0] - sides[1]) / 2e-6, rel=1e-7)


def test_values_come_in_the_order_of_the_model(x64):
    model = prior_of(scale=dist.LogNormal(1.0, 0.5), theta=lambda scale: dist.Uniform(0.0, scale), rate=dist.Exponential(2.0))
    sites = find_sites(model, (X,))
    prior = hyperprior(model, sites, (X,))
    values = prior.constrain(dict(sorted(prior.start.items())))
    assert list(values) == list(prior.start) == list(prior.unconstrain(values)) == list(sites.hyperparameters)


def test_a_model_without_hyperparameters():
    model = partial(dpm, component=FIXED)
    prior = hyperprior(model, find_sites(model, (X,)), (X,))
    assert prior.start == {} and prior.starts == () and prior.constrain({}) == {}
    assert float(prior.log_prob({})) == 0.0


@pytest.mark.parametrize("prior", [dist.Categorical(probs=np.ones(3) / 3), dist.Bernoulli(0.4)])
def test_discrete_hyperparameters_are_refused(prior):
    model = prior_of(k=prior)
    sites = find_sites(model, (X,))
    with pytest.raises(ValueError, match='hyperparameter site "k" is discrete; only continuous hyperparameters'):
        hyperprior(model, sites, (X,))


def test_improper_priors_are_refused():
    model = prior_of(theta=dist.ImproperUniform(dist.constraints.positive, (), ()))
    sites = find_sites(model, (X,))
    with pytest.raises(ValueError, match="ImproperUniform"):
        hyperprior(model, sites, (X,))

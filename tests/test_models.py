"""The models: their sites, their densities, and that hyperparameters may be numbers or distributions."""

from __future__ import annotations

import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import log_density
from scipy.stats import multivariate_normal
from sklearn.base import clone

from bnp_hier import (
    BHC,
    BetaBernoulli,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
    evidence,
)
from bnp_hier.models import MixtureModel, bhmc, bhmc_finite, bhmc_paper, dpm, dpm_stick_breaking, pitman_yor_mixture
from tests.parameters import few

X = np.random.default_rng(0).normal(size=(5, 2))


def _sites(model) -> dict:
    trace = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(X)
    return {name: site for name, site in trace.items() if site["type"] == "sample"}


def _names(model) -> list[str]:
    """Names of the sites in order; nothing is computed."""
    sites: dict = {}
    jax.eval_shape(lambda: sites.update(_sites(model)))
    assert sites["X"]["is_observed"] and ("z" not in sites or sites["z"]["value"].shape == (5,))
    return list(sites)


def test_site_names() -> None:
    learned = ["alpha", "within", "correlation", "kappa", "extra_nu"]
    fixed = NormalInverseWishart.from_data(X, learn=False)
    assert _names(dpm) == [*learned, "z", "X"]
    assert _names(partial(dpm, concentration=2.0)) == [*learned[1:], "z", "X"]
    assert _names(partial(dpm, component=NormalInverseWishart.from_data(X))) == [*learned, "z", "X"]
    assert _names(partial(dpm, component=fixed)) == ["z", "X"]
    assert _names(partial(dpm, component=fixed, concentration=dist.Gamma(1.0, 1.0))) == ["alpha", "z", "X"]
    assert _names(partial(pitman_yor_mixture, component=fixed)) == ["z", "X"]
    both = partial(pitman_yor_mixture, component=fixed, concentration=dist.Gamma(1.0, 1.0), discount=dist.Beta(1.0, 3.0))
    assert _names(both) == ["alpha", "discount", "z", "X"]
    assert _names(partial(dpm_stick_breaking, component=fixed)) == ["weights", "parameters", "X"]


def test_default_component_is_read_off_the_data() -> None:
    default, given = (_sites(partial(dpm, component=c))["X"]["fn"] for c in (None, NormalInverseWishart.from_data(X)))
    z = jnp.array([0, 0, 1, 1, 2])
    densities = []
    for fn in (default, given):
        fn.assignments = z
        densities.append(float(fn.log_prob(X)))
    assert densities[0] == densities[1]


@pytest.mark.slow
def test_component_may_be_a_function_with_priors_of_its_own() -> None:
    def component(X):
        return NormalInverseGamma(X.mean(0), 0.1, 2.0, numpyro.sample("rate", dist.LogNormal(0.0, 1.0)))

    model = partial(dpm, component=component)
    assert list(_sites(model)) == ["rate", "z", "X"]
    assert set(BHC(model, optimize=True).fit(X).hyperparameters_) == {"rate"}


def test_joint_density_is_prior_plus_likelihood() -> None:
    model = partial(dpm, component=NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(2.0, 1.0))
    z = jnp.array([0, 1, 0, 0, 1])
    total, _ = log_density(model, (X,), {}, {"alpha": jnp.float32(0.7), "z": z})
    sites = handlers.trace(handlers.substitute(model, {"alpha": jnp.float32(0.7), "z": z})).get_trace(X)
    expected = dist.Gamma(2.0, 1.0).log_prob(0.7) + sites["z"]["fn"].log_prob(z) + sites["X"]["fn"].log_prob(X)
    np.testing.assert_allclose(total, expected, rtol=1e-6)


def test_only_missing_values_of_dependent_columns_are_a_site() -> None:
    table = np.column_stack([X, [0, 1, np.nan, 1, 0]])
    table[1, 0] = table[3, :2] = np.nan
    parts = [NormalInverseWishart.from_data(table[:, :2], learn=False), BetaBernoulli(np.ones(1), np.ones(1))]
    for model in (dpm, pitman_yor_mixture):
        seeded = handlers.seed(partial(model, component=ProductComponent(parts, [[0, 1], [2]])), 0)
        sites = handlers.trace(seeded).get_trace(table)
        assert sites["missing"]["value"].shape == (3,)
        np.testing.assert_array_equal(np.argwhere(np.isnan(sites["X"]["value"])), [[2, 2]])
        np.testing.assert_array_equal(sites["X"]["value"][[1, 3, 3], [0, 0, 1]], sites["missing"]["value"])
        assert np.isfinite(sites["X"]["fn"].log_prob(sites["X"]["value"]))


def test_prior_predictive() -> None:
    draws = Predictive(handlers.uncondition(partial(dpm, concentration=dist.Gamma(1.0, 1.0))), num_samples=7)(
        jax.random.key(0), X
    )
    assert draws["X"].shape == (7, 5, 2) and draws["z"].shape == (7, 5) and np.isfinite(draws["X"]).all()


@pytest.mark.slow
def test_stick_breaking_likelihood_sums_the_labels_out(x64) -> None:
    component = NormalInverseWishart(np.zeros(2), 0.5, 4.0, np.eye(2))
    model = partial(dpm_stick_breaking, component=component, concentration=1.5, truncation=3)
    with handlers.seed(rng_seed=0):
        sites = handlers.trace(model).get_trace(X)
    weights, parameters = np.asarray(sites["weights"]["value"]), np.asarray(sites["parameters"]["value"])
    densities = [multivariate_normal(p[0], p[1:]).logpdf(X) for p in parameters]
    expected = np.log((weights[:, None] * np.exp(densities)).sum(0))
    np.testing.assert_allclose(sites["X"]["fn"].log_prob(X), expected, rtol=1e-9)


@pytest.mark.slow
def test_stick_breaking_evidence_is_the_process_evidence(x64) -> None:
    """Mean likelihood over 400,000 prior draws, truncation 15, against exact enumeration.

    Five Monte Carlo standard errors plus the truncation's n e^{-(K-1)/α} < 1e-4: false-alarm rate below 1e-6.
    """
    component = NormalInverseGamma(np.zeros(1), 0.5, 3.0, 1.0)
    rows = np.array([[0.1], [0.4], [2.0]])
    model = partial(dpm_stick_breaking, component=component, concentration=1.0, truncation=15)

    def log_likelihood(key: jax.Array) -> jax.Array:
        trace = handlers.trace(handlers.seed(model, key)).get_trace(rows)
        return trace["X"]["fn"].log_prob(rows).sum()

    def batch(key: jax.Array) -> jax.Array:
        return jax.vmap(log_likelihood)(jax.random.split(key, 4000))

    logs = np.asarray(jax.jit(lambda keys: jax.lax.map(batch, keys))(jax.random.split(jax.random.key(0), 100))).ravel()
    value = float(logsumexp(logs) - np.log(len(logs)))
    relative = np.exp(logs - value)
    error = relative.std() / np.sqrt(len(logs))
    assert error < 0.01
    assert abs(value - evidence.exact(partial(dpm, component=component, concentration=1.0), rows)) < 5 * error + 1e-4


@pytest.mark.slow
def test_stick_breaking_runs_under_nuts_with_missing_cells() -> None:
    holes = np.where(np.eye(5, 2) > 0, np.nan, X)
    model = partial(
        dpm_stick_breaking,
        component=NormalInverseGamma.from_data(holes, learn=False),
        concentration=dist.Gamma(1.0, 1.0),
        truncation=3,
    )
    mcmc = MCMC(NUTS(model), num_warmup=20, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0), holes)
    samples = mcmc.get_samples()
    assert samples["weights"].shape == (20, 3) and samples["parameters"].shape == (20, 3, 2, 2)
    assert np.isfinite(samples["parameters"]).all() and (samples["parameters"][:, :, 1] > 0).all()
    np.testing.assert_allclose(samples["weights"].sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("concentration", [0.0, -1.0, np.nan])
@pytest.mark.parametrize("model", [dpm, pitman_yor_mixture, dpm_stick_breaking])
def test_non_positive_concentration(model, concentration: float) -> None:
    with pytest.raises(ValueError, match="concentration must"):
        _sites(partial(model, concentration=concentration if model is not pitman_yor_mixture else concentration - 0.5))


# ---- hierarchical mixtures -------------------------------------------------------------------------------------------


def test_sites_of_hierarchical_models() -> None:
    shape = {"component": NormalInverseGamma(np.zeros(2), 1.0, 2.0, 1.0), "depth": 2, "max_components": 4}
    assert _names(partial(bhmc, **shape, max_nodes=9)) == [
        "alpha",
        "gamma0",
        "gamma",
        "paths",
        "mixing",
        "parameters",
        "labels",
        "X",
    ]
    finite = ["branches_1", "mixing_1", "branches_2", "mixing_2"]
    assert _names(partial(bhmc_finite, **shape, branching=2)) == [
        "alpha",
        "gamma0",
        "gamma",
        "parameters",
        "mixing_0",
        *finite,
        "X",
    ]
    assert {"within", "correlation", "kappa", "extra_nu"} < set(_names(bhmc))
    assert "sigma2" in _names(partial(bhmc_paper, settings="texts"))
    assert _names(bhmc_paper) == ["paths", "mixing", "parameters", "labels", "X"]
    with pytest.raises(ValueError, match="settings must be one of animals, fashion, texts, but it is 'food'"):
        _names(partial(bhmc_paper, settings="food"))
    assert _names(partial(bhmc, concentration=1.0, root_concentration=1.0, **{**shape, "depth": 1}))[0] == "gamma"


@pytest.mark.parametrize("root", few(["finite", "infinite"], plain=0))
def test_prior_predictive_of_a_hierarchical_mixture(root: str) -> None:
    """The whole process (Huang et al. 2021, Algorithm 1); 4,000 draws.

    Two items share a branch with probability 1/(1 + α), a component with that of the root's, (1 + γ0/K)/(1 + γ0) or 1/(1 + γ0),
    raised at every node they share; within five standard errors (a false-alarm rate below 1e-5).
    """
    component = NormalKnownCovariance(np.zeros(2), 2.0 * np.eye(2), 0.5 * np.eye(2))
    alpha, gamma0, gamma, size = 0.7, 1.3, 0.9, 3 if root == "finite" else None
    model = partial(bhmc, depth=2, component=component, concentration=alpha, root_concentration=gamma0)
    model = partial(model, mixing_concentration=gamma, max_components=size, max_nodes=11, root=root)
    draws = Predictive(handlers.uncondition(model), num_samples=4000)(jax.random.key(0), X)
    paths, labels, rows = (np.asarray(draws[name]) for name in ("paths", "labels", "X"))
    shared = (paths[:, 0] == paths[:, 1]).sum(1)
    together = labels[:, 0] == labels[:, 1]

    def agrees(found: np.ndarray, expected: float) -> bool:
        return bool(abs(found.mean() - expected) < 5 * found.std() / np.sqrt(len(found)))

    assert agrees(shared > 0, 1 / (1 + alpha)) and agrees(shared == 2, 1 / (1 + alpha) ** 2)
    at_root = (1 + gamma0 / size) / (1 + gamma0) if root == "finite" else 1 / (1 + gamma0)
    for nodes in range(3):
        # below a node that both pass, a pair of draws is the same with 1/(1 + γ), or as its parent's pair
        expected = 1 - (1 - at_root) * (gamma / (1 + gamma)) ** nodes
        assert agrees(together[shared == nodes], expected)
    assert agrees((rows[:, 0, 0] ** 2), 2.5)
    assert agrees((rows[:, 0, 0] * rows[:, 1, 0])[together], 2.0) and agrees((rows[:, 0, 0] * rows[:, 1, 0])[~together], 0.0)


@pytest.mark.slow
def test_fixed_branching_sums_paths_and_labels_out(x64) -> None:
    """The density of the rows is the sum over all leaves and components."""
    family = NormalKnownCovariance(np.zeros(2), 2.0 * np.eye(2), 0.5 * np.eye(2))
    model = partial(bhmc_finite, depth=2, component=family, max_components=3, branching=2)
    trace = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(X)
    value = {name: np.asarray(site["value"]) for name, site in trace.items() if site["type"] in ("sample", "deterministic")}
    total = np.zeros(5)
    for first in range(2):
        for second in range(2):
            leaf = 2 * first + second
            weight = value["branches_1"][0, first] * value["branches_2"][first, second]
            assert weight == pytest.approx(value["leaf_weights"][leaf])
            for k in range(3):
                density = multivariate_normal(value["parameters"][k], 0.5 * np.eye(2)).pdf(X)
                total += weight * value["mixing_2"][leaf, k] * density
    np.testing.assert_allclose(trace["X"]["fn"].log_prob(X), np.log(total))
    np.testing.assert_allclose(value["leaf_mixing"].sum(1), 1.0)


@pytest.mark.slow
def test_fixed_branching_under_nuts() -> None:
    """Two groups: two components hold nearly all rows, and the chain is not stuck."""
    rows = np.random.default_rng(0).normal(np.repeat([[-4.0], [4.0]], 10, 0), 0.5)
    family = NormalKnownCovariance(np.zeros(1), 16.0 * np.eye(1), 0.25 * np.eye(1))
    model = partial(bhmc_finite, depth=1, component=family, max_components=3, branching=2)
    mcmc = MCMC(NUTS(model), num_warmup=300, num_samples=300, progress_bar=False)
    mcmc.run(jax.random.key(0), rows)
    draws = mcmc.get_samples()
    weights = np.einsum("sl,slk->sk", draws["leaf_weights"], draws["leaf_mixing"])
    heaviest = np.argsort(weights, axis=1)[:, -2:]  # the third is empty, and anywhere under the prior
    assert np.take_along_axis(weights, heaviest, 1).sum(1).mean() > 0.8
    means = np.sort(np.take_along_axis(np.asarray(draws["parameters"])[..., 0], heaviest, 1), axis=1)
    np.testing.assert_allclose(np.median(means, axis=0), [rows[:10].mean(), rows[10:].mean()], atol=0.5)
    assert np.mean(mcmc.get_extra_fields()["diverging"]) < 0.5


# ---- settings by name -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "plain"),
    [
        (MixtureModel(), dpm),
        (MixtureModel("diagonal", learn=False), partial(dpm, component=partial(NormalInverseGamma.from_data, learn=False))),
        (
            MixtureModel("diagonal", concentration=2.0, kappa=0.3),
            partial(dpm, component=lambda X: NormalInverseGamma.from_data(X, kappa=0.3)(X), concentration=2.0),
        ),
        (
            MixtureModel("known", discount=0.1, concentration=dist.Gamma(2.0, 1.0)),
            partial(
                pitman_yor_mixture,
                component=lambda X: NormalKnownCovariance.from_data(X)(X),
                concentration=dist.Gamma(2.0, 1.0),
                discount=0.1,
            ),
        ),
        (
            MixtureModel("mixed", families=["normal", "known"], columns=[[1], [0]], concentration=2.0),
            partial(
                dpm,
                component=lambda X: ProductComponent.from_data(
                    X, families=[NormalInverseWishart, NormalKnownCovariance], columns=[[1], [0]]
                )(X),
                concentration=2.0,
            ),
        ),
    ],
)
def test_named_settings_are_those_of_the_plain_model(named: MixtureModel, plain) -> None:
    found, expected = _sites(named), _sites(plain)
    assert set(found) == set(expected)
    values = {name: site["value"] for name, site in expected.items() if not site["is_observed"]}
    for site in found:
        assert found[site]["fn"].log_prob(expected[site]["value"]).sum() == pytest.approx(
            float(expected[site]["fn"].log_prob(expected[site]["value"]).sum())
        )
    assert float(log_density(named, (X,), {}, values)[0]) == pytest.approx(float(log_density(plain, (X,), {}, values)[0]))


def test_settings_are_parameters() -> None:
    model = MixtureModel("diagonal", kappa=0.2)
    assert model.get_params() == {
        "family": "diagonal",
        "concentration": None,
        "discount": None,
        "learn": True,
        "kappa": 0.2,
        "shape": None,
        "within": None,
    }
    assert clone(model).get_params() == model.get_params() and pickle.loads(pickle.dumps(model)).get_params()["kappa"] == 0.2
    assert repr(model) == "MixtureModel('diagonal', kappa=0.2)"
    assert model.set_params(family="normal").get_params()["nu"] is None and model.get_params()["kappa"] == 0.2
    assert "shape" not in model.get_params()
    model.set_params(family="spherical", concentration=dist.Gamma(1.0, 2.0))
    assert repr(model) == "MixtureModel('spherical', concentration=Gamma(...))"  # kappa is gone
    mixed = model.set_params(family="mixed", concentration=None, families=["normal", "bernoulli"], columns=[[0], [1]])
    assert repr(mixed) == "MixtureModel('mixed', families=['normal', 'bernoulli'], columns=[[0], [1]])"
    assert clone(mixed).get_params()["families"] == ["normal", "bernoulli"]
    assert list(mixed.component(np.array([[0.1, 1.0], [0.3, 0.0]])).priors) == [
        *("part0_within", "part0_kappa", "part0_extra_nu"),
        "part1_strength",
    ]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"kapa": 1.0},
            r"there is no setting 'kapa' of MixtureModel\('normal'\); did you mean 'kappa'\? The settings are family, ",
        ),
        ({"family": "nromal"}, r"there is no family 'nromal'; did you mean 'normal'"),
        ({"family": "poisson", "kappa": 1.0}, r"there is no setting 'kappa' of MixtureModel\('poisson'\); the settings are"),
        ({"X": 1.0}, "there is no setting 'X'"),
    ],
)
def test_settings_that_do_not_exist(settings: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MixtureModel(**settings)
    model = MixtureModel(within=0.5)
    with pytest.raises(ValueError, match=match):
        model.set_params(**settings)
    assert model.get_params()["family"] == "normal" and model.get_params()["within"] == 0.5  # nothing has changed


@pytest.mark.slow
def test_sticks_need_rows_that_their_component_can_have() -> None:
    X = np.array([[0.0, 1.0], [np.nan, 2.0], [1.0, 0.5]])
    full = partial(dpm_stick_breaking, component=NormalInverseWishart(np.zeros(2), 1.0, 4.0, np.eye(2)))
    with pytest.raises(ValueError, match="missing value .* at row 1, column 0; NormalInverseWishart needs complete rows"):
        log_density(handlers.seed(full, 0), (X,), {}, {})
    by_column = partial(dpm_stick_breaking, component=NormalInverseGamma(np.zeros(2), 1.0, 2.0, 1.0))
    assert np.isfinite(log_density(handlers.seed(by_column, 0), (X,), {}, {})[0])

"""Components whose hyperparameters are learned: their sites, what the user fixes, and the units of the columns."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, Gibbs

import bnp_hier as bnp
from bnp_hier import components
from bnp_hier.components import LearnedPrior
from bnp_hier.components.checks import rounding_variances
from bnp_hier.components.learned import correlation_prior, prior_of
from bnp_hier.models import DEFAULT_CONCENTRATION, dpm
from tests.parameters import few

ROWS = np.random.default_rng(0).normal(size=(30, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 2.0]])
COUNTS = np.random.default_rng(1).poisson(3.0, size=(30, 3))
FAMILIES: dict[type[bnp.Component], np.ndarray] = {
    bnp.NormalInverseWishart: ROWS,
    bnp.NormalInverseGamma: ROWS,
    bnp.NormalKnownCovariance: ROWS,
    bnp.BetaBernoulli: (ROWS > 0).astype(float),
    bnp.GammaPoisson: COUNTS,
    bnp.DirichletMultinomial: COUNTS,
}


def sites_of(component: Callable[..., Any]) -> dict[str, Any]:
    with handlers.seed(rng_seed=0):
        trace = handlers.trace(component).get_trace()
    return {name: site for name, site in trace.items() if site["type"] == "sample"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_learned_prior_samples_its_sites_and_returns_the_family(family: type[bnp.Component]) -> None:
    learned = family.from_data(FAMILIES[family])
    assert isinstance(learned, LearnedPrior)
    assert set(sites_of(learned)) == set(learned.priors)
    with handlers.seed(rng_seed=0):
        assert type(learned()) is family
    for name, values in learned.starts.items():
        for value in values:  # starts lie in the supports
            assert np.isfinite(np.asarray(learned.priors[name].log_prob(value))).all(), name
    assert all(name in repr(learned) for name in learned.priors)


def test_products_take_families_by_their_short_names() -> None:
    columns = [[0, 1], [2]]
    named = bnp.ProductComponent.from_data(ROWS, families=["spherical", bnp.NormalInverseGamma], columns=columns)
    spherical = bnp.NormalKnownCovariance.from_data(ROWS[:, :2], covariance_type="spherical")
    diagonal = bnp.NormalInverseGamma.from_data(ROWS[:, 2:])
    assert list(named.priors) == [f"part{k}_{name}" for k, part in enumerate((spherical, diagonal)) for name in part.priors]
    assert named.priors["part0_within"].shape() == ()
    parts = bnp.ProductComponent.from_data(ROWS, families=["normal", "known"], columns=columns, learn=False).parts
    assert [type(part) for part in parts] == [bnp.NormalInverseWishart, bnp.NormalKnownCovariance]


@pytest.mark.parametrize(("covariance_type", "sites", "size"), [("full", 3, 3), ("diagonal", 2, 3), ("spherical", 2, 1)])
def test_forms_of_a_shared_covariance_matrix(covariance_type: str, sites: int, size: int) -> None:
    """Correlations only in the full form, and one share of the variances in the spherical one."""
    learned = bnp.NormalKnownCovariance.from_data(ROWS, covariance_type=covariance_type)
    assert len(learned.priors) == len(learned.starts) == sites and np.size(learned.starts["within"][0]) == size
    with handlers.seed(rng_seed=0):
        covariance = np.asarray(learned().covariance)
    shares = np.diagonal(covariance) / ROWS.var(0)
    assert (np.ptp(shares) < 1e-5) == (covariance_type == "spherical")
    assert (covariance == np.diag(np.diagonal(covariance))).all() == (covariance_type != "full")
    with pytest.raises(ValueError, match="covariance_type must be one of full, diagonal, spherical, but it is 'tied'"):
        bnp.NormalKnownCovariance.from_data(ROWS, covariance_type="tied")


@pytest.mark.parametrize("family", FAMILIES)
def test_learn_false_gives_numbers(family: type[bnp.Component]) -> None:
    assert type(family.from_data(FAMILIES[family], learn=False)) is family


def test_numbers_of_the_user_stay_numbers() -> None:
    learned = bnp.NormalInverseWishart.from_data(ROWS, kappa=0.5, nu=9.0)
    assert isinstance(learned, LearnedPrior) and set(learned.priors) == {"within", "correlation"}
    with handlers.seed(rng_seed=0):
        component = learned()
    assert float(component.kappa) == 0.5 and float(component.nu) == 9.0
    assert type(bnp.BetaBernoulli.from_data(FAMILIES[bnp.BetaBernoulli], strength=2.0, learn=True)) in (
        LearnedPrior,
        bnp.BetaBernoulli,
    )


@pytest.mark.parametrize("family", few(["normal", "diagonal", "known", "spherical"]))
def test_units_of_the_columns_change_no_label(family: str) -> None:
    """Columns multiplied by 1,000 and by 0.01, and shifted."""
    X = np.vstack([ROWS, ROWS[:15] + [4.0, 0.0, -6.0]])
    other = X * [1000.0, 0.01, 1.0] + [5.0, 0.0, -3.0]
    fits = []
    for rows in (X, other):
        prior = prior_of(components.FAMILIES[family], rows, learn=True, **components.FORMS.get(family, {}))
        fits.append(bnp.MAPDP(partial(bnp.models.dpm, component=prior), n_init=3).fit(rows))
    assert fits[0].n_clusters_ > 1
    np.testing.assert_array_equal(fits[0].labels_, fits[1].labels_)
    for name, value in fits[0].hyperparameters_.items():
        np.testing.assert_allclose(fits[1].hyperparameters_[name], value, rtol=0.02, atol=0.01, err_msg=name)
    scaled = fits[1].log_joint_ + len(X) * np.log(1000.0 * 0.01)
    assert scaled == pytest.approx(fits[0].log_joint_, abs=0.05)


def test_correlations_cost_what_the_information_criterion_says() -> None:
    """From a share of 0 to 1, the log density falls by ½ log(n / 2π) for each of the 6 correlations of 4 columns."""
    prior = correlation_prior(128, 4)
    fall = float(prior.log_prob(0.0) - prior.log_prob(1.0))
    assert fall == pytest.approx(6 * 0.5 * np.log(128 / (2 * np.pi)), rel=1e-5)


def test_a_prefix_separates_two_components_of_a_model() -> None:
    learned = bnp.GammaPoisson.from_data(COUNTS)
    assert isinstance(learned, LearnedPrior)

    def both() -> None:
        learned.named("first_")()
        learned.named("second_")()

    assert set(sites_of(both)) == {f"{part}_{name}" for part in ("first", "second") for name in learned.priors}


def test_a_learned_prior_is_pickled() -> None:
    learned = bnp.NormalInverseWishart.from_data(ROWS)
    again = pickle.loads(pickle.dumps(learned))
    first, second = sites_of(learned), sites_of(again)
    jax.tree.map(np.testing.assert_array_equal, *({n: s["value"] for n, s in each.items()} for each in (first, second)))


def test_a_learned_prior_stands_for_a_component_in_a_model_of_ones_own() -> None:
    learned = bnp.NormalInverseWishart.from_data(ROWS)

    def model(X: Any) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(numpyro.sample("alpha", dist.Gamma(1.0, 1.0)), len(X)))
        numpyro.sample("X", bnp.ConjugateMixture(learned, z), obs=X)

    fit = bnp.MAPDP(model, n_init=2).fit(ROWS)
    assert set(fit.hyperparameters_) == {"alpha", "within", "correlation", "kappa", "extra_nu"}


@pytest.mark.slow
def test_rows_in_the_tails_are_predicted_as_well_as_under_few_degrees_of_freedom() -> None:
    """Held-out density of tables of which some rows are far out, against nu = d + 2, on twelve tables."""
    gains = []
    for seed, tail in itertools.product(range(6), (0.005, 0.03)):
        rng = np.random.default_rng(seed)
        X = rng.multivariate_normal([170.0, 70.0], [[50.0, 40.0], [40.0, 100.0]], size=400)  # heights and weights
        X = X + np.where(rng.random((400, 1)) < tail, rng.standard_t(3, size=(400, 2)) * [20.0, 35.0], 0.0)
        train, held_out = X[:200], X[200:]
        learned, fixed = (bnp.NormalInverseWishart.from_data(train, **nu) for nu in ({}, {"nu": 4.0}))
        models = [partial(dpm, component=each, concentration=DEFAULT_CONCENTRATION) for each in (learned, fixed)]
        gains.append(np.subtract(*(bnp.MAPDP(model).fit(train).score_samples(held_out).mean() for model in models)))
    assert np.mean(gains) > -0.02, gains


# ---- grades -----------------------------------------------------------------------------------------------------------------


def _with_one_value(share: float, grid: float | None, n: int, seed: int) -> np.ndarray:
    """Amounts: a share of zeros, the others above 1, on a grid or not; a twentieth missing."""
    rng = np.random.default_rng(seed)
    amounts = rng.permutation(np.where(np.arange(n) < round(share * n), 0.0, 1.0 + rng.exponential(size=n)))
    amounts = amounts if grid is None else grid * np.round(amounts / grid)
    return np.where(np.arange(n) % 20 == 7, np.nan, amounts)


def test_rounding_errors_of_columns_with_repeated_values() -> None:
    """Against counts of the values: the smallest difference, or a thousandth of the standard deviation."""
    rng = np.random.default_rng(0)
    columns = [_with_one_value(share, grid, 200, seed) for share in (0.3, 0.9) for grid in (0.01, None) for seed in (0, 1)]
    columns += [rng.integers(1, 6, 200).astype(float), rng.normal(size=200).round(1), rng.normal(size=200)]
    columns.append(np.where(np.arange(200) == 0, columns[-1][1] * (1 + 1e-13), columns[-1]))  # equal but for rounding
    X = np.column_stack(columns)
    variance = np.nanvar(X, axis=0)
    expected = []
    for column, spread in zip(X.T[:-1], variance, strict=False):
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        least = max(np.diff(values).min() ** 2, spread * 1e-6) / 12
        expected.append(least if counts.max() > 1 else 0.0)
    expected.append(variance[-1] * 1e-6 / 12)
    assert np.array_equal(np.flatnonzero(np.array(expected) == 0.0), [10])
    np.testing.assert_allclose(rounding_variances(X, variance), expected, rtol=1e-9)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(rounding_variances)(X, variance), expected, rtol=1e-9)


@pytest.mark.slow
def test_amounts_that_are_often_zero_have_a_recommendation() -> None:
    """Of glass, in two columns most values are 0, and unbounded densities ended the search."""
    advice = bnp.recommend(bnp.datasets.load("glass"), progress_bar=False)
    assert advice.family == "normal" and all(np.isfinite(each.score) for each in advice.structures)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        (bnp.NormalInverseGamma, {}),
        (bnp.NormalInverseWishart, {}),
        (bnp.NormalKnownCovariance, {}),
        (bnp.NormalKnownCovariance, {"covariance_type": "spherical"}),
    ],
)
def test_clusters_of_equal_grades_have_bounded_densities(family: type, options: dict) -> None:
    """Whatever the hyperparameters, no variance is expected below that of the rounding errors."""
    rng = np.random.default_rng(0)
    grades = rng.integers(1, 4, (90, 2)).astype(float)
    prior, smooth = (family.from_data(rows, **options) for rows in (grades, grades + 1e-3 * rng.normal(size=(90, 2))))
    assert "rounding" in prior.build.keywords and "rounding" not in smooth.build.keywords
    values = {
        name: np.eye(2) if name == "factor" else np.zeros(np.shape(each.sample(jax.random.key(0))))
        for name, each in prior.priors.items()
    }
    for small in (1e-12, 1e-6):
        for large in (1e-6, 1.0, 1e6):
            given = {
                name: value if name == "factor" else np.full(np.shape(value), 0.0 if name == "correlation" else large)
                for name, value in values.items()
            }
            given["within"] = np.full(np.shape(values["within"]), small)
            spread = prior.built(given).expected_spread()
            assert (spread.within**2 > 0.9 / 12).all(), (small, large, spread)


@pytest.mark.slow
def test_grades_are_sampled() -> None:
    """A survey whose normal clusters would collapse onto single grades: the densities stay finite."""
    rng = np.random.default_rng(0)
    z = rng.integers(0, 3, 120)
    shares = np.array([[0.15] * 3, [0.8, 0.8, 0.2], [0.2, 0.85, 0.85]])
    X = 1.0 + rng.binomial(4, shares[z])
    model = partial(dpm, component=bnp.NormalInverseGamma.from_data(X))
    fit = bnp.MAPDP(model, n_init=2).fit(X)
    assert np.isfinite(fit.log_joint_) and fit.n_clusters_ < 40
    kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (bnp.HyperparameterGibbs(model), None)])
    run = MCMC(kernel, num_warmup=50, num_samples=50, progress_bar=False)
    run.run(jax.random.key(0), X)
    assert np.isfinite(np.asarray(run.get_samples()["extra_shape"])).all()

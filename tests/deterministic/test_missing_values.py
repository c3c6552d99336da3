"""Estimators on tables with missing values under full and shared covariance: the bound, imputation, and new rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, Gibbs
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.components.incomplete_rows import log_density_of_observed
from bnp_hier.distributions.missing_values import with_cells
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.models import dpm
from bnp_hier.partitions.imputation import better_labels, impute
from bnp_hier.posterior.draws import draws_of, summaries
from tests.parameters import few

NAN = np.nan
CORRELATED = np.array([[1.0, 0.7], [0.7, 1.0]])
FAMILIES: dict[str, Any] = {
    "full": bnp.NormalInverseWishart(np.zeros(2), 0.3, 5.0, CORRELATED),
    "known": bnp.NormalKnownCovariance(np.zeros(2), 4.0 * np.eye(2), CORRELATED),
}
FEW = np.array([[-1.0, NAN], [-0.8, -0.5], [NAN, 1.6], [1.7, 1.2], [2.5, 3.0]])
FEW_MIXED = np.insert(FEW, 1, [1, NAN, 0, NAN, 0], axis=1)
"""The same numbers with a binary column between them."""
BITS = bnp.BetaBernoulli(np.full(1, 0.3), np.full(1, 0.3))
MIXED = {name: bnp.ProductComponent([BITS, component], [[1], [0, 2]]) for name, component in FAMILIES.items()}
every_family = pytest.mark.parametrize("family", FAMILIES)


def exact_log_joint(component: bnp.Component, X: np.ndarray, labels: np.ndarray) -> float:
    """Log p(observed cells, labels) with both missing values integrated out by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    angles = nodes * np.pi / 2
    points, log_weights = 2.0 * np.tan(angles), np.log(weights * np.pi / np.cos(angles) ** 2)
    pairs = np.stack([np.repeat(points, 200), np.tile(points, 200)], axis=1)
    prior = bnp.ChineseRestaurantProcess(1.0, len(X)).log_prob(jnp.asarray(labels))

    @jax.jit
    def joint(cells: jax.Array) -> jax.Array:
        completed = with_cells(X, cells, component.incomplete_cells(X))
        return bnp.ConjugateMixture(component, jnp.asarray(labels)).log_prob(completed) + prior

    terms = np.asarray(jax.lax.map(joint, jnp.asarray(pairs), batch_size=4000))
    return float(np.logaddexp.reduce(terms + (log_weights[:, None] + log_weights).ravel()))


@every_family
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("labels", few([[0, 0, 1, 1, 1], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]], 2, 2))
def test_the_bound_is_below_the_exact_log_joint_and_close(family: str, mixed: bool, labels: list[int], x64: None) -> None:
    component, X = (MIXED[family], FEW_MIXED) if mixed else (FAMILIES[family], FEW)
    z = np.array(labels)
    found = impute(MixtureValues(Prior(1.0), component, X), X, z)
    gap = exact_log_joint(component, X, z) - found.log_joint
    assert -1e-9 < gap < 2.5, gap  # the first and third row alone: cells and parameters are taken as independent
    if np.bincount(z)[z[[0, 2]]].min() > 1:
        assert gap < 1.2
    # the statistics are those of the completed rows and their covariances
    rows = component.suff_stats(jnp.asarray(with_cells(X, found.cells, component.incomplete_cells(X))))
    added = component.with_covariances(component.empty((2,)), jnp.asarray(found.covariances))
    for k in range(max(labels) + 1):
        total = jax.tree.map(lambda leaf, k=k: leaf[z == k].sum(0), rows)
        extra = jax.tree.map(lambda leaf, k=k: leaf[z[found.rows] == k].sum(0), added)
        for one, two, three in zip(*map(jax.tree.leaves, (total, extra, found.stats)), strict=True):
            np.testing.assert_allclose(one + two, three[k], rtol=1e-6, atol=1e-8)


@every_family
def test_a_row_without_numbers_leaves_the_bound_of_the_others(family: str, x64: None) -> None:
    """Log p(observed cells, labels) is then exact, whatever is there in other columns."""
    component, z = MIXED[family], np.array([0, 0, 1])
    X = np.array([[0.3, 1, 0.1], [NAN, 1, NAN], [2.0, NAN, 1.5]])
    (bits, numbers), prior = component.parts, bnp.ChineseRestaurantProcess(1.0, 3).log_prob(jnp.asarray(z))
    exact = prior + bits.log_evidence(X[:2, [1]]) + numbers.log_evidence(X[:1, ::2]) + numbers.log_evidence(X[2:, ::2])
    found = impute(MixtureValues(Prior(1.0), component, X), X, z)
    assert -1e-9 < exact - found.log_joint < 2.5
    assert len(found.cells) == len(found.deviations) == 2 and np.isfinite(found.deviations).all()


def test_a_product_of_one_part_is_this_part(x64: None) -> None:
    component: Any = FAMILIES["full"]
    one = bnp.MAPDP(partial(dpm, component=component)).fit(FEW)
    other = bnp.MAPDP(partial(dpm, component=bnp.ProductComponent([component], [[0, 1]]))).fit(FEW)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    for name in ("log_joint_", "missing_values_", "missing_std_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-8)
    np.testing.assert_allclose(one.predict_proba(FEW), other.predict_proba(FEW), rtol=1e-8)
    left_out = [summaries(draws_of(fit, FEW)).log_likelihood for fit in (one, other)]
    np.testing.assert_allclose(*left_out, rtol=1e-8)


@every_family
def test_better_labels_are_the_most_probable_clusters(family: str, x64: None) -> None:
    """The first row is left in the wrong one of two distant clusters; what is there of it tells the right one."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-6, 1, (20, 2)), rng.normal(6, 1, (20, 2))])
    X[0, 1] = X[25, 0] = NAN
    right = np.repeat([0, 1], 20)
    wrong = right.copy()
    wrong[0] = 1
    values = MixtureValues(Prior(1.0), FAMILIES[family], X)
    found = impute(values, X, wrong)
    np.testing.assert_array_equal(better_labels(values, X, found), right)
    assert impute(values, X, right).log_joint > found.log_joint + 3


def table(n: int, seed: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three groups in six columns that a common factor correlates: complete rows, rows with missing values, groups."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 3, n)
    centres = 2.5 * np.array([[0] * 6, [1, -1] * 3, [1, 1, -1, -1, 0, 0]])
    X = centres[groups] + 1.5 * rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 6))
    absent = rng.random(X.shape) < share
    absent[absent.all(axis=1), 0] = False
    return X, np.where(absent, NAN, X), groups


ESTIMATORS: dict[str, Any] = {
    "MAPDP": bnp.MAPDP(),
    "BHC": bnp.BHC(progress_bar=False),
    "VariationalDP": bnp.VariationalDP(),
    "BayesianKMeans": bnp.BayesianKMeans(),
    "AgglomerativeBayesianClustering": bnp.AgglomerativeBayesianClustering(progress_bar=False),
}


def test_a_fit_to_complete_rows_forgets_the_imputation_of_an_earlier_one() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-6, 1, (8, 2)), rng.normal(6, 1, (8, 2))])
    holed = X.copy()
    holed[3, 1] = NAN
    bhc = bnp.BHC(partial(dpm, component=FAMILIES["full"]), refine=None, progress_bar=False).fit(holed)
    assert len(bhc.missing_values_) == 1
    bhc.fit(X)
    assert not hasattr(bhc, "missing_values_") and not hasattr(bhc, "missing_std_")
    assert bnp.evidence.tree_bound(bhc) == bhc.log_evidence_bound_  # refused for a tree of completed rows


@pytest.mark.parametrize("name", few(ESTIMATORS, plain=0, slow=1))
def test_estimators_find_the_groups_despite_missing_values(name: str) -> None:
    """A tenth is missing: the groups, the missing values within their uncertainty, and the density of new rows."""
    X, holed, groups = table(200, 0, 0.1)
    new, new_holed, new_groups = table(300, 1, 0.2)
    fit = ESTIMATORS[name].fit(holed)
    complete = ESTIMATORS[name].__class__(**ESTIMATORS[name].get_params()).fit(X)
    assert adjusted_rand_score(groups, fit.labels_) > 0.85
    error = fit.missing_values_ - X[np.isnan(holed)]
    assert np.sqrt((error**2).mean()) < 0.75  # half of the column's spread within a group
    assert 0.85 < (np.abs(error) < 2 * fit.missing_std_).mean() <= 1.0
    assert abs(fit.score(new) - complete.score(new)) < 0.3
    assert fit.score(new_holed) > fit.score(new)  # fewer cells have a higher density here
    assert adjusted_rand_score(new_groups, fit.predict(new_holed)) > 0.85
    if hasattr(fit, "log_evidence_bound_"):
        assert (fit.log_evidence_bound_, fit.bound_kind_) == (fit.log_joint_, "one partition")


def measurements(n: int, seed: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Four groups in five measurements correlated at .98 and a binary column: complete rows, rows with holes, groups.

    Row 0 has nothing but the binary column.
    """
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 4, n)
    shapes = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 0.8, -0.8], [0.8, -0.8, 0, 0, 0], [0, 0.8, -0.8, 0, 0]])
    numbers = rng.multivariate_normal(np.zeros(5), np.full((5, 5), 0.98) + 0.02 * np.eye(5), n) + shapes[groups]
    X = np.column_stack([numbers * [5, 10, 1, 20, 3] + 50, rng.random(n) < np.array([0.05, 0.95])[groups % 2]])
    absent = rng.random(X.shape) < share
    absent[0] = [True] * 5 + [False]
    return X, np.where(absent, NAN, X), groups


@pytest.mark.parametrize("name", few([*ESTIMATORS, "PartitionGibbs"], plain=0, slow=6))
def test_groups_of_mixed_columns_are_found_despite_missing_values(name: str) -> None:
    X, holed, groups = measurements(160, 0, 0.1)
    new = measurements(200, 1, 0.1)
    for table in (X, holed):
        model = bnp.models.MixtureModel("mixed", families=["normal", "bernoulli"], columns=[[0, 1, 2, 3, 4], [5]])
        if name == "PartitionGibbs":
            own = ["z", "missing"] if table is holed else ["z"]
            kernel = Gibbs([(bnp.PartitionGibbs(model), own), (bnp.HyperparameterGibbs(model), None)])
            mcmc = MCMC(kernel, num_warmup=200, num_samples=100, progress_bar=False)
            mcmc.run(jax.random.key(0), table)
            found = np.asarray(mcmc.get_samples()["z"])[::10]
            assert np.mean([adjusted_rand_score(groups, z) for z in found]) > 0.85
            continue
        fit = clone(ESTIMATORS[name]).set_params(model=model)
        if name == "VariationalDP":
            fit.set_params(n_init=20)  # of five initialisations, the best may join two groups
        fit.fit(table)
        assert adjusted_rand_score(groups, fit.labels_) > 0.85
        assert adjusted_rand_score(new[2], fit.predict(new[1])) > 0.8
        if table is holed:
            error = fit.missing_values_ - X[:, :5][np.isnan(holed[:, :5])]
            assert 0.8 < (np.abs(error) < 2 * fit.missing_std_).mean() <= 1.0


@pytest.mark.slow
def test_scores_of_new_mixed_rows_are_sums_over_bits_and_integrals(x64: None) -> None:
    X = np.concatenate([np.random.default_rng(0).normal(c, 1.0, (15, 2)) for c in (-3, 3)])
    X = np.insert(X, 1, np.arange(30) > 12, axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(300)
    grid = np.stack([np.full(300, 0.7), np.zeros(300), 4 * np.tan(nodes * np.pi / 2)], axis=1)
    jacobian = np.log(weights * 4 * np.pi / 2 / np.cos(nodes * np.pi / 2) ** 2)
    for estimator in (bnp.MAPDP, bnp.VariationalDP):
        fit = estimator(partial(dpm, component=MIXED["full"])).fit(X)
        terms = np.stack([fit.score_samples(grid + [0, bit, 0]) + jacobian for bit in (0, 1)])
        found = fit.score_samples(np.array([[0.7, 0, NAN], [0.7, NAN, NAN], [0.7, NAN, 0.1], [0.7, 1, 0.1], [0.7, 0, 0.1]]))
        np.testing.assert_allclose(found[0], np.logaddexp.reduce(terms[0]), rtol=1e-6)
        np.testing.assert_allclose(found[1], np.logaddexp.reduce(terms, axis=None), rtol=1e-6)
        np.testing.assert_allclose(found[2], np.logaddexp(found[3], found[4]), rtol=1e-9)


@pytest.mark.slow
@every_family
def test_scores_of_new_rows_are_marginal_densities(family: str, x64: None) -> None:
    """Against the integral of the score of complete rows over the missing cell."""
    X = np.concatenate([np.random.default_rng(0).normal(c, 1.0, (15, 2)) for c in (-3, 3)])
    nodes, weights = np.polynomial.legendre.leggauss(300)
    grid = np.stack([np.full(300, 0.7), 4 * np.tan(nodes * np.pi / 2)], axis=1)
    jacobian = np.log(weights * 4 * np.pi / 2 / np.cos(nodes * np.pi / 2) ** 2)
    for estimator in (bnp.MAPDP, bnp.VariationalDP, partial(bnp.BHC, progress_bar=False)):
        fit = estimator(partial(dpm, component=FAMILIES[family])).fit(X)
        found = fit.score_samples(np.array([[0.7, NAN], [0.7, 0.1]]))
        np.testing.assert_allclose(found[0], np.logaddexp.reduce(fit.score_samples(grid) + jacobian), rtol=1e-6)
        np.testing.assert_allclose(found[1], fit.score_samples(np.array([[0.7, 0.1]]))[0], rtol=1e-9)
        np.testing.assert_allclose(fit.predict_proba(np.array([[0.7, NAN]])).sum(), 1.0)


@pytest.mark.slow
def test_fixed_hyperparameters_stay_fixed_and_units_do_not_matter() -> None:
    _, holed, _ = table(120, 2, 0.1)
    fit = bnp.MAPDP().fit(holed)
    again = bnp.MAPDP(optimize=fit.hyperparameters_).fit(holed)
    for name, value in fit.hyperparameters_.items():
        np.testing.assert_allclose(again.hyperparameters_[name], value, rtol=1e-6)
    scaled = bnp.MAPDP().fit(holed * [1.0, 1000.0, 1.0, 1e-3, 1.0, 1.0])
    assert adjusted_rand_score(fit.labels_, scaled.labels_) == 1.0


@pytest.mark.slow
def test_compare_and_report_quantities() -> None:
    """Chains and estimators in one table: log joints of the observed cells, and diagnostics without the cells."""
    from bnp_hier.methods import RunOptions, run_methods

    X, holed, groups = table(80, 3, 0.05)
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(holed))
    options = RunOptions(chains=2, warmup=200, samples=600, progress_bar=False)
    outcome = run_methods(["map-dp", "gibbs"], model, holed, options)
    assert not outcome.problems
    found = bnp.compare(outcome.fits, holed, truth=groups, held_out=table(50, 4, 0.1)[1])
    assert (found["ARI"] > 0.9).all()
    assert np.ptp(found["log_joint_shared"]) < 5
    assert np.ptp(found["held_out"]) < 0.5
    assert np.isfinite(bnp.loo(outcome.fits["Gibbs"], holed).elpd_loo)
    probabilities = bnp.cluster_probabilities(outcome.fits["Gibbs"], holed, outcome.fits["MAP-DP"].labels_, holed[:10])
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-6)
    cells = outcome.fits["Gibbs"].get_samples()["missing"]
    assert np.sqrt(((np.asarray(cells).mean(0) - X[np.isnan(holed)]) ** 2).mean()) < 1.0


@pytest.mark.slow
def test_bad_input() -> None:
    _, holed, _ = table(30, 5, 0.1)
    for at, message in (((slice(None), 2), "column 2"), ((4, slice(None)), "row 4")):
        wrong = holed.copy()
        wrong[at] = NAN
        with pytest.raises(ValueError, match=f"only missing values in {message}|all values are missing in {message}"):
            bnp.MAPDP().fit(wrong)
    fit = bnp.MAPDP().fit(holed)
    with pytest.raises(ValueError, match="infinite"):
        fit.predict(np.full((1, 6), np.inf))


@pytest.mark.parametrize("family", [*FAMILIES, "mixed"])
def test_left_out_densities_are_those_of_the_observed_cells(family: str, x64: None) -> None:
    """Row by row, from the clusters of the other rows."""
    component, X = (MIXED["full"], FEW_MIXED) if family == "mixed" else (FAMILIES[family], FEW)
    fit = bnp.MAPDP(partial(dpm, component=component)).fit(X)
    completed, labels, n = with_cells(X, fit.missing_values_, component.incomplete_cells(X)), fit.labels_, len(X)
    found = summaries(draws_of(fit, X)).log_likelihood[0, 0]

    def density(component: Any, stats: Any, row: np.ndarray) -> float:
        if family != "mixed":
            return float(log_density_of_observed(component.density_of_cells(stats), jnp.asarray(row)))
        (bits, numbers), (ones, sums) = component.parts, stats
        return float(bits.log_predictive(ones, row[[1]])) + density_of_numbers(numbers, sums, row[[0, 2]])

    def density_of_numbers(numbers: Any, stats: Any, row: np.ndarray) -> float:
        return float(log_density_of_observed(numbers.density_of_cells(stats), jnp.asarray(row)))

    for i in range(n):
        others = np.arange(n) != i
        groups = [completed[others & (labels == k)] for k in np.unique(labels[others])]
        stats = [jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(rows)) for rows in groups]
        weights = np.log([*map(len, groups), 1.0])  # a new cluster comes last
        terms = [density(component, each, X[i]) for each in (*stats, component.empty())]
        np.testing.assert_allclose(found[i], np.logaddexp.reduce(weights + terms) - np.log(n), rtol=1e-6)


def test_gains_of_parts_leave_missing_values_out(x64: None) -> None:
    X, holed, groups = table(100, 6, 0.05)
    component = bnp.NormalInverseWishart.from_data(holed, learn=False)
    (with_missing,) = bnp.part_gains(component, holed, groups)
    (complete,) = bnp.part_gains(component, X, groups)
    assert abs(with_missing.gain - complete.gain) < 0.2 * complete.gain


def test_evidence_of_incomplete_tables_is_refused() -> None:
    model = partial(dpm, component=FAMILIES["full"])
    for evidence in (bnp.evidence.exact, bnp.evidence.smc):
        with pytest.raises(ValueError, match="missing value"):
            evidence(model, FEW)

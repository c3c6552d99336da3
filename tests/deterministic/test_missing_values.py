"""Estimators on tables with missing values under full and shared covariance: the bound, imputation, and new rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.components.incomplete_rows import DependentColumns, log_density_of_observed
from bnp_hier.distributions.missing_values import with_cells
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.models import dpm
from bnp_hier.partitions.imputation import better_labels, impute
from bnp_hier.posterior.draws import draws_of, summaries
from tests.parameters import few

NAN = np.nan
CORRELATED = np.array([[1.0, 0.7], [0.7, 1.0]])
FAMILIES = {
    "full": bnp.NormalInverseWishart(np.zeros(2), 0.3, 5.0, CORRELATED),
    "known": bnp.NormalKnownCovariance(np.zeros(2), 4.0 * np.eye(2), CORRELATED),
}
FEW = np.array([[-1.0, NAN], [-0.8, -0.5], [NAN, 1.6], [1.7, 1.2], [2.5, 3.0]])
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
        return bnp.ConjugateMixture(component, jnp.asarray(labels)).log_prob(with_cells(X, cells)) + prior

    terms = np.asarray(jax.lax.map(joint, jnp.asarray(pairs), batch_size=4000))
    return float(np.logaddexp.reduce(terms + (log_weights[:, None] + log_weights).ravel()))


@every_family
@pytest.mark.parametrize("labels", few([[0, 0, 1, 1, 1], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0], [0, 1, 1, 0, 1]], 2, 2))
def test_the_bound_is_below_the_exact_log_joint_and_close(family: str, labels: list[int], x64: None) -> None:
    component, z = FAMILIES[family], np.array(labels)
    found = impute(MixtureValues(1.0, 0.0, component, FEW), FEW, z)
    gap = exact_log_joint(component, FEW, z) - found.log_joint
    assert -1e-9 < gap < 2.5, gap  # the first and third row alone: cells and parameters are taken as independent
    if np.bincount(z)[z[[0, 2]]].min() > 1:
        assert gap < 1.2
    # the statistics are those of the completed rows and their covariances
    assert isinstance(component, DependentColumns)
    rows = component.suff_stats(jnp.asarray(with_cells(FEW, found.cells(FEW))))
    added = component.with_covariances(component.empty((2,)), jnp.asarray(found.covariances))
    for k in range(max(labels) + 1):
        total = jax.tree.map(lambda leaf, k=k: leaf[z == k].sum(0), rows)
        extra = jax.tree.map(lambda leaf, k=k: leaf[z[found.rows] == k].sum(0), added)
        for one, two, three in zip(*map(jax.tree.leaves, (total, extra, found.stats)), strict=True):
            np.testing.assert_allclose(one + two, three[k], rtol=1e-6, atol=1e-8)


@every_family
def test_better_labels_are_the_most_probable_clusters(family: str, x64: None) -> None:
    """The first row is left in the wrong one of two distant clusters; what is there of it tells the right one."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-6, 1, (20, 2)), rng.normal(6, 1, (20, 2))])
    X[0, 1] = X[25, 0] = NAN
    right = np.repeat([0, 1], 20)
    wrong = right.copy()
    wrong[0] = 1
    values = MixtureValues(1.0, 0.0, FAMILIES[family], X)
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


@every_family
def test_left_out_densities_are_those_of_the_observed_cells(family: str, x64: None) -> None:
    """Row by row, from the clusters of the other rows."""
    component: Any = FAMILIES[family]
    fit = bnp.MAPDP(partial(dpm, component=component)).fit(FEW)
    completed, labels, n = with_cells(FEW, fit.missing_values_), fit.labels_, len(FEW)
    found = summaries(draws_of(fit, FEW)).log_likelihood[0, 0]
    for i in range(n):
        others = np.arange(n) != i
        groups = [completed[others & (labels == k)] for k in np.unique(labels[others])]
        stats = [jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(rows)) for rows in groups]
        weights = np.log([*map(len, groups), 1.0])  # a new cluster comes last
        terms = [
            float(log_density_of_observed(component.elliptical(each), jnp.asarray(FEW[i])))
            for each in (*stats, component.empty())
        ]
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

"""Bayesian k-means: free energies from first principles, traces that never rise, and the paper's algorithm as an oracle."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy.special import gammaln
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.deterministic import bayesian_kmeans as module
from bnp_hier.deterministic.hard_assignment import kd_tree
from bnp_hier.deterministic.hard_assignment.assignment import DenseAssigner
from bnp_hier.deterministic.hard_assignment.free_energies import free_energy
from bnp_hier.deterministic.hard_assignment.splits import SplitMergeSearch, sum_by_label
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm
from tests.components.user_family import ExponentialGamma
from tests.oracles.bayesian_kmeans import TopDown
from tests.oracles.problems import FAMILIES, log_marginal, random_problem
from tests.parameters import few


def by_predictives(problem: Any, labels: np.ndarray, model: str) -> float:
    """−log p(X, labels), one row after the other: seating probability times predictive density."""
    total = 0.0
    clusters = len(np.unique(labels))
    for i, label in enumerate(labels):
        before = [j for j in range(i) if labels[j] == label]
        if model == "dp":
            seat = (len(before) or problem.alpha) / (i + problem.alpha)
        else:
            seat = (len(before) + problem.alpha) / (i + clusters * problem.alpha)
        total -= np.log(seat) + problem.log_predictive(before, problem.X[i])
    return total


@pytest.mark.parametrize("model", ["dp", "finite"])
@pytest.mark.parametrize("family", FAMILIES)
def test_free_energy_from_sequential_predictives(family: str, model: str, x64: None) -> None:
    rng = np.random.default_rng(0)
    for seed in range(4):
        problem = random_problem(family, 9, seed)
        labels = rng.integers(0, 4, 9)
        stats = cluster_statistics(problem.component.suff_stats(problem.X), jnp.asarray(labels), 6)
        counts = jnp.asarray(np.bincount(labels, minlength=6), float)
        value = float(free_energy(problem.component, stats, counts, Prior(problem.alpha), model))
        assert value == pytest.approx(by_predictives(problem, labels, model), rel=1e-10)


def test_the_finite_free_energy_is_the_papers(x64: None) -> None:
    """Kurihara & Welling (2009), Eq. 39, for counts: its 1/K times K is 1."""
    problem = random_problem("multinomial", 8, 1)
    labels = np.array([0, 0, 1, 1, 1, 2, 2, 0])
    phi, n, k = problem.alpha, 8, 3
    sizes = np.bincount(labels)
    expected = (gammaln(phi) - gammaln(phi + sizes)).sum() + gammaln(k * phi + n) - gammaln(k * phi)
    expected -= sum(log_marginal(problem.component, problem.X[labels == c]) for c in range(k))
    assert by_predictives(problem, labels, "finite") == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "prior"), few(zip(FAMILIES, cycle(["dp", "finite"]), strict=False), plain=0, slow=2))
def test_traces_never_rise_and_end_at_the_free_energy(family: str, prior: str) -> None:
    """40 problems each, 200 in all."""
    for seed in range(40):
        problem = random_problem(family, 25, seed)
        fit = bnp.BayesianKMeans(problem.model, prior, n_init=(1, 4)).fit(problem.X)
        trace = fit.objective_trace_
        assert (np.diff(trace) <= 1e-9 * np.abs(trace[0])).all()
        assert fit.free_energy_ == trace[-1]
        assert fit.free_energy_ == pytest.approx(by_predictives(problem, fit.labels_, prior), abs=1e-6)
        assert fit.free_energy_ <= by_predictives(problem, np.zeros(25, int), prior) + 1e-6
        if prior == "dp":
            assert fit.log_joint_ == pytest.approx(-fit.free_energy_, abs=1e-6)


def mixture(n: int, clusters: int, spread: float, seed: int, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, clusters, n)
    return spread * rng.normal(size=(clusters, d))[labels] + rng.normal(size=(n, d)), labels


@pytest.mark.slow
@pytest.mark.parametrize("seed", few(range(6), plain=0))
def test_not_worse_than_the_papers_algorithm(seed: int) -> None:
    """Every run starts from one cluster too; at the same start alone it ends within a nat of the plain loop, or lower."""
    X, _ = mixture(120, 1 + seed % 6, (2.0, 6.0)[seed % 2], seed)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    oracle = TopDown(component, X, 1.0)
    reached = oracle.free_energy(oracle.run())
    model = partial(dpm, component=component, concentration=1.0)
    alone = bnp.BayesianKMeans(model, n_init=1).fit(X)
    assert alone.free_energy_ <= reached + 1e-6
    assert bnp.BayesianKMeans(model).fit(X).free_energy_ <= alone.free_energy_ + 1e-6


def test_a_pass_is_the_papers() -> None:
    """The fixed point of passes from given labels is that of the plain loop."""
    X, labels = mixture(150, 4, 3.0, 5)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    oracle = TopDown(component, X, 1.0)
    with jax.enable_x64(True):
        search = SplitMergeSearch(component, Prior(1.0), "dp", DenseAssigner(component, X), X, 100, 150)
        state, _ = search.settle(search.scores(*sum_by_label(component, X, labels, 8)))
        mine = search.assigner.labels(state.scores)
    assert adjusted_rand_score(mine, oracle.settle(labels)) == 1.0


@pytest.mark.slow
def test_separated_clusters_are_found_and_predicted() -> None:
    X, labels = mixture(400, 5, 15.0, 3)
    fit = bnp.BayesianKMeans(partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)).fit(
        X
    )
    assert adjusted_rand_score(labels, fit.labels_) > 0.98
    assert (fit.predict(X) == fit.labels_).mean() > 0.99
    assert fit.init_free_energies_.shape == (5,)
    assert (fit.assignment_, fit.visited_nodes_, fit.touched_rows_) == ("dense", 0, 400)


@pytest.mark.parametrize("prior", few(["dp", "finite"], plain=0))
def test_large_data_are_searched_on_some_rows_and_finished_on_all(prior: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 300 rows to search on, and by kd-tree, the 4,000 rows end as if all had been looked at."""
    X, labels = mixture(4000, 4, 12.0, 1)
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    whole = bnp.BayesianKMeans(model, prior).fit(X)
    monkeypatch.setattr(module, "SKETCH", 300)
    some = bnp.BayesianKMeans(model, prior, assignment="kd_tree").fit(X)
    assert some.assignment_ == "kd_tree" and some.visited_nodes_ > 0 and some.touched_rows_ < 4000
    assert some.free_energy_ == pytest.approx(whole.free_energy_, abs=1e-5)
    assert (np.diff(some.objective_trace_) <= 1e-9 * abs(some.free_energy_)).all()
    assert adjusted_rand_score(labels, some.labels_) > 0.98


@pytest.mark.slow
def test_a_prior_shaped_like_the_data_hides_no_direction() -> None:
    """Whitened by such a prior the rows are round: from one cluster the search then depends on the columns themselves."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    X = 3.0 * rng.normal(size=(4, 16))[labels] + rng.normal(size=(400, 16)) @ rng.normal(size=(16, 16)) / 4
    component = bnp.NormalInverseWishart.from_data(X, rule="me", learn=False)
    whitened = np.linalg.svd(np.asarray(component.coordinates(X)), compute_uv=False)
    assert whitened[0] / whitened[-1] < 1.01
    fit = bnp.BayesianKMeans(partial(dpm, component=component), n_init=1, polish=False).fit(X)
    assert adjusted_rand_score(labels, fit.labels_) > 0.95


@pytest.mark.slow
def test_auto_takes_the_kd_tree_for_many_rows_in_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kd_tree, "KD_TREE_FROM", 300)
    monkeypatch.setattr(kd_tree, "TREE_AFTER", 3)
    X, _ = mixture(300, 3, 8.0, 0)
    taken = {}
    for name, rows in (("many", X), ("few", X[:299]), ("wide", np.hstack([X, X]) + 1e-3 * np.arange(1200).reshape(300, 4) % 7)):
        model = partial(dpm, component=bnp.NormalInverseGamma.from_data(rows, learn=False), concentration=1.0)
        taken[name] = bnp.BayesianKMeans(model, n_init=(2,), polish=False).fit(rows).assignment_
    monkeypatch.setattr(kd_tree, "TREE_AFTER", 1000)
    model = partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=1.0)
    taken["soon done"] = bnp.BayesianKMeans(model, n_init=(2,), polish=False).fit(X).assignment_
    assert taken == {"soon done": "dense", "many": "kd_tree", "few": "dense", "wide": "dense"}
    own = bnp.BayesianKMeans(
        partial(dpm, component=ExponentialGamma(np.array([2.0]), np.array([1.0]))), n_init=(2,), polish=False
    )
    assert own.fit(np.random.default_rng(0).exponential(size=(300, 1))).assignment_ == "dense"  # a family without coordinates


def test_a_step_that_empties_clusters_and_raises_the_free_energy_is_refused() -> None:
    """With a concentration of 1000 many small clusters are best, and plain passes empty some at a loss."""
    X, _ = mixture(60, 3, 3.0, 0)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    rose = 0
    with jax.enable_x64(True):
        search = SplitMergeSearch(component, Prior(1000.0), "dp", DenseAssigner(component, X), X, 100, 60)
        for seed in range(10):
            labels = np.random.default_rng(seed).permutation(np.arange(60) % 30)
            start = search._pass(search.scores(*sum_by_label(component, X, labels, 32)))
            rose += search._pass(search.scores(start.stats, start.counts)).free_energy > start.free_energy
            _, trace = search.settle(start.scores)
            assert (np.diff(trace) <= 0).all()
    assert rose > 0, "no step had to be refused: the test has no power"


@pytest.mark.slow
def test_iris_reaches_map_dp() -> None:
    X = load_iris().data
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    assert bnp.BayesianKMeans(model).fit(X).log_joint_ >= bnp.MAPDP(model).fit(X).log_joint_ - 1.0


@pytest.mark.slow
def test_missing_cells_and_a_users_family() -> None:
    X, labels = mixture(200, 3, 12.0, 2, d=3)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    fit = bnp.BayesianKMeans(partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=1.0)).fit(X)
    assert adjusted_rand_score(labels, fit.labels_) > 0.9
    times = np.exp(np.random.default_rng(1).normal(size=(80, 2))) * np.where(np.arange(80) % 2, 1.0, 100.0)[:, None]
    user = partial(dpm, component=ExponentialGamma(np.ones(2), np.ones(2)), concentration=1.0)
    assert adjusted_rand_score(np.arange(80) % 2, bnp.BayesianKMeans(user).fit(times).labels_) > 0.8


@pytest.mark.slow
def test_all_rows_equal() -> None:
    component = bnp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2))
    fit = bnp.BayesianKMeans(partial(dpm, component=component, concentration=1.0)).fit(np.ones((20, 2)))
    assert fit.n_clusters_ == 1


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["dp", "finite"])
def test_optimize_never_ends_below(prior: str) -> None:
    X, _ = mixture(80, 3, 6.0, 4)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    model = partial(dpm, component=component, concentration=dist.Gamma(2.0, 1.0))
    plain, learned = (bnp.BayesianKMeans(model, prior, optimize=o).fit(X) for o in (False, True))
    gamma = dist.Gamma(2.0, 1.0)

    def value(fit: Any) -> float:
        return -fit.free_energy_ + float(gamma.log_prob(fit.concentration_))

    assert value(learned) >= value(plain) - 1e-9
    assert learned.concentration_ != plain.concentration_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_init": ()}, "n_init must contain at least one number of clusters"),
        ({"n_init": (1, 0)}, "n_init must be a whole number of at least 1, but it is 0"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    model = partial(dpm, component=bnp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2)), concentration=1.0)
    with pytest.raises(ValueError, match=message):
        bnp.BayesianKMeans(model, **options).fit(np.random.default_rng(0).normal(size=(10, 2)))

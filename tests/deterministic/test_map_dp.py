"""MAP-DP against a plain version that scores every move from log marginal likelihoods."""

from __future__ import annotations

import functools
import inspect
import warnings
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.stats import gamma
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV

import bnp_hier as bnp
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import dpm, pitman_yor_mixture
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import sweep
from tests.oracles.collapsed_gibbs import CollapsedGibbs
from tests.oracles.map_dp import best_merge, best_single_move, joint, map_dp
from tests.oracles.problems import Problem, log_marginal, random_problem
from tests.parameters import few

N = 16
DISCOUNTS = (0.0, 0.25, 0.6)


def make(family: str, seed: int) -> Problem:
    """Problems of one shape per family; Dirichlet and Pitman-Yor processes by turns."""
    return random_problem(family, N, seed, DISCOUNTS[seed % 3])


@functools.cache
def fitted(family: str, seed: int) -> tuple[Problem, bnp.MAPDP]:
    problem = make(family, seed)
    return problem, bnp.MAPDP(problem.model).fit(problem.X)


def two_clusters(separation: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([int(separation), seed])
    truth = np.repeat([0, 1], 50)
    return rng.normal(size=(100, 2)) + np.outer(truth, [separation, 0.0]), truth


# ---- the search ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", few(["niw", "nig", "bernoulli"]))
def test_joint_never_falls_and_no_move_or_merge_improves_it(family: str) -> None:
    several = 0
    for seed in range(34):
        problem, fit = fitted(family, seed)
        prior = (problem.log_marginal, problem.alpha, problem.discount)
        assert (np.diff(fit.objective_trace_) >= -1e-9).all(), seed
        assert fit.log_joint_ == pytest.approx(joint(fit.labels_.tolist(), *prior), abs=1e-9)
        assert fit.objective_trace_[-1] == pytest.approx(fit.log_joint_, abs=1e-9)
        assert fit.log_joint_ == pytest.approx(fit.init_log_joints_.max(), abs=1e-9)
        assert fit.init_log_joints_.shape == (10,)
        assert fit.n_iter_ == len(fit.objective_trace_) >= 2
        assert best_single_move(fit.labels_.tolist(), *prior) <= fit.log_joint_ + 1e-9, seed
        assert best_merge(fit.labels_.tolist(), *prior) <= fit.log_joint_ + 1e-7, seed  # smaller gains are left
        names = list(dict.fromkeys(fit.labels_.tolist()))
        assert names == list(range(fit.n_clusters_))  # in order of appearance
        several += fit.n_clusters_ > 1
    assert several >= 5


def test_labels_equal_the_plain_version_in_the_order_of_the_rows() -> None:
    sizes = set()
    for seed in range(100, 130):
        problem = make("niw", seed)
        fit = bnp.MAPDP(problem.model, n_init=1, merge=False).fit(problem.X)
        labels, trace = map_dp(range(N), problem.log_marginal, problem.alpha, problem.discount)
        np.testing.assert_array_equal(fit.labels_, labels, err_msg=f"seed {seed}")
        np.testing.assert_allclose(fit.objective_trace_, trace, atol=1e-9)
        assert fit.n_iter_ == len(trace)
        sizes.add(max(labels) + 1)
    assert len(sizes) >= 4


def test_merges_never_lower_the_joint_and_leave_none_to_make() -> None:
    """With merges every problem ends at least as high, and no union of two clusters is more probable."""
    higher = 0
    for seed in range(100, 115):
        problem = make("niw", seed)
        plain = bnp.MAPDP(problem.model, n_init=1, merge=False).fit(problem.X)
        fit = bnp.MAPDP(problem.model, n_init=1).fit(problem.X)
        assert fit.log_joint_ >= plain.log_joint_ - 1e-9
        higher += fit.log_joint_ > plain.log_joint_ + 1e-9
        best = best_merge(fit.labels_.tolist(), problem.log_marginal, problem.alpha, problem.discount)
        assert best <= fit.log_joint_ + 1e-7
    assert higher > 0


def test_one_sweep_equals_the_plain_collapsed_gibbs_sampler() -> None:
    """The same uniforms give the same labels, in double precision, for several sweeps in a row."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2)) + 3.0 * rng.integers(0, 3, (60, 1))
    labels, alpha = rng.integers(0, 5, 60), 2.0
    component = bnp.NormalInverseWishart(np.array([1.0, 2.0]), 0.2, 5.0, np.array([[1.0, 0.3], [0.3, 2.0]]))
    plain = CollapsedGibbs(X, component.mean, 0.2, 5.0, component.scale, alpha, labels)
    counts = set()
    with jax.enable_x64(True):

        @jax.jit
        def step(component, X, labels, prior, order, uniforms):
            return sweep(Seating(component, X, prior), labels, order, uniforms, slots=60)

        current = jnp.asarray(labels)
        for _ in range(20):
            order, uniforms = rng.permutation(60), rng.random(60)
            current, refused = step(component, jnp.asarray(X), current, Prior(alpha), jnp.asarray(order), jnp.asarray(uniforms))
            np.testing.assert_array_equal(current, plain.sweep(order, uniforms))
            assert int(refused) == 0
            counts.add(len(np.unique(current)))
    assert len(counts) > 2


@pytest.mark.parametrize("separation", few([6.0, 20.0, 8.0, 10.0, 12.0, 15.0], 2))
def test_two_separated_clusters_are_found_but_not_from_one_cluster(separation: float) -> None:
    """The paper's start finds none of the 24, the default all of them (6 separations of 4 seeds, α = 0.1)."""
    for seed in range(4):
        X, truth = two_clusters(separation, seed)
        model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=0.1)
        fit = bnp.MAPDP(model).fit(X)
        assert fit.n_clusters_ == 2, seed
        agreement = (fit.labels_ == truth).mean()
        assert agreement == 1.0 if separation >= 8 else agreement >= 0.99
        with pytest.warns(UserWarning, match="single.*sequential"):
            stuck = bnp.MAPDP(model, init="single").fit(X)
        assert stuck.n_clusters_ == 1
        assert stuck.log_joint_ < fit.log_joint_ - 10


def test_default_settings_reach_the_generating_partition() -> None:
    """With dpm's own α = 1 the two generating clusters are (nearly) the most probable partition: none of 24 ends below."""
    below = {}
    for separation, seed in product([6.0, 8.0, 10.0, 12.0, 15.0, 20.0], range(4)):
        X, truth = two_clusters(separation, seed)
        component = bnp.NormalInverseWishart.from_data(X, learn=False)
        fit = bnp.MAPDP(partial(dpm, component=component)).fit(X)
        loss = joint(truth.tolist(), lambda rows, c=component, X=X: log_marginal(c, X[rows]), 1.0) - fit.log_joint_
        if loss > 1e-9:
            below[separation, seed] = (fit.n_clusters_, round(loss, 2))
    assert not below, f"{len(below)} of 24: (separation, seed): (clusters, nats below the generating partition) {below}"


@pytest.mark.slow
def test_capacity_grows_by_itself() -> None:
    """75 pairs of nearly equal rows, far apart: more clusters than the 64 slots of the start."""
    rng = np.random.default_rng(0)
    places = np.array(list(product(range(9), repeat=2)))[:75] * 100.0
    truth = rng.permutation(np.repeat(np.arange(75), 2))
    X = places[truth] + 0.1 * rng.normal(size=(150, 2))
    component = bnp.NormalInverseGamma(np.full(2, 400.0), 1e-6, 2.0, 0.02)
    fit = bnp.MAPDP(partial(dpm, component=component, concentration=500.0), n_init=2).fit(X)
    assert fit.n_clusters_ == 75
    np.testing.assert_array_equal(fit.labels_[:, None] == fit.labels_, truth[:, None] == truth)


def test_same_key_same_result_and_more_restarts_are_never_worse() -> None:
    for seed in range(8):
        problem, fit = fitted("niw", seed)
        again = bnp.MAPDP(problem.model, random_state=jax.random.key(0)).fit(problem.X)
        np.testing.assert_array_equal(again.labels_, fit.labels_)
        np.testing.assert_array_equal(again.init_log_joints_, fit.init_log_joints_)
        one = bnp.MAPDP(problem.model, n_init=1).fit(problem.X)
        # the orders of fewer restarts are the first orders of more
        np.testing.assert_allclose(one.init_log_joints_, fit.init_log_joints_[:1], atol=1e-10)
        assert one.log_joint_ <= fit.log_joint_ + 1e-10
    reached = [bnp.MAPDP(make("niw", 5).model, random_state=k).fit(make("niw", 5).X).init_log_joints_ for k in (1, 2)]
    assert reached[0][0] == reached[1][0]  # the order of the rows
    assert (reached[0] != reached[1]).any()


def test_missing_cells() -> None:
    problem = random_problem("nig", N, 7)
    X = problem.X.copy()
    X[0, 0] = X[3, 1] = X[9, 0] = np.nan
    X[5] = np.nan
    holes = Problem(problem.component, X, problem.alpha)
    fit = bnp.MAPDP(holes.model).fit(X)
    _, trace = map_dp(range(N), holes.log_marginal, holes.alpha)
    assert fit.init_log_joints_[0] == pytest.approx(trace[-1], abs=1e-9)
    assert fit.log_joint_ == pytest.approx(joint(fit.labels_.tolist(), holes.log_marginal, holes.alpha), abs=1e-9)
    assert best_single_move(fit.labels_.tolist(), holes.log_marginal, holes.alpha) <= fit.log_joint_ + 1e-9


def test_items_that_suit_two_clusters_alike_do_not_go_to_and_fro_for_ever() -> None:
    # rows 0 and 3 share no cell: together or apart, and alone or together with α = 1, their joint density is the same
    nan = np.nan
    X = np.array([[nan, -0.283], [nan, nan], [nan, 1.245], [-3.522, nan], [nan, 2.968], [0.494, 2.945], [1.368, nan]])
    component = bnp.NormalInverseGamma(mean=np.zeros(2), kappa=0.3, shape=2.0, rate=0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = bnp.MAPDP(partial(dpm, component=component), n_init=2).fit(X)
    assert fit.converged_ and fit.n_iter_ < 10
    assert (np.diff(fit.objective_trace_) > -1e-12).all()


@pytest.mark.parametrize("discount", DISCOUNTS)
def test_joint_is_the_models_own(discount: float) -> None:
    problem, fit = fitted("niw", DISCOUNTS.index(discount))
    assert fit.discount_ == problem.discount == discount
    assert fit.concentration_ == problem.alpha
    with jax.enable_x64(True):
        value = jax.jit(lambda z: log_density(problem.model, (problem.X,), {}, {"z": z})[0])(jnp.asarray(fit.labels_))
    assert fit.log_joint_ == pytest.approx(float(value), abs=1e-10)


def test_a_declared_capacity_is_respected() -> None:
    """Partitions into more clusters than the model allows have probability zero under the model."""
    X, _ = two_clusters(20.0, 0)
    X = np.vstack([X[:8], X[-8:]])
    component = bnp.NormalInverseWishart(X.mean(0), np.asarray(0.1), np.asarray(4.0), np.eye(2))

    def capped(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0], max_clusters=1))
        numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X)

    assert bnp.MAPDP(partial(dpm, component=component)).fit(X).n_clusters_ == 2
    try:
        fit = bnp.MAPDP(capped).fit(X)
    except ValueError as error:
        assert "max_clusters" in str(error)
    else:
        assert fit.n_clusters_ == 1
    with pytest.raises(ValueError, match="init has 2 clusters, but the model allows at most 1"):
        bnp.MAPDP(capped, init=np.arange(16) % 2).fit(X)
    fit.partial_fit(X[:3] + 100.0)
    assert fit.n_clusters_ == 1 and fit.n_seen_ == 19


# ---- starts --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_warm_starts() -> None:
    """From its own result nothing moves; from any labels the joint ends no lower; rows without a label are seated."""
    problem, fit = fitted("niw", 3)
    again = bnp.MAPDP(problem.model, init=fit.labels_ + 5).fit(problem.X)  # names do not matter
    assert (again.labels_ == fit.labels_).all() and again.n_iter_ == 1
    partly = np.where(np.arange(problem.n) % 2, fit.labels_, -1)
    prior = (problem.log_marginal, problem.alpha, problem.discount)
    for start in (partly, np.arange(problem.n), np.zeros(problem.n, int)):
        found = bnp.MAPDP(problem.model, init=start, merge=False, n_init=2).fit(problem.X)
        if start.min() >= 0:
            assert found.log_joint_ >= joint(start.tolist(), *prior) - 1e-9
        assert best_single_move(found.labels_.tolist(), *prior) <= found.log_joint_ + 1e-9
    for wrong in (["a"] * problem.n, fit.labels_[:-1], fit.labels_ + 0.5, fit.labels_ - 3, [0] * problem.n + [1]):
        with pytest.raises(ValueError, match="init must contain one whole number of at least -1 for each of the"):
            bnp.MAPDP(problem.model, init=wrong).fit(problem.X)


@pytest.mark.slow
def test_seedings() -> None:
    X, labels = two_clusters(20.0, 0)
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=0.1)
    fit = bnp.MAPDP(model, init="k-means++", n_init=4).fit(X)
    assert adjusted_rand_score(labels, fit.labels_) == 1.0
    same = bnp.MAPDP(model, init="k-means++", n_init=4).fit(X)
    assert (same.init_log_joints_ == fit.init_log_joints_).all()
    ones = np.ones((5, 2))  # as many seeds as distinct rows
    assert bnp.MAPDP(model, init="k-means++", n_init=2).fit(ones).n_clusters_ == 1


# ---- hyperparameters -----------------------------------------------------------------------------------------------------


def rate_component(X: np.ndarray) -> bnp.Component:
    """Vectors as in the random problems, so that compiled programs are shared."""
    rate = numpyro.sample("rate", dist.LogNormal(0.5, 1.0))
    return bnp.NormalInverseGamma(np.zeros(2), np.full(2, 0.1), np.full(2, 2.0), jnp.full(2, rate))


@pytest.mark.slow
def test_optimize_climbs() -> None:
    model = partial(dpm, component=rate_component, concentration=dist.Gamma(2.0, 3.0))
    rng = np.random.default_rng(0)

    def objective(X: np.ndarray, labels: np.ndarray, alpha: float, rate: float) -> float:
        component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, rate)
        log_prior = gamma.logpdf(alpha, 2.0, scale=1 / 3)
        log_prior += -np.log(rate) - np.log(2 * np.pi) / 2 - (np.log(rate) - 0.5) ** 2 / 2
        return joint(labels.tolist(), lambda rows: log_marginal(component, X[rows]), alpha) + float(log_prior)

    X = 3.0 * rng.normal(size=(N, 2)) + rng.choice([-4.0, 4.0], size=(N, 1))
    fixed, best = bnp.MAPDP(model, optimize=False).fit(X), bnp.MAPDP(model, optimize=True).fit(X)
    assert fixed.hyperparameters_["alpha"] == pytest.approx(gamma.median(2.0, scale=1 / 3), rel=1e-10)
    assert fixed.hyperparameters_["rate"] == pytest.approx(np.exp(0.5), rel=1e-12)
    before = objective(X, fixed.labels_, **fixed.hyperparameters_)
    after = objective(X, best.labels_, **best.hyperparameters_)
    assert after > before + 1e-3
    assert best.concentration_ == best.hyperparameters_["alpha"]
    for name, value in best.hyperparameters_.items():  # a stationary point for the final partition
        up, down = ({**best.hyperparameters_, name: value * np.exp(step)} for step in (1e-4, -1e-4))
        assert abs(objective(X, best.labels_, **up) - objective(X, best.labels_, **down)) / 2e-4 < 0.02


@pytest.mark.slow
def test_optimize_by_leave_one_out() -> None:
    """The density of each row given the others rises, and is stationary for the final partition."""
    model = partial(dpm, component=rate_component, concentration=dist.Gamma(2.0, 3.0))
    rng = np.random.default_rng(0)
    X = 3.0 * rng.normal(size=(N, 2)) + rng.choice([-4.0, 4.0], size=(N, 1))

    def objective(labels: np.ndarray, alpha: float, rate: float) -> float:
        """Every row taken out in turn, and the log prior."""
        component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, rate)
        total = gamma.logpdf(alpha, 2.0, scale=1 / 3) - np.log(rate) - np.log(2 * np.pi) / 2 - (np.log(rate) - 0.5) ** 2 / 2
        for i in range(len(X)):
            rest = np.delete(np.arange(len(X)), i)
            parts = [rest[labels[rest] == k] for k in set(labels[rest])] + [rest[:0]]
            terms = [
                np.log(len(part) or alpha) + log_marginal(component, X[[*part, i]]) - log_marginal(component, X[part])
                for part in parts
            ]
            total += np.logaddexp.reduce(terms) - np.log(len(X) - 1 + alpha)
        return float(total)

    fixed, best = bnp.MAPDP(model).fit(X), bnp.MAPDP(model, optimize="leave_one_out").fit(X)
    assert objective(best.labels_, **best.hyperparameters_) > objective(fixed.labels_, **fixed.hyperparameters_) + 1e-3
    for name, value in best.hyperparameters_.items():
        up, down = ({**best.hyperparameters_, name: value * np.exp(step)} for step in (1e-4, -1e-4))
        assert abs(objective(best.labels_, **up) - objective(best.labels_, **down)) / 2e-4 < 0.02


@pytest.mark.slow
def test_cross_validation_chooses_the_concentration() -> None:
    """scikit-learn's search, by held-out density: ten clusters of one another's size need more than a tiny concentration."""
    rng = np.random.default_rng(0)
    X = 15.0 * rng.normal(size=(10, 2))[rng.integers(0, 10, 200)] + rng.normal(size=(200, 2))
    models = [
        partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=alpha) for alpha in (1e-6, 1.0)
    ]
    search = GridSearchCV(bnp.MAPDP(models[0], n_init=2), {"model": models}, cv=4).fit(X)
    assert search.best_params_["model"] is models[1]
    assert search.cv_results_["mean_test_score"][1] > search.cv_results_["mean_test_score"][0] + 0.01


# ---- prediction ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", few(["niw", "bernoulli"]))
@pytest.mark.parametrize("seed", [3, 4])
def test_predictions_follow_from_the_partition(family: str, seed: int) -> None:
    problem, fit = fitted(family, seed)
    alpha, discount, k = problem.alpha, problem.discount, fit.n_clusters_
    rows = np.vstack([problem.X[:4], problem.X[:2] + 3.0]) if family == "niw" else np.vstack([problem.X[:4], 1 - problem.X[:2]])
    weights = np.empty((len(rows), k + 1))
    for r, x in enumerate(rows):
        for label in range(k):
            members = np.flatnonzero(fit.labels_ == label)
            weights[r, label] = np.log(len(members) - discount) + problem.log_predictive(members, x)
        weights[r, k] = np.log(alpha + k * discount) + problem.log_predictive([], x)
    weights -= np.log(N + alpha)
    scores = np.logaddexp.reduce(weights, axis=1)
    np.testing.assert_allclose(fit.score_samples(rows), scores, atol=1e-10)
    np.testing.assert_allclose(fit.predict_proba(rows), np.exp(weights - scores[:, None]), atol=1e-10)
    np.testing.assert_array_equal(fit.predict(rows), weights.argmax(1))


def test_predictive_density_integrates_to_one() -> None:
    problem, fit = fitted("niw", 4)
    nodes, gauss = np.polynomial.legendre.leggauss(80)
    t, angle = (nodes + 1) * np.pi / 4, np.arange(50) * 2 * np.pi / 50
    r = 2 * np.tan(t)
    points = problem.X.mean(0) + (r[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)).reshape(-1, 2)
    jacobian = np.repeat(gauss * np.pi / 4 * 2 / np.cos(t) ** 2 * r * 2 * np.pi / 50, 50)
    assert jacobian @ np.exp(fit.score_samples(points)) == pytest.approx(1.0, abs=1e-4)
    assert problem.discount > 0
    _, bits = fitted("bernoulli", 4)
    everything = np.array(list(product((0.0, 1.0), repeat=4)))
    assert np.exp(bits.score_samples(everything)).sum() == pytest.approx(1.0, abs=1e-13)


def test_a_far_row_is_a_new_cluster() -> None:
    X, _ = two_clusters(20.0, 0)
    fit = bnp.MAPDP(partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False))).fit(X)
    assert fit.predict([[10.0, 300.0], X[0], X[-1]]).tolist() == [2, 0, 1]


# ---- errors and habits ---------------------------------------------------------------------------------------------------


def test_bad_options() -> None:
    problem, _ = fitted("niw", 3)
    with pytest.raises(ValueError, match="no hyperparameter"):
        bnp.MAPDP(problem.model, optimize=True).fit(problem.X)


def test_bad_data() -> None:
    problem, fit = fitted("niw", 3)
    with pytest.raises(ValueError, match="1 sample.*minimum of 2"):
        bnp.MAPDP(problem.model).fit(problem.X[:1])
    holes = problem.X.copy()
    holes[2] = np.nan
    with pytest.raises(ValueError, match="all values are missing in row 2"):
        bnp.MAPDP(problem.model).fit(holes)
    with pytest.raises(ValueError, match="X has 1 features, but MAPDP is expecting 2"):
        fit.predict(np.zeros((3, 1)))
    unfitted = bnp.MAPDP(problem.model)
    for method in (unfitted.predict, unfitted.predict_proba, unfitted.score_samples, unfitted.score):
        with pytest.raises(NotFittedError):
            method(problem.X)


def test_too_few_sweeps_warn() -> None:
    problem, _ = fitted("niw", 3)
    with pytest.warns(RuntimeWarning, match="max_iter=1.*increase max_iter"):
        fit = bnp.MAPDP(problem.model, max_iter=1, merge=False).fit(problem.X)
    assert fit.n_iter_ == len(fit.objective_trace_) == 1
    labels, trace = map_dp(range(N), problem.log_marginal, problem.alpha, problem.discount, max_sweeps=1)
    assert fit.init_log_joints_[0] == pytest.approx(trace[0], abs=1e-9)
    assert fit.log_joint_ >= trace[0] - 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bnp.MAPDP(problem.model).fit(problem.X)


def test_scikit_learn_habits() -> None:
    problem, fit = fitted("niw", 3)
    options = {
        "model": problem.model,
        "n_init": "many",
        "init": None,
        "max_iter": -1,
        "optimize": "yes",
        "merge": "sometimes",
        "max_rounds": 0,
        "random_state": 1.5,
    }
    strange = bnp.MAPDP(**options)
    assert set(inspect.signature(bnp.MAPDP).parameters) == set(options)
    for name, value in options.items():
        assert getattr(strange, name) is value
        assert strange.get_params()[name] is value
    copy = clone(bnp.MAPDP(problem.model))
    assert copy.fit(problem.X) is copy
    np.testing.assert_array_equal(copy.fit_predict(problem.X), fit.labels_)


def test_double_precision_whatever_the_setting() -> None:
    problem, fit = fitted("niw", 3)
    before = jax.config.jax_enable_x64
    for setting in (False, True):
        with jax.enable_x64(setting):
            again = bnp.MAPDP(problem.model).fit(problem.X)
            assert jax.config.jax_enable_x64 == setting
            scores = again.score_samples(problem.X)
        assert scores.dtype == again.objective_trace_.dtype == again.init_log_joints_.dtype == np.float64
        assert again.labels_.dtype == np.int64
        np.testing.assert_array_equal(again.init_log_joints_, fit.init_log_joints_)
        np.testing.assert_array_equal(scores, fit.score_samples(problem.X))
        assert again.log_joint_ == fit.log_joint_
    assert jax.config.jax_enable_x64 == before


def test_pitman_yor_concentration_may_be_negative() -> None:
    problem = random_problem("niw", N, 11)
    model = partial(pitman_yor_mixture, component=problem.component, concentration=-0.1, discount=0.5)
    fit = bnp.MAPDP(model, n_init=1, merge=False).fit(problem.X)
    labels, trace = map_dp(range(N), problem.log_marginal, -0.1, 0.5)
    np.testing.assert_array_equal(fit.labels_, labels)
    assert fit.log_joint_ == pytest.approx(trace[-1], abs=1e-9)


@pytest.mark.slow
def test_more_restarts_contain_fewer() -> None:
    problem, fit = fitted("niw", 5)
    previous = -np.inf
    for restarts in (1, 2, 3, 5, 8, 10, 20):
        more = bnp.MAPDP(problem.model, n_init=restarts).fit(problem.X)
        shared = min(restarts, 10)
        np.testing.assert_allclose(more.init_log_joints_[:shared], fit.init_log_joints_[:shared], atol=1e-10)
        assert more.log_joint_ >= previous - 1e-10
        previous = more.log_joint_

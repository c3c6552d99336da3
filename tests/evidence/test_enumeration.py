"""The exact evidence against enumeration of all partitions, against identities, and against the tree bound."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import gamma
from sklearn.exceptions import NotFittedError

import bnp_hier as bnp
from bnp_hier.models import dpm, pitman_yor_mixture
from tests.oracles.partitions import Enumeration
from tests.oracles.problems import FAMILIES, Problem, random_problem
from tests.parameters import few

DISCOUNTS = (0.0, 0.3, 0.8)


def check(problem: Problem) -> None:
    expected = Enumeration(problem.n, problem.log_marginal, problem.alpha, problem.discount).log_evidence
    value = bnp.evidence.exact(problem.model, problem.X)
    assert isinstance(value, float)
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("family", FAMILIES)
def test_equals_enumeration(family: str) -> None:
    alphas = set()
    for seed in range(9):
        problem = random_problem(family, 6, seed, DISCOUNTS[seed % 3])
        check(problem)
        alphas.add(problem.alpha)
    assert min(alphas) < 0.5
    assert max(alphas) > 2.0


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_equals_enumeration_for_other_sizes(n: int) -> None:
    for seed, discount in enumerate(DISCOUNTS):
        check(random_problem("nig", n, seed, discount))


@pytest.mark.parametrize("alpha", few([1e-10, 1e16, 1e10], 2))
def test_evidence_joints_and_bounds_keep_their_digits_at_extreme_concentrations(alpha: float) -> None:
    """Differences of log gamma functions of α would lose them: lgamma(10¹⁶) is 3.6 × 10¹⁷."""
    problem = random_problem("nig", 3, 1)
    model, X = partial(dpm, component=problem.component, concentration=alpha), problem.X
    expected = Enumeration(3, problem.log_marginal, alpha)
    assert bnp.evidence.exact(model, X) == pytest.approx(expected.log_evidence, abs=1e-9)
    bhc = bnp.BHC(model, refine=None).fit(X)
    assert bnp.evidence.tree_bound(bhc, "pairs") == pytest.approx(expected.log_evidence, abs=1e-9)  # all partitions of 3 rows
    assert bhc.log_evidence_bound_ < expected.log_evidence + 1e-9
    agglomerative = bnp.AgglomerativeBayesianClustering(model).fit(X)
    variational = bnp.VariationalDP(model, truncation=3, n_init=1).fit(X)
    for fit in (bhc, agglomerative, bnp.BayesianKMeans(model, polish=False, n_init=1).fit(X), variational):
        z = tuple(fit.labels_.tolist())
        assert fit.log_joint_ == pytest.approx(expected.log_joint[expected.index[z]], abs=1e-9)
        if hasattr(fit, "free_energy_"):
            assert -fit.free_energy_ == pytest.approx(fit.log_joint_, abs=1e-9)
    assert bnp.tree_of_clusters(agglomerative).log_evidence_bound < expected.log_evidence + 1e-9
    for inference in ("stick_breaking", "collapsed_stick_breaking"):
        bound = bnp.VariationalDP(model, inference=inference, truncation=3, n_init=1).fit(X).infinite_bound_
        assert bound is not None and bound < expected.log_evidence + 1e-9


def test_one_row_is_one_cluster() -> None:
    problem = random_problem("nig", 1, 0)
    assert bnp.evidence.exact(problem.model, problem.X) == pytest.approx(problem.component.log_evidence(problem.X), abs=1e-13)


def test_negative_concentration_of_a_pitman_yor_process() -> None:
    problem = random_problem("nig", 6, 4)
    model = partial(pitman_yor_mixture, component=problem.component, concentration=-0.2, discount=0.5)
    expected = Enumeration(6, problem.log_marginal, -0.2, 0.5).log_evidence
    assert bnp.evidence.exact(model, problem.X) == pytest.approx(expected, abs=1e-11)


def test_sums_to_one_over_the_next_row() -> None:
    """Σ_x p(X, x) = p(X): the evidence is that of one exchangeable process, whatever the number of rows."""
    X = np.array([[0, 1], [1, 1], [1, 0], [0, 0], [1, 1]], dtype=float)
    component = bnp.BetaBernoulli(np.array([0.4, 1.5]), np.array([0.9, 0.3]))
    for discount in (0.0, 0.4):
        model = partial(pitman_yor_mixture, component=component, concentration=0.7, discount=discount)
        longer = [bnp.evidence.exact(model, np.vstack([X, x])) for x in product((0.0, 1.0), repeat=2)]
        assert np.logaddexp.reduce(longer) == pytest.approx(bnp.evidence.exact(model, X), abs=1e-12)


@pytest.mark.slow
def test_sixteen_rows_and_no_more() -> None:
    # rows without cells have density one under any partition: what is left is the sum of the prior, which is one
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, np.ones(2))
    model = partial(pitman_yor_mixture, component=component, concentration=1.7, discount=0.35)
    assert bnp.evidence.exact(model, np.full((16, 2), np.nan)) == pytest.approx(0.0, abs=1e-11)
    with pytest.raises(ValueError, match="partitions of at most 16 rows, but X has 17"):
        bnp.evidence.exact(model, np.zeros((17, 2)))


@pytest.mark.slow
def test_sixteen_rows_in_another_order() -> None:
    X = np.random.default_rng(0).normal(size=(16, 2)) + np.repeat([[0.0], [4.0]], 8, axis=0)
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, np.ones(2))
    model = partial(dpm, component=component, concentration=1.7)
    value = bnp.evidence.exact(model, X)
    order = np.random.default_rng(1).permutation(16)
    assert bnp.evidence.exact(model, X[order]) == pytest.approx(value, abs=1e-10)
    bound = bnp.BHC(model).fit(X).log_evidence_bound_
    assert bound < value < bound + 10


def test_hyperparameters_with_priors_sit_at_their_medians() -> None:
    def rate_component(X: np.ndarray) -> bnp.Component:
        rate = numpyro.sample("rate", dist.LogNormal(0.5, 1.0))
        return bnp.NormalInverseGamma(np.zeros(2), np.asarray(0.1), np.asarray(2.0), rate)

    X = random_problem("nig", 6, 0).X
    model = partial(dpm, component=rate_component, concentration=dist.Gamma(2.0, 3.0))
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, np.exp(0.5))
    problem = Problem(component, X, float(gamma.median(2.0, scale=1 / 3)))
    expected = Enumeration(6, problem.log_marginal, problem.alpha).log_evidence
    assert bnp.evidence.exact(model, X) == pytest.approx(expected, abs=1e-9)


def test_a_declared_capacity_is_respected() -> None:
    """Partitions into more clusters than the model allows have probability zero under the model."""
    problem = random_problem("nig", 6, 1)

    def capped(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(problem.alpha, X.shape[0], max_clusters=2))
        numpyro.sample("X", bnp.ConjugateMixture(problem.component, z), obs=X)

    enumeration = Enumeration(6, problem.log_marginal, problem.alpha)
    allowed = np.array([max(z) < 2 for z in enumeration.labels])
    expected = float(np.logaddexp.reduce(enumeration.log_joint[allowed]))
    assert expected < enumeration.log_evidence - 0.01
    try:
        value = bnp.evidence.exact(capped, problem.X)
    except ValueError as error:
        assert "max_clusters" in str(error)
    else:
        assert value == pytest.approx(expected, abs=1e-10)


def test_bad_data() -> None:
    problem = random_problem("niw", 6, 0)
    holes = problem.X.copy()
    holes[4, 0] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*row 4, column 0"):
        bnp.evidence.exact(problem.model, holes)
    with pytest.raises(ValueError, match="empty"):
        bnp.evidence.exact(problem.model, np.zeros((0, 2)))

    def no_partition(X: np.ndarray) -> None:
        numpyro.sample("X", dist.Normal(0.0, 1.0), obs=X)

    with pytest.raises(ValueError, match="no partition site"):
        bnp.evidence.exact(no_partition, problem.X)


@pytest.mark.slow
def test_tree_bound() -> None:
    problem = random_problem("nig", 6, 3)
    bhc = bnp.BHC(problem.model)
    with pytest.raises(NotFittedError):
        bnp.evidence.tree_bound(bhc)
    bhc.fit(problem.X)
    assert bnp.evidence.tree_bound(bhc, kind="bhc") == bnp.evidence.tree_bound(bhc) == bhc.log_evidence_bound_
    assert bhc.log_evidence_bound_ <= bnp.evidence.exact(problem.model, problem.X) + 1e-12
    with pytest.raises(ValueError, match="'kind' parameter of tree_bound must be .*'bhc'.*'best'"):
        bnp.evidence.tree_bound(bhc, kind="best")

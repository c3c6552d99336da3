"""New rows put to the clusters of an estimate."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.inspection.collapsed import find_sites
from bnp_hier.inspection.model_arguments import as_arguments
from bnp_hier.models import dpm
from bnp_hier.posterior import new_rows
from bnp_hier.posterior.draws import Draws, draws_of
from bnp_hier.posterior.mixtures import CollapsedMixture, Mixture
from tests.oracles import bhc
from tests.oracles.partitions import Enumeration
from tests.oracles.problems import Problem, log_marginal, random_problem

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 2)) + 6.0 * (np.arange(8) % 2)[:, None]
COMPONENT = bnp.NormalInverseGamma.from_data(X, learn=False)
MODEL = partial(dpm, component=COMPONENT, concentration=0.7)
NEW = RNG.normal(size=(3, 2)) + [[0.0], [6.0], [3.0]]


def by_hand(draws: np.ndarray, estimate: np.ndarray) -> np.ndarray:
    """Joint probability of a seat and the row in every draw, shared out among the estimate's clusters by membership."""
    found = np.zeros((len(NEW), estimate.max() + 2))
    for labels in draws:
        for i, row in enumerate(NEW):
            for k in np.unique(labels):
                group = np.flatnonzero(labels == k)
                beside = log_marginal(COMPONENT, np.vstack([X[group], row])) - log_marginal(COMPONENT, X[group])
                for item in group:
                    found[i, estimate[item]] += np.exp(beside)
            found[i, -1] += 0.7 * np.exp(log_marginal(COMPONENT, row[None]))
    return found / found.sum(1, keepdims=True)


def test_probabilities_follow_every_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.array([[0, 1, 0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 2, 1, 2, 1], [0, 0, 0, 0, 0, 0, 0, 0]])
    estimate = draws[0]
    fit = bnp.MAPDP(MODEL, n_init=1).fit(X)
    mixture = draws_of(fit, X).mixture
    monkeypatch.setattr("bnp_hier.posterior.new_rows.draws_of", lambda *_, **__: Draws(draws[None], {}, mixture))
    found = bnp.cluster_probabilities(object(), X, estimate, NEW)
    np.testing.assert_allclose(found, by_hand(draws, estimate), rtol=1e-9)
    np.testing.assert_allclose(found.sum(1), 1.0)


def weigh_draws(monkeypatch: pytest.MonkeyPatch, labels: np.ndarray, log_joint: np.ndarray, mixture: Mixture) -> None:
    """Make these partitions, (s, n), the draws, each with its probability in place of a count."""
    evaluated = new_rows.map_draws

    def weighted(*args: Any, **options: Any) -> tuple[np.ndarray, ...]:
        scaled, peaks = evaluated(*args, **options)
        return scaled, peaks + log_joint[None, :, None]

    monkeypatch.setattr(new_rows, "draws_of", lambda *_, **__: Draws(labels[None], {}, mixture))
    monkeypatch.setattr(new_rows, "map_draws", weighted)


def exact_shares(problem: Problem, estimate: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Shares of a new row among the clusters, by enumeration of the partitions of all rows and the new one."""
    n = problem.n

    def marginal(rows: list[int]) -> float:
        old = [i for i in rows if i < n]
        return problem.log_marginal(old) + (problem.log_predictive(old, row) if n in rows else 0.0)

    posterior, shares = Enumeration(n + 1, marginal, problem.alpha), np.zeros(estimate.max() + 2)
    for labels, probability in zip(posterior.labels, posterior.probabilities, strict=True):
        beside = [i for i in range(n) if labels[i] == labels[n]]
        np.add.at(shares, estimate[beside] if beside else [-1], probability / max(len(beside), 1))
    return shares


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("family", ["niw", "bernoulli", "poisson"])
def test_probabilities_are_those_of_the_posterior_given_the_new_row(
    family: str, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five rows and one more: p(its cluster | X, row), and not the mean over p(partition | X), which is far from it."""
    problem = random_problem(family, 5, 1)
    rows = np.vstack([problem.X[:2], problem.X[2] + 1.0 if family != "bernoulli" else 1.0 - problem.X[2]])
    if missing:
        rows[:, 1] = np.nan
    estimate = np.array([0, 0, 1, 1, 2])
    posterior = Enumeration(5, problem.log_marginal, problem.alpha)
    with jax.enable_x64(True):
        sites = find_sites(problem.model, (problem.X,))
    mixture = CollapsedMixture(problem.model, as_arguments(problem.X), sites)
    weigh_draws(monkeypatch, np.array(posterior.labels), posterior.log_joint, mixture)
    found = bnp.cluster_probabilities(object(), problem.X, estimate, rows)
    np.testing.assert_allclose(found, [exact_shares(problem, estimate, row) for row in rows], atol=1e-8)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("family", ["niw", "bernoulli", "poisson"])
def test_a_tree_and_its_partitions_give_the_same_probabilities(
    family: str, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes weighted by the probability of being a cluster, and all partitions of the tree weighted by theirs."""
    problem = random_problem(family, 7, 2)
    rows = problem.X[:3] + 1.0 if family != "bernoulli" else 1.0 - problem.X[:3]
    if missing:
        rows[:, 0] = np.nan
    fit = bnp.BHC(problem.model, refine=None).fit(problem.X)
    children = fit.dendrogram_.children
    partitions, masses = bhc.partition_masses(children, problem.log_marginal, problem.alpha)
    expected = fit.predict_proba(rows)
    mixture = draws_of(fit, problem.X).mixture
    weigh_draws(monkeypatch, np.array([bhc.labels_of(children, nodes) for nodes in partitions]), masses, mixture)
    assert len(partitions) > 3
    np.testing.assert_allclose(bnp.cluster_probabilities(object(), problem.X, fit.labels_, rows), expected, atol=1e-9)


def test_an_estimators_own_partition() -> None:
    fit = bnp.MAPDP(MODEL, n_init=2).fit(X)
    np.testing.assert_array_equal(bnp.cluster_probabilities(fit, X, fit.labels_, NEW), fit.predict_proba(NEW))
    other = np.zeros(8, dtype=int)  # another partition: all members together
    found = bnp.cluster_probabilities(fit, X, other, NEW)
    np.testing.assert_allclose(found, by_hand(fit.labels_[None], other), rtol=1e-9)


def test_any_whole_numbers_name_the_clusters() -> None:
    """One column for each label that occurs, with gaps or below zero, as of a method that calls outliers −1."""
    fit = bnp.MAPDP(MODEL, n_init=2).fit(X)
    plain = np.arange(8) % 3
    found = bnp.cluster_probabilities(fit, X, np.array([-1, 4, 30])[plain], NEW)
    np.testing.assert_allclose(found, bnp.cluster_probabilities(fit, X, plain, NEW), rtol=1e-12)
    assert found.shape == (3, 4)


def test_bad_input() -> None:
    fit = bnp.MAPDP(MODEL, n_init=1).fit(X)
    with pytest.raises(ValueError, match="8"):
        bnp.cluster_probabilities(fit, X, np.zeros(3, dtype=int), NEW)
    with pytest.raises(ValueError, match="3"):
        bnp.cluster_probabilities(fit, X, np.zeros(8, dtype=int), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1, but it is 0"):
        bnp.cluster_probabilities(fit, X, np.zeros(8, dtype=int), NEW, num_samples=0)

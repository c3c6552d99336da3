"""Agglomerative Bayesian clustering against a plain scan of all pairs."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln
from scipy.stats import gamma, lognorm
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.models import dpm, pitman_yor_mixture
from tests.oracles.problems import FAMILIES, Problem, random_problem
from tests.parameters import few


def energy(problem: Problem, clusters: list[list[int]], prior: str) -> float:
    """−log p(X, labels), from the closed forms."""
    sizes, n, k, alpha = np.array([len(c) for c in clusters]), problem.n, len(clusters), problem.alpha
    if prior == "dp":
        seats = k * np.log(alpha) + gammaln(sizes).sum() + gammaln(alpha) - gammaln(n + alpha)
    else:
        seats = gammaln(k * alpha) - gammaln(n + k * alpha) + (gammaln(sizes + alpha) - gammaln(alpha)).sum()
    return -seats - sum(problem.log_marginal(c) for c in clusters)


@pytest.mark.parametrize("prior", few(["dp", "finite"]))
@pytest.mark.parametrize("family", few(["niw", "bernoulli", "nig", "multinomial"]))
def test_every_merge_is_the_best_of_all_pairs(family: str, prior: str) -> None:
    """Each merge of ten problems replayed: its free energy is right, and no pair gives less than 1e-8 below it."""
    assert set(FAMILIES) >= {family}
    for seed in range(10):
        problem = random_problem(family, 9, seed)
        fit = bnp.AgglomerativeBayesianClustering(problem.model, prior).fit(problem.X)
        members = {i: [i] for i in range(9)}
        assert fit.free_energies_[0] == pytest.approx(energy(problem, list(members.values()), prior), abs=1e-8)
        for t, (left, right) in enumerate(fit.dendrogram_.children.tolist()):
            options = {}
            for a in members:
                for b in members:
                    if a < b:
                        rest = [members[k] for k in members if k not in (a, b)]
                        options[a, b] = energy(problem, [*rest, members[a] + members[b]], prior)
            assert options[left, right] <= min(options.values()) + 1e-8
            assert fit.free_energies_[t + 1] == pytest.approx(options[left, right], abs=1e-8)
            members[9 + t] = members.pop(left) + members.pop(right)
        best = int(fit.free_energies_.argmin())
        assert fit.n_clusters_ == 9 - best
        assert fit.free_energy_ == fit.free_energies_[best]
        clusters = [np.flatnonzero(fit.labels_ == k).tolist() for k in range(fit.n_clusters_)]
        assert energy(problem, clusters, prior) == pytest.approx(fit.free_energy_, abs=1e-8)
        if prior == "dp":
            assert fit.log_joint_ == pytest.approx(-fit.free_energy_, abs=1e-6)


def test_drawn_heights_never_sink_although_odds_do() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    component = bnp.NormalInverseWishart.from_data(X, rule="agglomerative", learn=False)
    fit = bnp.AgglomerativeBayesianClustering(partial(dpm, component=component, concentration=2.0)).fit(X)
    odds, children = fit.dendrogram_.log_odds, fit.dendrogram_.children
    heights = np.concatenate([np.zeros(60), fit.dendrogram_.heights()])
    assert (heights[60:][:, None] >= heights[children]).all()
    inner = children >= 60
    below = np.where(inner, odds[np.where(inner, children - 60, 0)], np.inf)
    assert (odds[:, None] > below).any(), "no inversion: the test has no power"


def test_clusters_and_classes() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 90)
    X = 20.0 * np.array([[0, 0], [1, 0], [0, 1]])[labels] + rng.normal(size=(90, 2))
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    fit = bnp.AgglomerativeBayesianClustering(partial(dpm, component=component, concentration=1.0)).fit(X)
    assert adjusted_rand_score(labels, fit.labels_) == 1.0
    assert fit.dendrogram_.purity(labels) == pytest.approx(1.0)
    assert (fit.predict(X) == fit.labels_).all()


def learned(X: np.ndarray) -> None:
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    spread = numpyro.sample("spread", dist.LogNormal(0.0, 1.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, X.shape[0]))
    component = bnp.NormalInverseGamma(np.zeros(2), np.full(2, 0.1), np.full(2, 2.0), spread * np.ones(2))
    numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["dp", "finite"])
def test_optimize_raises_the_log_joint_with_the_log_prior(prior: str) -> None:
    rng = np.random.default_rng(2)
    X = 6.0 * rng.integers(0, 2, (40, 2)) - 3.0 + 0.2 * rng.normal(size=(40, 2))

    def reached(fit: bnp.AgglomerativeBayesianClustering) -> float:
        component = bnp.NormalInverseGamma(
            *(np.asarray(getattr(fit.component_, k)) for k in ("mean", "kappa", "shape", "rate"))
        )
        problem = Problem(component, X, fit.concentration_)
        clusters = [np.flatnonzero(fit.labels_ == k).tolist() for k in range(fit.n_clusters_)]
        assert energy(problem, clusters, prior) == pytest.approx(fit.free_energy_, abs=1e-8)
        alpha, spread = fit.hyperparameters_["alpha"], fit.hyperparameters_["spread"]
        return float(gamma(1.0).logpdf(alpha) + lognorm(1.0).logpdf(spread)) - fit.free_energy_

    plain = bnp.AgglomerativeBayesianClustering(learned, prior, optimize=False).fit(X)
    fitted = bnp.AgglomerativeBayesianClustering(learned, prior, optimize=True).fit(X)
    again = bnp.AgglomerativeBayesianClustering(learned, prior, optimize=True, engine="conga_line").fit(X)
    assert plain.hyperparameters_["spread"] == pytest.approx(1.0)
    assert fitted.hyperparameters_["spread"] < 0.5, "the clusters are narrow"
    assert reached(fitted) > reached(plain) + 1.0
    assert again.hyperparameters_ == fitted.hyperparameters_ and again.evaluations_ > fitted.evaluations_


def test_bad_input() -> None:
    X = np.random.default_rng(0).normal(size=(5, 2))
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    model = partial(dpm, component=component, concentration=1.0)
    with pytest.raises(ValueError, match="optimize=True, but no hyperparameter of the model has a prior"):
        bnp.AgglomerativeBayesianClustering(model, optimize=True).fit(X)
    discounted = partial(pitman_yor_mixture, component=component, concentration=1.0, discount=0.3)
    with pytest.raises(ValueError, match="needs a plain Dirichlet process, but the model has a discount"):
        bnp.AgglomerativeBayesianClustering(discounted).fit(X)

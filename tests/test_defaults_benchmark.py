"""The benchmark of default settings: its data sets, the predictive densities of the peers, resuming, and the summary."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy.integrate import quad
from scipy.stats import multivariate_normal, wishart
from scipy.stats import t as student_t
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from examples.benchmarks import defaults


def test_a_third_is_put_aside() -> None:
    assert list(defaults.SETS) == sorted(defaults.SETS)
    every_third = set(sorted(defaults.SETS)[2::3])
    assert set(defaults.PUT_ASIDE) == every_third - {"glass", "wine"} | {"pendigits", "yeast"}
    assert set(defaults.QUICK) <= set(defaults.SETS)
    open_sets, aside = defaults.parsed([]), defaults.parsed(["--put-aside"])
    assert set(open_sets.sets) | set(aside.sets) == set(defaults.SETS) and not set(open_sets.sets) & set(aside.sets)
    with pytest.raises(SystemExit):
        defaults.parsed(["--sets", defaults.PUT_ASIDE[0]])


@pytest.mark.parametrize("name", [name for name in defaults.SETS if name != "digits_bits"])
def test_splits(name: str) -> None:
    (train, held_out, seed, continuous), truth = defaults.split_of(name, 1)
    assert seed == 1 and len(train) == len(truth) and 0 <= len(train) - len(held_out) <= 1
    assert len(np.unique(truth)) == {"no_": 1}.get(name[:3], len(np.unique(defaults.SETS[name](1).y)))
    if continuous:
        np.testing.assert_allclose(train.mean(0), 0.0, atol=1e-9)
        np.testing.assert_allclose(train.std(0), 1.0)
    again = defaults.split_of(name, 1).task
    np.testing.assert_array_equal(train, again.train)
    assert not np.array_equal(train, defaults.split_of(name, 2).task.train)


def test_generated_sets_have_the_truth_that_they_claim() -> None:
    draws = {name: [defaults.SETS[name](seed) for seed in range(20)] for name in ("unbalanced", "correlated", "heavy_tails")}
    shares = np.bincount(draws["unbalanced"][0].y) / len(draws["unbalanced"][0].y)
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.1, 0.05, 0.05])

    # means and correlations inside the clusters
    X, y = np.concatenate([s.X for s in draws["correlated"]]), np.concatenate([s.y for s in draws["correlated"]])
    for k in range(3):
        between = np.corrcoef(X[y == k].T)[np.triu_indices(6, 1)]
        np.testing.assert_allclose(between, 0.98, atol=0.005)
        contrast = X[y == k][:, 2 * k] - X[y == k][:, 2 * k + 1]
        assert abs(contrast.mean() - 0.7) < 0.03

    # quartiles of Student-t with 3 degrees of freedom
    X, y = np.concatenate([s.X for s in draws["heavy_tails"]]), np.concatenate([s.y for s in draws["heavy_tails"]])
    residuals = (X - defaults.ring(3, 6.0)[y]).ravel()
    np.testing.assert_allclose(
        np.quantile(residuals, [0.25, 0.5, 0.75, 0.99]), student_t(3).ppf([0.25, 0.5, 0.75, 0.99]), atol=0.2
    )
    assert len(np.unique(defaults.many_clusters(0).y)) == 20
    assert len(np.unique(defaults.SETS["no_clusters_10"](0).y)) == 1 and defaults.SETS["no_clusters_10"](0).X.shape == (300, 10)

    noise = defaults.noise_columns(0)
    means = np.array([noise.X[noise.y == k].mean(0) for k in range(3)])
    np.testing.assert_allclose(means, 4.0 * np.eye(3, 13), atol=0.35)


def _from_the_posterior(mixture: BayesianGaussianMixture, X: np.ndarray, draws: int) -> np.ndarray:
    """(draws, m) densities at weights, means and precisions drawn from scikit-learn's posterior."""
    rng = np.random.default_rng(0)
    sticks = rng.beta(*mixture.weight_concentration_, size=(draws, mixture.n_components))
    sticks[:, -1] = 1.0
    weights = sticks * np.cumprod(np.column_stack([np.ones(draws), 1 - sticks[:, :-1]]), axis=1)
    total = np.zeros((draws, len(X)))
    for k in range(mixture.n_components):
        nu, kappa = mixture.degrees_of_freedom_[k], mixture.mean_precision_[k]
        precision = wishart(nu, np.linalg.inv(nu * mixture.covariances_[k])).rvs(draws, rng)
        factor = np.linalg.cholesky(np.linalg.inv(precision))
        mean = mixture.means_[k] + np.einsum("sij,sj->si", factor, rng.normal(size=(draws, X.shape[1]))) / np.sqrt(kappa)
        gap = X - mean[:, None]
        quadratic = np.einsum("sni,sij,snj->sn", gap, precision, gap)
        log_norm = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * X.shape[1] * np.log(2 * np.pi)
        total += weights[:, k, None] * np.exp(log_norm[:, None] - 0.5 * quadratic)
    return total


def test_predictive_of_the_dirichlet_process_mixture() -> None:
    """Student-t mixture against the Monte Carlo integral; few rows, so that plug-in densities are different."""
    X = defaults.gaussians(np.random.default_rng(0), [12, 8], np.array([[0.0, 0], [4, 3]]), np.eye(2)).X
    kind = "dirichlet_process"
    mixture = BayesianGaussianMixture(n_components=4, weight_concentration_prior_type=kind, max_iter=500, random_state=0).fit(X)
    new = np.array([[0.0, 0.5], [4.0, 3.0], [2.0, 1.5], [-3.0, 1.0], [7.0, 0.0]])
    sampled = _from_the_posterior(mixture, new, 40_000)
    exact, error = np.exp(defaults.bayesian_predictive(mixture, new)), sampled.std(0) / np.sqrt(len(sampled))
    assert np.all(np.abs(exact - sampled.mean(0)) < 4 * error)
    assert np.any(np.abs(np.exp(mixture.score_samples(new)) - exact) > 10 * error)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_predictive_of_the_gaussian_mixture(kind: str) -> None:
    rng = np.random.default_rng(0)
    X, new = rng.normal(2.0, 3.0, (9, 1)), np.linspace(-8, 8, 5)[:, None]
    one = GaussianMixture(1, covariance_type=kind).fit(X)
    classical = student_t(8, X.mean(), X.std(ddof=1) * np.sqrt(1 + 1 / 9))
    np.testing.assert_allclose(defaults.gaussian_predictive(one, X, new), classical.logpdf(new[:, 0]), rtol=1e-5)

    # more clusters integrate to one, a cluster of a single row too
    X = np.append(X, [[200.0]], axis=0)
    two = GaussianMixture(2, covariance_type=kind, random_state=0).fit(X)

    def density(x: float) -> float:
        return float(np.exp(defaults.gaussian_predictive(two, X, np.array([[x]])))[0])

    edges = [-np.inf, -100, 199.9, 199.99, 200.01, 200.1, 300, np.inf]
    mass = sum(quad(density, low, high, limit=200)[0] for low, high in pairwise(edges))
    assert abs(mass - 1) < 1e-3

    # in three columns
    X = rng.normal(size=(12, 3)) * [1.0, 2.0, 3.0]
    fit = GaussianMixture(1, covariance_type=kind).fit(X)
    assert np.isfinite(defaults.gaussian_predictive(fit, X, X)).all()


def test_full_covariances_against_monte_carlo() -> None:
    """One component under the non-informative prior: precision ~ Wishart(n − 1), mean ~ N(x̄, Σ/n)."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(8, 2)), np.array([[0.0, 0.0], [2.0, -1.0]])
    fit = GaussianMixture(1).fit(X)
    precision = wishart(7, np.linalg.inv(8 * fit.covariances_[0])).rvs(20_000, rng)
    means = np.array([rng.multivariate_normal(X.mean(0), s / 8) for s in np.linalg.inv(precision[:4000])])
    pairs = zip(means, np.linalg.inv(precision[:4000]), strict=True)
    sampled = np.array([multivariate_normal(m, s).pdf(new) for m, s in pairs])
    exact = np.exp(defaults.gaussian_predictive(fit, X, new))
    assert np.all(np.abs(exact - sampled.mean(0)) < 4 * sampled.std(0) / np.sqrt(len(sampled)))


@pytest.mark.slow
def test_run_resumes_and_records_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny(seed: int) -> defaults.Sample:
        return defaults.gaussians(np.random.default_rng(seed), [20, 20], np.array([[0.0, 0], [9, 9]]), np.eye(2))

    def fails(task: defaults.Task) -> defaults.Fit:
        raise ValueError("not,\ntoday")

    monkeypatch.setitem(defaults.SETS, "tiny", tiny)
    monkeypatch.setitem(defaults.METHODS, "k-means", fails)
    path = tmp_path / "results.csv"
    words = ["--sets", "tiny", "--splits", "1", "--out", str(path), "--methods"]
    defaults.main([*words, "map-dp,sklearn-dp"])
    before = path.read_text()
    defaults.main([*words, "map-dp,sklearn-dp,k-means"])
    assert path.read_text().startswith(before)
    table = defaults.read_results(path).set_index("method")
    assert list(table.index) == ["map-dp", "sklearn-dp", "k-means"]
    assert table.loc["k-means", "error"] == "ValueError: not, today" and np.isnan(table.loc["k-means", "ari"])
    assert table.loc["map-dp", "ari"] == 1.0 and table.loc["map-dp", "clusters"] == 2 == table.loc["map-dp", "true_clusters"]
    assert np.isfinite(table.loc["sklearn-dp", ["log_density", "log_density_t", "seconds"]].astype(float)).all()

    defaults.main([*words, "sklearn-dp", "--redo"])
    assert len(path.read_text().splitlines()) == 5 and len(defaults.read_results(path)) == 3
    report = path.with_suffix(".md").read_text()
    assert "tiny: 20 training rows, 2 columns, 2 true clusters" in report and "ValueError: not, today" in report
    assert "--redo" not in report and "sklearn-dp (t)" in report


def _results() -> pd.DataFrame:
    """Three sets, four splits: map-dp is better, equal and worse in density than gmm-bic, and misses the clusters of "b"."""
    noise = np.array([-0.01, 0.01, -0.02, 0.02])
    rows = []
    for name, gap, ari in (("a", 0.5, 0.9), ("b", 0.0, 0.05), ("none", -0.5, 1.0)):
        truth = 1 if name == "none" else 3
        for split in range(4):
            sizes = {"true_clusters": truth, "rows": 50, "columns": 2, "seconds": 1.0, "cpu_seconds": 1.0}
            found = {"ari": ari, "clusters": truth, "one_cluster_warning": ari < 0.1}
            rows.append(defaults.Row(name, split, "map-dp", -2 + gap + noise[split], **found, **sizes))
            rows.append(defaults.Row(name, split, "gmm-bic", -2, -2.25, ari=0.8, clusters=2, **sizes))
    return pd.DataFrame(rows)


def test_summary_of_results_made_by_hand() -> None:
    table = _results()
    found = defaults.paired(defaults.with_predictives(table), "log_density", "map-dp").set_index(["peer", "set"])
    assert found["verdict"].to_dict() == {
        ("gmm-bic", "a"): "better",
        ("gmm-bic", "b"): "equal",
        ("gmm-bic", "none"): "worse",
        ("gmm-bic (t)", "a"): "better",
        ("gmm-bic (t)", "b"): "better",
        ("gmm-bic (t)", "none"): "worse",
    }
    assert found.loc[("gmm-bic (t)", "b"), "difference"] == pytest.approx(0.25)
    assert found.loc[("gmm-bic", "a"), "error"] == pytest.approx(np.std([-0.01, 0.01, -0.02, 0.02], ddof=1) / 2)
    counts = defaults.counted(found.reset_index())
    assert counts.loc["gmm-bic"].to_list() == [3, 2, 1, 1, 1, 0]
    assert counts.loc["gmm-bic (t)"].to_list() == [3, 2, 2, 0, 1, 0]
    aris = defaults.counted(defaults.paired(defaults.clustered(table), "ari", "map-dp"))
    assert aris.loc["gmm-bic"].to_list() == [2, 1, 1, 0, 1, 0]
    assert defaults.mean_ari(table).loc["map-dp", "mean ARI"] == pytest.approx(0.475)
    flagged = ["b", "map-dp", pytest.approx(0.05), "gmm-bic", pytest.approx(0.8), 1.0]
    assert defaults.flags(table).to_numpy().tolist() == [flagged]
    alone = defaults.without_clusters(table).set_index("method")
    assert alone.loc["map-dp", ["clusters", "share with one"]].to_list() == [1.0, 1.0]
    assert alone.loc["gmm-bic", ["clusters", "share with one"]].to_list() == [2.0, 0.0]
    assert defaults.verdict(0.1, np.nan) == "undecided" and defaults.verdict(0.0, 0.0) == "equal"

    sections = defaults.summary(table)
    report = defaults.markdown(sections, "the command")
    assert "Made by `the command`." in report and "| gmm-bic | 3 | 2 | 1 | 1 | 1 | 0 |" in report
    console = Console(record=True, width=160)
    defaults.show(sections, console)
    assert "Clusters found where there are none" in console.export_text()

"""The reproductions of Kurihara & Welling (2009), Table 1 and Figures 3 and 4, run at small sizes; so do the rival methods."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

import bnp_hier as bnp
from bnp_hier.models import dpm
from tests.reproductions import FOLDER, assert_picture, run

sys.path.insert(0, str(FOLDER))

import baselines  # noqa: E402
import me_table1  # noqa: E402


def separated(seed: int = 0, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Five round clusters in the plane, far apart along a line."""
    rng = np.random.default_rng(seed)
    centers = 15.0 * np.array([[0, 0], [1, 0.2], [2, -0.1], [3, 0.3], [4, 0]])
    labels = rng.integers(5, size=n)
    return centers[labels] + rng.normal(size=(n, 2)), labels


def hard(labels: np.ndarray) -> np.ndarray:
    return np.eye(labels.max() + 1)[labels]


def variational(X: np.ndarray) -> baselines.VariationalGaussians:
    return baselines.VariationalGaussians(X, bnp.NormalInverseWishart.from_data(X, rule="me", learn=False), 2.0)


def test_g_means() -> None:
    X, labels = separated()
    assert adjusted_rand_score(labels, baselines.g_means(X)) > 0.99
    for seed in range(5):
        one = np.random.default_rng(seed).normal(size=(300, 3)) @ np.array([[2.0, 0, 0], [1.0, 1, 0], [0, 0.3, 0.5]])
        assert (baselines.g_means(one) == 0).all()


@pytest.mark.parametrize("make", [baselines.KMeansBIC, baselines.GaussiansBIC, variational])
def test_the_search_finds_separated_clusters_and_a_single_one(make: Callable[[np.ndarray], baselines.Method]) -> None:
    X, labels = separated()
    fit = baselines.split_merge(make(X))
    assert fit.n_clusters == 5
    assert adjusted_rand_score(labels, fit.labels) > 0.99
    np.testing.assert_allclose(fit.responsibilities.sum(1), 1.0, atol=1e-12)
    assert baselines.split_merge(make(X[labels == 0])).n_clusters == 1


def test_merges_undo_a_needless_split() -> None:
    X, labels = separated()
    method = baselines.GaussiansBIC(X)
    halves = baselines._halves(X, (labels == 2).astype(float))
    six = method(np.column_stack([np.delete(hard(labels), 2, axis=1), halves]))
    assert six is not None and six.n_clusters == 6
    merged = baselines.Proposals(method).merge(six)
    assert merged is not None and merged.n_clusters == 5 and merged.cost < six.cost


def test_halves_are_a_step_of_kmeans() -> None:
    X, labels = separated(3)
    rows = X[labels != 0]
    halves = baselines._halves(rows, np.ones(len(rows)))
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    step = vectors[:, 1] * np.sqrt(values[1])
    ends = np.array([rows.mean(0) + step, rows.mean(0) - step])
    nearest = ((rows[:, None] - ends) ** 2).sum(2).argmin(1)
    assert adjusted_rand_score(nearest, halves.argmax(1)) == 1.0


def test_kmeans_bic_from_densities() -> None:
    X, _ = separated()
    n, d = X.shape
    for k in (1, 3, 5):
        fit = baselines.KMeansBIC(X)(hard(np.arange(n) % k))
        assert fit is not None
        known = KMeans(k, init=np.array([X[np.arange(n) % k == c].mean(0) for c in range(k)]), n_init=1).fit(X)
        centers, z = known.cluster_centers_, known.labels_
        variance = ((X - centers[z]) ** 2).mean()
        likelihood = sum(
            np.log((z == c).mean()) + multivariate_normal(centers[c], variance).logpdf(x) for x, c in zip(X, z, strict=True)
        )
        bic = -2.0 * likelihood + (k - 1 + k * d + 1) * np.log(n)
        assert 2.0 * fit.cost == pytest.approx(bic, rel=1e-9)


def test_gaussians_bic_is_sklearns() -> None:
    X, labels = separated()
    fit = baselines.GaussiansBIC(X)(hard(labels))
    known = GaussianMixture(5, means_init=[X[labels == k].mean(0) for k in range(5)], random_state=0).fit(X)
    assert fit is not None
    assert 2.0 * fit.cost == pytest.approx(known.bic(X), abs=0.5)
    np.testing.assert_allclose(fit.log_density, known.score_samples(X), atol=0.01)


def test_gaussians_need_more_rows_than_columns() -> None:
    X = np.random.default_rng(0).normal(size=(60, 20))
    assert baselines.GaussiansBIC(X)(hard(np.arange(60) % 3)) is None
    assert baselines.split_merge(baselines.GaussiansBIC(X)).n_clusters == 1


@pytest.mark.slow
def test_the_variational_energy_of_hard_labels_is_that_of_bayesian_kmeans() -> None:
    X, _ = separated(n=120)
    component = bnp.NormalInverseWishart.from_data(X, rule="me", learn=False)
    model = partial(dpm, component=component, concentration=2.0)
    fit = bnp.BayesianKMeans(model, label_prior="finite", n_init=1, polish=False).fit(X)
    energy, _ = baselines.VariationalGaussians(X, component, 2.0)._step(hard(fit.labels_))
    assert energy == pytest.approx(fit.free_energy_, abs=1e-6)


def test_the_variational_fixed_point_is_sklearns() -> None:
    X, labels = separated()
    component = bnp.NormalInverseWishart.from_data(X, rule="me", learn=False)
    fit = baselines.VariationalGaussians(X, component, 2.0)(hard(labels))
    known = BayesianGaussianMixture(
        n_components=5,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=2.0,
        mean_precision_prior=component.kappa,
        mean_prior=component.mean,
        degrees_of_freedom_prior=component.nu,
        covariance_prior=component.scale,
        reg_covar=0.0,
        tol=1e-8,
        n_init=5,
        random_state=0,
    ).fit(X)
    assert fit is not None
    order = [known.predict(X[labels == k][:1])[0] for k in range(5)]
    np.testing.assert_allclose(fit.responsibilities, known.predict_proba(X)[:, order], atol=1e-3)


def test_variational_energies_never_rise() -> None:
    X, _ = separated(1, 80)
    method = variational(X)
    r = np.random.default_rng(0).dirichlet(np.ones(4), size=len(X))
    energies = []
    for _ in range(30):
        energy, joint = method._step(r)
        energies.append(energy)
        r = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    assert (np.diff(energies) < 1e-8).all() and energies[0] - energies[-1] > 1.0


@pytest.mark.slow
def test_table1(tmp_path: Path) -> None:
    written = run(tmp_path, "me_table1", "--tau", "2")
    rows = written.splitlines()
    row = next(line for line in rows if line.startswith("2      100   2"))
    means = [float(cell.split(" ± ")[0]) for cell in re.findall(r"[\d.]+ ± [\d.]+", row)]
    assert len(means) == 6 and all(1.0 <= mean <= 30.0 for mean in means)
    assert "6.80 ± 3.26" in rows[rows.index(row) + 1]  # the paper's
    assert "BKM default (starts 1, 2, 4, 8, 16; polish): " in written
    assert "- no difference above 2 standard errors between BKM and VBMG: " in written
    assert "2 data sets in each cell (the paper: 10) of 1 cells" in written
    assert_picture(tmp_path / "me_table1.png")


@pytest.mark.slow
def test_table1_stops_in_time_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = (2.0, 100, 32)
    plan = me_table1.Plan([cell, (0.5, 100, 2)], 3, seed=0, sweeps=2)
    done = []

    def one_fit(method: str, cell: me_table1.Cell, repetition: int, *_: int) -> list[float]:
        done.append((method, cell, repetition))
        if len(done) == 6 * 2 + 7 * 2 + 3:  # in the third data set of the smaller cell
            clock[0] += 3600.0
        return [float(repetition), 1.0, 0.0]

    clock = [0.0]
    monkeypatch.setattr(me_table1, "one_fit", one_fit)
    monkeypatch.setattr(me_table1.time, "monotonic", lambda: clock[0])
    first = me_table1.run_all(plan, tmp_path, hours=0.5)
    assert {key: len(results["BKM"]) for key, results in first.items()} == {cell: 2, (0.5, 100, 2): 2}
    assert {repetition for *_, repetition in done[:26]} == {0, 1} and done[-1][1:] == ((0.5, 100, 2), 2)
    again = me_table1.run_all(plan, tmp_path, hours=0.5)
    assert {key: len(results["BKM"]) for key, results in again.items()} == {cell: 3, (0.5, 100, 2): 3}
    assert len(done) == len(set(done)) == 3 * (6 + 7), "no fit twice"


@pytest.mark.slow
def test_figure3(tmp_path: Path) -> None:
    written = run(tmp_path, "me_figures3_4", "--figures", "3")
    assert written.count("is within the range of BKM's: ") == 3
    assert_picture(tmp_path / "me_figure3.png")


@pytest.mark.data
@pytest.mark.slow
def test_figure4(tmp_path: Path) -> None:
    written = run(tmp_path, "me_figures3_4", "--figures", "4")
    assert "the paper's one example: 0.816" in written and "25 + 25 mails, 5 random subsets" in written
    (line,) = (line for line in written.splitlines() if line.startswith("    ABC"))
    assert 0.5 < float(line.split()[1]) <= 1.0
    assert_picture(tmp_path / "me_figure4.png")


def test_full_output_is_there() -> None:
    for name in ("me_table1.txt", "me_table1.png", "me_figures3_4.txt", "me_figure3.png", "me_figure4.png"):
        assert 0 < (FOLDER / "output" / name).stat().st_size < 300_000

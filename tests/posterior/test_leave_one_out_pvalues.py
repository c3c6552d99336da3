"""p-values of the rows of a fit: by quadrature, uniform for data of the model, small for outliers in their own table."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS
from scipy.special import gammaln
from scipy.stats import nbinom
from scipy.stats import t as student

import bnp_hier as bnp
from bnp_hier.models import dpm, dpm_stick_breaking
from tests.oracles.partitions import all_partitions
from tests.parameters import few

DATA_SETS = 24


def _run(X: np.ndarray, component: Any, length: int = 250, key: int = 0) -> MCMC:
    mcmc = MCMC(
        bnp.PartitionGibbs(partial(dpm, component=component)),
        num_warmup=50,
        num_samples=length,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(key), X)
    return mcmc


def test_by_quadrature(x64: None) -> None:
    """A column of six rows: the sum over all partitions of the others on a grid; the draws' own error is about 0.02."""
    X = np.array([[0.0], [0.4], [0.3], [4.0], [4.4], [1.9]])
    component = bnp.NormalInverseGamma(np.zeros(1), 0.2, 3.0, 1.0)
    grid = np.linspace(-150.0, 150.0, 30_001)[:, None]

    @cache
    def predictive(rows: tuple[int, ...]) -> np.ndarray:
        stats = component.suff_stats(jnp.asarray(X[list(rows)]))
        whole = jax.tree.map(lambda leaf: leaf.sum(0, keepdims=True), stats)
        return np.exp(np.asarray(component.log_predictive(whole, jnp.asarray(grid))))

    @cache
    def log_evidence(rows: tuple[int, ...]) -> float:
        return component.log_evidence(X[list(rows)]) + gammaln(len(rows))  # α = 1

    expected = []
    for i in range(6):
        rest = [j for j in range(6) if j != i]
        partitions = [
            [tuple(j for j, label in zip(rest, labels, strict=True) if label == k) for k in set(labels)]
            for labels in all_partitions(5)
        ]
        log_weights = np.array([sum(map(log_evidence, clusters)) for clusters in partitions])
        weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
        mixed = sum(
            weight * (len(cluster) or 1) / 6 * predictive(cluster)
            for weight, clusters in zip(weights, partitions, strict=True)
            for cluster in [*clusters, ()]
        )
        low = mixed <= np.interp(X[i, 0], grid[:, 0], mixed)
        expected.append(np.where(low, mixed, 0.0).sum() / mixed.sum())
    found = bnp.leave_one_out_pvalues(_run(X, component, 2000), X, num_samples=10_000)
    np.testing.assert_allclose(found, expected, atol=0.05)


def test_one_cluster_by_hand() -> None:
    """A single column in a single cluster: twice the tail of the Student distribution of the other rows."""
    rows = np.random.default_rng(1).normal(size=(20, 1))
    component = bnp.NormalInverseGamma(np.zeros(1), 1e6, 3.0, 3.0)
    fit = bnp.MAPDP(partial(dpm, component=component, concentration=1e-9)).fit(rows)
    shape, rate = 3.0 + 9.5, 3.0 + 0.5 * ((rows**2).sum() - rows[:, 0] ** 2)  # the mean is zero, almost surely
    expected = 2 * student.sf(np.abs(rows[:, 0]), 2 * shape, scale=np.sqrt(rate / shape))
    found = bnp.leave_one_out_pvalues(fit, rows, num_samples=20_000)
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(0.25 / 20_000))


def test_an_outlier_in_its_own_table() -> None:
    """In a cluster of its own, where its p-value as a new row shows nothing, with missing values, and in a pipeline."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X = np.random.default_rng(0).normal(size=(60, 2))
    X[7], X[8, 0] = [6.0, -6.0], np.nan
    fit = bnp.MAPDP(partial(dpm, component=bnp.NormalInverseGamma(np.zeros(2), 0.1, 3.0, 2.0))).fit(X)
    assert (fit.labels_ == fit.labels_[7]).sum() == 1
    found = bnp.leave_one_out_pvalues(fit, X)
    assert found.argmin() == 7 and found[7] < 0.01 and bnp.outlier_pvalues(fit, X, X[[7]])[0] > found[7]
    assert ((found > 0) & (found <= 1)).all() and 0.35 < found.mean() < 0.65
    np.testing.assert_array_equal(found, bnp.leave_one_out_pvalues(fit, X))
    pipeline = make_pipeline(StandardScaler(), bnp.MAPDP(n_init=1)).fit(np.nan_to_num(X))
    assert bnp.leave_one_out_pvalues(pipeline, np.nan_to_num(X)).argmin() == 7


def _prior_data(family: str, n: int, seed: int) -> tuple[Any, np.ndarray]:
    """A component, and rows of a Dirichlet-process mixture with α = 1."""
    component: Any = {
        "normal": bnp.NormalInverseGamma(np.zeros(2), 0.1, 3.0, 2.0),
        "dependent": bnp.NormalInverseWishart(np.zeros(2), 0.1, 5.0, np.eye(2)),
        "counts": bnp.GammaPoisson(np.ones(2), 0.2),
        "bits": bnp.BetaBernoulli(np.ones(3), np.ones(3)),
    }.get(family)
    if family == "mixed":
        parts = [_prior_data(name, n, seed)[0] for name in ("normal", "counts")]
        component = bnp.ProductComponent(parts, [[0, 1], [2, 3]])
    keys = jax.random.split(jax.random.key(seed), 3)
    with jax.enable_x64(True):
        z = np.asarray(bnp.ChineseRestaurantProcess(1.0, n).sample(keys[0]))
        parameters = component.prior().sample(keys[1], (n,))
        X = np.array(component.likelihood(parameters[z]).sample(keys[2]), dtype=float)
    if family in ("mixed", "dependent"):  # cells missing at random, in some rows
        X[np.random.default_rng(seed).random(X.shape) < 0.1] = np.nan
        X[np.isnan(X).all(1)] = 1.0
    return component, X


@pytest.mark.parametrize("family", few(["mixed", "bits", "dependent", "normal", "counts"], plain=0, slow=2))
def test_uniform_under_the_model(family: str) -> None:
    """Data from the prior: the mean p-value is 1/2, and u of them are below u; with ties, at most.

    The data sets are independent, and means over their rows are compared with a t-test: each of four comparisons fails by
    chance with probability 0.001.
    """
    found = []
    for seed in range(DATA_SETS):
        component, X = _prior_data(family, 15, seed)
        found.append(bnp.leave_one_out_pvalues(_run(X, component, 200, seed), X, num_samples=500, random_state=seed))
    pvalues = np.array(found)
    limit = student.isf(0.0005, len(pvalues) - 1)
    tied = family in ("counts", "bits")
    for share, each in ((0.5, pvalues), *((u, pvalues <= u) for u in (0.05, 0.2, 0.5))):
        means = each.mean(1)
        gap = (means.mean() - share) / (means.std(ddof=1) / np.sqrt(len(means)))
        if tied:
            assert gap > -limit if each is pvalues else gap < limit
        else:
            assert abs(gap) < limit, (share, means.mean())


def test_ties_of_counts_by_hand() -> None:
    """One column in one cluster: the total probability of all counts that are at most as probable as the row's own."""
    rows = np.array([0, 1, 1, 2, 2, 2, 3, 3, 9], dtype=float)[:, None]
    fit = bnp.MAPDP(partial(dpm, component=bnp.GammaPoisson(2.0 * np.ones(1), 1.0), concentration=1e-9)).fit(rows)
    expected = []
    for x in rows[:, 0]:
        masses = nbinom.pmf(np.arange(200), 2 + rows.sum() - x, (1 + 8) / (1 + 8 + 1))
        expected.append(masses[masses <= masses[int(x)] * (1 + 1e-9)].sum())
    found = bnp.leave_one_out_pvalues(fit, rows, num_samples=20_000)
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(0.25 / 20_000))
    assert found.max() == pytest.approx(1.0)  # the most probable count


def test_bad_input() -> None:
    X = np.random.default_rng(0).normal(size=(12, 2))
    fit = bnp.MAPDP(n_init=1).fit(X)
    with pytest.raises(ValueError, match="num_samples must be at least 1, but it is 0"):
        bnp.leave_one_out_pvalues(fit, X, num_samples=0)
    model = partial(dpm_stick_breaking, component=bnp.NormalInverseGamma.from_data(X, learn=False), truncation=3)
    run = MCMC(NUTS(model), num_warmup=2, num_samples=2, progress_bar=False)
    run.run(jax.random.key(0), X)
    with pytest.raises(ValueError, match="leave_one_out_pvalues needs a model whose cluster parameters are integrated out"):
        bnp.leave_one_out_pvalues(run, X)

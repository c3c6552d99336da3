"""Descriptions of clusters: means by hand, coverage of intervals, effects against other implementations, and bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer import MCMC
from scipy.optimize import brentq
from scipy.stats import f_oneway, norm
from scipy.stats.contingency import association

import bnp_hier as bnp
from bnp_hier.models import dpm
from bnp_hier.posterior import cluster_profiles
from bnp_hier.posterior.cluster_profiles import describe
from bnp_hier.posterior.draws import Draws, draws_of

X = np.array([[0.0], [0.2], [0.4], [9.0], [9.2], [9.4]])
FIT = bnp.MAPDP().fit(X)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let `describe` see given partitions instead of that of the fit."""

    def given(*labels: list[int]) -> None:
        def found(fit: Any, X: Any, **options: Any) -> Draws:
            one = draws_of(fit, X, **options)
            values = {name: np.repeat(value, len(labels), axis=1) for name, value in one.hyperparameters.items()}
            return one._replace(labels=np.array(labels)[None], hyperparameters=values)

        monkeypatch.setattr(cluster_profiles, "draws_of", found)

    return given


ENDS = ["low", "high"]


def normal_posterior(x: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the mean of N(μ, 0.25) rows, with μ ~ N(1, 4)."""
    precision = len(x) / 0.25 + 1 / 4
    return (x.sum() / 0.25 + 1 / 4) / precision, precision**-0.5


def normal(rows: np.ndarray) -> Any:
    return dpm(rows, bnp.NormalKnownCovariance([1.0], [[4.0]], [[0.25]]), 1.0)


def test_one_partition_has_the_interval_of_the_posterior() -> None:
    """In closed form; 40,000 draws, ends within 5 standard errors of a quantile (false alarms below 1e-5)."""
    fit = bnp.MAPDP(normal).fit(X)
    found = describe(fit, pd.DataFrame(X, columns=["length"]), num_samples=40_000).profiles
    for k in range(2):
        own = X[fit.labels_ == k, 0]
        row = found.loc[("length", "", k)]
        np.testing.assert_allclose(row[["mean", "sd", "overall", "rows"]].tolist(), [own.mean(), own.std(ddof=1), X.mean(), 3])
        mean, sd = normal_posterior(own)
        error = np.sqrt(0.025 * 0.975 / 40_000) / norm.pdf(norm.ppf(0.025)) * sd
        np.testing.assert_allclose(row[ENDS].tolist(), mean + norm.ppf([0.025, 0.975]) * sd, atol=5 * error, rtol=0)


def test_parameters_are_averaged_over_the_clusters_of_the_rows(draws: Any) -> None:
    """In half of the draws, the third row is in the other cluster, whose number is another one as well.

    The quartiles of the mixture of the two posteriors, with 20,000 draws each; within 0.02 (8 standard errors).
    """
    draws(*[[0, 0, 0, 1, 1, 1], [4, 4, 2, 2, 2, 2]] * 20_000)
    fit = bnp.MAPDP(normal).fit(X)
    found = describe(fit, X, [0, 0, 0, 1, 1, 1], credible=0.5, num_samples=40_000).profiles
    (m0, s0), (m1, s1), (m2, s2) = (normal_posterior(X[rows, 0]) for rows in ([0, 1, 2], [0, 1], [2, 3, 4, 5]))
    first, second = norm(m0, s0), norm(2 / 3 * m1 + 1 / 3 * m2, np.hypot(2 / 3 * s1, 1 / 3 * s2))
    row = found.loc[("x0", "", 0)]
    for end, share in zip(ENDS, (0.25, 0.75), strict=True):
        quantile = brentq(lambda x, share=share: (first.cdf(x) + second.cdf(x)) / 2 - share, -9.0, 9.0)
        assert row[end] == pytest.approx(quantile, abs=0.02)
    np.testing.assert_allclose(row[["rows", "mean", "sd"]].tolist(), [3, 0.2, 0.2])  # of the rows, whatever the draws


def test_every_kind_of_column_has_the_interval_of_its_parameter() -> None:
    """Numbers, counts, bits and categories of a mixed table, but no logarithms, and no columns that were not used."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 60)
    frame = pd.DataFrame({"size": rng.normal(10.0 * z), "visits": rng.poisson(np.array([2.0, 30.0])[z])})
    frame["income"] = np.exp(rng.normal(3.0 * z))
    frame["member"], frame["paid"] = rng.random(120) < 0.3 + 0.4 * z, np.where(rng.random(120) < 0.8, "yes", "no")
    frame["site"] = rng.choice(list("abc"), 120, p=[0.6, 0.3, 0.1])
    frame["later"] = rng.normal(size=120)
    result = bnp.cluster(frame, kinds={"visits": "count", "income": "log"}, drop=["later"], methods="map-dp")
    assert result.n_clusters_ == 2
    found = result.profiles.profiles.sort_index()
    has_none = found.index.get_level_values("column").isin(["income", "later"])
    known = found[~has_none]
    assert found.loc[has_none, ENDS].isna().all(axis=None)
    assert ((known["low"] < known["mean"]) & (known["mean"] < known["high"])).all()
    # about ±1.96 standard errors, with a prior that says little beside 60 rows
    spread = known["sd"].where(known["sd"] > 0).astype(float)
    np.testing.assert_allclose((known["high"] - known["low"]).astype(float), 3.92 * spread / np.sqrt(known["rows"]), rtol=0.35)
    np.testing.assert_allclose(found.loc[("paid", "no"), "low"], 1.0 - found.loc[("paid", "yes"), "high"])


@pytest.mark.slow
def test_intervals_cover_the_parameter() -> None:
    """200 tables from the model: how often does the 95% interval have the mean parameter of the rows of a cluster?

    Of each table, one cluster of the estimate, drawn at random. An interval of 200 draws covers with a probability of 94% to
    95%. Between 180 and 198 of 200 for binomials of 0.94 and 0.95: false alarms below 0.5%.
    """
    rng = np.random.default_rng(0)
    kernel = bnp.PartitionGibbs(normal)
    mcmc = MCMC(kernel, num_warmup=100, num_samples=1000, num_chains=1, progress_bar=False, jit_model_args=True)
    covered = []
    for table in range(200):
        z = np.asarray(bnp.ChineseRestaurantProcess(1.0, 30).sample(jax.random.key(table)))
        parameters = rng.normal(1.0, 2.0, 30)[z]
        rows = rng.normal(parameters, 0.5)[:, None]
        mcmc.run(jax.random.key(1000 + table), rows)
        estimate = bnp.point_estimate(mcmc.get_samples(group_by_chain=True)["z"])
        k = rng.integers(estimate.max() + 1)
        row = describe(mcmc, rows, estimate).profiles.loc[("x0", "", k)]
        covered.append(row["low"] < parameters[estimate == k].mean() < row["high"])
        if table % 10 == 9:
            jax.clear_caches()  # every call compiles a program
    print(f"covered: {sum(covered)} of 200")
    assert 180 <= sum(covered) <= 198


def test_the_mean_of_a_few_rows_is_theirs_whatever_the_draws(draws: Any) -> None:
    """Two rows that are alone in the estimate and with four others in every draw: their parameter is elsewhere."""
    draws([0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1])
    rows = pd.DataFrame({"length": [0.0, 0.2, 4.0, 4.4, 9.0, 9.4], "seen": pd.NaT, "site": list("aabbcc")})
    rows["seen"] = pd.to_datetime(["2024-01-01", None, "2024-01-03", "2024-01-05", "2024-01-07", "2024-01-09"])
    found = describe(FIT, rows[["length"]], [0, 0, 1, 1, 2, 2], others=rows[["seen", "site"]]).profiles
    numbers = found.loc[("length", "", 1)]
    np.testing.assert_allclose(numbers[["rows", "mean", "sd"]].tolist(), [2, 4.2, np.std([4.0, 4.4], ddof=1)])
    assert (numbers[ENDS] > 4.4).all()
    dates = found.loc[("seen", "", 1)]
    assert dates["mean"] == pd.Timestamp("2024-01-04") and pd.isna(dates["low"])
    assert dates["sd"] == pytest.approx(np.sqrt(2.0)) and found.loc[("seen", "", 0), "rows"] == 1
    assert found.loc[("site", "b", 1), "mean"] == 1.0 and pd.isna(found.loc[("site", "b", 1), "high"])
    assert list(found.columns) == ["rows", "mean", "sd", "overall", *ENDS]
    empty = describe(FIT, rows[["length"]], [0, 1, 2, 2, 2, 2], others=rows[["seen"]]).profiles.loc[("seen", "", 1)]
    assert empty["rows"] == 0 and pd.isna(empty["mean"]) and pd.isna(empty["sd"])


def test_any_whole_numbers_name_the_clusters(draws: Any) -> None:
    """Labels with gaps or below zero, as of a method that calls outliers −1: the same numbers under these labels."""
    draws([0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 2])
    others = pd.DataFrame({"site": list("aabbcc")})
    plain = describe(FIT, X, [0, 0, 1, 1, 2, 2], others=others)
    named = describe(FIT, X, [-1, -1, 7, 7, 40, 40], others=others)
    assert named.profiles.index.get_level_values("cluster").unique().tolist() == [-1, 7, 40]
    np.testing.assert_array_equal(named.profiles, plain.profiles)
    pd.testing.assert_frame_equal(named.association, plain.association)


def test_effects_against_other_implementations(draws: Any) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    rows = rng.normal(size=(90, 1)) + labels[:, None]
    site = np.where(rng.random(90) < 0.6, labels, rng.integers(0, 4, 90))
    fit = bnp.MAPDP().fit(rows)
    draws(list(labels))
    found = describe(fit, rows, labels, others=pd.DataFrame({"site": [f"s{s}" for s in site]})).association
    statistic = f_oneway(*(rows[labels == k, 0] for k in range(3))).statistic
    eta = 2 * statistic / (2 * statistic + 87)
    np.testing.assert_allclose(found.loc["x0", "effect"], 1 - (1 - eta) * 89 / 87, rtol=1e-10)
    v = association(pd.crosstab(labels, site), method="cramer")
    phi = v**2 * 2  # min(rows, columns) − 1
    corrected = max(phi - 2 * 3 / 89, 0.0) / min(2 - 4 / 89, 3 - 9 / 89)
    np.testing.assert_allclose(found.loc["site", "effect"], np.sqrt(corrected), rtol=1e-10)
    assert found["used"].tolist() == [name == "x0" for name in found.index]


def test_unrelated_columns_have_no_effect_and_determined_ones_have_all(draws: Any) -> None:
    """Mean corrected effects of 200 unrelated columns of numbers: within five standard errors of the truncated mean, 0.01."""
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], 40)
    fit = bnp.MAPDP().fit(labels[:, None] * 10.0 + rng.normal(size=(120, 1)))
    draws(list(labels))
    others = pd.DataFrame(rng.normal(size=(120, 50)), columns=[f"noise {j}" for j in range(50)])
    others["same"] = np.array(["a", "b", "c"])[labels]
    others["date"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(labels * 30, unit="D")
    others.loc[5, "date"] = pd.NaT
    found = describe(fit, np.zeros((120, 1)) + labels[:, None], others=others)
    effects = found.association["effect"]
    assert effects.filter(like="noise").mean() < 0.02
    np.testing.assert_allclose(effects[["same", "date"]], 1.0)
    profiles = found.profiles.sort_index()
    dates = profiles.loc["date"]
    assert dates["mean"].tolist() == [pd.Timestamp("2024-01-01") + pd.Timedelta(days=30 * k) for k in range(3)]
    assert dates["rows"].tolist() == [39, 40, 40]
    shares = profiles.loc["same", "mean"].unstack()
    np.testing.assert_array_equal(shares, np.eye(3))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 12345.678, -1e9 / 3])
def test_a_constant_column_has_no_effect(value: float, draws: Any) -> None:
    """The mean of equal numbers is often another number, by rounding, whose difference from them is no effect."""
    for n in (7, 10, 13, 23, 101):
        labels = np.arange(n) % 3
        draws(list(labels), list(np.minimum(labels, 1)))
        others = pd.DataFrame({"same": np.full(n, value), "day": pd.Timestamp("2024-01-01 10:11:12")})
        rows = np.arange(n)[:, None] / 7
        found = describe(bnp.MAPDP(n_init=1).fit(rows), rows, labels, others=others)
        assert (found.association.loc[["same", "day"], ["effect", "low", "high"]] == 0.0).all(axis=None)
        profiles = found.profiles.sort_index()
        assert (profiles.loc["same"][["mean", "overall"]] == value).all(axis=None)
        spread = cluster_profiles.deviations(profiles)
        assert (spread.loc[["same", "day"], "spread"] == 0.0).all() and spread.loc["same", "deviation"].isna().all()


def test_levels_of_an_ordered_type_are_in_its_order() -> None:
    kind = pd.CategoricalDtype([3, 1, 2, 7], ordered=True)
    others = pd.DataFrame({"t": pd.Series([1, 2, None, 3, 3, 2], dtype=kind), "u": list("babbaa")})
    found = describe(FIT, X, others=others).profiles
    levels = [(column, level) for column, level, cluster in found.index if cluster == 0][1:]
    assert [(column, level[0]) for column, level in levels] == [("t", "3"), ("t", "1"), ("t", "2"), ("u", "a"), ("u", "b")]


def test_chains_and_files(tmp_path: Path) -> None:
    model = lambda X: bnp.models.dpm(X, bnp.NormalInverseWishart.from_data(X, learn=False), 1.0)  # noqa: E731
    kernel = bnp.PartitionGibbs(model)
    mcmc = MCMC(kernel, num_warmup=50, num_samples=100, num_chains=2, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    found = bnp.describe(mcmc, X)
    assert (found.profiles["low"] < found.profiles["high"]).all()
    for table in found:
        table.to_csv(tmp_path / "table.csv")
        assert len(pd.read_csv(tmp_path / "table.csv")) == len(table)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (pd.DataFrame({"a": [1, 2]}), "one row for each of the 6 rows"),
        (pd.DataFrame({"x0": range(6)}), "X has too: x0"),
        (pd.DataFrame({"a": [np.nan] * 6}), "all values are missing in column 'a'"),
        (pd.DataFrame({"a": [0.0, 1.0, -np.inf, 2.0, 3.0, np.inf]}), "column 'a' of others is infinite in row 2"),
        (pd.DataFrame(np.zeros((6, 3)), columns=["a", "b", "a"]), "several columns of the name 'a'"),
    ],
)
def test_bad_input(others: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        describe(FIT, X, others=others)


def test_rows_in_another_order_are_refused() -> None:
    names, site = [*"fedcb", 1], pd.DataFrame({"site": [*"aabbbb"]})
    table = pd.DataFrame(X, index=names, columns=[f"x{i}" for i in range(X.shape[1])])
    fit = bnp.MAPDP().fit(table)
    expected = describe(fit, table, others=site)  # another index: by position
    pd.testing.assert_frame_equal(describe(fit, table, others=site.set_axis(names)).profiles, expected.profiles)
    with pytest.raises(ValueError, match=r"in another order, first in row 0 \(1 instead of 'f'\): pass others.loc\[X.index\]"):
        describe(fit, table, others=site.set_axis(names[::-1]))


def test_many_texts_and_impossible_probabilities_are_refused() -> None:
    rows = np.arange(60.0)[:, None]
    fit = bnp.MAPDP().fit(rows)
    with pytest.raises(ValueError, match="60 distinct texts, such as 'name 0'"):
        describe(fit, rows, others=pd.DataFrame({"who": [f"name {i}" for i in range(60)]}))
    with pytest.raises(ValueError, match="between 0 and 1"):
        describe(FIT, X, credible=95)
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1, but it is 0"):
        describe(FIT, X, num_samples=0)
    with pytest.raises(TypeError, match="others must be a DataFrame, but it is of the type ndarray"):
        describe(FIT, X, others=X)  # type: ignore[arg-type]

"""Descriptions of clusters: means and intervals by hand, effects against other implementations, and bad input."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import f_oneway
from scipy.stats.contingency import association

import bnp_hier as bnp
from bnp_hier.posterior import cluster_profiles
from bnp_hier.posterior.cluster_profiles import describe

X = np.array([[0.0], [0.2], [0.4], [9.0], [9.2], [9.4]])
FIT = bnp.MAPDP().fit(X)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let `describe` see given draws instead of those of the fit."""

    def given(*labels: list[int]) -> None:
        found = SimpleNamespace(labels=np.array(labels)[None])
        monkeypatch.setattr(cluster_profiles, "draws_of", lambda *_, **__: found)

    return given


OVER_DRAWS = ["mean_over_draws", "low_over_draws", "high_over_draws"]


def test_one_partition_has_plain_means_and_no_interval() -> None:
    found = describe(FIT, pd.DataFrame(X, columns=["length"])).profiles
    for k in range(2):
        own = X[FIT.labels_ == k, 0]
        row = found.loc[("length", "", k)]
        np.testing.assert_allclose(row[["mean", *OVER_DRAWS]].tolist(), own.mean())
        np.testing.assert_allclose([row["sd"], row["overall"], row["rows"]], [own.std(ddof=1), X.mean(), len(own)])


def test_means_over_draws_by_hand(draws: Any) -> None:
    """In the second draw, the third row is in the other cluster, whose number is another one as well."""
    draws([0, 0, 0, 1, 1, 1], [4, 4, 2, 2, 2, 2])
    found = describe(FIT, X, [0, 0, 0, 1, 1, 1], credible=0.5).profiles
    second = np.array([2 / 3 * 0.1 + 1 / 3 * 7.0, 7.0])  # a random member of each cluster of the estimate
    for k, first in enumerate([0.2, 9.2]):
        row, both = found.loc[("x0", "", k)], np.array([first, second[k]])
        np.testing.assert_allclose(row[OVER_DRAWS].tolist(), [both.mean(), *np.quantile(both, [0.25, 0.75])])
        np.testing.assert_allclose(row[["rows", "mean", "sd"]].tolist(), [3, first, 0.2])  # of the rows, whatever the draws


def test_the_mean_of_a_few_rows_is_theirs_whatever_the_draws(draws: Any) -> None:
    """Two rows that are alone in the estimate and with four others in every draw: the means over the draws are elsewhere."""
    draws([0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1])
    rows = pd.DataFrame({"length": [0.0, 0.2, 4.0, 4.4, 9.0, 9.4], "seen": pd.NaT, "site": list("aabbcc")})
    rows["seen"] = pd.to_datetime(["2024-01-01", None, "2024-01-03", "2024-01-05", "2024-01-07", "2024-01-09"])
    found = describe(FIT, rows[["length"]], [0, 0, 1, 1, 2, 2], others=rows[["seen", "site"]]).profiles
    numbers = found.loc[("length", "", 1)]
    np.testing.assert_allclose(numbers[["rows", "mean", "sd"]].tolist(), [2, 4.2, np.std([4.0, 4.4], ddof=1)])
    np.testing.assert_allclose(numbers[OVER_DRAWS].tolist(), 6.7)
    dates = found.loc[("seen", "", 1)]
    assert dates["mean"] == pd.Timestamp("2024-01-04") and dates["mean_over_draws"] == pd.Timestamp("2024-01-06")
    assert dates["sd"] == pytest.approx(np.sqrt(2.0)) and found.loc[("seen", "", 0), "rows"] == 1
    assert found.loc[("site", "b", 1), "mean"] == 1.0 and found.loc[("site", "b", 1), "mean_over_draws"] == 0.5
    assert list(found.columns) == ["rows", "mean", "sd", "overall", *OVER_DRAWS]
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
        found = describe(FIT, np.arange(n)[:, None] / 7, labels, others=others)
        assert (found.association.loc[["same", "day"], ["effect", "low", "high"]] == 0.0).all(axis=None)
        profiles = found.profiles.sort_index()
        assert (profiles.loc["same"][["mean", "overall", *OVER_DRAWS]] == value).all(axis=None)
        spread = cluster_profiles.deviations(profiles)
        assert (spread.loc[["same", "day"], "spread"] == 0.0).all() and spread.loc["same", "deviation"].isna().all()


def test_levels_of_an_ordered_type_are_in_its_order() -> None:
    kind = pd.CategoricalDtype([3, 1, 2, 7], ordered=True)
    others = pd.DataFrame({"t": pd.Series([1, 2, None, 3, 3, 2], dtype=kind), "u": list("babbaa")})
    found = describe(FIT, X, others=others).profiles
    levels = [(column, level) for column, level, cluster in found.index if cluster == 0][1:]
    assert [(column, level[0]) for column, level in levels] == [("t", "3"), ("t", "1"), ("t", "2"), ("u", "a"), ("u", "b")]


def test_chains_and_files(tmp_path: Path) -> None:
    import jax
    from numpyro.infer import MCMC

    model = lambda X: bnp.models.dpm(X, bnp.NormalInverseWishart.from_data(X, learn=False), 1.0)  # noqa: E731
    kernel = bnp.PartitionGibbs(model)
    mcmc = MCMC(kernel, num_warmup=50, num_samples=100, num_chains=2, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    found = bnp.describe(mcmc, X)
    assert (found.profiles["low_over_draws"] <= found.profiles["mean_over_draws"]).all()
    assert (found.profiles["mean_over_draws"] <= found.profiles["high_over_draws"]).all()
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

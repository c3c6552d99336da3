"""Plots of the content of clusters: what is written, coloured and ordered."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier import plots
from bnp_hier.posterior.cluster_profiles import ClusterProfiles, column_of, describe_columns, deviations

RNG = np.random.default_rng(0)
LABELS = np.repeat([0, 1], 15)
X = pd.DataFrame({"flat": RNG.normal(size=30), "steep": RNG.normal(size=30) + 8.0 * LABELS})
OTHERS = pd.DataFrame(
    {
        "site": np.array(["north", "south"])[LABELS],
        "seen": pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(30), unit="D"),
    }
)


@pytest.fixture(scope="module")
def found() -> ClusterProfiles:
    return bnp.describe(bnp.MAPDP(n_init=1).fit(X.to_numpy()), X, LABELS, others=OTHERS)


def test_deviations_are_in_standard_deviations_of_all_rows(found: ClusterProfiles) -> None:
    table = deviations(found.profiles)
    for name in X:
        whole = X[name]
        # the standard deviation over all rows, but for n - 1 within the clusters
        assert table.loc[(name, "", 0), "spread"] == pytest.approx(whole.std(ddof=0), rel=0.04)
        wanted = (whole[LABELS == 1].mean() - whole.mean()) / whole.std(ddof=0)
        assert table.loc[(name, "", 1), "deviation"] == pytest.approx(wanted, rel=0.05, abs=0.02)
    assert table.loc[("seen", "", 1), "deviation"] == pytest.approx(0.87, abs=0.05)  # ±7.5 days of 8.66


def test_profiles_have_the_strongest_columns_first_and_their_deviations_as_colours(found: ClusterProfiles) -> None:
    axes = plots.cluster_profiles(found)
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["site = north", "site = south", "steep", "seen", "flat"] and names[-1] == "flat"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["cluster 0\n15 rows", "cluster 1\n15 rows"]
    shown = np.asarray(axes.images[0].get_array())
    np.testing.assert_allclose(shown[2], deviations(found.profiles.sort_index()).loc[("steep", ""), "deviation"])
    styles = [text.get_fontstyle() for text in axes.get_yticklabels()]
    assert styles == ["italic", "italic", "normal", "italic", "normal"]
    assert axes.texts[0].get_text().startswith("100%") and axes.texts[6].get_text().startswith("2020-01-08")


def test_cells_have_the_statistics_of_the_rows_and_then_the_interval_of_the_parameter(found: ClusterProfiles) -> None:
    own, row = X["steep"][LABELS == 0], found.profiles.loc[("steep", "", 0)]
    axes = plots.cluster_profiles(found)
    assert axes.texts[4].get_text() == f"{own.mean():.3f} ± {own.std():.3f}\n({row['low']:.3f} to {row['high']:.3f})"
    assert axes.texts[0].get_text() == "100%"  # a column that the model does not have
    assert "interval of the mean parameter" in axes.get_xlabel()
    plain = plots.cluster_profiles(found._replace(profiles=found.profiles.assign(low=np.nan, high=np.nan)))
    assert plain.get_xlabel() == "mean ± standard deviation of the rows, or share"
    shown, before = (np.asarray(each.images[0].get_array()) for each in (axes, plain))
    np.testing.assert_allclose(shown, before)  # colours are those of the rows


def test_cells_are_as_wide_as_dates_need(found: ClusterProfiles) -> None:
    moved = found.profiles.copy()
    moved[["low", "high"]] = moved[["low", "high"]].astype(object)
    moved.loc[("seen", "", 0), ["low", "high"]] = [pd.Timestamp("2020-01-02"), pd.Timestamp("2020-01-12")]
    axes = plots.cluster_profiles(found._replace(profiles=moved))
    axes.figure.draw_without_rendering()
    left, right = axes.transData.transform([[-0.5, 0.0], [0.5, 0.0]])[:, 0]
    widths = [text.get_window_extent().width for text in axes.texts]
    assert max(widths) < right - left and any("(2020-01-02 to 2020-01-12)" in text.get_text() for text in axes.texts)


def test_only_the_largest_clusters_and_strongest_columns_are_shown() -> None:
    labels = np.repeat(np.arange(14), np.arange(2, 16))
    wide = pd.DataFrame(RNG.normal(size=(len(labels), 30)), columns=[f"c{j}" for j in range(30)])
    columns = [column_of(name, wide[name], True) for name in wide]
    many = describe_columns(bnp.MAPDP(n_init=1).fit(wide[["c0"]].to_numpy()), wide[["c0"]], labels, columns, 0.95, 10)
    axes = plots.cluster_profiles(many)
    assert np.asarray(axes.images[0].get_array()).shape == (25, 10)
    assert axes.get_xticklabels()[0].get_text() == "cluster 4\n6 rows"
    assert len(plots.associations(many).get_yticklabels()) == 25


def test_associations_have_intervals_and_hollow_dots(found: ClusterProfiles) -> None:
    table = found.association.assign(low=found.association["effect"] * 0.5)
    axes = plots.associations(found._replace(association=table))
    segments = np.array(axes.collections[0].get_segments())
    np.testing.assert_allclose(segments[:, 0, 0], table["low"])
    np.testing.assert_allclose(segments[:, 1, 0], table["high"])
    used, other = axes.lines
    assert len(used.get_xdata()) == 2 and len(other.get_xdata()) == 2
    assert other.get_markerfacecolor() == "white" and isinstance(used.get_markerfacecolor(), np.ndarray)
    axes.figure.draw_without_rendering()


def test_columns_of_zeros_and_ones_are_shares() -> None:
    bits = pd.DataFrame({"bit": LABELS.astype(float), "steep": X["steep"]})
    found = bnp.describe(bnp.MAPDP(n_init=1).fit(X.to_numpy()), X, LABELS, others=bits[["bit"]])
    assert found.association["kind"].to_dict() == {"bit": "binary", "steep": "number", "flat": "number"}
    assert [text.get_text().split()[0] for text in plots.cluster_profiles(found).texts[:2]] == ["0%", "100%"]


def test_of_many_levels_those_that_differ_most_are_shown() -> None:
    level = np.array([f"level {k}" for k in range(10)])[np.arange(30) % 8]
    level[:3], level[27:] = "level 8", "level 9"
    found = bnp.describe(bnp.MAPDP(n_init=1).fit(X.to_numpy()), X, LABELS, others=pd.DataFrame({"level": level}))
    names = [text.get_text() for text in plots.cluster_profiles(found).get_yticklabels()]
    assert len(names) == 7 and {"level = level 8", "level = level 9", "steep", "flat"} <= set(names)


@pytest.mark.slow
def test_sizes_of_clusters_count_the_rows_without_a_value() -> None:
    """Also if no column is complete."""
    gaps = X.where([[i % 3 != 0, i % 3 != 1] for i in range(len(X))])
    found = bnp.describe(bnp.MAPDP(n_init=1).fit(gaps), gaps, LABELS + 5)
    assert found.profiles["rows"].max() == 10 and found.profiles.attrs["sizes"] == {5: 15, 6: 15}
    ticks = [text.get_text() for text in plots.cluster_profiles(found).get_xticklabels()]
    assert ticks == ["cluster 5\n15 rows", "cluster 6\n15 rows"]

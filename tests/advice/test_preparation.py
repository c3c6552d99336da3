"""Tables as they come: what is left out, what columns are taken for, and that notes say so."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bnp_hier as bnp
from bnp_hier.advice.column_kinds import infer_column_kinds
from bnp_hier.advice.preparation import dependent_columns, empty_rows, incomplete_rows, prepared
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.tabular import RawTable, Roles

N = 120


def data_of(frame: pd.DataFrame, **options: object) -> Dataset:
    found = prepared(RawTable.of_frame(frame, "X"), Roles(**options)).data
    assert found is not None
    return found


def measured(seed: int = 0, columns: str = "ab") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.normal(size=(N, len(columns))), columns=list(columns))


RNG = np.random.default_rng(0)
LEFT_OUT = {
    "ID": (RNG.permutation(9000)[:N], "an identifier"),
    "zip": (RNG.choice(np.arange(10_000, 10_060), N), "an identifier"),
    "year": (RNG.integers(2007, 2010, N), "years from 2007 to 2009"),
    "day": (20240101 + RNG.integers(0, 28, N), "dates from"),
    "signup": (pd.Timestamp("2021-01-01") + pd.to_timedelta(RNG.integers(0, 999, N), "D"), "dates or times"),
    "comment": ([f"note {i}" for i in range(N)], "a different text in almost every row"),
    "country": (["DE"] * N, "'DE' in every row"),
    "rate": ([7.0] * N, "7 in every row"),
    "flag": ([0] * N, "0 in every row"),
    "nothing": ([np.nan] * N, "all values are missing"),
    "class": (np.arange(N) % 3, "3 known classes"),
    "target": (np.array(["sick", "well"])[np.arange(N) % 2], "2 known classes"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_columns_that_are_left_out(name: str) -> None:
    values, reason = LEFT_OUT[name]
    data = data_of(measured().assign(**{name: values}))
    assert data.feature_names == ("a", "b") and name in data.others
    (note,) = [note for note in data.notes if note.startswith("left out")]
    assert reason in note and repr(name) in note and "kinds=" in note


def test_a_column_whose_kind_is_given_is_kept() -> None:
    frame = measured().assign(**{name: LEFT_OUT[name][0] for name in ("class", "ID", "year")})
    data = data_of(frame, kinds={"class": "category", "ID": "continuous", "year": "count"})
    assert set(data.source_columns) == {"a", "b", "class", "ID", "year"} and data.notes == ()


def test_a_column_of_numbers_with_a_text_is_refused_or_shown() -> None:
    frame = measured().assign(size=[*map(str, range(N - 1)), "large"], name=LEFT_OUT["comment"][0])
    with pytest.raises(ValueError, match="column 'size': found the text 'large', expected a number"):
        data_of(frame)
    part = prepared(RawTable.of_frame(frame, "X"), refuse=False)
    assert {each.name for each in part.unusable} == {"size", "name"}


def test_a_column_of_a_few_texts_and_numbers_is_a_category() -> None:
    cells = np.array(["3", "4", "6", "rotary"])[np.arange(N) % 4]
    data = data_of(measured().assign(cylinders=cells, model=[str(i) if i % 9 == 0 else f"m{i}" for i in range(N)]))
    assert data.levels == {"cylinders": ("3", "4", "6", "rotary")} and "model" in data.others
    assert any("'cylinders'" in note and "taken as categories" in note for note in data.notes)


# ---- columns that belong together -------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    items=st.integers(3, 12),
    codes=st.tuples(st.sampled_from([0, 1]), st.integers(3, 10)),
    missing=st.booleans(),
)
def test_items_with_the_same_codes_are_all_categories(seed: int, items: int, codes: tuple[int, int], missing: bool) -> None:
    """Whatever the distribution of each: some look like counts and others like grades when looked at alone."""
    rng, (low, high) = np.random.default_rng(seed), codes
    n = 20 * (high - low + 1)
    shares = rng.dirichlet(np.ones(high - low + 1), items)
    shares = 0.5 * shares + 0.5 / (high - low + 1)
    X = np.column_stack([rng.choice(np.arange(low, high + 1), n, p=share) for share in shares]).astype(float)
    X[0], X[1] = low, high
    X = np.where((rng.random(X.shape) < 0.2) & missing & (np.arange(n) > 1)[:, None], np.nan, X)
    frame = pd.DataFrame(X, columns=[f"q{j}" for j in range(items)]).assign(height=rng.normal(size=n))
    data = data_of(frame)
    assert set(data.levels) == set(frame.columns) - {"height"}
    assert any("taken as categories" in note and "'q0'" in note for note in data.notes)


def test_counts_of_any_size_are_taken_alike() -> None:
    rng = np.random.default_rng(1)
    X = rng.poisson(np.geomspace(0.5, 200.0, 12), (200, 12)).astype(float)
    alone = {infer_column_kinds(X[:, [j]])[0].kind for j in range(12)}
    together = {kind.kind for kind in infer_column_kinds(X)}
    assert alone == {"count", "continuous"} and together == {"continuous"}
    given_kind = infer_column_kinds(X, kinds={"x0": "count"})
    assert given_kind[0].kind == "count" and given_kind[1].kind == "continuous"
    assert {kind.kind for kind in infer_column_kinds(X[:, :4])} == {"count"}


def test_measurements_are_not_codes() -> None:
    rng = np.random.default_rng(2)
    iris = bnp.datasets.load("iris").X
    frame = pd.DataFrame(np.column_stack([iris, rng.poisson(2.0, 150), rng.integers(18, 90, 150)]), columns=list("abcdef"))
    data = data_of(frame)
    assert data.feature_names == tuple("abcdef") and data.notes == ()


# ---- linear dependence ------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**16), d=st.integers(2, 6), copies=st.integers(1, 3), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_columns_that_follow_from_others_are_found(seed: int, d: int, copies: int, scale: float) -> None:
    """As many as the rank lacks, and the others are independent."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, d)) * scale + 5 * scale
    whole = np.column_stack([X, X @ rng.normal(size=(d, copies)) + 3.0 * scale])
    order = rng.permutation(d + copies)
    found = dependent_columns(whole[:, order])
    assert len(found) == copies
    kept = np.delete(whole[:, order], found, axis=1)
    assert np.linalg.matrix_rank(kept - kept.mean(0)) == d
    assert dependent_columns(X) == () and dependent_columns(whole[: d + copies]) == ()


def test_other_units_totals_and_compositions_are_left_out_with_a_line() -> None:
    frame = measured()
    frame["fahrenheit"] = 32 + 1.8 * frame["a"]
    frame["total"] = frame["a"] + frame["b"]
    frame["mm"] = np.round(100 * frame["b"])
    frame["inch"] = np.round(100 * frame["b"] / 25.4, 2)
    data = data_of(frame)
    assert data.feature_names == ("a", "b") or set(data.feature_names) == {"a", "b", "mm"}
    assert any("'fahrenheit' (it follows from other columns)" in note and "'total'" in note for note in data.notes)
    shares = np.random.default_rng(0).dirichlet(np.ones(4), N)
    parts = data_of(pd.DataFrame(shares, columns=list("wxyz")))
    assert parts.feature_names == ("w", "x", "y") and "the columns sum to 1 in every row, a composition" in parts.notes[0]


def test_correlated_grades_are_not_taken_for_copies() -> None:
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(300, 1)) + 0.2 * rng.normal(size=(300, 4)) + 5)
    assert dependent_columns(X) == ()


# ---- rows and cells ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absurd", [1e12, -1e100, 1e300])
def test_absurd_cells_count_as_missing(absurd: float) -> None:
    frame = measured()
    frame.loc[7, "b"] = absurd
    data = data_of(frame)
    assert np.isnan(data.X[7, 1]) and np.isnan(data.X).sum() == 1
    assert any("column 'b'" in note and "in row 7" in note and f"{absurd:g}" in note for note in data.notes)
    assert not np.isnan(data_of(frame, kinds={"b": "continuous"}).X).any()


def test_far_rows_and_rare_values_are_no_errors() -> None:
    frame = measured()
    frame.loc[:3, "a"] = 300.0
    frame["rarely"] = np.where(np.arange(N) == 5, 3.5, 0.0)
    assert not np.isnan(data_of(frame).X).any()


def test_rows_without_a_value() -> None:
    frame = measured().assign(colour=np.array(["red", "green", "blue"])[np.arange(N) % 3])
    frame.loc[[3, 5]] = np.nan
    frame.loc[7, ["a", "b"]] = np.nan
    data = data_of(frame)
    assert list(np.flatnonzero(empty_rows(data))) == [3, 5] and list(np.flatnonzero(incomplete_rows(data))) == [3, 5, 7]


@pytest.mark.parametrize("header", ["", "who"])
def test_a_first_column_of_names_names_the_rows(tmp_path, header):
    rows = [f"r{i},{value:.3f}" for i, value in enumerate(np.random.default_rng(0).normal(size=30))]
    path = tmp_path / "names.csv"
    path.write_text("\n".join([f"{header},a", *rows]))
    data = prepared(RawTable.read(path, with_index=True)).data
    assert data is not None and data.feature_names == ("a",) and data.item_names[:2] == ("r0", "r1")
    assert data.items == (header or "index") and any(repr(data.items) in note for note in data.notes)

"""Data of unusual kinds: masked cells and missing values become NaN, numbers of other kinds stay, all else is refused."""

from __future__ import annotations

import datetime
import decimal
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.models import bhmc, dpm
from bnp_hier.utils.arrays import as_matrix

NAN = np.nan
MASKED = np.ma.array([[1.0, 77.0], [3.0, 4.0], [5.0, 6.5]], mask=[[0, 1], [0, 0], [0, 0]])
HOLED = [[1.0, NAN], [3.0, 4.0], [5.0, 6.5]]
COMPONENT = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0)
KNOWN = bnp.NormalKnownCovariance(np.zeros(2), np.eye(2), np.eye(2))
MODEL = partial(dpm, component=COMPONENT)

READ: dict[str, tuple[Any, Any]] = {
    "masked": (MASKED, HOLED),
    "masked whole numbers": (np.ma.array([[1, 77], [3, 4]], mask=[[0, 1], [0, 0]]), [[1, NAN], [3, 4]]),
    "masked objects": (np.ma.array([[1, 77], [3, 4]], mask=[[0, 1], [0, 0]], dtype=object), [[1, NAN], [3, 4]]),
    "nothing masked": (np.ma.array([[1.0, 2.0], [3.0, 4.0]]), [[1, 2], [3, 4]]),
    "a list of masked rows": (list(MASKED), HOLED),
    "None": (np.array([[None, 1.0], [2.0, 3.0]], dtype=object), [[NAN, 1], [2, 3]]),
    "pandas' NA in an array": (np.array([[pd.NA, 1.0], [2.0, 3.0]], dtype=object), [[NAN, 1], [2, 3]]),
    "Int64": (pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1.0, 2.0]}), [[1, 1], [NAN, 2]]),
    "Float64": (pd.DataFrame({"a": pd.array([1.5, None], dtype="Float64"), "b": [1.0, 2.0]}), [[1.5, 1], [NAN, 2]]),
    "boolean": (pd.DataFrame({"a": pd.array([True, None], dtype="boolean"), "b": [1.0, 2.0]}), [[1, 1], [NAN, 2]]),
    "category of numbers": (pd.DataFrame({"a": pd.Categorical([1, 2]), "b": [1.0, 2.0]}), [[1, 1], [2, 2]]),
    "numbers as text": (np.array([["1", "2"], ["3", "nan"]]), [[1, 2], [3, NAN]]),
    "bool": (np.array([[True, False], [False, True]]), [[1, 0], [0, 1]]),
    "polars": (pl.DataFrame({"a": [1, None], "b": [True, False]}), [[1, 1], [NAN, 0]]),
    "polars decimals": (pl.DataFrame({"a": [decimal.Decimal("1.5"), decimal.Decimal(2)], "b": [1.0, 2.0]}), [[1.5, 1], [2, 2]]),
}

DAY = datetime.date(2020, 1, 1)
TIMES: dict[str, tuple[Any, str]] = {
    "datetime64": (
        np.array([["2020-01-01"], ["2021-01-01"]], dtype="datetime64[D]"),
        "X contains dates or times; expected",
    ),
    "timedelta64": (np.array([[1], [2]], dtype="timedelta64[s]"), "X contains durations; expected numbers"),
    "masked datetime64": (np.ma.array([["2020"], ["2021"]], dtype="datetime64[D]", mask=[[1], [0]]), "dates or times"),
    "one of an array": (
        np.array([[1.0, np.datetime64("2020")], [2.0, 3.0]], dtype=object),
        "times at row 0, column 1",
    ),
    "duration of an array": (np.array([[1.0, 2.0], [np.timedelta64(1, "D"), 3]], dtype=object), "durations at row 1, column 0"),
    "a list": ([[np.datetime64("2020"), 1.0], [np.datetime64("2021"), 1.0]], "dates or times at row 0, column 0"),
    "NaT": (np.array([[pd.NaT, 1.0], [2.0, 3.0]], dtype=object), "dates or times at row 0"),
    "DataFrame": (pd.DataFrame({"b": [1.0, 2.0], "a": pd.to_datetime(["2020", "2021"])}), "dates or times in column 'a'"),
    "time zone": (pd.DataFrame({"a": pd.to_datetime(["2020", "2021"], utc=True)}), "dates or times in column 'a'"),
    "periods": (pd.DataFrame({"a": pd.period_range("2020", periods=2, freq="D")}), "dates or times in column 'a' at row 0"),
    "differences": (pd.DataFrame({"a": pd.to_timedelta([1, 2], unit="s"), "b": [1.0, 2.0]}), "durations in column 'a'"),
    "polars": (pl.DataFrame({"b": [1.0, 2.0], "a": [DAY, DAY]}), "dates or times in column 'a'"),
    "polars durations": (pl.DataFrame({"a": [datetime.timedelta(1), datetime.timedelta(2)]}), "durations in column 'a'"),
}

COMPLEX: dict[str, Any] = {
    "array": np.array([[1.0 + 2.0j, 2.0], [3.0, 4.0]]),
    "no imaginary part": np.array([[1.0 + 0.0j, 2.0], [3.0, 4.0]]),
    "objects": np.array([[np.complex128(1.0 + 2.0j), 2.0], [3.0, 4.0]], dtype=object),
    "list": [[1.0 + 2.0j, 2.0], [3.0, 4.0]],
    "DataFrame": pd.DataFrame({"a": [1.0 + 2.0j, 2.0], "b": [1.0, 2.0]}),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read(name: str) -> None:
    """By everything that wants a matrix, and by estimators; the data themselves stay."""
    given, expected = READ[name]
    np.testing.assert_array_equal(as_matrix(given), expected)
    fit = bnp.DPMeans(n_clusters=1)
    if np.isnan(np.asarray(expected)).any():
        with pytest.raises(ValueError, match=r"missing value \(NaN\) at row"):
            fit.fit(given)
    else:
        np.testing.assert_allclose(fit.fit(given).cluster_centers_, [np.mean(expected, axis=0)])
    if isinstance(given, np.ma.MaskedArray):
        assert given.data[0, 1] in (77, 2.0)


@pytest.mark.parametrize("name", TIMES)
def test_dates_and_times_are_no_numbers(name: str) -> None:
    given, match = TIMES[name]
    with pytest.raises(TypeError, match=match):
        as_matrix(given)
    with pytest.raises(TypeError, match=match):
        bnp.DPMeans(n_clusters=1).fit(given)


@pytest.mark.parametrize("name", COMPLEX)
def test_imaginary_parts_are_not_lost(name: str) -> None:
    """Estimators raise what scikit-learn's checks ask for."""
    with pytest.raises(TypeError, match="complex numbers.*expected real numbers"):
        as_matrix(COMPLEX[name])
    with pytest.raises(ValueError, match="Complex data not supported"):
        bnp.DPMeans(n_clusters=1).fit(COMPLEX[name])


def test_masked_cells_are_missing_values() -> None:
    """For families that have them, in priors read off data, densities, fits and new rows; others say where they are."""
    holed = np.array(HOLED)
    for read, same in zip(
        jax.tree.leaves(bnp.NormalInverseGamma.from_data(MASKED, learn=False)),
        jax.tree.leaves(bnp.NormalInverseGamma.from_data(holed, learn=False)),
        strict=True,
    ):
        np.testing.assert_array_equal(read, same)
    assert COMPONENT.log_evidence(MASKED) == COMPONENT.log_evidence(holed)
    assert bnp.evidence.exact(MODEL, MASKED) == bnp.evidence.exact(MODEL, holed)
    fits = [bnp.MAPDP(MODEL, n_init=1).fit(rows) for rows in (MASKED, holed)]
    assert fits[0].log_joint_ == fits[1].log_joint_
    np.testing.assert_array_equal(fits[0].score_samples(MASKED), fits[1].score_samples(holed))
    with pytest.raises(ValueError, match=r"missing value \(NaN\) at row 0, column 1"):
        bnp.NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2)).log_evidence(MASKED)


@pytest.mark.parametrize(
    "kernel",
    [bnp.PartitionGibbs(MODEL), bnp.ParallelSplitMerge(MODEL), bnp.BHMCGibbs(partial(bhmc, depth=2, component=KNOWN))],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_refuse_what_a_model_would_misread(kernel: Any) -> None:
    mcmc = MCMC(kernel, num_warmup=1, num_samples=1, progress_bar=False)
    with pytest.raises(TypeError, match=r'the observed site "X" has masked cells, .*expected X\.filled\(np\.nan\)'):
        mcmc.run(jax.random.key(0), MASKED)
    with pytest.raises(TypeError, match='the observed site "X" contains complex numbers'):
        mcmc.run(jax.random.key(0), np.array(HOLED)[1:] + 0j)
    with pytest.raises(TypeError, match='the observed site "X" contains durations'):
        mcmc.run(jax.random.key(0), np.array([[1, 2], [3, 4]], dtype="timedelta64[s]"))


def test_chunks_and_files(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="chunk 1 contains complex numbers"):
        bnp.BayesianKMeans(MODEL).fit(lambda: iter([np.ones((4, 2)), 1j * np.ones((4, 2))]))
    np.save(tmp_path / "a.npy", np.array([[1.0 + 2.0j], [3.0]]))
    with pytest.raises(ValueError, match="a.npy, column 'x0': found complex numbers, expected real numbers"):
        bnp.datasets.read_table(tmp_path / "a.npy")


def test_tables_that_jax_traces_are_refused_by_name() -> None:
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0)
    tables = np.random.default_rng(0).normal(size=(3, 6, 2))
    model = partial(bnp.models.dpm, component=component, concentration=1.0)
    for function in (jax.vmap(component.log_evidence), jax.vmap(partial(bnp.evidence.exact, model))):
        with pytest.raises(TypeError, match="X is traced by jax.jit, vmap, .* one table at a time"):
            function(tables)
    with jax.enable_x64(True):
        found = jax.vmap(lambda X: component.log_marginal(jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(X))))(
            tables
        )
    np.testing.assert_allclose(found, [component.log_evidence(X) for X in tables], rtol=1e-10)

"""Models with other components in one table, against leave-one-out densities by themselves."""

from __future__ import annotations

import warnings
from functools import partial

import arviz as az
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier import model_comparison
from bnp_hier.models import dpm
from bnp_hier.posterior.cross_validation import LeaveOneOut

X = np.array([[0.0, 0.2], [0.4, -0.3], [0.3, 0.5], [3.0, 2.8], [3.4, 3.1], [1.6, 1.4]])
RNG = np.random.default_rng(0)
RESULTS = {
    "poor": LeaveOneOut(np.full(6, -5.0), RNG.random(6), RNG.random(6), np.linspace(0.05, 1.0, 6), 0.3, RNG.random(6), 0.5),
    "best": LeaveOneOut(-RNG.random(6), RNG.random(6), RNG.random(6), np.linspace(0.5, 1.0, 6), 0.1, RNG.random(6), 0.5),
    "next": LeaveOneOut(-1.0 - RNG.random(6), RNG.random(6), RNG.random(6), np.ones(6), 0.2, RNG.random(6), 0.5),
}


@pytest.mark.usefixtures("unchecked")
def test_differences_are_paired_and_from_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = {"poor": ["a row has too small a Kish share"], "best": [], "next": []}
    monkeypatch.setattr(model_comparison, "cross_validate", lambda fit, *_: (RESULTS[fit], 100, trouble[fit]))
    with pytest.warns(RuntimeWarning, match="compare_models, poor: a row has too small a Kish share") as caught:
        table = bnp.compare_models({name: name for name in RESULTS}, X)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert list(table.index) == ["best", "next", "poor"]
    assert list(table.columns) == ["elpd", "se", "elpd_diff", "dse", "mcse", "p_loo", "least_kish", "largest_k", "warning"]
    for name, result in RESULTS.items():
        row, difference = table.loc[name], result.elpd_i - RESULTS["best"].elpd_i
        assert row["elpd"] == result.elpd_i.sum() and row["se"] == pytest.approx(np.sqrt(6) * result.elpd_i.std())
        assert row["elpd_diff"] == pytest.approx(difference.sum()) and row["elpd_diff"] <= 0
        assert row["dse"] == pytest.approx(np.sqrt(6) * difference.std())
        assert (row["mcse"], row["p_loo"], row["least_kish"]) == (result.mcse, result.p_i.sum(), result.kish_i.min())
        assert row["largest_k"] == result.pareto_k.max()
        assert row["warning"] == (name == "poor")


@pytest.mark.slow
def test_components_and_concentrations_on_one_data_set() -> None:
    """As `loo` says of each; ArviZ's own table has the same order."""

    def fit(width: float, concentration: float) -> bnp.MAPDP:
        component = bnp.NormalInverseWishart(np.zeros(2), 0.2, 5.0, width * np.eye(2))
        return bnp.MAPDP(partial(dpm, component=component, concentration=concentration)).fit(X)

    fits = {"wide": fit(100.0, 1.0), "many": fit(1.0, 50.0), "right": fit(1.0, 1.0)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = bnp.compare_models(fits, X)
    results = {name: bnp.loo(one, X) for name, one in fits.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ's, of pandas and of few rows
        assert list(az.compare(results).index) == list(table.index)
    total = "elpd_loo" if az.__version__.startswith("0.") else "elpd"
    assert table["elpd"].to_dict() == pytest.approx({name: result[total] for name, result in results.items()})
    assert table.index[-1] == "wide" and table.loc["wide", "elpd_diff"] < -5


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="compare_models needs at least one fit"):
        bnp.compare_models({}, X)
    with pytest.raises(TypeError, match="expected an MCMC object or a fitted bnp_hier estimator"):
        bnp.compare_models({"a": 3}, X)

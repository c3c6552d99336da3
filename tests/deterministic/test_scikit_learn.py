"""The estimators among scikit-learn's tools: its own checks, pipelines, model selection, frames, files."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import bnp_hier as bnp
from bnp_hier.models import MixtureModel, dpm

# a family of independent columns, which takes missing values, as the estimators say of themselves
DIAGONAL = partial(dpm, component=bnp.NormalInverseGamma.from_data)
ESTIMATORS = [
    bnp.DPMeans(n_clusters=2),
    pytest.param(bnp.MAPDP(DIAGONAL, n_init=2), marks=pytest.mark.exhaustive),
    pytest.param(bnp.BHC(DIAGONAL, refine=None, progress_bar=False), marks=pytest.mark.slow),
    pytest.param(bnp.BayesianKMeans(DIAGONAL, n_init=(1, 2)), marks=pytest.mark.exhaustive),
    pytest.param(bnp.AgglomerativeBayesianClustering(DIAGONAL, progress_bar=False), marks=pytest.mark.exhaustive),
    pytest.param(bnp.VariationalDP(DIAGONAL, truncation=5, n_init=1), marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_scikit_learns_checks(estimator: Any) -> None:
    """All of them, without an exception; what is skipped asks for arrays of other libraries, which are not installed."""
    results = check_estimator(estimator, on_skip=None)
    assert {check["check_name"] for check in results if check["status"] != "passed"} <= {"check_array_api_input"}


def _blobs(rows: int = 40) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 2)) + 8.0 * rng.integers(0, 2, (rows, 1))


@pytest.fixture(scope="module")
def fit() -> bnp.MAPDP:
    return bnp.MAPDP(n_init=2).fit(_blobs())


def test_without_a_model_rows_are_normal_with_a_prior_read_off_the_data(fit: bnp.MAPDP) -> None:
    X = _blobs()
    same = bnp.MAPDP(
        partial(dpm, component=bnp.NormalInverseWishart.from_data(X), concentration=dist.Gamma(2.0, 20.0)), n_init=2
    ).fit(X)
    assert fit.log_joint_ == pytest.approx(same.log_joint_, abs=1e-9)
    assert isinstance(fit.component_, bnp.NormalInverseWishart) and fit.concentration_ == fit.hyperparameters_["alpha"]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_keep_their_columns(frame: Any, fit: bnp.MAPDP) -> None:
    X = _blobs()
    table = frame({"width": X[:, 0], "height": X[:, 1]})
    of_frame = clone(fit).fit(table)
    assert of_frame.feature_names_in_.tolist() == ["width", "height"] and of_frame.n_features_in_ == 2
    np.testing.assert_array_equal(of_frame.labels_, fit.labels_)
    np.testing.assert_array_equal(of_frame.score_samples(table), fit.score_samples(X))
    with pytest.raises(ValueError, match="feature names"):
        of_frame.predict(frame({"height": X[:, 1], "width": X[:, 0]}))


def test_missing_values_of_frames() -> None:
    X = pd.DataFrame({"a": pd.array([1, None, 2, 11, 12, 10], dtype="Int64"), "b": [0.1, 0.2, None, 9.0, 9.3, 9.1]})
    component = bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0)
    fits = [bnp.MAPDP(partial(dpm, component=component), n_init=1).fit(table) for table in (X, pl.from_pandas(X))]
    assert fits[0].labels_.tolist() == fits[1].labels_.tolist() == [0, 0, 0, 1, 1, 1]


def test_columns_of_text_are_named() -> None:
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["1", "two", "3"]})
    for X in (table, pl.from_pandas(table)):
        with pytest.raises(ValueError, match="X has 'two' at row 1, column 'b'; expected a number"):
            bnp.MAPDP().fit(X)
    with pytest.raises(ValueError, match="X has 'two' at row 1, column 1; expected a number"):
        bnp.MAPDP().fit(table.to_numpy().tolist())
    with pytest.raises(ValueError, match="inhomogeneous"):
        bnp.MAPDP().fit([[1.0, 2.0], [3.0]])


def test_in_a_pipeline(fit: bnp.MAPDP) -> None:
    X = _blobs() * [1.0, 1000.0]
    pipeline = make_pipeline(StandardScaler(), clone(fit))
    labels = pipeline.fit_predict(X)
    scaled = StandardScaler().fit_transform(X)
    alone = clone(fit).fit(scaled)
    np.testing.assert_array_equal(labels, alone.labels_)
    np.testing.assert_array_equal(pipeline.predict(X), alone.predict(scaled))
    assert pipeline.score(X) == pytest.approx(alone.score_samples(scaled).mean())


def test_model_selection_by_held_out_density() -> None:
    """Two models of rows from two tight groups: the search takes the one whose prior is not a thousand times too wide."""
    X = _blobs(60)
    right = partial(dpm, component=bnp.NormalInverseGamma(np.full(2, 4.0), 0.1, 2.0, 1.0))
    wide = partial(dpm, component=bnp.NormalInverseGamma(np.full(2, 4.0), 0.1, 2.0, 1e6))
    search = GridSearchCV(bnp.MAPDP(n_init=1), {"model": [wide, right]}, cv=3).fit(X)
    assert search.best_params_["model"] is right
    by_hand = cross_val_score(bnp.MAPDP(right, n_init=1), X, cv=3)
    assert search.best_score_ == pytest.approx(by_hand.mean())


@pytest.mark.slow
def test_settings_of_the_model_in_a_search() -> None:
    """Settings by name, with the prior of the training rows: the same scores as models made by hand for every fold."""
    X = _blobs(40) * [1.0, 30.0]
    folds = KFold(3, shuffle=True, random_state=0)
    pipeline = make_pipeline(StandardScaler(), bnp.MAPDP(n_init=1))  # its model is dpm, whose settings have no names
    grid = {"mapdp__model__family": ["normal", "diagonal"], "mapdp__model__concentration": [0.5, 5.0]}
    search = GridSearchCV(pipeline, grid, cv=folds).fit(X)
    assert search.best_estimator_["mapdp"].n_clusters_ == 2
    families = {"normal": bnp.NormalInverseWishart, "diagonal": bnp.NormalInverseGamma}
    for params, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        by_hand = []
        for training, test in folds.split(X):
            scaler = StandardScaler().fit(X[training])
            rows = scaler.transform(X[training])
            prior = families[params["mapdp__model__family"]].from_data(rows)
            model = partial(dpm, component=prior, concentration=params["mapdp__model__concentration"])
            by_hand.append(bnp.MAPDP(model, n_init=1).fit(rows).score(scaler.transform(X[test])))
        assert score == pytest.approx(np.mean(by_hand), rel=1e-6), params


def test_settings_that_cannot_be_reached() -> None:
    estimator = bnp.MAPDP(MixtureModel("diagonal"))
    with pytest.raises(ValueError, match="there is no setting 'concentraton' .*did you mean 'concentration'"):
        estimator.set_params(model__concentraton=1.0)
    own = bnp.MAPDP(partial(dpm, component=bnp.NormalInverseGamma(np.zeros(2), 0.1, 2.0, 1.0)))
    with pytest.raises(ValueError, match="whose settings have no names: use model=bnp_hier.models.MixtureModel"):
        own.set_params(model__concentration=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'modle'"):
        estimator.set_params(modle__concentration=1.0)
    assert estimator.set_params(model__kappa=0.5, n_init=2).get_params()["model__kappa"] == 0.5
    default = bnp.BHC()
    assert default.set_params(model__concentration=3.0).model.concentration == 3.0 and bnp.BHC().model is dpm


@pytest.mark.parametrize("way", ["pickle", "joblib"])
def test_files(way: str, fit: bnp.MAPDP, tmp_path: Path) -> None:
    if way == "pickle":
        again = pickle.loads(pickle.dumps(fit))
    else:
        again = joblib.load(joblib.dump(fit, tmp_path / "fit.joblib")[0])
    X = _blobs() + 0.1
    np.testing.assert_array_equal(again.labels_, fit.labels_)
    np.testing.assert_array_equal(again.predict_proba(X), fit.predict_proba(X))
    np.testing.assert_array_equal(again.score_samples(X), fit.score_samples(X))

"""Fits in files."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.datasets import Dataset
from bnp_hier.models import dpm
from bnp_hier.routes import RunOptions, run_routes
from bnp_hier.saved_fit import SavedFit, load_fit

X = np.random.default_rng(0).normal(size=(20, 2)) + 8.0 * (np.arange(20) % 2)[:, None]
DATA = Dataset("two", X, None, ("a", "b"), None, "two groups")
MODEL = partial(dpm, component=bnp.NormalInverseGamma.from_data(X), concentration=1.0)


def test_an_estimator_comes_back(tmp_path: Path) -> None:
    fit = bnp.MAPDP(MODEL, n_restarts=1).fit(X)
    saved = SavedFit(fit, DATA, "map-dp", "diagonal", 1.5, ("a note",))
    path = saved.save(tmp_path / "new" / "fit.joblib")
    assert list(path.parent.iterdir()) == [path]
    again = load_fit(path)
    np.testing.assert_array_equal(again.labels, fit.labels_)
    np.testing.assert_array_equal(again.predict_proba(X), fit.predict_proba(X))
    np.testing.assert_array_equal(again.score_samples(X), fit.score_samples(X))
    assert "labels" in vars(again) and "labels" not in vars(load_fit(again.save(path)))  # what is computed is not saved
    assert (again.data.feature_names, again.route, again.family, again.notes) == (("a", "b"), "map-dp", "diagonal", ("a note",))
    assert set(again.versions) == {"bnp-hier", "jax", "numpyro", "scikit-learn"}


@pytest.mark.slow
def test_chains_come_back_in_another_process(tmp_path: Path) -> None:
    options = RunOptions(chains=2, warmup=5, samples=10, progress=False)
    chains = run_routes(["gibbs"], MODEL, X, options).fits["Gibbs"]
    path = SavedFit(chains, DATA, "gibbs", "diagonal").save(tmp_path / "fit.joblib")
    code = (
        "import sys, numpy as np; from bnp_hier.saved_fit import load_fit\n"
        "saved = load_fit(sys.argv[1])\n"
        "assert saved.fit.get_samples(group_by_chain=True)['z'].shape == (2, 10, 20)\n"
        "p = saved.predict_proba(saved.data.X)\n"
        "assert np.allclose(p.sum(1), 1) and (p.argmax(1) == saved.labels).mean() > 0.9\n"
        "assert np.isfinite(saved.score_samples(saved.data.X)).all()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_files_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load_fit(tmp_path / "nothing.joblib")
    (tmp_path / "text.joblib").write_text("hello")
    with pytest.raises(ValueError, match="not readable as a fit"):
        load_fit(tmp_path / "text.joblib")
    joblib.dump({"a": 1}, tmp_path / "other.joblib")
    with pytest.raises(ValueError, match="found a dict, expected a fit"):
        load_fit(tmp_path / "other.joblib")

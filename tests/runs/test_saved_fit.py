"""Fits in files."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.datasets import Dataset
from bnp_hier.models import bhmc, dpm
from bnp_hier.runs.saved_fit import SavedFit, is_saved_fit, load_fit
from tests.components.user_family import ExponentialGamma
from tests.parameters import few

X = np.random.default_rng(0).normal(size=(20, 2)) + 8.0 * (np.arange(20) % 2)[:, None]
DATA = Dataset("two", X, None, ("a", "b"), None, "two groups")
MODEL = partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=1.0)
LEARNED = partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=dist.Gamma(2.0, 1.0))
ESTIMATORS = {
    "map-dp": bnp.MAPDP(MODEL, n_init=1),
    "bayesian-kmeans": bnp.BayesianKMeans(LEARNED, n_init=(1, 2)),
    "bhc": bnp.BHC(MODEL, progress_bar=False),
    "agglomerative": bnp.AgglomerativeBayesianClustering(MODEL, progress_bar=False),
    "variational": bnp.VariationalDP(MODEL, truncation=4, n_init=1),
}


def _assert_same(again: SavedFit, saved: SavedFit) -> None:
    np.testing.assert_array_equal(again.labels, saved.labels)
    np.testing.assert_array_equal(again.predict_proba(X + 0.1), saved.predict_proba(X + 0.1))
    np.testing.assert_array_equal(again.score_samples(X + 0.1), saved.score_samples(X + 0.1))


@pytest.mark.parametrize("method", few(["map-dp", *sorted(set(ESTIMATORS) - {"map-dp"})], plain=1))
def test_an_estimator_comes_back(method: str, tmp_path: Path) -> None:
    fit = ESTIMATORS[method].fit(X)
    saved = SavedFit(fit, DATA, method, "diagonal", 1.5, ("a note",))
    path = saved.save(tmp_path / "new" / "fit.npz")
    assert list(path.parent.iterdir()) == [path]
    again = load_fit(path)
    assert type(again.fit) is type(fit) and set(vars(again.fit)) == set(vars(fit))
    _assert_same(again, saved)
    np.testing.assert_array_equal(again.fit.predict(X + 0.1), fit.predict(X + 0.1))
    if hasattr(fit, "dendrogram_"):
        np.testing.assert_array_equal(again.fit.dendrogram_.to_linkage(), fit.dendrogram_.to_linkage())
    if isinstance(fit, bnp.BHC):
        np.testing.assert_array_equal(again.fit.sample_partitions(3, 5), fit.sample_partitions(3, 5))
    assert again.fit.get_params(deep=False).keys() == fit.get_params(deep=False).keys()
    assert again.fit.hyperparameters_ == fit.hyperparameters_ and again.fit.log_joint_ == fit.log_joint_
    if method == "map-dp":  # the model is there as well
        np.testing.assert_array_equal(again.fit.fit(X).labels_, fit.labels_)


@pytest.mark.slow
def test_a_fit_to_mixed_columns_with_missing_values_comes_back(tmp_path: Path) -> None:
    mixed = np.column_stack([X, np.arange(20) % 2])
    mixed[0, 1] = mixed[1, 2] = mixed[2, :2] = np.nan
    model = bnp.models.MixtureModel("mixed", families=["normal", "bernoulli"], columns=[[0, 1], [2]], learn=False)
    fit = bnp.MAPDP(model, n_init=1).fit(mixed)
    path = SavedFit(fit, Dataset("mixed", mixed, None, ("a", "b", "c"), None, ""), "map-dp", "mixed").save(tmp_path / "fit.npz")
    again = load_fit(path).fit
    np.testing.assert_array_equal(again.score_samples(mixed), fit.score_samples(mixed))
    np.testing.assert_array_equal(again.fit(mixed).missing_values_, fit.missing_values_)


def test_everything_of_the_data_comes_back(tmp_path: Path) -> None:
    data = Dataset(
        "named", X, np.array(["u", "v"])[np.arange(20) % 2], ("a", "c=q"), tuple(f"π{i}" for i in range(20)), "of all kinds",
        tuple((f"k{i % 2}",) for i in range(20)), {"c": ("p", "q")},
    )  # fmt: skip
    saved = SavedFit(ESTIMATORS["map-dp"].fit(X), data, "map-dp", "diagonal", 1.5, ("a note",))
    again = load_fit(saved.save(tmp_path / "fit.npz"))
    for name in ("name", "feature_names", "item_names", "description", "paths", "levels"):
        assert getattr(again.data, name) == getattr(data, name), name
    np.testing.assert_array_equal(again.data.X, X)
    np.testing.assert_array_equal(again.data.y, data.y)
    assert (again.method, again.family, again.seconds, again.notes) == ("map-dp", "diagonal", 1.5, ("a note",))
    assert set(again.versions) == {"bnp-hier", "jax", "numpyro", "scikit-learn"}
    assert "labels" not in vars(again)  # what is computed is not saved


def _chains(model, kernel, **options):
    return MCMC(kernel, num_warmup=5, num_samples=10, progress_bar=False, num_chains=2, chain_method="sequential", **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", few(["bhmc", "nuts", "gibbs", "hyperparameters", "parallel", "mcmc"], plain=0, slow=3))
def test_chains_come_back_and_go_on(kind: str, tmp_path: Path) -> None:
    model = LEARNED if kind in ("hyperparameters", "nuts") else MODEL
    kernel = {
        "gibbs": lambda: bnp.PartitionGibbs(model, 2),
        "mcmc": lambda: bnp.PartitionGibbs(model),
        "parallel": lambda: bnp.ParallelSplitMerge(model, 8),
        "hyperparameters": lambda: Gibbs([(bnp.PartitionGibbs(model), ["z"]), (bnp.HyperparameterGibbs(model, 1.5), None)]),
        "nuts": lambda: Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model, max_tree_depth=4), None)]),
        "bhmc": lambda: bnp.BHMCGibbs(
            partial(bhmc, component=bnp.NormalKnownCovariance.from_data(X, learn=False), depth=2, max_nodes=128)
        ),
    }[kind]()
    mcmc = _chains(model, kernel)
    run = mcmc if kind == "mcmc" else bnp.ResumableRun(mcmc, checkpoint_every=5, time_limit=1e-9)
    run.run(jax.random.key(0), X)
    saved = SavedFit(run, DATA, kind, "diagonal")
    again = load_fit(saved.save(tmp_path / "fit.npz"))
    _assert_same(again, saved)
    assert again.fit.num_chains == 2 and type(again.fit.sampler) is type(kernel)
    if kind != "mcmc":
        assert not run.finished and again.fit.steps == run.steps
        run.time_limit = again.fit.time_limit = None
        run.resume(X)
        again.fit.resume(X)
    for name, value in run.get_samples(group_by_chain=True).items():
        np.testing.assert_array_equal(again.fit.get_samples(group_by_chain=True)[name], value)


@pytest.mark.slow
def test_chains_come_back_in_another_process(tmp_path: Path) -> None:
    run = bnp.ResumableRun(_chains(MODEL, bnp.PartitionGibbs(MODEL)))
    run.run(jax.random.key(0), X)
    path = SavedFit(run, DATA, "gibbs", "diagonal").save(tmp_path / "fit.npz")
    code = (
        "import sys, numpy as np; from bnp_hier.runs.saved_fit import load_fit\n"
        "saved = load_fit(sys.argv[1])\n"
        "assert saved.fit.get_samples(group_by_chain=True)['z'].shape == (2, 10, 20)\n"
        "p = saved.predict_proba(saved.data.X)\n"
        "assert np.allclose(p.sum(1), 1) and (p.argmax(1) == saved.labels).mean() > 0.9\n"
        "assert np.isfinite(saved.score_samples(saved.data.X)).all()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _own_model(X, scale=2.0):
    component = ExponentialGamma(np.full(2, 2.5), np.full(2, scale))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)))
    numpyro.sample("x", bnp.ConjugateMixture(component, z), obs=X)


@pytest.mark.parametrize(
    "model", [_own_model, partial(dpm, component=ExponentialGamma(np.full(2, 2.5), np.full(2, 2.0)), concentration=1.0)]
)
def test_a_users_own_model_is_given_again(model, tmp_path: Path) -> None:
    times = np.exp(X / 4)
    fit = bnp.MAPDP(model, n_init=1).fit(times)
    path = SavedFit(fit, Dataset("times", times, None, ("a", "b"), None, ""), "map-dp", "own").save(tmp_path / "fit.npz")
    with pytest.raises(ValueError, match=r"user-defined; pass it again: load_fit\(path, model=...\)"):
        load_fit(path)
    again = load_fit(path, model=model)
    assert again.fit.model is model
    np.testing.assert_array_equal(again.fit.predict_proba(times), fit.predict_proba(times))
    with pytest.raises(ValueError, match=r"saved with .*component\.b\[0\]=2, but the given model has 3"):
        load_fit(path, model=partial(_own_model, scale=3.0) if model is _own_model else partial(
            dpm, component=ExponentialGamma(np.full(2, 2.5), np.full(2, 3.0)), concentration=1.0
        ))  # fmt: skip
    inside = SavedFit(ESTIMATORS["map-dp"].fit(X), DATA, "map-dp", "diagonal").save(tmp_path / "inside.npz")
    with pytest.raises(ValueError, match="contains its own model, dpm: do not pass a model"):
        load_fit(inside, model=MODEL)


def test_what_cannot_be_written_without_code(tmp_path: Path) -> None:
    class Pieces(bnp.PartitionGibbs):
        pass

    run = bnp.ResumableRun(_chains(MODEL, Pieces(MODEL)))
    with pytest.raises(ValueError, match="nothing to save"):
        SavedFit(run, DATA, "gibbs", "diagonal").save(tmp_path / "fit.npz")
    run = bnp.ResumableRun.from_parts(
        {
            "kernel": Pieces(MODEL),
            "mcmc": {"num_warmup": 5, "num_samples": 10, "num_chains": 2, "progress_bar": False},
            "run": {"checkpoint_every": 5},
            "data": "",
            "extra_fields": (),
            "steps": 15,
            "state": None,
            "draws": {"z": np.zeros((2, 10, 20), int)},
        }
    )
    with pytest.raises(ValueError, match="Pieces is unknown"):
        SavedFit(run, DATA, "gibbs", "diagonal").save(tmp_path / "fit.npz")
    with pytest.raises(TypeError, match="expected an estimator of bnp_hier or an MCMC run, but got dict"):
        SavedFit({}, DATA, "gibbs", "diagonal").save(tmp_path / "fit.npz")
    assert not any(tmp_path.iterdir())


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_files_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load_fit(tmp_path / "nothing.npz")
    contents = {
        "text": b"hello",
        "empty": b"",
        "pickle": pickle.dumps(_Bomb(tmp_path / "executed")),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    np.savez(tmp_path / "objects", header=np.array([_Bomb(tmp_path / "executed")], dtype=object))
    np.savez(tmp_path / "table", X=X)
    (tmp_path / "folder").mkdir()
    for name in (*contents, "objects.npz", "table.npz", "folder"):
        assert not is_saved_fit(tmp_path / name)
        with pytest.raises(ValueError, match="not readable as a fit"):
            load_fit(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_a_file_of_an_older_version_lacks_fields_of_the_data(tmp_path: Path) -> None:
    path = SavedFit(ESTIMATORS["map-dp"].fit(X), DATA, "map-dp", "diagonal").save(tmp_path / "fit.npz")

    def older(text: str) -> str:
        header = json.loads(text)
        fields = header["content"]["data"]["state"]["items"]
        fields[:] = [field for field in fields if field[0] not in ("units", "separators", "notes")]
        return json.dumps(header)

    data = load_fit(_with_header(path, older)).data
    assert data.units == {} == data.separators and data.notes == ()
    np.testing.assert_array_equal(data.X, X)


def _with_header(path: Path, change) -> Path:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "digest"}  # as in files of older versions
    text = change(str(arrays["header"]))
    json.loads(text)
    np.savez(path.with_name("changed.npz"), **{**arrays, "header": np.array(text)})
    return path.with_name("changed.npz")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bnp_hier.deterministic.map_dp:MAPDP", "subprocess:Popen"),
        ("bnp_hier.deterministic.map_dp:MAPDP", "bnp_hier.utils.files:os.PathLike"),
        ("bnp_hier.deterministic.map_dp:MAPDP", "bnp_hier.runs.resumable_run:ResumableRun"),
        ("models:dpm", "models:dirichlet_process"),
        ("models:dpm", "os:system"),
        ('"is": "object"', '"is": "call"'),
        ('"kind": "numpy"', '"kind": "python"'),
        ('"name": "a0"', '"name": "a999"'),
    ],
)
def test_no_other_type_or_function_can_be_named(old: str, new: str, tmp_path: Path) -> None:
    path = SavedFit(ESTIMATORS["map-dp"].fit(X), DATA, "map-dp", "diagonal").save(tmp_path / "fit.npz")
    changed = _with_header(path, lambda text: text.replace(old, new))
    assert is_saved_fit(changed)
    with pytest.raises(ValueError, match="not readable as a fit"):
        load_fit(changed)


def test_a_header_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = SavedFit(ESTIMATORS["map-dp"].fit(X), DATA, "map-dp", "diagonal").save(tmp_path / "fit.npz")
    arrays = dict(np.load(path))
    header = json.loads(str(arrays["header"]))
    header["content"]["fit"]["state"]["items"].append(["log_joint_", 0.0])
    np.savez(path, **{**arrays, "header": np.array(json.dumps(header))})
    with pytest.raises(ValueError, match="header was changed after it was written"):
        load_fit(path)


def test_damaged_files(tmp_path: Path) -> None:
    """Every byte of the central directory flipped, and the file cut anywhere: a ValueError or the fit, nothing else."""
    path = SavedFit(ESTIMATORS["map-dp"].fit(X), DATA, "map-dp", "diagonal").save(tmp_path / "fit.npz")
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    assert len(whole) > start > 0
    refused = 0
    for place in range(start, min(start + 200, len(whole))):
        for bit in (0x01, 0x40, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                load_fit(path)
            except ValueError:
                refused += 1
    assert refused > 100
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not readable as a fit"):
            load_fit(path)


def _altered(path, change):
    """Change the header and the arrays of a saved fit."""
    arrays = dict(np.load(path))
    del arrays["digest"]  # as in files of older versions
    header = json.loads(str(arrays["header"]))
    text = change(header, arrays)
    np.savez(path, **{**arrays, "header": np.array(json.dumps(header) if text is None else text)})


@pytest.mark.parametrize(
    "change",
    [
        lambda header, arrays: json.dumps(header)[:-100],
        lambda header, arrays: header["content"]["data"].update(type="bnp_hier.cli:app"),
        lambda header, arrays: header["content"]["fit"].update(type="numpyro.infer.mcmc:MCMC"),
        lambda header, arrays: header["content"]["fit"].update(type="bnp_hier.datasets.dataset:dataclasses.Field"),
        *(
            lambda header, arrays, wrong=wrong: arrays.update(
                {name: wrong(array) for name, array in arrays.items() if array.shape == (150, 4)}
            )
            for wrong in (lambda array: array[:-1], lambda array: np.zeros((2, 3)), lambda array: np.array("text"))
        ),
    ],
)
def test_an_altered_file_is_a_value_error(tmp_path, change):
    iris = bnp.datasets.load("iris")
    path = SavedFit(bnp.MAPDP(n_init=1, optimize=False).fit(iris.X), iris, "map-dp", "normal").save(tmp_path / "fit.npz")
    _altered(path, change)
    with pytest.raises(ValueError, match=r"fit.npz"):
        bnp.load_fit(path)

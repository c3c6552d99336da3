"""Runs that stop and go on: the same draws as in one go, through interruptions and files, and never on other data."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.kernels import partition_gibbs
from bnp_hier.models import dpm
from bnp_hier.posterior.draws import draws_of
from bnp_hier.runs import resumable_run
from tests.parameters import few

X = np.random.default_rng(0).normal(size=(12, 2)) + np.repeat([[0.0], [4.0]], 6, axis=0)
COMPONENT = bnp.NormalInverseWishart.from_data(X, learn=False)
FIXED = partial(dpm, component=COMPONENT, concentration=1.0)
LEARNED = partial(dpm, component=COMPONENT, concentration=dist.Gamma(1.0, 1.0))
FIELDS = ("log_joint", "i")


def _partition(**options) -> MCMC:
    settings = {"num_warmup": 7, "num_samples": 23, "thinning": 5, "progress_bar": False, **options}
    return MCMC(bnp.PartitionGibbs(FIXED, split_merge=1, init="prior"), **settings)


def _other(concentration: float = 1.0, kappa: float | None = None, **options) -> MCMC:
    """As the saved run, but for an option of the kernel or a hyperparameter."""
    component = COMPONENT if kappa is None else dataclasses.replace(COMPONENT, kappa=kappa)
    kernel = bnp.PartitionGibbs(
        partial(dpm, component=component, concentration=concentration), **{"split_merge": 1, "init": "prior", **options}
    )
    return MCMC(kernel, num_warmup=0, num_samples=5, thinning=5, progress_bar=False)


def _composition(**options) -> MCMC:
    kernel = Gibbs([(bnp.PartitionGibbs(LEARNED, split_merge=1, init="prior"), ["z"]), (NUTS(LEARNED), None)])
    return MCMC(kernel, **{"num_warmup": 30, "num_samples": 20, "progress_bar": False, **options})


def _assert_same(run, whole) -> None:
    for group in (False, True):
        jax.tree.map(np.testing.assert_array_equal, run.get_samples(group), whole.get_samples(group))
        jax.tree.map(np.testing.assert_array_equal, run.get_extra_fields(group), whole.get_extra_fields(group))


class _Interrupted:
    """Stands for `jax.block_until_ready` and is stopped by Ctrl-C at its n-th call."""

    def __init__(self, call: int) -> None:
        self.call, self.wait = call, jax.block_until_ready

    def __call__(self, tree):
        self.call -= 1
        if self.call == 0:
            raise KeyboardInterrupt
        return self.wait(tree)


@pytest.mark.slow
def test_interrupted_run_resumes_to_the_draws_of_one_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[str]
) -> None:
    """Through warm-up, a remainder of the thinning, a file, and a second process's view of it."""
    two = partial(_partition, num_chains=2, chain_method="sequential")
    whole = two()
    whole.run(jax.random.key(0), X, extra_fields=FIELDS)
    path = tmp_path / "run.npz"
    run = bnp.ResumableRun(two(), checkpoint_every=5, path=path)
    compilations.clear()
    for steps, call in ((5, 2), (10, 2), (20, 3)):
        monkeypatch.setattr(jax, "block_until_ready", _Interrupted(call))
        with pytest.raises(KeyboardInterrupt):
            if run.steps:
                run.resume(X)
            else:
                run.run(jax.random.key(0), X, extra_fields=FIELDS)
        monkeypatch.undo()
        assert run.steps == steps and not run.finished
    assert compilations.count("jit(one)") == 1
    first = run.get_samples(True)["z"]
    assert first.shape == (2, 2, 12)
    np.testing.assert_array_equal(first, np.asarray(whole.get_samples(True)["z"])[:, :2])

    again = bnp.ResumableRun.load(path, two(), X, checkpoint_every=5)
    assert again.steps == 20
    again.resume(X)
    assert again.finished and again.last_state.i.tolist() == [30, 30]
    _assert_same(again, whole)
    run.resume(X)
    _assert_same(run, whole)
    np.testing.assert_array_equal(draws_of(run, X).labels, whole.get_samples(True)["z"])
    assert os.listdir(tmp_path) == ["run.npz"]


@pytest.mark.optimised  # as for users: without optimisations, programs of different lengths round differently
@pytest.mark.slow
def test_composition_with_nuts_resumes_from_a_file(tmp_path: Path) -> None:
    """Step size and mass matrix adapt until the end of warm-up, and no longer."""
    options = {"num_chains": 2, "chain_method": "sequential", "thinning": 2}
    fields = ("block_states.0.log_joint", "block_states.1.adapt_state.step_size")
    whole = _composition(**options)
    whole.run(jax.random.key(1), X, extra_fields=fields)
    run = bnp.ResumableRun(_composition(**options), checkpoint_every=10)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(jax, "block_until_ready", _Interrupted(3))
        run.run(jax.random.key(1), X, extra_fields=fields)
    assert run.steps == 20
    run.save(tmp_path / "run.npz")
    again = bnp.ResumableRun.load(tmp_path / "run.npz", _composition(**options), X, checkpoint_every=10)
    again.resume(X)
    _assert_same(again, whole)
    table = bnp.compare({"resumed": again, "whole": whole}, X)
    assert table.loc["resumed", "clusters"] == table.loc["whole", "clusters"] > 1
    assert table.loc["resumed", "ess"] == table.loc["whole", "ess"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("method", "key"), [("vectorized", jax.random.key), ("parallel", jax.random.PRNGKey)])
def test_other_chain_methods_and_both_kinds_of_keys(tmp_path: Path, method: str, key) -> None:
    """And longer than was planned at first."""
    options = {"num_samples": 23, "num_chains": 2, "chain_method": method}
    whole = _partition(**options)
    whole.run(key(0), X, extra_fields=FIELDS)
    bnp.ResumableRun(_partition(**{**options, "num_samples": 13}), checkpoint_every=5, path=tmp_path / "run.npz").run(
        key(0), X, extra_fields=FIELDS
    )
    run = bnp.ResumableRun.load(tmp_path / "run.npz", _partition(**options), X, checkpoint_every=5)
    run.resume(X)
    _assert_same(run, whole)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run.npz"
    bnp.ResumableRun(_other(), checkpoint_every=5, path=path).run(jax.random.key(0), X)
    return path


@pytest.mark.parametrize(
    ("build", "data", "match"),
    [
        (_partition, X, "saved with num_warmup=0, but the MCMC object has 7"),
        (
            partial(_partition, num_warmup=0),
            X + 1.0,
            r"\(of shapes \(12, 2\)\) are not those .*: their values differ",
        ),
        (partial(_partition, num_warmup=0), X[:11], "are not those with which the run was started"),
        (
            partial(_partition, num_warmup=0, num_samples=21),
            X,
            "5 steps of a run with num_samples=5, and cannot be continued .* num_samples=21",
        ),
        pytest.param(
            partial(_composition, num_warmup=0, num_samples=5, thinning=5),
            X,
            "saved with kernel=PartitionGibbs, but the given kernel has Gibbs",
            marks=pytest.mark.slow,
        ),
        (partial(_other, split_merge=2), X, "saved with PartitionGibbs.split_merge=1, but the given kernel has 2"),
        (partial(_other, proposal="restricted_gibbs"), X, "PartitionGibbs.proposal=sequential, but the given kernel has"),
        (partial(_other, concentration=2.0), X, r"saved with z\.concentration=1, but the given model has 2"),
        (partial(_other, kappa=0.5), X, r"saved with X\.component\.kappa=.*, but the given model has 0\.5"),
    ],
)
def test_a_file_goes_on_only_where_it_began(saved: Path, build, data: np.ndarray, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        bnp.ResumableRun.load(saved, build(), data)


def test_every_call_completes_a_chunk_however_short_its_time_limit() -> None:
    """So that calls in a loop end."""
    run = bnp.ResumableRun(_partition(num_warmup=0, num_samples=20), checkpoint_every=5, time_limit=1e-9)
    run.run(jax.random.key(0), X)
    steps = [run.steps]
    for _ in range(3):
        run.resume(X)
        steps.append(run.steps)
    assert steps == [5, 10, 15, 20] and run.finished
    run.resume(X)
    assert run.steps == 20


def test_a_run_ends_when_there_are_enough_draws(tmp_path: Path, compilations: list[str]) -> None:
    """At the same check, after doublings, in one go, in pieces and from a file; and its draws are the first."""
    checked: list[int] = []

    def enough(run: bnp.ResumableRun) -> bool:
        checked.append(run.steps)
        return run.get_samples()["z"].shape[0] >= 2 * 8

    build = partial(_partition, num_chains=2, chain_method="sequential", num_samples=163)
    options = {"checkpoint_every": 10, "enough": enough, "first_check": 10}
    whole = build()
    run = bnp.ResumableRun(whole, **options)
    run.run(jax.random.key(0), X)
    assert run.finished and run.steps == 50 and checked == [20, 30, 50]  # 7 of warm-up and a remainder of 3 before
    assert run.mcmc.num_samples == 43 and whole.num_samples == 163 and compilations.count("jit(one)") == 1
    pieces = bnp.ResumableRun(build(), **options, time_limit=1e-9, path=tmp_path / "run.npz")
    pieces.run(jax.random.key(0), X)
    while not pieces.finished:
        loaded = bnp.ResumableRun.load(tmp_path / "run.npz", build(), X, **{**options, "checkpoint_every": 5})
        pieces.resume(X)
    loaded.resume(X)
    _assert_same(pieces, run)
    _assert_same(loaded, run)
    run.resume(X)
    assert run.steps == 50
    longest = bnp.ResumableRun(build(), 10)
    longest.run(jax.random.key(0), X)
    np.testing.assert_array_equal(longest.get_samples(True)["z"][:, :8], run.get_samples(True)["z"])
    for bad in ({"first_check": None}, {"first_check": 15}, {"first_check": 0}, {"enough": None}):
        with pytest.raises(ValueError, match="enough and first_check, a positive multiple of checkpoint_every=10"):
            bnp.ResumableRun(build(), **{**options, **bad})


@pytest.mark.parametrize("composed", few([False, True]))
def test_a_run_keeps_its_room_where_native_kernels_do_not_run(
    composed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is less for XLA programs at first; labels beyond it would be lost."""
    rows = np.arange(70.0)[:, None] - 34.5
    model = partial(dpm, component=bnp.NormalKnownCovariance(np.zeros(1), 400.0 * np.eye(1), 0.05 * np.eye(1)))

    def build() -> MCMC:
        fixed = partial(model, concentration=LEARNED.keywords["concentration"] if composed else 70.0)
        kernel = bnp.PartitionGibbs(fixed, 0, init="prior" if composed else np.arange(70))
        if composed:
            kernel = Gibbs([(kernel, ["z"]), (bnp.HyperparameterGibbs(fixed), None)])
        return MCMC(kernel, num_warmup=0, num_samples=2, progress_bar=False)

    path = tmp_path / "run.npz"
    run = bnp.ResumableRun(build(), checkpoint_every=1, path=path, time_limit=1e-9)
    run.run(jax.random.key(0), rows)
    assert run.steps == 1
    monkeypatch.setattr(partition_gibbs, "has_calls", lambda component: False)
    monkeypatch.setattr(resumable_run, "has_calls", lambda: False)
    with pytest.warns(RuntimeWarning, match="'native kernels': 'on'.*'native kernels': 'off'.* further draws may differ"):
        again = bnp.ResumableRun.load(path, build(), rows)
    again.resume(rows)
    kernel = again.sampler.blocks[0][0] if composed else again.sampler
    assert kernel.capacity == 70
    assert np.asarray(again.get_samples()["z"])[-1].max() > (0 if composed else 64)
    kernel.capacity = None  # as at the start of a new run
    assert kernel.capacity == 64


def test_bad_files(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    for i, content in enumerate((whole[: len(whole) // 2], b"", whole.replace(b"[", b"{", 1), b"no archive at all")):
        (tmp_path / f"{i}.npz").write_bytes(content)
        with pytest.raises(ValueError, match=rf"{i}\.npz is damaged or not a saved run"):
            bnp.ResumableRun.load(tmp_path / f"{i}.npz", _partition(), X)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz is damaged or not a saved run"):
        bnp.ResumableRun.load(tmp_path / "other.npz", _partition(), X)
    np.savez(tmp_path / "code.npz", header=np.array([print], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        bnp.ResumableRun.load(tmp_path / "code.npz", _partition(), X)
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match=r"folder\.npz is damaged or not a saved run: found a folder"):
        bnp.ResumableRun.load(tmp_path / "folder.npz", _partition(), X)
    start = whole.index(b"PK\x01\x02")
    for place, value in ((start + 6, 99), (start + 8, 1), (start + 10, 77)):  # version needed, encrypted, method of compression
        (tmp_path / "directory.npz").write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"directory\.npz is damaged or not a saved run"):
            bnp.ResumableRun.load(tmp_path / "directory.npz", _partition(), X)
    with pytest.raises(FileNotFoundError):
        bnp.ResumableRun.load(tmp_path / "absent.npz", _partition(), X)


def test_bad_use(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one chain, but num_chains is 0"):
        bnp.ResumableRun(_partition(num_chains=0))
    with pytest.raises(ValueError, match="positive multiple of the thinning, 5, but it is 7"):
        bnp.ResumableRun(_partition(), checkpoint_every=7)
    run = bnp.ResumableRun(_partition(), checkpoint_every=5, path=saved)
    with pytest.raises(ValueError, match=r"run\.npz exists: load it"):
        run.run(jax.random.key(0), X)
    with pytest.raises(ValueError, match="has not been started: call its run method"):
        run.resume(X)
    with pytest.raises(ValueError, match="nothing to save"):
        run.save(tmp_path / "x.npz")
    with pytest.raises(ValueError, match="no draws yet: 0 of 7 warm-up steps"):
        run.get_samples()
    with pytest.raises(ValueError, match="has no draws: call its run method"):
        bnp.to_arviz(run, X)


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to it
from functools import partial
import jax, numpy as np
from numpyro.infer import MCMC
import bnp_hier as bnp
from bnp_hier.models import dpm
X = np.random.default_rng(0).normal(size=(12, 2)) + np.repeat([[0.0], [4.0]], 6, axis=0)
model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
mcmc = MCMC(bnp.PartitionGibbs(model, split_merge=1, init="prior"), num_warmup=7, num_samples=1_000_000, progress_bar=False)
bnp.ResumableRun(mcmc, checkpoint_every=500, path=sys.argv[1]).run(jax.random.key(0), X)
"""


@pytest.mark.slow
def test_a_stopped_process_leaves_a_file_to_go_on_with(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors, errors
    steps = bnp.ResumableRun.load(path, _partition(num_samples=1_000_000, thinning=1), X).steps
    assert steps > 0 and steps % 500 in (0, 7)
    mcmc = _partition(num_samples=max(steps - 7, 0) + 500, thinning=1)
    run = bnp.ResumableRun.load(path, mcmc, X)
    run.resume(X)
    whole = _partition(num_samples=max(steps - 7, 0) + 500, thinning=1)
    whole.run(jax.random.key(0), X)
    _assert_same(run, whole)

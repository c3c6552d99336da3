"""Compiled XLA programs are kept for later processes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import pytest

import bnp_hier as bnp
from bnp_hier.utils import compilation_cache
from tests.processes import together

PROGRAM = """
import sys
from functools import partial
import jax
import bnp_hier as bnp
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
jax.jit(lambda x: x + 1)(1.0)  # JAX has decided by then that there is no cache
print(bnp.enable_compilation_cache())
jax.jit(lambda x: jax.numpy.linalg.inv(x) + 2)(jax.numpy.eye(3))
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


@pytest.mark.slow
def test_later_processes_find_the_programs(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path)}
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
        folder, hits = done.stdout.split()
        assert Path(folder) == tmp_path / "bnp_hier" / "programs"
        found.append(int(hits))
    assert found[0] == 0 < found[1]


def test_folder_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.config, "update", lambda *_: pytest.fail("options were set"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        bnp.enable_compilation_cache(tmp_path / "file")
    monkeypatch.setattr(compilation_cache.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="not writable"):
        bnp.enable_compilation_cache(tmp_path / "folder")


FIT = """
import os, sys
import jax
import numpy as np
import numpyro.distributions as dist
from functools import partial
import bnp_hier as bnp
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
X = np.repeat([[0.0], [9.0]], 10, axis=0) + np.random.default_rng(0).normal(size=(20, 1))
component = bnp.NormalInverseGamma.from_data(X, learn=False)
model = partial(bnp.models.dpm, component=component, concentration=dist.Gamma(1.0, 1.0))
assert bnp.MAPDP(model, n_init=1).fit(X).n_clusters_ == 2
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


@pytest.mark.slow
def test_programs_of_fits_are_kept_unless_the_user_wants_none(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path)}

    def hits(**more: str) -> int:
        run = partial(subprocess.run, capture_output=True, text=True, check=True)
        return int(run([sys.executable, "-c", FIT], env=environment | more).stdout)

    first, second = hits(), hits()  # some programs are compiled twice in one process
    assert first < second
    assert hits(JAX_ENABLE_COMPILATION_CACHE="0") == 0
    kept = list((tmp_path / "bnp_hier" / "programs").iterdir())
    assert kept
    (tmp_path / "file").touch()
    assert hits(XDG_CACHE_HOME=str(tmp_path / "file")) == 0  # no folder can be made there


CHAINS = """
import sys
import warnings
from functools import partial
import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import MCMC
import bnp_hier as bnp
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
X = np.repeat([[0.0], [9.0]], 10, axis=0) + np.random.default_rng(0).normal(size=(20, 1))
component = bnp.NormalInverseGamma.from_data(X, learn=False)
kernel = bnp.PartitionGibbs(partial(bnp.models.dpm, component=component, concentration=1.0), max_clusters=1)
mcmc = MCMC(kernel, num_warmup=2, num_samples=2, num_chains=2, chain_method=jax.vmap, progress_bar=False)
with warnings.catch_warnings(record=True) as found:
    mcmc.run(jax.random.key(0), X)
    jax.block_until_ready(mcmc.last_state)
assert any("reached its capacity of 1 clusters" in str(one.message) for one in found), found
def missed():
    return events.count("/jax/compilation_cache/compile_requests_use_cache") - events.count("/jax/compilation_cache/cache_hits")

first = missed()
mcmc.run(jax.random.key(1), X)
jax.block_until_ready(mcmc.last_state)  # a callback that waits for the interpreter while it ends would never return
print(first, missed() - first)
"""


@pytest.mark.slow
def test_programs_that_may_warn_are_kept(tmp_path: Path) -> None:
    """A second run and a later process compile nothing, although the warning about a capacity is called from the program."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path)}
    run = partial(subprocess.run, env=environment, capture_output=True, text=True, check=True, timeout=300)
    first, later = ([int(word) for word in run([sys.executable, "-c", CHAINS]).stdout.split()] for _ in range(2))
    assert first[0] > 0 == first[1]
    assert later == [0, 0]


def test_the_default_folder_is_taken_unless_the_user_has_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, object] = {"jax_compilation_cache_dir": None, "jax_enable_compilation_cache": True}
    monkeypatch.setattr(compilation_cache, "_option", lambda name: options[f"jax_{name}"])
    monkeypatch.setattr(jax.config, "update", options.__setitem__)
    monkeypatch.setattr(compilation_cache.compilation_cache, "reset_cache", lambda: None)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "default"))
    options["jax_enable_compilation_cache"] = False
    compilation_cache.keep_programs()
    assert options["jax_compilation_cache_dir"] is None
    options["jax_enable_compilation_cache"] = True
    with monkeypatch.context() as spread:
        spread.setattr(jax.distributed, "is_initialized", lambda: True)
        compilation_cache.keep_programs()
    assert options["jax_compilation_cache_dir"] is None
    component = bnp.NormalInverseGamma([0.0], 0.1, 2.0, 1.0)
    bnp.PartitionGibbs(partial(bnp.models.dpm, component=component))  # a kernel, before MCMC compiles anything
    assert options["jax_compilation_cache_dir"] == str(tmp_path / "default")
    options["jax_compilation_cache_dir"] = "own"
    compilation_cache.keep_programs()
    assert options["jax_compilation_cache_dir"] == "own"


def test_the_oldest_programs_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(8):
        (tmp_path / str(k)).write_bytes(bytes(100))
        os.utime(tmp_path / str(k), (1000 + k, 1000 + k))
    monkeypatch.setattr(compilation_cache, "MOST_BYTES", 800)
    compilation_cache._forget_oldest(tmp_path)
    assert len(list(tmp_path.iterdir())) == 8
    monkeypatch.setattr(compilation_cache, "MOST_BYTES", 700)
    compilation_cache._forget_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5", "6", "7"]


OVER_PROCESSES = """
import warnings
import numpy as np
import bnp_hier as bnp
from functools import partial
folder = bnp.enable_compilation_cache(sys.argv[1])
kernel = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=bnp.NormalInverseWishart(np.zeros(2), 0.1, 5.0, np.eye(2))))
key = jax.random.key(0)
X = bnp.distributed.shard_rows(np.random.default_rng(jax.process_index()).normal(size=(8, 2)).astype(np.float32))
jax.jit(lambda x: x.sum() + 1)(X)
kept = len([*folder.iterdir()])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        kernel.init(key, 0, None, (X,), {})
jax.jit(lambda x: x.sum() + 2)(X)
told = sum("is turned off, because the rows are on the CPUs of several processes" in str(each.message) for each in caught)
print(kept, len([*folder.iterdir()]), told)
"""


@pytest.mark.slow
def test_programs_over_processes_are_compiled_anew(tmp_path: Path) -> None:
    """With kept ones, two processes waited for each other for ever: one in a gather, the other in an exchange in a loop."""
    (kept, after, told), (_, others, untold) = together(OVER_PROCESSES, str(tmp_path))
    assert int(kept) > 0 and kept == after == others
    assert (told, untold) == ("1", "0")

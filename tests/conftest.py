"""Shared fixtures; two forced CPU devices so that parallel chains are really parallel."""

import ctypes
import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from itertools import count

flags = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=2"]
# most tests are many small programs that run once: quick to compile matters more than quick to run (see `optimised`)
if "benchmark" not in sys.argv and "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit the choice
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # programs need not know the lines that they come from
    if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # later ones stop at a flag they do not know
        flags.append("--xla_cpu_use_fusion_emitters=false")
    for library in ("OMP", "OPENBLAS", "MKL"):  # test processes share the cores: threads of their own would only wait
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ["XLA_FLAGS"] = " ".join(flags)
os.environ.setdefault("MPLBACKEND", "Agg")
# NumPyro compiles every run and chain anew: identical programs are compiled once per session, by all its processes
CACHE = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="bnp-hier-tests-")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

from collections.abc import Iterator  # noqa: E402
from contextlib import nullcontext, suppress  # noqa: E402
from pathlib import Path  # noqa: E402

import jax  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

from tests import strictness  # noqa: E402

# in the plain run alone: benchmarks measure what users have, and slow tests, which compute for long, run as users do
LOOSE = any(mark in argument for mark in ("benchmark", "slow", "exhaustive") for argument in sys.argv)
if os.environ.setdefault("BNP_HIER_STRICT_TESTS", str(not LOOSE)) == "True":  # workers inherit the choice
    # native kernels are not Python functions: Numba compiles them as they are written
    parts = [
        path.stem for path in (Path(__file__).parents[1] / "bnp_hier").iterdir() if path.stem not in ("__init__", "native")
    ]
    strictness.leave_inner_functions_out()
    install_import_hook([f"bnp_hier.{part}" for part in parts], "tests.strictness.checked")
    strictness.leave_expected_errors_to_the_package()
    strictness.forbid_promotion()

import bnp_hier  # noqa: E402, F401 (before ArviZ: see the comment in its __init__)
from bnp_hier.native.availability import xla_programs  # noqa: E402
from bnp_hier.utils import interruption, jax_settings  # noqa: E402

if os.environ["BNP_HIER_STRICT_TESTS"] == "True":
    jax_settings.TYPES, jax_settings.RANKS = "strict", "raise"  # as outside these settings

MOST_MEMORY = 3 << 30
"""Bytes that a process may use before it forgets its programs: 40 tests of kernels leave programs of 1.5 GB."""

TESTS = count(1)
"""Numbers of the tests of this process."""

gc.set_threshold(200_000, 50, 100)  # programs are many objects that stay: looking through them took a 15th of the time


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave exhaustive tests out of every run that does not name them, whatever other marks they have."""
    if "exhaustive" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("exhaustive") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("exhaustive") is None]
    if "BNP_HIER_DATA" not in os.environ:
        for item in items:
            if item.get_closest_marker("data") is not None:
                item.add_marker(pytest.mark.skip(reason="BNP_HIER_DATA names no folder of the larger data sets"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the outcomes that tests of the campaign have recorded."""
    reports = (report for some in terminalreporter.stats.values() for report in some if getattr(report, "when", "") == "call")
    counts = Counter(outcome for report in reports for outcome in report.user_properties)
    for (kind, outcome), number in sorted(counts.items(), key=str):
        terminalreporter.write_line(f"{kind}: {number} {outcome}")


@pytest.fixture(autouse=True)
def larger_data(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests marked `data` see the folder of the larger data sets: all others run as they do without one."""
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("BNP_HIER_DATA", raising=False)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions as users have them, without the frames of the checks of annotations."""
    strictness.take_off(monkeypatch)


@pytest.fixture(autouse=True)
def not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that was interrupted on purpose is forgotten: a command leaves a process at once that has been."""
    monkeypatch.setattr(interruption._WATCH, "seen", False)


@pytest.fixture(autouse=True)
def few_programs() -> Iterator[None]:
    """Forget compiled programs before they are too many for the memory, or need more pieces of it than the system grants."""
    yield
    maps, pages = Path("/proc/self/maps"), Path("/proc/self/statm")
    if not maps.exists():
        return
    size = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    # Linux allows 65,530 pieces; beyond it LLVM aborts. To list them takes as long as many a test, so that one in ten does
    if size > MOST_MEMORY or (next(TESTS) % 10 == 0 and maps.read_bytes().count(b"\n") > 30_000):
        jax.clear_caches()
        gc.collect()
        with suppress(AttributeError):  # of the GNU C library, which otherwise keeps what has been freed
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def optimization(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests marked `optimised`, which compute for longer than they compile, get all of XLA's optimisations."""
    if request.node.get_closest_marker("optimised") is None:
        yield
        return
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")  # processes that the test starts
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()  # programs compiled without
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(params=["kernels", "xla"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test with native kernels, and again with XLA programs."""
    with xla_programs() if request.param == "xla" else nullcontext():
        yield request.param


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Names of the functions compiled while the test runs; clear it to start counting."""
    compiled: list[str] = []

    def listen(event: str, duration: float, **details: object) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(str(details.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.config.update("jax_enable_compilation_cache", False)
    yield compiled
    jax.config.update("jax_enable_compilation_cache", True)
    jax.monitoring.unregister_event_duration_listener(listen)


def pytest_configure(config: pytest.Config) -> None:
    """Tests of one file share programs, so that one process takes it whole, but for slow ones: they are few and long."""
    if config.option.markexpr == "slow":
        config.option.dist = "worksteal"


def pytest_unconfigure() -> None:
    """Remove the compilation cache that this process made."""
    if CACHE is not None:
        shutil.rmtree(CACHE, ignore_errors=True)

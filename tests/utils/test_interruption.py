"""Ctrl-C arrives, wherever it comes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.utils import interruption
from bnp_hier.utils.interruption import interruptible
from tests.parameters import few


@pytest.fixture(autouse=True)
def _python_handles_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interruption, "AGAIN", 0.1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hook = sys.unraisablehook
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and sys.unraisablehook is hook
    signal.signal(signal.SIGINT, before)


def _press(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _wait() -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        sum(range(100))
    raise AssertionError("it was lost")


def _in_a_gc_callback() -> None:
    gc.callbacks.append(_press)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(_press)
    _wait()


def _in_a_weak_reference() -> None:
    class Thing:
        pass

    thing = Thing()
    weakref.finalize(thing, _press)
    del thing
    _wait()


def _swallowed() -> None:
    try:
        _press()
    except BaseException:  # noqa: B036
        pass
    _wait()


def _swallowed_at_the_end() -> None:
    try:
        _press()
    except BaseException:  # noqa: B036
        pass


def _in_a_compiled_program() -> None:
    program = jax.jit(lambda x: jax.debug.callback(_press, x) or x + 1)
    jax.block_until_ready(program(1.0))
    jax.effects_barrier()


def _made_another_error() -> None:
    try:
        _press()
    except KeyboardInterrupt as stop:
        raise RuntimeError("INTERNAL: CpuCallback error") from stop


@pytest.mark.parametrize(
    "press",
    [
        _press,
        _in_a_gc_callback,
        _in_a_weak_reference,
        _swallowed,
        _swallowed_at_the_end,
        _in_a_compiled_program,
        _made_another_error,
    ],
)
def test_it_is_never_lost(press, capfd) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(), interruptible():
        press()
    time.sleep(0.25)  # nor does it come again
    assert "Traceback" not in capfd.readouterr().err


def test_other_errors_and_threads_are_left_alone() -> None:
    with pytest.raises(ValueError, match="of its own"), interruptible():
        raise ValueError("of its own")
    found: list[object] = []

    def elsewhere() -> None:
        with interruptible():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        _press()
    signal.signal(signal.SIGINT, ignored)


COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to it
from bnp_hier.cli import main
print("ready", flush=True)
main()
"""


def _pressed_after(seconds: float, words: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and standard error of a command that Ctrl-C is sent to."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(bnp.__file__).parents[1])},
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, errors


def _table(folder: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [6, 6], [0, 6]], 20, axis=0)
    np.savetxt(folder / "rows.csv", X, delimiter=",", header="a,b", comments="")


@pytest.mark.parametrize("moments", few([10, 30], plain=0))
def test_fit_is_stopped_at_any_moment(moments: int, tmp_path: Path) -> None:
    """While it reads, compiles, warms up and draws: 130 and nothing written, or 3 and the draws that there were."""
    words = [
        "fit",
        "rows.csv",
        "--method",
        "gibbs",
        "--chains",
        "2",
        "--warmup",
        "500",
        "--samples",
        "1000000",
        "--no-progress",
    ]

    def attempt(i: int) -> int:
        folder = tmp_path / str(i)
        folder.mkdir()
        _table(folder)
        code, errors = _pressed_after(0.02 + 9.0 * i / moments, words, folder)
        assert code in (3, 130) and "Traceback" not in errors and "Exception ignored" not in errors, (i, code, errors)
        assert sorted(path.name for path in folder.iterdir()) == ["fit.npz", "rows.csv"][code == 130 :]
        if code == 3:
            assert bnp.load_fit(folder / "fit.npz").fit.steps > 500
        else:
            assert errors.endswith("interrupted\n")
        return code

    with ThreadPoolExecutor(4) as several:
        assert 130 in list(several.map(attempt, range(moments)))


@pytest.mark.slow
def test_compare_keeps_what_is_finished(tmp_path: Path) -> None:
    _table(tmp_path)
    words = ["compare", "rows.csv", "--methods", "map-dp,gibbs", "--chains", "2", "--warmup", "10", "--samples", "1000000"]
    found = []
    for i, seconds in enumerate((1.0, 17.0)):
        code, errors = _pressed_after(seconds, [*words, "--no-progress", "--out", f"out{i}"], tmp_path)
        found.append(code)
        report = tmp_path / f"out{i}" / "report.html"
        assert code in (3, 130) and report.exists() == (code == 3) and "Traceback" not in errors, (i, code, errors)
        if code == 3:
            page = report.read_text()
            assert page.endswith("</html>\n") and "interrupted" in page
            assert not [path for path in report.parent.iterdir() if ".part" in path.name]
    assert found[-1] == 3

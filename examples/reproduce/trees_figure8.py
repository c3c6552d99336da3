"""Trees, Figure 8: bound and run time of Bayes k-means BHC and of exact greedy BHC."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import trees_common as common
from matplotlib.figure import Figure

import bnp_hier as bnp
from bnp_hier.plots.palette import cluster_colors

PAPER_CLUSTERS = {"iris": 4, "abalone": 31, "wine": 5}


def timed(bhc: bnp.BHC, X: np.ndarray, repeats: int) -> float:
    """Median wall time of a fit (s), after a first fit that compiles."""
    bhc.fit(X)
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        bhc.fit(X)
        times.append(time.perf_counter() - before)
    return float(np.median(times))


parser = common.arguments(__doc__, __file__)
parser.add_argument("--samples", type=int, help="random samples of rows at each size; 3, or 1 in a quick run")
parser.add_argument("--repeats", type=int, default=5, help="timed fits per sample")
options = parser.parse_args()
full, seed = options.full, options.seed
samples = options.samples or (3 if full else 1)
report = common.Report(options, "Trees, Figure 8: Bayes k-means BHC against exact BHC")
report.say(
    "exact: BHC(refine=None), the paper's greedy tree; median times of whole fits, warm; mean bounds over samples of rows"
)

sizes = {"iris": [50, 150], "abalone": [150, 300, 600], "wine": [40, 120]} if full else {"iris": [40]}
rows: list[dict[str, Any]] = []
for name, totals in sizes.items():
    whole = common.gaussian_set(name, seed)
    model = common.model_of(whole)
    for n in totals:
        found = []
        for sample in range(samples):
            X = whole[np.random.default_rng([seed, n, sample]).permutation(len(whole))[:n]]
            exact = bnp.BHC(model, refine=None, progress_bar=False)
            fast = bnp.BHC(model, method="bayes_kmeans", random_state=sample, progress_bar=False)
            slow_s, fast_s = timed(exact, X, options.repeats), timed(fast, X, options.repeats)
            found.append(
                [exact.log_evidence_bound_, fast.log_evidence_bound_, slow_s, fast_s, exact.n_clusters_, fast.n_clusters_]
            )
        average, middle = np.mean(found, axis=0), np.median(found, axis=0)
        rows.append(
            {
                "set": name,
                "n": n,
                "exact": float(average[0]),
                "k-means": float(average[1]),
                "exact ms": float(1000 * middle[2]),
                "k-means ms": float(1000 * middle[3]),
                "speed-up": float(np.median([one[2] / one[3] for one in found])),
                "clusters": float(average[4]),
                "k-means clusters": float(average[5]),
            }
        )
if hasattr(os, "getloadavg"):
    report.say(f"load of the machine after the timings: {os.getloadavg()[0]:.1f} processes on {os.cpu_count()} cores")
report.say()
header = list(rows[0])
report.say(common.table(header, [[one[key] for key in header] for one in rows]))
report.say()
largest = {one["set"]: one for one in rows}
fastest = max(rows, key=lambda one: one["speed-up"])
shown = ", ".join(f"{one['set']} n={one['n']} {one['speed-up']:.1f}" for one in largest.values())
at_600 = [one for one in rows if one["n"] == 600]
if at_600:
    report.verdict(
        "Bayes k-means BHC is about 30 times as fast as BHC on 600 rows of abalone (taken as: at least 15 times)",
        at_600[0]["speed-up"] >= 15,
        f"{at_600[0]['speed-up']:.1f} times as fast; compiled exact BHC takes {at_600[0]['exact ms']:.0f} ms",
    )
report.verdict(
    "large speed-ups (taken as: at least 3 times at the largest size of every set)",
    min(one["speed-up"] for one in largest.values()) >= 3,
    f"{shown}; best {fastest['speed-up']:.1f} ({fastest['set']} n={fastest['n']}); fits of milliseconds are mostly overhead",
)
worst = min(rows, key=lambda one: (one["k-means"] - one["exact"]) / abs(one["exact"]))
best = max(rows, key=lambda one: one["k-means"] - one["exact"])
report.verdict(
    "its bound is close to that of BHC (taken as: not lower by more than 1 % of it)",
    worst["k-means"] - worst["exact"] >= -0.01 * abs(worst["exact"]),
    f"differences {min(one['k-means'] - one['exact'] for one in rows):.2f} to {best['k-means'] - best['exact']:.2f} nats; "
    f"highest on {best['set']} n={best['n']}" + (", above that of the greedy tree" if best["k-means"] > best["exact"] else ""),
)
clusters = {name: one["k-means clusters"] for name, one in largest.items()}
report.verdict(
    "clusters found at the largest sizes: iris 4, abalone 31, wine 5 (taken as: within 2)",
    all(abs(clusters[name] - PAPER_CLUSTERS[name]) <= 2 for name in clusters),
    ", ".join(f"{name} {value:.1f}" for name, value in clusters.items()) + " (the number depends on the priors)",
)

figure = Figure(figsize=(3.6 * len(sizes), 6.0), layout="constrained")
axes = figure.subplots(2, len(sizes), squeeze=False)
colors = cluster_colors(2)
for column, name in enumerate(sizes):
    mine = [one for one in rows if one["set"] == name]
    x = [one["n"] for one in mine]
    top, below = axes[:, column]
    top.axhline(0.0, color=colors[0], label="exact BHC")
    top.plot(x, [one["k-means"] - one["exact"] for one in mine], "s-", color=colors[1], label="Bayes k-means BHC")
    for i, key in enumerate(("exact ms", "k-means ms")):
        below.plot(x, [one[key] for one in mine], "os"[i] + "-", color=colors[i])
    top.set(title=name, ylabel="bound − exact BHC's (nats)")
    below.set(xlabel="rows", ylabel="run time (ms, warm)", ylim=(0, None))
    for place in (top, below):
        place.set_xticks(x)
        place.spines[["top", "right"]].set_visible(False)
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
report.save(figure)

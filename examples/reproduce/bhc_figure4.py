"""Heller & Ghahramani (2005), Figure 4: BHC's evidence bound against the purity of its tree as hyperparameters vary.

The paper names neither the data set nor the settings. Our settings are a grid over the concentration and the spread (Gaussian
data) or strength (binary data) of the component's prior, and we build the paper's greedy tree at each of them.
"""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
from common import BITS, NORMAL, Report, arguments, digits, spambase, synthetic
from matplotlib.figure import Figure
from scipy.stats import spearmanr

import bnp_hier as bnp
from bnp_hier.models import dpm

PAPER = 0.888


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--settings", type=int, help="approximate number of hyperparameter settings; 10, or 50 with --full")
    options = parser.parse_args()
    settings = options.settings or (50 if options.full else 10)
    three = partial(digits, classes=(0, 2, 4), size=20 if options.full else 8)
    sets = {"3digits": (BITS, three)}
    if options.full:
        sets |= {"spambase": (BITS, spambase), "synthetic": (NORMAL, synthetic)}

    report = Report(options.out, "bhc_figure4")
    report("BHC Figure 4: evidence bound (nats) against dendrogram purity over hyperparameter settings, greedy trees")
    figure = Figure(figsize=(4.6 * len(sets), 4.2), layout="constrained")
    panels = figure.subplots(1, len(sets), squeeze=False)[0]
    for axes, (name, (kind, make)) in zip(panels, sets.items(), strict=True):
        X, y = make(np.random.default_rng(options.seed))
        alphas = np.geomspace(0.1, 10.0, max(settings // 10, 2))
        others = (
            np.geomspace(0.02, 1.0, settings // len(alphas))
            if kind == NORMAL
            else np.geomspace(0.2, 20.0, settings // len(alphas))
        )
        found = []
        for alpha, other in product(alphas, others):
            component = (
                bnp.NormalInverseWishart.from_data(X, within=other, learn=False)
                if kind == NORMAL
                else bnp.BetaBernoulli.from_data(X, strength=other, learn=False)
            )
            fit = bnp.BHC(partial(dpm, component=component, concentration=alpha), refine=None, progress_bar=False).fit(X)
            found.append((fit.log_evidence_bound_, fit.dendrogram_.purity(y, pick="leaf")))
        bounds, purity = np.array(found).T
        linear, ranks = np.corrcoef(bounds, purity)[0, 1], spearmanr(bounds, purity).statistic
        label = "within" if kind == NORMAL else "strength"
        best = int(bounds.argmax())
        report(f"\n{name}: n = {len(y)}, {len(found)} settings: alpha in [0.1, 10], {label} in [{others[0]:g}, {others[-1]:g}]")
        report(f"  bound from {bounds.min():.1f} to {bounds.max():.1f}, purity from {purity.min():.3f} to {purity.max():.3f}")
        report(f"  purity at the highest bound {purity[best]:.3f} (mean over settings {purity.mean():.3f})")
        outcome = "reproduces" if linear > 0.7 else "in part" if linear > 0.3 else "DOES NOT REPRODUCE"
        report(f"  correlation {linear:.3f} (ranks {ranks:.3f}), paper {PAPER}; strongly correlated: {outcome}")
        marks = axes.scatter(bounds, purity, c=np.log10([other for _, other in product(alphas, others)]), s=22, cmap="viridis")
        axes.set(title=f"{name}: correlation {linear:.2f}", xlabel="evidence bound (nats)", ylabel="dendrogram purity")
        axes.spines[["top", "right"]].set_visible(False)
        figure.colorbar(marks, ax=axes, label=f"log10 {label}")
    figure.savefig(options.out / "bhc_figure4.png", dpi=80)
    report.save()


if __name__ == "__main__":
    main()

"""Default priors on what decides the number of clusters, on simulated tables of one, two, three and ten groups.

Every table is clustered by chains of the default sampler under pairs of priors: of the concentration α, and of the weight κ of
the prior mean of the normal families. Measures, means over tables: posterior probability of the true number of clusters, and of
as many clusters of at least 2 % of the rows; number of clusters; adjusted Rand index of the draws; and log density of 200 fresh
rows under the draws (nats a row). Normal columns have unit variance within groups, whose means are 5 to 9 standard deviations
from the nearest. Run ``python -m examples.benchmarks.cluster_number_priors``; the table is written beside this file.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pandas as pd
from sklearn.metrics import adjusted_rand_score
from tqdm import tqdm

import bnp_hier as bnp
from bnp_hier.methods import METHODS, RunOptions
from bnp_hier.posterior.credible_balls import large_clusters, least_share
from bnp_hier.posterior.draws import draws_of, log_predictive

FEW = dist.LogNormal(np.log(0.1), 1.0)
PRIORS = {
    "α ~ Gamma(1, 1), κ log-normal": (dist.Gamma(1.0, 1.0), dist.LogNormal(np.log(0.1), 1.0)),
    "α ~ Gamma(1, 10), κ log-normal": (dist.Gamma(1.0, 10.0), dist.LogNormal(np.log(0.1), 1.0)),
    "α ~ Gamma(1, 10), κ ~ Gamma(2, 20)": (dist.Gamma(1.0, 10.0), dist.Gamma(2.0, 20.0)),
    "α ~ Gamma(2, 20), κ ~ Gamma(2, 20)": (dist.Gamma(2.0, 20.0), dist.Gamma(2.0, 20.0)),
    "α log-normal, κ ~ Gamma(2, 20)": (FEW, dist.Gamma(2.0, 20.0)),
}
"""Priors of α and κ; log-normal ones have median 0.1, and their logarithm has standard deviation 1."""

FAMILIES = {
    "full": bnp.NormalInverseWishart,
    "diagonal": bnp.NormalInverseGamma,
    "shared": bnp.NormalKnownCovariance,
    "bernoulli": bnp.BetaBernoulli,
    "poisson": bnp.GammaPoisson,
}
GROUPS = {"noise": 1, "t noise": 1, "skewed noise": 1, "two": 2, "three": 3, "ten": 10, "three t": 3}
CELLS: tuple[tuple[str, str, int, int], ...] = (
    *(("noise", "full", n, d) for n, d in ((30, 2), (100, 1), (100, 2), (2000, 2), (30, 5), (100, 5), (100, 10))),
    ("t noise", "full", 200, 2),
    ("skewed noise", "full", 200, 2),
    ("two", "full", 60, 1),
    ("two", "full", 100, 5),
    *(("three", "full", n, d) for n, d in ((30, 2), (100, 1), (100, 2), (100, 5), (300, 10), (2000, 2))),
    ("three t", "full", 300, 2),
    *(("ten", "full", n, 2) for n in (200, 500)),
    *product(("noise", "three"), ("diagonal", "shared"), (100,), (2, 10)),
    *product(("noise", "three"), ("bernoulli", "poisson"), (200,), (8,)),
)
"""Groups, family, rows and columns."""


def centres(groups: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Means of groups, of which each is 5 to 9 standard deviations from the nearest."""
    if d == 1 or groups == 1:
        return np.repeat(6.0 * np.arange(groups)[:, None], d, axis=1)
    while True:
        found = rng.normal(size=(groups, d)) * (4.0 if groups < 10 else 8.0)
        apart = np.sqrt(((found[:, None] - found[None]) ** 2).sum(-1)) + 100.0 * np.eye(groups)
        if apart.min() > 5.0 and apart.min(1).max() < 9.0:
            return found


def table(shape: str, family: str, n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, their groups, and 200 fresh rows."""
    rng = np.random.default_rng([seed, n, d, *map(ord, shape + family)])
    groups, rows = GROUPS[shape], n + 200
    labels = np.arange(rows) % groups
    match family:
        case "bernoulli":
            X = rng.random((rows, d)) < rng.choice([0.1, 0.9], size=(groups, d))[labels]
        case "poisson":
            X = rng.poisson(rng.choice([1.0, 5.0, 20.0], size=(groups, d))[labels])
        case _:
            noise = rng.standard_t(5, size=(rows, d)) if shape in ("t noise", "three t") else rng.normal(size=(rows, d))
            X = np.exp(0.5 * noise) if "skewed" in shape else centres(groups, d, rng)[labels] + noise
    X = np.asarray(X, float)
    return X[:n], labels[:n], X[n:]


def trial(shape: str, family: str, n: int, d: int, seed: int) -> list[dict[str, object]]:
    """Measures of one table under every pair of priors."""
    X, truth, fresh = table(shape, family, n, d, seed)
    found = []
    for name, (alpha, kappa) in PRIORS.items():
        learned = FAMILIES[family].from_data(X)
        if "kappa" in learned.priors:
            learned = replace(learned, priors={**learned.priors, "kappa": kappa})
        model = partial(bnp.models.dpm, component=learned, concentration=alpha)
        run = METHODS["gibbs"].run(
            model, X, RunOptions(chains=2, warmup=200, samples=400, random_state=seed, progress_bar=False)
        )
        draws = draws_of(run, X)
        z = draws.labels.reshape(-1, n)
        number, large = large_clusters(z, 0.0), large_clusters(z, least_share(n))
        found.append(
            {
                "table": f"{shape}, {family}, {n} x {d}",
                "prior": name,
                "seed": seed,
                "P(K true)": (number == truth.max() + 1).mean(),
                "P(large true)": (large == truth.max() + 1).mean(),
                "mean K": number.mean(),
                "ARI": np.mean([adjusted_rand_score(truth, labels) for labels in z[::8]]),
                "fresh rows": log_predictive(draws, fresh).mean(),
            }
        )
    return found


def main(seeds: int, cells: slice, file: Path) -> None:
    """Run the study and write its table."""
    rows = []
    for cell, seed in tqdm(list(product(CELLS[cells], range(seeds)))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += trial(*cell, seed)
        pd.DataFrame(rows).to_csv(file.with_suffix(".csv"), index=False, float_format="%.4g")
    means = pd.DataFrame(rows).drop(columns="seed").groupby(["table", "prior"], sort=False).mean()
    columns = ["P(K true)", "P(large true)", "mean K", "ARI", "fresh rows"]
    lines = [f"| table | prior | {' | '.join(columns)} |", "|---" * (2 + len(columns)) + "|"]
    lines += [
        f"| {where} | {prior} | {' | '.join(f'{value:.2f}' for value in row[columns])} |"
        for (where, prior), row in means.iterrows()
    ]
    title = f"Means over {seeds} tables, by `python -m examples.benchmarks.cluster_number_priors`."
    file.with_suffix(".md").write_text("\n".join([title, "", *lines, ""]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--cells", type=lambda text: slice(*map(int, text.split(":"))), default=slice(None))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    main(options.seeds, options.cells, options.out)

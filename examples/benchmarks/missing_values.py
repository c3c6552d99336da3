"""Missing values under full and shared covariance, against leaving dependence out and against mean imputation.

A share of the cells, 2, 10 or 30 %, is removed at random from the training half of each data set. Every method clusters this
half and scores the held-out half, which is complete. Measures, means over the splits with standard errors: ARI of the training
rows against the truth, and log density of a held-out row (nats; columns are standardised by what is there of the training
half). Run ``python examples/benchmarks/missing_values.py``; the table is written beside this file.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pandas as pd
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from tqdm import tqdm

import bnp_hier as bnp

SHARES = (0.02, 0.1, 0.3)
Result = tuple[np.ndarray, np.ndarray]
"""Labels of the training rows, and log densities of the held-out rows."""


def correlated(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three groups in six columns that a common factor correlates, 300 rows."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 3, 300)
    centres = 2.5 * np.array([[0] * 6, [1, -1] * 3, [1, 1, -1, -1, 0, 0]])
    return centres[groups] + 1.5 * rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 6)), groups


def real(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A labelled data set of the package."""
    data = bnp.datasets.load(name)
    return data.X, np.unique(data.y, return_inverse=True)[1]


DATA: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "correlated": correlated,
    "iris": partial(real, "iris"),
    "wine": partial(real, "wine"),
}


def ours(train: np.ndarray, test: np.ndarray) -> Result:
    """The family that `recommend` chooses, by MAP-DP."""
    advice = bnp.recommend(train, progress_bar=False)
    fit = bnp.MAPDP(advice.model).fit(train)
    return fit.labels_, fit.score_samples(test)


def independent(train: np.ndarray, test: np.ndarray) -> Result:
    """Independent columns, which leave missing values out, by MAP-DP: the choice made before."""
    component = bnp.NormalInverseGamma.from_data(train)
    fit = bnp.MAPDP(partial(bnp.models.dpm, component=component, concentration=dist.Gamma(1.0, 1.0))).fit(train)
    return fit.labels_, fit.score_samples(test)


def variational(train: np.ndarray, test: np.ndarray) -> Result:
    """Mean imputation, and scikit-learn's Dirichlet-process mixture of 30 components."""
    filled = SimpleImputer().fit_transform(train)
    fit = BayesianGaussianMixture(n_components=30, max_iter=500, random_state=0).fit(filled)
    return fit.predict(filled), fit.score_samples(test)


def by_bic(train: np.ndarray, test: np.ndarray) -> Result:
    """Mean imputation, and scikit-learn's Gaussian mixture with full or tied covariance by BIC."""
    filled = SimpleImputer().fit_transform(train)
    fits = [
        GaussianMixture(k, covariance_type=kind, random_state=0, reg_covar=1e-4).fit(filled)
        for k in range(1, 9)
        for kind in ("full", "tied", "diag")
    ]
    fit = min(fits, key=lambda fit: fit.bic(filled))
    return fit.predict(filled), fit.score_samples(test)


METHODS = {
    "bnp_hier, recommended family": ours,
    "bnp_hier, independent columns": independent,
    "mean imputation, BayesianGaussianMixture": variational,
    "mean imputation, GaussianMixture by BIC": by_bic,
}


def trial(data: str, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows with missing values, complete held-out rows, and the groups of the training rows."""
    X, y = DATA[data](seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    train, test = X[order[: len(X) // 2]].copy(), X[order[len(X) // 2 :]]
    absent = rng.random(train.shape) < share
    whole = absent.all(axis=1)
    absent[whole, rng.integers(0, X.shape[1], whole.sum())] = False
    train[absent] = np.nan
    mean, spread = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
    return (train - mean) / spread, (test - mean) / spread, y[order[: len(X) // 2]]


def main(splits: int, folder: Path) -> pd.DataFrame:
    """Run everything and write the table."""
    rows = []
    for data in DATA:
        for share in SHARES:
            for seed in tqdm(range(splits), desc=f"{data}, {share:.0%} missing", leave=False):
                train, test, truth = trial(data, share, seed)
                for method, run in METHODS.items():
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        labels, scores = run(train, test)
                    ari, density = adjusted_rand_score(truth, labels), float(np.mean(scores))
                    rows.append((data, share, method, ari, density, len(np.unique(labels))))
    frame = pd.DataFrame(rows, columns=["data", "missing", "method", "ARI", "held out", "clusters"])
    groups = frame.groupby(["data", "missing", "method"], sort=False)
    mean, error = groups.mean(), groups.sem()
    lines = ["| data | missing | method | ARI | log density of a held-out row | clusters |", "|---|---|---|---|---|---|"]
    for (data, share, method), row in mean.iterrows():
        of = error.loc[(data, share, method)]
        cells = [f"{row[name]:.2f} ± {of[name]:.2f}" for name in ("ARI", "held out")]
        lines.append(f"| {data} | {share:.0%} | {method} | {cells[0]} | {cells[1]} | {row['clusters']:.1f} |")
    title = f"Means ± standard errors of {splits} splits, by `examples/benchmarks/missing_values.py`."
    (folder / "missing_values.md").write_text("\n".join([title, "", *lines, ""]))
    return frame


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parent)
    options = parser.parse_args()
    main(options.splits, options.folder)

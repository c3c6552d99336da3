"""Choose settings of a mixture by cross-validation, with priors derived from the training rows alone; takes under a minute.

The first table shows what happens otherwise: a prior that `from_data` derives from all rows has seen the rows that are held
out, and promises densities that new rows do not have. The second shows a search over settings of the model in a pipeline.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial

import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bnp_hier as bnp
from bnp_hier.models import MixtureModel, dpm

FAMILIES = {"normal": bnp.NormalInverseWishart, "diagonal": bnp.NormalInverseGamma}


def leak(X: np.ndarray, rows: int, repeats: int) -> pd.DataFrame:
    """Mean log density per row: cross-validated with either prior, and of rows that no part of the fit has seen (nats).

    All fits have four fifths of the rows.
    """
    found = []
    for name, family in FAMILIES.items():
        scores = []
        for repeat in range(repeats):
            order = np.random.default_rng(repeat).permutation(len(X))
            seen, unseen = X[order[:rows]], X[order[rows:]]
            folds = KFold(5, shuffle=True, random_state=repeat)
            of_all_rows = partial(dpm, component=family.from_data(seen))
            crossed = [
                cross_val_score(bnp.MAPDP(model, n_init=2), seen, cv=folds).mean()
                for model in (of_all_rows, MixtureModel(name))
            ]
            scores.append([*crossed, bnp.MAPDP(MixtureModel(name), n_init=2).fit(seen[: rows * 4 // 5]).score(unseen)])
        found.append((name, *np.mean(scores, axis=0)))
    heads = ["family", "prior from all rows", "prior from the training rows", "unseen rows"]
    return pd.DataFrame(found, columns=heads).set_index("family")


def search(X: np.ndarray, n_jobs: int | None) -> pd.DataFrame:
    """Held-out log density of standardised rows, by settings of the model (nats per row)."""
    pipeline = make_pipeline(StandardScaler(), bnp.MAPDP(MixtureModel(), n_init=2))
    own = {"mapdp__model__family": ["normal", "diagonal"], "mapdp__model__kappa": [None, 0.01, 1.0]}
    shared = {"mapdp__model__family": ["known", "spherical"], "mapdp__model__concentration": [None, 1.0]}
    found = GridSearchCV(pipeline, [own, shared], cv=KFold(3, shuffle=True, random_state=0), n_jobs=n_jobs).fit(X)
    table = pd.DataFrame(found.cv_results_["params"]).rename(columns=lambda name: name.removeprefix("mapdp__model__"))
    scores = found.cv_results_["mean_test_score"].round(2)
    table = table.astype(object).fillna("–").assign(score=scores).sort_values("score", ascending=False)
    return table.set_index("family")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40, help="rows of the first table")
    parser.add_argument("--repeats", type=int, default=2, help="samples of rows that the first table averages over")
    parser.add_argument("--jobs", type=int, help="processes of the search")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="all .* rows are in one cluster|the learned .*")
    X = bnp.datasets.load("wine").X
    print(leak(X, options.rows, options.repeats).round(2).to_string())
    print()
    print(search(X, options.jobs).to_string())


if __name__ == "__main__":
    main()

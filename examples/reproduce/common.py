"""Shared code of the reproductions: data subsets as in the papers, models with learned hyperparameters, linkages, reports."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.cluster.hierarchy

import bnp_hier as bnp

Subset = tuple[np.ndarray, np.ndarray]

OURS = "ours, not the paper's"
"""How a claim begins that is not one of the paper's."""

LINKAGES = ("single", "complete", "average", "ward")
NORMAL, BITS = "normal", "bits"
REPRODUCES, PARTLY, DIFFERS, OPEN = "reproduces", "partly", "does not reproduce", "not decided"
"""Outcomes of the papers' claims."""


class Report:
    """Prints lines and keeps them for a text file."""

    def __init__(self, out: Path, name: str) -> None:
        self.out, self.name, self.lines = out, name, list[str]()
        self.started = time.perf_counter()
        out.mkdir(parents=True, exist_ok=True)

    def __call__(self, *parts: object) -> None:
        for line in " ".join(map(str, parts)).split("\n"):
            self.lines.append(line.rstrip())
            print(self.lines[-1], flush=True)

    def verdict(self, claim: str, outcome: str | bool, number: str) -> None:
        """Report one claim of a paper, its outcome, and the number that decides it, in one line that scripts can parse."""
        self(verdict_line(claim, outcome, number))

    def save(self) -> None:
        """Write the text file; the run time is only printed, so that the file is the same for every run."""
        (self.out / f"{self.name}.txt").write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        print(f"{time.perf_counter() - self.started:.0f} s; written to {self.out}")


def verdict_line(claim: str, outcome: str | bool, number: str) -> str:
    """The line of a claim; True stands for `REPRODUCES`, False for `DIFFERS`."""
    written = outcome if isinstance(outcome, str) else REPRODUCES if outcome else DIFFERS
    return f"- {claim}: {written}; {number}"


def decided(gap: float, error: float, expected: int = 1) -> str:
    """Whether a mean difference has the expected sign; `OPEN` below 2 standard errors."""
    if abs(gap) < 2 * error or gap == error == 0:
        return OPEN
    return REPRODUCES if expected * gap > 0 else DIFFERS


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options shared by all scripts."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("output"), help="folder for text and figures")
    return parser


@lru_cache
def load(name: str) -> bnp.datasets.Dataset:
    """Load a data set once; if its file is missing and cannot be fetched, exit with advice."""
    try:
        return bnp.datasets.load(name)
    except OSError as error:
        raise SystemExit(f"this script needs a larger data set: {error}") from error


def information_gain(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mutual information of each binary column with the label (nats)."""
    n = len(X)
    total = np.zeros(X.shape[1])
    p_one = X.mean(0)
    for label in np.unique(y):
        here = y == label
        share = here.mean()
        ones = X[here].sum(0) / n
        for joint, marginal in ((ones, p_one), (share - ones, 1.0 - p_one)):
            with np.errstate(divide="ignore", invalid="ignore"):
                total += np.where(joint > 0, joint * np.log(joint / (share * marginal)), 0.0)
    return total


@lru_cache
def best_words(count: int) -> np.ndarray:
    """Columns of the words with the highest information gain about the group, over all documents."""
    data = load("newsgroups4")
    return np.sort(np.argsort(-information_gain((data.X > 0).astype(float), data.y), kind="stable")[:count])


def per_class(y: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of `size` random rows per class, in random order."""
    rows = [rng.choice(np.flatnonzero(y == label), size, replace=False) for label in np.unique(y)]
    return rng.permutation(np.concatenate(rows))


def synthetic(rng: np.random.Generator, size: int = 200) -> Subset:
    """Four Gaussian clusters in the plane with random means and full covariances.

    The spread of the means is such that average linkage is about as pure as in the paper.
    """
    y = rng.integers(4, size=size)
    means = rng.normal(0.0, 2.5, (4, 2))
    factors = rng.normal(0.0, 1.0, (4, 2, 2))
    return means[y] + np.einsum("nij,nj->ni", factors[y], rng.normal(size=(size, 2))), y


def spambase(rng: np.random.Generator, size: int = 100) -> Subset:
    """Whether each attribute is non-zero, for `size` mails per class."""
    data = load("spambase")
    rows = per_class(data.y, size, rng)
    return (data.X[rows] != 0).astype(float), data.y[rows]


def digits(rng: np.random.Generator, classes: tuple[int, ...], size: int = 20) -> Subset:
    """Whether each pixel is at least half of the largest value, for `size` images per digit."""
    data = load("digits")
    chosen = np.isin(data.y, classes)
    X, y = data.X[chosen], data.y[chosen]
    rows = per_class(y, size, rng)
    return (X[rows] >= 8).astype(float), y[rows]


def mnist_digits(rng: np.random.Generator, classes: tuple[int, ...], size: int = 20) -> Subset:
    """MNIST images reduced to 8 x 8, the paper's size: whether the mean of each 3 x 3 block is at least 128 of 255.

    The outermost two pixels on each side, nearly always empty, are omitted.
    """
    data = load("mnist_1000")
    chosen = np.isin(data.y, classes)
    y = data.y[chosen]
    rows = per_class(y, size, rng)
    images = data.X[chosen][rows].reshape(-1, 28, 28)[:, 2:26, 2:26]
    return (images.reshape(-1, 8, 3, 8, 3).mean((2, 4)) >= 128).astype(float).reshape(len(rows), 64), y[rows]


def newsgroups(rng: np.random.Generator, size: int = 30, words: int = 500) -> Subset:
    """Presence of the most informative words in `size` documents per group."""
    data = load("newsgroups4")
    rows = per_class(data.y, size, rng)
    return (data.X[np.ix_(rows, best_words(words))] > 0).astype(float), data.y[rows]


def newsgroup_words(rng: np.random.Generator, size: int) -> Subset:
    """Presence of 20 informative words in `size` documents per group, from the table that comes with the package."""
    data = load("newsgroups_words")
    rows = per_class(data.y, size, rng)
    return (data.X[rows] > 0).astype(float), data.y[rows]


def glass(rng: np.random.Generator, size: int = 107) -> Subset:
    """A random subset of the rows."""
    data = load("glass")
    rows = rng.permutation(len(data.y))[:size]
    return data.X[rows], data.y[rows]


def learned(kind: str, within: float = 0.25) -> Callable[[np.ndarray], None]:
    """A Dirichlet-process mixture with wide priors on the concentration and on the component's hyperparameters.

    Learning starts at the prior medians; `within` is the median share of a column's variance within clusters.
    """

    def model(X: np.ndarray) -> None:
        alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
        if kind == NORMAL:
            share = numpyro.sample("within", dist.LogNormal(np.log(within), 1.0))
            kappa = numpyro.sample("kappa", dist.LogNormal(np.log(0.1), 1.0))
            component = bnp.NormalInverseWishart.from_data(X, within=share, kappa=kappa, learn=False)
        else:
            strength = numpyro.sample("strength", dist.LogNormal(np.log(2.0), 1.0))
            component = bnp.BetaBernoulli.from_data(X, strength=strength, learn=False)
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, X.shape[0]))
        numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X)

    return model


def greedy_bhc(X: np.ndarray, kind: str) -> bnp.BHC:
    """The paper's tree at learned hyperparameters.

    On Gaussian data the first tree may be a single cluster, and learning then stays there. So there are two starts, with wide
    and with narrow clusters, and the fit with the higher evidence bound is returned.
    """
    starts = (0.25, 0.025) if kind == NORMAL else (0.25,)
    fits = [bnp.BHC(learned(kind, start), refine=None, optimize=True, progress_bar=False).fit(X) for start in starts]
    return max(fits, key=lambda fit: fit.log_evidence_bound_)


def linkage(X: np.ndarray, method: str) -> bnp.Dendrogram:
    """A classical linkage tree with Euclidean distances."""
    merges = scipy.cluster.hierarchy.linkage(X, method)
    return bnp.Dendrogram(merges[:, :2].astype(int), -merges[:, 2])

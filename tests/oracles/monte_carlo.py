"""Judging Markov chains: how far from exact may a chain of this effective size be?"""

from __future__ import annotations

import arviz as az
import numpy as np

from tests.oracles.partitions import Enumeration


def effective_draws(*series: np.ndarray) -> float:
    """Smallest bulk effective sample size of some scalar series of one chain, at most the number of draws."""
    values = [np.asarray(s, dtype=float) for s in series]
    sizes = [float(az.ess(value[None])) for value in values if np.ptp(value) > 0]
    return min([*sizes, len(values[0])])


def batch_means(series: np.ndarray, batches: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Means of some series of one chain, (s, m), and their standard errors from as many batches, taken as independent."""
    means = series[: len(series) // batches * batches].reshape(batches, -1, series.shape[1]).mean(1)
    return means.mean(0), means.std(0, ddof=1) / np.sqrt(batches)


def independent_total_variation(probabilities: np.ndarray, draws: int, seed: int = 0, repeats: int = 200) -> np.ndarray:
    """Total variation between a distribution and the frequencies of independent draws from it, `repeats` times."""
    counts = np.random.default_rng(seed).multinomial(draws, probabilities, size=repeats)
    return np.abs(counts / draws - probabilities).sum(1) / 2


def total_variation(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray) -> float:
    """Total variation between some probabilities of the partitions and the frequencies of canonical label draws, (s, n)."""
    drawn, counts = np.unique(labels, axis=0, return_counts=True)
    shares = np.zeros(len(exact.labels))
    shares[[exact.index[tuple(map(int, z))] for z in drawn]] = counts / counts.sum()
    return float(np.abs(shares - probabilities).sum() / 2)


def excess_variation(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray, *series: np.ndarray) -> float:
    """Total variation over the mean of that of as many independent draws as the chain's effective size.

    At these sizes 1.3 lies more than eight standard deviations of the independent draws above their mean.
    """
    observed = total_variation(labels, exact, probabilities)
    indicator = labels[:, :, None] == labels[:, None, :]
    together = [indicator[:, i, j] for i in range(exact.n) for j in range(i)]
    size = int(effective_draws(*series, *together))
    return float(observed / independent_total_variation(probabilities, size).mean())


def assert_exact(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray, *series: np.ndarray) -> None:
    """An excess of at most 1.3: the false-alarm rate is that of a badly estimated effective size, not of chance."""
    excess = excess_variation(labels, exact, probabilities, *series)
    assert excess <= 1.3, excess

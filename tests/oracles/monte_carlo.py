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


def independent_total_variation(probabilities: np.ndarray, draws: int, seed: int = 0, repeats: int = 200) -> np.ndarray:
    """Total variation between a distribution and the frequencies of independent draws from it, `repeats` times."""
    counts = np.random.default_rng(seed).multinomial(draws, probabilities, size=repeats)
    return np.abs(counts / draws - probabilities).sum(1) / 2


def assert_exact(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray, *series: np.ndarray) -> None:
    """Total variation at most 1.3 times that of as many independent draws as the chain's effective size.

    At these sizes the 1.3 lies more than eight standard deviations of the independent draws above their mean: the
    false-alarm rate is that of a badly estimated effective size, not of chance.
    """
    counts = np.zeros(len(exact.labels))
    for z in labels:
        counts[exact.index[tuple(z)]] += 1
    observed = np.abs(counts / counts.sum() - probabilities).sum() / 2
    indicator = labels[:, :, None] == labels[:, None, :]
    together = [indicator[:, i, j] for i in range(exact.n) for j in range(i)]
    size = int(effective_draws(*series, *together))
    reference = independent_total_variation(probabilities, size)
    assert observed <= 1.3 * reference.mean(), (observed, reference.mean(), size)

"""Judging Markov chains: how far from exact may a chain of this effective size be?"""

from __future__ import annotations

import arviz as az
import numpy as np


def effective_draws(*series: np.ndarray) -> float:
    """Smallest bulk effective sample size of some scalar series of one chain, at most the number of draws."""
    values = [np.asarray(s, dtype=float) for s in series]
    sizes = [float(az.ess(value[None])) for value in values if np.ptp(value) > 0]
    return min([*sizes, len(values[0])])


def independent_total_variation(probabilities: np.ndarray, draws: int, seed: int = 0, repeats: int = 200) -> np.ndarray:
    """Total variation between a distribution and the frequencies of independent draws from it, `repeats` times."""
    counts = np.random.default_rng(seed).multinomial(draws, probabilities, size=repeats)
    return np.abs(counts / draws - probabilities).sum(1) / 2

"""Credible balls hold the partition that the data came from as often as they say, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import bnp_hier as bnp
from tests.oracles.partitions import Enumeration

N, DATA_SETS, DRAWS = 6, 120, 400
SPREAD = 3.0
"""Standard deviation of cluster means; that of rows in a cluster is 1."""


def log_marginal(x: np.ndarray) -> float:
    """Rows of one cluster, their mean integrated out, up to what all partitions share."""
    widened = 1 + len(x) * SPREAD**2
    return float(SPREAD**2 * x.sum() ** 2 / widened - np.log(widened)) / 2


def distances(partitions: np.ndarray) -> dict[str, np.ndarray]:
    """Variation of information and Binder's loss between all partitions, from the matrices of pairs."""
    together = (partitions[:, :, None] == partitions[:, None, :]).astype(float)  # (p, n, n)
    sizes = np.log(together.sum(2))
    both = np.log(np.einsum("aij,bij->abi", together, together))
    vi = (sizes[:, None] + sizes[None] - 2 * both).mean(2)
    binder = (together[:, None] != together[None]).sum((2, 3)) / (N * (N - 1))
    return {"vi": vi, "binder": binder}


@pytest.mark.optimised
@pytest.mark.slow
def test_coverage() -> None:
    """Partition and data from the model, the exact posterior, a ball from draws of it.

    The true partition lies in at least the stated share of the balls (binomial, false alarms below 1 in 1,000 for each of
    six; more than the share is no error: balls of discrete draws are wide), and in as many as their exact posterior
    probabilities say (4 standard deviations: false alarms below 1 in 10,000).
    """
    rng = np.random.default_rng(0)
    prior = Enumeration(N, lambda rows: 0.0, 1.0)
    partitions = np.array(prior.labels)
    losses = distances(partitions)
    levels = (0.5, 0.8, 0.95)
    covered, mass = np.zeros((DATA_SETS, 2, 3), bool), np.zeros((DATA_SETS, 2, 3))
    for t in range(DATA_SETS):
        truth = rng.choice(len(partitions), p=prior.probabilities)
        x = rng.normal(0.0, SPREAD, N)[partitions[truth]] + rng.normal(size=N)
        posterior = Enumeration(N, lambda rows, x=x: log_marginal(x[rows]), 1.0).probabilities
        draws = partitions[rng.choice(len(partitions), size=DRAWS, p=posterior)]
        for i, (loss, distance) in enumerate(losses.items()):
            center = int((distance @ posterior).argmin())
            for j, level in enumerate(levels):
                inside = distance[center] <= bnp.credible_ball(draws, partitions[center], level, loss).radius + 1e-9
                covered[t, i, j], mass[t, i, j] = inside[truth], posterior[inside].sum()
    assert (covered.sum(0) >= binom.ppf(1e-3, DATA_SETS, levels)).all(), covered.mean(0)
    assert (np.abs(covered.sum(0) - mass.sum(0)) < 4 * np.sqrt((mass * (1 - mass)).sum(0))).all()
    # not so wide that they say nothing: a ball of all partitions has mass one
    assert (mass.mean(0) < [0.85, 0.95, 0.995]).all(), mass.mean(0)

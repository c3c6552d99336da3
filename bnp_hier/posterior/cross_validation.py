"""Leave-one-out cross-validation from partition draws, with labels summed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["LeaveOneOut", "importance_leave_one_out", "standard_error"]


FEWEST_WEIGHTS = 25
"""Number of draws below which the tail of the weights, a fifth of them, has too few for a Pareto distribution."""

TIES = 0.1
"""Share of the mean weight by which equal weights, and weights that differ by less, are spread before the Pareto fit."""


class LeaveOneOut(NamedTuple):
    """Leave-one-out log predictive densities by importance sampling (nats).

    - **elpd_i** - (n,) log predictive density of each row.
    - **p_i** - (n,) log predictive density of the row under the full posterior minus `elpd_i`.
    - **mcse_i** - (n,) Monte Carlo standard error; NaN for chains of fewer than four draws. Too small where `pareto_k` exceeds
      `good_k`: few draws have much of the weight, so that their number, and the error, are poorly known.
    - **kish_i** - (n,) Kish effective share of the draws, in (0, 1].
    - **mcse** - Monte Carlo standard error of the sum of `elpd_i`; it accounts for the draws shared by all rows.
    - **pareto_k** - (n,) shape of the generalised Pareto distribution of the largest weights; NaN for fewer than 25 draws.
    - **good_k** - min(1 − 1/log₁₀ S, 0.7) for S draws, up to which `pareto_k` is good (Vehtari et al. 2024).
    """

    elpd_i: Float[np.ndarray, " n"]
    p_i: Float[np.ndarray, " n"]
    mcse_i: Float[np.ndarray, " n"]
    kish_i: Float[np.ndarray, " n"]
    mcse: float
    pareto_k: Float[np.ndarray, " n"]
    good_k: float


def importance_leave_one_out(
    log_likelihood: Float[np.ndarray, "chain draw n"],
    ess: Callable[[Float[np.ndarray, "chain draw m"]], Float[np.ndarray, " m"]],
    pareto_k: Callable[[Float[np.ndarray, "m s"]], Float[np.ndarray, " m"]],
) -> LeaveOneOut:
    """Estimate the log density of each row given the others as −log mean exp(−log_likelihood).

    The estimate is consistent as the number of draws grows, since p(z_−i | x) ∝ p(z_−i | x_−i) p(x_i | z_−i, x_−i). The
    weights are bounded, so plain importance sampling suffices.

    Parameters
    ----------
    log_likelihood
        log p(x_i | z_−i, x_−i) for every draw, with the label of row i summed out.
    ess
        Function that returns the effective sample sizes of the means of m variables.
    pareto_k
        Function that returns the shapes of the generalised Pareto distributions of the largest of s weights, given their logs.

    Notes
    -----
    Discrete labels make many weights equal, which no Pareto distribution fits. They are spread by a tenth of the mean weight
    first, which hardly changes the mean of the weights, but separates a few draws of large weight from many. Large weights
    that no draw has leave no trace in k, nor in any other diagnostic of the draws.
    """
    chains, length, n = log_likelihood.shape
    flat = log_likelihood.reshape(-1, n)
    s = len(flat)
    log_mean = np.logaddexp.reduce(-flat, axis=0) - np.log(s)
    weight = np.exp(-flat - log_mean)  # mean 1
    lppd = np.logaddexp.reduce(flat, axis=0) - np.log(s)

    def error(draws: Float[np.ndarray, "s m"]) -> Float[np.ndarray, " m"]:
        """Standard errors of the means."""
        if length < 4:
            return np.full(draws.shape[1], np.nan)
        return draws.std(axis=0, ddof=1) / np.sqrt(ess(draws.reshape(chains, length, -1)))

    total = float(error(weight.sum(axis=1, keepdims=True))[0])
    kish = 1.0 / (weight**2).mean(axis=0)
    if s < FEWEST_WEIGHTS:
        return LeaveOneOut(-log_mean, lppd + log_mean, error(weight), kish, total, np.full(n, np.nan), np.nan)
    spread = weight + TIES * np.random.default_rng(0).random((s, 1))
    good = min(1.0 - 1.0 / float(np.log10(s)), 0.7)
    return LeaveOneOut(-log_mean, lppd + log_mean, error(weight), kish, total, pareto_k(np.log(spread.T)), good)


def standard_error(pointwise: Float[np.ndarray, " n"]) -> float:
    """Standard error of the sum of pointwise log densities, or of their differences, treating the rows as a sample."""
    return float(np.sqrt(len(pointwise) * pointwise.var()))

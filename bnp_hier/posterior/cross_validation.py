"""Leave-one-out cross-validation from draws of partitions, labels summed out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["LeaveOneOut", "importance_leave_one_out"]


class LeaveOneOut(NamedTuple):
    """Leave-one-out log predictive densities by importance sampling (nats).

    - **elpd_i** - (n,) of each row.
    - **p_i** - (n,) by how much the density of the row given all draws is higher.
    - **mcse_i** - (n,) Monte Carlo standard error; NaN for fewer than four draws.
    - **kish_i** - (n,) Kish effective share of the draws, in (0, 1].
    """

    elpd_i: Float[np.ndarray, " n"]
    p_i: Float[np.ndarray, " n"]
    mcse_i: Float[np.ndarray, " n"]
    kish_i: Float[np.ndarray, " n"]


def importance_leave_one_out(log_likelihood: Float[np.ndarray, "chain draw n"], ess: Float[np.ndarray, " n"]) -> LeaveOneOut:
    """Densities of rows given the others, −log mean exp(−log_likelihood).

    Exact as the draws grow, since p(z_−i | x) ∝ p(z_−i | x_−i) p(x_i | z_−i, x_−i); the weights are bounded, and plain
    importance sampling does.

    Parameters
    ----------
    log_likelihood
        log p(x_i | z_−i, x_−i) of every draw, the label of row i summed out.
    ess
        (n,) effective sample size of the mean of exp(−log_likelihood).
    """
    flat = log_likelihood.reshape(-1, log_likelihood.shape[-1])
    s = len(flat)
    log_mean = np.logaddexp.reduce(-flat, axis=0) - np.log(s)
    weight = np.exp(-flat - log_mean)  # mean 1
    lppd = np.logaddexp.reduce(flat, axis=0) - np.log(s)
    spread = weight.std(axis=0, ddof=1) if s > 3 else np.full(flat.shape[1], np.nan)
    return LeaveOneOut(-log_mean, lppd + log_mean, spread / np.sqrt(ess), 1.0 / (weight**2).mean(axis=0))

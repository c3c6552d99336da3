"""Warnings about fits with learned hyperparameters."""

from __future__ import annotations

import warnings

import numpy as np

from bnp_hier.inspection.problem import Problem

__all__ = ["warn_of_edges", "warn_of_one_cluster"]

FAR = 1e-6
"""Prior probability of a tail in which a learned value counts as being at the edge: almost five standard deviations."""

FEWEST = 20
"""Rows below which a single cluster is no surprise."""


def warn_of_edges(problem: Problem) -> None:
    """Warn if learned values lie far in a tail of a prior, where the prior contradicts the data or holds them back.

    Bounded hyperparameters, such as shares, may lie at a bound; priors without a distribution function are left out.
    """
    for name, tail in problem.prior.tails(problem.hyperparameters).items():
        far = np.flatnonzero(np.atleast_1d(tail) < FAR)
        if len(far):
            value = np.atleast_1d(np.asarray(problem.hyperparameters[name])).ravel()
            where = f" (entries {', '.join(map(str, far[:5]))}{', ...' if len(far) > 5 else ''})" if value.size > 1 else ""
            shown = ", ".join(f"{value[k]:.3g}" for k in far[:5])
            warnings.warn(
                f"the learned {name}{where} is {shown}, at the edge of its prior: check the scale of the data, or give this "
                "hyperparameter a wider prior",
                RuntimeWarning,
                stacklevel=4,
            )


def warn_of_one_cluster(rows: int) -> None:
    """Warn that all rows are in one cluster: clusters may overlap too much, or the model be the wrong one to see them."""
    if rows < FEWEST:
        return
    warnings.warn(
        f"all {rows} rows are in one cluster: no more probable partition was found at the learned hyperparameters. Clusters "
        "that overlap or have the same shape may show under another covariance structure (bnp_hier.recommend compares some) or "
        "in the posterior (bnp_hier.PartitionGibbs)",
        UserWarning,
        stacklevel=4,
    )

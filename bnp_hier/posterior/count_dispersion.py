"""Whether counts vary more within clusters than Poisson counts do."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

__all__ = ["dispersion_within"]

LEAST_MEAN = 0.5
"""Mean of a cluster's counts below which its variance says little; such clusters are left out."""


def dispersion_within(X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " d"]:
    """Index of dispersion within clusters, for each column of counts: about 1 for Poisson counts, more if over-dispersed.

    Pearson's statistic Σ (x − m)² / m over its degrees of freedom, where m is the mean of the row's cluster in the column;
    missing values are left out. NaN if no cluster has two rows and a mean of at least one half.

    Parameters
    ----------
    X
        Counts, (n, d).
    labels
        (n,) labels of the partition, from 0.
    """
    total, freedom = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for k in range(int(labels.max()) + 1):
        rows = X[labels == k]
        count = (~np.isnan(rows)).sum(0)
        mean = np.nansum(rows, axis=0) / np.maximum(count, 1)
        used = (count > 1) & (mean >= LEAST_MEAN)
        pearson = np.nansum((rows - mean) ** 2, axis=0) / np.where(used, mean, 1.0)
        total += np.where(used, pearson, 0.0)
        freedom += np.where(used, count - 1, 0)
    return np.where(freedom > 0, total / np.maximum(freedom, 1), np.nan)

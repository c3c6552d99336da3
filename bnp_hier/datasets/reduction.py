"""Dimension reduction by principal components."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bnp_hier.utils.arrays import as_matrix, first_cell

__all__ = ["principal_components"]


def principal_components(X: ArrayLike, n_components: int | None = None) -> Float[np.ndarray, "n k"]:
    """Compute the scores of the rows on the first principal components; columns are centred but not scaled.

    Parameters
    ----------
    X
        Rows, (n, d), without missing values.
    n_components
        Number of components. None keeps those whose singular values exceed the optimal hard threshold for unknown noise level,
        ω(β) times the median singular value, where ω(β) ≈ 0.56β³ − 0.95β² + 1.82β + 1.43 and β ≤ 1 is the ratio of the two
        dimensions of X (Gavish & Donoho 2014); at least one component is kept.

    Returns
    -------
    scores
        (n, k), in order of decreasing variance; signs are such that the entry of largest magnitude in each column is positive.

    Raises
    ------
    ValueError
        If `n_components` is not a whole number from 1 to min(n − 1, d), X has a single row, or a value is missing or infinite.

    Examples
    --------
    >>> from bnp_hier.datasets import load, principal_components
    >>> principal_components(load("iris").X, n_components=2).shape
    (150, 2)
    """
    X = as_matrix(X)
    n, d = X.shape
    most = min(n - 1, d)
    if n_components is not None and (n_components != int(n_components) or not 1 <= n_components <= most):
        raise ValueError(
            f"n_components must be a whole number from 1 to min(n - 1, d) = {most}, as X has {n} rows and {d} columns, "
            f"but it is {n_components}"
        )
    if most < 1:
        raise ValueError("principal components need at least two rows, but X has one")
    if not np.isfinite(X).all():
        raise ValueError(f"X has a missing or infinite value at {first_cell(~np.isfinite(X))}; expected finite numbers")
    left, values, _ = np.linalg.svd(X - X.mean(0), full_matrices=False)
    if n_components is None:
        ratio = min(n, d) / max(n, d)
        limit = (0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43) * np.median(values)
        n_components = int(np.clip((values > limit).sum(), 1, most))
    scores = (left * values)[:, : int(n_components)]
    signs = np.sign(scores[np.abs(scores).argmax(0), np.arange(scores.shape[1])])
    return scores * np.where(signs == 0, 1.0, signs)

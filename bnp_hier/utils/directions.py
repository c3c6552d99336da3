"""The direction in which rows vary most."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from jaxtyping import Float

__all__ = ["principal_axis"]


def principal_axis(centred: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " d"]:
    """Unit vector along which centred rows have the largest sum of squares; its largest coordinate is positive.

    It is found from the smaller of the two products of the matrix with itself. It is as precise as that of a singular value
    decomposition only if the largest singular value is well apart from the next.
    """
    n, d = centred.shape
    largest = np.abs(centred).max(initial=0.0)
    if d == 1 or largest == 0.0:
        return np.eye(1, d)[0]
    scaled = centred / largest  # its squares neither overflow nor underflow
    product = scaled @ scaled.T if n < d else scaled.T @ scaled
    last = len(product) - 1
    vector = scipy.linalg.eigh(product, subset_by_index=[last, last])[1][:, 0]
    axis = scaled.T @ vector if n < d else vector
    return axis / np.copysign(np.linalg.norm(axis), axis[np.abs(axis).argmax()])

"""Cholesky factors of small symmetric positive-definite matrices, stored flat, row after row."""

from __future__ import annotations

import math

from bnp_hier.native.memory import separate

__all__ = ["invert"]


@separate
def invert(matrix, d):
    """Replace a matrix by its inverse, and return its log determinant; NaN if it is not positive definite."""
    log_det = 0.0
    for j in range(d):  # the lower Cholesky factor
        for i in range(j, d):
            value = matrix[i * d + j]
            for k in range(j):
                value -= matrix[i * d + k] * matrix[j * d + k]
            matrix[i * d + j] = math.sqrt(value) if i == j else value / matrix[j * d + j]
        log_det += math.log(matrix[j * d + j])
    for j in range(d):  # its inverse
        matrix[j * d + j] = 1.0 / matrix[j * d + j]
        for i in range(j + 1, d):
            value = 0.0
            for k in range(j, i):
                value -= matrix[i * d + k] * matrix[k * d + j]
            matrix[i * d + j] = value / matrix[i * d + i]
    for i in range(d):  # the product of the inverse factors, first above the diagonal
        for j in range(i, d):
            value = 0.0
            for k in range(j, d):
                value += matrix[k * d + i] * matrix[k * d + j]
            if i == j:
                matrix[i * d + i] = value
            else:
                matrix[i * d + j] = value
    for i in range(d):
        for j in range(i):
            matrix[i * d + j] = matrix[j * d + i]
    return 2.0 * log_det

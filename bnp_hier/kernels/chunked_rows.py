"""Passes over all rows by matrix products, one chunk of rows at a time: the features of all rows are never stored at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bnp_hier.components.base import Statistics
from bnp_hier.partitions.row_features import Features, coefficients_of
from bnp_hier.utils.row_chunks import PARTS, in_chunks, which_are_rows

__all__ = [
    "Coefficients",
    "RowChunks",
    "counts_of",
    "linear_scores",
    "row_chunks",
    "row_scores",
    "sums_of",
]


class RowChunks(NamedTuple):
    """A table in chunks.

    - **X** - (chunks, rows per chunk, d), padded with copies of the first row.
    - **there** - (chunks, rows per chunk) whether the entry is a row of the table.
    """

    X: Float[Array, "b c d"]
    there: Bool[Array, "b c"]


class Coefficients(NamedTuple):
    """A linear function of a row's features, for each of k clusters.

    - **linear** - (f, k) coefficients of the features.
    - **constant** - (k,) constants.
    """

    linear: Float[Array, "f k"]
    constant: Float[Array, " k"]


def row_chunks(X: Float[Array, "n d"]) -> RowChunks:
    """Arrange the table in chunks."""
    return RowChunks(in_chunks(X), which_are_rows(X.shape[0]))


def linear_scores(natural: Statistics, constant: Float[Array, " k"], features: Features, dtype: Any) -> Coefficients:
    """Express ⟨natural, suff_stats(x)⟩ + constant in terms of the features; leaves of `natural` have leading dimension k."""
    return Coefficients(coefficients_of(natural, features).astype(dtype), constant.astype(dtype))


def row_scores(phi: Float[Array, "c f"], coefficients: Coefficients) -> Float[Array, "c k"]:
    """Evaluate the linear functions at the features of some rows."""
    return jnp.matmul(phi, coefficients.linear, precision="highest") + coefficients.constant[None]


def sums_of(weight: Float[Array, "c k"], phi: Float[Array, "c f"]) -> Float[Array, "parts k f"]:
    """Weighted sums of the rows' features for each of k clusters, by part; `totals` adds them."""
    parts = (array.reshape(PARTS, -1, array.shape[1]) for array in (weight, phi))
    return jnp.einsum("pck,pcf->pkf", *parts, precision="highest").astype(jnp.result_type(float))


def counts_of(weight: Float[Array, "c k"]) -> Float[Array, "parts k"]:
    """Sums of the weights for each of k clusters, by part."""
    return weight.reshape(PARTS, -1, weight.shape[1]).astype(jnp.result_type(float)).sum(1)

"""Priors derived from tables whose rows are distributed over devices or processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from bnp_hier.components.learned import LearnedPrior
from bnp_hier.utils.arrays import split_arrays
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.sharded_arrays import stays_on_device, without_explicit_axes

__all__ = ["derived_from_all_rows", "from_distributed_rows"]

BITS = 40
"""Bits of the numbers of a prior that are kept, so that the order in which devices sum their rows makes no difference."""


def derived_from_all_rows(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a family's `from_data`, so that a distributed or large table is reduced on the devices where its rows are."""

    @wraps(method)
    def from_data(cls: type, X: Any, *args: Any, **options: Any) -> Any:
        if stays_on_device(X):
            return from_distributed_rows(lambda X: method(cls, X, *args, **options), X)
        return method(cls, X, *args, **options)

    return from_data


def from_distributed_rows(derive: Callable[[Any], Any], X: Array) -> Any:
    """Apply a function of a table that returns a prior to a distributed table, without moving rows.

    Every process must call this. Rows without any value are ignored.

    Returns
    -------
    prior
        `LearnedPrior` or component, with NumPy arrays that are the same in all processes.

    Raises
    ------
    ValueError
        If the rows have infinite values or constant columns, or too few are complete.
    """
    X = without_explicit_axes(X)
    found: list[tuple[Any, Any]] = []

    def arrays_of(X: Array) -> list[Array]:
        prior = derive(X.astype(float))
        build: Any = prior.build if isinstance(prior, LearnedPrior) else None
        tree = prior if build is None else (build.args, build.keywords)
        arrays, fill, _ = split_arrays(tree)
        found.append((prior, fill))
        return arrays

    with double_precision():
        everywhere = NamedSharding(X.sharding.mesh, PartitionSpec()) if isinstance(X.sharding, NamedSharding) else None
        arrays = [_rounded(np.asarray(array)) for array in jax.jit(arrays_of, out_shardings=everywhere)(X)]
    if not all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f"):
        raise ValueError(
            f"no prior can be derived from the {X.shape[0]} rows of X: they have infinite values, constant columns, or too few "
            "complete rows"
        )
    prior, fill = found[0]
    if not isinstance(prior, LearnedPrior):
        return fill(arrays)
    args, keywords = fill(arrays)
    build: Any = prior.build
    return replace(prior, build=partial(build.func, *args, **keywords))


def _rounded(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    mantissa, exponent = np.frexp(array)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, BITS)), exponent - BITS))

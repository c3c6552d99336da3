"""Helpers for rows that are distributed over several processes, each of which runs the same program.

Start the processes with `jax.distributed.initialize`, and make a table of the rows that each of them has with
`jax.make_array_from_process_local_data`. `ParallelSplitMerge` samples its partition like that of any other table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int

from bnp_hier.components import Component, LearnedPrior
from bnp_hier.kernels.base import split_arrays
from bnp_hier.kernels.spread_rows import replicated, spread_arguments

__all__ = ["from_data", "gather_labels"]


def from_data(family: type[Component], X: Array, **options: Any) -> Any:
    """Derive a prior from all rows of a distributed table, as the family's `from_data` does, without moving rows.

    Sums over rows are computed where the rows are; every process must call this, and all of them get the same prior.

    Parameters
    ----------
    family
        The family, such as `NormalInverseWishart`.
    X
        The table, (n, d), distributed along its first dimension.
    **options
        Options of its `from_data`.

    Returns
    -------
    component
        `LearnedPrior`, or a component if `learn` is False, with NumPy arrays.
    """
    (X,) = spread_arguments((X,), None).args
    if not isinstance(X.sharding, NamedSharding):
        return family.from_data(X, **options)
    found: list[tuple[Any, Any]] = []

    def arrays_of(X: Array) -> list[Array]:
        prior = family.from_data(X, **options)
        build: Any = prior.build if isinstance(prior, LearnedPrior) else None
        tree = prior if build is None else (build.args, build.keywords)
        arrays, fill, _ = split_arrays(tree)
        found.append((prior, fill))
        return arrays

    with jax.enable_x64(True):
        everywhere = NamedSharding(X.sharding.mesh, PartitionSpec())
        arrays = [np.asarray(array) for array in jax.jit(arrays_of, out_shardings=everywhere)(X)]
    prior, fill = found[0]
    if not isinstance(prior, LearnedPrior):
        return fill(arrays)
    args, keywords = fill(arrays)
    build: Any = prior.build
    return replace(prior, build=partial(build.func, *args, **keywords))


def gather_labels(labels: Array) -> Int[np.ndarray, "... n"]:
    """Return labels that are distributed over processes, as NumPy; every process must call this, and all get all labels.

    Parameters
    ----------
    labels
        Labels of one or several draws, such as ``mcmc.get_samples()["z"]``; arrays that are not distributed are allowed.
    """
    return replicated(labels)

"""Operations of a native family, and calls of them by address, so that an algorithm is compiled once for all families.

A family is a module with one function per operation. They work on flat float64 memory, given by address; `work` is what
`prepare` computes from the hyperparameters (`constants`), and d is the number of columns. Statistics have the layout of the
component's `suff_stats`, one leaf after the other.

- ``lengths(d, out)``: lengths of the statistics and of the cache of a cluster.
- ``rows(constants, d, X, ldx, columns, n, out, ldo)``: statistics of n rows, from the given columns of X.
- ``size(constants, d, n, total, tabulate, out)``: length of `work`, for clusters of at most n rows. `total` are the statistics
  of all rows; `tabulate` is 1 if log marginals of many clusters will be computed.
- ``prepare(constants, d, n, total, tabulate, work)``: fill `work`.
- ``refresh(work, d, stats, cache)``: compute the cache of a cluster from its statistics.
- ``update(work, d, cache, row, sign)``: update the cache after a row has been added (1) or removed (−1).
- ``predict(work, d, caches, ldc, k, row, out)``: add the log predictive densities of a row in k clusters to `out`.
- ``marginals(work, d, stats, lds, m, out)``: add the log marginal likelihoods of m clusters to `out`.
- ``features(work, d, stats, out)``: compute what `joined` needs of a cluster; as long as the statistics, and additive.
- ``joined(work, d, features, ldf, m, one, out)``: add the log marginal likelihoods of the unions of m clusters with another one
  to `out`. The clusters are the last axis of the first features, of which each has m values, `ldf` apart.
"""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from bnp_hier.native.memory import by_address, compiled
from bnp_hier.native.names import OPERATIONS
from bnp_hier.native.registry import OPERATION_ADDRESSES

__all__ = [
    "ARGUMENTS",
    "call_features",
    "call_joined",
    "call_lengths",
    "call_marginals",
    "call_predict",
    "call_prepare",
    "call_refresh",
    "call_rows",
    "call_size",
    "call_update",
    "operation",
]

_WHOLE, _REAL = types.intp, types.float64

ARGUMENTS = {
    "lengths": (_WHOLE,) * 2,
    "rows": (_WHOLE,) * 8,
    "size": (_WHOLE,) * 6,
    "prepare": (_WHOLE,) * 6,
    "refresh": (_WHOLE,) * 4,
    "update": (_WHOLE,) * 4 + (_REAL,),
    "predict": (_WHOLE,) * 7,
    "marginals": (_WHOLE,) * 6,
    "features": (_WHOLE,) * 4,
    "joined": (_WHOLE,) * 7,
}
"""Types of the arguments of every operation."""

LENGTHS, ROWS, SIZE, PREPARE, REFRESH, UPDATE, PREDICT, MARGINALS, FEATURES, JOINED = range(10)
NUMBER = len(OPERATIONS)

_read_address = OPERATION_ADDRESSES.read


@compiled
def operation(family, place):
    """Address of an operation of a family."""
    return _read_address(family * NUMBER + place)


@intrinsic
def call_lengths(typing_context, address, d, out):
    """Call `lengths`."""
    return by_address(ARGUMENTS["lengths"])


@intrinsic
def call_rows(typing_context, address, constants, d, X, ldx, columns, n, out, ldo):
    """Call `rows`."""
    return by_address(ARGUMENTS["rows"])


@intrinsic
def call_size(typing_context, address, constants, d, n, total, tabulate, out):
    """Call `size`."""
    return by_address(ARGUMENTS["size"])


@intrinsic
def call_prepare(typing_context, address, constants, d, n, total, tabulate, work):
    """Call `prepare`."""
    return by_address(ARGUMENTS["prepare"])


@intrinsic
def call_refresh(typing_context, address, work, d, stats, cache):
    """Call `refresh`."""
    return by_address(ARGUMENTS["refresh"])


@intrinsic
def call_update(typing_context, address, work, d, cache, row, sign):
    """Call `update`."""
    return by_address(ARGUMENTS["update"])


@intrinsic
def call_predict(typing_context, address, work, d, caches, ldc, k, row, out):
    """Call `predict`."""
    return by_address(ARGUMENTS["predict"])


@intrinsic
def call_marginals(typing_context, address, work, d, stats, lds, m, out):
    """Call `marginals`."""
    return by_address(ARGUMENTS["marginals"])


@intrinsic
def call_features(typing_context, address, work, d, stats, out):
    """Call `features`."""
    return by_address(ARGUMENTS["features"])


@intrinsic
def call_joined(typing_context, address, work, d, features, ldf, m, one, out):
    """Call `joined`."""
    return by_address(ARGUMENTS["joined"])

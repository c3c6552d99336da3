"""The number of threads of NumPy's and SciPy's linear algebra, which XLA uses too."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

from bnp_hier.utils.common_contexts import reference_counted

__all__ = ["blas_on_one_core"]


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@reference_counted
@contextmanager
def blas_on_one_core() -> Iterator[None]:
    """Use one thread for products and factorisations of matrices.

    For a handful of numbers, or matrices of some columns, more threads only wait for each other, and for other processes, which
    `tests/benchmarks/test_blas_threads.py` measures.
    """
    with ThreadPoolExecutor(1) as thread:  # as long as a thread that has set a limit lives, threadpoolctl heeds no other
        limits = thread.submit(_blas().limit, limits=1).result()
    with limits:
        yield

"""Compile all kernels ahead of the first use."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import partial
from importlib import import_module

from tqdm import tqdm

import bnp_hier.native
from bnp_hier.native.availability import calls_arrive
from bnp_hier.native.bridge import Kernel, load_family
from bnp_hier.native.names import FAMILIES

__all__ = ["compile_kernels", "kernels"]


def kernels() -> Iterator[Kernel]:
    """Yield all kernels of the package."""
    for module in pkgutil.iter_modules(bnp_hier.native.__path__):
        for value in vars(import_module(f"bnp_hier.native.{module.name}")).values():
            if isinstance(value, Kernel):
                yield value


def compile_kernels(progress_bar: bool = True) -> int:
    """Compile all kernels and families that are not on disk yet, and load the others.

    Returns
    -------
    count
        Number of kernels; 0 if they cannot run here.
    """
    if not calls_arrive():
        return 0
    every = dict.fromkeys(kernels())
    steps = [partial(load_family, family) for family in range(len(FAMILIES))] + [kernel.load for kernel in every]
    for step in tqdm(steps, desc="kernels", disable=not progress_bar, leave=False):
        step()
    return len(every)

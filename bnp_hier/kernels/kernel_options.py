"""The constructor arguments of a kernel."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpyro.infer import Gibbs
from numpyro.infer.mcmc import MCMCKernel

__all__ = ["constructor_options", "described_options"]

_START = ("init", "init_strategy")
"""Options that matter only at the start of a run."""


def constructor_options(kernel: MCMCKernel) -> dict[str, Any]:
    """Return the arguments other than the model: `type(kernel)(model, **options)` is an equal kernel; `Gibbs` has no model."""
    if isinstance(kernel, Gibbs):
        return {"blocks": [tuple(block) for block in kernel.blocks]}
    own = getattr(kernel, "constructor_options", None)
    if own is not None:
        return dict(own)
    # NumPyro's kernels store an argument under its name, possibly with a leading underscore
    found = {}
    for name, argument in inspect.signature(type(kernel).__init__).parameters.items():
        value = getattr(kernel, name, getattr(kernel, f"_{name}", inspect.Parameter.empty))
        if name not in ("self", "model") and value is not inspect.Parameter.empty:
            found[name] = argument.default if _is_default(value, argument.default) else value
    return found


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value is the one that NumPyro's HMC substitutes for None."""
    return default is None and getattr(value, "__name__", "") == "euclidean_kinetic_energy"


def described_options(kernel: MCMCKernel) -> dict[str, str]:
    """Describe the arguments of a kernel and of its blocks as strings, without those that matter only at the start."""
    return {"kernel": type(kernel).__name__, **dict(_described(kernel, type(kernel).__name__))}


def _described(kernel: MCMCKernel, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(kernel, Gibbs):
        yield f"{place}.blocks", ", ".join(type(block).__name__ for block, _ in kernel.blocks)
        for i, (block, sites) in enumerate(kernel.blocks):
            yield f"{place}.sites[{i}]", _words(sites)
            yield from _described(block, type(block).__name__)
        return
    for name, value in constructor_options(kernel).items():
        if name not in _START:
            yield f"{place}.{name}", _words(value)


def _words(value: Any) -> str:
    if isinstance(value, functools.partial):
        return f"{_words(value.func)}{value.args}{value.keywords}"
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, float | np.floating):
        return f"{float(value):.9g}"
    return " ".join(str(value).split())

"""Conversion of fits, models and kernels to arrays and JSON and back, without storing or executing code."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import HMC, Gibbs, initialization
from numpyro.infer.mcmc import MCMCKernel
from sklearn.base import BaseEstimator

from bnp_hier import models
from bnp_hier.components import Component
from bnp_hier.components.learned import BUILDERS
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.base import ModelKernel
from bnp_hier.kernels.kernel_options import constructor_options
from bnp_hier.models import MixtureModel

__all__ = ["NotPlainError", "decode", "encode", "encode_model", "register_type", "types_of"]

_PACKAGES = ("bnp_hier", "numpyro")
"""Packages whose types can be looked up by name."""

_STARTS = ("init_to_feasible", "init_to_mean", "init_to_median", "init_to_sample", "init_to_uniform")
"""NumPyro's initialisation functions that options may contain."""


_REGISTERED: dict[str, type] = {}
"""Registered types from other packages, by name."""


def register_type(cls: type) -> None:
    """Register a type from another package by module and name, so that `decode` can rebuild its objects."""
    _REGISTERED[_type_name(cls)] = cls


class NotPlainError(ValueError):
    """Raised for an object that cannot be looked up by name, such as a user-defined function or class."""


def _type_name(cls: type | Callable[..., Any]) -> str:
    """Module and qualified name, separated by a colon."""
    return f"{cls.__module__}:{cls.__qualname__}"


# ---- writing --------------------------------------------------------------------------------------------------------------


def encode(value: Any, arrays: dict[str, Any], own_types: bool = False) -> Any:
    """Convert a value to JSON from which `decode` rebuilds it; arrays are added to `arrays` and referred to by name.

    `own_types` allows only objects of types of the package and of NumPyro.

    Raises
    ------
    NotPlainError
        If it contains a function that is neither a model of the package nor one of NumPyro's initialisation functions, or an
        object of an unsupported type.
    """

    def one(value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str) and type(value) in (bool, int, float, str):
            return value
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return _array(value)
        if isinstance(value, list):
            return [one(part) for part in value]
        if isinstance(value, Mapping):
            return {"is": "dict", "items": [[one(name), one(part)] for name, part in value.items()]}
        if isinstance(value, functools.partial):
            return {"is": "partial", "of": one(value.func), "args": one(value.args), "keywords": one(value.keywords)}
        if isinstance(value, MixtureModel):
            return {"is": "mixture", "settings": one(value.get_params())}
        if isinstance(value, dist.Distribution):
            return {"is": "distribution", "type": _distribution_name(value), "parameters": one(_parameters(value))}
        if isinstance(value, type):
            return {"is": "type", "name": _type_name(value)}
        if isinstance(value, MCMCKernel):
            return {"is": "kernel", "type": _kernel_name(value), "options": one(constructor_options(value))}
        if inspect.isfunction(value):
            return {"is": "function", "name": _function_name(value)}
        if type(value) is tuple:
            return {"is": "tuple", "items": [one(part) for part in value]}
        name = _type_name(type(value))
        if own_types and not _is_own(name):
            raise NotPlainError(f"{name} is not part of the package")
        return {"is": "object", "type": name, "state": one(_state(value))}

    def _array(value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray) and value.dtype == object:
            return {"is": "objects", "items": [one(item) for item in value.ravel().tolist()], "shape": list(value.shape)}
        kind = "jax" if isinstance(value, jax.Array) else "scalar" if isinstance(value, np.generic) else "numpy"
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"is": "array", "name": name, "kind": kind}

    return one(value)


def encode_model(model: Model, arrays: dict[str, Any]) -> Any:
    """Apply `encode` to a model of the package with its arguments and components; return None for user-defined models."""
    own = dict(arrays)
    try:
        written = encode(model, own, own_types=True)
    except NotPlainError:
        return None
    arrays.update(own)
    return written


def _is_own(name: str) -> bool:
    """Whether a type with this name is one of the package or of NumPyro."""
    return name.replace(":", ".").partition(".")[0] in _PACKAGES


def _function_name(function: Callable[..., Any]) -> str:
    name = function.__name__
    if BUILDERS.get(name) is function:
        return f"components:{name}"
    if getattr(models, name, None) is function:
        return f"models:{name}"
    if name in _STARTS and getattr(initialization, name) is function:
        return f"initialization:{name}"
    raise NotPlainError(f"the function {function.__module__}.{function.__qualname__} is not one of bnp_hier.models")


def _parameters(distribution: dist.Distribution) -> dict[str, Any]:
    """Arguments of the constructor: of some distributions, those that are not parameters as well."""
    others = {dist.TwoSidedTruncatedDistribution: "base_dist", dist.LKJCholesky: "dimension"}.get(type(distribution))
    return {**distribution.get_args(), **({} if others is None else {others: getattr(distribution, others)})}


def _distribution_name(distribution: dist.Distribution) -> str:
    name = type(distribution).__name__
    if getattr(dist, name, None) is not type(distribution) or set(distribution.get_args()) != set(distribution.arg_constraints):
        raise NotPlainError(f"{type(distribution).__module__}.{name} is not a plain NumPyro distribution")
    return name


def _kernel_name(kernel: MCMCKernel) -> str:
    if not _is_own(_type_name(type(kernel))) or not isinstance(kernel, ModelKernel | Gibbs | HMC):
        raise NotPlainError(f"the kernel {_type_name(type(kernel))} is unknown")
    return _type_name(type(kernel))


def _state(value: Any) -> dict[str, Any]:
    """The contents of an object of a type that can be rebuilt."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, BaseEstimator):
        return {name: part for name, part in value.__getstate__().items() if name != "model"}
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    raise NotPlainError(f"an object of type {_type_name(type(value))} cannot be saved as plain data")


# ---- reading --------------------------------------------------------------------------------------------------------------


def decode(written: Any, arrays: Mapping[str, Any], known: Mapping[str, type] | None = None, model: Model | None = None) -> Any:
    """Rebuild a value from the output of `encode`, using only types of the package, of NumPyro, and registered or known ones.

    Parameters
    ----------
    written, arrays
        The output of `encode`.
    known
        Name -> type for user-defined components and their statistics.
    model
        The model to attach to estimators and kernels.

    Raises
    ------
    ValueError
        If it refers to unknown types, functions or distributions.
    """
    known = known or {}

    def one(written: Any) -> Any:
        if isinstance(written, list):
            return [one(part) for part in written]
        if not isinstance(written, dict):
            return written
        match written["is"]:
            case "dict":
                return {one(name): one(part) for name, part in written["items"]}
            case "tuple":
                return tuple(one(part) for part in written["items"])
            case "array":
                array = arrays[written["name"]]
                make: dict[str, Callable[[Any], Any]] = {"jax": jnp.asarray, "scalar": lambda a: a[()], "numpy": np.asarray}
                return make[written["kind"]](array)
            case "objects":
                flat = np.empty(len(written["items"]), dtype=object)
                flat[:] = [one(item) for item in written["items"]]
                return flat.reshape(written["shape"])
            case "partial":
                return functools.partial(one(written["of"]), *one(written["args"]), **one(written["keywords"]))
            case "mixture":
                return MixtureModel(**one(written["settings"]))
            case "function":
                return _function(written["name"])
            case "type":
                return _type(written["name"], known)
            case "distribution":
                return _distribution(written["type"])(**one(written["parameters"]))
            case "kernel":
                return _kernel(_type(written["type"], {}), one(written["options"]))
            case "object":
                return _rebuilt(_type(written["type"], known), one(written["state"]))
        raise ValueError(f"it contains an object of the unknown kind {written['is']!r}")

    def _kernel(cls: type, options: dict[str, Any]) -> Any:
        if not issubclass(cls, ModelKernel | Gibbs | HMC):
            raise ValueError(f"{cls.__name__} is not a known kernel")
        made: Any = cls
        return made(**options) if issubclass(cls, Gibbs) else made(model, **options)

    def _rebuilt(cls: type, state: dict[str, Any]) -> Any:
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return cls(**state)
        value: Any = object.__new__(cls)
        if issubclass(cls, BaseEstimator):
            value.__setstate__(state)
            value.model = model
        elif dataclasses.is_dataclass(cls):
            for each in dataclasses.fields(cls):  # files of older versions lack fields that were added since
                if each.name not in state and each.default_factory is not dataclasses.MISSING:
                    object.__setattr__(value, each.name, each.default_factory())
            for name, part in state.items():
                object.__setattr__(value, name, part)  # as in JAX, values are not validated again
            for each in dataclasses.fields(cls):
                if not hasattr(value, each.name):
                    raise ValueError(f"a {cls.__name__} has no {each.name}")
        else:
            raise ValueError(f"{cls.__name__} is not a supported type")
        return value

    return one(written)


def _type(name: str, known: Mapping[str, type]) -> type:
    if name in known or name in _REGISTERED:
        return known.get(name) or _REGISTERED[name]
    module, _, qualified = name.partition(":")
    if not _is_own(name):
        raise NotPlainError(f"it contains a {name}, which is not part of the package")
    found = functools.reduce(lambda of, part: getattr(of, part, None), qualified.split("."), sys.modules.get(module))
    if not isinstance(found, type) or _type_name(found) != name or not _is_plain(found):
        raise ValueError(f"{name} is not a type that a fit contains")
    return found


def _is_plain(cls: type) -> bool:
    """Whether a file may contain objects of a type: named tuples, data classes, components, estimators and kernels."""
    named = issubclass(cls, tuple) and hasattr(cls, "_fields") or dataclasses.is_dataclass(cls)
    return named or issubclass(cls, Component | DeterministicClustering | ModelKernel | Gibbs | HMC)


def _function(name: str) -> Callable[..., Any]:
    module, _, plain = name.partition(":")
    if module == "components" and plain in BUILDERS:
        return BUILDERS[plain]
    found = {"models": models, "initialization": initialization}.get(module)
    if found is None or plain not in (models.__all__ if found is models else _STARTS):
        raise ValueError(f"there is no function {name}")
    return getattr(found, plain)


def _distribution(name: str) -> type[dist.Distribution]:
    found = getattr(dist, name, None)
    if not isinstance(found, type) or not issubclass(found, dist.Distribution):
        raise ValueError(f"NumPyro has no distribution {name}")
    return found


def types_of(*trees: Any) -> dict[str, type]:
    """Name -> type for all components and tuples of statistics in the trees."""
    found: dict[str, type] = {}

    def see(node: Any) -> None:
        if isinstance(node, Component) or hasattr(node, "_fields"):
            found[_type_name(type(node))] = type(node)
            for part in _state(node).values():
                see(part)
        elif isinstance(node, list | tuple | dict):
            for part in node.values() if isinstance(node, dict) else node:
                see(part)

    for tree in trees:
        see(tree)
    return found

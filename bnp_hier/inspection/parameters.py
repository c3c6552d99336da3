"""The numbers that a model is made of: what its priors and its component hold, to be stored and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Shaped

from bnp_hier.components import Component
from bnp_hier.inspection.trace import Model, feasible, run_model, sample_sites
from bnp_hier.utils.arrays import is_traced

__all__ = ["difference", "model_components", "model_parameters"]

_OF_THE_DRAW = ("assignments", "paths")
"""What distributions take from other latent sites."""


def model_parameters(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Site and parameter -> value, for every site's distribution where all latent sites have some fixed value.

    A user's own model is read like one of the package, as it is run. The labels are left out, the data are not looked at.
    """
    samples, _ = sample_sites(run_model(model, args, kwargs, feasible))
    found: dict[str, np.ndarray] = {}
    for site, sample in samples.items():
        fn = _inner(sample["fn"])
        found[f"{site}.family"] = np.array(type(fn).__name__)
        for place, value in _values(fn):
            if not is_traced(value):
                found[f"{site}{place}"] = np.asarray(value)
    return found


def model_components(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Component]:
    """The components of a model's sites."""
    samples, _ = sample_sites(run_model(model, args, kwargs, feasible))
    found = (getattr(_inner(sample["fn"]), "component", None) for sample in samples.values())
    return [each for each in found if isinstance(each, Component)]


def _inner(fn: dist.Distribution) -> dist.Distribution:
    """The distribution inside plates, masks and sums over dimensions."""
    return _inner(fn.base_dist) if hasattr(fn, "base_dist") else fn


def _values(fn: dist.Distribution) -> Iterator[tuple[str, Any]]:
    names = [*type(fn).gather_pytree_data_fields(), *type(fn).gather_pytree_aux_fields()]
    for name in sorted(set(names) - {"_validate_args", *_OF_THE_DRAW}):
        for place, leaf in jax.tree_util.tree_leaves_with_path(fn.__dict__.get(name)):
            # the labels of a subclass's own fields are not known: what is no number is not compared
            if isinstance(leaf, int | float | str | np.ndarray | np.generic | jax.Array):
                yield f".{name}{jax.tree_util.keystr(place)}", leaf


def difference(saved: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]) -> str:
    """The first parameter in which models differ, with both values in words; nothing if they are alike.

    Numbers are compared to a relative error of 1e-5, since another machine may round them otherwise.
    """
    for name in [*saved, *(name for name in given if name not in saved)]:
        if name not in given or name not in saved:
            return f"{name}, which only the model {'that was saved' if name in saved else 'given'} has"
        old, new = saved[name], given[name]
        if old.shape != new.shape:
            return f"{name} of shape {old.shape}, but the model given has {new.shape}"
        if old.dtype.kind in "iufb" and new.dtype.kind in "iufb":
            unlike = ~np.isclose(old.astype(float), new.astype(float), rtol=1e-5, atol=0.0, equal_nan=True)
        else:
            unlike = np.asarray(old != new)
        if unlike.any():
            place = tuple(int(i) for i in np.argwhere(unlike)[0])
            where = f"{name}[{', '.join(map(str, place))}]" if place else name
            return f"{where}={_word(old[place])}, but the model given has {_word(new[place])}"
    return ""


def _word(value: Any) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind in "iufb" else str(value)

"""Parameters of a model's priors and component, collected so that models can be stored and compared."""

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
"""Parameters of distributions whose values come from other latent sites."""


def model_parameters(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Collect the parameters of every site's distribution by name, with all latent sites at some fixed value.

    The model is run, so this works for user-defined models as for those of the package. Labels are left out, and observed
    values are not read.
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
    """Return the components at a model's sites."""
    samples, _ = sample_sites(run_model(model, args, kwargs, feasible))
    found = (getattr(_inner(sample["fn"]), "component", None) for sample in samples.values())
    return [each for each in found if isinstance(each, Component)]


def _inner(fn: dist.Distribution) -> dist.Distribution:
    """Unwrap a distribution from plates, masks and `to_event`."""
    return _inner(fn.base_dist) if hasattr(fn, "base_dist") else fn


def _values(fn: dist.Distribution) -> Iterator[tuple[str, Any]]:
    names = [*type(fn).gather_pytree_data_fields(), *type(fn).gather_pytree_aux_fields()]
    for name in sorted(set(names) - {"_validate_args", *_OF_THE_DRAW}):
        for place, leaf in jax.tree_util.tree_leaves_with_path(fn.__dict__.get(name)):
            # fields of subclasses can be of any type: only numbers, strings and arrays are compared
            if isinstance(leaf, int | float | str | np.ndarray | np.generic | jax.Array):
                yield f".{name}{jax.tree_util.keystr(place)}", leaf


def difference(saved: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]) -> str:
    """Describe the first parameter in which two models differ, with both values; empty if they agree.

    Numbers are compared with a relative tolerance of 1e-5, since rounding can differ between machines.
    """
    for name in [*saved, *(name for name in given if name not in saved)]:
        if name not in given or name not in saved:
            return f"{name}, which only the {'saved' if name in saved else 'given'} model has"
        old, new = saved[name], given[name]
        if old.shape != new.shape:
            return f"{name} of shape {old.shape}, but the given model has {new.shape}"
        if old.dtype.kind in "iufb" and new.dtype.kind in "iufb":
            unlike = ~np.isclose(old.astype(float), new.astype(float), rtol=1e-5, atol=0.0, equal_nan=True)
        else:
            unlike = np.asarray(old != new)
        if unlike.any():
            place = tuple(int(i) for i in np.argwhere(unlike)[0])
            where = f"{name}[{', '.join(map(str, place))}]" if place else name
            return f"{where}={_word(old[place])}, but the given model has {_word(new[place])}"
    return ""


def _word(value: Any) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind in "iufb" else str(value)

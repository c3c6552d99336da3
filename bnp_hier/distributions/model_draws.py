"""Distinguish the draws of a model from values given by the user."""

from __future__ import annotations

import weakref
from typing import Any

import numpyro.distributions as dist
from jaxtyping import Array

__all__ = ["RememberedDraws", "is_model_draw"]

_model_draws: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()


class RememberedDraws(dist.Distribution):
    """A distribution whose draws at `numpyro.sample` statements are recognised by `is_model_draw`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Draw a value for `numpyro.sample`, and remember it."""
        result = super().__call__(*args, **kwargs)
        draw = result[0] if isinstance(result, tuple) else result
        _model_draws[id(draw)] = draw
        return result


def is_model_draw(value: Any) -> bool:
    """Whether this array object was drawn by a `numpyro.sample` statement from a `RememberedDraws` distribution.

    NumPyro's `Gibbs` passes initial values to each block: the user's if there are any, or else a draw from the model. Only the
    identity of the array distinguishes the two.
    """
    return _model_draws.get(id(value)) is value

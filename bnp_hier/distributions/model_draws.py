"""Telling the draws of a model from values that a user gave."""

from __future__ import annotations

import weakref
from typing import Any

import numpyro.distributions as dist
from jaxtyping import Array

__all__ = ["RememberedDraws", "is_model_draw"]

_model_draws: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()


class RememberedDraws(dist.Distribution):
    """A distribution whose draws at `numpyro.sample` statements are known again by `is_model_draw`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What `numpyro.sample` calls for a draw."""
        result = super().__call__(*args, **kwargs)
        draw = result[0] if isinstance(result, tuple) else result
        _model_draws[id(draw)] = draw
        return result


def is_model_draw(value: Any) -> bool:
    """Whether this very array was drawn by a `numpyro.sample` statement on a distribution with `RememberedDraws`.

    NumPyro's `Gibbs` hands each block a start: what the user gave, or else what the model drew. Only this tells them apart.
    """
    return _model_draws.get(id(value)) is value

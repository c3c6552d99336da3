"""How a component describes itself to the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jax.typing import ArrayLike

__all__ = ["Part"]


class Part(NamedTuple):
    """A native family with its hyperparameters, for some columns of the data.

    - **family** - name in `names.FAMILIES`.
    - **columns** - columns of the data.
    - **constants** - hyperparameters in the order that the family's module documents, each of any shape; traced values are
      allowed.
    """

    family: str
    columns: tuple[int, ...]
    constants: Sequence[ArrayLike]

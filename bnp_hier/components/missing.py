"""Supports and densities of rows with missing values (NaN)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

__all__ = ["CellsOrMissing", "ColumnGroups", "bits_or_missing", "counts_or_missing", "real_or_missing"]


class _OrMissing(constraints.ParameterFreeConstraint):
    """Rows in which every cell is NaN or satisfies a given elementwise constraint."""

    event_dim = 1

    def __init__(self, cell: constraints.Constraint) -> None:
        self.cell = cell

    @property
    def is_discrete(self) -> bool:
        return self.cell.is_discrete

    def __call__(self, x: Any) -> Any:
        return (jnp.isnan(x) | jnp.asarray(self.cell(x))).all(-1)

    def feasible_like(self, prototype: Any) -> Any:
        return self.cell.feasible_like(prototype)

    def tree_flatten(self) -> Any:
        return (), ((), {"cell": self.cell})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OrMissing) and self.cell == other.cell

    def __hash__(self) -> int:
        return hash(type(self.cell))


class ColumnGroups(constraints.ParameterFreeConstraint):
    """Rows in which every group of columns satisfies its own constraint."""

    event_dim = 1

    def __init__(self, parts: tuple[tuple[constraints.Constraint, tuple[int, ...]], ...]) -> None:
        self.parts = parts

    @property
    def is_discrete(self) -> bool:
        """Whether every group is discrete."""
        return all(constraint.is_discrete for constraint, _ in self.parts)

    def __call__(self, x: Any) -> Any:
        """Whether every group of columns satisfies its constraint."""
        inside = [jnp.asarray(constraint(x[..., np.array(columns)])) for constraint, columns in self.parts]
        return jnp.stack(inside).all(0)

    def feasible_like(self, prototype: Any) -> Any:
        """A feasible row with the shape of the prototype."""
        out = prototype
        for constraint, columns in self.parts:
            index = np.array(columns)
            out = out.at[..., index].set(constraint.feasible_like(prototype[..., index]))
        return out

    def tree_flatten(self) -> Any:
        """No leaves: everything is static."""
        return (), ((), {"parts": self.parts})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnGroups) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(tuple(columns for _, columns in self.parts))


real_or_missing = _OrMissing(constraints.real)
bits_or_missing = _OrMissing(constraints.boolean)
counts_or_missing = _OrMissing(constraints.nonnegative_integer)


class CellsOrMissing(dist.Distribution):
    """Independent cells; NaN cells are left out of the density, and draws are complete."""

    pytree_data_fields = ("cells",)

    def __init__(self, cells: dist.Distribution, *, validate_args: bool | None = None) -> None:
        self.cells = cells
        super().__init__(batch_shape=cells.batch_shape[:-1], event_shape=cells.batch_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(event_dim=1)
    def support(self) -> Any:
        """Rows of cells in the base support or NaN."""
        return _OrMissing(self.cells.support)

    @property
    def mean(self) -> Float[Array, "... d"]:
        """Mean of each cell."""
        return self.cells.mean

    @property
    def variance(self) -> Float[Array, "... d"]:
        """Variance of each cell."""
        return self.cells.variance

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Sum of the log densities of the observed cells (nats)."""
        there = ~jnp.isnan(value)
        return jnp.where(there, self.cells.log_prob(jnp.where(there, value, 1.0)), 0.0).sum(-1)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Num[Array, "... d"]:
        """Draw complete rows."""
        return self.cells.sample(key, sample_shape)

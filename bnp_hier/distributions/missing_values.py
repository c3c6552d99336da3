"""Missing values of a table as a latent site of a model."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.components import Component
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.sharded_arrays import is_spread

__all__ = ["MissingValues", "complete_rows", "rows_for", "with_cells"]


class MissingValues(dist.Distribution):
    """Flat improper prior of the missing values of a table, so that their density is that of the rows they complete.

    Draws, from which chains start, are normal with the mean and standard deviation of each column.

    Parameters
    ----------
    loc, scale
        Mean and standard deviation of the column of each cell, (m,).
    """

    arg_constraints = {"loc": constraints.real_vector, "scale": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    pytree_data_fields = ("loc", "scale")

    def __init__(
        self, loc: Float[Array | np.ndarray, " m"], scale: Float[Array | np.ndarray, " m"], *, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale = loc, scale
        super().__init__(event_shape=np.shape(loc), validate_args=validate_args)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... m"]:
        """Draw starting values."""
        assert key is not None
        noise = jax.random.normal(key, (*sample_shape, *self.event_shape), jnp.result_type(float))
        return jnp.asarray(self.loc) + jnp.asarray(self.scale) * noise

    @validate_sample
    def log_prob(self, value: Float[Array, "... m"]) -> Float[Array, "..."]:
        """Zero."""
        return jnp.zeros(jnp.shape(value)[:-1], jnp.result_type(float))


def with_cells(X: Any, cells: ArrayLike, missing: Bool[np.ndarray, "n d"] | None = None) -> Any:
    """The table with its missing values, by default those that are NaN, row by row, replaced by `cells`."""
    absent = np.isnan(X) if missing is None else missing
    if not is_traced((X, cells)):
        table = np.array(X, dtype=np.float64)
        table[absent] = np.asarray(cells)
        return table
    return jnp.where(absent, 0.0, X).at[np.nonzero(absent)].set(cells)


def complete_rows(name: str, X: ArrayLike, missing: ArrayLike | None = None) -> Any:
    """Sample the missing values of a table as a site of the model that is running, and return the completed table.

    The site has a flat prior: given everything else, the cells have the distribution that the rows' likelihood implies, if
    values are missing at random. `PartitionGibbs` draws them exactly, and NUTS can sample them too; deterministic methods
    impute them. If there are no missing values, the table is returned and there is no site.

    Parameters
    ----------
    name
        Name of the site, (m,): the missing values of X, row by row.
    X
        Data, (n, d).
    missing
        Which cells are missing, (n, d); by default, those that are NaN. It must be given if X is traced by JAX, or if some
        columns are of a family that leaves missing values out: ``component.incomplete_cells(X)`` are those of the others.

    Returns
    -------
    rows
        X with these cells replaced by those of the site; X itself if there are none.

    Raises
    ------
    ValueError
        If a row or a column has nothing but missing values, or `missing` does not have the shape of X.

    Examples
    --------
    >>> import numpy as np
    >>> import numpyro
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> def model(X, component):
    ...     z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)))
    ...     numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=bnp.complete_rows("missing", X))
    ...
    >>> X = np.array([[0.0, 0.1], [0.2, np.nan], [6.0, 6.1], [6.1, 6.0]])
    >>> component = bnp.NormalKnownCovariance(mean=[3.0, 3.0], prior_covariance=9 * np.eye(2), covariance=0.1 * np.eye(2))
    >>> fit = bnp.MAPDP(partial(model, component=component)).fit(X)
    >>> fit.labels_, fit.missing_values_.round(1)
    (array([0, 0, 1, 1]), array([0.1]))
    """
    if missing is None:
        if not _has_numbers(X):
            return X
        absent = np.isnan(np.asarray(X))
    else:
        absent = np.asarray(missing, dtype=bool)
        if absent.shape != np.shape(X):
            raise ValueError(f"missing must have the shape of X, {np.shape(X)}, but it has shape {absent.shape}")
    if not absent.any():
        return X
    empty_rows = (absent | np.isnan(np.asarray(X)) if _has_numbers(X) else absent).all(axis=1)
    for all_missing, what in ((absent.all(axis=0), "column"), (empty_rows, "row")):
        empty = np.flatnonzero(all_missing)
        if len(empty):
            raise ValueError(
                f"all values are missing in {what}{'s' * (len(empty) > 1)} {', '.join(map(str, empty[:5]))}"
                f"{', ...' if len(empty) > 5 else ''} of X; leave {'it' if len(empty) == 1 else 'them'} out"
            )
    xp: Any = jnp if is_traced(X) else np
    table, (incomplete, columns) = xp.where(absent, xp.nan, X), np.unique(np.nonzero(absent)[1], return_inverse=True)
    spread = xp.nanstd(table[:, incomplete], axis=0)
    prior = MissingValues(xp.nanmean(table[:, incomplete], axis=0)[columns], xp.where(spread > 0, spread, 1.0)[columns])
    return with_cells(table, numpyro.sample(name, prior), absent)


def rows_for(component: Component, X: Any, name: str = "missing") -> Any:
    """The rows as the component needs them: completed by a site of the model where its columns depend on each other."""
    # a component with priors is no `Component` yet, and has no columns
    if not getattr(component, "dependent_columns", ()) or not _has_numbers(X):
        return X
    return complete_rows(name, X, component.incomplete_cells(X))


def _has_numbers(X: Any) -> bool:
    """Whether cells of a table can be read here and may be missing."""
    return not is_traced(X) and not is_spread(X) and np.asarray(X).dtype.kind == "f"

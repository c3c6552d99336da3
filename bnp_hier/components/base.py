"""The interface of a conjugate component: everything an inference method asks of a cluster's likelihood."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, cast, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.components.hints import Columns, Spread
from bnp_hier.utils.arrays import as_matrix, first_cell, is_traced, own_arrays

__all__ = ["Component", "ComponentLikelihood", "ComponentPredictive", "Quadratic", "Statistics"]


Statistics: TypeAlias = Any
"""Additive sufficient statistics: a pytree of arrays that share leading batch dimensions."""


class Quadratic(NamedTuple):
    """A function constant + ⟨linear, y⟩ + yᵀ square y of coordinates y, shape (q,).

    - **constant** - shape ().
    - **linear** - shape (q,).
    - **square** - shape (q, q), symmetric.
    """

    constant: Float[Array, "..."]
    linear: Float[Array, "... q"]
    square: Float[Array, "... q q"]


def _register(cls: type) -> None:
    """Make a class a frozen dataclass whose fields are the leaves of a JAX pytree."""
    check = getattr(cls, "__post_init__", None)

    def __post_init__(self: Any) -> None:
        for name in data:
            value = getattr(self, name)
            if isinstance(value, list | tuple) and not any(isinstance(item, Component) for item in value):
                object.__setattr__(self, name, np.asarray(value))
        if check is not None:
            check(self)

    cls.__post_init__ = __post_init__  # type: ignore[attr-defined]
    dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cast(Any, cls))
    static = [f.name for f in fields if f.metadata.get("static", False)]
    data = [f.name for f in fields if f.name not in static]

    def flatten(self: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(self, name) for name in data), tuple(getattr(self, name) for name in static)

    def flatten_with_keys(self: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves, aux = flatten(self)
        return tuple(zip((jax.tree_util.GetAttrKey(name) for name in data), leaves, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        self: Any = object.__new__(cls)  # skips __post_init__: leaves may be tracers or placeholders
        for name, value in zip(data + static, (*leaves, *aux), strict=True):
            object.__setattr__(self, name, value)
        return self

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Component(ABC):
    """A conjugate likelihood of one cluster, with its prior's hyperparameters as fields.

    A family is one subclass, which becomes a frozen dataclass and a JAX pytree by itself: its annotated attributes are the
    fields. Fields declared with ``dataclasses.field(metadata={"static": True})`` are configuration, not leaves of the pytree;
    lists of numbers become NumPy arrays. A family must give `dim`, `suff_stats`, `log_marginal`,
    `posterior` and `likelihood`, and `from_data` if it has data-informed defaults. Everything else has a default that is
    right for any conjugate family; a family overrides one where a closed form is faster or more accurate. Every method is
    pure, accepts leading batch dimensions of statistics, and works under ``jit``, ``vmap`` and ``grad``. Hyperparameters are
    kept as given and converted inside the methods.

    Statistics of a set of rows are the sum of its rows' statistics, and every leaf is zero for the empty set. The log
    marginal likelihood of the empty set is zero. Log quantities are in nats.
    """

    allows_missing: ClassVar[bool] = False
    """Whether NaN cells are allowed: they are left out of the statistics, cell by cell."""

    is_normal: ClassVar[bool] = False
    """Whether columns are taken for normal numbers, so that counts, bits, long tails and constant columns suit them badly."""

    part_for: ClassVar[tuple[str, ...]] = ()
    """Kinds of columns (see `Columns`) for which it is the part of a mixed family."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the subclass a frozen dataclass and a JAX pytree."""
        super().__init_subclass__(**options)
        _register(cls)

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of columns d of the data."""

    @property
    def support(self) -> constraints.Constraint:
        """Constraint of one row of data, event dimension 1."""
        return constraints.real_vector

    @classmethod
    def from_data(cls, *args: Any, **options: Any) -> Self:
        """The family with hyperparameters read off data X, (n, d), by a rule that the family documents with its options."""
        raise TypeError(f"{cls.__name__} has no data-informed default; give its hyperparameters explicitly")

    # ---- what a family must give -------------------------------------------------------------------------------------

    @abstractmethod
    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> Statistics:
        """Sufficient statistics of each row: leaves of shape ``(..., *statistic)``."""

    @abstractmethod
    def log_marginal(self, stats: Statistics) -> Float[Array, "..."]:
        """Log marginal likelihood of the rows summed in `stats`, parameters integrated out (nats)."""

    @abstractmethod
    def posterior(self, stats: Statistics) -> dist.Distribution:
        """Posterior of a cluster's parameters, one array per cluster, as a NumPyro distribution."""

    @abstractmethod
    def likelihood(self, parameters: Float[Array, "..."]) -> dist.Distribution:
        """Distribution of one row given a cluster's parameters, event shape (d,)."""

    # ---- what follows ------------------------------------------------------------------------------------------------

    def empty(self, batch_shape: tuple[int, ...] = ()) -> Statistics:
        """Statistics of the empty set: zeros."""
        row = jax.eval_shape(self.suff_stats, jax.ShapeDtypeStruct((self.dim,), jnp.result_type(float)))
        return jax.tree.map(lambda leaf: jnp.zeros(batch_shape + leaf.shape, leaf.dtype), row)

    def prior(self) -> dist.Distribution:
        """Prior of a cluster's parameters, as a NumPyro distribution."""
        return self.posterior(self.empty())

    def sample_parameters(self, key: Array, stats: Statistics) -> Float[Array, "..."]:
        """One draw of the parameters from their posterior, per batch entry of `stats`."""
        return self.posterior(stats).sample(key)

    def log_predictive(self, stats: Statistics, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Log predictive density of each row given the rows in `stats`; batch dimensions broadcast (nats)."""
        return self.cached_log_predictive(self.cache(stats), self.suff_stats(X))

    def expected_natural_parameters(self, stats: Statistics) -> Statistics:
        """Coefficients c with E[log p(x|θ)] = Σ over leaves ⟨c, suff_stats(x)⟩, θ from its posterior given `stats` (nats).

        One set of coefficients for each batch entry of `stats`, in the same pytree. They are the gradient of the log marginal
        likelihood: log ∫ exp(⟨η(θ), T⟩ − ...) p(θ) dθ has the derivative E[η(θ)] in T, an identity of conjugate families.
        """
        return jax.grad(lambda stats: self.log_marginal(stats).sum())(stats)

    def predictive(self, stats: Statistics) -> dist.Distribution:
        """Predictive distribution of a new row given the rows in `stats`, event shape (d,)."""
        return ComponentPredictive(self, stats)

    def log_evidence(self, X: ArrayLike) -> float:
        """Log marginal likelihood of all rows as one cluster, in float64 (nats).

        Raises
        ------
        ValueError
            If the data does not fit the family, see `validate`, or double precision has not digits enough.
        """
        matrix = as_matrix(X)
        self.validate(matrix)
        with jax.enable_x64(True):
            component = own_arrays(self.centred_on(matrix))
            component.check_precision(matrix)
            total = jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(matrix))
            value = float(component.log_marginal(total))
        if np.isnan(value):
            raise ValueError(
                f"{type(self).__name__} gives the {len(matrix)} rows no log marginal likelihood in double precision"
            )
        return value

    def validate(self, X: ArrayLike) -> None:
        """Check data at the door, outside ``jit``; traced data passes.

        Raises
        ------
        ValueError
            If the data is not an (n, d) table with this family's number of columns and kind of values; the message names
            the row and column.
        """
        if is_traced(X):
            return
        matrix = as_matrix(X)
        if matrix.shape[1] != self.dim:
            raise ValueError(f"X has {matrix.shape[1]} columns, but {type(self).__name__} was built for {self.dim} columns")
        if np.isinf(matrix).any():
            raise ValueError(f"X has an infinite value at {first_cell(np.isinf(matrix))}; expected finite numbers")
        if not self.allows_missing and np.isnan(matrix).any():
            raise ValueError(
                f"X has a missing value (NaN) at {first_cell(np.isnan(matrix))}; {type(self).__name__} needs complete rows: "
                "drop or impute them, or use a family whose columns are independent (such as NormalInverseGamma)"
            )
        self._validate_values(matrix)

    def _validate_values(self, X: np.ndarray) -> None:  # noqa: B027 (most families have nothing to check)
        """Family-specific check of finite (or missing) cells."""

    # ---- hints -------------------------------------------------------------------------------------------------------

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Why the family is the one for all of these columns, in a clause; None if it is not, or only when asked for."""
        return None

    def parts_and_columns(self) -> tuple[tuple[Component, tuple[int, ...]], ...]:
        """The families that model the columns, and which each does: one, unless the component is made of several."""
        return ((self, tuple(range(self.dim))),)

    def expected_spread(self) -> Spread | None:
        """What the prior expects of a cluster, by column; None if it is not known."""
        return None

    def prior_rows(self, X: Float[np.ndarray, "n d"]) -> dict[str, float]:
        """How many rows the prior weighs, for each of its hyperparameters that says so."""
        return {}

    def prior_warnings(self, X: Float[np.ndarray, "n d"], limit: float) -> Iterator[str]:
        """Sentences on what else of the prior looks wrong for the rows of X, clusters of which may have `limit` rows."""
        return iter(())

    # ---- digits ------------------------------------------------------------------------------------------------------

    def centred_on(self, X: ArrayLike) -> Self:
        """The same component, its statistics kept about a point amid the rows where that saves digits.

        No probability depends on that point, but statistics about different points must not be added. Rows whose numbers
        cannot be looked at (traced, or on another process's devices) always get a point of their own.
        """
        return self

    def reference(self) -> Float[Array | np.ndarray, " d"]:
        """The point about which statistics are kept; 0 in columns whose statistics depend on no such point."""
        return np.zeros(self.dim)

    def translated(self, by: Float[Array | np.ndarray, " d"]) -> Self:
        """The component of the rows x − `by`, whose statistics and densities are those of x; `by` is 0 where `reference` is."""
        return self

    def check_precision(self, X: ArrayLike, *, parameters: bool = False) -> None:  # noqa: B027 (most families need none)
        """Check that the precision in force has the digits that inference on these rows needs; traced rows pass.

        Parameters
        ----------
        X
            Data, (n, d), that passed `validate`.
        parameters
            Whether clusters' parameters are kept as numbers in the units of the data.

        Raises
        ------
        ValueError
            If log marginal likelihoods of clusters of these rows would be wrong by more than a tenth of a nat, or overflow; the
            message names the column.
        """

    # ---- primitives of hard assignments by kd-tree -------------------------------------------------------------------

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... q"]:
        """Coordinates of complete rows in which `row_quadratic` is written.

        Raises
        ------
        NotImplementedError
            If the family's expected log likelihood is not quadratic in any coordinates, or they are not known.
        """
        raise NotImplementedError(f"{type(self).__name__} does not give coordinates() and row_quadratic()")

    def row_quadratic(self, natural: Statistics) -> Quadratic:
        """⟨natural, suff_stats(x)⟩ as a quadratic function of the row's `coordinates`.

        Terms of the row that do not depend on the cluster are left out; `natural` comes from `expected_natural_parameters`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not give coordinates() and row_quadratic()")

    # ---- primitives of label draws by matrix products ----------------------------------------------------------------

    def natural_parameters(self, parameters: Float[Array, "..."]) -> Statistics:
        """Coefficients η with log p(x|θ) = Σ over leaves ⟨η, suff_stats(x)⟩ for complete rows (nats).

        One set of coefficients for each batch entry of `parameters`, in the pytree of the statistics.

        Raises
        ------
        NotImplementedError
            If the family does not give them; whoever asks then falls back on `likelihood`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not give natural_parameters()")

    # ---- primitives of single-site updates and merges: `row` is the statistics of one row ----------------------------

    def cache(self, stats: Statistics) -> Statistics:
        """What `cached_log_predictive` reads of a cluster; a family may keep a factor here instead of the statistics."""
        return stats

    def update_cache(self, cache: Statistics, row: Statistics, sign: ArrayLike) -> Statistics:
        """The cache after adding (`sign` = 1) or removing (`sign` = -1) one row; batch dimensions agree."""
        return jax.tree.map(lambda old, new: old + jnp.asarray(sign, old.dtype) * new, cache, row)

    def cached_log_predictive(self, cache: Statistics, row: Statistics) -> Float[Array, "..."]:
        """Log predictive density of one row per batch entry, from the cache; batch dimensions broadcast (nats)."""
        return self.log_marginal(jax.tree.map(jnp.add, cache, row)) - self.log_marginal(cache)

    def log_marginal_up_to(self, count: int) -> Callable[[Statistics], Float[Array, "..."]]:
        """`log_marginal` for clusters of at most `count` rows; a family may tabulate what depends on the count alone."""
        return self.log_marginal

    def log_marginal_of_row_pairs(self, left: Statistics, right: Statistics) -> Float[Array, "a b"]:
        """Log marginal likelihood of every row of `left` with every row of `right` as one cluster of two (nats).

        Statistics of single rows, leading dimensions a and b. A family may use matrix products over the rows.
        """
        return self.log_marginal(jax.tree.map(lambda one, other: one[:, None] + other[None], left, right))


class ComponentPredictive(dist.Distribution):
    """Predictive distribution of any component: density from `log_predictive`, draws through the posterior."""

    pytree_data_fields = ("component", "stats")

    def __init__(self, component: Component, stats: Statistics, *, validate_args: bool | None = None) -> None:
        self.component, self.stats = component, stats
        batch_shape = jax.eval_shape(component.log_marginal, stats).shape
        super().__init__(batch_shape=batch_shape, event_shape=(component.dim,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Support of one row."""
        return self.component.support

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Log predictive density of each row (nats)."""
        return self.component.log_predictive(self.stats, value)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Num[Array, "... d"]:
        """Parameters from the posterior, then one row from the likelihood, independently for each draw."""
        assert key is not None
        key_parameters, key_row = jax.random.split(key)
        parameters = self.component.posterior(self.stats).sample(key_parameters, sample_shape)
        return self.component.likelihood(parameters).sample(key_row)


class ComponentLikelihood(dist.Distribution):
    """Rows given their parameters: `component.likelihood(parameters)`, which remembers the component.

    A model that says so lets inference integrate parameters out or draw them given rows.

    Parameters
    ----------
    component
        The conjugate component.
    parameters
        ``(..., *parameter)`` parameters of every row, as `component.prior()` draws them.

    Raises
    ------
    TypeError
        If the component is none.
    """

    pytree_data_fields = ("component", "parameters")

    def __init__(self, component: Component, parameters: Float[Array, "..."], *, validate_args: bool | None = None) -> None:
        if not isinstance(component, Component):
            raise TypeError(
                f"ComponentLikelihood: component must be a bnp_hier component, but it is {type(component).__name__}"
            )
        self.component, self.parameters = component, parameters
        batch_shape = component.likelihood(parameters).batch_shape
        super().__init__(batch_shape=batch_shape, event_shape=(component.dim,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Support of one row."""
        return self.component.support

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Log density of each row (nats)."""
        return self.component.likelihood(self.parameters).log_prob(value)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Num[Array, "... d"]:
        """One row for every set of parameters."""
        return self.component.likelihood(self.parameters).sample(key, sample_shape)

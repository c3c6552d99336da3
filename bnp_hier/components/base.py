"""The interface of a conjugate component: everything an inference method needs from a cluster's likelihood."""

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
from jaxtyping import Array, Bool, Float, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.components.hints import Columns, Spread
from bnp_hier.native import Part
from bnp_hier.utils.arrays import as_matrix, first_cell, is_traced, own_arrays
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["Component", "ComponentLikelihood", "ComponentPredictive", "PlainStatistics", "Quadratic", "Statistics"]


Statistics: TypeAlias = Any
"""Additive sufficient statistics: a pytree of arrays that share leading batch dimensions."""


class Quadratic(NamedTuple):
    """The quadratic function constant + ⟨linear, y⟩ + yᵀ square y of coordinates y, shape (q,).

    - **constant** - shape ().
    - **linear** - shape (q,).
    - **square** - shape (q, q), symmetric.
    """

    constant: Float[Array, "..."]
    linear: Float[Array, "... q"]
    square: Float[Array, "... q q"]


def _register(cls: type) -> None:
    """Turn a class into a frozen dataclass whose fields are the children of a JAX pytree."""
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


DENSITIES = ("suff_stats", "log_marginal", "posterior", "likelihood", "log_predictive", "cached_log_predictive", "prior")
"""Methods that say what the density of a family is."""


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Component(ABC):
    """Conjugate likelihood of one cluster; the hyperparameters of its prior are the fields.

    Each family is a subclass, which automatically becomes a frozen dataclass and a JAX pytree: its annotated attributes are
    the fields. Fields declared with ``dataclasses.field(metadata={"static": True})`` are configuration, not leaves of the
    pytree; lists of numbers are converted to NumPy arrays. A family must implement `dim`, `suff_stats`, `log_marginal`,
    `posterior` and `likelihood`, and `from_data` if it has data-informed defaults. Everything else has a default
    implementation that is correct for any conjugate family; override it where a closed form is faster or more accurate. Every
    method is pure, accepts leading batch dimensions of statistics, and works under ``jit``, ``vmap`` and ``grad``.
    Hyperparameters are stored as given and converted inside the methods.

    The statistics of a set of rows are the sum of the rows' statistics, and every leaf is zero for the empty set. The log
    marginal likelihood of the empty set is zero. Log quantities are in nats.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> from jax.scipy.special import gammaln
    >>> from bnp_hier import Component
    >>> class Exponential(Component):
    ...     a: float
    ...     b: float
    ...     dim = 1
    ...     def suff_stats(self, X):
    ...         return jnp.ones(jnp.shape(X)[:-1]), jnp.asarray(X)[..., 0]
    ...     def log_marginal(self, stats):
    ...         a, b = self.a + stats[0], self.b + stats[1]
    ...         return self.a * jnp.log(self.b) - gammaln(self.a) + gammaln(a) - a * jnp.log(b)
    ...     def posterior(self, stats):
    ...         return dist.Gamma((self.a + stats[0])[..., None], (self.b + stats[1])[..., None]).to_event(1)
    ...     def likelihood(self, parameters):
    ...         return dist.Exponential(parameters).to_event(1)
    ...
    >>> round(Exponential(a=2.0, b=1.0).log_evidence([[0.5], [1.5]]), 3)
    -2.603
    """

    allows_missing: ClassVar[bool] = False
    """Whether NaN is allowed: missing values are left out of the statistics, cell by cell."""

    is_normal: ClassVar[bool] = False
    """Whether columns are modelled as normal, which fits counts, bits, long tails and constant columns poorly."""

    part_for: ClassVar[tuple[str, ...]] = ()
    """Kinds of columns (see `Columns`) that this family models as part of a mixed family."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Turn the subclass into a frozen dataclass and a JAX pytree.

        Raises
        ------
        TypeError
            If the subclass redefines a density of a family that has native kernels, which would compute the family's own.
        """
        super().__init_subclass__(**options)
        family = next((base for base in cls.__mro__[1:] if "native" in base.__dict__), Component)
        if family is not Component and (own := [name for name in DENSITIES if name in cls.__dict__]):
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(own)} of {family.__name__}, whose native kernels do not call them: "
                "derive it from Component, and give it the five methods of a family"
            )
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
        """Build the component with hyperparameters chosen from data X, (n, d); each family documents its rule and options."""
        raise TypeError(f"{cls.__name__} has no data-informed default; specify its hyperparameters explicitly")

    # ---- to be implemented by every family ---------------------------------------------------------------------------

    @abstractmethod
    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> Statistics:
        """Sufficient statistics of each row: leaves of shape ``(..., *statistic)``."""

    @abstractmethod
    def log_marginal(self, stats: Statistics) -> Float[Array, "..."]:
        """Log marginal likelihood of the rows summarised by `stats`, with the parameters integrated out (nats)."""

    @abstractmethod
    def posterior(self, stats: Statistics) -> dist.Distribution:
        """Posterior distribution of a cluster's parameters, one array per cluster, as a NumPyro distribution."""

    @abstractmethod
    def likelihood(self, parameters: Float[Array, "..."]) -> dist.Distribution:
        """Distribution of one row given a cluster's parameters, event shape (d,)."""

    # ---- derived from these ------------------------------------------------------------------------------------------

    def empty(self, batch_shape: tuple[int, ...] = ()) -> Statistics:
        """Statistics of the empty set: zeros."""
        row = jax.eval_shape(self.suff_stats, jax.ShapeDtypeStruct((self.dim,), jnp.result_type(float)))
        return jax.tree.map(lambda leaf: jnp.zeros(batch_shape + leaf.shape, leaf.dtype), row)

    def anchor(self) -> Component | None:
        """Reference component: statistics under it can be converted to any hyperparameters; None without `restated`.

        Hyperparameters can then be learned and sampled from the statistics of the clusters alone, without the rows.
        """
        return None if type(self).restated is Component.restated else self

    def restated(self, stats: Statistics, anchor: Any) -> Statistics:
        """Statistics under this component of the rows that `stats` summarises under an `anchor`, of other hyperparameters.

        Raises
        ------
        NotImplementedError
            If the family has no anchor.
        """
        raise NotImplementedError(f"{type(self).__name__} does not convert statistics")

    def log_marginal_of_restated(self, stats: Statistics, anchor: Any) -> Float[Array, "..."]:
        """``log_marginal(restated(stats, anchor))``, which families may compute with less work."""
        return self.log_marginal(self.restated(stats, anchor))

    def prior(self) -> dist.Distribution:
        """Prior distribution of a cluster's parameters, as a NumPyro distribution."""
        return self.posterior(self.empty())

    def sample_parameters(self, key: Array, stats: Statistics) -> Float[Array, "..."]:
        """Draw the parameters from their posterior, once per batch entry of `stats`."""
        return self.posterior(stats).sample(key)

    def log_predictive(self, stats: Statistics, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Log predictive density of each row given the rows summarised by `stats`; batch dimensions broadcast (nats)."""
        return self.cached_log_predictive(self.cache(stats), self.suff_stats(X))

    def expected_natural_parameters(self, stats: Statistics) -> Statistics:
        """Coefficients c such that E[log p(x|θ)] = Σ over leaves ⟨c, suff_stats(x)⟩ under the posterior of θ (nats).

        The posterior is the one given `stats`; there is one set of coefficients per batch entry of `stats`, in the same
        pytree. They are the gradient of the log marginal likelihood: in a conjugate family, the derivative of
        log ∫ exp(⟨η(θ), T⟩ − ...) p(θ) dθ with respect to T is E[η(θ)].
        """
        return jax.grad(lambda stats: self.log_marginal(stats).sum())(stats)

    def predictive(self, stats: Statistics) -> dist.Distribution:
        """Predictive distribution of a new row given the rows summarised by `stats`, event shape (d,)."""
        return ComponentPredictive(self, stats)

    def log_evidence(self, X: ArrayLike) -> float:
        """Log marginal likelihood of all rows as a single cluster, in float64 (nats).

        Raises
        ------
        ValueError
            If the data do not fit the family (see `validate`), or double precision is not accurate enough.
        TypeError
            If the data are traced, as inside `jax.vmap`: use `log_marginal` and `suff_stats` there.
        """
        matrix = as_matrix(X)
        self.validate(matrix)
        with double_precision():
            component = own_arrays(self.centered_on(matrix))
            component.check_precision(matrix)
            total = jax.tree.map(lambda leaf: leaf.sum(0), component.suff_stats(matrix))
            value = float(component.log_marginal(total))
        if np.isnan(value):
            raise ValueError(
                f"the log marginal likelihood of the {len(matrix)} rows under {type(self).__name__} is NaN in double precision"
            )
        return value

    def validate(self, X: ArrayLike) -> None:
        """Check input data outside ``jit``; traced data are not checked.

        Raises
        ------
        ValueError
            If the data are not an (n, d) table with this component's number of columns and the family's kind of values; the
            message names the row and column.
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
                "drop or impute them, or use a family that allows missing values (such as NormalInverseGamma for numbers)"
            )
        self._validate_values(matrix)

    def validate_new_rows(self, X: ArrayLike) -> None:
        """Check rows whose density is computed, as `validate` does; missing values are integrated out where they can be.

        Raises
        ------
        ValueError
            As for `validate`.
        """
        self.validate(X)

    def _validate_values(self, X: np.ndarray) -> None:  # noqa: B027 (most families have nothing to check)
        """Check the values of a table whose cells are finite or, if allowed, missing."""

    # ---- hints -------------------------------------------------------------------------------------------------------

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Reason, as a clause, for choosing this family for these columns; None if it should not be chosen automatically."""
        return None

    def parts_and_columns(self) -> tuple[tuple[Component, tuple[int, ...]], ...]:
        """The components that model the columns, each with its columns: several for a product, otherwise only this one."""
        return ((self, tuple(range(self.dim))),)

    def expected_spread(self) -> Spread | None:
        """Location and spread of a cluster expected under the prior, by column; None if unknown."""
        return None

    def prior_rows(self, X: Float[np.ndarray, "n d"]) -> dict[str, float]:
        """Weights of the prior, in equivalent numbers of rows, by the name of the hyperparameter that determines each."""
        return {}

    def prior_warnings(self, X: Float[np.ndarray, "n d"], limit: float) -> Iterator[str]:
        """Warnings about other mismatches between the prior and the data X, if clusters have about `limit` rows."""
        return iter(())

    # ---- numerical precision -----------------------------------------------------------------------------------------

    def centered_on(self, X: ArrayLike) -> Self:
        """The same component with statistics taken about the centre of the rows where that improves precision.

        No probability depends on this reference point, but statistics about different points must not be added. Rows whose
        values cannot be read (traced, or on another process's devices) always get a new reference point.
        """
        return self

    def reference(self) -> Float[Array | np.ndarray, " d"]:
        """The point about which statistics are taken; 0 in columns whose statistics do not use one."""
        return np.zeros(self.dim)

    def translated(self, by: Float[Array | np.ndarray, " d"]) -> Self:
        """The component that treats rows x − `by` as this one treats x; `by` is 0 in columns without a reference point."""
        return self

    def check_precision(self, X: ArrayLike, *, parameters: bool = False) -> None:  # noqa: B027 (most families need none)
        """Check that the current floating-point precision suffices for inference on these rows; traced rows are not checked.

        Parameters
        ----------
        X
            Data, (n, d), that passed `validate`.
        parameters
            Whether clusters' parameters are stored in the units of the data.

        Raises
        ------
        ValueError
            If log marginal likelihoods of clusters of these rows would overflow or be wrong by more than about 0.1 nats in
            single or 0.01 nats in double precision, or if `parameters` is True and cluster means would be inaccurate; the
            message names the column.
        """

    # ---- primitives for hard assignments with a kd-tree --------------------------------------------------------------

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... q"]:
        """Coordinates of complete rows in which `row_quadratic` is expressed.

        Raises
        ------
        NotImplementedError
            If the family's expected log likelihood is not quadratic in any coordinates, or they are not implemented.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement coordinates() and row_quadratic()")

    def row_quadratic(self, natural: Statistics) -> Quadratic:
        """⟨natural, suff_stats(x)⟩ as a quadratic function of the row's `coordinates`.

        Terms that depend on the row but not on the cluster are left out; `natural` comes from `expected_natural_parameters`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement coordinates() and row_quadratic()")

    # ---- primitives for label draws with matrix products -------------------------------------------------------------

    def natural_parameters(self, parameters: Float[Array, "..."]) -> Statistics:
        """Coefficients η such that log p(x|θ) = Σ over leaves ⟨η, suff_stats(x)⟩ for complete rows (nats).

        There is one set of coefficients per batch entry of `parameters`, in the pytree of the statistics.

        Raises
        ------
        NotImplementedError
            If the family does not implement them; callers then fall back on `likelihood`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement natural_parameters()")

    # ---- primitives for single-site updates and merges; `row` holds the statistics of one row ------------------------

    def cache(self, stats: Statistics) -> Statistics:
        """The values that `cached_log_predictive` needs for a cluster: its statistics or, for instance, a matrix factor."""
        return stats

    def update_cache(self, cache: Statistics, row: Statistics, sign: ArrayLike) -> Statistics:
        """The cache after adding (`sign` = 1) or removing (`sign` = -1) one row; batch dimensions must agree."""
        return jax.tree.map(lambda old, new: old + jnp.asarray(sign, old.dtype) * new, cache, row)

    def cached_log_predictive(self, cache: Statistics, row: Statistics) -> Float[Array, "..."]:
        """Log predictive density of one row per batch entry, computed from the cache; batch dimensions broadcast (nats)."""
        return self.log_marginal(jax.tree.map(jnp.add, cache, row)) - self.log_marginal(cache)

    def native(self) -> tuple[Part, ...] | None:
        """Describe the family to the native kernels; None, the default, means that XLA programs run instead.

        Densities and statistics of the kernels must be those of this class; see `bnp_hier.native.families`.
        """
        return None

    def log_marginal_up_to(self, count: int) -> Callable[[Statistics], Float[Array, "..."]]:
        """`log_marginal` for clusters of at most `count` rows; a family may tabulate terms that depend only on the count."""
        return self.log_marginal

    # ---- primitives for missing values of columns that depend on each other; see `DependentColumns` ------------------

    @property
    def dependent_columns(self) -> tuple[int, ...]:
        """Columns, in increasing order, whose missing values a model must complete because the statistics need whole rows."""
        return ()

    def incomplete_cells(self, X: Num[Array | np.ndarray, "m d"]) -> Bool[np.ndarray, "m d"]:
        """Missing values (NaN) of a table that a model must complete, the `missing` of `bnp_hier.complete_rows`.

        Those of other columns stay in the table, and the component leaves them out of its statistics.
        """
        if not self.dependent_columns:
            return np.zeros(np.shape(X), bool)
        return np.isnan(np.asarray(X)) & np.isin(np.arange(np.shape(X)[-1]), self.dependent_columns)

    def density_of_cells(self, stats: Statistics) -> Statistics:
        """The values that `log_density_of_cells` and `draw_cells` need for a cluster."""
        return self.cache(stats)

    def log_density_of_cells(self, density: Statistics, x: Num[Array, "... d"]) -> Float[Array, "..."]:
        """Log predictive density of the values of a row that are there, with the others (NaN) integrated out (nats).

        `density` comes from `density_of_cells`; batch dimensions broadcast.
        """
        return self.cached_log_predictive(density, self.suff_stats(x))

    def draw_cells(self, density: Statistics, x: Num[Array, " d"], key: Array) -> Num[Array, " d"]:
        """The row with missing values of `dependent_columns` drawn given all others, under the parameters integrated out."""
        return x

    def expected_parameters(self, stats: Statistics) -> Statistics:
        """The values that `expected_cells` needs for a cluster."""
        return ()

    def expected_cells(
        self, parameters: Statistics, x: Num[Array, "... d"]
    ) -> tuple[Num[Array, "... d"], Float[Array, "... q q"], Float[Array, "..."]]:
        """Best normal approximation of the missing values of `dependent_columns`, under uncertain parameters.

        Returns
        -------
        mean, covariance, entropy
            The row with the means of these cells; the covariance matrix of the q `dependent_columns`, 0 where a value is there;
            and the entropy (nats).
        """
        batch = x.shape[:-1]
        return x, jnp.zeros((*batch, 0, 0), jnp.result_type(float)), jnp.zeros(batch, jnp.result_type(float))

    def with_covariances(self, rows: Statistics, covariances: Float[Array, "... q q"]) -> Statistics:
        """Expected statistics of uncertain rows, from those of their means and the covariances of `dependent_columns`."""
        return rows


class PlainStatistics:
    """Mixin for families whose statistics do not depend on the hyperparameters."""

    def restated(self, stats: Statistics, anchor: Any) -> Statistics:
        """The same statistics."""
        return stats


class ComponentPredictive(dist.Distribution):
    """Predictive distribution of any component: the density is `log_predictive`, draws use the posterior."""

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
        """Draw parameters from the posterior, then a row from the likelihood, independently for each draw."""
        assert key is not None
        key_parameters, key_row = jax.random.split(key)
        parameters = self.component.posterior(self.stats).sample(key_parameters, sample_shape)
        return self.component.likelihood(parameters).sample(key_row)


class ComponentLikelihood(dist.Distribution):
    """Distribution of rows given their parameters, `component.likelihood(parameters)`, that keeps track of the component.

    A model that uses it allows inference to integrate the parameters out or to draw them given the rows.

    Parameters
    ----------
    component
        The conjugate component.
    parameters
        ``(..., *parameter)`` parameters of each row, as drawn from `component.prior()`.

    Raises
    ------
    TypeError
        If `component` is not a component.
    """

    pytree_data_fields = ("component", "parameters")

    def __init__(self, component: Component, parameters: Float[Array, "..."], *, validate_args: bool | None = None) -> None:
        if not isinstance(component, Component):
            raise TypeError(
                f"ComponentLikelihood: component must be a bnp_hier component, but it is {type(component).__name__}"
            )
        self.component, self.parameters = component, parameters
        # as a shape only: the likelihood itself may factorise a matrix for every row, in each evaluation of a density
        shapes: list[tuple[int, ...]] = []
        jax.eval_shape(lambda parameters: shapes.append(component.likelihood(parameters).batch_shape), parameters)
        batch_shape = shapes[0]
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
        """Draw one row per set of parameters."""
        return self.component.likelihood(self.parameters).sample(key, sample_shape)

"""Mixed column types: groups of columns, each with its own family."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num
from numpyro.distributions.util import validate_sample

from bnp_hier.components.base import Component, Quadratic
from bnp_hier.components.beta_bernoulli import BetaBernoulli
from bnp_hier.components.hints import Columns
from bnp_hier.components.learned import LearnedPrior, builder, prior_of
from bnp_hier.components.missing import ColumnGroups
from bnp_hier.components.normal_inverse_gamma import NormalInverseGamma
from bnp_hier.components.parameter_spaces import IndependentBlocks
from bnp_hier.native import Part
from bnp_hier.utils.arrays import as_matrix, is_traced

__all__ = ["ProductComponent"]


def _total(terms: Iterable[Any]) -> Any:
    return reduce(jnp.add, terms)


@contextmanager
def _naming(columns: Sequence[int]) -> Iterator[None]:
    """Add the columns of a part to its error messages."""
    try:
        yield
    except ValueError as error:
        # which column it is in the whole table
        located = re.sub(r"\bcolumn (\d+)", lambda found: f"column {columns[int(found[1])]}", str(error))
        raise ValueError(f"in the columns {', '.join(map(str, columns))}: {located}") from error


class ColumnGroupsDistribution(dist.Distribution):
    """Distribution of rows whose groups of columns are independent."""

    pytree_data_fields = ("parts",)
    pytree_aux_fields = ("columns",)

    def __init__(
        self,
        parts: tuple[dist.Distribution, ...],
        columns: Sequence[Sequence[int]],
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.parts, self.columns = tuple(parts), columns
        batch = jnp.broadcast_shapes(*(part.batch_shape for part in parts))
        super().__init__(batch_shape=batch, event_shape=(sum(map(len, columns)),), validate_args=validate_args)

    @property
    def support(self) -> ColumnGroups:
        """Support of each group."""
        return ColumnGroups(tuple((part.support, tuple(c)) for part, c in zip(self.parts, self.columns, strict=True)))

    @property
    def mean(self) -> Float[Array, "... d"]:
        """Mean of each column."""
        means = jnp.concatenate([part.mean for part in self.parts], axis=-1)
        return means[..., np.argsort([j for group in self.columns for j in group])]

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Sum of the log densities of the groups (nats)."""
        return _total(part.log_prob(value[..., np.array(c)]) for part, c in zip(self.parts, self.columns, strict=True))

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Num[Array, "... d"]:
        """Draw each group independently."""
        assert key is not None
        keys = jax.random.split(key, len(self.parts))
        out = jnp.zeros((*sample_shape, *self.batch_shape, *self.event_shape))
        for part, columns, part_key in zip(self.parts, self.columns, keys, strict=True):
            out = out.at[..., np.array(columns)].set(part.sample(part_key, sample_shape).astype(out.dtype))
        return out


class ProductComponent(Component):
    """Independent groups of columns, each with its own family.

    Parameters
    ----------
    parts
        One component per group.
    columns
        One sequence of column numbers per group; together, they contain each of 0, ..., d − 1 exactly once.

    Notes
    -----
    The parameters of a cluster are the parameters of the parts, flattened and concatenated. Missing values are marginalised
    by the parts that allow them. Those of dependent columns (`NormalInverseWishart`, `NormalKnownCovariance`) are cells of the
    model, which are drawn or imputed given all columns of the row; in new rows, they are integrated out.

    Examples
    --------
    >>> import bnp_hier as bnp
    >>> normal = bnp.NormalInverseGamma(mean=[0.0], kappa=0.1, shape=2.0, rate=1.0)
    >>> bits = bnp.BetaBernoulli(a=[1.0, 1.0], b=[1.0, 1.0])
    >>> component = bnp.ProductComponent([normal, bits], columns=[[1], [0, 2]])
    >>> component.dim, round(component.log_evidence([[1, 0.2, 0], [1, -0.1, 1]]), 3)
    (3, -5.624)
    """

    parts: Sequence[Component]
    columns: Sequence[Sequence[int]] = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        wrong = [c for group in self.columns for c in group if not isinstance(c, int | np.integer)]
        if wrong:
            raise TypeError(f"ProductComponent: columns must be whole numbers, but they include {wrong[0]!r}")
        columns = tuple(tuple(int(c) for c in group) for group in self.columns)
        if not parts or len(parts) != len(columns):
            raise ValueError(
                f"ProductComponent: {len(parts)} parts but {len(columns)} groups of columns; expected one group per part"
            )
        if sorted(c for group in columns for c in group) != list(range(sum(map(len, columns)))):
            raise ValueError(
                f"ProductComponent: the groups {columns} must contain each of the columns 0, ..., d - 1 exactly once"
            )
        for part, group in zip(parts, columns, strict=True):
            if not isinstance(part, Component):
                raise TypeError(f"ProductComponent: {part!r} is not a component")
            if part.dim != len(group):
                raise ValueError(
                    f"ProductComponent: {type(part).__name__} has {part.dim} columns, but its group has {len(group)}"
                )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "columns", columns)

    @classmethod
    def from_data(
        cls,
        X: ArrayLike,
        *,
        learn: bool = True,
        families: Sequence[type[Component] | str] | None = None,
        columns: Sequence[Sequence[int]] | None = None,
    ) -> Any:
        """Build each group with its `from_data`, by default BetaBernoulli for binary columns and NormalInverseGamma otherwise.

        Parameters
        ----------
        X
            Data, (n, d).
        learn
            True: return the component with priors on the hyperparameters of the groups, for use as `component` of a model;
            the names of the sites begin with the number of the group, as in `part0_within`. False: return the component.
        families, columns
            Class, or short name as in `MixtureModel` ("normal", "spherical", "bernoulli", ...), and column numbers of each
            group.

        Returns
        -------
        component
            `LearnedPrior`, or the component if `learn` is False or no group has hyperparameters to learn.

        Raises
        ------
        ValueError
            If there are fewer than two rows, only one of `families` and `columns` is given, they differ in length, a family is
            unknown, `columns` does not match X, a group does not fit its family, or a column without a given family has only
            missing values.

        Examples
        --------
        >>> from bnp_hier import ProductComponent
        >>> X = [[0.0, 0.1, 1.0], [2.0, 4.2, 0.0], [1.0, 2.1, 1.0]]
        >>> component = ProductComponent.from_data(X, families=["normal", "bernoulli"], columns=[[0, 1], [2]], learn=False)
        >>> [type(part).__name__ for part in component.parts]
        ['NormalInverseWishart', 'BetaBernoulli']
        """
        matrix = as_matrix(X, min_rows=2)
        if (families is None) != (columns is None):
            raise ValueError("ProductComponent.from_data: give both families and columns, or neither")
        beyond = [c for group in columns or () for c in group if not 0 <= c < matrix.shape[1]]
        if beyond:
            raise ValueError(
                f"ProductComponent.from_data: X has {matrix.shape[1]} columns, but the groups contain column {beyond[0]}"
            )
        if families is None or columns is None:
            if np.isnan(matrix).all(0).any():
                column = int(np.isnan(matrix).all(0).argmax())
                raise ValueError(
                    f"ProductComponent.from_data: column {column} of X has only missing values; drop it or specify its family"
                )
            bits = ((matrix == 0) | (matrix == 1) | np.isnan(matrix)).all(0)
            groups = [(BetaBernoulli, np.flatnonzero(bits)), (NormalInverseGamma, np.flatnonzero(~bits))]
            families, columns = zip(*[(f, tuple(c.tolist())) for f, c in groups if len(c)], strict=True)
        if len(families) != len(columns):
            raise ValueError(f"ProductComponent.from_data: {len(families)} families but {len(columns)} groups of columns")
        parts = []
        for (family, form), group in zip(map(_family, families), columns, strict=True):
            parts.append(prior_of(family, matrix[:, list(group)], learn, **form))
        return (
            _joined(cls, parts, columns) if any(isinstance(part, LearnedPrior) for part in parts) else cls(parts, columns)  # type: ignore[arg-type]
        )

    @property
    def allows_missing(self) -> bool:  # type: ignore[override]
        """Whether every part allows missing values."""
        return all(part.allows_missing for part in self.parts)

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Suits columns that are all categories, or of different kinds."""
        if columns.found == {"category"}:
            return "all columns are categories"
        return f"columns of different kinds: {', '.join(sorted(columns.found))}" if len(columns.found) > 1 else None

    def parts_and_columns(self) -> tuple[tuple[Component, tuple[int, ...]], ...]:
        """The parts and their columns."""
        return tuple((part, tuple(columns)) for part, columns in zip(self.parts, self.columns, strict=True))

    @property
    def dim(self) -> int:
        """Number of columns."""
        return sum(len(group) for group in self.columns)

    @property
    def support(self) -> ColumnGroups:
        """Support of each group."""
        return ColumnGroups(tuple((p.support, tuple(c)) for p, c in zip(self.parts, self.columns, strict=True)))

    def validate(self, X: ArrayLike) -> None:
        """Check each group against its family; error messages name the columns of the group."""
        self._check_groups(X, lambda part, group: part.validate(group))

    def validate_new_rows(self, X: ArrayLike) -> None:
        """Check each group of rows whose density is computed."""
        self._check_groups(X, lambda part, group: part.validate_new_rows(group))

    def check_precision(self, X: ArrayLike, *, parameters: bool = False) -> None:
        """Check each group; error messages name the columns of the group."""
        self._check_groups(X, lambda part, group: part.check_precision(group, parameters=parameters))

    def _check_groups(self, X: ArrayLike, check: Callable[[Component, np.ndarray], None]) -> None:
        if is_traced(X):
            return
        matrix = as_matrix(X)
        if matrix.shape[1] != self.dim:
            raise ValueError(f"X has {matrix.shape[1]} columns, but ProductComponent was built for {self.dim} columns")
        for part, columns in zip(self.parts, self.columns, strict=True):
            with _naming(columns):
                check(part, matrix[:, list(columns)])

    def _by_part(self, X: ArrayLike) -> Iterator[tuple[Component, Any]]:
        """The parts, each with its own columns of a table."""
        table = X if isinstance(X, jax.Array) else np.asarray(X)
        return ((part, table[..., np.array(c)]) for part, c in zip(self.parts, self.columns, strict=True))

    def centered_on(self, X: ArrayLike) -> Self:
        """Centre each part on its own columns."""
        return dataclasses.replace(self, parts=[part.centered_on(x) for part, x in self._by_part(X)])

    def reference(self) -> Float[Array | np.ndarray, " d"]:
        """The reference points of the parts, in the order of the columns."""
        points = [part.reference() for part in self.parts]
        back = np.argsort(np.concatenate([np.array(c) for c in self.columns]))
        return (jnp if any(isinstance(point, jax.Array) for point in points) else np).concatenate(points)[back]

    def translated(self, by: Float[Array | np.ndarray, " d"]) -> Self:
        """Translate each part by its own columns of `by`."""
        return dataclasses.replace(self, parts=[part.translated(own) for part, own in self._by_part(by)])

    def anchor(self) -> ProductComponent | None:
        """The anchors of the parts, if all have one."""
        anchors = [part.anchor() for part in self.parts]
        return None if None in anchors else ProductComponent(cast(Any, anchors), self.columns)

    def restated(self, stats: Any, anchor: Any) -> Any:
        """Tuple of the statistics of the parts."""
        return tuple(p.restated(s, a) for p, s, a in zip(self.parts, stats, anchor.parts, strict=True))

    def log_marginal_of_restated(self, stats: Any, anchor: Any) -> Float[Array, "..."]:
        """Sum over the parts."""
        return _total(p.log_marginal_of_restated(s, a) for p, s, a in zip(self.parts, stats, anchor.parts, strict=True))

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> Any:
        """Tuple of the statistics of the parts."""
        return tuple(part.suff_stats(x) for part, x in self._by_part(X))

    def log_marginal(self, stats: Any) -> Float[Array, "..."]:
        """Sum of the log marginal likelihoods of the parts (nats)."""
        return _total(part.log_marginal(s) for part, s in zip(self.parts, stats, strict=True))

    def cache(self, stats: Any) -> Any:
        """Tuple of the caches of the parts."""
        return tuple(part.cache(s) for part, s in zip(self.parts, stats, strict=True))

    def update_cache(self, cache: Any, row: Any, sign: ArrayLike) -> Any:
        """Update the cache of each part."""
        return tuple(p.update_cache(c, r, sign) for p, c, r in zip(self.parts, cache, row, strict=True))

    def cached_log_predictive(self, cache: Any, row: Any) -> Float[Array, "..."]:
        """Sum of the log predictive densities of the parts (nats)."""
        return _total(p.cached_log_predictive(c, r) for p, c, r in zip(self.parts, cache, row, strict=True))

    def log_marginal_up_to(self, count: int) -> Any:
        """Sum of the functions of the parts, which may use tables."""
        functions = [part.log_marginal_up_to(count) for part in self.parts]
        return lambda stats: _total(f(s) for f, s in zip(functions, stats, strict=True))

    @property
    def dependent_columns(self) -> tuple[int, ...]:
        """Those of the parts."""
        return tuple(sorted(c[j] for part, c in zip(self.parts, self.columns, strict=True) for j in part.dependent_columns))

    def density_of_cells(self, stats: Any) -> Any:
        """Tuple of those of the parts."""
        return tuple(part.density_of_cells(s) for part, s in zip(self.parts, stats, strict=True))

    def log_density_of_cells(self, density: Any, x: Num[Array, "... d"]) -> Float[Array, "..."]:
        """Sum of the log predictive densities of the parts (nats)."""
        groups = zip(self._by_part(x), density, strict=True)
        return _total(part.log_density_of_cells(own, cells) for (part, cells), own in groups)

    def draw_cells(self, density: Any, x: Num[Array, " d"], key: Array) -> Num[Array, " d"]:
        """The row with the missing values of each part drawn: given the cluster, the parts are independent."""
        keys = jax.random.split(key, len(self.parts))
        for part, columns, of_part, key_part in zip(self.parts, self.columns, density, keys, strict=True):
            c = np.array(columns)
            x = x.at[c].set(part.draw_cells(of_part, x[c], key_part))
        return x

    def expected_parameters(self, stats: Any) -> Any:
        """Tuple of those of the parts."""
        return tuple(part.expected_parameters(s) for part, s in zip(self.parts, stats, strict=True))

    def expected_cells(
        self, parameters: Any, x: Num[Array, "... d"]
    ) -> tuple[Num[Array, "... d"], Float[Array, "... q q"], Float[Array, "..."]]:
        """Normal approximations of the parts, which are independent of each other."""
        mean, entropies, batch = x, [], x.shape[:-1]
        covariance = jnp.zeros((*batch, *[len(self.dependent_columns)] * 2), jnp.result_type(float))
        for part, columns, own, at in zip(self.parts, self.columns, parameters, self._blocks(), strict=True):
            c = np.array(columns)
            mean_part, covariance_part, entropy = part.expected_cells(own, x[..., c])
            mean, covariance = mean.at[..., c].set(mean_part), covariance.at[at].set(covariance_part)
            entropies.append(entropy)
        return mean, covariance, _total(entropies)

    def with_covariances(self, rows: Any, covariances: Float[Array, "... q q"]) -> Any:
        """Each part with its own block of the covariance matrices."""
        return tuple(p.with_covariances(r, covariances[at]) for p, r, at in zip(self.parts, rows, self._blocks(), strict=True))

    def _blocks(self) -> list[tuple[Any, ...]]:
        """Where the covariance matrix of the dependent columns of each part is in that of all of them."""
        places = [
            np.searchsorted(self.dependent_columns, np.array([c[j] for j in part.dependent_columns], int))
            for part, c in zip(self.parts, self.columns, strict=True)
        ]
        return [(..., at[:, None], at) for at in places]

    def native(self) -> tuple[Part, ...] | None:
        """The native families of the parts, if all have one."""
        found = []
        for part, group in zip(self.parts, self.columns, strict=True):
            inner = part.native()
            if inner is None:
                return None
            found += [one._replace(columns=tuple(group[column] for column in one.columns)) for one in inner]
        return tuple(found)

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... q"]:
        """Concatenated coordinates of the parts."""
        return jnp.concatenate([part.coordinates(x) for part, x in self._by_part(X)], axis=-1)

    def row_quadratic(self, natural: Any) -> Quadratic:
        """Sum of the quadratic functions of the parts, in the concatenated coordinates."""
        pieces = [part.row_quadratic(n) for part, n in zip(self.parts, natural, strict=True)]
        widths = [piece.linear.shape[-1] for piece in pieces]
        ends = np.cumsum(widths)
        square = jnp.concatenate(
            [
                jnp.pad(piece.square, [(0, 0)] * (piece.square.ndim - 1) + [(end - width, ends[-1] - end)])
                for piece, width, end in zip(pieces, widths, ends, strict=True)
            ],
            axis=-2,
        )
        return Quadratic(_total(p.constant for p in pieces), jnp.concatenate([p.linear for p in pieces], axis=-1), square)

    def natural_parameters(self, parameters: Float[Array, "... p"]) -> Any:
        """Tuple of the coefficients of the parts."""
        blocks = self.prior().support.split(parameters)
        return tuple(part.natural_parameters(block) for part, block in zip(self.parts, blocks, strict=True))

    def predictive(self, stats: Any) -> ColumnGroupsDistribution:
        """Independent predictive distributions of the parts."""
        return ColumnGroupsDistribution(tuple(p.predictive(s) for p, s in zip(self.parts, stats, strict=True)), self.columns)

    def posterior(self, stats: Any) -> IndependentBlocks:
        """Independent posteriors of the parts, with the parameter arrays flattened and concatenated."""
        return IndependentBlocks(tuple(part.posterior(s) for part, s in zip(self.parts, stats, strict=True)))

    def likelihood(self, parameters: Float[Array, "... p"]) -> ColumnGroupsDistribution:
        """Independent likelihoods of the parts."""
        blocks = self.prior().support.split(parameters)
        return ColumnGroupsDistribution(tuple(p.likelihood(b) for p, b in zip(self.parts, blocks, strict=True)), self.columns)


def _family(family: type[Component] | str) -> tuple[type[Component], Mapping[str, str]]:
    """The class of a family and options of its `from_data`."""
    from bnp_hier.components import named_family  # the registry contains this module's family

    return named_family(family) if isinstance(family, str) else (family, {})


def _joined(
    family: type[ProductComponent], parts: Sequence[Component | LearnedPrior], columns: Sequence[Sequence[int]]
) -> LearnedPrior:
    """The priors of all parts as one."""
    named = [part.named(f"part{k}_") if isinstance(part, LearnedPrior) else part for k, part in enumerate(parts)]
    learned = [part for part in named if isinstance(part, LearnedPrior)]
    priors = {part.prefix + name: prior for part in learned for name, prior in part.priors.items()}
    starts = {part.prefix + name: values for part in learned for name, values in part.starts.items()}
    return LearnedPrior(family, priors, partial(_assembled, family, named, columns), starts)


@builder
def _assembled(
    family: type[ProductComponent],
    parts: Sequence[Component | LearnedPrior],
    columns: Sequence[Sequence[int]],
    **values: Any,
) -> ProductComponent:
    def built(part: Component | LearnedPrior) -> Component:
        if isinstance(part, Component):
            return part
        return part.built({name: values[part.prefix + name] for name in part.priors})

    return family([built(part) for part in parts], columns)

"""Independent binary columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from bnp_hier.components.base import Component, PlainStatistics, Quadratic
from bnp_hier.components.checks import check_positive, check_vector
from bnp_hier.components.distributed_tables import derived_from_all_rows
from bnp_hier.components.hints import Columns
from bnp_hier.components.learned import LearnedPrior, about, builder, given_or_learned
from bnp_hier.components.missing import CellsOrMissing, bits_or_missing
from bnp_hier.components.special import log_beta
from bnp_hier.native import Part
from bnp_hier.utils.arrays import as_matrix, first_cell, is_traced

__all__ = ["BetaBernoulli"]


class BitStatistics(NamedTuple):
    """Sums over the observed cells.

    - **ones** - number of ones per column, shape (d,).
    - **zeros** - number of zeros per column, shape (d,).
    """

    ones: Float[Array, "... d"]
    zeros: Float[Array, "... d"]


class BitCache(NamedTuple):
    """Counts of a cluster with the log predictive probabilities of its next row.

    - **stats** - the counts of the cluster.
    - **log_one**, **log_zero** - log predictive probabilities of a one and of a zero, per column, shape (d,).
    """

    stats: BitStatistics
    log_one: Float[Array, "... d"]
    log_zero: Float[Array, "... d"]


class BetaBernoulli(PlainStatistics, Component):
    """Independent binary columns; probability of a one ~ Beta(a, b).

    Parameters
    ----------
    a, b
        Pseudo-counts of ones and zeros per column: vectors of length d, > 0.

    Notes
    -----
    Heller & Ghahramani (2005), appendix B. Missing values (NaN) are marginalised exactly. The parameters of a cluster
    are its probabilities of a one, shape (d,).

    Examples
    --------
    >>> from bnp_hier import BetaBernoulli
    >>> component = BetaBernoulli(a=[1.0, 1.0], b=[1.0, 1.0])
    >>> round(component.log_evidence([[0, 1], [1, 1]]), 3)
    -2.89
    """

    a: ArrayLike
    b: ArrayLike
    allows_missing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        name = type(self).__name__
        d = check_vector(name, "a", self.a)
        if np.shape(self.b) != (d,):
            raise ValueError(f"{name}: b must have the same shape as a, ({d},), but it has shape {np.shape(self.b)}")
        check_positive(name, "a", self.a, d)
        check_positive(name, "b", self.b, d)

    @classmethod
    @derived_from_all_rows
    def from_data(cls, X: ArrayLike, *, learn: bool = True, strength: float | None = None) -> Any:
        """Build a prior with smoothed column means p of the data: a = strength × p, b = strength × (1 − p).

        Parameters
        ----------
        X
            Values 0 and 1, (n, d); NaN is ignored. p is (ones + 1)/(observed cells + 2), so constant columns are allowed.
        learn
            True: return the component with a prior on `strength`, for use as `component` of a model: a site, (d,), log-normal
            with median 2, whose logarithm has standard deviation 1. False: return the component.
        strength
            Number of prior observations per column, a + b, which is then not learned; 2 for `learn=False`, which is the
            uniform prior for p = ½.

        Returns
        -------
        component
            `LearnedPrior`, or the component if `learn` is False.

        Raises
        ------
        ValueError
            If a value is not 0, 1 or NaN.

        Examples
        --------
        >>> from bnp_hier import BetaBernoulli
        >>> BetaBernoulli.from_data([[0, 1], [1, 1]], learn=False).a
        array([1. , 1.5])
        """
        if not is_traced(X):
            X = as_matrix(X)
            _check_bits(X)
        xp = jnp if is_traced(X) else np
        ones, cells = xp.equal(X, 1).sum(0, dtype=float), (xp.equal(X, 0) | xp.equal(X, 1)).sum(0, dtype=float)
        p = (ones + 1.0) / (cells + 2.0)
        if not learn:
            return _of_strength(cls, p, strength=2.0 if strength is None else strength)
        fixed, learned = given_or_learned({"strength": strength}, {"strength": about(2.0, p.shape[0])})
        starts = {"strength": [np.full(p.shape[0], each) for each in (2.0, 10.0, 0.5)]}
        return LearnedPrior(cls, learned, partial(_of_strength, cls, p, **fixed), starts)

    part_for: ClassVar[tuple[str, ...]] = ("binary",)

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Suits columns that are all binary."""
        return "every column contains only 0 and 1" if columns.found == {"binary"} else None

    def prior_rows(self, X: Float[np.ndarray, "n d"]) -> dict[str, float]:
        """Weight of the prior of the probabilities of a one, in rows."""
        return {"a + b": float(np.max(np.asarray(self.a) + np.asarray(self.b)))}

    @property
    def dim(self) -> int:
        """Number of columns."""
        return np.shape(self.a)[-1]

    @property
    def support(self) -> Any:
        """Rows of 0, 1 or NaN."""
        return bits_or_missing

    def _validate_values(self, X: np.ndarray) -> None:
        _check_bits(X)

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> BitStatistics:
        """Indicators of ones and of zeros for each row; both are 0 for a missing value."""
        x = jnp.asarray(X)
        dtype = jnp.result_type(float)
        return BitStatistics((x == 1).astype(dtype), (x == 0).astype(dtype))

    def log_marginal(self, stats: BitStatistics) -> Float[Array, "..."]:
        """Sum over columns of log B(a + ones, b + zeros) − log B(a, b) (nats)."""
        a, b = jnp.asarray(self.a), jnp.asarray(self.b)
        return (log_beta(a + stats.ones, b + stats.zeros) - log_beta(a, b)).sum(-1)

    def log_marginal_up_to(self, count: int) -> Callable[[BitStatistics], Float[Array, "..."]]:
        """`log_marginal` with lookup tables of log gamma functions, since counts are whole numbers."""
        a, b = jnp.asarray(self.a)[:, None], jnp.asarray(self.b)[:, None]
        counts = jnp.arange(count + 1).astype(jnp.result_type(float))
        tables = tuple(gammaln(p + counts) - gammaln(p) for p in (a, b, a + b))

        def log_marginal(stats: BitStatistics) -> Float[Array, "..."]:
            m, k = stats.ones.astype(jnp.int32), stats.zeros.astype(jnp.int32)

            def add(column: Array, total: Array) -> Array:
                of_ones, of_zeros, of_cells = (table[column] for table in tables)
                i, j = m[..., column], k[..., column]
                return total + of_ones[i] + of_zeros[j] - of_cells[i + j]

            # one column after another, so that the row of a table stays in the cache
            return jax.lax.fori_loop(0, self.dim, add, jnp.zeros(m.shape[:-1], counts.dtype))

        return log_marginal

    def cache(self, stats: BitStatistics) -> BitCache:
        """Counts and the resulting log predictive probabilities."""
        a, b = self.a + stats.ones, self.b + stats.zeros
        log_cells = jnp.log(a + b)
        return BitCache(stats, jnp.log(a) - log_cells, jnp.log(b) - log_cells)

    def update_cache(self, cache: BitCache, row: BitStatistics, sign: ArrayLike) -> BitCache:
        """Update the counts and recompute the logarithms, which are few for one cluster."""
        return self.cache(super().update_cache(cache.stats, row, sign))

    def cached_log_predictive(self, cache: BitCache, row: BitStatistics) -> Float[Array, "..."]:
        """Log of the product of Bernoulli probabilities over the observed cells (nats)."""
        return (row.ones * cache.log_one + row.zeros * cache.log_zero).sum(-1)

    def native(self) -> tuple[Part, ...]:
        """The native family "bernoulli"."""
        return (Part("bernoulli", tuple(range(self.dim)), (self.a, self.b)),)

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... d"]:
        """The values 0 and 1."""
        return self.suff_stats(X).ones

    def row_quadratic(self, natural: BitStatistics) -> Quadratic:
        """Linear in the values: in complete rows, the indicator of a zero is 1 minus the value."""
        return Quadratic(natural.zeros.sum(-1), natural.ones - natural.zeros, jnp.zeros((*natural.ones.shape, self.dim)))

    def natural_parameters(self, parameters: Float[Array, "... d"]) -> BitStatistics:
        """Log probabilities of a one and of a zero."""
        smallest = jnp.finfo(parameters.dtype).tiny
        ones, zeros = jnp.maximum(parameters, smallest), jnp.maximum(1.0 - parameters, smallest)
        return BitStatistics(jnp.log(ones), jnp.log(zeros))

    def predictive(self, stats: BitStatistics) -> dist.Distribution:
        """Independent Bernoulli distributions."""
        a, b = self.a + stats.ones, self.b + stats.zeros
        return CellsOrMissing(dist.Bernoulli(probs=a / (a + b)))

    def posterior(self, stats: BitStatistics) -> dist.Distribution:
        """Independent Beta distributions."""
        return dist.Beta(self.a + stats.ones, self.b + stats.zeros).to_event(1)

    def likelihood(self, parameters: Float[Array, "... d"]) -> dist.Distribution:
        """Independent Bernoulli distributions with the given probabilities of a one."""
        return CellsOrMissing(dist.Bernoulli(probs=parameters))


def _check_bits(X: np.ndarray) -> None:
    wrong = ~((X == 0) | (X == 1) | np.isnan(X))
    if wrong.any():
        where = first_cell(wrong)
        raise ValueError(f"BetaBernoulli needs 0 or 1 in every cell, but X has {X[wrong][0]:g} at {where}")


@builder
def _of_strength(family: type[BetaBernoulli], mean: ArrayLike, *, strength: ArrayLike) -> BetaBernoulli:
    return family(strength * mean, strength * (1.0 - mean))

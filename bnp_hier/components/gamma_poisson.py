"""Independent columns of counts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from bnp_hier.components.base import Component, PlainStatistics, Quadratic
from bnp_hier.components.checks import check_counts, check_positive, check_vector
from bnp_hier.components.distributed_tables import derived_from_all_rows
from bnp_hier.components.hints import Columns
from bnp_hier.components.learned import LearnedPrior, about, builder, given_or_learned
from bnp_hier.components.missing import CellsOrMissing, counts_or_missing
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.native import Part
from bnp_hier.utils.arrays import as_matrix, is_traced

__all__ = ["GammaPoisson"]


class EventStatistics(NamedTuple):
    """Sums over the observed cells.

    - **n** - number of observed cells per column, shape (d,).
    - **total** - Σ x, shape (d,).
    - **log_factorial** - Σ log x! over all columns, shape ().
    """

    n: Float[Array, "... d"]
    total: Float[Array, "... d"]
    log_factorial: Float[Array, "..."]


class GammaPoisson(PlainStatistics, Component):
    """Independent columns of counts; Poisson rate ~ Gamma(shape, rate).

    Parameters
    ----------
    shape, rate
        Shape and rate of the gamma prior: vectors of length d, > 0; `rate` may also be a number.

    Notes
    -----
    Missing values (NaN) are marginalised exactly. The parameters of a cluster are its Poisson rates, shape (d,).

    Examples
    --------
    >>> from bnp_hier import GammaPoisson
    >>> component = GammaPoisson(shape=[1.0, 1.0], rate=0.5)
    >>> round(component.log_evidence([[3, 0], [2, 1]]), 3)
    -6.414
    """

    shape: ArrayLike
    rate: ArrayLike
    allows_missing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        name = type(self).__name__
        d = check_vector(name, "shape", self.shape)
        check_positive(name, "shape", self.shape, d)
        check_positive(name, "rate", self.rate, d)

    @classmethod
    @derived_from_all_rows
    def from_data(cls, X: ArrayLike, *, learn: bool = True, shape: float | None = None) -> Any:
        """Build a prior whose mean is the column mean (smoothed by one event): shape as given, rate = shape / mean.

        Parameters
        ----------
        X
            Counts, (n, d); NaN is ignored.
        learn
            True: return the component with priors on its hyperparameters, for use as `component` of a model: `shape`, (d,),
            log-normal with median 1, and `level`, (d,), the prior mean relative to the column mean, log-normal with median 1.
            The logarithms have standard deviation 1 and 0.3. False: return the component.
        shape
            Shape of the gamma prior, which is then not learned; 1 for `learn=False`.

        Returns
        -------
        component
            `LearnedPrior`, or the component if `learn` is False.

        Raises
        ------
        ValueError
            If a value is neither a count nor NaN.
        """
        if not is_traced(X):
            X = as_matrix(X)
            check_counts(cls.__name__, X)
        mean = (jnp.nansum(X, 0) + 1.0) / ((~jnp.isnan(X)).sum(0, dtype=float) + 1.0) if is_traced(X) else None
        if mean is None:
            mean = (np.nansum(X, 0) + 1.0) / ((~np.isnan(X)).sum(0) + 1.0)
        if not learn:
            return _of_mean(cls, mean, shape=1.0 if shape is None else shape)
        d = mean.shape[0]
        priors = {"shape": about(1.0, d), "level": dist.LogNormal(np.zeros(d), np.full(d, 0.3))}
        fixed, learned = given_or_learned({"shape": shape}, priors)
        starts = {"shape": [np.full(d, each) for each in (1.0, 5.0, 0.3)]}
        return LearnedPrior(cls, learned, partial(_of_mean, cls, mean, **fixed), starts)

    part_for: ClassVar[tuple[str, ...]] = ("count",)

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Suits columns of counts, of which up to half may be binary."""
        counts = columns.kinds.count("count")
        if columns.found in ({"count"}, {"count", "binary"}) and counts >= 0.5 * len(columns.kinds):
            return "the columns contain counts"
        return None

    def prior_warnings(self, X: Float[np.ndarray, "n d"], limit: float) -> Iterator[str]:
        """Warn if the prior counts as more events than a cluster has.

        Its weight in rows is not checked, because it is large whenever events are rare.
        """
        shape = np.broadcast_to(self.shape, self.dim)
        events = np.nansum(X, axis=0) / np.maximum((~np.isnan(X)).sum(0), 1) * limit
        if (shape > np.maximum(events, 3.0)).any():
            yield (
                f"the prior outweighs the data: shape counts as {shape.max():.3g} events, more than a cluster with a tenth "
                "of the rows has; lower shape and rate together, or use GammaPoisson.from_data"
            )

    @property
    def dim(self) -> int:
        """Number of columns."""
        return np.shape(self.shape)[-1]

    @property
    def support(self) -> Any:
        """Rows of counts or NaN."""
        return counts_or_missing

    def _validate_values(self, X: np.ndarray) -> None:
        check_counts(type(self).__name__, X)

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> EventStatistics:
        """Observed cells, counts and log factorials for each row; a missing value contributes nothing."""
        x = jnp.asarray(X, jnp.result_type(float))
        there = ~jnp.isnan(x)
        x = jnp.where(there, x, 0.0)
        return EventStatistics(there.astype(x.dtype), x, gammaln(x + 1).sum(-1))

    def log_marginal(self, stats: EventStatistics) -> Float[Array, "..."]:
        """Gamma-Poisson log marginal likelihood (nats)."""
        a, b = jnp.asarray(self.shape), jnp.asarray(self.rate)
        columns = gammaln(a + stats.total) - gammaln(a) - a * jnp.log1p(stats.n / b)
        columns = columns - stats.total * jnp.log(b + stats.n)
        return columns.sum(-1) - stats.log_factorial

    def cached_log_predictive(self, cache: EventStatistics, row: EventStatistics) -> Float[Array, "..."]:
        """Log of the product of negative binomial probabilities over the observed cells (nats)."""
        a, b = self.shape + cache.total, self.rate + cache.n
        columns = log_gamma_ratio(a, row.total) - a * jnp.log1p(row.n / b) - row.total * jnp.log(b + row.n)
        return columns.sum(-1) - row.log_factorial

    def native(self) -> tuple[Part, ...]:
        """The native family "poisson"."""
        rate = jnp.broadcast_to(self.rate, (self.dim,)) if is_traced(self) else np.broadcast_to(self.rate, (self.dim,))
        return (Part("poisson", tuple(range(self.dim)), (self.shape, rate)),)

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... d"]:
        """The counts."""
        return self.suff_stats(X).total

    def row_quadratic(self, natural: EventStatistics) -> Quadratic:
        """Linear in the counts."""
        return Quadratic(natural.n.sum(-1), natural.total, jnp.zeros((*natural.total.shape, self.dim)))

    def natural_parameters(self, parameters: Float[Array, "... d"]) -> EventStatistics:
        """Coefficients: −rates for the counts of cells, log rates for the totals, −1 for the log factorials."""
        log_rate = jnp.log(jnp.maximum(parameters, jnp.finfo(parameters.dtype).tiny))
        return EventStatistics(-parameters, log_rate, -jnp.ones(parameters.shape[:-1], parameters.dtype))

    def posterior(self, stats: EventStatistics) -> dist.Distribution:
        """Independent gamma distributions."""
        return dist.Gamma(self.shape + stats.total, self.rate + stats.n).to_event(1)

    def likelihood(self, parameters: Float[Array, "... d"]) -> dist.Distribution:
        """Independent Poisson distributions with the given rates."""
        return CellsOrMissing(dist.Poisson(parameters))


@builder
def _of_mean(family: type[GammaPoisson], mean: ArrayLike, *, shape: ArrayLike, level: ArrayLike = 1.0) -> GammaPoisson:
    return family(shape * (mean * 0.0 + 1.0), shape / (level * mean))

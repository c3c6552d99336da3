"""Independent normal columns with unknown means and variances."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from bnp_hier.components.base import Quadratic
from bnp_hier.components.checks import check_positive, column_moments, with_rounding
from bnp_hier.components.distributed_tables import derived_from_all_rows
from bnp_hier.components.hints import Columns, Spread
from bnp_hier.components.learned import LearnedPrior, about, builder, few_rows, given_or_learned
from bnp_hier.components.missing import CellsOrMissing, real_or_missing
from bnp_hier.components.normal_family import NormalFamily, check_digits
from bnp_hier.components.parameter_spaces import NormalInverseGammaParameters
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.native import Part
from bnp_hier.utils.arrays import is_traced

__all__ = ["NormalInverseGamma"]

FULL_COLUMNS = 20
"""Largest number of columns for which a full covariance matrix is the default."""

LOG_2PI = float(np.log(2 * np.pi))


class ColumnStatistics(NamedTuple):
    """Sums over the observed cells, in coordinates y = (x − origin)/√rate; `origin` defaults to the prior mean.

    - **n** - number of observed cells per column, shape (d,).
    - **total** - Σ y, shape (d,).
    - **squares** - Σ y², shape (d,).
    """

    n: Float[Array, "... d"]
    total: Float[Array, "... d"]
    squares: Float[Array, "... d"]


class ColumnCache(NamedTuple):
    """Posterior of the columns of a cluster, in standardised coordinates.

    - **n** - number of observed cells per column, shape (d,).
    - **mean** - posterior mean, shape (d,).
    - **rate** - posterior rate of the inverse-gamma distribution of the variance, shape (d,).
    """

    n: Float[Array, "... d"]
    mean: Float[Array, "... d"]
    rate: Float[Array, "... d"]


class NormalInverseGamma(NormalFamily):
    """Independent normal columns; variance ~ InverseGamma(shape, rate), mean given variance ~ N(mean, variance/kappa).

    Parameters
    ----------
    mean
        Prior means, shape (d,).
    kappa, shape, rate
        Number of prior observations behind the means, and shape and rate of the inverse-gamma prior of the variances: numbers
        or vectors of length d, all > 0.
    origin
        Reference point about which statistics are taken, (d,), by default `mean`. It affects numerical precision, but no
        probability; see `centered_on`.

    Notes
    -----
    Missing values (NaN) are marginalised exactly: each column has its own count. The parameters of a cluster are a (2, d)
    array: the means, followed by the variances.

    Examples
    --------
    >>> from bnp_hier import NormalInverseGamma
    >>> component = NormalInverseGamma(mean=[0.0, 1.0], kappa=0.1, shape=2.0, rate=1.0)
    >>> round(component.log_evidence([[0.1, 1.2], [-0.2, 0.9]]), 3)
    -5.468
    """

    mean: ArrayLike
    kappa: ArrayLike
    shape: ArrayLike
    rate: ArrayLike
    allows_missing: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("kappa", "shape", "rate"):
            check_positive(type(self).__name__, field, getattr(self, field), self.dim)

    @classmethod
    @derived_from_all_rows
    def from_data(
        cls,
        X: ArrayLike,
        *,
        learn: bool = True,
        kappa: float | None = None,
        shape: float | None = None,
        within: float | None = None,
    ) -> Any:
        """Build a prior centred on the data: mean = column means and E[variance] = `within` × column variances.

        Learned hyperparameters are the sites `within`, (d,), log-normal with median 0.3; `kappa` ~ Gamma(2, 20); and
        `extra_shape` = shape − 1, log-normal with median 2.5. The logarithms of the log-normal ones have standard deviation 1.
        To the expected variance of a column with repeated values, such as rounded ones, at least that of their rounding errors
        is added.

        Parameters
        ----------
        X
            Data, (n, d); NaN is ignored.
        learn
            True: return the component with priors on its hyperparameters, for use as `component` of a model. False: return
            the component.
        kappa
            Number of prior observations behind the means, which is then not learned; 0.1 for `learn=False`.
        shape
            Shape of the inverse-gamma prior, > 1 so that its mean exists, which is then not learned; 2 for `learn=False`.
        within
            Expected fraction of a column's variance within a cluster, which is then not learned; 0.3 for `learn=False`.

        Returns
        -------
        component
            `LearnedPrior`, or the component if `learn` is False.

        Raises
        ------
        ValueError
            If there are fewer than two rows, a column is constant, empty or contains infinite values, or `shape` is not greater
            than 1.
        """
        if shape is not None:
            check_positive(cls.__name__, "shape", shape, above=1.0)
        mean, variance = column_moments(cls.__name__, X)
        extra = None if shape is None else shape - 1.0
        given = {"within": within, "kappa": kappa, "extra_shape": extra}
        if not learn:
            chosen = {"within": 0.3, "kappa": 0.1, "extra_shape": 1.0} | {k: v for k, v in given.items() if v is not None}
            rate = chosen["within"] * chosen["extra_shape"] * variance
            return cls(mean=mean, kappa=chosen["kappa"], shape=1.0 + chosen["extra_shape"], rate=rate)
        d = mean.shape[0]
        priors = {"within": about(0.3, d), "kappa": few_rows(), "extra_shape": about(2.5)}
        fixed, learned = given_or_learned(given, priors)
        fixed |= with_rounding(X, variance)
        # today's defaults, wide clusters, narrow ones
        starts: dict[str, list[Any]] = {
            "within": [np.full(d, 0.3), np.full(d, 0.6), np.full(d, 0.1)],
            "kappa": [0.1, 0.3, 0.03],
            "extra_shape": [1.0, 10.0, 5.0],
        }
        return LearnedPrior(cls, learned, partial(_from_fractions, cls, mean, variance, **fixed), starts)

    part_for: ClassVar[tuple[str, ...]] = ("continuous", "identifier", "date", "constant")

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Suits continuous columns with missing values, or too many of them for a full covariance matrix."""
        n, d = columns.values.shape
        if not columns.found <= {"continuous"}:
            return None
        if columns.has_missing:
            return "the columns are continuous with missing values, which independent columns handle exactly"
        if d > FULL_COLUMNS:
            return f"{d} continuous columns are too many for a full covariance matrix per cluster"
        return f"{n} rows are too few for a full covariance matrix of {d} columns" if n < 2 * d else None

    def expected_spread(self) -> Spread:
        """Location and spread of a cluster expected under the normal-inverse-gamma prior."""
        shape = np.broadcast_to(self.shape, self.dim)
        variance = np.broadcast_to(np.asarray(self.rate) / np.maximum(shape - 1.0, 0.5), self.dim)
        return Spread(np.sqrt(variance), np.asarray(self.mean), np.sqrt(variance / np.asarray(self.kappa)))

    def prior_rows(self, X: Float[np.ndarray, "n d"]) -> dict[str, float]:
        """Weights of the priors of the means and of the variances, in rows."""
        return {"kappa": float(np.max(self.kappa)), "2 shape": 2.0 * float(np.max(self.shape))}

    @property
    def support(self) -> Any:
        """Rows of real numbers or NaN."""
        return real_or_missing

    def _columns(self, value: ArrayLike) -> Float[Array, " d"]:
        return jnp.broadcast_to(jnp.asarray(value), (self.dim,))

    def _whitened(self, differences: Float[Array, "... d"]) -> Float[Array, "... d"]:
        return differences / jnp.sqrt(jnp.asarray(self.rate))

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> ColumnStatistics:
        """Count, value and square of each cell in standardised coordinates, all zero if the value is missing."""
        x = self._about_origin(X)
        there = ~jnp.isnan(x)
        # scaled after missing values are replaced: a NaN would make the gradient with respect to `rate` NaN
        y = self._whitened(jnp.where(there, x, 0.0))
        return ColumnStatistics(there.astype(y.dtype), y, y * y)

    def restated(self, stats: ColumnStatistics, anchor: Any) -> ColumnStatistics:
        """Sums in this component's coordinates: y' = a y + b, with a = √(rate/rate') and b = (origin − origin')/√rate'."""
        unit = jnp.sqrt(self._columns(self.rate))
        a = jnp.sqrt(anchor._columns(anchor.rate)) / unit
        b = (jnp.asarray(anchor.reference()) - jnp.asarray(self.reference())) / unit
        squares = a**2 * stats.squares + 2.0 * a * b * stats.total + b**2 * stats.n
        return ColumnStatistics(stats.n, a * stats.total + b * stats.n, squares)

    def check_precision(self, X: ArrayLike, *, parameters: bool = False) -> None:
        """Check that the current precision suffices, as described for `Component.check_precision`."""
        if not is_traced(self):
            rate = np.broadcast_to(np.asarray(self.rate, dtype=np.float64), (self.dim,))
            check_digits(self, X, {"rate": rate}, lambda rows: rows / np.sqrt(rate), self._lost, parameters)

    def _lost(self, Y: Float[np.ndarray, "g m d"], unit: float) -> Float[np.ndarray, "g d"]:
        """Error in the log marginals of groups of standardised rows caused by rounding, by column (nats)."""
        m, average = Y.shape[1], Y.mean(1)
        kappa, shape = np.asarray(self.kappa), np.asarray(self.shape)
        offset = (np.asarray(self.mean) - np.asarray(self.reference())) / np.sqrt(np.asarray(self.rate))
        rate = 1 + (((Y - average[:, None]) ** 2).sum(1) + kappa * m / (kappa + m) * (average - offset) ** 2) / 2
        return (shape + m / 2) * unit * (Y**2).sum(1) / 2 / rate

    def _posterior(self, stats: ColumnStatistics) -> tuple[Float[Array, "... d"], Float[Array, "... d"]]:
        """Posterior mean and rate of each column, in standardised coordinates."""
        kappa, m = self._columns(self.kappa) + stats.n, self._offset
        pull = self._columns(self.kappa) * m / kappa
        rate = 1.0 + (stats.squares - stats.total**2 / kappa + pull * (stats.n * m - 2 * stats.total)) / 2
        return pull + stats.total / kappa, rate

    def log_marginal(self, stats: ColumnStatistics) -> Float[Array, "..."]:
        """Sum over columns of the one-dimensional normal-inverse-gamma log marginal likelihoods (nats)."""
        shape, kappa = self._columns(self.shape), self._columns(self.kappa)
        posterior_shape = shape + stats.n / 2
        rate = self._posterior(stats)[1]
        columns = (
            gammaln(posterior_shape)
            - gammaln(shape)
            - posterior_shape * jnp.log(rate)
            - jnp.log1p(stats.n / kappa) / 2
            - stats.n / 2 * (LOG_2PI + jnp.log(self._columns(self.rate)))
        )
        return columns.sum(-1)

    def cache(self, stats: ColumnStatistics) -> ColumnCache:
        """Posterior mean and rate of each column."""
        return ColumnCache(stats.n, *self._posterior(stats))

    def update_cache(self, cache: ColumnCache, row: ColumnStatistics, sign: ArrayLike) -> ColumnCache:
        """Running update of mean and rate; a missing value changes nothing."""
        kappa = self._columns(self.kappa) + cache.n
        step = jnp.asarray(sign, row.n.dtype) * row.n
        new_kappa = kappa + step
        difference = row.total - cache.mean
        return ColumnCache(
            cache.n + step,
            cache.mean + step / new_kappa * difference,
            jnp.maximum(cache.rate + step * kappa / new_kappa * difference**2 / 2, 1.0),
        )

    def cached_log_predictive(self, cache: ColumnCache, row: ColumnStatistics) -> Float[Array, "..."]:
        """Log of the product of Student-t densities over the observed cells (nats)."""
        kappa = self._columns(self.kappa) + cache.n
        shape = self._columns(self.shape) + cache.n / 2
        spread = 2.0 * cache.rate * (kappa + 1) / kappa
        difference = row.total - cache.mean
        cells = (
            log_gamma_ratio(shape, 0.5)
            - (jnp.log(jnp.pi * spread) + jnp.log(self._columns(self.rate))) / 2
            - (shape + 0.5) * jnp.log1p(difference**2 / spread)
        )
        return (row.n * cells).sum(-1)

    def native(self) -> tuple[Part, ...]:
        """The native family "diagonal"."""
        xp, d = (jnp if is_traced(self) else np), self.dim
        kappa, shape, rate = (xp.broadcast_to(xp.asarray(value, float), (d,)) for value in (self.kappa, self.shape, self.rate))
        offset = xp.subtract(self.mean, self.reference()) / xp.sqrt(rate)
        constants = (kappa, shape, xp.log(rate), 1.0 / xp.sqrt(rate), self.reference(), offset)
        return (Part("diagonal", tuple(range(d)), constants),)

    def row_quadratic(self, natural: ColumnStatistics) -> Quadratic:
        """Diagonal, since the columns are independent."""
        return Quadratic(natural.n.sum(-1), natural.total, natural.squares[..., None] * jnp.eye(self.dim))

    def natural_parameters(self, parameters: Float[Array, "... 2 d"]) -> ColumnStatistics:
        """Natural parameters of independent normals, in standardised coordinates."""
        rate = self._columns(self.rate)
        mean = self._whitened(self._about_origin(parameters[..., 0, :]))
        precision = rate / parameters[..., 1, :]
        constant = precision * mean**2 + LOG_2PI + jnp.log(parameters[..., 1, :])
        return ColumnStatistics(-constant / 2, precision * mean, -precision / 2)

    def predictive(self, stats: ColumnStatistics) -> dist.Distribution:
        """Independent Student-t predictive distributions."""
        cache, root = self.cache(stats), jnp.sqrt(self._columns(self.rate))
        kappa = self._columns(self.kappa) + stats.n
        shape = self._columns(self.shape) + stats.n / 2
        scale = root * jnp.sqrt(cache.rate * (kappa + 1) / (shape * kappa))
        return CellsOrMissing(dist.StudentT(2 * shape, jnp.asarray(self.reference()) + root * cache.mean, scale))

    def posterior(self, stats: ColumnStatistics) -> NormalInverseGammaParameters:
        """Normal-inverse-gamma distribution of (2, d) arrays: the means, followed by the variances."""
        cache, rate = self.cache(stats), self._columns(self.rate)
        return NormalInverseGammaParameters(
            jnp.asarray(self.reference()) + jnp.sqrt(rate) * cache.mean,
            self._columns(self.kappa) + stats.n,
            self._columns(self.shape) + stats.n / 2,
            rate * cache.rate,
        )

    def likelihood(self, parameters: Float[Array, "... 2 d"]) -> dist.Distribution:
        """Independent normals with the means (row 0) and variances (row 1) in the array."""
        return CellsOrMissing(dist.Normal(parameters[..., 0, :], jnp.sqrt(parameters[..., 1, :])))


@builder
def _from_fractions(
    family: type[NormalInverseGamma],
    mean: ArrayLike,
    variance: ArrayLike,
    *,
    within: ArrayLike,
    kappa: ArrayLike,
    extra_shape: ArrayLike,
    rounding: ArrayLike | None = None,
) -> NormalInverseGamma:
    """The component whose expected variances are fractions of the data's, and not below those of rounding errors."""
    xp: Any = jnp if is_traced((variance, within, kappa, extra_shape)) else np  # NumPy is quicker one by one
    within, kappa, extra_shape = xp.asarray(within), xp.asarray(kappa), xp.asarray(extra_shape)
    rate = within * extra_shape * xp.asarray(variance)
    if rounding is not None:
        rate = rate + (1.0 + extra_shape) * xp.asarray(rounding)
    return family(mean, kappa, 1.0 + extra_shape, rate)

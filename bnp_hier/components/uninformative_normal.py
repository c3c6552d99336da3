"""Normal rows with an improper prior of mean and full covariance."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import multigammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Num

from bnp_hier.components.base import Component, Quadratic
from bnp_hier.components.checks import check_vector, column_moments
from bnp_hier.components.digits import AboutOrigin, check_origin, shifted
from bnp_hier.components.linear_algebra import inverse_and_log_det, log_det, quadratic_form
from bnp_hier.components.parameter_spaces import NormalInverseWishartParameters
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.utils.arrays import as_matrix, is_traced

__all__ = ["UninformativeNormal"]

LOG_PI = float(np.log(np.pi))

SINGULAR = 1e3
"""A scatter matrix is singular if rounding errors so many times as large as the machine's could make it so."""


class BoxStatistics(NamedTuple):
    """Sums over rows, in coordinates y = (x − origin) / width of the box.

    - **n** - number of rows, shape ().
    - **total** - Σ y, shape (d,).
    - **outer** - Σ y yᵀ, shape (d, d).
    """

    n: Float[Array, "..."]
    total: Float[Array, "... d"]
    outer: Float[Array, "... d d"]


class UninformativeNormal(AboutOrigin, Component):
    """Normal rows; mean uniform over a box, precision matrix Ω with the improper density ``|Ω|^(−(d+1)/2)``.

    Only `BayesianKMeans(model, polish=False)` can use it. A cluster has a log marginal likelihood if its rows are more than d
    and do not lie in a flat; any other but the empty one has −inf, and is never chosen. A new cluster of one row therefore has
    no density, and what needs one (Gibbs sampling, MAP-DP, trees, predictions of new rows) says so.

    Parameters
    ----------
    low, high
        Corners of the box, (d,) each, low < high in every column.
    origin
        Point about which statistics are kept, (d,), by default the box's centre. No probability depends on it, only digits
        do; see `centred_on`.

    Notes
    -----
    Kurihara & Welling (2009), appendix A, whose Eq. 32 needs (d/2) log N for its ½ log N, and whose labelling cost, Eq. 34,
    has the quadratic coefficient (N − 1)/(2N) S⁻¹ and the label's term −ψ(N + 1). The mean is integrated over all of space, as
    in the paper: clusters should be small against the box. Log marginal likelihoods are those of densities in the units of the
    data, and changing the units of a column changes no comparison.

    The density of Ω has no normaliser. The paper sets its factor to 1; any other multiplies every cluster's marginal
    likelihood and acts like one on the concentration, so that the number of clusters is a matter of this convention. The
    marginal likelihood also grows without bound as the rows of a cluster draw near to a flat, so that a thorough search finds
    tiny clusters: 15 in the iris data, where the paper's search, `n_init=1`, stops at 2. `NormalInverseWishart` has neither
    defect.

    One cluster's parameters are one (d + 1, d) array: the mean, then the covariance. Missing values are refused.
    """

    low: ArrayLike
    high: ArrayLike
    origin: ArrayLike | None = dataclasses.field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        name = type(self).__name__
        d = check_vector(name, "low", self.low)
        if check_vector(name, "high", self.high) != d:
            raise ValueError(f"{name}: low and high must have the same length, but they have {d} and {np.shape(self.high)[0]}")
        check_origin(name, self.origin, d)
        if not is_traced(self.low, self.high) and not (np.asarray(self.low) < np.asarray(self.high)).all():
            raise ValueError(f"{name}: low must lie below high in every column, but they are {self.low} and {self.high}")

    @classmethod
    def from_data(cls, X: ArrayLike) -> Self:
        """The paper's box: from the smallest to the largest value of each column of X, (n, d).

        Raises
        ------
        ValueError
            If there are fewer than two rows, a column is constant, or a value is missing or infinite.
        """
        if is_traced(X):
            return cls(low=jnp.min(X, axis=0), high=jnp.max(X, axis=0))
        column_moments(cls.__name__, X)  # for its checks
        matrix = as_matrix(X)
        return cls(low=matrix.min(0), high=matrix.max(0))

    @property
    def dim(self) -> int:
        """Number of columns."""
        return np.shape(self.low)[-1]

    @property
    def _width(self) -> Float[Array, " d"]:
        return shifted(self.high, self.low)

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> BoxStatistics:
        """Count, sum and sum of squares of each row in the box's coordinates."""
        y = shifted(X, self.reference()) / self._width
        return BoxStatistics(jnp.ones(y.shape[:-1], y.dtype), y, y[..., :, None] * y[..., None, :])

    def reference(self) -> Float[Array | np.ndarray, " d"]:
        """`origin`, or else the box's centre."""
        return (self.low + self.high) / 2 if self.origin is None else self.origin  # type: ignore[return-value]

    def translated(self, by: Float[Array | np.ndarray, " d"]) -> Self:
        """All points moved."""
        origin = None if self.origin is None else self.origin - by
        return dataclasses.replace(self, low=self.low - by, high=self.high - by, origin=origin)

    def _scatter(self, stats: BoxStatistics) -> tuple[Bool[Array, "..."], Float[Array, "... d d"]]:
        """Whether the log marginal is defined, and Σ (y − ȳ)(y − ȳ)ᵀ, the identity where it is not."""
        d, one = self.dim, jnp.ones((), stats.total.dtype)
        enough = stats.n > d
        n = jnp.where(enough, stats.n, one)
        scatter = stats.outer - stats.total[..., :, None] * stats.total[..., None, :] / n[..., None, None]
        # against the squares themselves, of whose digits the scatter's are what is left
        root = jnp.sqrt(jnp.diagonal(stats.outer, axis1=-2, axis2=-1))
        root = jnp.where(enough[..., None] & (root > 0), root, one)
        relative = jax.lax.stop_gradient(scatter / (root[..., :, None] * root[..., None, :]))
        relative = jnp.where(enough[..., None, None], relative, jnp.eye(d, dtype=one.dtype))
        defined = enough & (jnp.linalg.eigvalsh(relative)[..., 0] > SINGULAR * jnp.finfo(one.dtype).eps)
        return defined, jnp.where(defined[..., None, None], scatter, jnp.eye(d, dtype=one.dtype))

    def log_marginal(self, stats: BoxStatistics) -> Float[Array, "..."]:
        """Log marginal likelihood (nats): 0 for no rows, −inf for too few rows or rows in a flat.

        Minus one summand of Kurihara & Welling (2009), Eq. 32, corrected, without the terms of the labels.
        """
        d = self.dim
        defined, scatter = self._scatter(stats)
        n = jnp.where(defined, stats.n, d + 1.0)
        value = (
            multigammaln((n - 1) / 2, d)
            - (n - 1) / 2 * (d * LOG_PI + log_det(scatter))
            - d / 2 * jnp.log(n)
            - n * jnp.log(self._width).sum()
        )
        return jnp.where(defined, value, jnp.where(stats.n == 0, 0.0, -jnp.inf))

    def expected_natural_parameters(self, stats: BoxStatistics) -> BoxStatistics:
        """As for every family; a cluster without a posterior has a huge negative coefficient of the count: it takes no row."""
        defined, _ = self._scatter(stats)
        natural = super().expected_natural_parameters(stats)
        refused = -jnp.sqrt(jnp.finfo(natural.n.dtype).max)
        return natural._replace(n=jnp.where(defined, natural.n, refused))

    def log_predictive(self, stats: BoxStatistics, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Log density of each row under a cluster's Student-t predictive (nats); −inf for a cluster without a posterior."""
        d = self.dim
        defined, scatter = self._scatter(stats)
        n = jnp.where(defined, stats.n, d + 1.0)
        inverse, determinant = inverse_and_log_det(scatter)
        norm = log_gamma_ratio((n - d) / 2, d / 2) + d / 2 * (jnp.log(n / (n + 1)) - LOG_PI) - determinant / 2
        square = quadratic_form(inverse, self.suff_stats(X).total - stats.total / n[..., None])
        value = norm - jnp.log(self._width).sum() - n / 2 * jnp.log1p(n / (n + 1) * square)
        return jnp.where(defined, value, -jnp.inf)

    def cache(self, stats: BoxStatistics) -> NoReturn:
        """Refused: what asks for it puts single rows into new clusters.

        Raises
        ------
        ValueError
            Always.
        """
        raise self._no_density()

    def log_marginal_of_row_pairs(self, left: BoxStatistics, right: BoxStatistics) -> NoReturn:
        """Refused: what asks for it has clusters of single rows.

        Raises
        ------
        ValueError
            Always.
        """
        raise self._no_density()

    def _no_density(self) -> ValueError:
        return ValueError(
            f"{type(self).__name__} has an improper prior: a new cluster of one row has no density, so that it serves "
            "BayesianKMeans(..., polish=False) alone, which then cannot predict new rows; use NormalInverseWishart instead"
        )

    def _require_posterior(self, stats: BoxStatistics) -> None:
        if is_traced(stats):
            return
        defined = np.asarray(self._scatter(jax.tree.map(jnp.asarray, stats))[0])
        if not defined.all():
            fewest = int(np.asarray(stats.n)[~defined].min())
            raise ValueError(
                f"{type(self).__name__} has an improper prior: a posterior needs at least {self.dim + 1} rows that do not lie "
                f"in a flat, but a cluster has {fewest} rows"
            )

    def posterior(self, stats: BoxStatistics) -> NormalInverseWishartParameters:
        """Normal-inverse-Wishart over (d + 1, d) arrays: the mean, then the covariance.

        Raises
        ------
        ValueError
            If a cluster has too few rows or rows in a flat, unless the statistics are traced.
        """
        self._require_posterior(stats)
        _, scatter = self._scatter(stats)
        n, width = stats.n, self._width
        mean = jnp.asarray(self.reference()) + width * stats.total / n[..., None]
        return NormalInverseWishartParameters(mean, n, n - 1, width[:, None] * jnp.linalg.cholesky(scatter))

    def predictive(self, stats: BoxStatistics) -> dist.MultivariateStudentT:
        """Multivariate Student-t with N − d degrees of freedom.

        Raises
        ------
        ValueError
            If a cluster has too few rows or rows in a flat, unless the statistics are traced.
        """
        posterior, n = self.posterior(stats), stats.n
        widen = jnp.sqrt((n + 1) / (n * (n - self.dim)))
        return dist.MultivariateStudentT(n - self.dim, posterior.loc, widen[..., None, None] * posterior.scale_tril)

    def likelihood(self, parameters: Float[Array, "... p d"]) -> dist.MultivariateNormal:
        """Normal with the mean (row 0) and covariance (rows 1..d) of the array."""
        return dist.MultivariateNormal(parameters[..., 0, :], covariance_matrix=parameters[..., 1:, :])

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... d"]:
        """Rows in the box's coordinates."""
        return self.suff_stats(X).total

    def row_quadratic(self, natural: BoxStatistics) -> Quadratic:
        """From the count, the row and its outer product; only their sum over (i, j) and (j, i) counts."""
        return Quadratic(natural.n, natural.total, (natural.outer + jnp.swapaxes(natural.outer, -1, -2)) / 2)

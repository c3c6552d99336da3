"""Normal rows with an improper prior for the mean and full covariance matrix."""

from __future__ import annotations

import dataclasses
from typing import NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import multigammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Num

from bnp_hier.components.checks import check_vector, column_moments
from bnp_hier.components.linear_algebra import inverse_and_log_det, log_det, quadratic_form
from bnp_hier.components.normal_family import FullCovariance, NormalStatistics
from bnp_hier.components.parameter_spaces import NormalInverseWishartParameters
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.utils.arrays import as_matrix, is_traced

__all__ = ["UninformativeNormal"]

LOG_PI = float(np.log(np.pi))

SINGULAR = 1e3
"""A scatter matrix counts as singular if an error of this many machine epsilons could make it singular."""


class UninformativeNormal(FullCovariance):
    """Normal rows; mean uniform over a box, precision matrix Ω with the improper prior density ``|Ω|^(−(d+1)/2)``.

    Only `BayesianKMeans(model, polish=False)` supports it. A cluster has a finite log marginal likelihood if it has more than
    d rows and they do not all lie in a hyperplane; for any other non-empty cluster it is −inf, so that the cluster is never
    chosen. A new cluster of one row therefore has no density, and methods that need one (Gibbs sampling, MAP-DP, trees,
    prediction of new rows) raise an error.

    Parameters
    ----------
    low, high
        Corners of the box, (d,) each, low < high in every column.
    origin
        Reference point about which statistics are taken, (d,), by default the centre of the box. It affects numerical
        precision, but no probability; see `centered_on`.

    Notes
    -----
    Kurihara & Welling (2009), appendix A, with corrections: Eq. 32 needs (d/2) log N instead of ½ log N, and the labelling
    cost, Eq. 34, needs the quadratic coefficient (N − 1)/(2N) S⁻¹ and the term −ψ(N + 1) for the label. As in the paper, the
    mean is integrated over the whole space, so clusters should be small compared with the box. Log marginal likelihoods refer
    to densities in the units of the data; changing the units of a column does not affect comparisons.

    The density of the precision matrix Ω cannot be normalised. The paper sets its constant factor to 1; any other factor would
    multiply the marginal likelihood of every cluster and act like a factor on the concentration, so the number of clusters
    depends on this convention. In addition, the marginal likelihood grows without bound as the rows of a cluster approach a
    hyperplane, so a thorough search finds tiny clusters: 15 in the iris data, where the search of the paper, `n_init=1`, stops
    at 2. `NormalInverseWishart` has neither defect.

    The parameters of a cluster are a (d + 1, d) array: the mean, followed by the covariance. Missing values are not supported.

    Examples
    --------
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> X = bnp.datasets.load("iris").X[:, :2]
    >>> component = bnp.UninformativeNormal(low=X.min(0), high=X.max(0))
    >>> model = partial(bnp.models.dpm, component=component, concentration=1.0)
    >>> bnp.BayesianKMeans(model, n_init=1, polish=False).fit(X).n_clusters_
    2
    """

    low: ArrayLike
    high: ArrayLike

    def __post_init__(self) -> None:
        name = type(self).__name__
        d = check_vector(name, "low", self.low)
        if check_vector(name, "high", self.high) != d:
            raise ValueError(f"{name}: low and high must have the same length, but they have {d} and {np.shape(self.high)[0]}")
        super().__post_init__()
        if not is_traced(self.low, self.high) and not (np.asarray(self.low) < np.asarray(self.high)).all():
            raise ValueError(f"{name}: low must be less than high in every column, but they are {self.low} and {self.high}")

    @classmethod
    def from_data(cls, X: ArrayLike) -> Self:
        """Build the component with the box of the paper, from the smallest to the largest value of each column of X, (n, d).

        Raises
        ------
        ValueError
            If there are fewer than two rows, a column is constant, or a value is missing or infinite.
        """
        if is_traced(X):
            return cls(low=jnp.min(X, axis=0), high=jnp.max(X, axis=0))
        column_moments(cls.__name__, X)  # only for its checks
        matrix = as_matrix(X)
        return cls(low=matrix.min(0), high=matrix.max(0))

    @property
    def dim(self) -> int:
        """Number of columns."""
        return np.shape(self.low)[-1]

    @property
    def mean(self) -> ArrayLike:
        """The centre of the box."""
        return (self.low + self.high) / 2

    @property
    def _width(self) -> Float[Array, " d"]:
        return jnp.asarray(self.high - self.low)  # type: ignore[operator]

    def _whitened(self, differences: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """In widths of the box."""
        return differences / self._width

    def translated(self, by: Float[Array | np.ndarray, " d"]) -> Self:
        """The same component with the box and the origin shifted by −`by`."""
        origin = None if self.origin is None else self.origin - by
        return dataclasses.replace(self, low=self.low - by, high=self.high - by, origin=origin)

    def _scatter(self, stats: NormalStatistics) -> tuple[Bool[Array, "..."], Float[Array, "... d d"]]:
        """Whether the log marginal is finite, and the scatter Σ (y − ȳ)(y − ȳ)ᵀ, replaced by the identity where it is not."""
        d, one = self.dim, jnp.ones((), stats.total.dtype)
        enough = stats.n > d
        n = jnp.where(enough, stats.n, one)
        scatter = stats.outer - stats.total[..., :, None] * stats.total[..., None, :] / n[..., None, None]
        # relative to the sums of squares, from which the scatter is computed by a subtraction that loses precision
        root = jnp.sqrt(jnp.diagonal(stats.outer, axis1=-2, axis2=-1))
        root = jnp.where(enough[..., None] & (root > 0), root, one)
        relative = jax.lax.stop_gradient(scatter / (root[..., :, None] * root[..., None, :]))
        relative = jnp.where(enough[..., None, None], relative, jnp.eye(d, dtype=one.dtype))
        defined = enough & (jnp.linalg.eigvalsh(relative)[..., 0] > SINGULAR * jnp.finfo(one.dtype).eps)
        return defined, jnp.where(defined[..., None, None], scatter, jnp.eye(d, dtype=one.dtype))

    def log_marginal(self, stats: NormalStatistics) -> Float[Array, "..."]:
        """Log marginal likelihood (nats): 0 for no rows, −inf for too few rows or rows in a hyperplane.

        This is the negative of one summand of Kurihara & Welling (2009), Eq. 32 (corrected), without the terms for the labels.
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

    def expected_natural_parameters(self, stats: NormalStatistics) -> NormalStatistics:
        """As for every family, but a cluster without a posterior gets a huge negative coefficient and therefore no rows."""
        defined, _ = self._scatter(stats)
        natural = super().expected_natural_parameters(stats)
        refused = -jnp.sqrt(jnp.finfo(natural.n.dtype).max)
        return natural._replace(n=jnp.where(defined, natural.n, refused))

    def log_predictive(self, stats: NormalStatistics, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Log density of each row under a cluster's Student-t predictive (nats); −inf for a cluster without a posterior."""
        d = self.dim
        defined, scatter = self._scatter(stats)
        n = jnp.where(defined, stats.n, d + 1.0)
        inverse, determinant = inverse_and_log_det(scatter)
        norm = log_gamma_ratio((n - d) / 2, d / 2) + d / 2 * (jnp.log(n / (n + 1)) - LOG_PI) - determinant / 2
        square = quadratic_form(inverse, self.suff_stats(X).total - stats.total / n[..., None])
        value = norm - jnp.log(self._width).sum() - n / 2 * jnp.log1p(n / (n + 1) * square)
        return jnp.where(defined, value, -jnp.inf)

    def cache(self, stats: NormalStatistics) -> NoReturn:
        """Not available: an improper prior gives a new cluster of one row no density.

        Raises
        ------
        ValueError
            Always.
        """
        raise self._no_density()

    def _no_density(self) -> ValueError:
        return ValueError(
            f"{type(self).__name__} has an improper prior: a new cluster of one row has no density. Only "
            "BayesianKMeans(..., polish=False) supports it, and without predictions for new rows; use NormalInverseWishart "
            "instead"
        )

    def _require_posterior(self, stats: NormalStatistics) -> None:
        if is_traced(stats):
            return
        defined = np.asarray(self._scatter(jax.tree.map(jnp.asarray, stats))[0])
        if not defined.all():
            fewest = int(np.asarray(stats.n)[~defined].min())
            raise ValueError(
                f"{type(self).__name__} has an improper prior: a posterior needs at least {self.dim + 1} rows that do not lie "
                f"in a hyperplane, but a cluster of {fewest} rows does not meet this condition"
            )

    def posterior(self, stats: NormalStatistics) -> NormalInverseWishartParameters:
        """Normal-inverse-Wishart distribution of (d + 1, d) arrays: the mean, followed by the covariance.

        Raises
        ------
        ValueError
            If the rows of a cluster are too few or lie in a hyperplane, unless the statistics are traced.
        """
        self._require_posterior(stats)
        _, scatter = self._scatter(stats)
        n, width = stats.n, self._width
        mean = jnp.asarray(self.reference()) + width * stats.total / n[..., None]
        return NormalInverseWishartParameters(mean, n, n - 1, width[:, None] * jnp.linalg.cholesky(scatter))

    def predictive(self, stats: NormalStatistics) -> dist.MultivariateStudentT:
        """Multivariate Student-t predictive distribution with N − d degrees of freedom.

        Raises
        ------
        ValueError
            If the rows of a cluster are too few or lie in a hyperplane, unless the statistics are traced.
        """
        posterior, n = self.posterior(stats), stats.n
        widen = jnp.sqrt((n + 1) / (n * (n - self.dim)))
        return dist.MultivariateStudentT(n - self.dim, posterior.loc, widen[..., None, None] * posterior.scale_tril)

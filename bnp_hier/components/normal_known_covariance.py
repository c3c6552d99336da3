"""Normal rows with unknown mean and known covariance matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from bnp_hier.components.base import Quadratic
from bnp_hier.components.checks import check_covariance, column_moments, with_rounding
from bnp_hier.components.distributed_tables import derived_from_all_rows
from bnp_hier.components.hints import Spread
from bnp_hier.components.incomplete_rows import DependentColumns, Elliptical, ExpectedNormal
from bnp_hier.components.learned import LearnedPrior, about, blended_covariance, builder, given_or_learned
from bnp_hier.components.normal_family import NormalStatistics, check_digits
from bnp_hier.components.normal_inverse_wishart import NormalInverseWishart
from bnp_hier.native import Part
from bnp_hier.utils.arrays import is_traced

__all__ = ["NormalKnownCovariance"]

COVARIANCE_TYPES = ("full", "diagonal", "spherical")

LOG_2PI = float(np.log(2 * np.pi))


class LocationStatistics(NamedTuple):
    """Sums over rows, in coordinates y = L⁻¹(x − origin) with covariance = L Lᵀ; `origin` defaults to the prior mean.

    - **n** - number of rows, shape ().
    - **total** - Σ y, shape (d,).
    - **log_density** - Σ log N(x; origin, covariance), shape ().
    """

    n: Float[Array, "..."]
    total: Float[Array, "... d"]
    log_density: Float[Array, "..."]


class LocationCache(NamedTuple):
    """The statistics of a cluster and its normal predictive distribution, in whitened coordinates.

    - **stats** - the statistics.
    - **mean** - predictive mean, shape (d,).
    - **factor** - inverse of the lower Cholesky factor of the predictive covariance, shape (d, d).
    """

    stats: LocationStatistics
    mean: Float[Array, "... d"]
    factor: Float[Array, "... d d"]


class NormalKnownCovariance(DependentColumns):
    """Normal rows with known covariance; cluster mean ~ N(mean, prior_covariance).

    Parameters
    ----------
    mean
        Prior mean of the cluster mean, shape (d,).
    prior_covariance
        Covariance of the cluster means, (d, d), positive definite.
    covariance
        Known covariance of the rows of one cluster, (d, d), positive definite.
    origin
        Reference point about which statistics are taken, (d,), by default `mean`. It affects numerical precision, but no
        probability; see `centered_on`.

    Notes
    -----
    The parameter of a cluster is its mean, shape (d,). As with `NormalInverseWishart`, missing values are cells of the model:
    see `bnp_hier.complete_rows`. In new rows, they are integrated out.

    Examples
    --------
    >>> import numpy as np
    >>> from bnp_hier import NormalKnownCovariance
    >>> component = NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> round(component.log_evidence([[1.9], [2.1]]), 3)
    -3.531
    """

    mean: ArrayLike
    prior_covariance: ArrayLike
    covariance: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        name, d = type(self).__name__, self.dim
        check_covariance(name, "prior_covariance", self.prior_covariance, d)
        check_covariance(name, "covariance", self.covariance, d)

    @classmethod
    @derived_from_all_rows
    def from_data(
        cls,
        X: ArrayLike,
        *,
        learn: bool = True,
        covariance_type: str = "full",
        within: float | None = None,
        spread: float | None = None,
    ) -> Any:
        """Build a prior centred on the data, with one covariance matrix for all clusters, learned or diagonal.

        The matrix is known to the clusters, not to the model: learned, it has the entries √(w_i w_j v_i v_j) R_ij, where v are
        the column variances. The sites are `within`, (d,): w, log-normal with median 0.3; `factor`, (d, d): the Cholesky
        factor of the correlation matrix R, with an LKJ prior of concentration 2; and `spread`: the variances of the cluster
        means relative to those of the columns, log-normal with median 1. The logarithms of the log-normal ones have standard
        deviation 1.

        With `covariance_type="diagonal"`, R is the identity matrix and not a site; with "spherical", `within` is also a single
        number, so that clusters are spherical in columns of equal variance. To the learned variance of a column with
        repeated values, such as rounded ones, that of their rounding errors is added.

        Parameters
        ----------
        X
            Data, (n, d); NaN is ignored.
        learn
            True: return the component with priors on its hyperparameters, for use as `component` of a model. False: return
            the component with diagonal covariance matrices.
        covariance_type
            What is learned: "full", "diagonal" or "spherical". Ignored for `learn=False`.
        within
            Fraction of a column's variance within a cluster, which is then not learned; 0.3 for `learn=False`.
        spread
            Variances of the cluster means relative to those of the columns, which are then not learned; 1 for `learn=False`.

        Returns
        -------
        component
            `LearnedPrior`, or the component if `learn` is False.

        Raises
        ------
        ValueError
            If there are fewer than two rows, a column is constant, empty or contains infinite values, or the type is unknown.
        """
        if covariance_type not in COVARIANCE_TYPES:
            raise ValueError(f"covariance_type must be one of {', '.join(COVARIANCE_TYPES)}, but it is {covariance_type!r}")
        mean, variance = column_moments(cls.__name__, X)
        if not learn:
            within, spread = 0.3 if within is None else within, 1.0 if spread is None else spread
            diagonal = np.diag(variance) if isinstance(variance, np.ndarray) else jnp.diag(variance)
            return cls(mean=mean, prior_covariance=spread * diagonal, covariance=within * diagonal)
        d = mean.shape[0]
        correlation = {"factor": dist.LKJCholesky(d, 2.0)} if d > 1 and covariance_type == "full" else {}
        size = None if covariance_type == "spherical" else d
        priors = {"within": about(0.3, size)} | correlation | {"spread": about(1.0)}
        fixed, learned = given_or_learned({"within": within, "spread": spread}, priors)
        fixed |= with_rounding(X, variance)
        # independent columns, and the correlations of the data, each with wide and with narrow clusters
        root = np.asarray(np.sqrt(variance)) if not is_traced(X) else np.ones(d)
        whole = np.eye(d) if is_traced(X) else blended_covariance(X, variance) / root[:, None] / root
        starts: dict[str, list[Any]] = {
            "within": [np.full(() if size is None else d, share) for share in (0.3, 0.5, 0.1)],
            "factor": [np.eye(d), *[np.linalg.cholesky(whole)] * 2],
            "spread": [1.0, 1.0, 1.0],
        }
        starts = {name: starts[name] for name in learned}
        return LearnedPrior(cls, learned, partial(_of_one_shape, cls, mean, variance, **fixed), starts)

    def expected_spread(self) -> Spread:
        """The known standard deviations, with the mean and spread of the prior of the cluster mean."""
        within, of_mean = (np.sqrt(np.diagonal(np.asarray(each))) for each in (self.covariance, self.prior_covariance))
        return Spread(within, np.asarray(self.mean), of_mean)

    @property
    def _unit(self) -> ArrayLike:
        return self.covariance

    def _log_det_factor(self) -> Float[Array, ""]:
        return jnp.log(jnp.diagonal(self._factor)).sum()

    def _whitened_prior(self) -> Float[Array, "d d"]:
        prior = self._whitened_covariance(jnp.asarray(self.prior_covariance))
        return (prior + prior.T) / 2

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> LocationStatistics:
        """Count, whitened row, and log density of the row under N(origin, covariance), for each row."""
        y = self._whitened(self._about_origin(X))
        log_density = -(y * y).sum(-1) / 2 - self.dim / 2 * LOG_2PI - self._log_det_factor()
        return LocationStatistics(jnp.ones(y.shape[:-1], y.dtype), y, log_density)

    def anchor(self) -> NormalInverseWishart:
        """A family that keeps the products of the columns, which another covariance matrix needs."""
        return NormalInverseWishart(self.mean, 1.0, self.dim + 2.0, self.covariance, origin=self.origin)

    def restated(self, stats: NormalStatistics, anchor: Any) -> LocationStatistics:
        """Sums in this component's coordinates, and the log density of the rows."""
        matrix, shift = self._from_coordinates_of(anchor)
        turned = jnp.einsum("ij,...j->...i", matrix, stats.total)
        # the trace of the restated outer products, without these
        squares = (stats.outer * (matrix.T @ matrix)).sum((-2, -1))
        moved = stats.n[..., None] * shift
        squares += (shift * (2.0 * turned + moved)).sum(-1)
        constant = self.dim / 2 * LOG_2PI + self._log_det_factor()
        return LocationStatistics(stats.n, turned + moved, -squares / 2 - stats.n * constant)

    def check_precision(self, X: ArrayLike, *, parameters: bool = False) -> None:
        """Check that the current precision suffices, as described for `Component.check_precision`."""
        if not is_traced(self):
            covariance, prior = (np.asarray(one, dtype=np.float64) for one in (self.covariance, self.prior_covariance))
            variances = {"covariance": np.diagonal(covariance), "prior_covariance": np.diagonal(prior)}
            whitened = lambda rows: np.linalg.solve(np.linalg.cholesky(covariance), rows.T).T  # noqa: E731
            check_digits(self, X, variances, whitened, lambda Y, unit: unit * (Y**2).sum(1) / 2, parameters)

    def _solve(self, stats: LocationStatistics) -> tuple[Float[Array, "... d d"], Float[Array, "... d"], Float[Array, "..."]]:
        """Cholesky factor of A⁻¹ = I + N V, posterior mean A m + V A Σy, and (Σy)ᵀVAΣy/2 + mᵀAΣy − N mᵀAm/2.

        All are in whitened coordinates, and V is the prior covariance. The log marginal is the last plus log |A|/2 plus the log
        densities of the rows.
        """
        prior = self._whitened_prior()
        factor = jnp.linalg.cholesky(jnp.eye(self.dim, dtype=prior.dtype) + stats.n[..., None, None] * prior)
        m = jnp.broadcast_to(self._offset, stats.total.shape)
        solved = cho_solve((factor, True), jnp.stack([stats.total, m], -1))
        pulled, kept = jnp.einsum("ij,...j->...i", prior, solved[..., 0]), solved[..., 1]
        form = (stats.total * pulled / 2 + kept * (stats.total - stats.n[..., None] * m / 2)).sum(-1)
        return factor, pulled + kept, form

    def log_marginal(self, stats: LocationStatistics) -> Float[Array, "..."]:
        """Log marginal likelihood, a Gaussian integral over the cluster mean (nats)."""
        factor, _, form = self._solve(stats)
        log_det = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
        return stats.log_density + form - log_det

    def log_marginal_up_to(self, count: int) -> Callable[[LocationStatistics], Float[Array, "..."]]:
        """`log_marginal` with a single factorisation for all clusters."""
        values, vectors = jax.lax.stop_gradient(_undifferentiated_basis(self._whitened_prior()))

        @jax.custom_jvp
        def log_marginal(component: NormalKnownCovariance, stats: LocationStatistics) -> Float[Array, "..."]:
            widened = 1.0 + stats.n[..., None] * values
            total = stats.total @ vectors
            m = component._offset @ vectors
            squares = (total * total * values + m * (2 * total - stats.n[..., None] * m)) / widened
            return stats.log_density + (squares - jnp.log(widened)).sum(-1) / 2

        # eigenvectors have no derivatives where eigenvalues are equal, as those of spherical covariances are
        log_marginal.defjvp(partial(jax.jvp, lambda component, stats: component.log_marginal(stats)))
        return lambda stats: log_marginal(self, stats)

    def sample_parameters(self, key: Array, stats: LocationStatistics) -> Float[Array, "... d"]:
        """Draw each cluster's mean from its posterior, with a single factorisation for all clusters."""
        values, vectors = _undifferentiated_basis(self._whitened_prior())
        widened = 1.0 + stats.n[..., None] * values
        shrunk = values / widened
        noise = jax.random.normal(key, stats.total.shape, stats.total.dtype)
        mean = stats.total @ vectors * shrunk + self._offset @ vectors / widened
        return self._in_units_of_data((mean + noise * jnp.sqrt(shrunk)) @ vectors.T)

    def cache(self, stats: LocationStatistics) -> LocationCache:
        """Mean and inverse Cholesky factor of the normal predictive distribution."""
        factor, mean, _ = self._solve(stats)
        prior = jnp.broadcast_to(self._whitened_prior(), factor.shape)
        identity = jnp.broadcast_to(jnp.eye(self.dim, dtype=prior.dtype), factor.shape)
        widened = jnp.linalg.cholesky(identity + cho_solve((factor, True), prior))
        return LocationCache(stats, mean, jnp.linalg.inv(widened))

    def update_cache(self, cache: LocationCache, row: LocationStatistics, sign: ArrayLike) -> LocationCache:
        """The cache for the updated statistics, recomputed with one small factorisation."""
        sign = jnp.asarray(sign, row.n.dtype)
        return self.cache(LocationStatistics(*(old + sign * new for old, new in zip(cache.stats, row, strict=True))))

    def cached_log_predictive(self, cache: LocationCache, row: LocationStatistics) -> Float[Array, "..."]:
        """Log density of the normal predictive (nats)."""
        y = jnp.einsum("...ij,...j->...i", cache.factor, row.total - cache.mean)
        log_scale = jnp.log(jnp.diagonal(cache.factor, axis1=-2, axis2=-1)).sum(-1)
        return log_scale - self._log_det_factor() - (y * y).sum(-1) / 2 - self.dim / 2 * LOG_2PI

    def native(self) -> tuple[Part, ...]:
        """The native family "known"."""
        xp = jnp if is_traced(self) else np
        whitener, offset = self._whitener_and_offset()
        prior = whitener @ xp.asarray(self.prior_covariance) @ whitener.T
        values, vectors = _undifferentiated_basis((prior + prior.T) / 2)
        at_mean = xp.log(xp.diagonal(whitener)).sum() - self.dim / 2 * LOG_2PI
        constants = (at_mean, self.reference(), whitener, offset, values, vectors)
        return (Part("known", tuple(range(self.dim)), constants),)

    def row_quadratic(self, natural: LocationStatistics) -> Quadratic:
        """Linear in the whitened row: the quadratic term is the same for all clusters."""
        return Quadratic(natural.n, natural.total, jnp.zeros((*natural.total.shape, self.dim)))

    def natural_parameters(self, parameters: Float[Array, "... d"]) -> LocationStatistics:
        """Coefficients of the whitened row and of its log density under N(origin, covariance)."""
        mean = self._whitened(self._about_origin(parameters))
        square = (mean * mean).sum(-1)
        return LocationStatistics(-square / 2, mean, jnp.ones_like(square))

    def posterior(self, stats: LocationStatistics) -> dist.MultivariateNormal:
        """Normal distribution of the cluster mean."""
        factor, mean, _ = self._solve(stats)
        outer = self._factor
        prior = jnp.broadcast_to(self._whitened_prior(), factor.shape)
        covariance = outer @ cho_solve((factor, True), prior) @ outer.T
        covariance = (covariance + jnp.swapaxes(covariance, -1, -2)) / 2
        return dist.MultivariateNormal(self._in_units_of_data(mean), covariance)

    def _mean_and_covariance(self, stats: LocationStatistics) -> tuple[Float[Array, "... d"], Float[Array, "... d d"]]:
        """Posterior mean and covariance of the cluster mean: one decomposition serves all clusters."""
        values, vectors = jax.lax.stop_gradient(_undifferentiated_basis(self._whitened_prior()))

        @jax.custom_jvp
        def moments(component: NormalKnownCovariance, stats: LocationStatistics) -> tuple[Array, Array]:
            outer = component._factor @ vectors
            shrunk = 1.0 + stats.n[..., None] * values
            mean = ((component._offset @ vectors + values * (stats.total @ vectors)) / shrunk) @ outer.T
            covariance = jnp.einsum("ij,...j,kj->...ik", outer, values / shrunk, outer)
            return jnp.asarray(component.reference()) + mean, covariance

        def of_posterior(component: NormalKnownCovariance, stats: LocationStatistics) -> tuple[Array, Array]:
            posterior = component.posterior(stats)
            return posterior.loc, posterior.covariance_matrix

        moments.defjvp(partial(jax.jvp, of_posterior))
        return moments(self, stats)

    def density_of_cells(self, stats: LocationStatistics) -> Elliptical:
        """Mean and covariance matrix of the normal predictive."""
        mean, covariance = self._mean_and_covariance(stats)
        return Elliptical(None, mean, covariance + jnp.asarray(self.covariance))

    def expected_parameters(self, stats: LocationStatistics) -> ExpectedNormal:
        """Posterior mean, and the known covariance matrix."""
        mean, _ = self._mean_and_covariance(stats)
        return ExpectedNormal(mean, jnp.broadcast_to(jnp.asarray(self.covariance), (*mean.shape, self.dim)))

    def with_covariances(self, rows: LocationStatistics, covariances: Float[Array, "... d d"]) -> LocationStatistics:
        """Subtracts half the trace of the covariance matrices, in whitened coordinates, from the log densities."""
        trace = jnp.trace(self._whitened_covariance(covariances), axis1=-2, axis2=-1)
        return rows._replace(log_density=rows.log_density - trace / 2)

    def predictive(self, stats: LocationStatistics) -> dist.MultivariateNormal:
        """Normal predictive distribution."""
        posterior = self.posterior(stats)
        return dist.MultivariateNormal(posterior.loc, posterior.covariance_matrix + jnp.asarray(self.covariance))

    def likelihood(self, parameters: Float[Array, "... d"]) -> dist.MultivariateNormal:
        """Normal distribution centred on the cluster mean."""
        return dist.MultivariateNormal(parameters, scale_tril=self._factor)


def _undifferentiated_basis(matrix: Float[Array | np.ndarray, "d d"]) -> tuple[Any, Any]:
    """Eigenvalues, at least 0, and eigenvectors of a symmetric matrix, for results that are not differentiated.

    In that of a whitened prior V, (I + N V)⁻¹ is diagonal for every count N. A diagonal matrix, as two diagonal covariances
    give, is not decomposed, because that is slow for hundreds of columns: its derivatives with respect to other entries would
    be wrong.
    """
    if isinstance(matrix, np.ndarray):
        values, vectors = np.linalg.eigh(matrix)
        return np.maximum(values, 0.0), vectors
    diagonal = jnp.diagonal(matrix)
    values, vectors = jax.lax.cond(
        (matrix == jnp.diag(diagonal)).all(),
        lambda: (diagonal, jnp.eye(len(diagonal), dtype=matrix.dtype)),
        lambda: tuple(jnp.linalg.eigh(matrix)),
    )
    return jnp.maximum(values, 0.0), vectors


@builder
def _of_one_shape(
    family: type[NormalKnownCovariance],
    mean: ArrayLike,
    variance: ArrayLike,
    *,
    within: ArrayLike,
    spread: ArrayLike,
    factor: ArrayLike | None = None,
    rounding: ArrayLike | None = None,
) -> NormalKnownCovariance:
    """The component with the given correlations and fractions of the data's variances."""
    xp: Any = jnp if is_traced((variance, within, spread, factor)) else np  # NumPy is quicker one by one
    variances = xp.asarray(variance)
    half = xp.sqrt(xp.asarray(within) * variances)[:, None] * (xp.eye(len(variances)) if factor is None else xp.asarray(factor))
    covariance = half @ half.T
    if rounding is not None:
        covariance = covariance + xp.diag(xp.asarray(rounding))
    return family(mean, xp.asarray(spread) * xp.diag(variances), covariance)

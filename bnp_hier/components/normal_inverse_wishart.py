"""Normal rows with unknown mean and full covariance matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, multigammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.components.checks import (
    check_covariance,
    check_positive,
    close_distance,
    column_moments,
    with_rounding,
)
from bnp_hier.components.distributed_tables import derived_from_all_rows
from bnp_hier.components.hints import Columns, Spread
from bnp_hier.components.incomplete_rows import DependentColumns, Elliptical, ExpectedNormal
from bnp_hier.components.learned import (
    LearnedPrior,
    about,
    blended_covariance,
    builder,
    correlation_prior,
    few_rows,
    given_or_learned,
)
from bnp_hier.components.linear_algebra import (
    UNROLLED_UP_TO,
    cholesky_with_rank_one,
    identity_plus,
    inverse_and_log_det,
    log_det,
    log_det_and_form,
    log_det_and_form_of_identity_plus,
    matrix_vector,
    quadratic_form,
)
from bnp_hier.components.normal_family import FullCovariance, NormalStatistics, check_digits
from bnp_hier.components.parameter_spaces import NormalInverseWishartParameters
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.native import Part
from bnp_hier.utils.arrays import as_matrix, first_cell, is_traced

__all__ = ["NormalInverseWishart"]

LOG_PI = float(np.log(np.pi))


class NormalCache(NamedTuple):
    """The posterior of a cluster, in whitened coordinates.

    With B = I + Σ (y − ȳ)(y − ȳ)ᵀ and v = ȳ − m, where m is the prior mean, the posterior scale is B + h v vᵀ, where
    h = κN/(κ + N). The two terms are kept apart because the prior mean may lie far away.

    - **n** - number of rows, shape ().
    - **average** - ȳ, or 0 if there are no rows, shape (d,).
    - **inverse** - B⁻¹, shape (d, d).
    - **log_det** - ``log |B|``, shape ().
    - **pull** - B⁻¹ v, shape (d,).
    - **form** - vᵀ B⁻¹ v, shape ().
    - **log_norm** - the part of the log predictive density that does not depend on the row, shape ().
    """

    n: Float[Array, "..."]
    average: Float[Array, "... d"]
    inverse: Float[Array, "... d d"]
    log_det: Float[Array, "..."]
    pull: Float[Array, "... d"]
    form: Float[Array, "..."]
    log_norm: Float[Array, "..."]


class NormalInverseWishart(FullCovariance, DependentColumns):
    """Normal rows; covariance Σ ~ InverseWishart(nu, scale), mean given Σ ~ N(mean, Σ/kappa).

    Parameters
    ----------
    mean
        Prior mean of the cluster mean, shape (d,).
    kappa
        Number of prior observations behind `mean`, > 0.
    nu
        Degrees of freedom of the covariance prior, > d - 1.
    scale
        Scale matrix of the covariance prior, (d, d), positive definite; E[Σ] = scale / (nu - d - 1).
    origin
        Reference point about which statistics are taken, (d,), by default `mean`. It affects numerical precision, but no
        probability; see `centered_on`.

    Notes
    -----
    Heller & Ghahramani (2005), appendix B, with the sign of its (Σx)(Σx)ᵀ term corrected to −1/(N + r). The parameters of a
    cluster are a (d + 1, d) array: the mean, followed by the covariance. Missing values are cells of the model, which is not
    conjugate otherwise: see `bnp_hier.complete_rows`. In new rows, they are integrated out.

    Examples
    --------
    >>> import numpy as np
    >>> from bnp_hier import NormalInverseWishart
    >>> component = NormalInverseWishart(mean=[0.0, 1.0], kappa=0.1, nu=4.0, scale=np.eye(2))
    >>> round(component.log_evidence([[0.1, 1.2], [-0.2, 0.9]]), 3)
    -4.495
    """

    mean: ArrayLike
    kappa: ArrayLike
    nu: ArrayLike
    scale: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        name, d = type(self).__name__, self.dim
        check_positive(name, "kappa", self.kappa)
        check_positive(name, "nu", self.nu, above=d - 1)
        check_covariance(name, "scale", self.scale, d)

    @classmethod
    @derived_from_all_rows
    def from_data(
        cls,
        X: ArrayLike,
        *,
        learn: bool = True,
        rule: str | None = None,
        kappa: float | None = None,
        nu: float | None = None,
        within: float | None = None,
        random_state: int = 0,
    ) -> Any:
        """Build a prior centred on the data: mean = column means, with the other hyperparameters learned or set by a rule.

        If they are learned, the expected covariance matrix of a cluster is the matrix with entries √(w_i w_j) S_ij, where S
        lies between the diagonal of the data's covariance matrix and the whole of it. The sites are `within`, (d,): w, the
        expected fraction of each column's variance within a cluster, log-normal with median 0.3; for more than one column,
        `correlation`: the share of the data's correlations in S, half-normal on [0, 1], and narrower the more columns and rows
        there are; `kappa` ~ Gamma(2, 20); and `extra_nu` = nu − d − 1, log-normal with median 5. The logarithms of
        the log-normal ones have standard deviation 1. To the expected variance of a column with repeated values, such as
        rounded ones, at least that of their rounding errors is added.

        Parameters
        ----------
        X
            Data, (n, d); NaN is ignored, but the rules "me" and "agglomerative" need complete rows.
        learn
            True: return the component with priors on its hyperparameters, for use as `component` of a model. False: return
            the component with the hyperparameters of `rule`.
        rule
            For `learn=False`. "within", the default: E[Σ] = `within` × diag(column variances), kappa = 0.1, nu = d + 2. "me":
            kappa = 0.1, nu = d and scale = s² d S / trace(S), where S is the covariance of the data and s a distance between
            close rows (Kurihara & Welling 2009, Eq. 21). "agglomerative": kappa = 0.01, nu = d and scale = 0.01 s² I (their
            Eq. 22).
        kappa
            Number of prior observations behind the mean, which is then not learned; overrides the rule's value. The standard
            deviation of cluster means is √(`within` / `kappa`) times that of the data, 1.7 times with the values of the rule
            "within".
        nu
            Degrees of freedom, which are then not learned; overrides the rule's value. d + 2 is the smallest whole number for
            which E[Σ] exists; without `learn=False`, nu must be greater than d + 1.
        within
            Expected fraction of a column's variance within a cluster, which is then not learned; 0.3 under the rule "within",
            and ignored under the other rules.
        random_state
            Seed for the random sample, a tenth of the rows, whose nearest neighbours determine s: the mean distance of the
            three closest pairs.

        Returns
        -------
        component
            `LearnedPrior`, or the component if `learn` is False.

        Raises
        ------
        ValueError
            If there are fewer than two rows; if a column is constant, empty or contains infinite values; if the rule is
            unknown, is given without `learn=False`, or needs complete rows but values are missing; or if nu is too small.

        Examples
        --------
        >>> from bnp_hier import NormalInverseWishart
        >>> X = [[0.0, 0.0], [2.0, 4.0], [1.0, 2.0]]
        >>> NormalInverseWishart.from_data(X, kappa=0.1, nu=6.0)
        LearnedPrior(NormalInverseWishart, within ~ LogNormal, correlation ~ TruncatedNormal)
        >>> component = NormalInverseWishart.from_data(X, learn=False)
        >>> component.mean, component.kappa, component.nu
        (array([1., 2.]), 0.1, 4.0)
        """
        rules = ("within", "me", "agglomerative")
        if rule is not None and rule not in rules:
            raise ValueError(f"{cls.__name__}: rule must be one of {', '.join(rules)}, but it is {rule!r}")
        if learn and rule is not None:
            raise ValueError(f"{cls.__name__}: rule={rule!r} sets fixed hyperparameters; pass learn=False with it")
        mean, variance = column_moments(cls.__name__, X)
        d = mean.shape[0]
        if learn:
            return cls._learned(X, mean, variance, within=within, kappa=kappa, nu=nu)
        rule, within = rule or "within", 0.3 if within is None else within
        nu = (d + 2.0 if rule == "within" else float(d)) if nu is None else nu
        kappa = (0.01 if rule == "agglomerative" else 0.1) if kappa is None else kappa
        if rule == "within":
            factor = within * max(nu - d - 1.0, 1e-3)
            scale = factor * (np.diag(variance) if isinstance(variance, np.ndarray) else jnp.diag(variance))
            return cls(mean=mean, kappa=kappa, nu=nu, scale=scale)
        matrix = as_matrix(X)
        if np.isnan(matrix).any():
            raise ValueError(
                f"{cls.__name__}: rule={rule!r} needs complete rows, but X has a missing value at "
                f'{first_cell(np.isnan(matrix))}; impute it, or use rule="within"'
            )
        square = close_distance(matrix, random_state) ** 2
        if rule == "agglomerative":
            return cls(mean=mean, kappa=kappa, nu=nu, scale=0.01 * square * np.eye(d))
        covariance = np.cov(matrix.T, bias=True).reshape(d, d)
        return cls(mean=mean, kappa=kappa, nu=nu, scale=square * d / np.trace(covariance) * covariance)

    @classmethod
    def _learned(cls, X: ArrayLike, mean: Any, variance: Any, **given: Any) -> LearnedPrior:
        """Priors of the hyperparameters that are not given."""
        n, d = np.shape(X)
        nu = given.pop("nu")
        given["extra_nu"] = None if nu is None else nu - d - 1.0
        if nu is not None and not nu > d + 1:
            raise ValueError(
                f"{cls.__name__}: nu must be greater than d + 1 = {d + 1} to be given without learn=False, but it is {nu}"
            )
        correlation = {"correlation": correlation_prior(n, d)} if d > 1 else {}
        priors = {"within": about(0.3, d)} | correlation | {"kappa": few_rows(), "extra_nu": about(5.0)}
        fixed, learned = given_or_learned(given, priors)
        fixed |= with_rounding(X, variance)
        build = partial(_blended, cls, (mean, variance, blended_covariance(X, variance)), **fixed)
        # today's defaults; wide clusters of one shape; narrow ones
        starts: dict[str, list[Any]] = {
            "within": [np.full(d, 0.3), np.full(d, 0.6), np.full(d, 0.1)],
            "correlation": [0.1, 0.8, 0.8],
            "kappa": [0.1, 0.3, 0.03],
            "extra_nu": [1.0, 20.0, 10.0],
        }
        return LearnedPrior(cls, learned, build, starts)

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Suits continuous, complete columns, if `NormalInverseGamma`, which is tried first, does not."""
        return (
            "the columns are continuous and complete" if columns.found <= {"continuous"} and not columns.has_missing else None
        )

    def expected_spread(self) -> Spread:
        """Location and spread of a cluster expected under the normal-inverse-Wishart prior."""
        d = self.dim
        variance = np.diagonal(np.asarray(self.scale)) / max(float(np.asarray(self.nu)) - d - 1.0, 1.0)
        return Spread(np.sqrt(variance), np.asarray(self.mean), np.sqrt(variance / np.asarray(self.kappa)))

    def prior_rows(self, X: Float[np.ndarray, "n d"]) -> dict[str, float]:
        """Weights of the priors of the mean and of the covariance matrix, in rows."""
        return {"kappa": float(np.asarray(self.kappa)), "nu - d": float(np.asarray(self.nu)) - self.dim}

    def prior_warnings(self, X: Float[np.ndarray, "n d"], limit: float) -> Iterator[str]:
        """Warn if there are too few rows for full covariance matrices."""
        n, d = X.shape
        if n < 2 * d:
            yield (
                f"{n} rows are few for the full covariance matrix of {d} columns, so the prior dominates it: use "
                "NormalInverseGamma (--family diagonal), or fewer columns (bnp_hier.datasets.principal_components)"
            )

    @property
    def _unit(self) -> ArrayLike:
        return self.scale

    def _log_det_scale(self) -> Float[Array, ""]:
        return 2.0 * jnp.log(jnp.diagonal(self._factor)).sum()

    def restated(self, stats: NormalStatistics, anchor: Any) -> NormalStatistics:
        """Sums in this component's coordinates: y' = A y + b, with A = L'⁻¹L and b = L'⁻¹ (origin − origin')."""
        matrix, shift = self._from_coordinates_of(anchor)
        turned = jnp.einsum("ij,...j->...i", matrix, stats.total)
        cross = turned[..., :, None] * shift
        outer = jnp.einsum("ij,...jk,lk->...il", matrix, stats.outer, matrix) + cross + jnp.swapaxes(cross, -1, -2)
        count = stats.n[..., None]
        return NormalStatistics(stats.n, turned + count * shift, outer + count[..., None] * shift[:, None] * shift)

    def log_marginal_of_restated(self, stats: NormalStatistics, anchor: Any) -> Float[Array, "..."]:
        """For many columns in the anchor's coordinates, where only the scale matrix of the prior has to be converted."""
        if self.dim <= UNROLLED_UP_TO:
            return super().log_marginal_of_restated(stats, anchor)
        average, scale = self._average(stats), anchor._whitened_covariance(jnp.asarray(self.scale))
        centre = anchor._whitened(anchor._about_origin(jnp.asarray(self.mean)))
        scatter = scale + stats.outer - stats.total[..., :, None] * average[..., None, :]
        determinant, form = log_det_and_form(scatter, average - centre)
        determinant += jnp.log1p(self._pull_weight(stats.n) * form) - log_det(scale)
        return self._log_count_terms(stats.n) - (self.nu + stats.n) / 2 * determinant

    def check_precision(self, X: ArrayLike, *, parameters: bool = False) -> None:
        """Check that the current precision suffices, as described for `Component.check_precision`."""
        if not is_traced(self):
            scale = np.asarray(self.scale, dtype=np.float64)
            whitened = lambda rows: np.linalg.solve(np.linalg.cholesky(scale), rows.T).T  # noqa: E731
            check_digits(self, X, {"scale": np.diagonal(scale)}, whitened, self._lost, parameters)

    def _lost(self, Y: Float[np.ndarray, "g m d"], unit: float) -> Float[np.ndarray, "g d"]:
        """Error in the log marginals of groups of whitened rows caused by rounding, by column (nats)."""
        m, d = Y.shape[1:]
        deviation = Y - Y.mean(1, keepdims=True)
        inverse = np.linalg.inv(np.eye(d) + np.einsum("gmi,gmj->gij", deviation, deviation))
        return (float(np.asarray(self.nu)) + m) / 2 * unit * (Y**2).sum(1) * np.einsum("gii->gi", inverse)

    def _average(self, stats: NormalStatistics) -> Float[Array, "... d"]:
        return stats.total / jnp.where(stats.n > 0, stats.n, 1.0)[..., None]

    def _pull_weight(self, n: Float[Array, "..."]) -> Float[Array, "..."]:
        """The weight h of `NormalCache`."""
        return jnp.asarray(self.kappa) * n / (self.kappa + n)

    def _log_det_posterior_scale(self, stats: NormalStatistics) -> Float[Array, "..."]:
        """Log determinant of the posterior scale: ``log |B| + log(1 + h vᵀB⁻¹v)``, with the notation of `NormalCache`."""
        average = self._average(stats)
        determinant, form = log_det_and_form_of_identity_plus(stats.outer, stats.total, average, average - self._offset)
        return determinant + jnp.log1p(self._pull_weight(stats.n) * form)

    def _log_count_terms(self, count: Float[Array, "..."]) -> Float[Array, "..."]:
        """The part of the log marginal that depends only on the number of rows."""
        d, nu, kappa = self.dim, jnp.asarray(self.nu), jnp.asarray(self.kappa)
        return (
            multigammaln((nu + count) / 2, d)
            - multigammaln(nu / 2, d)
            - count * d / 2 * LOG_PI
            - d / 2 * jnp.log1p(count / kappa)
            - count / 2 * self._log_det_scale()
        )

    def log_marginal(self, stats: NormalStatistics) -> Float[Array, "..."]:
        """Log marginal likelihood (nats); Heller & Ghahramani (2005), appendix B, corrected."""
        determinant = self._log_det_posterior_scale(stats)
        return self._log_count_terms(stats.n) - (self.nu + stats.n) / 2 * determinant

    def log_marginal_up_to(self, count: int) -> Callable[[NormalStatistics], Float[Array, "..."]]:
        """`log_marginal` with a lookup table for the terms that depend only on the count."""
        table = self._log_count_terms(jnp.arange(count + 1).astype(jnp.result_type(float)))

        def log_marginal(stats: NormalStatistics) -> Float[Array, "..."]:
            determinant = self._log_det_posterior_scale(stats)
            return table[stats.n.astype(int)] - (self.nu + stats.n) / 2 * determinant

        return log_marginal

    def cache(self, stats: NormalStatistics) -> NormalCache:
        """The posterior of each cluster, with the inverse of B."""
        average = self._average(stats)
        inverse, log_det = inverse_and_log_det(identity_plus(stats.outer, stats.total, average))
        return self._cache(stats.n, average, inverse, log_det)

    def _cache(
        self, n: Float[Array, "..."], average: Float[Array, "... d"], inverse: Float[Array, "... d d"], log_det: Array
    ) -> NormalCache:
        d, kappa, v = self.dim, self.kappa + n, average - self._offset
        pull = matrix_vector(inverse, v)
        form = (pull * v).sum(-1)
        log_norm = log_gamma_ratio((self.nu + n + 1 - d) / 2, d / 2) + d / 2 * (jnp.log(kappa / (kappa + 1)) - LOG_PI)
        log_norm = log_norm - (self._log_det_scale() + log_det + jnp.log1p(self._pull_weight(n) * form)) / 2
        return NormalCache(n, average, inverse, log_det, pull, form, log_norm)

    def update_cache(self, cache: NormalCache, row: NormalStatistics, sign: ArrayLike) -> NormalCache:
        """Rank-one update of the average, of B⁻¹ (Sherman-Morrison) and of ``log |B|``."""
        sign = jnp.asarray(sign, cache.n.dtype)
        new_n = cache.n + sign
        divisor, several = jnp.where(new_n > 0, new_n, 1.0), new_n > 1
        difference = row.total - cache.average
        projected = matrix_vector(cache.inverse, difference)
        ratio = jnp.where(new_n > 0, sign * cache.n / divisor, 0.0)
        factor = 1.0 + ratio * (projected * difference).sum(-1)
        factor = jnp.maximum(factor, jnp.finfo(factor.dtype).eps)
        inverse = cache.inverse - (ratio / factor)[..., None, None] * projected[..., :, None] * projected[..., None, :]
        average = cache.average + jnp.expand_dims(sign / divisor, -1) * difference
        # one row has no scatter, whatever the rounding errors of earlier updates
        inverse = jnp.where(several[..., None, None], inverse, jnp.eye(self.dim, dtype=inverse.dtype))
        log_det = jnp.where(several, cache.log_det + jnp.log(factor), 0.0)
        return self._cache(new_n, jnp.where((new_n > 0)[..., None], average, 0.0), inverse, log_det)

    def cached_log_predictive(self, cache: NormalCache, row: NormalStatistics) -> Float[Array, "..."]:
        """Log density of the Student-t predictive with nu + N - d + 1 degrees of freedom (nats).

        The quadratic form is (e + w v)ᵀ S⁻¹ (e + w v), with e = y − ȳ, w = κ/(κ + N) and the posterior scale S.
        """
        kappa, lag = self.kappa + cache.n, self._pull_weight(cache.n)
        difference, weight = row.total - cache.average, self.kappa / kappa
        along = (cache.pull * difference).sum(-1)
        rest = (2 * weight * along + weight**2 * cache.form - lag * along**2) / (1.0 + lag * cache.form)
        square = jnp.maximum(quadratic_form(cache.inverse, difference) + rest, 0.0)
        return cache.log_norm - (self.nu + cache.n + 1) / 2 * jnp.log1p(kappa / (kappa + 1) * square)

    def native(self) -> tuple[Part, ...]:
        """The native family "normal"."""
        whitener, offset = self._whitener_and_offset()
        xp = jnp if is_traced(self) else np
        log_det = -2.0 * xp.log(xp.diagonal(whitener)).sum()
        constants = (self.kappa, self.nu, log_det, offset, self.reference(), whitener)
        return (Part("normal", tuple(range(self.dim)), constants),)

    def expected_natural_parameters(self, stats: NormalStatistics) -> NormalStatistics:
        """Closed form, with E[Σ⁻¹] = ν Ψ⁻¹ and E[log|Σ|] = log|Ψ| − d log 2 − Σ_i ψ((ν + 1 − i)/2) for posterior ν and Ψ."""
        d, kappa, nu = self.dim, self.kappa + stats.n, self.nu + stats.n
        cache, weight, lag = self.cache(stats), self.kappa / kappa, self._pull_weight(stats.n)
        widened = 1.0 + lag * cache.form
        pull = cache.pull / widened[..., None]
        inverse = cache.inverse - lag[..., None, None] * cache.pull[..., :, None] * pull[..., None, :]
        determinant = cache.log_det + jnp.log(widened)
        # the posterior mean is ȳ − w v
        solved = matrix_vector(inverse, cache.average) - weight[..., None] * pull
        form = (cache.average * (solved - weight[..., None] * pull)).sum(-1) + weight**2 * cache.form / widened
        precision, weighted = jnp.asarray(nu)[..., None, None] * inverse, jnp.asarray(nu)[..., None] * solved
        halves = (nu[..., None] - jnp.arange(d).astype(nu.dtype)) / 2
        log_det = determinant + self._log_det_scale() - d * np.log(2.0) - digamma(halves).sum(-1)
        constant = nu * form + d / kappa + log_det + d * (LOG_PI + np.log(2.0))
        return NormalStatistics(-constant / 2, weighted, -precision / 2)

    def natural_parameters(self, parameters: Float[Array, "... p d"]) -> NormalStatistics:
        """Coefficients of −yᵀPy/2 + (Pb)ᵀy − (bᵀPb + log|2πΣ|)/2 for whitened rows y, with precision P and mean b."""
        mean = self._whitened(self._about_origin(parameters[..., 0, :]))
        precision, determinant = inverse_and_log_det(self._whitened_covariance(parameters[..., 1:, :]))
        weighted = matrix_vector(precision, mean)
        constant = (mean * weighted).sum(-1) + determinant + self._log_det_scale() + self.dim * (LOG_PI + np.log(2.0))
        return NormalStatistics(-constant / 2, weighted, -precision / 2)

    def _location_and_scale(self, stats: NormalStatistics) -> tuple[Float[Array, "... d"], Float[Array, "... d d"]]:
        """Mean and scale matrix of the posterior, in the coordinates of the data."""
        factor, average = self._factor, self._average(stats)
        v = average - self._offset
        mean = average - (self.kappa / (self.kappa + stats.n))[..., None] * v
        spread = self._pull_weight(stats.n)[..., None, None] * v[..., :, None] * v[..., None, :]
        scale = identity_plus(stats.outer, stats.total, average) + spread
        return self._in_units_of_data(mean), jnp.einsum("ij,...jk,lk->...il", factor, scale, factor)

    def density_of_cells(self, stats: NormalStatistics) -> Elliptical:
        """Location and scale matrix of the Student-t predictive."""
        kappa, df = jnp.asarray(self.kappa + stats.n), jnp.asarray(self.nu + stats.n - self.dim + 1)
        loc, scale = self._location_and_scale(stats)
        return Elliptical(df, loc, jnp.asarray(((kappa + 1) / (kappa * df))[..., None, None] * scale))

    def expected_parameters(self, stats: NormalStatistics) -> ExpectedNormal:
        """Posterior mean, and Ψ / ν for posterior ν and Ψ."""
        loc, scale = self._location_and_scale(stats)
        return ExpectedNormal(loc, jnp.asarray(scale / (self.nu + stats.n)[..., None, None]))

    def with_covariances(self, rows: NormalStatistics, covariances: Float[Array, "... d d"]) -> NormalStatistics:
        """Adds the covariance matrices, in whitened coordinates, to the products."""
        return rows._replace(outer=rows.outer + self._whitened_covariance(covariances))

    def predictive(self, stats: NormalStatistics) -> dist.MultivariateStudentT:
        """Multivariate Student-t predictive distribution."""
        kappa, df = self.kappa + stats.n, self.nu + stats.n - self.dim + 1
        posterior = self.posterior(stats)
        widen = jnp.sqrt((kappa + 1) / (kappa * df))
        return dist.MultivariateStudentT(df, posterior.loc, widen[..., None, None] * posterior.scale_tril)

    def posterior(self, stats: NormalStatistics) -> NormalInverseWishartParameters:
        """Normal-inverse-Wishart distribution of (d + 1, d) arrays: the mean, followed by the covariance."""
        average, (mean, _) = self._average(stats), self._location_and_scale(stats)
        scatter = identity_plus(stats.outer, stats.total, average)
        half = cholesky_with_rank_one(scatter, self._pull_weight(stats.n), average - self._offset)
        return NormalInverseWishartParameters(mean, self.kappa + stats.n, self.nu + stats.n, self._factor @ half)


@builder
def _blended(
    family: type[NormalInverseWishart],
    moments: tuple[ArrayLike, ArrayLike, ArrayLike],
    *,
    within: ArrayLike,
    kappa: ArrayLike,
    extra_nu: ArrayLike,
    correlation: ArrayLike = 0.0,
    rounding: ArrayLike | None = None,
) -> NormalInverseWishart:
    """The component whose expected covariance matrix has a share of the data's correlations.

    `moments` are the means, variances and covariance matrix of the data.
    """
    mean, variance, covariance = moments
    xp: Any = jnp if is_traced((variance, within, kappa, extra_nu, correlation)) else np  # NumPy is quicker one by one
    d = np.shape(mean)[0]
    width = xp.sqrt(xp.broadcast_to(xp.asarray(within), (d,)))
    shape = (1.0 - xp.asarray(correlation)) * xp.diag(xp.asarray(variance)) + xp.asarray(correlation) * xp.asarray(covariance)
    kappa, extra_nu = xp.asarray(kappa), xp.asarray(extra_nu)
    scale = extra_nu * width[:, None] * shape * width
    if rounding is not None:
        scale = scale + (1.0 + extra_nu) * xp.diag(xp.asarray(rounding))
    return family(mean, kappa, d + 1.0 + extra_nu, scale)

"""Normal rows with unknown mean and full covariance matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, cast

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, multigammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from bnp_hier.components.base import Component, Quadratic
from bnp_hier.components.checks import (
    check_covariance,
    check_positive,
    check_vector,
    close_distance,
    column_moments,
    with_rounding,
)
from bnp_hier.components.digits import AboutOrigin, check_digits, check_origin, shifted
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
    cholesky_factor,
    cholesky_with_rank_one,
    identity_plus,
    inverse_and_log_det,
    inverse_factor,
    log_det,
    log_det_and_form,
    log_det_and_form_of_identity_plus,
    log_det_of_identity_plus,
    matrix_vector,
    quadratic_form,
    whiten,
)
from bnp_hier.components.parameter_spaces import NormalInverseWishartParameters
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.native import Part
from bnp_hier.utils.arrays import as_matrix, first_cell, is_traced

__all__ = ["NormalInverseWishart"]

LOG_PI = float(np.log(np.pi))


class NormalStatistics(NamedTuple):
    """Sums over rows, in coordinates y = L⁻¹(x − origin) with scale = L Lᵀ; `origin` defaults to the prior mean.

    Centring keeps the precision of data far from zero.

    - **n** - number of rows, shape ().
    - **total** - Σ y, shape (d,).
    - **outer** - Σ y yᵀ, shape (d, d).
    """

    n: Float[Array, "..."]
    total: Float[Array, "... d"]
    outer: Float[Array, "... d d"]


def coordinates(
    anchor: NormalInverseWishart, factor: Float[Array, "d d"], reference: ArrayLike
) -> tuple[Float[Array, "d d"], Float[Array, " d"]]:
    """A and b of A y + b = (factor)⁻¹ (x − reference), where y are the coordinates of statistics under `anchor`."""
    shift = jnp.asarray(anchor.reference()) - jnp.asarray(reference)
    return whiten(factor, anchor._factor.T).T, whiten(factor, shift)


class NormalCache(NamedTuple):
    """What the predictive density of a cluster needs of its posterior, in whitened coordinates.

    - **n** - number of rows.
    - **mean** - posterior mean, shape (d,).
    - **inverse** - inverse of the posterior scale matrix, shape (d, d).
    - **log_det** - log determinant of the posterior scale matrix.
    - **log_norm** - the part of the log predictive density that depends only on the count.
    - **gamma_ratios** - the log gamma ratio in `log_norm` at this count and at the next, shape (2,); from these two, those
      of the neighbouring counts follow with a single logarithm.
    """

    n: Float[Array, "..."]
    mean: Float[Array, "... d"]
    inverse: Float[Array, "... d d"]
    log_det: Float[Array, "..."]
    log_norm: Float[Array, "..."]
    gamma_ratios: Float[Array, "... 2"]


class FarNormalCache(NamedTuple):
    """Like `NormalCache`, for a prior mean that may lie far away and is therefore kept apart from the scatter of the rows.

    With B = I + Σ (y − ȳ)(y − ȳ)ᵀ and v = ȳ − m, the posterior scale is B + h v vᵀ, where h = κN/(κ + N).

    - **n** - number of rows, shape ().
    - **average** - ȳ, or 0 if there are no rows, shape (d,).
    - **inverse** - B⁻¹, shape (d, d).
    - **pull** - B⁻¹ v, shape (d,).
    - **form** - vᵀ B⁻¹ v, shape ().
    - **log_det** - log |B|, shape ().
    """

    n: Float[Array, "..."]
    average: Float[Array, "... d"]
    inverse: Float[Array, "... d d"]
    pull: Float[Array, "... d"]
    form: Float[Array, "..."]
    log_det: Float[Array, "..."]


class NormalInverseWishart(DependentColumns, AboutOrigin, Component):
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
    """

    mean: ArrayLike
    kappa: ArrayLike
    nu: ArrayLike
    scale: ArrayLike
    origin: ArrayLike | None = dataclasses.field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        name = type(self).__name__
        d = check_vector(name, "mean", self.mean)
        check_positive(name, "kappa", self.kappa)
        check_positive(name, "nu", self.nu, above=d - 1)
        check_covariance(name, "scale", self.scale, d)
        check_origin(name, self.origin, d)

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

    is_normal: ClassVar[bool] = True

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
    def dim(self) -> int:
        """Number of columns."""
        return np.shape(self.mean)[-1]

    @property
    def _factor(self) -> Float[Array, "d d"]:
        return jnp.linalg.cholesky(jnp.asarray(self.scale))

    def _log_det_scale(self) -> Float[Array, ""]:
        return 2.0 * jnp.log(jnp.diagonal(self._factor)).sum()

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> NormalStatistics:
        """Count, whitened row and its outer product, for each row."""
        y = whiten(self._factor, shifted(X, self.reference()))
        return NormalStatistics(jnp.ones(y.shape[:-1], y.dtype), y, y[..., :, None] * y[..., None, :])

    def anchor(self) -> Self:
        """The component itself."""
        return self

    def restated(self, stats: NormalStatistics, anchor: Any) -> NormalStatistics:
        """Sums in this component's coordinates: y' = A y + b, with A = L'⁻¹L and b = L'⁻¹ (origin − origin')."""
        matrix, shift = coordinates(anchor, self._factor, self.reference())
        turned = jnp.einsum("ij,...j->...i", matrix, stats.total)
        cross = turned[..., :, None] * shift
        outer = jnp.einsum("ij,...jk,lk->...il", matrix, stats.outer, matrix) + cross + jnp.swapaxes(cross, -1, -2)
        count = stats.n[..., None]
        return NormalStatistics(stats.n, turned + count * shift, outer + count[..., None] * shift[:, None] * shift)

    def log_marginal_of_restated(self, stats: NormalStatistics, anchor: Any) -> Float[Array, "..."]:
        """For many columns in the anchor's coordinates, where only the scale matrix of the prior has to be converted."""
        if self.dim <= UNROLLED_UP_TO:
            return super().log_marginal_of_restated(stats, anchor)
        factor, average = anchor._factor, self._average(stats)
        turned = whiten(factor, self._factor.T).T
        scale = turned @ turned.T
        centre = whiten(factor, jnp.asarray(self.mean) - jnp.asarray(anchor.reference()))
        scatter = scale + stats.outer - stats.total[..., :, None] * average[..., None, :]
        determinant, form = log_det_and_form(scatter, average - centre)
        determinant += jnp.log1p(self._pull_weight(stats.n) * form) - log_det(scale)
        return self._log_count_terms(stats.n) - (self.nu + stats.n) / 2 * determinant

    def check_precision(self, X: ArrayLike, *, parameters: bool = False) -> None:
        """Check that the current precision suffices, as described for `Component.check_precision`."""
        if is_traced(self):
            return
        scale = np.asarray(self.scale, dtype=np.float64)
        diagonal = np.diagonal(scale)
        whitened = lambda rows: np.linalg.solve(np.linalg.cholesky(scale), rows.T).T  # noqa: E731
        deviation = np.sqrt(diagonal / np.asarray(self.nu))
        check_digits(self, X, {"scale": diagonal}, whitened, deviation, self._lost, parameters)

    def _lost(self, Y: Float[np.ndarray, "g m d"], unit: float) -> Float[np.ndarray, "g d"]:
        """Error in the log marginals of groups of whitened rows caused by rounding, by column (nats)."""
        m, d = Y.shape[1:]
        kappa, nu = float(np.asarray(self.kappa)), float(np.asarray(self.nu))
        average = Y.mean(1)
        deviation = Y - average[:, None]
        inverse = np.linalg.inv(np.eye(d) + np.einsum("gmi,gmj->gij", deviation, deviation))
        left = np.einsum("gii->gi", inverse)
        if self.origin is None:  # the posterior scale is then computed as a single sum
            weight, pull = kappa * m / (kappa + m), np.einsum("gij,gj->gi", inverse, average)
            left = left - weight * pull**2 / (1 + weight * (pull * average).sum(1, keepdims=True))
        return (nu + m) / 2 * unit * (Y**2).sum(1) * left

    @property
    def _offset(self) -> Float[Array, " d"]:
        """The prior mean m in whitened coordinates about the origin."""
        return whiten(self._factor, shifted(self.mean, self.origin))  # type: ignore[arg-type]

    def _average(self, stats: NormalStatistics) -> Float[Array, "... d"]:
        return stats.total / jnp.where(stats.n > 0, stats.n, 1.0)[..., None]

    def _pull_weight(self, n: Float[Array, "..."]) -> Float[Array, "..."]:
        """The weight h of `FarNormalCache`."""
        return jnp.asarray(self.kappa) * n / (self.kappa + n)

    def _scatter(self, stats: NormalStatistics, average: Float[Array, "... d"]) -> Float[Array, "... d d"]:
        """B of `FarNormalCache`."""
        return identity_plus(stats.outer, stats.total, average)

    def _far_log_det(self, stats: NormalStatistics) -> Float[Array, "..."]:
        """Log determinant of the posterior scale: log |B| + log(1 + h vᵀB⁻¹v), with the notation of `FarNormalCache`."""
        average = self._average(stats)
        far = average - self._offset
        determinant, form = log_det_and_form_of_identity_plus(stats.outer, stats.total, average, far)
        return determinant + jnp.log1p(self._pull_weight(stats.n) * form)

    def _shrunk(self, stats: NormalStatistics) -> Float[Array, "... d"]:
        return stats.total * (1.0 / (self.kappa + stats.n))[..., None]

    def _posterior_scale(self, stats: NormalStatistics) -> Float[Array, "... d d"]:
        return identity_plus(stats.outer, stats.total, self._shrunk(stats))

    def _log_det_posterior_scale(self, stats: NormalStatistics) -> Float[Array, "..."]:
        """Log determinant of `_posterior_scale`, in whitened coordinates."""
        if self.origin is not None:
            return self._far_log_det(stats)
        return log_det_of_identity_plus(stats.outer, stats.total, self._shrunk(stats))

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

    def log_marginal_of_row_pairs(self, left: NormalStatistics, right: NormalStatistics) -> Float[Array, "a b"]:
        """Uses dot products: with u = (y + y')/√2 and v = (y − y')/√2, the posterior scale is I + κ/(κ+2) u uᵀ + v vᵀ."""
        if self.origin is not None:
            return super().log_marginal_of_row_pairs(left, right)
        square, other = (left.total**2).sum(-1)[:, None], (right.total**2).sum(-1)
        product = left.total @ right.total.T
        u, v, uv = (square + other) / 2 + product, jnp.maximum((square + other) / 2 - product, 0.0), (square - other) / 2
        shrink = self.kappa / (jnp.asarray(self.kappa) + 2.0)
        determinant = jnp.log((1.0 + shrink * u) * (1.0 + v) - shrink * uv**2)
        two = jnp.asarray(2.0, determinant.dtype)
        return self._log_count_terms(two) - (self.nu + two) / 2 * determinant

    def cache(self, stats: NormalStatistics) -> NormalCache | FarNormalCache:
        """Posterior mean and inverse scale matrix of each cluster."""
        if self.origin is not None:
            average = self._average(stats)
            return self._far_cache(stats.n, average, *inverse_and_log_det(self._scatter(stats, average)))
        inverse, determinant = inverse_and_log_det(self._posterior_scale(stats))
        mean = stats.total / (self.kappa + stats.n)[..., None]
        d, kappa = self.dim, self.kappa + stats.n
        ratios = log_gamma_ratio(self._half_df(stats.n)[..., None] + jnp.array([0.0, 0.5]), d / 2)
        log_norm = ratios[..., 0] + d / 2 * (jnp.log(kappa / (kappa + 1)) - LOG_PI) - self._log_det_scale() / 2
        return NormalCache(stats.n, mean, inverse, determinant, log_norm, ratios)

    def _far_cache(
        self,
        n: Float[Array, "..."],
        average: Float[Array, "... d"],
        inverse: Float[Array, "... d d"],
        log_det: Float[Array, "..."],
    ) -> FarNormalCache:
        far = average - self._offset
        pull = matrix_vector(inverse, far)
        return FarNormalCache(n, average, inverse, pull, (pull * far).sum(-1), log_det)

    def _far_update(self, cache: FarNormalCache, row: NormalStatistics, sign: Array) -> FarNormalCache:
        """`update_cache` for a `FarNormalCache`: the same update with N in place of κ + N."""
        new_n = cache.n + sign
        divisor = jnp.where(new_n > 0, new_n, 1.0)
        difference = row.total - cache.average
        projected = matrix_vector(cache.inverse, difference)
        ratio = jnp.where(new_n > 0, sign * cache.n / divisor, 0.0)
        factor = 1.0 + ratio * (projected * difference).sum(-1)
        factor = jnp.maximum(factor, jnp.finfo(factor.dtype).eps)
        inverse = cache.inverse - (ratio / factor)[..., None, None] * projected[..., :, None] * projected[..., None, :]
        average = cache.average + jnp.expand_dims(sign / divisor, -1) * difference
        average = jnp.where((new_n > 0)[..., None], average, 0.0)
        return self._far_cache(new_n, average, inverse, cache.log_det + jnp.log(factor))

    def _far_log_predictive(self, cache: FarNormalCache, row: NormalStatistics) -> Float[Array, "..."]:
        """`cached_log_predictive` for a `FarNormalCache`.

        The quadratic form is (e + w v)ᵀ S⁻¹ (e + w v), with e = y − ȳ, w = κ/(κ + N) and the posterior scale S.
        """
        d, kappa, nu = self.dim, self.kappa + cache.n, self.nu + cache.n
        difference, weight = row.total - cache.average, self.kappa / kappa
        widened = self._pull_weight(cache.n) * cache.form
        along = (cache.pull * difference).sum(-1)
        rest = (2 * weight * along + weight**2 * cache.form - self._pull_weight(cache.n) * along**2) / (1.0 + widened)
        square = jnp.maximum(quadratic_form(cache.inverse, difference) + rest, 0.0)
        log_norm = log_gamma_ratio(self._half_df(cache.n), d / 2) + d / 2 * (jnp.log(kappa / (kappa + 1)) - LOG_PI)
        log_norm = log_norm - (self._log_det_scale() + cache.log_det + jnp.log1p(widened)) / 2
        return log_norm - (nu + 1) / 2 * jnp.log1p(kappa / (kappa + 1) * square)

    def _half_df(self, n: Float[Array, "..."]) -> Float[Array, "..."]:
        """Half the degrees of freedom of the Student-t predictive after n rows."""
        return (jnp.asarray(self.nu) + n + 1 - self.dim) / 2

    def update_cache(
        self, cache: NormalCache | FarNormalCache, row: NormalStatistics, sign: ArrayLike
    ) -> NormalCache | FarNormalCache:
        """Rank-one update of the mean, the inverse (Sherman-Morrison) and the log determinant."""
        sign = jnp.asarray(sign, cache.n.dtype)
        if isinstance(cache, FarNormalCache):
            return self._far_update(cache, row, sign)
        kappa = self.kappa + cache.n
        new_kappa = kappa + sign
        difference = row.total - cache.mean
        projected = matrix_vector(cache.inverse, difference)
        ratio = sign * kappa / new_kappa
        factor = 1.0 + ratio * (projected * difference).sum(-1)
        factor = jnp.maximum(factor, jnp.finfo(factor.dtype).eps)
        change = (ratio / factor)[..., None, None] * projected[..., :, None] * projected[..., None, :]
        # lgamma(h + 1 + d/2) − lgamma(h + 1) = lgamma(h + d/2) − lgamma(h) + log(1 + d/(2h)), and two more rows raise h by 1
        this, following = cache.gamma_ratios[..., 0], cache.gamma_ratios[..., 1]
        step = jnp.log1p(self.dim / 2 / (self._half_df(cache.n) - jnp.where(sign < 0, 0.5, 0.0)))
        ratios = jnp.where(sign > 0, jnp.stack([following, this + step]), jnp.stack([following - step, this]))
        ratios = jnp.where(sign == 0, jnp.stack([this, following]), ratios)
        spread = jnp.log(new_kappa * (kappa + 1) / ((new_kappa + 1) * kappa))
        return NormalCache(
            cache.n + sign,
            cache.mean + jnp.expand_dims(sign / new_kappa, -1) * difference,
            cache.inverse - change,
            cache.log_det + jnp.log(factor),
            cache.log_norm + ratios[0] - this + self.dim / 2 * spread,
            jnp.moveaxis(ratios, 0, -1),
        )

    def cached_log_predictive(self, cache: NormalCache | FarNormalCache, row: NormalStatistics) -> Float[Array, "..."]:
        """Log density of the Student-t predictive with nu + N - d + 1 degrees of freedom (nats)."""
        if isinstance(cache, FarNormalCache):
            return self._far_log_predictive(cache, row)
        kappa, nu = self.kappa + cache.n, self.nu + cache.n
        difference = row.total - cache.mean
        square = quadratic_form(cache.inverse, difference)
        return cache.log_norm - cache.log_det / 2 - (nu + 1) / 2 * jnp.log1p(kappa / (kappa + 1) * square)

    def native(self) -> tuple[Part, ...]:
        """The native family "normal"."""
        factor = cholesky_factor(self.scale)
        whitener = inverse_factor(factor)
        xp = jnp if is_traced(self) else np
        log_det = 2.0 * xp.log(xp.diagonal(factor)).sum()
        offset = whitener @ xp.subtract(self.mean, self.reference())
        constants = (self.kappa, self.nu, log_det, offset, self.reference(), whitener)
        return (Part("normal", tuple(range(self.dim)), constants),)

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... d"]:
        """Whitened rows."""
        return self.suff_stats(X).total

    def row_quadratic(self, natural: NormalStatistics) -> Quadratic:
        """Quadratic in the whitened row; the matrix is symmetrised, since only the sum of entries (i, j) and (j, i) matters."""
        return Quadratic(natural.n, natural.total, (natural.outer + jnp.swapaxes(natural.outer, -1, -2)) / 2)

    def expected_natural_parameters(self, stats: NormalStatistics) -> NormalStatistics:
        """Closed form, with E[Σ⁻¹] = ν Ψ⁻¹ and E[log|Σ|] = log|Ψ| − d log 2 − Σ_i ψ((ν + 1 − i)/2) for posterior ν and Ψ."""
        d, kappa, nu = self.dim, self.kappa + stats.n, self.nu + stats.n
        if self.origin is None:
            inverse, determinant = inverse_and_log_det(self._posterior_scale(stats))
            mean = jnp.asarray(stats.total / kappa[..., None])
            solved = matrix_vector(inverse, mean)
            form = (mean * solved).sum(-1)
        else:
            cache = cast(FarNormalCache, self.cache(stats))
            widened = 1.0 + self._pull_weight(stats.n) * cache.form
            pull, weight = cache.pull / widened[..., None], self.kappa / kappa
            change = self._pull_weight(stats.n)[..., None, None] * cache.pull[..., :, None] * pull[..., None, :]
            inverse, determinant = cache.inverse - change, cache.log_det + jnp.log(widened)
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
        factor = self._factor
        mean = whiten(factor, jnp.asarray(parameters[..., 0, :] - jnp.asarray(self.reference())))
        half = whiten(factor, jnp.swapaxes(parameters[..., 1:, :], -1, -2))
        precision, determinant = inverse_and_log_det(whiten(factor, jnp.swapaxes(half, -1, -2)))
        weighted = matrix_vector(precision, mean)
        constant = (mean * weighted).sum(-1) + determinant + self._log_det_scale() + self.dim * (LOG_PI + np.log(2.0))
        return NormalStatistics(-constant / 2, weighted, -precision / 2)

    def _location_and_scale(self, stats: NormalStatistics) -> tuple[Float[Array, "... d"], Float[Array, "... d d"]]:
        """Mean and scale matrix of the posterior, in the coordinates of the data."""
        factor = jnp.asarray(self._factor)
        if self.origin is None:
            mean, scale = stats.total / (self.kappa + stats.n)[..., None], self._posterior_scale(stats)
        else:
            average = self._average(stats)
            far = average - self._offset
            mean = average - (self.kappa / (self.kappa + stats.n))[..., None] * far
            spread = self._pull_weight(stats.n)[..., None, None] * far[..., :, None] * far[..., None, :]
            scale = self._scatter(stats, average) + spread
        loc = jnp.asarray(self.reference()) + jnp.einsum("ij,...j->...i", factor, mean)
        return loc, jnp.einsum("ij,...jk,lk->...il", factor, scale, factor)

    def elliptical(self, stats: NormalStatistics) -> Elliptical:
        """Location and scale matrix of the Student-t predictive."""
        kappa, df = jnp.asarray(self.kappa + stats.n), jnp.asarray(self.nu + stats.n - self.dim + 1)
        loc, scale = self._location_and_scale(stats)
        return Elliptical(df, loc, jnp.asarray(((kappa + 1) / (kappa * df))[..., None, None] * scale))

    def expected_normal(self, stats: NormalStatistics) -> ExpectedNormal:
        """Posterior mean, and Ψ / ν for posterior ν and Ψ."""
        loc, scale = self._location_and_scale(stats)
        return ExpectedNormal(loc, jnp.asarray(scale / (self.nu + stats.n)[..., None, None]))

    def with_covariances(self, rows: NormalStatistics, covariances: Float[Array, "... d d"]) -> NormalStatistics:
        """Adds the covariance matrices, in whitened coordinates, to the products."""
        half = whiten(self._factor, jnp.swapaxes(covariances, -1, -2))
        return rows._replace(outer=rows.outer + whiten(self._factor, jnp.swapaxes(half, -1, -2)))

    def predictive(self, stats: NormalStatistics) -> dist.MultivariateStudentT:
        """Multivariate Student-t predictive distribution."""
        kappa, df = self.kappa + stats.n, self.nu + stats.n - self.dim + 1
        posterior = self.posterior(stats)
        widen = jnp.sqrt((kappa + 1) / (kappa * df))
        return dist.MultivariateStudentT(df, posterior.loc, widen[..., None, None] * posterior.scale_tril)

    def posterior(self, stats: NormalStatistics) -> NormalInverseWishartParameters:
        """Normal-inverse-Wishart distribution of (d + 1, d) arrays: the mean, followed by the covariance."""
        factor = self._factor
        kappa = self.kappa + stats.n
        if self.origin is None:
            whitened, scale_tril = stats.total / kappa[..., None], jnp.linalg.cholesky(self._posterior_scale(stats))
        else:
            average = self._average(stats)
            far = average - self._offset
            whitened = average - (self.kappa / kappa)[..., None] * far
            scale_tril = cholesky_with_rank_one(self._scatter(stats, average), self._pull_weight(stats.n), far)
        mean, scale_tril = jnp.asarray(self.reference()) + jnp.einsum("ij,...j->...i", factor, whitened), factor @ scale_tril
        return NormalInverseWishartParameters(mean, kappa, self.nu + stats.n, scale_tril)

    def likelihood(self, parameters: Float[Array, "... p d"]) -> dist.MultivariateNormal:
        """Normal distribution with the mean (row 0) and covariance (rows 1..d) in the array."""
        return dist.MultivariateNormal(parameters[..., 0, :], covariance_matrix=parameters[..., 1:, :])


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

"""Rows of category counts."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.components.base import Component, PlainStatistics, Quadratic
from bnp_hier.components.checks import check_counts, check_positive, check_vector
from bnp_hier.components.distributed_tables import derived_from_all_rows
from bnp_hier.components.hints import Columns
from bnp_hier.components.learned import LearnedPrior, about, builder, given_or_learned
from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.native import Part
from bnp_hier.utils.arrays import as_matrix, first_cell, is_traced

__all__ = ["DirichletMultinomial", "GivenTotalMultinomial"]

BAG_COLUMNS = 30
"""Smallest number of columns of mostly zero counts that are treated as bags of words."""


class CountStatistics(NamedTuple):
    """Sums over rows.

    - **total** - counts per category, shape (d,).
    - **log_coefficient** - sum of the log multinomial coefficients of the rows, shape ().
    """

    total: Float[Array, "... d"]
    log_coefficient: Float[Array, "..."]


def _log_coefficient(x: Float[Array, "... d"]) -> Float[Array, "..."]:
    return gammaln(x.sum(-1) + 1) - gammaln(x + 1).sum(-1)


class GivenTotalMultinomial(dist.Distribution):
    """Multinomial conditional on the total of each row; drawing from it requires `total_count`."""

    arg_constraints = {"probs": constraints.simplex}
    support = constraints.independent(constraints.nonnegative_integer, 1)
    pytree_data_fields = ("probs",)
    pytree_aux_fields = ("total_count",)

    def __init__(self, probs: Float[Array, "... d"], total_count: int | None, *, validate_args: bool | None = None) -> None:
        self.probs, self.total_count = probs, total_count
        super().__init__(batch_shape=jnp.shape(probs)[:-1], event_shape=jnp.shape(probs)[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Float[Array, "... d"]:
        """Mean of rows with a total of `total_count`; NaN if it is None."""
        return jnp.asarray(self.probs) * (jnp.nan if self.total_count is None else self.total_count)

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... d"]) -> Float[Array, "..."]:
        """Log probability of the row given its total (nats)."""
        value = jnp.asarray(value, jnp.result_type(float))
        return _log_coefficient(value) + jnp.where(value > 0, value * jnp.log(self.probs), 0.0).sum(-1)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Num[Array, "... d"]:
        """Draw rows with a total of `total_count`.

        Raises
        ------
        ValueError
            If `total_count` is None.
        """
        if self.total_count is None:
            raise ValueError("DirichletMultinomial: specify total_count, the total of each row, to draw data")
        return dist.Multinomial(self.total_count, self.probs).sample(key, sample_shape)


class DirichletMultinomial(PlainStatistics, Component):
    """Rows of counts, conditional on their totals; category probabilities ~ Dirichlet(concentration).

    Parameters
    ----------
    concentration
        Pseudo-counts per category: a vector of length d, > 0.
    total_count
        Total of each row when data are drawn, which is not possible if it is None, the default; densities use the actual totals
        of the rows.

    Notes
    -----
    Heller & Ghahramani (2005), appendix B, including the multinomial coefficient of each row. The parameters of a cluster are
    its category probabilities, shape (d,). Missing counts are not supported, because the total of the row would be unknown. A
    row of zeros has density one; in indicators of a categorical column, it therefore represents a missing value.

    Examples
    --------
    >>> from bnp_hier import DirichletMultinomial
    >>> component = DirichletMultinomial(concentration=[1.0, 1.0, 1.0])
    >>> round(component.log_evidence([[3, 0, 1], [2, 1, 0]]), 3)
    -4.836
    """

    concentration: ArrayLike
    total_count: int | None = dataclasses.field(default=None, metadata={"static": True})

    def __post_init__(self) -> None:
        name = type(self).__name__
        d = check_vector(name, "concentration", self.concentration)
        check_positive(name, "concentration", self.concentration, d)
        if self.total_count is not None and (self.total_count != int(self.total_count) or self.total_count < 1):
            raise ValueError(f"{name}: total_count must be a whole number of at least 1, but it is {self.total_count}")

    @classmethod
    @derived_from_all_rows
    def from_data(cls, X: ArrayLike, *, learn: bool = True, strength: float | None = None) -> Any:
        """Build a prior from the proportions of the categories: concentration = strength × d × proportions.

        Proportions are smoothed by adding one count per category, and `total_count` is set to the median total of the rows.

        Parameters
        ----------
        X
            Counts, (n, d).
        learn
            True: return the component with a prior on `strength`, for use as `component` of a model: a site, log-normal with
            median 1, whose logarithm has standard deviation 1. False: return the component.
        strength
            Mean pseudo-count of a category, which is then not learned; 1 for `learn=False`.

        Returns
        -------
        component
            `LearnedPrior`, or the component if `learn` is False.

        Raises
        ------
        ValueError
            If a value is missing or is not a count.
        """
        total_count = None
        if not is_traced(X):
            X = as_matrix(X)
            check_counts(cls.__name__, X)
            if np.isnan(X).any():
                where = first_cell(np.isnan(X))
                raise ValueError(f"{cls.__name__} needs complete rows, but X has a missing value (NaN) at {where}")
            total_count = max(int(np.median(X.sum(1))), 1)
        total = (jnp.nansum(X, 0) if is_traced(X) else X.sum(0)) + 1.0  # type: ignore[union-attr]
        share = total / total.sum()
        if not learn:
            return _of_shares(cls, share, total_count, strength=1.0 if strength is None else strength)
        fixed, learned = given_or_learned({"strength": strength}, {"strength": about(1.0)})
        return LearnedPrior(cls, learned, partial(_of_shares, cls, share, total_count, **fixed), {"strength": [1.0, 10.0, 0.1]})

    part_for: ClassVar[tuple[str, ...]] = ("category",)

    @classmethod
    def suits(cls, columns: Columns) -> str | None:
        """Suits many columns of mostly zero counts, such as word counts."""
        X, d = columns.values, len(columns.kinds)
        counts, larger = columns.kinds.count("count"), columns.kinds.count("continuous")
        zeros = float((X == 0).mean())
        whole = not columns.has_missing and bool(((X >= 0) & (X == np.round(X))).all())
        # the counts of a few very frequent words may look continuous
        bag = whole and d >= BAG_COLUMNS and zeros > (0.5 if counts >= 0.1 * d else 0.9) and larger <= 0.02 * d
        if bag and "count" in columns.found:
            return f"{d} columns of counts, {zeros:.0%} of them 0, as is typical of word counts: rows differ in proportions"
        return None

    def prior_rows(self, X: Float[np.ndarray, "n d"]) -> dict[str, float]:
        """Weight of the prior of the category probabilities, in rows with the average total of X."""
        words = float(np.nansum(X)) / len(X)
        return {"the total concentration": float(np.sum(self.concentration)) / max(words, 1.0)}

    @property
    def dim(self) -> int:
        """Number of categories."""
        return np.shape(self.concentration)[-1]

    @property
    def support(self) -> Any:
        """Rows of counts."""
        return constraints.independent(constraints.nonnegative_integer, 1)

    def _validate_values(self, X: np.ndarray) -> None:
        check_counts(type(self).__name__, X)

    def suff_stats(self, X: Num[Array | np.ndarray, "... d"]) -> CountStatistics:
        """Counts and log multinomial coefficient for each row."""
        x = jnp.asarray(X, jnp.result_type(float))
        return CountStatistics(x, _log_coefficient(x))

    def log_marginal(self, stats: CountStatistics) -> Float[Array, "..."]:
        """Dirichlet-multinomial log marginal likelihood, including the multinomial coefficients (nats)."""
        a = jnp.asarray(self.concentration)
        return (
            stats.log_coefficient
            + gammaln(a.sum(-1))
            - gammaln(a.sum(-1) + stats.total.sum(-1))
            + (gammaln(a + stats.total) - gammaln(a)).sum(-1)
        )

    def cached_log_predictive(self, cache: CountStatistics, row: CountStatistics) -> Float[Array, "..."]:
        """Dirichlet-multinomial log probability of the row, with the counts of the cluster added to the prior (nats)."""
        a = self.concentration + cache.total
        cells = log_gamma_ratio(a, row.total).sum(-1)
        return row.log_coefficient + cells - log_gamma_ratio(a.sum(-1), row.total.sum(-1))

    def native(self) -> tuple[Part, ...]:
        """The native family "multinomial"."""
        return (Part("multinomial", tuple(range(self.dim)), (self.concentration,)),)

    def coordinates(self, X: Num[Array | np.ndarray, "... d"]) -> Float[Array, "... d"]:
        """The counts."""
        return self.suff_stats(X).total

    def row_quadratic(self, natural: CountStatistics) -> Quadratic:
        """Linear in the counts."""
        return Quadratic(jnp.zeros(natural.total.shape[:-1]), natural.total, jnp.zeros((*natural.total.shape, self.dim)))

    def natural_parameters(self, parameters: Float[Array, "... d"]) -> CountStatistics:
        """Log probabilities, and 1 for the log multinomial coefficient."""
        log_probability = jnp.log(jnp.maximum(parameters, jnp.finfo(parameters.dtype).tiny))
        return CountStatistics(log_probability, jnp.ones(parameters.shape[:-1], parameters.dtype))

    def posterior(self, stats: CountStatistics) -> dist.Dirichlet:
        """Dirichlet distribution of the category probabilities."""
        return dist.Dirichlet(self.concentration + stats.total)

    def likelihood(self, parameters: Float[Array, "... d"]) -> GivenTotalMultinomial:
        """Multinomial distribution conditional on the total of each row."""
        return GivenTotalMultinomial(parameters, self.total_count)


@builder
def _of_shares(
    family: type[DirichletMultinomial], share: ArrayLike, total_count: int | None, *, strength: ArrayLike
) -> DirichletMultinomial:
    return family(strength * np.shape(share)[0] * share, total_count=total_count)

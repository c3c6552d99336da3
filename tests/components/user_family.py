"""A conjugate family as a user would add it: one class, written with the public interface only."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from bnp_hier.components import Component


class WaitingTimes(NamedTuple):
    """Sums over rows.

    - **count** - number of rows, shape ().
    - **total** - Σ x per column, shape (d,).
    """

    count: Float[Array, "..."]
    total: Float[Array, "... d"]


class ExponentialGamma(Component):
    """Waiting times x > 0, columns independent; exponential rate ~ Gamma(a, b).

    Parameters
    ----------
    a, b
        Vectors of length d, > 0: shape and rate of the gamma prior of each column's rate.

    Notes
    -----
    The log marginal likelihood of N rows with column sums t is Σ_j [a log b − lgamma(a) + lgamma(a + N) − (a + N) log(b + t)].
    One cluster's parameters are its rates, shape (d,).
    """

    a: ArrayLike
    b: ArrayLike

    @property
    def dim(self) -> int:
        """Number of columns."""
        return np.shape(self.a)[-1]

    @property
    def support(self) -> constraints.Constraint:
        """Positive rows."""
        return constraints.independent(constraints.positive, 1)

    def _validate_values(self, X: np.ndarray) -> None:
        if (X <= 0).any():
            row, column = np.argwhere(X <= 0)[0]
            raise ValueError(f"waiting times must be positive, but X has {X[row, column]:g} at row {row}, column {column}")

    def suff_stats(self, X: Float[Array, "... d"]) -> WaitingTimes:
        """One row each."""
        x = jnp.asarray(X, jnp.result_type(float))
        return WaitingTimes(jnp.ones(x.shape[:-1], x.dtype), x)

    def log_marginal(self, stats: WaitingTimes) -> Float[Array, "..."]:
        """Gamma integral of each column (nats)."""
        a, b = jnp.asarray(self.a), jnp.asarray(self.b)
        n = stats.count[..., None]
        columns = gammaln(a + n) - gammaln(a) - a * jnp.log1p(stats.total / b) - n * jnp.log(b + stats.total)
        return columns.sum(-1)

    def posterior(self, stats: WaitingTimes) -> dist.Distribution:
        """Gamma over each column's rate."""
        return dist.Gamma(self.a + stats.count[..., None], self.b + stats.total).to_event(1)

    def likelihood(self, parameters: Float[Array, "... d"]) -> dist.Distribution:
        """Independent exponentials."""
        return dist.Exponential(parameters).to_event(1)

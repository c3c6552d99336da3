"""Partitions by a normalised generalised gamma process."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro.distributions import constraints

from bnp_hier.distributions.partition_prior import PartitionPrior
from bnp_hier.distributions.quadrature import log_integral
from bnp_hier.utils.arrays import is_traced

__all__ = ["NormalizedGeneralizedGamma"]


class NormalizedGeneralizedGamma(PartitionPrior):
    """Partition of `size` items under a normalised generalised gamma process.

    The process has the Lévy density β w^{−1−σ} e^{−w}/Γ(1 − σ). Gibbs type with
    V(n, k) = β^k/Γ(n) ∫ u^{n−1} (1 + u)^{kσ−n} exp{−β [(1 + u)^σ − 1]/σ} du (Lijoi, Mena & Prünster 2007). As σ → 0, it
    becomes a Dirichlet process with concentration β; σ = 1/2 is the normalised inverse Gaussian process.

    Parameters
    ----------
    size
        Number of items n.
    discount
        σ in [0, 1); larger values favour many small clusters beside few large ones.
    rate
        β > 0; larger values favour more clusters.
    max_clusters
        As in `PartitionPrior`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from bnp_hier import NormalizedGeneralizedGamma
    >>> NormalizedGeneralizedGamma(4, discount=0.5, rate=1.0).cluster_number_probabilities().round(3)
    array([0.   , 0.054, 0.221, 0.397, 0.329])
    """

    arg_constraints = {"discount": constraints.unit_interval, "rate": constraints.positive}
    pytree_data_fields = ("rate",)

    def __init__(
        self,
        size: int,
        discount: ArrayLike,
        rate: ArrayLike,
        max_clusters: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not is_traced(discount, rate):
            sigma, beta = np.asarray(discount), np.asarray(rate)
            if not ((sigma >= 0) & (sigma < 1)).all():
                raise ValueError(f"NormalizedGeneralizedGamma: discount must lie in [0, 1), but it is {sigma}")
            if not ((beta > 0) & np.isfinite(beta)).all():
                raise ValueError(f"NormalizedGeneralizedGamma: rate must be positive and finite, but it is {beta}")
        self.rate = rate
        batch = jnp.broadcast_shapes(jnp.shape(discount), jnp.shape(rate))
        super().__init__(size, discount, max_clusters, batch_shape=batch, validate_args=validate_args)

    def log_v(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log V(n, k), by quadrature over log u; see `PartitionPrior.log_v`."""
        shape = jnp.broadcast_shapes(jnp.shape(clusters), self.batch_shape)
        sigma, beta, k, count = (
            jnp.broadcast_to(jnp.asarray(value, jnp.result_type(float)), shape)
            for value in (self.discount, self.rate, clusters, n)
        )
        positive = jnp.where(sigma > 0, sigma, 1.0)

        def integrand(t: Array) -> Array:
            one_more = jax.nn.softplus(t)  # log(1 + u)
            exponent = jnp.where(sigma[None] > 0, jnp.expm1(positive[None] * one_more) / positive[None], one_more)
            return (k * sigma)[None] * one_more - count[None] * jax.nn.softplus(-t) - beta[None] * exponent

        log_v = k * jnp.log(beta) - gammaln(count) + log_integral(integrand, shape)
        return jnp.where(k <= count, log_v, -jnp.inf)

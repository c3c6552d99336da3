"""Dirichlet and Pitman-Yor processes whose concentration is integrated out."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpyro.distributions import biject_to

from bnp_hier.distributions.chinese_restaurant import log_v_of_pitman_yor, seat_all
from bnp_hier.distributions.partition_prior import PartitionPrior
from bnp_hier.distributions.quadrature import log_integral, nodes_around_mode
from bnp_hier.utils.arrays import is_traced

__all__ = ["IntegratedConcentration"]

FINE = 8193
"""Values of the concentration between which the density of a draw is linear."""


class IntegratedConcentration(PartitionPrior):
    """Partition of `size` items under a Dirichlet process whose concentration α has a prior and is integrated out.

    Gibbs type with V(n, k) = ∫ α^k Γ(α)/Γ(α + n) p(α) dα, and in the same way for a Pitman-Yor process, with its V(n, k | α).
    This is the marginal distribution of the partition in a model in which α is a site; `concentration_given` draws α given the
    number of clusters.

    Parameters
    ----------
    size
        Number of items n.
    concentration
        Prior of α: a continuous NumPyro distribution of one number above −δ, such as
        `bnp_hier.models.DEFAULT_CONCENTRATION`.
    discount
        δ in [0, 1); 0 is the Dirichlet process.
    max_clusters
        As in `PartitionPrior`.

    Raises
    ------
    ValueError
        If an argument is out of range, or the prior is not a distribution of one such number.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from bnp_hier import IntegratedConcentration
    >>> IntegratedConcentration(4, dist.Gamma(2.0, 4.0)).cluster_number_probabilities().round(3)
    array([0.   , 0.518, 0.356, 0.112, 0.015])
    """

    pytree_data_fields = ("concentration",)

    def __init__(
        self,
        size: int,
        concentration: dist.Distribution,
        discount: ArrayLike = 0.0,
        max_clusters: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        one_number = isinstance(concentration, dist.Distribution) and not (
            concentration.batch_shape or concentration.event_shape
        )
        if not one_number or concentration.support is None or concentration.support.is_discrete:
            raise ValueError(
                f"the prior of the concentration must be a continuous distribution of one number, not {concentration}"
            )
        if not is_traced(discount) and not (np.ndim(discount) == 0 and 0 <= np.asarray(discount) < 1):
            raise ValueError(f"IntegratedConcentration: discount must be a number in [0, 1), but it is {discount}")
        self.concentration = concentration
        super().__init__(size, discount, max_clusters, validate_args=validate_args)
        if not is_traced(concentration, discount):
            with jax.ensure_compile_time_eval():
                lowest = float(biject_to(concentration.support)(jnp.asarray(-40.0)))
            if not lowest > -float(np.asarray(discount)):
                bound = 0.0 - float(np.asarray(discount))
                raise ValueError(
                    f"concentration must be a number above {bound:g}, but its prior has support {concentration.support}"
                )

    def _integrand(self, n: ArrayLike, clusters: ArrayLike) -> Callable[[Array], Array]:
        """Log of the integrand on the scale on which the prior is unconstrained."""
        transform = biject_to(self.concentration.support)

        def log_density(t: Array) -> Array:
            alpha = transform(t)
            prior = self.concentration.log_prob(alpha) + transform.log_abs_det_jacobian(t, alpha)
            return prior + log_v_of_pitman_yor(n, clusters, alpha, self.discount)

        return log_density

    def log_v(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log V(n, k), by quadrature; see `PartitionPrior.log_v`."""
        k = jnp.asarray(clusters, jnp.result_type(float))
        count = jnp.asarray(n, k.dtype)
        return jnp.where(k <= count, log_integral(self._integrand(n, jnp.minimum(k, count)[None]), k.shape), -jnp.inf)

    def concentration_given(self, key: Array, clusters: int, n: int | None = None) -> Float[Array, ""]:
        """Draw the concentration given that n items, or `size`, are in so many clusters."""
        log_density = self._integrand(n or self.size, jnp.asarray(clusters))
        t = nodes_around_mode(log_density, (), FINE)
        density = jnp.exp(log_density(t) - log_density(t).max())
        upto = jnp.concatenate([jnp.zeros(1, t.dtype), jnp.cumsum(density[1:] + density[:-1])])
        return biject_to(self.concentration.support)(jnp.interp(jax.random.uniform(key, dtype=t.dtype) * upto[-1], upto, t))

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Int[Array, "... n"]:
        """Draw partitions: a concentration, and one item at a time given it."""
        assert key is not None
        key_concentration, key_seats = jax.random.split(key)
        alpha = self.concentration.sample(key_concentration, sample_shape)
        return seat_all(key_seats, alpha, jnp.full_like(alpha, self.discount), self.size, self._most)

"""Partitions by an unknown number of components with Dirichlet weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints

from bnp_hier.distributions.finite_dirichlet import log_v_of_components, refuse_weight, seat_components
from bnp_hier.distributions.partition_prior import PartitionPrior
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["MixtureOfFiniteMixtures"]

MOST_TERMS = 4096
"""Numbers of empty components beyond which the sum over the number of components ends, whatever its prior."""

UNSEEN = 1e-15
"""Prior probability of larger numbers of components that is left out."""


class MixtureOfFiniteMixtures(PartitionPrior):
    """Partition of `size` items by K components with Dirichlet(γ, ..., γ) weights, where K is unknown and summed out.

    Gibbs type with σ = −γ and V(n, k) = Σ_{K ≥ k} p(K) K!/(K − k)! γ^k / (γK)_n (Miller & Harrison 2018). Unlike under a
    Dirichlet process, the number of clusters does not grow with n beyond the number of components.

    Parameters
    ----------
    size
        Number of items n.
    components
        Prior of K − 1, a NumPyro distribution on 0, 1, 2, ..., such as ``Poisson(2.0)`` or ``Geometric(0.2)``.
    weight
        γ > 0: the Dirichlet parameter of each component; smaller values leave more components empty.
    max_clusters
        As in `PartitionPrior`.

    Raises
    ------
    ValueError
        If an argument is out of range, or `components` is not a distribution of one whole number that may be 0.

    Notes
    -----
    The sum ends where the prior probability of more components is below 1e-15, after 4,096 terms at most.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from bnp_hier import MixtureOfFiniteMixtures
    >>> MixtureOfFiniteMixtures(100, dist.Poisson(2.0)).cluster_number_probabilities()[:5].round(3)
    array([0.   , 0.141, 0.282, 0.276, 0.176])
    """

    arg_constraints = {"weight": constraints.positive}
    pytree_data_fields = ("components", "weight")
    pytree_aux_fields = ("terms",)

    def __init__(
        self,
        size: int,
        components: dist.Distribution,
        weight: ArrayLike = 1.0,
        max_clusters: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        number = isinstance(components, dist.Distribution) and not components.event_shape
        if not number or components.support is None or not components.support.is_discrete:
            raise ValueError(
                "MixtureOfFiniteMixtures: components must be a NumPyro distribution on 0, 1, 2, ..., the prior of the number "
                f"of components minus one, but it is {components!r}"
            )
        refuse_weight("MixtureOfFiniteMixtures", weight)
        self.components, self.weight = components, weight
        batch = jnp.broadcast_shapes(components.batch_shape, jnp.shape(weight))
        discount = -jnp.asarray(weight) if is_traced(weight) else -np.asarray(weight, np.float64)
        super().__init__(size, discount, max_clusters, batch_shape=batch, validate_args=validate_args)
        self.terms = self._number_of_terms()
        if self.terms == 0:
            raise ValueError(f"MixtureOfFiniteMixtures: components has no probability at 0, 1, 2, ...: {components!r}")

    def _number_of_terms(self) -> int:
        if is_traced(self.components):
            return MOST_TERMS
        with double_precision(), jax.ensure_compile_time_eval():
            numbers = np.arange(MOST_TERMS)
            shape = (-1, *[1] * len(self.components.batch_shape))
            probabilities = np.exp(np.asarray(self._log_number(numbers.reshape(shape)))).reshape(MOST_TERMS, -1)
        rest = np.cumsum(probabilities[::-1], axis=0)[::-1].max(1)
        return int((rest > UNSEEN).sum())

    def _log_number(self, numbers: Array | np.ndarray) -> Float[Array, "..."]:
        """Log p(K) at K − 1; −∞ outside the support."""
        support = self.components.support
        assert support is not None
        inside = jnp.asarray(support(jnp.asarray(numbers)))
        log_prob = self.components.log_prob(jnp.where(inside, numbers, support.feasible_like(jnp.zeros((), int))))
        return jnp.where(inside, log_prob, -jnp.inf)

    def _log_terms(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "t ..."]:
        """Terms of the sum, for K = 1, 2, ... along the first axis."""
        shape = jnp.broadcast_shapes(jnp.shape(clusters), self.batch_shape)
        K = jnp.arange(1, self.terms + 1).reshape(-1, *[1] * len(shape))
        return self._log_number(K - 1) + log_v_of_components(n, jnp.broadcast_to(clusters, shape)[None], K, self.weight)

    def log_v(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log V(n, k); see `PartitionPrior.log_v`."""
        terms = self._log_terms(n, clusters)
        # gradients of the log of an empty sum are undefined
        possible = terms.max(0) > -jnp.inf
        return jnp.where(possible, logsumexp(jnp.where(possible, terms, 0.0), axis=0), -jnp.inf)

    def components_given(self, key: Array, clusters: int, n: int | None = None) -> Int[Array, ""]:
        """Draw the number of components K given that n items, or `size`, are in so many clusters."""
        return 1 + jax.random.categorical(key, self._log_terms(n or self.size, jnp.asarray(clusters)), axis=0)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Int[Array, "... n"]:
        """Draw partitions: the number of components, and one item at a time given it."""
        assert key is not None
        key_number, key_seats = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        numbers = 1 + self.components.expand(self.batch_shape).sample(key_number, sample_shape)
        return seat_components(key_seats, numbers, self.weight, shape, self)

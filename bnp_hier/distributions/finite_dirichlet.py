"""Partitions by finitely many components with Dirichlet weights."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints

from bnp_hier.components.special import log_gamma_ratio
from bnp_hier.distributions.chinese_restaurant import seat_all
from bnp_hier.distributions.partition_prior import PartitionPrior
from bnp_hier.utils.arrays import is_traced

__all__ = ["FiniteDirichlet", "log_v_of_components", "refuse_weight", "seat_components"]


def log_v_of_components(n: ArrayLike, clusters: Any, components: Any, weight: Any) -> Float[Array, "..."]:
    """Log V(n, k) = log [K!/(K − k)! γ^k / (γK)_n] for K components with weight γ each (nats), −∞ where k > K."""
    K, gamma = jnp.asarray(components, jnp.result_type(float)), jnp.asarray(weight, jnp.result_type(float))
    k = jnp.asarray(clusters, K.dtype)
    possible = k <= K
    chosen = log_gamma_ratio(jnp.where(possible, K - k, 0.0) + 1.0, jnp.where(possible, k, 0.0))
    return jnp.where(possible, chosen + k * jnp.log(gamma) - log_gamma_ratio(gamma * K, jnp.asarray(n, K.dtype)), -jnp.inf)


def refuse_weight(name: str, weight: ArrayLike) -> None:
    """Raise `ValueError` unless the weight of a component is a positive finite number."""
    if not is_traced(weight) and not ((np.asarray(weight) > 0) & np.isfinite(np.asarray(weight))).all():
        raise ValueError(f"{name}: weight must be positive and finite, but it is {weight}")


class FiniteDirichlet(PartitionPrior):
    """Partition of `size` items by K components whose weights are Dirichlet(γ, ..., γ); components may stay empty.

    Gibbs type with σ = −γ and V(n, k) = K!/(K − k)! γ^k / (γK)_n, 0 for more than K clusters.

    Parameters
    ----------
    size
        Number of items n.
    components
        Number of components K ≥ 1.
    weight
        γ > 0: the Dirichlet parameter of each component; smaller values leave more components empty.
    max_clusters
        As in `PartitionPrior`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from bnp_hier import FiniteDirichlet
    >>> FiniteDirichlet(4, components=2).cluster_number_probabilities().round(3)
    array([0. , 0.4, 0.6, 0. , 0. ])
    """

    arg_constraints = {"components": constraints.positive, "weight": constraints.positive}
    pytree_data_fields = ("components", "weight")

    def __init__(
        self,
        size: int,
        components: ArrayLike,
        weight: ArrayLike = 1.0,
        max_clusters: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not is_traced(components):
            K = np.asarray(components)
            if not ((K >= 1) & (K == np.floor(K)) & np.isfinite(K)).all():
                raise ValueError(f"FiniteDirichlet: components must be whole numbers of at least 1, but they are {components}")
        refuse_weight("FiniteDirichlet", weight)
        self.components, self.weight = components, weight
        batch = jnp.broadcast_shapes(jnp.shape(components), jnp.shape(weight))
        discount = -jnp.asarray(weight) if is_traced(weight) else -np.asarray(weight, np.float64)
        super().__init__(size, discount, max_clusters, batch_shape=batch, validate_args=validate_args)

    def log_v(self, n: ArrayLike, clusters: ArrayLike) -> Float[Array, "..."]:
        """Log V(n, k); see `PartitionPrior.log_v`."""
        return log_v_of_components(n, clusters, self.components, self.weight)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Int[Array, "... n"]:
        """Draw partitions by seating one item at a time."""
        assert key is not None
        shape = (*sample_shape, *self.batch_shape)
        return seat_components(key, self.components, self.weight, shape, self)


def seat_components(
    key: Array, components: ArrayLike, weight: ArrayLike, shape: tuple[int, ...], prior: PartitionPrior
) -> Int[Array, "... n"]:
    """Draw one partition per entry of `shape`, by seating as in a Pitman-Yor process with α = γK and δ = −γ."""
    K = jnp.broadcast_to(jnp.asarray(components, float), shape)
    gamma = jnp.broadcast_to(jnp.asarray(weight, float), shape)
    most = prior.size if prior.max_clusters is None else prior.max_clusters
    return seat_all(key, gamma * K, -gamma, prior.size, jnp.minimum(K, most).astype(int))

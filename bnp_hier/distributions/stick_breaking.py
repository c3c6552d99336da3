"""Truncated stick-breaking weights of a Dirichlet process."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from bnp_hier.utils.arrays import is_traced

__all__ = ["StickBreaking"]


class StickBreaking(dist.Distribution):
    """Distribution of the truncated stick-breaking weights of a Dirichlet process.

    The weights are w_k = β_k Π_{j<k} (1 − β_j), with β_k ~ Beta(1, concentration) for k < truncation and β_truncation = 1.

    Parameters
    ----------
    concentration
        α > 0 of the Dirichlet process.
    truncation
        Number of weights K ≥ 1; the last weight is the whole remainder of the stick.

    Raises
    ------
    ValueError
        If the concentration is not finite and positive, or the truncation is not a whole number of at least 1.

    Notes
    -----
    The construction is that of Sethuraman (1994), truncated as by Ishwaran & James (2001).

    `log_prob` is the log density of the first K − 1 weights on the simplex: the product of the Beta densities, divided by
    Π_{k<K} (stick remaining before piece k).

    Examples
    --------
    >>> import jax
    >>> from bnp_hier import StickBreaking
    >>> weights = StickBreaking(1.0, truncation=5).sample(jax.random.key(0))
    >>> weights.shape, round(float(weights.sum()), 4)
    ((5,), 1.0)
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.simplex
    pytree_data_fields = ("concentration",)
    pytree_aux_fields = ("truncation",)
    reparametrized_params = ["concentration"]

    def __init__(self, concentration: ArrayLike, truncation: int, *, validate_args: bool | None = None) -> None:
        if truncation != int(truncation) or truncation < 1:
            raise ValueError(f"StickBreaking: truncation must be a whole number of at least 1, but it is {truncation}")
        if not is_traced(concentration) and not _finite_and_positive(concentration):
            raise ValueError(f"StickBreaking: concentration must be finite and positive, but it is {concentration}")
        self.concentration, self.truncation = concentration, int(truncation)
        batch = jnp.shape(concentration)
        super().__init__(batch_shape=batch, event_shape=(self.truncation,), validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... k"]) -> Float[Array, "..."]:
        """Log density of the weights (nats)."""
        alpha = jnp.asarray(self.concentration)[..., None]
        # stick remaining after each piece, summed from the small end for accuracy
        left = jnp.flip(jnp.cumsum(jnp.flip(value, -1), axis=-1), -1)[..., 1:]
        left = jnp.log(jnp.maximum(left, jnp.finfo(value.dtype).tiny))
        # Σ_k [log α + (α − 1) log(1 − β_k) − log(left before k)], and log(1 − β_k) = log(left after / left before)
        before = jnp.concatenate([jnp.zeros_like(left[..., :1]), left[..., :-1]], axis=-1)
        return (jnp.log(alpha) + (alpha - 1.0) * (left - before) - before).sum(-1)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... k"]:
        """Draw weights from independent Beta variates."""
        assert key is not None
        shape = (*sample_shape, *self.batch_shape, self.truncation - 1)
        alpha = jnp.asarray(self.concentration, jnp.result_type(float))[..., None]
        log_left = jnp.log(jax.random.uniform(key, shape, minval=jnp.finfo(alpha.dtype).tiny)) / alpha  # log(1 − β)
        after = jnp.cumsum(log_left, axis=-1)
        before = jnp.concatenate([jnp.zeros_like(after[..., :1]), after[..., :-1]], axis=-1)
        pieces = jnp.exp(before) * -jnp.expm1(log_left)
        return jnp.concatenate([pieces, jnp.exp(after[..., -1:])], axis=-1)


def _finite_and_positive(value: ArrayLike) -> bool:
    array = np.asarray(value)
    return bool((np.isfinite(array) & (array > 0)).all())

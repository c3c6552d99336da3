"""Cluster parameters with several parts, stored in one array so that they can be a single NumPyro site."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import Transform
from numpyro.distributions.util import validate_sample

__all__ = [
    "Blocks",
    "BlocksTransform",
    "IndependentBlocks",
    "NormalInverseGammaParameters",
    "NormalInverseWishartParameters",
]


class Blocks(constraints.Constraint):
    """Constraint on an array whose flattened entries are consecutive blocks, each with its own constraint and shape."""

    def __init__(self, parts: tuple[tuple[constraints.Constraint, tuple[int, ...]], ...], shape: tuple[int, ...]) -> None:
        self.parts, self.shape = tuple(parts), tuple(shape)
        self.sizes = tuple(math.prod(part_shape) for _, part_shape in self.parts)

    @property
    def event_dim(self) -> int:
        """Number of dimensions of one parameter array."""
        return len(self.shape)

    def split(self, value: Float[Array, "..."]) -> list[Float[Array, "..."]]:
        """Split an array into its blocks, each with its own shape; batch dimensions are kept."""
        batch = jnp.shape(value)[: jnp.ndim(value) - len(self.shape)]
        flat = jnp.reshape(value, (*batch, sum(self.sizes)))
        out, start = [], 0
        for size, (_, shape) in zip(self.sizes, self.parts, strict=True):
            out.append(flat[..., start : start + size].reshape(*batch, *shape))
            start += size
        return out

    def join(self, blocks: list[Float[Array, "..."]]) -> Float[Array, "..."]:
        """Join blocks into one array, the inverse of `split`."""
        flats = []
        for block, (_, shape) in zip(blocks, self.parts, strict=True):
            batch = jnp.shape(block)[: jnp.ndim(block) - len(shape)]
            flats.append(jnp.reshape(block, (*batch, math.prod(shape))))
        flat = jnp.concatenate(flats, axis=-1)
        return flat.reshape(*flat.shape[:-1], *self.shape)

    def __call__(self, value: Float[Array, "..."]) -> Any:
        """Whether every block satisfies its constraint."""
        result: Any = True
        for block, (constraint, shape) in zip(self.split(value), self.parts, strict=True):
            inside = jnp.asarray(constraint(block))
            inside = inside.all(axis=tuple(range(-(len(shape) - constraint.event_dim), 0)))
            result = result & inside
        return result

    def feasible_like(self, prototype: Float[Array, "..."]) -> Float[Array, "..."]:
        """A feasible array with the shape of the prototype."""
        blocks = self.split(prototype)
        return self.join([c.feasible_like(block) for (c, _), block in zip(self.parts, blocks, strict=True)])

    def tree_flatten(self) -> tuple[tuple[()], tuple[tuple[()], dict[str, Any]]]:
        """No leaves: everything is static."""
        return (), ((), {"parts": self.parts, "shape": self.shape, "sizes": self.sizes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocks) and self.parts == other.parts and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((tuple(type(c) for c, _ in self.parts), self.shape))


class BlocksTransform(Transform):
    """Bijection from an unconstrained vector to `Blocks`."""

    domain = constraints.real_vector

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.transforms = [biject_to(constraint) for constraint, _ in blocks.parts]
        self.inner_shapes = [t.inverse_shape(shape) for t, (_, shape) in zip(self.transforms, blocks.parts, strict=True)]
        self.inner = Blocks(
            tuple((constraints.real, shape) for shape in self.inner_shapes),
            (sum(math.prod(shape) for shape in self.inner_shapes),),
        )

    @property
    def codomain(self) -> constraints.Constraint:
        """The constraint on the blocks."""
        return self.blocks

    def __call__(self, x: Float[Array, "... p"]) -> Float[Array, "..."]:
        """Map an unconstrained vector to a constrained array."""
        return self.blocks.join([t(part) for t, part in zip(self.transforms, self.inner.split(x), strict=True)])

    def _inverse(self, y: Float[Array, "..."]) -> Float[Array, "... p"]:
        return self.inner.join([t.inv(part) for t, part in zip(self.transforms, self.blocks.split(y), strict=True)])

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Float[Array, "..."]:
        """Sum of the log Jacobian determinants of the blocks."""
        total: Any = 0.0
        parts = zip(self.transforms, self.inner.split(x), self.blocks.split(y), self.inner_shapes, strict=True)
        for transform, part_x, part_y, shape in parts:
            term = transform.log_abs_det_jacobian(part_x, part_y)
            total = total + term.sum(axis=tuple(range(-(len(shape) - transform.domain.event_dim), 0)))
        return total

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the constrained array."""
        return (*shape[:-1], *self.blocks.shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the unconstrained vector."""
        return (*shape[: len(shape) - len(self.blocks.shape)], *self.inner.shape)

    def tree_flatten(self) -> tuple[tuple[()], tuple[tuple[()], dict[str, Any]]]:
        """No leaves: everything is static."""
        return (), ((), dict(self.__dict__))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlocksTransform) and self.blocks == other.blocks


@biject_to.register(Blocks)
def _biject_to_blocks(constraint: Blocks) -> BlocksTransform:
    return BlocksTransform(constraint)


class NormalInverseWishartParameters(dist.Distribution):
    """Covariance Σ ~ InverseWishart(nu, scale), mean given Σ ~ N(loc, Σ/kappa), stored as one (d + 1, d) array.

    Row 0 is the mean and rows 1..d are the covariance. `scale_tril` is the Cholesky factor of the scale matrix.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "kappa": constraints.positive,
        "nu": constraints.positive,
        "scale_tril": constraints.lower_cholesky,
    }
    pytree_data_fields = ("loc", "kappa", "nu", "scale_tril")
    reparametrized_params: list[str] = []

    def __init__(
        self,
        loc: ArrayLike,
        kappa: ArrayLike,
        nu: ArrayLike,
        scale_tril: ArrayLike,
        *,
        validate_args: bool | None = None,
    ) -> None:
        dim = jnp.shape(loc)[-1]
        batch = jnp.broadcast_shapes(jnp.shape(loc)[:-1], jnp.shape(kappa), jnp.shape(nu), jnp.shape(scale_tril)[:-2])
        self.loc = jnp.broadcast_to(loc, (*batch, dim))
        self.kappa, self.nu = jnp.broadcast_to(kappa, batch), jnp.broadcast_to(nu, batch)
        self.scale_tril = jnp.broadcast_to(scale_tril, (*batch, dim, dim))
        super().__init__(batch_shape=batch, event_shape=(dim + 1, dim), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=2)
    def support(self) -> constraints.Constraint:
        """A real mean and a positive-definite covariance."""
        d = self.event_shape[-1]
        return Blocks(((constraints.real, (d,)), (constraints.positive_definite, (d, d))), (d + 1, d))

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... p d"]) -> Float[Array, "..."]:
        """Joint log density of mean and covariance (nats)."""
        mean, covariance = value[..., 0, :], value[..., 1:, :]
        log_covariance = dist.InverseWishart(self.nu, scale_tril=self.scale_tril).log_prob(covariance)
        given = dist.MultivariateNormal(self.loc, covariance / self.kappa[..., None, None])
        return log_covariance + given.log_prob(mean)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... p d"]:
        """Draw the covariance, then the mean given the covariance."""
        assert key is not None
        key_covariance, key_mean = jax.random.split(key)
        covariance = dist.InverseWishart(self.nu, scale_tril=self.scale_tril).sample(key_covariance, sample_shape)
        mean = dist.MultivariateNormal(self.loc, covariance / self.kappa[..., None, None]).sample(key_mean)
        return jnp.concatenate([mean[..., None, :], covariance], axis=-2)


class NormalInverseGammaParameters(dist.Distribution):
    """Per column, variance ~ InverseGamma(concentration, rate), mean given variance ~ N(loc, variance/kappa).

    Stored as one (2, d) array: row 0 contains the means and row 1 the variances.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "kappa": constraints.independent(constraints.positive, 1),
        "concentration": constraints.independent(constraints.positive, 1),
        "rate": constraints.independent(constraints.positive, 1),
    }
    pytree_data_fields = ("loc", "kappa", "concentration", "rate")
    reparametrized_params: list[str] = []

    def __init__(
        self,
        loc: ArrayLike,
        kappa: ArrayLike,
        concentration: ArrayLike,
        rate: ArrayLike,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.kappa, self.concentration, self.rate = jnp.broadcast_arrays(loc, kappa, concentration, rate)
        full = jnp.shape(self.loc)
        super().__init__(batch_shape=full[:-1], event_shape=(2, full[-1]), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=2)
    def support(self) -> constraints.Constraint:
        """Real means and positive variances."""
        d = self.event_shape[-1]
        return Blocks(((constraints.real, (d,)), (constraints.positive, (d,))), (2, d))

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... 2 d"]) -> Float[Array, "..."]:
        """Joint log density of means and variances (nats)."""
        mean, variance = value[..., 0, :], value[..., 1, :]
        log_variance = dist.InverseGamma(self.concentration, self.rate).log_prob(variance)
        given = dist.Normal(self.loc, jnp.sqrt(variance / self.kappa))
        return (log_variance + given.log_prob(mean)).sum(-1)

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... 2 d"]:
        """Draw the variances, then the means given the variances."""
        assert key is not None
        key_variance, key_mean = jax.random.split(key)
        variance = dist.InverseGamma(self.concentration, self.rate).sample(key_variance, sample_shape)
        mean = dist.Normal(self.loc, jnp.sqrt(variance / self.kappa)).sample(key_mean)
        return jnp.stack([mean, variance], axis=-2)


class IndependentBlocks(dist.Distribution):
    """Independent parameter arrays of several components, flattened and concatenated into one vector."""

    pytree_data_fields = ("parts",)

    def __init__(self, parts: tuple[dist.Distribution, ...], *, validate_args: bool | None = None) -> None:
        self.parts = tuple(parts)
        batch = jnp.broadcast_shapes(*(part.batch_shape for part in self.parts))
        size = sum(math.prod(part.event_shape) for part in self.parts)
        super().__init__(batch_shape=batch, event_shape=(size,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> Blocks:
        """The supports of the parts as consecutive blocks."""
        return Blocks(tuple((part.support, part.event_shape) for part in self.parts), self.event_shape)

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... p"]) -> Float[Array, "..."]:
        """Sum of the log densities of the parts (nats)."""
        blocks = self.support.split(value)
        return sum(part.log_prob(block) for part, block in zip(self.parts, blocks, strict=True))

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... p"]:
        """Draw each part independently."""
        assert key is not None
        keys = jax.random.split(key, len(self.parts))
        shape = (*sample_shape, *self.batch_shape)
        draws = [
            jnp.broadcast_to(part.sample(k, sample_shape), (*shape, *part.event_shape))
            for part, k in zip(self.parts, keys, strict=True)
        ]
        return self.support.join(draws)

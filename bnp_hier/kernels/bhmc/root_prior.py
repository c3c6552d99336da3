"""The prior of the components at the root of a tree: finitely many, or those of a Dirichlet process."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

__all__ = ["RootPrior"]


class RootPrior(NamedTuple):
    """Of K components Dir(γ0/K, ..., γ0/K); or K − 1 of infinitely many, and last what is left for all others.

    - **concentration** - γ0.
    - **components** - K.
    - **infinite** - which of the two.
    """

    concentration: Float[Array, ""]
    components: int
    infinite: bool

    @property
    def shares(self) -> Float[Array, " k"]:
        """Parameters of the Dirichlet distribution of the proportions before any customers come."""
        if self.infinite:  # components without customers are part of the last
            return jnp.zeros(self.components).at[-1].set(self.concentration)
        return jnp.full(self.components, self.concentration / self.components)

    @property
    def share(self) -> Float[Array, ""]:
        """That of one component; of infinitely many, of one with customers."""
        return jnp.zeros(()) if self.infinite else jnp.asarray(self.concentration / self.components)

    @property
    def usable(self) -> Bool[Array, " k"]:
        """Which numbers a component may have."""
        return jnp.arange(self.components) < self.components - self.infinite

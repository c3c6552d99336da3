"""The prior of the component proportions at the root of a tree: finitely many components, or those of a Dirichlet process."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

__all__ = ["RootPrior"]


class RootPrior(NamedTuple):
    """Dir(γ0/K, ..., γ0/K) for K components; or K − 1 of infinitely many, followed by the total of all others.

    - **concentration** - γ0.
    - **components** - K.
    - **infinite** - whether there are infinitely many components.
    """

    concentration: Float[Array, ""]
    components: int
    infinite: bool

    @property
    def shares(self) -> Float[Array, " k"]:
        """Parameters of the Dirichlet distribution of the proportions without any customers."""
        if self.infinite:  # components without customers are part of the last
            return jnp.zeros(self.components).at[-1].set(self.concentration)
        return jnp.full(self.components, self.concentration / self.components)

    @property
    def share(self) -> Float[Array, ""]:
        """The Dirichlet parameter of one component; with infinitely many, that of a component with customers."""
        return jnp.zeros(()) if self.infinite else jnp.asarray(self.concentration / self.components)

    @property
    def usable(self) -> Bool[Array, " k"]:
        """Which of the K numbers can be the label of a component."""
        return jnp.arange(self.components) < self.components - self.infinite

"""JAX keys and NumPy generators from a `random_state`."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Array
from numpyro.util import is_prng_key

__all__ = ["random_generator", "random_generators", "random_key"]


def random_key(random_state: int | Array) -> Array:
    """Convert a whole number or JAX key to a JAX key.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if isinstance(random_state, int | np.integer):
        return jax.random.key(int(random_state))
    if is_prng_key(random_state):
        return random_state
    raise TypeError(f"random_state must be a whole number or a JAX random key, but it is {type(random_state).__name__}")


def random_generator(random_state: int | Array) -> np.random.Generator:
    """Return a NumPy generator seeded by a whole number or a JAX key.

    Searches that run on the host use it, because JAX compiles a program for every shape of random numbers.

    Raises
    ------
    TypeError
        If `random_state` is neither.
    """
    if isinstance(random_state, int | np.integer):
        return np.random.default_rng(int(random_state) % 2**64)
    return np.random.default_rng(np.asarray(jax.random.key_data(random_key(random_state))))


def random_generators(random_state: int | Array) -> list[np.random.Generator]:
    """Return two NumPy generators: one for drawing rows from the data and one for seeding."""
    return random_generator(random_state).spawn(2)

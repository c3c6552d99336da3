"""Summaries of cluster sizes."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

__all__ = ["size_summaries"]


def size_summaries(counts: Int[Array, " k"]) -> tuple[Int[Array, ""], Int[Array, ""], Float[Array, ""]]:
    """Number of clusters, size of the largest, and entropy of the cluster shares (nats); empty clusters do not count."""
    sizes = counts.astype(float)
    shares = sizes / sizes.sum()
    entropy = -jnp.where(shares > 0, shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), 0.0).sum()
    return (counts > 0).sum(), counts.max(), entropy

"""Moves of whole tables between components, with the proportions of all nodes integrated out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from bnp_hier.allocation import draw_index
from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.kernels.root_prior import RootPrior
from bnp_hier.kernels.sequential_allocation import divide

__all__ = ["relabel_tables", "split_merge_components"]


def relabel_tables(
    log_likelihood: Float[Array, "n k"],
    group: Int[Array, " n"],
    labels: Int[Array, " n"],
    shares: Float[Array, "n k"],
    key: Array,
) -> Int[Array, " n"]:
    """Draw the component of every table from its conditional given who sits there.

    Parameters
    ----------
    log_likelihood
        Log density of each item under each component (nats).
    group
        For every item the one that stands for its table.
    labels
        Components of the items.
    shares
        Proportions at the parent of the node that the table is of, for every item that stands for a table.
    """
    n, components = log_likelihood.shape
    logs = jax.ops.segment_sum(log_likelihood, group, n) + jnp.log(shares)
    weights = jnp.exp(logs - logs.max(1, keepdims=True))
    upto = jnp.cumsum(weights, axis=1)
    target = jax.random.uniform(key, (n, 1), weights.dtype) * upto[:, -1:]
    drawn = jnp.minimum((upto <= target).sum(1), components - 1).astype(labels.dtype)
    # where every density underflows nothing is known: the table stays as it is
    return jnp.where(jnp.isfinite(logs.max(1)), drawn, labels)[group]


def split_merge_components(
    component: Component,
    rows: Statistics,
    labels: Int[Array, " n"],
    group: Int[Array, " n"],
    prior: RootPrior,
    count: int,
    key: Array,
) -> tuple[Int[Array, " n"], Int[Array, ""]]:
    """Split one component in two, or merge two, the customers of the root as units: so many attempts.

    A customer of the root is a group of items that share a component whatever it is. Two of them are drawn: of one component,
    they are split into it and a random empty one, the others allocated one by one; of two components, these are merged.

    Parameters
    ----------
    component, rows
        The component, and the items' sufficient statistics.
    labels, group
        Components of the items, and for each the one that stands for its customer of the root.
    prior
        Of the components at the root.
    count
        Attempts.
    key
        Random key.

    Returns
    -------
    labels, accepted
        New components, and how many attempts were accepted.
    """
    n = labels.shape[0]
    heads = group == jnp.arange(n)
    number = heads.sum()
    listed = jnp.argsort(~heads, stable=True)
    customers, share = heads.astype(float), prior.share
    units = cluster_statistics(rows, group, n), customers

    log_marginal = component.log_marginal_up_to(n)  # what clusters share is computed once

    def score(group: tuple[Statistics, Array]) -> Array:
        stats, customers = group
        return log_marginal(stats) + gammaln(share + customers)

    def attempt(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        labels, accepted, key = state
        key, key_anchors, key_divide = jax.random.split(key, 3)
        u = jax.random.uniform(key_anchors, (4,), customers.dtype)
        first = jnp.minimum((u[0] * number).astype(int), number - 1)
        shift = 1 + jnp.minimum((u[1] * (number - 1)).astype(int), number - 2)
        anchors = listed[jnp.stack([first, (first + shift) % number])]
        slot = labels[anchors]
        splits = slot[0] == slot[1]
        member = heads & ((labels == slot[0]) | (labels == slot[1]))
        division = divide(score, units, member, anchors, (labels == slot[1]).astype(int), splits, key_divide)
        empty = (cluster_counts(labels, prior.components) == 0) & prior.usable
        choices = empty.sum() + ~splits  # empty components where the two are one
        log_ratio = division.log_ratio + prior.log_opening(choices)
        free = draw_index(empty.astype(customers.dtype), u[3])
        divided = jnp.where(division.sides == 1, free, labels)
        merged = jnp.where(member, slot[0], labels)
        proposal = jnp.where(splits, divided, merged).astype(labels.dtype)[group]
        accept = (number > 1) & (~splits | (choices > 0)) & (jnp.log(u[2]) < jnp.where(splits, log_ratio, -log_ratio))
        return jnp.where(accept, proposal, labels), accepted + accept, key

    moved, accepted, _ = jax.lax.fori_loop(0, count, attempt, (labels, jnp.zeros((), int), key))
    return moved, accepted

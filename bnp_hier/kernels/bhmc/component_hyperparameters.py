"""Slice sampling of the hyperparameters of a hierarchical mixture's component, with its parameters integrated out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int
from numpyro import handlers

from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.inspection.conditionals import read_conditional
from bnp_hier.inspection.nested import TreeSites
from bnp_hier.inspection.trace import TRACING, Model, base_distribution, feasible
from bnp_hier.kernels.slice_sampling import SlicePoint, slice_sweep

__all__ = ["draw_component_hyperparameters", "first_component_hyperparameters"]

WIDTH, MAX_STEPS_OUT = 1.0, 4
"""Width of the intervals in unconstrained units (for a positive number, those of its logarithm), and most expansions of one."""

COORDINATES = 8
"""Most coordinates that are updated at once, chosen at random: one of many columns takes as long as a sweep over the items."""


def draw_component_hyperparameters(
    model: Model,
    sites: TreeSites,
    z: Mapping[str, Array],
    labels: Int[Array, " n"],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    key: Array,
) -> dict[str, Array]:
    """Update the sites on which only the component depends, η, by slice sampling from p(η) Π_k m_η(rows of component k).

    The parameters of the components are integrated out (m_η is the marginal likelihood), so that they must be drawn next, given
    the new values. The rows are summed once (see `read_conditional`).

    Parameters
    ----------
    model, sites, args, kwargs
        The model, its sites, and its arguments.
    z
        Current values of the sites.
    labels
        Current components of the items.
    key
        Random key.
    """
    given = {name: z[name] for name in sites.component}
    ranks = jnp.cumsum(cluster_counts(labels, sites.components) > 0) - 1  # no gaps: there may be fewer rows than components
    rest = {name: value for name, value in z.items() if name not in given}
    flat = _given_labels(model, sites, rest, ranks[labels])
    conditional = read_conditional(flat, given, args, kwargs)
    x, unravel = ravel_pytree(conditional.unconstrained)
    start = SlicePoint(x, conditional.log_density(unravel(x)), jnp.ones((), int))
    key, key_some = jax.random.split(key)
    some = jax.random.permutation(key_some, x.shape[0])[:COORDINATES]
    directions, widths = jnp.eye(x.shape[0], dtype=x.dtype)[some], jnp.full(some.shape[0], WIDTH, x.dtype)
    density = lambda x: conditional.log_density(unravel(x))  # noqa: E731
    point, _ = slice_sweep(density, start, directions, widths, MAX_STEPS_OUT, key)
    return conditional.constrain(unravel(point.x))


def first_component_hyperparameters(
    model: Model,
    sites: TreeSites,
    z: Mapping[str, Array],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    key: Array,
    typical: bool = False,
) -> dict[str, Array]:
    """Return the values of the component's sites that are in `z`, and draws from the prior of the others.

    Parameters
    ----------
    typical
        Whether to return, instead of draws, the first of the values from which deterministic methods start, where a site has
        them (see `LearnedPrior`).
    """
    if not sites.component:
        return {}

    def given(site: dict[str, Any]) -> Any:
        starts = site.get("infer", {}).get("starts") if typical else None
        return z.get(site["name"], starts[0] if starts else None)

    flat = _given_labels(model, sites, {}, jnp.zeros(sites.size, int))
    with TRACING:
        seeded = handlers.seed(handlers.substitute(flat, substitute_fn=given), key)
        trace = handlers.trace(seeded).get_trace(*args, **dict(kwargs or {}))
    return {name: jnp.asarray(trace[name]["value"], float) for name in sites.component}


def _given_labels(model: Model, sites: TreeSites, values: Mapping[str, Array], labels: Int[Array, " n"]) -> Model:
    """The model's component sites with a mixture in place of the tree; the other sites have the given or any valid values."""

    def flat(*args: Any, **kwargs: Any) -> None:
        def own(site: dict[str, Any]) -> Any:
            if site["name"] in sites.component:
                return None
            return values[site["name"]] if site["name"] in values else feasible(site)

        with handlers.block(hide_fn=lambda site: site["name"] not in sites.component):
            trace = handlers.trace(handlers.substitute(model, substitute_fn=own)).get_trace(*args, **kwargs)
        observed = trace[sites.observed]
        assignments = numpyro.sample("_labels", ChineseRestaurantProcess(1.0, sites.size), obs=labels)
        component = base_distribution(observed["fn"]).component
        numpyro.sample("_rows", ConjugateMixture(component, assignments), obs=observed["value"])

    return flat

"""Find a mixture with explicit weights and labels summed out in a NumPyro model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Num

from bnp_hier.components import Component
from bnp_hier.distributions import FiniteMixture, StickBreaking
from bnp_hier.inspection.trace import (
    Model,
    base_distribution,
    feasible,
    listed_sites,
    run_model,
    sample_sites,
)
from bnp_hier.utils.arrays import own_arrays

__all__ = ["StickSites", "StickValues", "find_stick_sites", "read_stick_values"]


class StickSites(NamedTuple):
    """Names of the sites of a truncated stick-breaking mixture with labels summed out.

    - **weights** - the site whose distribution is `StickBreaking`.
    - **observed** - the observed site whose distribution is a mixture with the same number of components.
    - **parameters** - all latent sites, in the order of the model.
    - **truncation** - number of components K.
    - **conjugate** - whether the mixture is a `FiniteMixture`, which stores its conjugate component.
    """

    weights: str
    observed: str
    parameters: tuple[str, ...]
    truncation: int
    conjugate: bool


class StickValues(NamedTuple):
    """Concentration, log densities, component and data of a stick-breaking mixture at given values of its sites.

    - **concentration** - α of the stick-breaking prior.
    - **log_density** - log w_k f(x_i|θ_k) (nats).
    - **component** - the conjugate component of the parameters, or None if the mixture does not store one.
    - **X** - the observed table.
    """

    concentration: Float[Array, ""]
    log_density: Float[Array, "m k"]
    component: Component | None
    X: Num[Array | np.ndarray, "n d"]


def find_stick_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> StickSites:
    """Find the weights and their mixture by tracing the model once on the given arguments.

    Raises
    ------
    ValueError
        If the model does not have exactly one latent site with `StickBreaking` weights and exactly one observed site with a
        mixture, if their numbers of components differ, or if the mixture differs between rows.
    """
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    found = f"(its sites are {listed_sites(samples)})"
    weights = [name for name, site in latent.items() if isinstance(site["fn"], StickBreaking)]
    if len(weights) != 1:
        raise ValueError(f"the model has {len(weights)} latent sites with StickBreaking weights; expected exactly one {found}")
    mixtures = [
        name
        for name, site in samples.items()
        if site["is_observed"] and isinstance(base_distribution(site["fn"]), dist.MixtureSameFamily)
    ]
    if len(mixtures) != 1:
        raise ValueError(
            f"the model has {len(mixtures)} observed sites with a FiniteMixture or MixtureSameFamily; expected exactly one, "
            f'weighted by the site "{weights[0]}" {found}'
        )
    mixture, truncation = base_distribution(samples[mixtures[0]]["fn"]), samples[weights[0]]["fn"].truncation
    if mixture.batch_shape or mixture.mixture_size != truncation:
        raise ValueError(
            f'the mixture of site "{mixtures[0]}" has batch shape {mixture.batch_shape} and {mixture.mixture_size} components; '
            f'expected one mixture for all rows, with the {truncation} components of the weights "{weights[0]}"'
        )
    return StickSites(weights[0], mixtures[0], tuple(latent), truncation, isinstance(mixture, FiniteMixture))


def read_stick_values(
    model: Model,
    sites: StickSites,
    values: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    rows: Float[Array, "m d"] | None = None,
) -> StickValues:
    """Return the concentration and the table of log densities at given latent values; works under ``jit``.

    The densities are those of the observed rows, or of `rows` under the same mixture.
    """
    trace = run_model(model, args, kwargs or {}, lambda site: values.get(site["name"]))
    mixture, X = base_distribution(trace[sites.observed]["fn"]), trace[sites.observed]["value"]
    log_density = mixture.component_log_probs(jnp.asarray(X if rows is None else rows))
    component = mixture.component.centered_on(X) if sites.conjugate else None
    return own_arrays(StickValues(trace[sites.weights]["fn"].concentration, log_density, component, X))

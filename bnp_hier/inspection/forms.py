"""Detect which form of mixture a NumPyro model has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from bnp_hier.distributions import ConjugateMixture, PartitionPrior, StickBreaking
from bnp_hier.inspection.collapsed import MixtureSites, find_sites
from bnp_hier.inspection.slots import SlotSites, find_slot_sites
from bnp_hier.inspection.sticks import StickSites, find_stick_sites
from bnp_hier.inspection.trace import Model, feasible, run_model, sample_sites

__all__ = ["find_any_sites"]


def find_any_sites(
    model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> MixtureSites | SlotSites | StickSites:
    """Find the sites of a mixture with parameters integrated out, with parameters in labelled slots, or with labels summed out.

    Raises
    ------
    ValueError
        If the model has none of these forms.
    """
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    samples, latent = sample_sites(trace)
    if any(isinstance(site["fn"], StickBreaking) for site in latent.values()):
        return find_stick_sites(model, args, kwargs)
    conjugate = any(isinstance(site["fn"], ConjugateMixture) for site in samples.values())
    if conjugate or not any(isinstance(site["fn"], PartitionPrior) for site in latent.values()):
        return find_sites(model, args, kwargs)
    return find_slot_sites(model, args, kwargs)

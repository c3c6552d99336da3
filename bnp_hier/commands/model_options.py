"""The model that the command line's options name."""

from __future__ import annotations

from functools import partial

import numpyro.distributions as dist

from bnp_hier.components import Component
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm

__all__ = ["described", "mixture"]


def mixture(component: Component, concentration: float | None) -> Model:
    """A Dirichlet-process mixture; without a concentration it has a Gamma(1, 1) prior."""
    return partial(dpm, component=component, concentration=dist.Gamma(1.0, 1.0) if concentration is None else concentration)


def described(component: Component, concentration: float | None) -> str:
    """The same in words."""
    alpha = "concentration ~ Gamma(1, 1)" if concentration is None else f"concentration {concentration:g}"
    return f"Dirichlet-process mixture, {type(component).__name__}.from_data, {alpha}"

"""Models for a component: those of the commands, `recommend` and `cluster`."""

from __future__ import annotations

from functools import partial

from bnp_hier.components import Component, LearnedPrior
from bnp_hier.inspection.trace import Model
from bnp_hier.models import DEFAULT_CONCENTRATION, bhmc, dpm

__all__ = ["described", "hierarchical_mixture", "mixture"]


def mixture(component: Component | LearnedPrior, concentration: float | None) -> Model:
    """Dirichlet-process mixture; a concentration of None means the prior `DEFAULT_CONCENTRATION`."""
    return partial(dpm, component=component, concentration=DEFAULT_CONCENTRATION if concentration is None else concentration)


def hierarchical_mixture(component: Component | LearnedPrior, concentration: float | None, depth: int) -> Model:
    """Mixture over a tree of any branching; a concentration of None means the default prior of `bhmc`."""
    model = partial(bhmc, component=component, depth=depth)
    return model if concentration is None else partial(model, concentration=concentration)


def described(component: Component | LearnedPrior, concentration: float | None) -> str:
    """Describe a `mixture` in one line."""
    family = component.family if isinstance(component, LearnedPrior) else type(component)
    how = f"learned: {', '.join(component.priors)}" if isinstance(component, LearnedPrior) else "fixed hyperparameters"
    alpha = "concentration ~ Gamma(2, 20)" if concentration is None else f"concentration {concentration:g}"
    return f"Dirichlet-process mixture, {family.__name__}.from_data ({how}), {alpha}"

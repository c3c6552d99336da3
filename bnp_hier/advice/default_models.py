"""Models for a component: those of the commands, `recommend` and `cluster`."""

from __future__ import annotations

from functools import partial

import numpyro.distributions as dist

from bnp_hier.components import Component, LearnedPrior
from bnp_hier.inspection.trace import Model
from bnp_hier.models import bhmc, dpm

__all__ = ["described", "hierarchical_mixture", "mixture"]

TREE_CONCENTRATION = 0.4
"""Default concentration of the nested Chinese restaurant process."""


def mixture(component: Component | LearnedPrior, concentration: float | None) -> Model:
    """Dirichlet-process mixture; a concentration of None means a Gamma(1, 1) prior."""
    return partial(dpm, component=component, concentration=dist.Gamma(1.0, 1.0) if concentration is None else concentration)


def hierarchical_mixture(component: Component, concentration: float | None, depth: int) -> Model:
    """Mixture over a tree of any branching.

    The hyperparameters are those that Huang et al. (2021) report for their Animals data. By default, `bhmc` has a prior with
    mean 3 on the concentration, which opens many more branches.
    """
    return partial(
        bhmc,
        component=component,
        depth=depth,
        max_nodes=256,
        concentration=TREE_CONCENTRATION if concentration is None else concentration,
        root_concentration=1.0,
        mixing_concentration=0.5,
    )


def described(component: Component | LearnedPrior, concentration: float | None) -> str:
    """Describe a `mixture` in one line."""
    family = component.family if isinstance(component, LearnedPrior) else type(component)
    how = f"learned: {', '.join(component.priors)}" if isinstance(component, LearnedPrior) else "fixed hyperparameters"
    alpha = "concentration ~ Gamma(1, 1)" if concentration is None else f"concentration {concentration:g}"
    return f"Dirichlet-process mixture, {family.__name__}.from_data ({how}), {alpha}"

"""Warn about questionable models whose cluster parameters are sites: their priors are checked by simulation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpyro import handlers

from bnp_hier.distributions.cluster_numbers import mean_clusters
from bnp_hier.inspection.model_arguments import ModelArguments
from bnp_hier.inspection.slots import SlotSites
from bnp_hier.inspection.trace import TRACING, Model

__all__ = ["check_simulated"]

SIMULATIONS = 40
"""Number of data sets simulated from the prior."""

OUT_OF_SCALE = 30.0
"""Ratio of the standard deviations of simulated and observed values beyond which a prior looks out of scale."""

FAR = 5.0
"""Distance of the mean of the observed values from simulated ones, in standard deviations of all simulated values."""

FULL = 0.7
"""Share of the slots that the prior may expect to be filled."""


def check_simulated(model: Model, data: ModelArguments, sites: SlotSites) -> Iterator[str]:
    """Check a model with explicit cluster parameters: the scale and location of simulated data, and the number of slots.

    Parameters
    ----------
    model
        The NumPyro model.
    data
        Its arguments.
    sites
        Its sites.
    """
    simulated: dict[str, list[np.ndarray]] = {name: [] for name in sites.observed}
    expected = []
    for key in jax.random.split(jax.random.key(0), SIMULATIONS):
        with TRACING:
            trace = handlers.trace(handlers.uncondition(handlers.seed(model, key))).get_trace(*data.args, **data.kwargs)
        for name in sites.observed:
            simulated[name].append(_columns(trace[name]["value"], len(data)))
        prior = trace[sites.partition]["fn"]
        expected.append(mean_clusters(float(prior.concentration), len(data), float(prior.discount)))
    with TRACING:
        trace = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(*data.args, **data.kwargs)
    for name in sites.observed:
        yield from _scale(name, np.stack(simulated[name]), _columns(trace[name]["value"], len(data)))
    clusters = float(np.mean(expected))
    if clusters > FULL * sites.slots:
        yield (
            f"the prior expects {clusters:.0f} clusters, but there are {sites.slots} slots for their parameters: raise "
            f'max_clusters of "{sites.partition}" and the size of the plate, or lower the concentration'
        )


def _columns(value: Any, rows: int) -> Float[np.ndarray, "n q"]:
    return np.asarray(value, dtype=np.float64).reshape(rows, -1)


def _scale(name: str, simulated: Float[np.ndarray, "s n q"], observed: Float[np.ndarray, "n q"]) -> Iterator[str]:
    with np.errstate(invalid="ignore", over="ignore"):
        spread, own = np.median(simulated.std(axis=1), axis=0), observed.std(axis=0)
        center, width = simulated.mean(axis=(0, 1)), simulated.std(axis=(0, 1))
    for j in range(observed.shape[1]):
        where = f'"{name}"' if observed.shape[1] == 1 else f'column {j} of "{name}"'
        advice = "standardise the data, or choose priors in their units"
        if own[j] > 0 and not 1 / OUT_OF_SCALE < spread[j] / own[j] < OUT_OF_SCALE:
            yield (
                f"data simulated from the prior have a standard deviation of about {spread[j]:.3g} in {where}, but the "
                f"observed ones have {own[j]:.3g}: {advice}"
            )
        elif abs(observed[:, j].mean() - center[j]) > FAR * max(width[j], own[j]):
            yield (
                f"the mean of {where}, {observed[:, j].mean():.3g}, is far from that of data simulated from the prior, "
                f"{center[j]:.3g} with standard deviation {width[j]:.3g}: {advice}"
            )

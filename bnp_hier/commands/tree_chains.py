"""Chains over trees of any branching, as the commands run them."""

from __future__ import annotations

import time
from functools import partial

import jax
from numpyro.infer import MCMC

from bnp_hier.components import Component
from bnp_hier.datasets import Dataset
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels import BHMCGibbs
from bnp_hier.methods import RunOptions
from bnp_hier.models import bhmc
from bnp_hier.runs.resumable_run import ResumableRun

__all__ = ["sample_trees"]

CONCENTRATION = 0.4
"""Of the nested Chinese restaurant process, unless the user gives another."""


def sample_trees(
    data: Dataset, component: Component, depth: int, concentration: float | None, options: RunOptions
) -> tuple[ResumableRun, float, list[str]]:
    """Chains, their seconds, and what is missing of them; Ctrl-C after the warm-up keeps the draws that there are.

    The hyperparameters are those that Huang et al. (2021) give for their Animals data. `bhmc` itself has a prior with mean 3 on
    the concentration, which opens many more branches.
    """
    model: Model = partial(
        bhmc,
        component=component,
        depth=depth,
        max_nodes=256,
        concentration=CONCENTRATION if concentration is None else concentration,
        root_concentration=1.0,
        mixing_concentration=0.5,
    )
    mcmc = MCMC(
        BHMCGibbs(model),
        num_warmup=options.warmup,
        num_samples=options.samples,
        num_chains=options.chains,
        chain_method="vectorized",
        progress_bar=options.progress_bar,
    )
    run = ResumableRun(mcmc, max(1, (options.warmup + options.samples) // 20))
    problems = []
    started = time.perf_counter()
    try:
        run.run(jax.random.key(options.random_state), data.X)
    except KeyboardInterrupt:
        if run.steps <= options.warmup:
            raise
        problems = [f"interrupted: {run.steps - options.warmup} of {options.samples} draws of every chain are there"]
    return run, time.perf_counter() - started, problems

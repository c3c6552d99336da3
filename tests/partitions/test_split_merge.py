"""Both kinds of split-merge proposals leave the posterior invariant, and what breaks a move is noticed."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier import PartitionGibbs
from bnp_hier.distributions.seating import Prior
from bnp_hier.models import pitman_yor_mixture
from bnp_hier.native.availability import xla_programs
from bnp_hier.partitions import gibbs_steps
from bnp_hier.partitions import split_merge as split_merge_moves
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.sweeps import sweep
from tests.kernels.small_problems import PROBLEMS, enumerate_small
from tests.oracles.monte_carlo import excess_variation
from tests.parameters import few

slow = pytest.mark.slow


def _excess(name: str, alpha: float, discount: float, **options) -> float:
    """Excess variation of a chain over independent draws; above 1.3 the sampler is wrong."""
    component, X = PROBLEMS[name]
    exact = enumerate_small(name, alpha, discount)
    model = partial(pitman_yor_mixture, component=component, concentration=alpha, discount=discount)
    mcmc = MCMC(PartitionGibbs(model, init="prior", **options), num_warmup=200, num_samples=20_000, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("log_joint", "split_merge_accepted"))
    fields = mcmc.get_extra_fields()
    assert (np.asarray(fields["split_merge_accepted"]).sum() > 0) == (options.get("split_merge", 5) > 0)
    return excess_variation(np.asarray(mcmc.get_samples()["z"]), exact, exact.probabilities, fields["log_joint"])


@pytest.mark.parametrize(
    ("name", "discount", "scans"),
    [
        pytest.param("bernoulli", 0.3, 2, marks=slow),
        pytest.param("normal", 0.0, 5, marks=pytest.mark.exhaustive),
        pytest.param("diagonal, missing", 0.4, 0, marks=slow),
    ],
)
def test_restricted_gibbs_is_exact(name: str, discount: float, scans: int) -> None:
    assert _excess(name, 0.8, discount, proposal="restricted_gibbs", restricted_scans=scans) <= 1.3


@pytest.mark.parametrize("proposal", few(["sequential", "restricted_gibbs"], plain=0, slow=2))
def test_a_proposal_left_out_of_the_acceptance_ratio_is_caught(monkeypatch: pytest.MonkeyPatch, proposal: str) -> None:
    scan = split_merge_moves._scan

    def broken(*args, **options):
        sides, log_probability = scan(*args, **options)
        return sides, 0.0 * log_probability

    monkeypatch.setattr(split_merge_moves, "_scan", broken)
    with xla_programs():
        assert _excess("bernoulli", 0.8, 0.3, proposal=proposal, restricted_scans=2) > 2.0


@slow
def test_a_concentration_left_out_of_the_sweep_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seating, *others):
        prior = Prior(1.0, seating.prior.discount)
        return sweep(Seating(seating.component, seating.X, prior), *others)

    monkeypatch.setattr(gibbs_steps, "sweep", broken)
    with xla_programs():
        assert _excess("bernoulli", 0.5, 0.0, split_merge=0) > 2.0


@slow
@pytest.mark.parametrize("wrong", [Prior(1.0, 0.0), Prior(0.5, 0.3)])
def test_a_wrong_prior_in_the_kernel_is_caught(monkeypatch: pytest.MonkeyPatch, wrong: Prior) -> None:
    def broken(seating, *others):
        return step(Seating(seating.component, seating.X, wrong), *others)

    step = gibbs_steps._native_step
    monkeypatch.setattr(gibbs_steps, "_native_step", broken)
    assert _excess("bernoulli", 0.5, 0.0) > 2.0


@pytest.mark.parametrize("engine", [nullcontext, xla_programs])
def test_a_uniform_draw_of_zero_accepts_no_bad_move(engine: Any) -> None:
    """A draw of exactly 0, one in 8 million, must not accept whatever is proposed: here the merge of two far clusters."""
    X = jnp.array([-50.0, 50.0, -51.0, 51.0])[:, None]
    component, labels = bnp.NormalInverseGamma.from_data(X, learn=False), jnp.array([0, 1, 0, 1])
    with engine():
        seating, draws = Seating(component, X, Prior(1.0, 0.0)), jnp.zeros(split_merge_moves.draws_per_move(4))
        moved, accepted, _ = jax.jit(lambda: split_merge_moves.split_or_merge(seating, labels, draws, 4))()
    assert not accepted
    np.testing.assert_array_equal(moved, labels)

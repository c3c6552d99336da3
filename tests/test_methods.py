"""Methods by name: run, failed, interrupted, out of time; and the plan of a comparison."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier import methods as methods
from bnp_hier.advice.column_kinds import component_for
from bnp_hier.advice.recommendation import default_budget, plan_methods, size_of
from bnp_hier.methods import METHODS, RunOptions, Size, lengthened, partition_methods, run_methods, shortened
from bnp_hier.models import dpm
from bnp_hier.posterior.convergence import LARGEST_RHAT, LEAST_ESS, converged
from bnp_hier.posterior.draws import draws_of
from bnp_hier.runs.resumable_run import ResumableRun
from tests.parameters import few

X = np.random.default_rng(0).normal(size=(30, 2)) + 8.0 * (np.arange(30) % 2)[:, None]
MODEL = partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
QUICK = RunOptions(chains=2, warmup=10, samples=20, progress_bar=False)


@pytest.mark.slow
def test_every_method_runs_and_they_compare() -> None:
    outcome = run_methods(partition_methods(), MODEL, X, QUICK)
    assert list(outcome.fits) == [method.title for method in partition_methods().values()] and not outcome.problems
    table = bnp.compare(outcome.fits, X, seconds=outcome.seconds)
    assert (table["clusters"] == 2).all() and (table["seconds"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", few(["gibbs", "parallel"], plain=0))
def test_chains_sample_hyperparameters_without_gradients(name: str) -> None:
    """A concentration and the learned hyperparameters of a component, by slice sampling."""
    model = partial(dpm, component=bnp.NormalInverseGamma.from_data(X))
    chains = run_methods([name], model, X, QUICK).fits[METHODS[name].title]
    (_, partition), (block, _) = chains.sampler.blocks
    assert isinstance(block, bnp.HyperparameterGibbs) and partition == ("z",)
    assert {"alpha", "z"} < set(chains.get_samples()) and chains.finished


def _pretend(monkeypatch: pytest.MonkeyPatch, **runs: Any) -> None:
    pretended = {name: replace(METHODS[name.replace("_", "-")], run=run) for name, run in runs.items()}
    monkeypatch.setattr(methods, "METHODS", {method.name: method for method in pretended.values()})


def _fail(error: BaseException) -> Any:
    def run(model: Any, X: Any, options: Any) -> None:
        raise error

    return run


def test_a_method_that_fails_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, map_dp=_fail(ValueError("broke")), bhc=lambda *_: "tree")
    outcome = run_methods(["map-dp", "bhc"], MODEL, X)
    assert outcome.fits == {"BHC": "tree"} and outcome.problems == ["MAP-DP failed: broke"] and not outcome.interrupted


def test_what_is_interrupted_or_not_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, map_dp=lambda *_: "partition", bhc=_fail(KeyboardInterrupt()), variational=lambda *_: "never")
    outcome = run_methods(["map-dp", "bhc", "variational"], MODEL, X)
    assert outcome.fits == {"MAP-DP": "partition"} and outcome.interrupted
    assert outcome.problems == ["BHC was interrupted and has no result.", "Not run because of the interruption: Variational."]


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 10])
def test_interrupted_chains_keep_their_draws(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after so many draws: they are a fit like any other; during warm-up there is none."""

    class Interrupted(bnp.ResumableRun):
        def _program(self, steps: int) -> Any:
            if self.steps >= QUICK.warmup + kept - (not kept):
                raise KeyboardInterrupt
            return super()._program(steps)

    monkeypatch.setattr(methods, "ResumableRun", Interrupted)
    outcome = run_methods(["gibbs", "variational"], MODEL, X, replace(QUICK, samples=20))
    assert outcome.interrupted and "Not run because of the interruption: Gibbs" not in outcome.problems
    if kept:
        assert outcome.fits["Gibbs"].get_samples(group_by_chain=True)["z"].shape == (2, kept, 30)
        assert f"Gibbs was interrupted: {kept} of 20 draws per chain are available." in outcome.problems
        assert np.isfinite(bnp.compare(outcome.fits, X).loc["Gibbs", "log_joint"])
    else:
        assert "Gibbs was interrupted and has no result." in outcome.problems and "Gibbs" not in outcome.fits


@pytest.mark.slow
def test_chains_stop_at_their_time_limit() -> None:
    short = replace(QUICK, samples=1_000_000, time_limit=6.0)
    # a warm-up that takes longer than the limit comes to its end, and gives some draws
    for limit, samples in ((6.0, 1_000_000), (1e-6, 2000)):
        outcome = run_methods(["gibbs"], MODEL, X, replace(short, samples=samples, time_limit=limit))
        assert f"stopped at its time limit of {limit:.0f} s" in outcome.problems[0]
        assert not outcome.fits["Gibbs"].finished and not outcome.interrupted
        assert outcome.fits["Gibbs"].get_samples()["z"].shape[0] > 0


@pytest.mark.slow
def test_chains_end_when_they_have_converged() -> None:
    """At the first check where R-hat and effective sample sizes of all that the report shows are within their limits."""
    options = lengthened(replace(QUICK, chains=4, warmup=100, samples=1000, first_check=250))
    assert (options.samples, options.thinning) == (8000, 2)
    outcome = run_methods(["gibbs"], MODEL, X, options)
    chains = outcome.fits["Gibbs"]
    kept = chains.steps - options.warmup
    assert chains.finished and not outcome.problems and kept in (250, 500, 1000, 2000, 4000)
    draws = draws_of(chains, X)
    assert draws.labels.shape == (4, kept // 2, 30) and converged(draws)
    half = draws._replace(
        labels=draws.labels[:, : kept // 4], hyperparameters={k: v[:, : kept // 4] for k, v in draws.hyperparameters.items()}
    )
    assert kept == 250 or not converged(half)
    table = bnp.diagnostics(bnp.to_arviz(chains, X)).dropna(subset=["ess_bulk"])
    assert table["rhat"].max() <= LARGEST_RHAT and table[["ess_bulk", "ess_tail"]].min(axis=None) >= LEAST_ESS
    longer = run_methods(["gibbs"], MODEL, X, replace(options, first_check=None, samples=kept)).fits["Gibbs"]
    np.testing.assert_array_equal(longer.get_samples()["z"], chains.get_samples()["z"])


@pytest.mark.parametrize("sweeps", [0, 600, 5999, 8000, 12_000])
def test_longer_chains_check_at_whole_chunks(sweeps: int) -> None:
    """The warm-up, the first check and the thinning fit one length of chunks, so that one program serves the whole run."""
    options = lengthened(shortened(RunOptions(first_check=1250), sweeps))
    chunk = methods._chunk_steps(options)
    assert options.warmup % chunk == 0 and options.first_check and options.first_check % chunk == 0
    assert chunk % options.thinning == 0 and options.samples % options.thinning == 0
    assert options.samples == 16 * options.first_check and options.first_check // options.thinning <= 500
    assert lengthened(replace(options, first_check=None)) == replace(options, first_check=None)


def test_unknown_methods() -> None:
    with pytest.raises(ValueError, match="there is no method 'gips'; the methods are map-dp"):
        run_methods(["gips"], MODEL, X)


@pytest.mark.parametrize("sweeps", [0, 100, 777, 5999])
def test_shortened_chains(sweeps: int) -> None:
    """At most so many sweeps, in whole chunks, but never none."""
    short = shortened(RunOptions(), sweeps)
    assert short.sweeps <= max(sweeps, 4 * 30) and short.samples == 2 * short.warmup > 0
    assert short.sweeps > 0.8 * sweeps - 4 * 30 and shortened(RunOptions(), 20_000) == RunOptions()


@pytest.mark.parametrize("rows", [20, 150, 1000, 3000, 20_000, 1_000_000])
@pytest.mark.parametrize("width", [5, 15, 200])
@pytest.mark.parametrize(("native", "share"), [(True, 0.0), (False, 0.0), (True, 0.3)])
def test_plans_keep_to_the_budget(rows: int, width: int, native: bool, share: float) -> None:
    budget = default_budget(rows)
    plan = plan_methods(Size(rows, width, native, int(share * rows)), budget, RunOptions())
    assert sorted(advice.name for advice in plan) == sorted(partition_methods())
    assert sum(advice.seconds for advice in plan if advice.chosen) <= budget
    assert sum(advice.chosen for advice in plan if METHODS[advice.name].is_chain) <= 1
    for advice in plan:
        assert advice.reason and (not advice.chosen or advice.seconds <= budget)
        if share and advice.name == "parallel":
            assert not advice.chosen and "missing values of columns that depend on each other" in advice.reason


def test_sizes_count_rows_that_the_model_completes() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    rows[:7, 0] = np.nan
    full, diagonal = (component_for(rows, family).component for family in ("normal", "diagonal"))
    assert size_of(full, rows).incomplete == 7 and size_of(diagonal, rows).incomplete == 0


@pytest.mark.slow
def test_recommendation_of_a_small_table() -> None:
    data = bnp.datasets.load("iris")
    advice = bnp.recommend(pd.DataFrame(data.X, columns=list(data.feature_names)), budget=600)
    assert advice.family == "normal" and not advice.warnings and "gibbs" in advice.chosen and "bhc" in advice.chosen
    assert advice.component.family is bnp.NormalInverseWishart and advice.seconds <= 600
    assert [column.name for column in advice.columns] == list(data.feature_names)
    text = str(advice)
    for title in (method.title for method in partition_methods().values()):
        assert title in text
    assert advice.table().loc["gibbs", "run"] and set(advice.table()["title"]) == {
        method.title for method in partition_methods().values()
    }
    tight = bnp.recommend(data.X, budget=1.0)
    assert tight.chosen == () and "no time left" in str(tight)


@pytest.mark.slow
def test_a_recommendation_runs() -> None:
    advice = bnp.recommend(X, budget=5.0)
    assert advice.chosen == ("map-dp",)
    outcome = advice.fit(X)
    assert set(outcome.fits) == {"MAP-DP"} and outcome.fits["MAP-DP"].n_clusters_ == 2


def test_bad_budgets() -> None:
    with pytest.raises(ValueError, match="'budget' .* Got 0 instead"):
        bnp.recommend(X, budget=0)


def test_chains_start_scattered_about_learned_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within four standard deviations, and apart; a concentration learned from one cluster is moved away from 0."""
    model = partial(dpm, component=bnp.NormalInverseGamma.from_data(X), concentration=dist.Gamma(1.0, 1.0))
    learned = {name: np.asarray(value) for name, value in bnp.MAPDP(model, optimize=False).fit(X).hyperparameters_.items()}
    learned["kappa"] = learned["kappa"] * np.exp(2.0)
    seen: dict[str, Any] = {}

    def record(self: ResumableRun, *args: Any, init_params: Any = None, **kwargs: Any) -> None:
        seen.update(init_params)

    monkeypatch.setattr(ResumableRun, "run", record)
    for concentration, centre in ((0.5, np.log(0.5)), (1e-9, np.log(np.log(2.0)) - 3.0)):
        given = learned | {"alpha": np.asarray(concentration)}
        METHODS["gibbs"].run(model, X, RunOptions(chains=50, hyperparameters=given, progress_bar=False))
        assert {name: np.shape(value) for name, value in seen.items()} == {n: (50, *v.shape) for n, v in learned.items()}
        for name, about in (("alpha", centre), ("kappa", np.log(learned["kappa"]))):
            scattered = np.log(np.asarray(seen[name]))
            assert abs(scattered.mean() - about) < 4 / np.sqrt(50) and 0.6 < scattered.std() < 1.4


@pytest.mark.slow
def test_chains_of_compared_methods_run_from_scattered_starts() -> None:
    outcome = run_methods(["map-dp", "gibbs"], partial(dpm, component=bnp.NormalInverseGamma.from_data(X)), X, QUICK)
    assert list(outcome.fits) == ["MAP-DP", "Gibbs"] and not outcome.problems
    draws = outcome.fits["Gibbs"].get_samples(group_by_chain=True)
    assert all(np.isfinite(np.asarray(values)).all() for values in draws.values())

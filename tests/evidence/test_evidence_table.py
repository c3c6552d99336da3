"""The table of evidence estimators: its rows, its verdicts, and what is left of it when an estimator fails."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.stats import gamma

import bnp_hier as bnp
from bnp_hier.evidence import evidence_table
from bnp_hier.evidence import tree_bounds as bounds
from bnp_hier.evidence.evidence_table import Row, _judged
from bnp_hier.models import dpm
from tests.oracles.problems import random_problem

QUICK = {"num_particles": 50, "num_samples": 300, "num_warmup": 50, "progress_bar": False}
COLUMNS = ["value", "standard_error", "kind", "target", "seconds", "gap_to_best_bound", "verdict"]
PROBLEM = random_problem("nig", 8, 2)
MODEL = partial(dpm, component=PROBLEM.component, concentration=dist.Gamma(2.0, 1.0))


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    return bnp.evidence.table(MODEL, PROBLEM.X, **QUICK, optimize=False)


@pytest.mark.slow
def test_rows_and_columns(found: pd.DataFrame) -> None:
    assert list(found.columns) == COLUMNS
    assert found.index.name == "estimator"
    trees = [f"tree ({kind})" for kind in bounds.KINDS]
    names = [name for name in found.index if not name.startswith("variational")]
    assert names == ["exact", "one partition (MAP-DP)", *trees, "particle filter", "occupancy"]
    assert set(found["kind"]) == {"exact", "lower bound", "estimate"}
    assert (found["seconds"] >= 0).all()
    assert (found["verdict"] != "").all()
    assert found.loc[names, "target"].eq("DP mixture at fixed hyperparameters").all()


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_all_values_are_at_the_learned_or_given_hyperparameters(given: bool) -> None:
    learned = bnp.MAPDP(MODEL, random_state=jax.random.split(jax.random.key(0), 3)[0]).fit(PROBLEM.X).hyperparameters_
    optimize = {"alpha": 0.7} if given else True
    found = bnp.evidence.table(MODEL, PROBLEM.X, **QUICK, optimize=optimize)
    values = optimize if given else learned
    assert found.attrs["hyperparameters"] == pytest.approx(values)
    model = partial(dpm, component=PROBLEM.component, concentration=float(values["alpha"]))
    assert found.loc["exact", "value"] == pytest.approx(bnp.evidence.exact(model, PROBLEM.X), abs=1e-8)
    own = found[found["target"] == "DP mixture at fixed hyperparameters"]
    assert (own.loc[own["kind"] == "lower bound", "value"] <= found.loc["exact", "value"] + 1e-9).all()


@pytest.mark.slow
def test_medians_are_used_if_nothing_can_be_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bnp.MAPDP, "fit", lambda *_: (_ for _ in ()).throw(ValueError("no single-row moves")))
    with pytest.warns(RuntimeWarning, match="at their prior medians: no single-row moves"):
        found = bnp.evidence.table(MODEL, PROBLEM.X, **QUICK)
    assert found.attrs["hyperparameters"]["alpha"] == pytest.approx(float(gamma.median(2.0)))
    assert found.loc["one partition (MAP-DP)", "verdict"] == "failed: no single-row moves"
    assert np.isfinite(found.loc[["exact", "tree (bhc)"], "value"]).all()


@pytest.mark.slow
def test_values_are_those_of_the_estimators_at_the_prior_medians(found: pd.DataFrame) -> None:
    """Estimates within 4 standard errors; of four orders |t₃| > 4 has probability 0.03, but the keys are fixed."""
    model = partial(dpm, component=PROBLEM.component, concentration=float(gamma.median(2.0)))
    exact = bnp.evidence.exact(model, PROBLEM.X)
    bhc = bnp.BHC(model, progress_bar=False).fit(PROBLEM.X)
    assert found.loc["exact", "value"] == pytest.approx(exact, abs=1e-8)
    assert found.loc["tree (bhc)", "value"] == pytest.approx(bhc.log_evidence_bound_, abs=1e-8)
    assert found.loc["one partition (MAP-DP)", "value"] == pytest.approx(bnp.MAPDP(model).fit(PROBLEM.X).log_joint_, abs=1e-8)
    own = found[found["target"] == "DP mixture at fixed hyperparameters"]
    assert (own.loc[own["kind"] == "lower bound", "value"] <= exact + 1e-9).all()
    for name in ("particle filter", "occupancy"):
        row = found.loc[name]
        assert 0 < row["standard_error"] < 0.2
        assert abs(row["value"] - exact) < 4 * row["standard_error"]
        assert not row["verdict"].startswith("failed")
    best = own.loc[own["kind"] == "lower bound", "value"].max()
    np.testing.assert_allclose(own["gap_to_best_bound"], own["value"] - best)
    assert own.loc[own["value"] == best, "verdict"].str.endswith("; the best bound").all()
    assert found.loc["one partition (MAP-DP)", "verdict"].startswith("lower bound on the evidence (DP mixture at fixed")


@pytest.mark.slow
def test_an_estimator_that_cannot_run_leaves_a_row_and_the_others() -> None:
    """The tree needs a Dirichlet process: its rows and that of the occupancy identity say so."""
    problem = random_problem("nig", 8, 2, 0.4)
    found = bnp.evidence.table(problem.model, problem.X, **QUICK)
    for name in (*(f"tree ({kind})" for kind in bounds.KINDS), "occupancy"):
        assert found.loc[name, "verdict"].startswith("failed: BHC needs a Dirichlet process")
        assert np.isnan(found.loc[name, "value"])
        assert np.isnan(found.loc[name, "gap_to_best_bound"])
    exact = found.loc["exact"]
    assert exact["target"] == "Pitman-Yor mixture"
    assert exact["value"] == pytest.approx(bnp.evidence.exact(problem.model, problem.X))
    assert abs(found.loc["particle filter", "value"] - exact["value"]) < 0.5
    assert found.loc["one partition (MAP-DP)", "gap_to_best_bound"] == 0


def without_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_table, "_smc", lambda run: [Row("particle filter", "estimate", -1.0, None, 0.1, "fine")])
    monkeypatch.setattr(evidence_table, "_occupancy", lambda run: [Row("occupancy", "estimate", -1.0, None, 0.1, "fine")])
    monkeypatch.setattr(evidence_table, "_variational", lambda run, inference: [])


@pytest.mark.slow
def test_an_interrupt_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    without_slow(monkeypatch)

    def interrupted(run: object) -> list[Row]:
        raise KeyboardInterrupt

    monkeypatch.setattr(evidence_table, "_smc", interrupted)
    found = bnp.evidence.table(MODEL, PROBLEM.X, **QUICK)
    assert np.isfinite(found.loc[["exact", "tree (bhc)"], "value"].astype(float)).all()
    assert found.loc["particle filter", "verdict"] == "failed: interrupted"
    assert found.loc["occupancy", "verdict"] == "not run: interrupted"


@pytest.mark.slow
def test_an_error_without_words_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without_slow(monkeypatch)

    def broken(run: object) -> list[Row]:
        raise ZeroDivisionError

    monkeypatch.setattr(evidence_table, "_one_partition", broken)
    found = bnp.evidence.table(MODEL, PROBLEM.X, **QUICK)
    assert found.loc["one partition (MAP-DP)", "verdict"] == "failed: ZeroDivisionError"


@pytest.mark.slow
def test_many_rows_have_no_exact_evidence_and_a_capacity_is_part_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    without_slow(monkeypatch)

    def capped(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, X.shape[0], max_clusters=3))
        numpyro.sample("X", bnp.ConjugateMixture(PROBLEM.component, z), obs=X)

    found = bnp.evidence.table(capped, np.random.default_rng(0).normal(size=(17, 2)), **QUICK)
    assert "exact" not in found.index
    assert found.loc["one partition (MAP-DP)", "target"] == "DP mixture of at most 3 clusters"
    assert "must not set max_clusters" in found.loc["tree (bhc)", "verdict"]


def judged(*rows: Row) -> pd.DataFrame:
    return _judged(list(rows), [0.0] * len(rows), "DP mixture")


def test_verdict_on_an_estimate_below_a_bound() -> None:
    bound, worse = Row("tree (bhc)", "lower bound", -100.0), Row("one partition", "lower bound", -120.0)
    found = judged(
        bound,
        worse,
        Row("low", "estimate", -110.0, None, 2.0, "4 orders agree"),
        Row("not low enough", "estimate", -107.0, None, 2.0, "4 orders agree"),
        Row("above", "estimate", -99.0, None, 0.0, "4 orders agree"),
        Row("without error", "estimate", -100.1, None, np.nan, "4 orders agree"),
        Row("low and failed", "estimate", -110.0, None, 2.0, "failed: the orders differ"),
    )
    verdicts = found["verdict"]
    assert verdicts["low"] == "failed: 10.0 nats below the best lower bound, tree (bhc); 4 orders agree"
    assert verdicts["not low enough"] == verdicts["above"] == "4 orders agree"
    assert verdicts["without error"].startswith("failed: 0.1 nats below")
    assert verdicts["low and failed"] == "failed: the orders differ; 10.0 nats below the best lower bound, tree (bhc)"
    assert verdicts["tree (bhc)"] == "lower bound on the evidence (DP mixture); the best bound"
    assert verdicts["one partition"] == "lower bound on the evidence (DP mixture)"
    np.testing.assert_allclose(found["gap_to_best_bound"], [0.0, -20.0, -10.0, -7.0, 1.0, -0.1, -10.0])


def test_bounds_on_other_models_are_not_compared() -> None:
    found = judged(
        Row("tree (bhc)", "lower bound", -100.0),
        Row("variational", "lower bound", -90.0, "truncated stick-breaking, K = 20"),
        Row("estimate", "estimate", -99.0, None, 0.1, "fine"),
        Row("missing", "lower bound", verdict="failed: no memory"),
    )
    assert np.isnan(found.loc["variational", "gap_to_best_bound"])
    assert found.loc["variational", "verdict"] == "lower bound on the evidence (truncated stick-breaking, K = 20)"
    assert found.loc["estimate", "verdict"] == "fine"
    assert found.loc["missing", "verdict"] == "failed: no memory"
    assert np.isnan(judged(Row("estimate", "estimate", -99.0, None, 0.1, "fine")).loc["estimate", "gap_to_best_bound"])


@pytest.mark.slow
def test_chains_that_do_not_mix_are_called_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains, each stuck in a mode of its own."""
    rng = np.random.default_rng(0)
    labels = np.zeros((2, 500, 8), int)

    class Stuck:
        def get_samples(self, group_by_chain: bool) -> dict:
            return {"z": labels}

        def get_extra_fields(self, group_by_chain: bool) -> dict:
            return {"log_joint": rng.normal(size=(2, 500)) + np.array([[0.0], [8.0]])}

    run = evidence_table._Run(MODEL, PROBLEM.X, 10, 2, 10, 0, 2, False, jax.random.key(0), False)
    monkeypatch.setattr(evidence_table._Run, "chains", lambda self: Stuck())
    (row,) = evidence_table._occupancy(run)
    assert row.verdict.startswith("failed: the chains have not mixed: R-hat of the log joint is ")
    assert float(row.verdict.split(" is ")[1].split(";")[0]) > 1.05
    labels[:] = np.arange(8) % 3  # now without hits, too
    (row,) = evidence_table._occupancy(run)
    assert row.verdict.startswith("failed: only 0 of 1000 draws are consistent with the tree")
    assert "the chains have not mixed" in row.verdict


@pytest.mark.slow
def test_chains_get_the_slots_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_table, "default_capacity", lambda n: 4)
    model = partial(dpm, component=PROBLEM.component, concentration=6.0)
    run = evidence_table._Run(model, PROBLEM.X, 10, 2, 50, 0, 2, False, jax.random.key(0), False)
    mcmc = run.chains()
    assert np.asarray(mcmc.last_state.capacity_hits).sum() == 0
    assert np.asarray(mcmc.get_samples()["z"]).max() > 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_particles": 0}, "'num_particles' parameter of table must be a whole number of at least 1"),
        ({"num_orders": 1}, "'num_orders' parameter of table must be a whole number of at least 2"),
        ({"num_samples": 0.5}, "'num_samples' parameter of table must be a whole number of at least 1"),
        ({"num_warmup": -1}, "'num_warmup' parameter of table must be a whole number of at least 0"),
        ({"num_chains": 0}, "'num_chains' parameter of table must be a whole number of at least 1"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bnp.evidence.table(MODEL, PROBLEM.X, **options)


def test_bad_model_and_data() -> None:
    with pytest.raises(ValueError, match="no partition site"):
        bnp.evidence.table(lambda X: numpyro.sample("X", dist.Normal(0.0, 1.0), obs=X), PROBLEM.X)
    with pytest.raises(ValueError, match="columns"):
        bnp.evidence.table(MODEL, PROBLEM.X[:, :1])
    with pytest.raises(TypeError, match="random_state"):
        bnp.evidence.table(MODEL, PROBLEM.X, random_state=None)

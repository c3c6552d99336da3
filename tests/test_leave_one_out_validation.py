"""`loo` against the exact ratio of evidences, and its warnings; ArviZ's own comparison takes it."""

from __future__ import annotations

import warnings
from functools import partial

import arviz as az
import jax
import numpy as np
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.arviz_bridge import _ess, _pareto_k
from bnp_hier.models import dpm
from bnp_hier.posterior.cross_validation import importance_leave_one_out

X = np.array([[0.0, 0.2], [0.4, -0.3], [0.3, 0.5], [3.0, 2.8], [3.4, 3.1], [1.6, 1.4]])
MODEL = partial(dpm, component=bnp.NormalInverseWishart(np.zeros(2), 0.2, 5.0, np.eye(2)), concentration=1.0)


@pytest.fixture(scope="module")
def run() -> MCMC:
    mcmc = MCMC(bnp.PartitionGibbs(MODEL), num_warmup=100, num_samples=4000, num_chains=2, chain_method="vectorized")
    mcmc.run(jax.random.key(0), X)
    return mcmc


def pointwise(result: object) -> np.ndarray:
    return np.asarray(result["loo_i"] if az.__version__.startswith("0.") else result["elpd_i"])  # type: ignore[index]


@pytest.mark.slow
def test_equals_the_ratio_of_evidences(run: MCMC) -> None:
    """log p(x) − log p(x without row i), over all partitions; 4.5 standard errors at 6 rows: false alarms below 1 in 20,000."""
    exact = np.array([bnp.evidence.exact(MODEL, X) - bnp.evidence.exact(MODEL, np.delete(X, i, axis=0)) for i in range(6)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = bnp.loo(run, X)
    found, error = pointwise(result), np.asarray(result["mcse_i"])
    assert (np.abs(found - exact) < 4.5 * error + 1e-9).all(), (found - exact) / error
    assert (error < 0.05).all() and not result["warning"]
    assert result["n_samples"] == 8000 and result["n_data_points"] == 6
    total = result["elpd_loo"] if az.__version__.startswith("0.") else result["elpd"]
    assert total == pytest.approx(found.sum())
    assert ((np.asarray(result["kish_i"]) > 0) & (np.asarray(result["kish_i"]) <= 1)).all()
    assert "loo" in str(result)


@pytest.mark.slow
def test_error_of_the_total_is_its_spread(run: MCMC) -> None:
    """Forty pieces of the run as forty runs: the spread of their totals over the stated error.

    Between 0.6 and 1.6 with a false-alarm rate below 1 in 1,000 (χ² with 39 degrees of freedom).
    """
    log_likelihood = bnp.to_arviz(run, X)["log_likelihood"]["X"].values
    pieces = [importance_leave_one_out(piece, _ess, _pareto_k) for piece in np.split(log_likelihood, 40, axis=1)]
    spread = np.std([piece.elpd_i.sum() for piece in pieces], ddof=1)
    assert 0.6 < spread / np.mean([piece.mcse for piece in pieces]) < 1.6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")  # ArviZ's, of pandas
def test_arviz_compares(run: MCMC) -> None:
    wide = partial(dpm, component=bnp.NormalInverseWishart(np.zeros(2), 0.2, 5.0, 100.0 * np.eye(2)), concentration=1.0)
    table = az.compare({"right": bnp.loo(run, X), "too wide": bnp.loo(bnp.MAPDP(wide).fit(X), X)})
    assert list(table.index) == ["right", "too wide"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:loo. a Pareto k")
def test_short_runs_and_unstable_rows_warn() -> None:
    mcmc = MCMC(bnp.PartitionGibbs(MODEL), num_warmup=0, num_samples=20, num_chains=2, chain_method="vectorized")
    mcmc.run(jax.random.key(0), X)
    with pytest.warns(RuntimeWarning, match="the chains have not mixed or are too short .largest R-hat"):
        assert bnp.loo(mcmc, X)["warning"]


def test_chains_too_short_for_diagnostics_warn() -> None:
    """R-hat and effective sample sizes of three draws are NaN, which is no sign of mixing."""
    mcmc = MCMC(bnp.PartitionGibbs(MODEL), num_warmup=0, num_samples=3, num_chains=2, chain_method="vectorized")
    mcmc.run(jax.random.key(0), X)
    with pytest.warns(RuntimeWarning, match="the chains have 3 draws each, too few .* need at least 4"):
        assert bnp.loo(mcmc, X)["warning"]


def test_weights_by_hand() -> None:
    """One draw in ten makes row 0 unlikely; row 1 is the same in all."""
    log_likelihood = np.full((2, 50, 2), -1.0)
    log_likelihood[:, ::10, 0] = -6.0
    found = importance_leave_one_out(log_likelihood, lambda draws: np.full(draws.shape[-1], 100.0), _pareto_k)
    weight = np.exp(-log_likelihood[:, :, 0]).ravel()
    assert found.elpd_i == pytest.approx([-np.log(weight.mean()), -1.0])
    assert found.kish_i == pytest.approx([weight.sum() ** 2 / (weight**2).sum() / 100, 1.0])
    assert found.mcse_i == pytest.approx([weight.std(ddof=1) / weight.mean() / 10, 0.0])
    assert found.mcse == pytest.approx(found.mcse_i[0])
    twice = importance_leave_one_out(log_likelihood[:, :, [0, 0]], lambda draws: np.full(draws.shape[-1], 100.0), _pareto_k)
    assert twice.mcse == pytest.approx(2 * twice.mcse_i[0])  # rows share the draws: their errors are not independent
    assert found.p_i == pytest.approx([np.log(np.exp(log_likelihood[:, :, 0]).mean()) + np.log(weight.mean()), 0.0])


def test_a_high_pareto_k_marks_the_rows_whose_error_is_too_small() -> None:
    """Of 400 runs of 1,000 independent draws each, those whose error exceeds 3.5 stated ones; a normal law has 0.05% of them.

    Key fixed. Rows with normal errors would have 1% (4 of 400 runs) or more with a probability of 5e-5. Ties, as of
    discrete labels, make no difference: neither where many draws have the largest weight, nor where few have most of it.
    """
    rng, shape = np.random.default_rng(0), (400, 1, 1000)
    uniform = rng.random(shape)
    weights = {  # with their means; the first three are well behaved
        "bounded": (0.5 + uniform, 1.0),
        "equal in many draws": (np.where(uniform < 0.1, 5.0, 0.5), 0.95),
        "exponential": (0.1 - np.log(uniform), 1.1),
        "large in few draws": (np.where(uniform < 0.006, 100.0, 0.5), 0.6 + 0.5 * 0.994),
        "heavy-tailed": (uniform**-0.9, 10.0),
        "log-normal": (np.exp(2.5 * rng.normal(size=shape)), np.exp(2.5**2 / 2)),
    }
    log_likelihood = -np.log(np.stack([weight for weight, _ in weights.values()], axis=-1))
    exact = -np.log([mean for _, mean in weights.values()])
    runs = [importance_leave_one_out(one, lambda draws: np.full(draws.shape[-1], 1000.0), _pareto_k) for one in log_likelihood]
    off = np.mean([np.abs(run.elpd_i - exact) > 3.5 * run.mcse_i for run in runs], axis=0)
    high = np.mean([run.pareto_k > run.good_k for run in runs], axis=0)
    assert runs[0].good_k == pytest.approx(1 - 1 / 3)
    assert (off[:3] < 0.01).all() and (high[:3] < 0.01).all(), (off, high)
    assert (off[3:] > 0.02).all() and (high[3:] > 0.8).all(), (off, high)


def test_k_is_in_the_result_and_its_summary() -> None:
    """One draw in 50 has most of the weight of row 0."""
    log_likelihood = np.full((2, 100, 2), -1.0) + 0.3 * np.random.default_rng(0).random((2, 100, 2))
    log_likelihood[:, ::50, 0] = -8.0
    found = importance_leave_one_out(log_likelihood, _ess, _pareto_k)
    assert found.pareto_k[0] > found.good_k > found.pareto_k[1]
    few = importance_leave_one_out(log_likelihood[:, :12], _ess, _pareto_k)
    assert np.isnan(few.pareto_k).all() and np.isnan(few.good_k)
    fit = bnp.MAPDP(MODEL).fit(X)
    assert "pareto_k" not in bnp.loo(fit, X) if az.__version__.startswith("0.") else bnp.loo(fit, X)["pareto_k"] is None


@pytest.mark.filterwarnings("ignore:loo. :RuntimeWarning")
def test_the_printed_result_counts_rows_by_k() -> None:
    result = bnp.loo(bnp.BHC(MODEL).fit(X), X)
    assert np.asarray(result["pareto_k"]).shape == (6,) and result["good_k"] == pytest.approx(1 - 1 / 3)
    assert "Pareto k diagnostic values" in str(result) and "(good)" in str(result)

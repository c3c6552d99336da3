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
from bnp_hier.arviz_bridge import _ess
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
    pieces = [importance_leave_one_out(piece, _ess) for piece in np.split(log_likelihood, 40, axis=1)]
    spread = np.std([piece.elpd_i.sum() for piece in pieces], ddof=1)
    assert 0.6 < spread / np.mean([piece.mcse for piece in pieces]) < 1.6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")  # ArviZ's, of pandas
def test_arviz_compares(run: MCMC) -> None:
    wide = partial(dpm, component=bnp.NormalInverseWishart(np.zeros(2), 0.2, 5.0, 100.0 * np.eye(2)), concentration=1.0)
    table = az.compare({"right": bnp.loo(run, X), "too wide": bnp.loo(bnp.MAPDP(wide).fit(X), X)})
    assert list(table.index) == ["right", "too wide"]


@pytest.mark.slow
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
    found = importance_leave_one_out(log_likelihood, lambda draws: np.full(draws.shape[-1], 100.0))
    weight = np.exp(-log_likelihood[:, :, 0]).ravel()
    assert found.elpd_i == pytest.approx([-np.log(weight.mean()), -1.0])
    assert found.kish_i == pytest.approx([weight.sum() ** 2 / (weight**2).sum() / 100, 1.0])
    assert found.mcse_i == pytest.approx([weight.std(ddof=1) / weight.mean() / 10, 0.0])
    assert found.mcse == pytest.approx(found.mcse_i[0])
    twice = importance_leave_one_out(log_likelihood[:, :, [0, 0]], lambda draws: np.full(draws.shape[-1], 100.0))
    assert twice.mcse == pytest.approx(2 * twice.mcse_i[0])  # rows share the draws: their errors are not independent
    assert found.p_i == pytest.approx([np.log(np.exp(log_likelihood[:, :, 0]).mean()) + np.log(weight.mean()), 0.0])

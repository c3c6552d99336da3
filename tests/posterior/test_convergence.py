"""Diagnostics of chains: which variables they are of, and the warning about labels."""

from __future__ import annotations

import warnings

import arviz as az
import numpy as np
import pytest
import xarray as xr
from numpyro.infer import MCMC, NUTS

import bnp_hier as bnp
from bnp_hier.posterior.convergence import chain_diagnostics

RNG = np.random.default_rng(0)
SAMPLE = ("chain", "draw")
VARIABLES = {
    "log_joint": (SAMPLE, RNG.normal(size=(2, 200)) + np.array([[0.0], [3.0]])),
    "n_clusters": (SAMPLE, RNG.integers(2, 5, (2, 200))),
    "kappa": ((*SAMPLE, "kappa_dim_0"), RNG.gamma(2.0, size=(2, 200, 2))),
    "still": (SAMPLE, np.ones((2, 200))),
    "z": ((*SAMPLE, "item"), RNG.integers(0, 3, (2, 200, 4))),
    "labels": ((*SAMPLE, "labels_dim_0"), RNG.integers(0, 3, (2, 200, 3))),
    "parameters": ((*SAMPLE, "parameters_dim_0"), RNG.normal(size=(2, 200, 3))),
    "weights": ((*SAMPLE, "weights_dim_0"), RNG.dirichlet(np.ones(3), size=(2, 200))),
    "shares": ((*SAMPLE, "cluster"), RNG.dirichlet(np.ones(3), size=(2, 200))),
}
IDATA = {"posterior": xr.Dataset(VARIABLES)}


def test_default_leaves_out_what_depends_on_labels() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = bnp.diagnostics(IDATA)
    assert list(table.index) == ["log_joint", "n_clusters", "kappa[0]", "kappa[1]", "still"]
    assert list(table.columns) == ["rhat", "ess_bulk", "ess_tail"]
    draws = VARIABLES["kappa"][1][..., 1]
    expected = [az.rhat(draws), az.ess(draws), az.ess(draws, method="tail", prob=(0.05, 0.95))]
    np.testing.assert_allclose(table.loc["kappa[1]"], expected)
    assert table.loc["log_joint", "rhat"] > 1.5 and table.loc["n_clusters", "rhat"] < 1.05
    assert table.loc["still"].isna().all()


@pytest.mark.parametrize("name", ["z", "labels", "parameters", "weights", "shares"])
@pytest.mark.usefixtures("unchecked")
def test_label_dependent_variables_warn(name: str) -> None:
    message = f"{name}: these values depend on the cluster labels.* say nothing about convergence; use log_joint"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        table = bnp.diagnostics(IDATA, name)
    assert caught[0].filename == __file__
    assert list(table.index) == [f"{name}[{i}]" for i in range(VARIABLES[name][1].shape[2])]
    assert table.notna().all(axis=None)


def test_short_and_single_chains() -> None:
    short = {"posterior": xr.Dataset({"a": (SAMPLE, RNG.normal(size=(2, 3)))})}
    assert bnp.diagnostics(short).isna().all(axis=None)
    single = bnp.diagnostics({"posterior": xr.Dataset({"a": (SAMPLE, RNG.normal(size=(1, 100)))})})
    assert np.isnan(single.loc["a", "rhat"]) and single.loc["a", "ess_bulk"] > 20


@pytest.mark.filterwarnings("error")
def test_chains_that_never_move() -> None:
    """Each at a value of its own: an infinite R-hat, and no warning of a division by zero."""
    table = chain_diagnostics({"a": np.repeat([[1.0], [2.0]], 10, axis=1)})
    assert table.loc["a", "rhat"] == np.inf


def test_unknown_variable() -> None:
    with pytest.raises(ValueError, match="the posterior has no variable 'alpha'; its variables are log_joint, n_clusters"):
        bnp.diagnostics(IDATA, ["log_joint", "alpha"])


def test_what_is_not_arviz_data_is_refused() -> None:
    mcmc = MCMC(NUTS(lambda: None), num_warmup=1, num_samples=1)
    for read in (bnp.diagnostics, bnp.plots.traces, bnp.plots.rank):
        with pytest.raises(TypeError, match=r"to_arviz, but got MCMC: pass bnp_hier.to_arviz\(fit, X\) instead of the fit"):
            read(mcmc)
        with pytest.raises(TypeError, match="expected the result of bnp_hier.to_arviz, but got ndarray$"):
            read(np.zeros((2, 3)))
    for one in ({}, {"posterior": np.zeros(3)}, {"prior": IDATA["posterior"]}):
        with pytest.raises(TypeError, match="expected the result of bnp_hier.to_arviz, but got dict$"):
            bnp.diagnostics(one)

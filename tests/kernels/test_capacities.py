"""The smaller of a kernel's capacity and the model's own holds everywhere, one cluster included; warnings name it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.inspection.collapsed import find_sites
from bnp_hier.kernels.reports import wait_for_reports
from bnp_hier.models import bhmc, dpm, dpm_stick_breaking
from tests.oracles.monte_carlo import assert_exact
from tests.oracles.partitions import Enumeration
from tests.parameters import few

X = np.array([[-3.0], [-2.5], [0.1], [0.3], [3.0]])
COMPONENT = bnp.NormalInverseGamma(np.zeros(1), 0.2, 3.0, 0.5)
ALPHA = 2.0

KERNELS: dict[str, Callable[..., Any]] = {
    "sequential": bnp.PartitionGibbs,
    "restricted": partial(bnp.PartitionGibbs, proposal="restricted_gibbs"),
    "parallel": partial(bnp.ParallelSplitMerge, init="one"),
    "parallel, no sweep": partial(bnp.ParallelSplitMerge, init="one", sweep=False),
}


def capped(X: np.ndarray, most: int | None) -> None:
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, X.shape[0], max_clusters=most))
    numpyro.sample("X", bnp.ConjugateMixture(COMPONENT, z), obs=X)


def run(kernel: Any, samples: int = 60) -> MCMC:
    mcmc = MCMC(kernel, num_warmup=20, num_samples=samples, progress_bar=False)
    mcmc.run(jax.random.key(0), X, extra_fields=("log_joint",))
    wait_for_reports(mcmc.last_state)
    return mcmc


@pytest.mark.parametrize(
    ("name", "most"),
    few([(name, most) for most in (2, 1) for name in KERNELS], slow=1),
)
def test_the_models_own_capacity_is_not_overridden(name: str, most: int) -> None:
    with pytest.warns(RuntimeWarning, match=rf'reached its capacity of {most} clusters.*; raise max_clusters of the site "z"$'):
        mcmc = run(KERNELS[name](partial(capped, most=most), max_clusters=10))
    assert mcmc.get_samples()["z"].max() == most - 1
    with pytest.warns(RuntimeWarning, match=rf"{type(mcmc.sampler).__name__}\(\.\.\., max_clusters=\.\.\.\)$"):
        other = run(KERNELS[name](partial(capped, most=10), max_clusters=most))
    np.testing.assert_array_equal(other.get_samples()["z"], mcmc.get_samples()["z"])


@pytest.mark.parametrize("name", few(["sequential", "parallel", "restricted"], plain=0))
def test_both_capacities_at_once(name: str) -> None:
    """The target is the posterior of at most two clusters; false-alarm rate as `assert_exact` says."""
    exact = Enumeration(len(X), lambda rows: COMPONENT.log_evidence(X[rows]), ALPHA, 0.0)
    allowed = np.array(exact.labels).max(1) < 2
    probabilities = np.where(allowed, exact.probabilities, 0.0) / exact.probabilities[allowed].sum()
    with pytest.warns(RuntimeWarning, match="reached its capacity of 2 clusters"):
        mcmc = run(KERNELS[name](partial(capped, most=2), max_clusters=3), 40_000)
    assert_exact(np.asarray(mcmc.get_samples()["z"]), exact, probabilities, mcmc.get_extra_fields()["log_joint"])


def two_means(X: np.ndarray) -> None:
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, X.shape[0], max_clusters=2))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("X", dist.Normal(jnp.array([-3.0, 3.0])[z], 1.0), obs=X[:, 0])


@pytest.mark.parametrize(
    "kernel",
    [
        bnp.PartitionGibbs(partial(capped, most=None), max_clusters=2),
        bnp.ParallelSplitMerge(partial(capped, most=None), max_clusters=2, init="one"),
        bnp.AuxiliaryGibbs(two_means),
        pytest.param(
            bnp.BHMCGibbs(partial(bhmc, depth=2, component=bnp.NormalKnownCovariance.from_data(X, learn=False)), init="prior"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_programs_have_no_python_callback(kernel: Any, engine: str) -> None:
    """Programs with one would not be kept by the compilation cache; XLA programs in place of native kernels have one."""
    state = kernel.init(jax.random.key(0), 0, {"z": np.array([0, 0, 0, 1, 1])}, (X,), {})
    program = jax.jit(lambda state: kernel.sample(state, (X,), {})).lower(state).as_text()
    assert ("python" in program and "callback" in program) == (engine == "xla")
    assert ("bnp_hier_warn" in program) == (engine == "kernels")


def test_a_warning_names_both_where_both_bind() -> None:
    kernel = bnp.PartitionGibbs(partial(capped, most=2), max_clusters=2)
    kernel._sites = find_sites(kernel.model, (X,))
    assert kernel.capacity_advice == 'raise PartitionGibbs(..., max_clusters=...) and max_clusters of the site "z"'


@pytest.mark.slow
def test_compare_names_the_kernel_that_met_its_capacity() -> None:
    with pytest.warns(RuntimeWarning, match="ParallelSplitMerge reached its capacity"):
        mcmc = run(bnp.ParallelSplitMerge(partial(capped, most=None), max_clusters=2, init="one"))
    with pytest.warns(RuntimeWarning, match=r"All reached its capacity .*clusters; raise ParallelSplitMerge\(\.\.\., max_"):
        bnp.compare({"All": mcmc}, X)


@pytest.mark.slow
def test_one_slot_of_explicit_parameters() -> None:
    def slots(X: np.ndarray) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(ALPHA, X.shape[0], max_clusters=1))
        with numpyro.plate("clusters", 1):
            loc = numpyro.sample("loc", dist.Normal(0.0, 3.0))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("X", dist.Normal(loc[z], 1.0), obs=X[:, 0])

    kernel = Gibbs([(bnp.AuxiliaryGibbs(slots), ["z"]), (NUTS(slots), None)])
    mcmc = MCMC(kernel, num_warmup=20, num_samples=20, progress_bar=False)
    with pytest.warns(RuntimeWarning, match="AuxiliaryGibbs reached its capacity of 1 clusters"):
        mcmc.run(jax.random.key(0), X)
        wait_for_reports(mcmc.last_state)
    assert (mcmc.get_samples()["z"] == 0).all()


@pytest.mark.slow
def test_one_component_has_the_evidence_of_one_cluster() -> None:
    """Of every inference; and one stick has the weight 1."""
    one = COMPONENT.log_evidence(X)
    model = partial(dpm, component=COMPONENT)
    for inference in ("stick_breaking", "collapsed_stick_breaking", "collapsed_dirichlet"):
        fit = bnp.VariationalDP(model, inference, truncation=1, n_init=1).fit(X)
        assert fit.log_evidence_bound_ == pytest.approx(one, abs=1e-9)
        np.testing.assert_allclose(fit.predict_proba(X), [[1.0, 0.0]] * len(X))
    known = bnp.NormalKnownCovariance(np.zeros(1), 4.0 * np.eye(1), np.eye(1))
    mcmc = MCMC(
        NUTS(partial(dpm_stick_breaking, component=known, truncation=1)), num_warmup=20, num_samples=20, progress_bar=False
    )
    mcmc.run(jax.random.key(0), X)
    np.testing.assert_allclose(mcmc.get_samples()["weights"], 1.0)
    assert (bnp.recover_labels(mcmc, X) == 0).all()


@pytest.mark.parametrize("estimator", [bnp.MAPDP(n_init=1), bnp.BayesianKMeans(n_init=(1, 2))])
def test_new_rows_open_no_cluster_that_the_model_forbids(estimator: Any) -> None:
    """With one cluster allowed, a new row's density is the ratio of two clusters' evidences."""
    fit = estimator.set_params(model=partial(capped, most=1)).fit(X)
    new = np.array([[0.5], [40.0]])
    assert fit.n_clusters_ == 1 and (fit.predict_proba(new) == [[1.0, 0.0]] * 2).all()
    ratio = [COMPONENT.log_evidence(np.vstack([X, row])) - COMPONENT.log_evidence(X) for row in new]
    np.testing.assert_allclose(fit.score_samples(new), ratio, atol=1e-9)
    two = estimator.set_params(model=partial(capped, most=2)).fit(X)
    assert two.n_clusters_ == 2 and (two.predict_proba(new)[:, -1] == 0).all()
    np.testing.assert_allclose(two.predict_proba(new).sum(1), 1.0)
    free = estimator.set_params(model=partial(capped, most=3)).fit(X)
    if free.n_clusters_ == 2:
        assert (free.predict_proba(new)[:, -1] > 0).all()


def test_draws_open_no_cluster_that_the_model_forbids() -> None:
    """New rows, and the leave-one-out densities of the fitted ones, when one cluster is allowed."""
    with pytest.warns(RuntimeWarning, match="reached its capacity of 1 clusters"):
        mcmc = run(bnp.PartitionGibbs(partial(capped, most=1)))
    new = np.array([[0.5], [40.0]])
    shares = bnp.cluster_probabilities(mcmc, X, np.zeros(len(X), int), new)
    assert (shares == [[1.0, 0.0]] * 2).all()
    without = [COMPONENT.log_evidence(X) - COMPONENT.log_evidence(np.delete(X, i, axis=0)) for i in range(len(X))]
    data = bnp.to_arviz(mcmc, X)
    pointwise = np.asarray(data["log_likelihood"]["X"])
    np.testing.assert_allclose(pointwise, np.broadcast_to(without, pointwise.shape), atol=1e-6)

"""Models that run at the same time in several threads, although NumPyro's handlers are those of all threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import joblib
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from sklearn.model_selection import GridSearchCV

import bnp_hier as bnp
from bnp_hier.inspection.trace import run_model
from bnp_hier.models import dpm

COMPONENT = bnp.NormalInverseGamma(np.zeros(1), 0.1, 2.0, 1.0)
X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1], [5.9], [-7.0], [-7.2]])


def test_a_model_runs_under_its_own_handlers_alone() -> None:
    """The second model would begin between two sites of the first, and take the site that follows for its own."""
    inside, begun = threading.Event(), threading.Event()

    def first() -> None:
        numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
        inside.set()
        begun.wait(timeout=0.5)
        numpyro.sample("rate", dist.Gamma(2.0, 2.0))

    def second() -> None:
        numpyro.sample("beta", dist.Normal(0.0, 1.0))
        begun.set()
        numpyro.sample("scale", dist.Normal(0.0, 1.0))

    def other() -> dict[str, Any]:
        assert inside.wait(timeout=60)
        return run_model(second, (), {}, lambda site: 0.25)

    with ThreadPoolExecutor(2) as pool:
        runs = pool.submit(run_model, first, (), {}, lambda site: 0.5), pool.submit(other)
        sites = [{name: site["value"] for name, site in run.result().items()} for run in runs]
    assert sites == [{"alpha": 0.5, "rate": 0.5}, {"beta": 0.25, "scale": 0.25}]


@pytest.mark.slow
@pytest.mark.parametrize("fits", [16, pytest.param(400, marks=pytest.mark.exhaustive)])
def test_fits_in_threads_are_those_of_one(fits: int) -> None:
    """Two models with priors on different hyperparameters, in turns; their answers differ."""

    def scaled(X: np.ndarray) -> None:
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(0.3, X.shape[0]))
        numpyro.sample("X", bnp.ConjugateMixture(bnp.NormalInverseGamma(np.zeros(1), 0.1, 2.0, rate), z), obs=X)

    models = partial(dpm, component=COMPONENT, concentration=dist.Gamma(2.0, 0.5)), scaled

    def fit(number: int) -> tuple[dict[str, float], float, list[int]]:
        found = bnp.MAPDP(models[number % 2], n_init=1).fit(X)
        return found.hyperparameters_, found.log_joint_, found.labels_.tolist()

    alone = fit(0), fit(1)
    assert list(alone[0][0]) == ["alpha"] and list(alone[1][0]) == ["rate"] and alone[0][1] != alone[1][1]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fit, range(fits))) == [alone[number % 2] for number in range(fits)]


@pytest.mark.slow
def test_a_grid_searched_by_threads_is_that_of_one() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 1)) + 8.0 * rng.integers(0, 2, (40, 1))
    models = [partial(dpm, component=COMPONENT, concentration=dist.Gamma(2.0, rate)) for rate in (0.2, 1.0, 5.0, 20.0)]

    def searched(jobs: int) -> GridSearchCV:
        with joblib.parallel_backend("threading"):
            return GridSearchCV(bnp.MAPDP(n_init=1), {"model": models}, cv=5, n_jobs=jobs).fit(rows)

    one, four = searched(1), searched(4)
    np.testing.assert_array_equal(one.cv_results_["mean_test_score"], four.cv_results_["mean_test_score"])
    assert one.best_params_["model"] is four.best_params_["model"]
    assert len(np.unique(one.cv_results_["mean_test_score"])) == 4


@pytest.mark.slow
def test_resumable_runs_in_threads_are_those_of_one() -> None:
    """NUTS traces the model by itself; its runs in chunks hold the lock while it does."""
    models = [partial(dpm, component=COMPONENT, concentration=dist.Gamma(2.0, rate)) for rate in (0.2, 5.0)]

    def run(number: int) -> np.ndarray:
        model = models[number % 2]
        kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), None)])
        chains = bnp.ResumableRun(MCMC(kernel, num_warmup=20, num_samples=20, progress_bar=False), 20)
        chains.run(jax.random.key(0), X)
        return chains.get_samples()["alpha"]

    alone = run(0), run(1)
    with ThreadPoolExecutor(4) as pool:
        for number, draws in enumerate(pool.map(run, range(4))):
            np.testing.assert_array_equal(draws, alone[number % 2])

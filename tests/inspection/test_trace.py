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
from numpyro.primitives import Messenger
from sklearn.model_selection import GridSearchCV

import bnp_hier as bnp
from bnp_hier.inspection.forms import find_any_sites
from bnp_hier.inspection.trace import RECOGNIZED, base_distribution, run_model
from bnp_hier.models import bhmc, dpm, dpm_stick_breaking

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


class Subclassed(Messenger):  # type: ignore[misc] # NumPyro is untyped
    """Makes the distributions of one class a subclass, which has a density of its own."""

    def __init__(self, fn: Any, kind: type) -> None:
        super().__init__(fn)
        self.kind, self.subclass = kind, type(f"Own{kind.__name__}", (kind,), {"log_prob": lambda self, value: 0.0})

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and type(fn := base_distribution(msg["fn"])) is self.kind:
            fn.__class__ = self.subclass


ROWS = np.random.default_rng(0).normal(size=(12, 2))
INCOMPLETE = np.where(np.arange(24).reshape(12, 2) == 5, np.nan, ROWS)
OWN = ((bhmc, ROWS), (dpm, INCOMPLETE), (dpm_stick_breaking, ROWS))
USERS: dict[str, Any] = {
    "MAPDP": lambda model, X: bnp.MAPDP(model).fit(X),
    "BHC": lambda model, X: bnp.BHC(model).fit(X),
    "VariationalDP": lambda model, X: bnp.VariationalDP(model).fit(X),
    "HyperparameterGibbs": lambda model, X: bnp.HyperparameterGibbs(model).init(jax.random.key(0), 0, None, (X,), {}),
    "PartitionGibbs": lambda model, X: bnp.PartitionGibbs(model).init(jax.random.key(0), 0, None, (X,), {}),
}


@pytest.mark.parametrize("kind", sorted(RECOGNIZED, key=lambda kind: kind.__name__))
def test_a_subclass_of_a_distribution_whose_density_is_known_is_refused(kind: type) -> None:
    """Its `log_prob` would not be called: a prior that allows one cluster would be sampled as the Dirichlet process's."""
    refused = 0
    for model, data in OWN:
        sites = run_model(model, (data,), {}, lambda site: None)
        if names := [
            name for name, site in sites.items() if site["type"] == "sample" and type(base_distribution(site["fn"])) is kind
        ]:
            refused += 1
            own = Subclassed(model, kind)
            with pytest.raises(TypeError, match=rf'site "{names[0]}".*Own{kind.__name__}, a subclass of {kind.__name__}'):
                find_any_sites(own, (data,))
    assert refused


@pytest.mark.parametrize("method", USERS)
def test_every_method_refuses_a_subclass_of_the_partition_prior(method: str) -> None:
    with pytest.raises(TypeError, match='site "z".*OwnChineseRestaurantProcess'):
        USERS[method](Subclassed(dpm, bnp.ChineseRestaurantProcess), ROWS)

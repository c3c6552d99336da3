"""Reading hierarchical mixtures: what their sites affect, and models that are not what the sampler takes them for."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.components import ComponentLikelihood
from bnp_hier.inspection.nested import TreeHyperparameters, check_tree_densities, find_tree_sites

X = np.array([[-1.0], [0.2], [0.7], [2.0]])
NORMAL = bnp.NormalKnownCovariance(np.zeros(1), 2.0 * np.eye(1), np.eye(1))
N, DEPTH, K, NODES = 4, 2, 3, 9


def model(x: np.ndarray, change: str = "") -> None:
    """A hierarchical mixture with one thing that the sampler does not expect."""
    alpha, gamma = (numpyro.sample(name, dist.Gamma(1.0, 1.0)) for name in ("alpha", "gamma"))
    gamma0 = numpyro.sample("gamma0", dist.Gamma(alpha, 1.0)) if change == "prior of gamma0" else 1.0
    gamma0 = 2.0 * gamma if change == "twice gamma" else gamma0
    with numpyro.handlers.scale(scale=0.5 if change == "scaled paths" else 1.0):
        paths = numpyro.sample("paths", bnp.NestedChineseRestaurantProcess(alpha, N, DEPTH, NODES))
    mixing = numpyro.sample("mixing", bnp.TreeMixing(paths, gamma0, gamma, K, NODES))
    with numpyro.plate("components", K):
        mean, scale = (5.0, 0.1) if change == "parameters" else (0.0, 2.0**0.5)
        other = dist.Normal(mean, scale).expand([1]).to_event(1)
        parameters = numpyro.sample("parameters", other if change in ("parameters", "same prior") else NORMAL.prior())
    with numpyro.plate("items", N), numpyro.handlers.scale(scale=0.5 if change == "scaled rows" else 1.0):
        shares = mixing[paths[:, 0 if change == "upper level" else -1]]
        labels = numpyro.sample("labels", dist.Categorical(probs=shares))
        own = (labels + 1) % K if change == "other components" else labels
        numpyro.sample("X", ComponentLikelihood(NORMAL, parameters[own]), obs=x)
        if change == "second likelihood":
            numpyro.sample("y", dist.Normal(jnp.arange(3.0)[labels], 1.0), obs=jnp.zeros(N))
    if change == "factor":
        numpyro.factor("bonus", -1.0 * (paths[0, 0] == paths[1, 0]))


def test_what_the_sites_affect() -> None:
    sites = find_tree_sites(model, (X,))
    assert sites.hyperparameters == TreeHyperparameters("alpha", None, "gamma", None)
    check_tree_densities(model, sites, (X,))
    # of these, the conditionals have other factors than those of the tree
    for change, name in (("prior of gamma0", "alpha"), ("twice gamma", "gamma")):
        changed = partial(model, change=change)
        assert find_tree_sites(changed, (X,)).others == (name,)
        with pytest.raises(ValueError, match=rf"no update for the latent sites \['{name}'\]: use .*NUTS"):
            bnp.BHMCGibbs(changed, init="one_path").init(jax.random.key(0), 0, None, (X,), {})


WRONG = {
    "scaled paths": 'the density of site "paths" is scaled',
    "scaled rows": 'the density of site "labels" is scaled',
    "second likelihood": 'site "y" depends on the site "labels", .* nothing but site "X" may',
    "factor": 'site "bonus" depends on the site "paths", which would be ignored',
    "parameters": 'the prior of "parameters" is not that of the component of "X"',
    "upper level": r'the distribution of "labels" is not that of .*expected .*mixing\[paths\[:, -1\]\]',
    "other components": 'the parameters of the rows "X" are not those of the components of their labels',
}


@pytest.mark.parametrize("change", WRONG)
def test_models_that_are_something_else(change: str) -> None:
    with pytest.raises(ValueError, match=WRONG[change]):
        bnp.BHMCGibbs(partial(model, change=change), init="one_path").init(jax.random.key(0), 0, None, (X,), {})


def test_parameters_of_another_form_of_the_same_prior() -> None:
    same = partial(model, change="same prior")
    check_tree_densities(same, find_tree_sites(same, (X,)), (X,))


@pytest.mark.slow
def test_rows_that_depend_on_a_site() -> None:
    """One component: the slope of a regression and its intercept, the parameter, are normal given the rows."""
    t = np.array([[1.0], [2.0], [3.0], [4.0]])

    def residuals(x: np.ndarray) -> None:
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        paths = numpyro.sample("paths", bnp.NestedChineseRestaurantProcess(1.0, N, 1, 5))
        mixing = numpyro.sample("mixing", bnp.TreeMixing(paths, 1.0, 1.0, 1, 5))
        with numpyro.plate("components", 1):
            parameters = numpyro.sample("parameters", NORMAL.prior())
        with numpyro.plate("items", N):
            labels = numpyro.sample("labels", dist.Categorical(probs=mixing[paths[:, -1]]))
            numpyro.sample("X", ComponentLikelihood(NORMAL, parameters[labels]), obs=x - slope * t)

    mcmc = MCMC(bnp.BHMCGibbs(residuals, init="one_path"), num_warmup=100, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    draws = mcmc.get_samples()
    found = np.column_stack([draws["slope"], draws["parameters"][:, 0, 0]])
    design = np.column_stack([t, np.ones(N)])
    covariance = np.linalg.inv(design.T @ design + np.diag([1.0, 0.5]))
    np.testing.assert_allclose(found.mean(0), covariance @ design.T @ X[:, 0], atol=0.06)
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=0.08)

"""Inference under every partition prior: exact where a method takes them all, refused by name where it does not."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy.special import logsumexp

import bnp_hier as bnp
from bnp_hier.inspection.problem import Problem
from bnp_hier.native.availability import xla_programs
from bnp_hier.partitions.leave_one_out import joint_and_densities
from tests.distributions.test_partition_priors import PRIORS, every_prior, partitions, probabilities
from tests.kernels.test_invariance import SEEN, batch_means
from tests.parameters import few

N = 5
X = np.array([[-1.5], [-1.0], [0.3], [1.2], [1.6]])
NEW = np.array([[0.0], [1.4], [4.0]])
COMPONENT = bnp.NormalInverseGamma(np.zeros(1), 0.4, 2.0, 0.6)


def model(name):
    return partial(bnp.models.dpm, component=COMPONENT, prior=PRIORS[name])


@cache
def log_marginal(rows):
    return float(COMPONENT.log_evidence(np.array(rows)[:, None]))


def log_marginals(X):
    """Log p(X | partition) for all partitions of the rows, in the order of `partitions`."""
    blocks = [[tuple(sorted(X[z == k, 0])) for k in range(z.max() + 1)] for z in partitions(len(X))]
    return np.array([sum(map(log_marginal, each)) for each in blocks])


def log_joints(name, X):
    """Log p(X, partition) for all partitions of the rows, in the order of `partitions`."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities(name, len(X))) + log_marginals(X)


@every_prior
def test_the_exact_evidence_and_the_most_probable_partition(name, x64):
    """For one prior, single rows do not move from the second best partition to the best."""
    joints = log_joints(name, X)
    assert bnp.evidence.exact(model(name), X) == pytest.approx(logsumexp(joints), abs=1e-9)
    fit = bnp.MAPDP(model(name), n_init=8, random_state=0).fit(X)
    best = np.argsort(-joints)[1 if name == "integrated" else 0]
    assert fit.log_joint_ == pytest.approx(joints[best], abs=1e-9)
    np.testing.assert_array_equal(fit.labels_, partitions(N)[best])


@pytest.mark.parametrize(
    ("name", "engine"),
    [*few(((name, "kernels") for name in reversed(PRIORS)), 3, 6), *few(((name, "xla") for name in reversed(PRIORS)), 1, 1)],
    indirect=["engine"],
)
def test_predictions_and_left_out_rows(name, engine, x64):
    """Densities given a partition: sums over the labels of one more row, or of the row that is left out."""
    labels = np.array([0, 0, 1, 2, 2])

    def joint(labels, rows):
        index = {tuple(z): i for i, z in enumerate(partitions(len(rows)))}
        return log_joints(name, rows)[index[tuple(labels)]]

    def appended(x):
        rows, whole = np.vstack([X, x]), joint(labels, X)
        return logsumexp([joint([*labels, k], rows) - whole for k in range(labels.max() + 2)])

    def left_out(i):
        others = np.delete(np.arange(N), i)
        found = []
        for k in range(labels[others].max() + 2):
            z = [*labels[others], k]
            found.append(joint([list(dict.fromkeys(z)).index(label) for label in z], X[[*others, i]]))
        kept = [list(dict.fromkeys(labels[others])).index(label) for label in labels[others]]
        possible = {round(value, 9): value for value in found}.values()  # an unused number is one more new cluster
        return logsumexp(list(possible)) - joint(kept, X[others])

    problem = Problem(model(name), X)
    found = jax.jit(joint_and_densities, static_argnums=(2, 3))(problem.values, labels, 4, np.inf, NEW)
    np.testing.assert_allclose(found.log_joint, joint(labels, X), atol=1e-9)
    np.testing.assert_allclose(found.new, [appended(x) for x in NEW], atol=1e-9)
    np.testing.assert_allclose(found.left_out, [left_out(i) for i in range(N)], atol=1e-9)
    fit = bnp.MAPDP(model(name)).fit(X)
    labels = fit.labels_
    np.testing.assert_allclose(fit.score_samples(NEW), [appended(x) for x in NEW], atol=1e-9)


@pytest.mark.parametrize("name", few(reversed(PRIORS), plain=1, slow=1))
def test_both_engines_draw_the_same_chain(name):
    def draws():
        kernel = bnp.PartitionGibbs(model(name), split_merge=3, init="prior")
        mcmc = MCMC(kernel, num_warmup=0, num_samples=30, num_chains=2, chain_method="vectorized", progress_bar=False)
        mcmc.run(jax.random.key(3), X, extra_fields=("log_joint",))
        return mcmc.get_samples()["z"], mcmc.get_extra_fields()["log_joint"]

    labels, joints = draws()
    with xla_programs():
        again = draws()
    np.testing.assert_array_equal(labels, again[0])
    np.testing.assert_allclose(joints, again[1], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.optimised
@every_prior
def test_partition_gibbs_draws_from_the_posterior(name, x64):
    """E[K] and every pair of rows within 4.5 standard errors (7e-6 a comparison); a bias of 0.05 clusters would be seen."""
    joints = log_joints(name, X)
    probabilities = np.exp(joints - logsumexp(joints))
    mcmc = MCMC(bnp.PartitionGibbs(model(name), split_merge=1), num_warmup=100, num_samples=80_000, progress_bar=False)
    mcmc.run(jax.random.key(1), X)

    def summaries(z):
        pairs = [z[:, i] == z[:, j] for i in range(N) for j in range(i)]
        return np.column_stack([z.max(1) + 1, *pairs]).astype(float)

    mean, error = batch_means(summaries(np.asarray(mcmc.get_samples()["z"])))
    assert SEEN * error[0] < 0.05
    assert (np.abs(mean - probabilities @ summaries(partitions(N))) < 4.5 * error).all()


LEARNED = {
    "finite": ("weight", dist.Gamma(2.0, 2.0), lambda n, value: bnp.FiniteDirichlet(n, 3, value)),
    "mixture of finite mixtures": (
        "weight",
        dist.Gamma(2.0, 2.0),
        lambda n, value: bnp.MixtureOfFiniteMixtures(n, dist.Poisson(1.0), value),
    ),
    "generalized gamma": ("discount", dist.Beta(2.0, 2.0), lambda n, value: bnp.NormalizedGeneralizedGamma(n, value, 1.0)),
}


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("of", [bnp.HyperparameterGibbs, NUTS])
@pytest.mark.parametrize("name", LEARNED)
def test_parameters_of_the_prior_are_learned(name, of, x64):
    """Mean of the parameter and E[K] within 4.5 standard errors of those on a grid, with all partitions enumerated."""
    site, law, prior = LEARNED[name]

    def learned(X):
        bnp.models.dpm(X, COMPONENT, prior=lambda n: prior(n, numpyro.sample(site, law)))

    kernel = Gibbs([(bnp.PartitionGibbs(learned, split_merge=1), ["z"]), (of(learned), None)])
    mcmc = MCMC(kernel, num_warmup=500, num_samples=20_000 if of is NUTS else 40_000, progress_bar=False)
    mcmc.run(jax.random.key(2), X)
    draws = mcmc.get_samples()
    mean, error = batch_means(np.column_stack([draws[site], draws["z"].max(1) + 1.0]))

    grid = np.linspace(1e-3, 1.0 - 1e-3 if name == "generalized gamma" else 12.0, 400)
    densities = np.asarray(jax.jit(jax.vmap(lambda value: prior(N, value).log_prob(jnp.asarray(partitions(N)))))(grid))
    weights = np.exp(densities + log_marginals(X)[None] + np.asarray(law.log_prob(grid))[:, None])
    weights /= weights.sum()
    exact = weights.sum(1) @ grid, weights.sum(0) @ (partitions(N).max(1) + 1.0)
    assert (error < 0.05).all()
    assert (np.abs(mean - exact) < 4.5 * error + 1e-3).all()


REFUSED = {
    "BHC": lambda model: bnp.BHC(model, progress_bar=False).fit(X),
    "BayesianKMeans": lambda model: bnp.BayesianKMeans(model).fit(X),
    "VariationalDP": lambda model: bnp.VariationalDP(model).fit(X),
    "ParallelSplitMerge": lambda model: bnp.ParallelSplitMerge(model).init(jax.random.key(0), 0, None, (X,), {}),
    "smc": lambda model: bnp.evidence.smc(model, X, jax.random.key(0)),
    "partial_fit": lambda model: bnp.MAPDP(model).fit(X).partial_fit(X),
}


@pytest.mark.parametrize("method", REFUSED)
def test_methods_for_other_priors_refuse(method):
    with pytest.raises(ValueError, match="Dirichlet and Pitman-Yor processes"):
        REFUSED[method](model("mixture of finite mixtures"))


def test_a_prior_with_a_density_of_its_own_is_refused():
    class Uneven(type(PRIORS["from outside"](2))):
        def log_prob(self, value):
            return 2.0 * super().log_prob(value)

    with pytest.raises(TypeError, match="Uneven, which defines log_prob"):
        bnp.MAPDP(partial(bnp.models.dpm, component=COMPONENT, prior=Uneven)).fit(X)


def test_a_concentration_and_a_prior_exclude_each_other():
    with pytest.raises(ValueError, match="not both"):
        bnp.MAPDP(partial(bnp.models.dpm, concentration=1.0, prior=PRIORS["finite"])).fit(X)

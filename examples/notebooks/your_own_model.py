# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write your own model
#
# The package has families for continuous, binary and count data, but the one that you need may not be among them. Here
# we write a new family, check it, put priors on its hyperparameters, and fit it by MCMC and by fast methods. A
# posterior predictive check then shows that the model is wrong, and we replace it with one that is not conjugate.

# %%
# %matplotlib inline
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax.scipy.special import betaln
from numpyro.distributions import constraints
from numpyro.infer import MCMC, NUTS, Gibbs, Predictive
from scipy import integrate, stats

import bnp_hier as bnp

# %% tags=["parameters"]
num_warmup = 300
num_samples = 500
num_chains = 4
n_rows = 90

# %% [markdown]
# ## The data
#
# A training centre records, for each apprentice and each of four tasks, how many attempts failed before the task was
# done. There are three kinds of apprentice. The numbers are simulated, so we know the truth, including a detail that
# our first model will miss: a task counts as done at the *fourth* success, not at the first.

# %%
rng = np.random.default_rng(3)
truth = np.arange(n_rows) % 3
success = np.array([[0.75, 0.75, 0.22, 0.22], [0.22, 0.75, 0.75, 0.22], [0.22, 0.22, 0.22, 0.75]])
X = rng.negative_binomial(4, success[truth]).astype(float)
tasks = ("saw", "weld", "wire", "paint")
pd.DataFrame(X.astype(int), columns=tasks).head()

# %% [markdown]
# ## The family: geometric counts with a beta prior
#
# If every attempt succeeds with probability p, the number of failures before the first success is geometric: P(x) = p (1 −
# p)^x. With p ~ Beta(a, b), N rows whose failures sum to t have the marginal likelihood B(a + N, b + t) / B(a, b) in each
# column. This is nearly everything the package needs: the sufficient statistics, the log marginal likelihood given their
# sum, the posterior of the parameters, and the likelihood given the parameters.


# %%
class Tally(NamedTuple):
    rows: jax.Array  # number of rows
    failures: jax.Array  # their failures, per column


class GeometricBeta(bnp.Component):
    a: jax.Array  # prior successes per column
    b: jax.Array  # prior failures per column

    @property
    def dim(self):
        return np.shape(self.a)[-1]

    @property
    def support(self):
        return constraints.independent(constraints.nonnegative_integer, 1)

    def suff_stats(self, X):
        x = jnp.asarray(X, float)
        return Tally(jnp.ones(x.shape[:-1]), x)

    def log_marginal(self, stats):
        rows = stats.rows[..., None]
        return (betaln(self.a + rows, self.b + stats.failures) - betaln(self.a, self.b)).sum(-1)

    def posterior(self, stats):
        return dist.Beta(self.a + stats.rows[..., None], self.b + stats.failures).to_event(1)

    def likelihood(self, parameters):
        return dist.Geometric(probs=parameters).to_event(1)

    def _validate_values(self, X):  # optional: a clear message for unsuitable data
        if (X < 0).any() or (X % 1 != 0).any():
            raise ValueError("failures must be non-negative whole numbers")


# %% [markdown]
# ## Is the formula right?
#
# To check it, integrate p out numerically, column by column, and compare. A wrong sign here would silently invalidate
# every method.

# %%
family = GeometricBeta(a=np.array([1.0, 2.0, 0.5, 3.0]), b=np.array([2.0, 2.0, 1.5, 0.7]))
few = X[:5]


def column(j):
    def integrand(p):
        return stats.geom.pmf(few[:, j] + 1, p).prod() * stats.beta.pdf(p, family.a[j], family.b[j])

    return np.log(integrate.quad(integrand, 0, 1, epsabs=0, epsrel=1e-10, limit=200)[0])


numerical = sum(column(j) for j in range(4))
print(f"formula {family.log_evidence(few):.6f}, integration {numerical:.6f}")
assert np.isclose(family.log_evidence(few), numerical, atol=1e-6)

# %% [markdown]
# ## The model, with priors on everything
#
# This is an ordinary NumPyro model: a partition site, an observed site that depends on it, and anything else you like.
# Here the typical success probability, how much the clusters vary around it, and the concentration all have priors.


# %%
def apprentices(X):
    n, d = X.shape
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
    typical = numpyro.sample("typical", dist.Beta(2.0, 2.0))
    alike = numpyro.sample("alike", dist.LogNormal(1.0, 0.7))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, n))
    component = GeometricBeta(a=typical * alike * jnp.ones(d), b=(1.0 - typical) * alike * jnp.ones(d))
    numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X)


# %% [markdown]
# `check_model` looks for modelling choices that do not suit the data. For a user-defined family it can check the
# columns and the concentration, but not the prior of the parameters. Here it finds nothing. To see a warning, we fix
# the concentration at 60.


# %%
def greedy(X):
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(60.0, len(X)))
    numpyro.sample("X", bnp.ConjugateMixture(GeometricBeta(a=np.ones(4), b=np.ones(4)), z), obs=X)


for model in (apprentices, greedy):
    print(f"{model.__name__}:", *bnp.check_model(model, X, feature_names=tasks) or ["nothing found"])

# %% [markdown]
# ## Prior predictive check
#
# What does the model expect before it sees the data? `uncondition` turns the observed site into a latent one. The prior
# should allow values like the observed ones without insisting on them.

# %%
prior = Predictive(numpyro.handlers.uncondition(apprentices), num_samples=300)(jax.random.key(1), X)
prior_clusters = [len(np.unique(z)) for z in prior["z"]]
prior_medians = np.median(prior["X"], axis=(1, 2))

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
left.hist(prior_clusters, bins=np.arange(0.5, max(prior_clusters) + 1), color="0.7")
left.set(xlabel="clusters", ylabel="draws", title="prior: number of clusters")
right.hist(np.log10(1 + prior_medians), bins=25, color="0.7")
right.axvline(np.log10(1 + np.median(X)), color="C3", label="observed")
right.set(xlabel="log10(1 + failures)", title="prior: median failures")
right.legend()
plt.show()

# %% [markdown]
# The prior covers one cluster to a dozen or so. The observed median is at the high end of the prior, but not
# implausible under it.

# %% [markdown]
# ## MCMC
#
# `PartitionGibbs` updates the partition and NUTS the three hyperparameters, both within NumPyro's own `Gibbs`. The cost of
# a sweep grows with `max_clusters`, the maximum number of clusters; the kernel would warn if 20 were too few. JAX may print
# a harmless warning about donated buffers, because the chains run side by side.

# %%
settings = dict(
    num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, chain_method=jax.vmap, progress_bar=False
)
mcmc = MCMC(Gibbs([(bnp.PartitionGibbs(apprentices, max_clusters=20), ["z"]), (NUTS(apprentices), None)]), **settings)
mcmc.run(jax.random.key(0), X)
idata = bnp.to_arviz(mcmc, X, feature_names=tasks, posterior_predictive=min(100, num_samples))
bnp.diagnostics(idata).round(2)

# %% [markdown]
# ## The same model, fast
#
# The deterministic methods accept the same function. They fit the hyperparameters by gradient ascent, including their
# priors; JAX provides the gradients of the new family.

# %%
bhc = bnp.BHC(apprentices, progress_bar=False).fit(X)
mapdp = bnp.MAPDP(apprentices).fit(X)
table = bnp.compare({"MCMC": mcmc, "BHC": bhc, "MAP-DP": mapdp}, X, truth=truth)
table[["clusters", "log_joint", "evidence_bound", "ARI"]].astype(float).round(2)

# %% [markdown]
# All methods find the three kinds: the adjusted Rand index with the truth is at or near 1. The log joints are evaluated at
# each method's own hyperparameters, so compare them with care.
#
# Now the hyperparameters: the posterior in blue, the prior in grey, the fitted values as lines. The fast methods return one
# value where MCMC returns a distribution.

# %%
figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
for panel, name in zip(panels, ("alpha", "typical", "alike"), strict=True):
    draws = idata["posterior"][name].values.ravel()
    bins = np.linspace(0.0, 1.0 if name == "typical" else np.quantile(prior[name], 0.97), 30)
    panel.hist(prior[name], bins, density=True, color="0.8", label="prior")
    panel.hist(draws, bins, density=True, color="C0", alpha=0.7, label="posterior")
    panel.axvline(bhc.hyperparameters_[name], color="C3", label="BHC")
    panel.axvline(mapdp.hyperparameters_[name], color="k", linestyle="dashed", label="MAP-DP")
    panel.set(title=name, yticks=[])
figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

# %% [markdown]
# ## Does the model fit?
#
# A good partition does not prove that the model is good. Draw new data from the posterior and look at something the
# model was not fitted to: the largest number of failures, and the share of entries without a failure. A geometric
# distribution always has its mode at zero and a long tail.

# %%
replicates = idata["posterior_predictive"]["X"].values
checks = {
    "largest number of failures": (replicates.max((2, 3)).ravel(), X.max()),
    "share of entries without failure": ((replicates == 0).mean((2, 3)).ravel(), (X == 0).mean()),
}
figure, panels = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
for panel, (name, (replicated, observed)) in zip(panels, checks.items(), strict=True):
    panel.hist(replicated, bins=25, color="C0", alpha=0.7, label="replicated")
    panel.axvline(observed, color="C3", label="observed")
    panel.set(xlabel=name, yticks=[])
    print(f"{name}: {100 * (replicated <= observed).mean():.1f} % of the replicates are as low as the data")
panels[1].legend()
plt.show()

# %% [markdown]
# Hardly any replicate is as well-behaved as the data: in the replicates the worst apprentices fail more often than the real
# ones ever do, and more tasks are done without a failure. So a single success, with the same probability at every attempt,
# is not the whole story.

# %% [markdown]
# ## A likelihood that is not conjugate
#
# The negative binomial distribution counts the failures before the r-th success; r = 1 gives the geometric
# distribution. With r unknown, there is no conjugate prior that would let us integrate the parameters out. In this
# case, write the parameters of the clusters as sites in a plate of slots. `AuxiliaryGibbs` updates the labels and NUTS
# everything else. The partition prior needs a maximum number of clusters, which is the number of slots. This sampler
# mixes more slowly than `PartitionGibbs`, so it gets four times as many draws.


# %%
def r_th_success(X, slots=15):
    n, d = X.shape
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 2.0))
    r = numpyro.sample("r", dist.LogNormal(0.0, 1.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, n, max_clusters=slots))
    with numpyro.plate("clusters", slots):
        mean = numpyro.sample("mean", dist.LogNormal(1.0, 1.0).expand([d]).to_event(1))
    with numpyro.plate("rows", n):
        numpyro.sample("X", dist.NegativeBinomial2(mean[z], r).to_event(1), obs=X)


auxiliary = MCMC(
    Gibbs([(bnp.AuxiliaryGibbs(r_th_success), ["z"]), (NUTS(r_th_success), None)]),
    **settings | {"num_samples": 4 * num_samples},
)
auxiliary.run(jax.random.key(0), X)
idata_r = bnp.to_arviz(auxiliary, X)
# the means of single slots have no meaning across draws: a cluster can occupy any slot
invariant = ["alpha", "r", "log_joint", "n_clusters", "largest_cluster", "entropy"]
bnp.diagnostics(idata_r, invariant).round(2)

# %% [markdown]
# The first question: is r = 1, as the geometric family assumes?

# %%
r = idata_r["posterior"]["r"].values.ravel()
low, high = np.quantile(r, [0.025, 0.975])
print(f"r: mean {r.mean():.1f}, 95 % between {low:.1f} and {high:.1f} (simulated with 4)")

# %% [markdown]
# No: r = 1 is far outside the interval, and the true value is inside. The second question: which model predicts a
# left-out apprentice better? `compare_models` computes leave-one-out densities with the labels summed out. Its
# `warning` column shows whether chains are too short or the draws carry too little information about some row.

# %%
ranking = bnp.compare_models({"geometric": mcmc, "negative binomial": auxiliary}, X)
ranking[["elpd", "se", "elpd_diff", "dse", "warning"]].round(1)

# %% [markdown]
# The negative binomial wins by many standard errors of the difference (`dse`). And the clusters?

# %%
labels = {name: bnp.point_estimate(run.get_samples()["z"]) for name, run in (("geometric", mcmc), ("neg. binomial", auxiliary))}
pd.concat({name: pd.crosstab(z, truth) for name, z in labels.items()}, names=["model", "cluster"]).rename_axis(
    columns="true kind"
)

# %% [markdown]
# ## What to conclude, and what not
#
# **Conclude:**
#
# - A conjugate family is one class with four short methods. Check its log marginal likelihood by numerical integration;
#   then every method works.
# - Hyperpriors are ordinary sample statements. MCMC returns their posterior, a deterministic method a fitted value.
# - If the parameters cannot be integrated out, `AuxiliaryGibbs` handles any likelihood. You lose the fast methods, the
#   evidence bounds and some speed, but not the comparison by leave-one-out densities.
#
# **Do not conclude:**
#
# - That a model fits because its clusters look right. Here both models find the same clusters, although the likelihood
#   of the first is wrong. The predictive check revealed this; the clusters did not. Look at the prior predictive
#   distribution before the fit and at the posterior predictive distribution after it.
# - That the better of two models is a good one. Repeat the check for the new model.

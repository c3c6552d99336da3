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
# # How many clusters? Evidence from every side
#
# "How many clusters are there?" sounds like a question with a single number for an answer. This notebook asks it in every
# way that the package offers: exact evidence, bounds, posteriors under several priors, a tree, and predictions. It then
# says what the answers do and do not mean.

# %%
# %matplotlib inline
import warnings
from functools import partial

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS, Gibbs
from scipy import stats

import bnp_hier as bnp
from bnp_hier.models import dpm

# %% tags=["parameters"]
num_warmup = 300
num_samples = 1050
num_chains = 4
n_rows = 120
n_few = 12
num_particles = 200
normal_rows = (20, 320)

# %% [markdown]
# ## The data
#
# Two columns of the wine data, flavanoids and colour intensity, for wines of three cultivars. The cultivars are not used.

# %%
wine = bnp.datasets.load("wine")
columns = [wine.feature_names.index("flavanoids"), wine.feature_names.index("color_intensity")]
rows = np.random.default_rng(0).permutation(len(wine.X))[:n_rows]
X = wine.X[rows][:, columns]
X = (X - X.mean(0)) / X.std(0)
component = bnp.NormalInverseWishart.from_data(X, learn=False)
model = partial(dpm, component=component, concentration=1.0)

# %% [markdown]
# ## A few rows: the exact answer
#
# The evidence p(X) is a sum over all partitions of the rows. A dozen rows have four million partitions, and
# `bnp.evidence.exact` sums over all of them by dynamic programming. For so few rows we can therefore compare every
# bound and estimate with the exact value.

# %%
sizes = dict(num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, num_particles=num_particles)
few = bnp.evidence.table(model, X[:n_few], **sizes, progress_bar=False)
few[["value", "standard_error", "kind", "target", "verdict"]].round(2)

# %%
figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
bnp.plots.evidence_bounds(few, ax=axes)
plt.show()

# %% [markdown]
# The lower bounds lie to the left of the exact value, as bounds for the same model must, and both estimates are close
# to it. The best single partition (MAP-DP) is only one of millions of terms. The tree bounds include more terms, and
# the more they include, the closer they come. The variational bounds are the loosest here, and three of the five are
# bounds for the truncated or finite model named in the table rather than for the Dirichlet-process mixture.

# %% [markdown]
# ## What the prior says before any data
#
# The concentration α implies a distribution over the number of clusters, which also depends on the number of rows.
# `concentration_for` is the inverse: it returns the concentration for an expected number of clusters.

# %%
for alpha in (0.2, 1.0, 5.0):
    expected = bnp.prior_clusters(alpha, n_rows) @ np.arange(n_rows + 1)
    print(f"α = {alpha}: {expected:.1f} expected clusters among {n_rows} rows")
print(f"the expected number is 3 at α = {bnp.concentration_for(3, n_rows):.2f}")

# %% [markdown]
# ## The posterior under several priors
#
# We use two fixed concentrations and a Gamma(1, 1) hyperprior. The run with the hyperprior mixes more slowly, so it gets
# four times as many draws. JAX may print a harmless warning about donated buffers, because the chains run side by side.

# %%
settings = dict(
    num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, chain_method=jax.vmap, progress_bar=False
)
free = partial(dpm, component=component, concentration=dist.Gamma(1.0, 1.0))
runs = {
    "α = 1": MCMC(bnp.PartitionGibbs(model), **settings),
    "α = 5": MCMC(bnp.PartitionGibbs(partial(dpm, component=component, concentration=5.0)), **settings),
    "α ~ Gamma(1, 1)": MCMC(
        Gibbs([(bnp.PartitionGibbs(free), ["z"]), (NUTS(free), None)]), **settings | {"num_samples": 4 * num_samples}
    ),
}
for run in runs.values():
    run.run(jax.random.key(0), X)
draws = {name: np.asarray(run.get_samples(group_by_chain=True)["z"]) for name, run in runs.items()}
posterior = {name: bnp.number_of_clusters(z) for name, z in draws.items()}

# %%
summary = {}
for name, run in runs.items():
    summary[name] = {
        "mean": posterior[name] @ np.arange(len(posterior[name])),
        "most probable": posterior[name].argmax(),
        "its probability": posterior[name].max(),
        "in the point estimate": len(np.unique(bnp.point_estimate(draws[name]))),
    } | bnp.diagnostics(bnp.to_arviz(run, X)).loc["n_clusters", ["rhat", "ess_bulk"]].to_dict()
pd.DataFrame(summary).T.astype(float).round(2)

# %% [markdown]
# More concentrations come at no extra cost. The prior probability of a partition into K clusters is proportional to α
# to the power K, so the draws of one run at α, weighted by (α'/α)^K, give the posterior at another α'. Reweighting
# downwards from 1 to 0.2 is safe. Reweighting far upwards is not, because the result would depend on the few draws with
# the most clusters. Reweighting from 5 to 1 is a rough check of the run at 1.


# %%
def reweighted(probabilities, factor):
    weights = probabilities * factor ** np.arange(len(probabilities))
    return weights / weights.sum()


again = reweighted(posterior["α = 5"], 1 / 5)
print("mean number of clusters at α = 1:", end=" ")
print(f"{posterior['α = 1'] @ np.arange(len(posterior['α = 1'])):.2f} from its own run,", end=" ")
print(f"{again @ np.arange(len(again)):.2f} from the run at α = 5")

# %% [markdown]
# The next figure compares the prior (grey line) with the posterior (bars). If the data alone determined the number of
# clusters, the bars would be the same in every panel.

# %%
grid = stats.gamma(1.0).ppf(np.linspace(0.005, 0.995, 100))
panels_of = {
    "α = 0.2": (bnp.prior_clusters(0.2, n_rows), reweighted(posterior["α = 1"], 0.2)),
    "α = 1": (bnp.prior_clusters(1.0, n_rows), posterior["α = 1"]),
    "α = 5": (bnp.prior_clusters(5.0, n_rows), posterior["α = 5"]),
    "α ~ Gamma(1, 1)": (
        np.mean([bnp.prior_clusters(alpha, n_rows) for alpha in grid], axis=0),
        posterior["α ~ Gamma(1, 1)"],
    ),
}
figure, panels = plt.subplots(2, 2, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
for panel, (name, (before, after)) in zip(panels.flat, panels_of.items(), strict=True):
    panel.bar(np.arange(len(after)), after, color="C0", label="posterior")
    panel.plot(np.arange(1, 26), before[1:26], ".-", color="0.4", label="prior")
    panel.set(title=name, xlim=(0.3, 25))
panels[0, 1].legend()
figure.supxlabel("clusters")
figure.supylabel("probability")
plt.show()

# %% [markdown]
# The data rule out a single cluster and pull the posterior away from the prior. They do not override it, however: the
# number of clusters increases with α. The extra clusters are small ones, which the prior favours and the data do not
# rule out. At α = 1 the point estimate has fewer clusters than the posterior mode: small clusters come and go, and no
# particular set of them is shared by most draws.
#
# With a hyperprior, the answer is an average over the concentrations that suit the data. That is a sensible default,
# but it still depends on the prior: a different hyperprior gives a different average.

# %% [markdown]
# ## The tree, and how much its cut matters
#
# BHC returns one tree, cut where a merge has a probability below one half. But each merge has its own probability, and
# `sample_partitions` draws cuts of the tree accordingly.

# %%
bhc = bnp.BHC(model, progress_bar=False).fit(X)
figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
bnp.plots.dendrogram(bhc.dendrogram_, ax=axes)
plt.show()

# %%
cuts = {
    "BHC, this tree's cuts": bnp.number_of_clusters(bhc.sample_partitions(0, 2000)),
    "MCMC, all partitions": posterior["α = 1"],
}
print(f"cut at probability one half: {bhc.n_clusters_} clusters")
pd.DataFrame({name: pd.Series(p) for name, p in cuts.items()}).fillna(0).loc[1:].rename_axis("clusters").round(2)

# %% [markdown]
# The two distributions barely agree: the tree puts its weight on fewer clusters than MCMC does, and on a narrower
# range. A tree contains only partitions that are nested in it. The stray rows between the clusters can form small
# groups in many different ways, and any one tree contains only a few of them. The spread within a tree is a quick look
# at the uncertainty, and an optimistic one.

# %% [markdown]
# ## All rows: bounds and an estimate
#
# Beyond 16 rows the package does not compute the exact evidence, but the tree bounds still hold, and in two columns a
# particle filter (`smc`) estimates the evidence well. (`bnp.evidence.table(model, X)` would compute all of this, and more.)

# %%
bounds = {"one partition (MAP-DP)": bnp.MAPDP(model).fit(X).log_joint_}
bounds |= {
    f"tree ({kind})": float(bnp.evidence.tree_bound(bhc, kind)) for kind in ("bhc", "alternatives", "recursive", "pairs")
}
particles = bnp.evidence.smc(model, X, num_particles=num_particles, progress_bar=False)
many = pd.DataFrame({"value": bounds, "standard_error": np.nan, "kind": "lower bound"})
many.loc["particle filter"] = [particles.value, particles.standard_error, "estimate"]
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
bnp.plots.evidence_bounds(many.assign(target="DP mixture", verdict=""), ax=axes)
plt.show()
print(f"gap to the estimate: best partition {particles.value - bounds['one partition (MAP-DP)']:.1f} nats, best bound", end=" ")
print(f"{particles.value - bounds['tree (pairs)']:.1f} nats")
print(particles.verdict)

# %% [markdown]
# The best hard partition lies many nats below the estimate. The gap measures the weight of all other partitions: the
# posterior probability of the best one is e to the power of minus the gap. The number of clusters in any one partition
# is therefore that of just one among very many partitions that are about as good. The tree bounds are hardly better
# here, which repeats the comparison with MCMC, in nats.

# %% [markdown]
# ## Do predictions depend on it?
#
# The next table shows the leave-one-out predictive density, with the labels summed out (nats). If one number of
# clusters were right, priors that favour it should predict better.

# %%
with warnings.catch_warnings(record=True) as caught:
    ranking = bnp.compare_models(runs, X)
print(*(warning.message for warning in caught), sep="\n")
ranking[["elpd", "se", "elpd_diff", "dse", "mcse", "largest_k", "warning"]].round(2)

# %% [markdown]
# The densities differ by about one nat at most, summed over all rows, although the concentrations and the numbers of
# clusters differ a lot. A small extra cluster changes the density little. Predictions are robust to the choice of α,
# which is good news for prediction, and bad news for anyone who hopes to choose the number of clusters by predictive
# performance. The warning is about the Monte Carlo error `mcse`, less than a tenth of a nat, and not about the conclusion: a
# few draws have most of the weight of one row, whose Pareto k is above 0.7.

# %% [markdown]
# ## What more data would do: a warning
#
# One would like the posterior to settle on the true number as more rows are added. With a Dirichlet process this need
# not happen. Miller & Harrison (2013, 2014) prove, for mixtures such as this one with a fixed concentration, that the
# posterior number of clusters is **not consistent**: when the data come from a finite mixture, the posterior does not
# concentrate on its number of components.
#
# The simplest case is data from *one* normal with known variance, clustered with exactly that normal as the component
# and α = 1.

# %%
normal = bnp.NormalKnownCovariance(mean=np.zeros(1), prior_covariance=np.eye(1), covariance=np.eye(1))
one = partial(dpm, component=normal, concentration=1.0)
sample = np.random.default_rng(5).normal(size=(max(normal_rows), 1))
result = {}
for n in normal_rows:
    run = MCMC(bnp.PartitionGibbs(one), **settings)
    run.run(jax.random.key(2), sample[:n])
    z = run.get_samples()["z"]
    number = bnp.number_of_clusters(z)
    largest = np.mean([np.bincount(labels).max() / n for labels in np.asarray(z)])
    result[n] = {
        "P(1 cluster)": number[1],
        "mean number": number @ np.arange(len(number)),
        "prior mean": bnp.prior_clusters(1.0, n) @ np.arange(n + 1),
        "share of the largest": largest,
    }
pd.DataFrame(result).T.rename_axis("rows").round(2)

# %% [markdown]
# With sixteen times as many rows the posterior is no closer to the one true component: the probability of one cluster stays
# far from 1. The prior expects more and more clusters, and small extra clusters beside a large one cost almost nothing in
# likelihood.

# %% [markdown]
# ## What to conclude, and what not
#
# **Conclude:**
#
# - It is certain that these wines form several clusters, but uncertain how many. The posterior is a range, and the
#   range shifts with the concentration.
# - Report the prior next to the posterior, and the number of clusters under at least two concentrations. Put a
#   hyperprior on α.
# - Prefer questions with stable answers: does this pair belong together, how large are the big clusters, what is the
#   density here? It is mainly the small clusters that make the numbers differ.
# - Use bounds to see how much a partition or a tree leaves out, not to count clusters. A single partition, or a single
#   tree, may carry a tiny share of the posterior: with all rows, their bounds are eleven or twelve nats too low.
#
# **Do not conclude:**
#
# - That the posterior number of clusters estimates "the true number". With a fixed concentration it is not consistent,
#   even if the component is right. A prior on α can repair this in theory if the component is right (Ascolani et al.
#   2023). If the component is wrong, extra clusters compensate for it, and the number grows for that reason too. If you
#   believe in a finite number of clusters, put a prior on that number instead.
# - That the α with the best predictions has the right number of clusters.
#
# J. W. Miller and M. T. Harrison, "A simple example of Dirichlet process mixture inconsistency for the number of
# components", NIPS 2013; "Inconsistency of Pitman-Yor process mixtures for the number of components", JMLR 15, 2014. F.
# Ascolani, A. Lijoi, G. Rebaudo and G. Zanella, "Clustering consistency with Dirichlet process mixtures", Biometrika
# 110, 2023.

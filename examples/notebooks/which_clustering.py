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
# # Which clustering should I believe?
#
# One data set, one model and six ways to fit it: MCMC and five fast methods. Their results do not quite agree. This
# notebook shows how to see the differences, how to find out which of them matter, and which method to trust for which
# question.

# %%
# %matplotlib inline
from functools import partial

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS, Gibbs
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.models import dpm

# %% tags=["parameters"]
num_warmup = 500
num_samples = 1000
num_chains = 4
n_rows = 150

# %% [markdown]
# ## The data
#
# Fisher's iris data: four measurements of 150 flowers. The species are not used for fitting. They are the botanists'
# classification, which the measurements alone need not support.

# %%
data = bnp.datasets.load("iris")
flowers = np.sort(np.random.default_rng(0).permutation(len(data.X))[:n_rows])  # all of them, unless n_rows is reduced
X, names = data.X[flowers], data.classes[flowers]
bnp.plots.pairs(X[:, 2:], labels=np.zeros(len(X), int), feature_names=data.feature_names[2:])  # two of the four columns

# %% [markdown]
# ## One model
#
# A Dirichlet-process mixture of normals with full covariances and the package's default prior,
# `NormalInverseWishart.from_data`. The concentration has a prior too, so the number of clusters is inferred jointly with
# it. `check_model` returns no warnings.

# %%
model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=dist.Gamma(1.0, 1.0))
bnp.check_model(model, X, feature_names=data.feature_names)

# %% [markdown]
# ## Every method
#
# MCMC draws partitions from the posterior: `PartitionGibbs` updates the partition and NUTS the concentration. `jax.vmap`
# runs the chains side by side; JAX may then print a harmless warning about donated buffers. Each fast method returns one
# partition. BHC and the variational method also quantify its uncertainty.

# %%
kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), None)])
mcmc = MCMC(
    kernel,
    num_warmup=num_warmup,
    num_samples=num_samples,
    num_chains=num_chains,
    chain_method=jax.vmap,
    progress_bar=False,
)
mcmc.run(jax.random.key(0), X)

fast = {
    "MAP-DP": bnp.MAPDP(model),
    "k-means": bnp.BayesianKMeans(model),
    "agglom.": bnp.AgglomerativeBayesianClustering(model, progress_bar=False),
    "BHC": bnp.BHC(model, progress_bar=False),
    "VB": bnp.VariationalDP(model),
}
for estimator in fast.values():
    estimator.fit(X)

# %% [markdown]
# ## Do the chains agree?
#
# Check this first. Cluster labels have no meaning across draws, so look only at quantities that do not depend on them: the
# log joint density, the number of clusters, the size of the largest cluster, the entropy of the cluster sizes, and the
# concentration. R-hat should be near 1 (1.01 is the usual limit) and the effective sample sizes should be in the hundreds.

# %%
idata = bnp.to_arviz(mcmc, X, feature_names=data.feature_names)
bnp.diagnostics(idata).round(3)

# %% [markdown]
# The partition mixes far more slowly than the number of draws suggests: thousands of draws are worth hundreds of
# independent ones. The traces show why. The size of the largest cluster stays about the same for a while and then
# jumps, because two clusters merge or one splits. (The plot shows every fourth draw.)

# %%
posterior = idata["posterior"]
bnp.plots.traces({name: posterior[name].values[:, ::4] for name in ("n_clusters", "largest_cluster")})

# %% [markdown]
# In the rank plots, each chain's line should fluctuate around the dashed line. They roughly do: no chain is confined to
# one part of the space. Still, some of the R-hats are slightly above 1.01, and for a paper we would run this ten times
# longer. For the conclusions below the run is long enough, because they rest on large probabilities and not on their
# second digit.

# %%
bnp.plots.rank(idata)

# %% [markdown]
# ## All methods in one table
#
# `clusters` is the number of clusters in each method's partition. `log_joint_shared` is the log probability of the data
# and the partition together, in nats, at the same concentration for all methods. `evidence_bound` is a lower bound on the
# log evidence at each method's own concentration, and `ARI` is the agreement with the species.

# %%
table = bnp.compare({"MCMC": mcmc, **fast}, X, truth=names)
table[["clusters", "log_joint_shared", "evidence_bound", "ARI"]].astype(float).round(2)

# %% [markdown]
# MCMC's point estimate has three clusters, and every fast method finds two. Yet the log joints differ by less than one
# nat: as single partitions, two and three clusters are about equally probable. The number itself cannot settle it, and
# the highest log joint does not make a method the winner.

# %% [markdown]
# ## How far apart are the partitions?
#
# The adjusted Rand index is 1 for identical partitions and about 0 for unrelated ones.

# %%
draws = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])
estimate = bnp.point_estimate(draws, loss="vi")
partitions = {"MCMC": estimate} | {name: estimator.labels_ for name, estimator in fast.items()}
rand = [[adjusted_rand_score(a, b) for b in partitions.values()] for a in partitions.values()]
pd.DataFrame(rand, partitions, partitions).round(2)

# %% [markdown]
# The fast methods agree with one another exactly. How do their clusters relate to those of MCMC? The next table
# cross-tabulates the clusters with the species.

# %%
pd.concat(
    {method: pd.crosstab(labels, names, colnames=["species"]) for method, labels in partitions.items()},
    names=["method", "cluster"],
)

# %% [markdown]
# Every method separates setosa. The fast methods keep versicolor and virginica together; MCMC's point estimate divides
# them, nearly as the botanists do.

# %% [markdown]
# ## What the posterior says
#
# MCMC does not have to choose. First, the number of clusters. BHC gives a distribution over it too: its tree contains many
# partitions, from which we can sample.

# %%
number = {"MCMC": draws, "BHC's tree": fast["BHC"].sample_partitions(0, 2000)}
number = pd.DataFrame({name: pd.Series(bnp.number_of_clusters(z)) for name, z in number.items()}).fillna(0.0)
number.loc[2:].rename_axis("clusters").round(2)

# %% [markdown]
# Three clusters have a probability of about 60%, four of a quarter and two of a tenth. BHC's tree leans to
# two: it contains fewer of the many ways to divide the second group, whose probabilities add up.
#
# Next, how often two flowers share a cluster. Dark squares are clusters beyond doubt; the pale off-diagonal blocks are
# draws in which versicolor and virginica are one cluster.

# %%
together = bnp.coclustering(draws)
figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
bnp.plots.coclustering(together, labels=estimate, ax=axes)
plt.show()

# %% [markdown]
# ## A point estimate with its credible ball
#
# The point estimate is the partition closest on average to all draws, measured by the variation of information (VI, in
# nats). The ball around it contains 95% of the posterior. Its bounds are partitions at the edge of the ball: the coarsest,
# the finest and the most distant one.

# %%
ball = bnp.credible_ball(draws, estimate)
sizes = {"estimate": estimate, "coarsest": ball.upper[0], "finest": ball.lower[0], "farthest": ball.horizontal[0]}
print(f"radius {ball.radius:.2f} nats; the maximum for {len(X)} flowers is {np.log(len(X)):.2f}")
for name, labels in sizes.items():
    print(f"{name:9}", *sorted(np.bincount(labels)[np.unique(labels)], reverse=True))

# %% [markdown]
# Read it like an interval. At the coarse end there are two clusters; at the fine end the three clusters lose a few
# flowers to smaller ones. These data do not settle any statement that is true of some of these partitions and false of
# others.
#
# Now put the fast methods on the same scale: their distance from the point estimate (`VI to MCMC`), and their mean
# distance from all draws (`expected VI`), which the point estimate minimises.


# %%
def distance(draws, labels):
    return bnp.assignment_uncertainty(draws, labels).sum()


rows = {
    name: {"VI to MCMC": distance(estimate[None], labels), "expected VI": distance(draws, labels)}
    for name, labels in partitions.items()
}
scale = pd.DataFrame(rows).T
scale["in the ball"] = scale["VI to MCMC"] <= ball.radius
scale.round(3)

# %% [markdown]
# The partition of the fast methods lies inside the ball: with two clusters it is not wrong, only farther from most draws
# than the point estimate. What a single partition does not provide is the ball.

# %% [markdown]
# ## Which flowers are in doubt?
#
# `membership_probabilities` is the probability that a flower belongs to each cluster of the point estimate. What is missing
# from 1 is that of belonging to none of them, as in draws that split its cluster.

# %%
others = bnp.membership_probabilities(draws, estimate)
rows = np.arange(len(X))
own = others[rows, estimate]
others[rows, estimate] = 0.0
listing = pd.DataFrame(
    {
        "flower": flowers,
        "species": names,
        "cluster": estimate,
        "probability": own,
        "alternative": others.argmax(1),
        "of the alternative": others.max(1),
    }
)
certain = own >= 0.9
print(f"certain: {certain.sum()} flowers, of which setosa: {(certain & (names == 'setosa')).sum()}")
listing.loc[np.argsort(own)[:8]].round(2)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.scatter(X[:, 2], X[:, 3], c=estimate, s=25, cmap="Set1", vmin=0, vmax=8)
left.set(title="point estimate", xlabel=data.feature_names[2], ylabel=data.feature_names[3])
doubt = 1.0 - own
points = right.scatter(X[:, 2], X[:, 3], c=doubt, s=15 + 100 * doubt, cmap="viridis_r", vmin=0.0)
right.set(title="doubt (1 − probability)", xlabel=data.feature_names[2])
figure.colorbar(points, ax=right)
plt.show()

# %% [markdown]
# There is no doubt about setosa. About half of the other hundred flowers are in doubt. First in the table are some on the
# border between versicolor and virginica; the next ones have no good alternative: many draws separate them from the other
# virginica, into a cluster that the point estimate does not have. The responsibilities of the variational method show no
# doubt at all, because they are conditional on one arrangement of the clusters:

# %%
soft = fast["VB"].responsibilities_.max(1)
print(f"uncertain (below 0.9): {(soft < 0.9).sum()} flowers by VB's responsibilities,", end=" ")
print(f"{(~certain).sum()} by MCMC")

# %% [markdown]
# ## New flowers
#
# `cluster_probabilities` assigns new flowers to the clusters of the point estimate. It averages over draws, each weighted by
# the density that it predicts for the flower, so that uncertainty about the clusters is included. The last column is the
# probability of a new cluster. Here are five hypothetical flowers on the way from the mean of versicolor to the mean of
# virginica.

# %%
from_, to = (X[names == species].mean(0) for species in ("versicolor", "virginica"))
steps = np.linspace(0.0, 1.0, 5)
probabilities = bnp.cluster_probabilities(mcmc, X, estimate, from_ + steps[:, None] * (to - from_))
clusters = [f"cluster {k}" for k in range(estimate.max() + 1)] + ["a new cluster"]
pd.DataFrame(probabilities, index=steps, columns=clusters).rename_axis("step").round(2)

# %% [markdown]
# The probabilities pass from one cluster to the other without ever reaching 0 or 1: that is the uncertainty about whether
# there are two clusters here at all.

# %% [markdown]
# ## What to conclude, and what not
#
# **Conclude:**
#
# - **What all methods and nearly all draws share.** Setosa is a cluster.
# - **What is open.** Whether the others are one cluster or two, or more: three clusters in all have a probability of about
#   60%, four of a quarter and two of a tenth. The fast methods, which return one partition, merge the other two species.
# - **For uncertainty, believe MCMC**: the number of clusters, co-clustering and credible balls. But check R-hat and the
#   effective sample sizes first; the latter are far smaller than the number of draws.
# - **Use MAP-DP, Bayesian k-means or agglomerative clustering** when you need one good partition quickly. Here
#   they agree with one another, and still differ from the point estimate of MCMC: run MCMC before you rely on a number.
# - **Use BHC** when you want a tree, a bound on the evidence, or some measure of uncertainty without running chains.
#   **Use the variational method** when you want responsibilities, which leave out the uncertainty about the clusters
#   themselves.
#
# **Do not conclude:**
#
# - **That the clusters are the species.** Three clusters are close to them here (adjusted Rand index 0.9), but two and
#   four are not excluded, and the measurements know nothing of botany.
# - **That five methods outvote one.** The fast methods look for the same thing, one probable partition, so their agreement
#   is no evidence against the posterior.
# - **That six methods in agreement validate the model.** All six share one likelihood and one prior.
#   `bnp.compare_models` compares other models.

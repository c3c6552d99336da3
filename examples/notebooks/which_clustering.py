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

plt.rcParams["figure.dpi"] = 72

# %% tags=["parameters"]
num_warmup = 500
num_samples = 1000
num_chains = 4
n_rows = 120

# %% [markdown]
# ## The data
#
# Fisher's iris data: four measurements of 150 flowers. We cluster 120 of them and hold out the other 30 from every
# method, to score predictions. The species are not used for fitting. They are the botanists' classification, which the
# measurements alone need not support.

# %%
data = bnp.datasets.load("iris")
order = np.random.default_rng(0).permutation(len(data.X))
train, test = np.sort(order[-n_rows:]), np.sort(order[:-n_rows])
X, Y, species = data.X[train], data.X[test], data.y[train]
bnp.plots.pairs(X[:, 2:], labels=np.zeros(len(X), int), feature_names=data.feature_names[2:])  # two of the four columns

# %% [markdown]
# ## One model
#
# A Dirichlet-process mixture of normals with full covariances and the package's default prior,
# `NormalInverseWishart.from_data`. The concentration has a prior too, so the number of clusters is inferred jointly with
# it. `check_model` returns no warnings.

# %%
model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X), concentration=dist.Gamma(1.0, 1.0))
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
# one part of the space. Still, three of the five R-hats are slightly above 1.01, and for a paper we would run this ten
# times longer. For the conclusions below the run is long enough, because they rest on large probabilities and not on
# their second digit.

# %%
bnp.plots.rank(idata)

# %% [markdown]
# ## All methods in one table
#
# `clusters` is the number of clusters in each method's partition. `log_joint` is the log probability of the data and the
# partition together, in nats. (For MCMC it is evaluated at the posterior median of the concentration, for the other methods
# at the prior median, so identical partitions can differ a little.) `evidence_bound` is a lower bound on the log evidence,
# `held_out` is the mean log predictive density of a held-out flower with its standard error, and `ARI` is the agreement
# with the species.

# %%
table = bnp.compare({"MCMC": mcmc, **fast}, X, held_out=Y, truth=species)
table[["clusters", "log_joint", "evidence_bound", "held_out", "held_out_se", "ARI"]].astype(float).round(2)

# %% [markdown]
# The methods report two or three clusters. Their log joints lie within 1.2 nats of each other, which is next to
# nothing: the next flower alone costs about two nats. The held-out densities differ by less than half of their standard
# error. So neither number shows which partition is right, and the highest log joint does not make a method the winner.

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
# All partitions are similar, and they fall into two groups. Which flowers make the difference? The next table
# cross-tabulates each method's clusters with the species.

# %%
names = np.array(["setosa", "versicolor", "virginica"])[species]
pd.concat(
    {method: pd.crosstab(labels, names, colnames=["species"]) for method, labels in partitions.items()},
    names=["method", "cluster"],
)

# %% [markdown]
# Every method separates setosa, and every method merges nearly all of versicolor and virginica into one large cluster. The
# two groups of methods differ in a handful of flowers, which either form a small cluster of their own or belong to the
# large one.

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
# Next, how often two flowers share a cluster. Dark squares are clusters beyond doubt; pale stripes are flowers that change
# cluster from draw to draw.

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
# Read it like an interval. At the coarse end there are two clusters; at the fine end the large cluster is broken up.
# These data do not settle any statement that is true of some of these partitions and false of others.
#
# Now put the fast methods on the same scale: their distance from the point estimate (`VI to MCMC`), and their mean
# distance from all draws (`expected VI`), which the point estimate minimises.


# %%
def distance(draws, labels):
    return bnp.assignment_uncertainty(draws, labels).expected_loss.sum()


rows = {
    name: {"VI to MCMC": distance(estimate[None], labels), "expected VI": distance(draws, labels)}
    for name, labels in partitions.items()
}
scale = pd.DataFrame(rows).T
scale["in the ball"] = scale["VI to MCMC"] <= ball.radius
scale.round(3)

# %% [markdown]
# Every fast partition lies inside the ball: none is wrong, and each of them is a fair summary. What a single partition
# does not provide is the ball.

# %% [markdown]
# ## Which flowers are in doubt?
#
# `assignment_uncertainty` divides the expected loss among the flowers. A flower's co-clustering is the mean probability
# that it shares a cluster with the other members of its cluster: 1 is certain.

# %%
doubt = bnp.assignment_uncertainty(draws, estimate)
listing = pd.DataFrame(
    {
        "flower": train,
        "cluster": estimate,
        "species": names,
        "co-clustering": doubt.coclustering,
        "share of loss": doubt.expected_loss / doubt.expected_loss.sum(),
    }
)
listing.sort_values("share of loss", ascending=False).head(8).round(2)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.scatter(X[:, 2], X[:, 3], c=estimate, s=25, cmap="Set1", vmin=0, vmax=8)
left.set(title="point estimate", xlabel=data.feature_names[2], ylabel=data.feature_names[3])
uncertain = np.nan_to_num(1.0 - doubt.coclustering, nan=1.0)
points = right.scatter(X[:, 2], X[:, 3], c=uncertain, s=15 + 150 * uncertain, cmap="viridis_r", vmin=0.0)
right.set(title="doubt (1 − co-clustering)", xlabel=data.feature_names[2])
figure.colorbar(points, ax=right)
plt.show()

# %% [markdown]
# The uncertain flowers are in the large cluster and next to it. There is almost no doubt about setosa. The table lists
# the flowers that deserve a second look. The responsibilities of the variational method show far less doubt, because
# they are conditional on one arrangement of the clusters:

# %%
soft = fast["VB"].responsibilities_.max(1)
print(f"uncertain (below 0.9): {(soft < 0.9).sum()} flowers by VB's responsibilities,", end=" ")
print(f"{(np.nan_to_num(doubt.coclustering) < 0.9).sum()} by MCMC's co-clustering")

# %% [markdown]
# ## New flowers
#
# `cluster_probabilities` assigns the held-out flowers to the clusters of the point estimate. It averages over draws, so
# that uncertainty about the clusters is included. The last column is the probability of a new cluster.

# %%
probabilities = bnp.cluster_probabilities(mcmc, X, estimate, Y)
certain = probabilities.max(1)
print(f"{(certain > 0.9).sum()} of {len(Y)} held-out flowers are assigned to one cluster with a probability above 0.9")
clusters = [f"cluster {k}" for k in range(estimate.max() + 1)] + ["a new cluster"]
pd.DataFrame(probabilities[np.argsort(certain)[:5]], columns=clusters).round(2)

# %% [markdown]
# ## What to conclude, and what not
#
# **Conclude:**
#
# - **What all methods and nearly all draws share.** Setosa is a cluster, and this model with this prior does not
#   separate versicolor from virginica. With all 150 flowers the result is the same: MAP-DP and BHC both find two
#   clusters, and in the MCMC posterior three clusters have a probability of about 0.6, with two to five possible.
# - **For uncertainty, believe MCMC**: the number of clusters, co-clustering and credible balls. But check R-hat and the
#   effective sample sizes first; the latter are far smaller than the number of draws.
# - **Use MAP-DP, Bayesian k-means or agglomerative clustering** when you need one good partition quickly. Here they
#   agree with MCMC on all but a few flowers and predict as well. Where they disagree with one another, run MCMC.
# - **Use BHC** when you want a tree, a bound on the evidence, or some measure of uncertainty without running chains.
#   **Use the variational method** when you want responsibilities, which leave out the uncertainty about the clusters
#   themselves.
#
# **Do not conclude:**
#
# - **That three clusters are the three species.** The third cluster, where there is one, is a handful of virginica
#   flowers. The adjusted Rand index with the species is far below 1 for every method.
# - **That a small cluster exists because one method reports it.** Log joints within a nat or two of each other are a
#   tie. Check in the posterior how often these flowers are separated from the rest.
# - **That six methods in agreement validate the model.** All six share one likelihood and one prior.
#   `bnp.compare_models` compares other models.

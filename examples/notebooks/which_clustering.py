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
# One data set, one model, and six ways to fit it: MCMC, and five fast methods. They do not quite agree. This notebook shows
# how to see that, how to find out which differences matter, and which method to trust for which question.

# %%
# %matplotlib inline
import warnings

warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm, of bars that are off here
warnings.filterwarnings("ignore", message="Some donated buffers")  # JAX, of chains that run side by side

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
# Fisher's iris: four measurements of 150 flowers. 120 of them are clustered; the other 30 are kept from every method, to score
# predictions. The species are not used for fitting. They are the botanists' answer, which need not be what the measurements
# alone support.

# %%
data = bnp.datasets.load("iris")
order = np.random.default_rng(0).permutation(len(data.X))
train, test = np.sort(order[-n_rows:]), np.sort(order[:-n_rows])
X, Y, species = data.X[train], data.X[test], data.y[train]
bnp.plots.pairs(X[:, 2:], labels=np.zeros(len(X), int), feature_names=data.feature_names[2:])  # two of the four columns

# %% [markdown]
# ## One model
#
# A Dirichlet-process mixture of normals of any covariance. The concentration has a prior, so that the number of clusters is
# found along with it. `check_model` has no complaint.

# %%
model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X), concentration=dist.Gamma(1.0, 1.0))
bnp.check_model(model, X, feature_names=data.feature_names)

# %% [markdown]
# ## Every method
#
# MCMC draws partitions from the posterior: `PartitionGibbs` moves the flowers, NUTS the concentration. `jax.vmap` runs the
# chains side by side. The fast methods each hand back one partition; BHC and the variational method also say how sure they are.

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
# Ask this before anything else. Cluster numbers mean nothing across draws, so look only at what does not depend on them: the
# log joint density, the number of clusters, the size of the largest, the entropy of the sizes, and the concentration. R-hat
# should be near 1 (1.01 is the usual limit) and the effective sample sizes in the hundreds.

# %%
idata = bnp.to_arviz(mcmc, X, feature_names=data.feature_names)
bnp.diagnostics(idata).round(3)

# %% [markdown]
# The partition mixes far more slowly than the number of draws suggests: thousands of draws are worth hundreds. The traces
# show why. A chain sits at one size of the largest cluster for a while and then jumps: two clusters merge, or one splits.
# (Every fourth draw is drawn.)

# %%
posterior = idata["posterior"]
bnp.plots.traces({name: posterior[name].values[:, ::4] for name in ("n_clusters", "largest_cluster")})

# %% [markdown]
# In the rank plots every chain's line should wander about the dashed one. They do, more or less: no chain has a part of the
# space to itself. For a paper we would run this ten times longer; for the conclusions below it is enough, because they rest
# on large probabilities and not on the second digit.

# %%
bnp.plots.rank(idata)

# %% [markdown]
# ## All methods in one table
#
# `clusters` is the number in each method's partition. `log_joint` is the log probability of data and partition together, in
# nats: what the fast methods climb. (For MCMC it is taken at the posterior median of the concentration, for the others at the
# prior median: equal partitions differ a little.) `held_out` is the log predictive density of a kept flower.

# %%
table = bnp.compare({"MCMC": mcmc, **fast}, X, held_out=Y, truth=species)
table[["clusters", "log_joint", "evidence_bound", "held_out", "held_out_se", "ARI"]].astype(float).round(2)

# %% [markdown]
# The methods report two clusters or three. Their log joints lie within about two nats: on a scale where the next flower alone
# costs two nats, that is next to nothing. The held-out densities differ by less than half of their standard error. So neither
# number can say which partition is right, and a method that reports the highest log joint has not won anything.

# %% [markdown]
# ## How far apart are the partitions?
#
# The adjusted Rand index is 1 for equal partitions and about 0 for unrelated ones.

# %%
draws = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])
estimate = bnp.point_estimate(draws, loss="vi")
partitions = {"MCMC": estimate} | {name: estimator.labels_ for name, estimator in fast.items()}
rand = [[adjusted_rand_score(a, b) for b in partitions.values()] for a in partitions.values()]
pd.DataFrame(rand, partitions, partitions).round(2)

# %% [markdown]
# All are close, and they fall into two camps. Which flowers make the difference? This is each method's clusters against the
# species.

# %%
names = np.array(["setosa", "versicolor", "virginica"])[species]
pd.concat(
    {method: pd.crosstab(labels, names, colnames=["species"]) for method, labels in partitions.items()},
    names=["method", "cluster"],
)

# %% [markdown]
# Setosa stands alone in every method. The other two species are one large cluster in all of them. The camps differ in a
# handful of flowers that are either a small cluster of their own or part of the large one.

# %% [markdown]
# ## What the posterior says
#
# MCMC does not have to choose. First the number of clusters. BHC has an opinion on it, too: its tree holds many partitions,
# which can be drawn.

# %%
number = {"MCMC": draws, "BHC's tree": fast["BHC"].sample_partitions(0, 2000)}
number = pd.DataFrame({name: pd.Series(bnp.number_of_clusters(z)) for name, z in number.items()}).fillna(0.0)
number.loc[2:].rename_axis("clusters").round(2)

# %% [markdown]
# Then how often two flowers share a cluster. Dark squares are clusters beyond doubt; the pale stripes belong to flowers that
# come and go.

# %%
together = bnp.coclustering(draws)
figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
bnp.plots.coclustering(together, labels=estimate, ax=axes)
plt.show()

# %% [markdown]
# ## A point estimate, with its credible ball
#
# The point estimate is the partition nearest to all draws, in variation of information (VI, nats). The ball around it holds
# 95 % of the posterior. Its bounds are partitions on the rim: the coarsest, the finest, and the farthest.

# %%
ball = bnp.credible_ball(draws, estimate)
sizes = {"estimate": estimate, "coarsest": ball.upper[0], "finest": ball.lower[0], "farthest": ball.horizontal[0]}
print(f"radius {ball.radius:.2f} nats; the most that is possible for {len(X)} flowers is {np.log(len(X)):.2f}")
for name, labels in sizes.items():
    print(f"{name:9}", *sorted(np.bincount(labels)[np.unique(labels)], reverse=True))

# %% [markdown]
# Read it like an interval. At the coarse end there are two clusters, at the fine end the large cluster is broken up. Any
# sentence that is true of some of these partitions and false of others is not settled by these data.
#
# Now put the fast methods on the same scale: their distance from the point estimate (`VI to MCMC`), and their mean distance
# from all draws (`expected VI`), which the point estimate makes as small as possible.


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
# Every fast partition lies inside the ball: none is wrong, and any of them is a fair summary. What they lack is the ball.

# %% [markdown]
# ## Which flowers are in doubt?
#
# `assignment_uncertainty` splits the expected loss among the flowers. A flower's co-clustering is the mean probability with
# which it shares a cluster with the others of its cluster: 1 is certain.

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
# The doubt sits in the large cluster and beside it. Setosa has next to none. The listing names the flowers to look at again.
# The soft assignments of VB know of far less doubt, as they belong to one arrangement of the clusters:

# %%
soft = fast["VB"].responsibilities_.max(1)
print(f"below 0.9: {(soft < 0.9).sum()} flowers by VB's soft assignments,", end=" ")
print(f"{(np.nan_to_num(doubt.coclustering) < 0.9).sum()} by MCMC's co-clustering")

# %% [markdown]
# ## New flowers
#
# `cluster_probabilities` places the kept flowers in the clusters of the estimate, averaged over draws, so that doubt about
# the clusters counts too. The last column is a cluster of their own.

# %%
probabilities = bnp.cluster_probabilities(mcmc, X, estimate, Y)
certain = probabilities.max(1)
print(f"{(certain > 0.9).sum()} of {len(Y)} kept flowers are placed with a probability above 0.9")
clusters = [f"cluster {k}" for k in range(estimate.max() + 1)] + ["a new one"]
pd.DataFrame(probabilities[np.argsort(certain)[:5]], columns=clusters).round(2)

# %% [markdown]
# ## What to believe, and when
#
# - **Believe what all methods and nearly all draws share**: setosa is a cluster; versicolor and virginica are not told apart
#   by this model with this prior. "Three clusters" here does *not* mean the three species, as the adjusted Rand index with
#   the species shows: it is far below 1 for every method.
# - **Do not believe a small cluster because one method reports it.** Log joints within two nats are a draw. Ask the posterior
#   how often those flowers part from the rest.
# - **MCMC** is the one to believe on uncertainty: numbers of clusters, co-clustering, credible balls. But only after R-hat
#   and effective sample sizes, which are far smaller than the number of draws.
# - **BHC** when you want a tree, or a bound on the evidence, or some uncertainty without chains. **VB** when you want soft
#   assignments; they leave out the doubt about the clusters themselves.
# - **MAP-DP, Bayesian k-means, agglomerative** when you need one good partition fast. They agree with MCMC here on all but a
#   few flowers, and they predict as well. Where they disagree with one another, that is the hint to run MCMC.
# - No method can repair the model. All six share one likelihood and one prior; `bnp.compare_models` compares others.

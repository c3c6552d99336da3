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
# # A tree with uncertainty
#
# **Question.** Which animals belong together, at which level of detail, and how sure can we be?
#
# A tree is easy to draw and easy to believe. Here two Bayesian methods build trees from the same table of 33 animals, and
# we ask how well the data support each of them:
#
# - **BHC** (Bayesian hierarchical clustering) builds one binary tree in seconds. Each merge has posterior odds.
# - **BHMC** (a Bayesian hierarchical mixture) draws whole trees from their posterior by Gibbs sampling.

# %% tags=["parameters"]
num_warmup = 500
num_samples = 1000
num_chains = 4
num_partitions = 2000

# %%
# %matplotlib inline
from collections import Counter
from functools import partial

import jax
import numpy as np
import pandas as pd
from numpyro.infer import MCMC
from scipy.cluster.hierarchy import cophenet
from scipy.spatial.distance import squareform

import bnp_hier as bnp
from bnp_hier.models import bhmc, dpm

# %% [markdown]
# ## The data
#
# The table has 33 animals and 102 features that an animal has (1) or does not have (0), such as "lives in water". It is
# included in the package.

# %%
data = bnp.datasets.load("animals33")
X, names = data.X, list(data.item_names)
print(f"{X.shape[0]} items, {X.shape[1]} features of 0 and 1")

# %% [markdown]
# ## BHC: one tree, with the odds of every merge
#
# The model is a Dirichlet-process mixture in which each cluster has a probability for each feature (`BetaBernoulli`).

# %%
bits = partial(dpm, component=bnp.BetaBernoulli.from_data(X, learn=False), concentration=1.0)
bhc = bnp.BHC(bits, progress_bar=False).fit(X)
for cluster in range(bhc.n_clusters_):
    print(f"{cluster}: " + ", ".join(names[item] for item in np.flatnonzero(bhc.labels_ == cluster)))

# %% [markdown]
# The tree is cut where a merge has less than even odds. The numbers are log odds, in nats, that all items under a node
# form one cluster rather than being split as the tree shows; 0 means even odds, and 3 about 20 to 1. Merges above the
# cut are dashed and grey.

# %%
axes = bnp.plots.dendrogram(bhc.dendrogram_, names=names, annotate=10)
axes.get_figure()

# %% [markdown]
# ### How uncertain is the cut?
#
# Almost all merges are clear-cut: their log odds are far from 0. The few others determine the number of clusters, so
# look at them one by one.

# %%
tree = bhc.dendrogram_
clusters_below = {item: {item} for item in range(tree.n_items)}
for merge, (left, right) in enumerate(tree.children.tolist()):
    clusters_below[tree.n_items + merge] = clusters_below[left] | clusters_below[right]
for merge in np.flatnonzero(np.abs(tree.log_odds) < 4):
    sides = [", ".join(names[item] for item in sorted(clusters_below[child])) for child in tree.children[merge].tolist()]
    print(f"probability {tree.probabilities[merge]:.2f}: {sides[0]}  +  {sides[1]}")

# %% [markdown]
# The tree represents all partitions that it can be cut into, and each of them has a posterior probability. Samples of
# these partitions show how many clusters there may be, and which animals are hardest to place.

# %%
partitions = bhc.sample_partitions(0, num_partitions)
for number, probability in enumerate(bnp.number_of_clusters(partitions)):
    if probability > 0.005:
        print(f"{number} clusters: probability {probability:.2f}")
loss = pd.Series(bnp.assignment_uncertainty(partitions, bhc.labels_), names)
(loss / loss.sum()).nlargest(5).round(2).to_frame("share of the uncertainty")

# %% [markdown]
# ### Partitions that the tree cannot produce
#
# A binary tree restricts which items can form a cluster. `tree_bound` enlarges the set of partitions: it lets branches
# move ("alternatives", "recursive"), or lets any two disjoint nodes form a cluster ("pairs"). All numbers are lower
# bounds on the log evidence, so the largest is the best. The gain of such a bound is probability mass that the plain
# tree misses.

# %%
bounds = {kind: bnp.evidence.tree_bound(bhc, kind) for kind in ("bhc", "alternatives", "recursive", "pairs")}
table = pd.DataFrame({"lower bound (nats)": bounds}).astype(float)
table["mass relative to pairs"] = np.exp(table.iloc[:, 0] - float(bounds["pairs"]))
table.round(2)

# %% [markdown]
# The tree's own partitions carry about half of the mass that "pairs" finds. No lower bound can show how much both of
# them miss. Uncertainty computed from the tree alone is therefore too small. These are the pairs of items whose
# probability of sharing a cluster changes most:

# %%
by_tree, by_pairs = bhc.coclustering(), bounds["pairs"].coclustering()
rows, columns = np.triu_indices(len(names), 1)
largest = np.argsort(-np.abs(by_pairs - by_tree)[rows, columns])[:6]
for a, b in zip(rows[largest], columns[largest], strict=True):
    print(f"{names[a]} and {names[b]}: {by_tree[a, b]:.2f} by the tree, {by_pairs[a, b]:.2f} by pairs")

# %%
axes = bnp.plots.coclustering(by_pairs, labels=bhc.labels_)
for axis in (axes.xaxis, axes.yaxis):
    axis.set_ticks(axis.get_ticklocs(), [names[int(tick.get_text())] for tick in axis.get_ticklabels()])
axes.get_figure()

# %% [markdown]
# ## BHMC: many trees
#
# BHMC samples trees with three levels and any number of branches. Following Huang et al. (2021), the items are
# described by seven principal components. The components of the mixture are normal with a known variance and are shared
# by all nodes of the tree. Four chains start from different points.

# %%
Z = bnp.datasets.principal_components(X, 7)
normal = bnp.NormalKnownCovariance(np.zeros(7), np.eye(7), np.eye(7))
hierarchical = partial(
    bhmc,
    depth=3,
    component=normal,
    concentration=0.4,
    root_concentration=1.0,
    mixing_concentration=0.5,
    max_components=20,
    max_nodes=128,
)
mcmc = MCMC(
    bnp.BHMCGibbs(hierarchical),
    num_warmup=num_warmup,
    num_samples=num_samples,
    num_chains=num_chains,
    chain_method="vectorized",
    progress_bar=False,
)
mcmc.run(jax.random.key(0), Z)

# %% [markdown]
# Node labels have no meaning across draws, so the diagnostics use quantities that do not depend on them. R-hat near 1 means
# that the chains agree on *these* quantities; this is necessary, but not sufficient, for agreement about trees. Some values
# are slightly above 1.01, the usual limit, so do not rely on the second digit of what follows.

# %%
bnp.diagnostics(bnp.to_arviz(mcmc, Z)).round(3)

# %%
draws = bnp.hierarchy_draws(mcmc, Z)
bnp.plots.traces({name: draws.summaries()[name] for name in ["n_nodes"]})

# %% [markdown]
# ### One tree to represent them all
#
# `medoid` returns the draw whose levels are, on average, closest to those of all draws. The number next to a node is its
# support: the share of draws that have a node with exactly these items.

# %%
best = draws.medoid()
central = draws[best]
support = draws.support(central)
bnp.plots.hierarchy(central, names=names, support=support).get_figure()

# %% [markdown]
# Most supports are small. Even the medoid is only one of very many trees, and most of its nodes rarely appear with
# exactly these items. A better question is which groups of animals appear most often, whatever the rest of the tree
# looks like.

# %%
chains, length = draws.shape
kept = [(chain, draw) for chain in range(chains) for draw in range(0, length, max(1, length // 250))]
clades = Counter(clade for draw in kept for clade in draws[draw].clades() if 1 < len(clade) < len(names))
for clade, count in clades.most_common(8):
    print(f"{count / len(kept):.2f}  " + ", ".join(names[item] for item in sorted(clade)))

# %% [markdown]
# The insects, the birds and the predators head the list, but none of these groups appears with exactly these members in
# half of the draws. The criterion is strict: a group with one animal more or one less does not count. Co-clustering at
# a level asks the same question about pairs: it is the share of draws in which two animals are under the same node.
# Summed over the levels, it measures how far down the tree they stay together.

# %%
shared_levels = sum(draws.coclustering(level) for level in range(1, draws.sites.depth + 1))
for a, b in (np.array(np.triu_indices(len(names), 1)).T)[np.argsort(-shared_levels[rows, columns])[:5]]:
    print(f"{names[a]} and {names[b]}: {shared_levels[a, b]:.1f} of {draws.sites.depth} levels shared, on average")

# %% [markdown]
# ## Do the two trees agree?
#
# BHC saw the features, BHMC seven principal components. To separate the effect of the method from that of the description,
# we also run BHC on the components, with the same likelihood as BHMC.

# %%
bhc_components = bnp.BHC(partial(dpm, component=normal, concentration=1.0), progress_bar=False).fit(Z)


def merge_heights(dendrogram):
    """Height at which each pair of items meets: the nats lost by calling all items below it one cluster."""
    return cophenet(dendrogram.to_linkage())


distances = {
    "BHC of features": merge_heights(bhc.dendrogram_),
    "BHC of components": merge_heights(bhc_components.dendrogram_),
    "BHMC": -squareform(shared_levels, checks=False),
}
pd.DataFrame(distances).corr("spearman").round(2)

# %% [markdown]
# The rank correlations compare how late two animals meet in a BHC tree with how few levels they share in the draws of
# BHMC. The correlation between the two methods is clearly positive and hardly depends on which description BHC used:
# where the trees differ, the reason is the method.
#
# The next figure compares the trees level by level: BHC's tree is cut into as many clusters as the medoid tree has at
# that level. The scores with shuffled names show what the numbers of clusters alone would give.

# %%
counts = [len(np.unique(central.labels_at(level))) for level in range(1, central.depth + 1)]
cut = {
    "BHC of features": bhc.dendrogram_.to_hierarchy(counts),
    "BHC of components": bhc_components.dendrogram_.to_hierarchy(counts),
    "names shuffled": bnp.Hierarchy(central.paths[np.random.default_rng(0).permutation(len(names))]),
}
bnp.plots.level_scores({title: each.scores(central.paths.tolist())[["NMI", "ARI"]] for title, each in cut.items()})

# %% [markdown]
# ## What to conclude, and what not
#
# **Conclude:**
#
# - Insects, birds, predators, and hoofed animals with apes form groups, whichever method and description is used. The
#   two trees agree far better than chance about which animals belong together.
# - BHC finds eight clusters, perhaps seven: the fish may belong with the sea animals.
# - The penguin is between the birds and the seals. According to the tree alone, it certainly belongs with the seals;
#   over a larger set of partitions, it is almost as likely to belong with the birds. This one item shows how much a
#   single binary tree understates the uncertainty.
#
# **Do not conclude:**
#
# - "This is *the* tree." Its nodes have posterior probabilities below one half, and most of them far below. Report
#   these probabilities with the tree.
# - "Eight clusters have a probability of two thirds." This holds among the partitions of one tree, for one model, at
#   one concentration.
# - "R-hat is near 1, so the tree is right." R-hat measures how well the chains explored the posterior of the model.
#   With 1,000 items instead of 33 it matters even more, because the chains then often disagree.
# - Anything about descent. The tree is built from 102 features that people chose to record.

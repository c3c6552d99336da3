"""Plots the figure of the README: iris by Gibbs sampling and by Bayesian hierarchical clustering."""

import argparse
from functools import partial
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
from matplotlib.figure import Figure
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.models import dpm
from bnp_hier.plots.palette import cluster_colors

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--num-warmup", type=int, default=500)
parser.add_argument("--num-samples", type=int, default=1000)
parser.add_argument("--out", type=Path, default=Path(__file__).with_name("iris.png"))
options = parser.parse_args()

data = bnp.datasets.load("iris")
model = partial(dpm, component=bnp.NormalInverseWishart.from_data(data.X), concentration=dist.Gamma(1.0, 1.0))
kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), None)])
mcmc = MCMC(kernel, num_warmup=options.num_warmup, num_samples=options.num_samples, num_chains=4, chain_method=jax.vmap)
mcmc.run(jax.random.key(0), data.X)
draws = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])
labels = bnp.point_estimate(draws)
bhc = bnp.BHC(model).fit(data.X)

figure = Figure(figsize=(13, 4), layout="constrained")
left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1.1, 1.6])
left.scatter(data.X[:, 2], data.X[:, 3], c=cluster_colors(labels.max() + 1)[labels], s=18)
left.set(xlabel=data.feature_names[2], ylabel=data.feature_names[3], title="Gibbs: clusters")
bnp.plots.coclustering(bnp.coclustering(draws), labels=labels, ax=middle)
bnp.plots.dendrogram(bhc.dendrogram_, ax=right)
middle.set_title("Gibbs: co-clustering")
right.set_title("BHC: tree", loc="left")  # the legend is on the right
figure.savefig(options.out, dpi=110)

"""Plots the figure of the README: iris by Gibbs sampling, with the certainty of every flower."""

import argparse
from functools import partial
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from numpyro.infer import MCMC, Gibbs

import bnp_hier as bnp
from bnp_hier.models import dpm
from bnp_hier.plots.palette import cluster_colors

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--num-warmup", type=int, default=1000)
parser.add_argument("--num-samples", type=int, default=4000)
parser.add_argument("--out", type=Path, default=Path(__file__).with_name("iris.png"))
options = parser.parse_args()

data = bnp.datasets.load("iris")
model = partial(dpm, component=bnp.NormalInverseWishart.from_data(data.X))
kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (bnp.HyperparameterGibbs(model), None)])
mcmc = MCMC(
    kernel,
    num_warmup=options.num_warmup,
    num_samples=options.num_samples,
    num_chains=4,
    chain_method=jax.vmap,
    progress_bar=False,
)
mcmc.run(jax.random.key(0), data.X)
draws = np.asarray(mcmc.get_samples(group_by_chain=True)["z"])
labels = bnp.point_estimate(draws)
certainty = bnp.membership_probabilities(draws, labels)[np.arange(len(labels)), labels]

figure = Figure(figsize=(13, 4), layout="constrained")
left, middle, right = figure.subplots(1, 3, width_ratios=[1.15, 1.15, 1.0])
colours = cluster_colors(labels.max() + 1)[labels]
colours[:, 3] = np.clip(certainty, 0.05, 1.0) ** 2  # paler where the cluster is less probable
left.scatter(data.X[:, 2], data.X[:, 3], color=colours, edgecolors=cluster_colors(labels.max() + 1)[labels], s=28)
left.set(xlabel=data.feature_names[2], ylabel=data.feature_names[3], title="clusters; pale: in doubt")
left.spines[["top", "right"]].set_visible(False)
bnp.plots.coclustering(bnp.coclustering(draws), labels=labels, ax=middle)
middle.set_title("which flowers belong together")
bnp.plots.number_of_clusters(bnp.number_of_clusters(draws), ax=right)
right.set_title("how many clusters")
figure.savefig(options.out, dpi=110)

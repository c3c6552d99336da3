# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Quick start: one NumPyro model, every inference route
#
# A Dirichlet-process mixture of Gaussians on Fisher's iris data, run by Gibbs sampling composed with NUTS, by Bayesian
# hierarchical clustering and by MAP-DP, and compared in one table. Run it as a script
# (`python examples/quickstart.py --help` lists the sizes) or cell by cell.

# %%
import argparse
from functools import partial

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.models import dpm

parser = argparse.ArgumentParser(description="Quick start: one NumPyro model, every inference route.")
parser.add_argument("--num-warmup", type=int, default=500)
parser.add_argument("--num-samples", type=int, default=1000)
parser.add_argument("--num-chains", type=int, default=4)
options, _ = parser.parse_known_args()

# %% [markdown]
# ## The data and the model
#
# A fifth of the rows is kept from every route, to score predictions. The model is an ordinary NumPyro model: its sites are
# `alpha`, the partition `z`, and the data `X`.

# %%
data = bnp.datasets.load("iris")
order = np.random.default_rng(0).permutation(len(data.X))
train, test = np.sort(order[30:]), order[:30]
X, Y = data.X[train], data.X[test]

model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X), concentration=dist.Gamma(1.0, 1.0))

# %% [markdown]
# ## Route 1: MCMC
#
# `PartitionGibbs` updates the partition, NUTS everything else. The kernel composes with NumPyro's own `Gibbs`.

# %%
kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (NUTS(model), None)])
mcmc = MCMC(
    kernel,
    num_warmup=options.num_warmup,
    num_samples=options.num_samples,
    num_chains=options.num_chains,
    chain_method="sequential",
)
mcmc.run(jax.random.key(0), X)

# %% [markdown]
# ## Route 2: deterministic, in scikit-learn's style

# %%
bhc = bnp.BHC(model).fit(X)
mapdp = bnp.MAPDP(model).fit(X)
print(f"BHC: {bhc.n_clusters_} clusters, evidence at least {bhc.log_evidence_bound_:.1f} nats")
print(f"MAP-DP: {mapdp.n_clusters_} clusters, log joint {mapdp.log_joint_:.1f} nats")

# %% [markdown]
# ## All routes in one table

# %%
table = bnp.compare({"Gibbs": mcmc, "BHC": bhc, "MAP-DP": mapdp}, X, held_out=Y, truth=data.y[train])
print(table.round(3).T.to_string())

# %% [markdown]
# ## ArviZ
#
# Every route becomes the same kind of ArviZ data. Labels mean nothing across draws: diagnose label-invariant variables.

# %%
idata = bnp.to_arviz(mcmc, X)
print(idata["posterior"][["alpha", "log_joint", "n_clusters", "entropy"]].mean())

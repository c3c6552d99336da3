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
# # A mixture of regressions
#
# Rows often come with inputs that need no model: a dose, an age, a time. The clusters then differ in how the
# response depends on them. Here we write such a model, fit it, look at the lines of the clusters, assign new rows, and
# compare it with a simpler model by cross-validation. Everything below works in the same way for any model with several
# data arguments.

# %%
# %matplotlib inline
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp

# %% tags=["parameters"]
num_warmup = 500
num_samples = 1000
num_chains = 4
n_rows = 120

# %% [markdown]
# ## The data
#
# Patients get a dose and show a response. Half of them do not react, some react to a higher dose, and some react the
# other way. The data are simulated, so we know the truth; no method sees it. At low doses the groups look the same.

# %%
rng = np.random.default_rng(1)
truth = rng.choice(3, n_rows, p=[0.5, 0.3, 0.2])
dose = rng.uniform(0.0, 10.0, n_rows)
slopes = np.array([0.0, 0.9, -0.7])
response = 1.0 + slopes[truth] * dose + 0.5 * rng.normal(size=n_rows)
figure, axes = plt.subplots(figsize=(6, 3.5))
axes.scatter(dose, response, s=15, color="0.3")
axes.set(xlabel="dose", ylabel="response")
# %% [markdown]
# ## The model
#
# One line for each slot of a cluster, and no density for the dose. We standardise both columns, so that the priors mean
# the same in any units. `slots` is the largest number of clusters.

# %%
x, y = (dose - dose.mean()) / dose.std(), (response - response.mean()) / response.std()


def regressions(x, y, slots=20):
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, x.shape[0], max_clusters=slots))
    with numpyro.plate("clusters", slots):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.LogNormal(-1.5, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(intercept[z] + slope[z] * x, noise[z]), obs=y)


# %% [markdown]
# `ModelArguments` holds the arguments of the model. It knows which of them have one entry per row, and functions that
# read a fit take it in place of a table. `check_model` simulates data from the prior and compares their scale with that
# of the observed ones. Had we forgotten to standardise, it would have said so.

# %%
data = bnp.ModelArguments(x, y)
print(data)
print("warnings:", bnp.check_model(regressions, data))
print("without standardising:", *bnp.check_model(regressions, bnp.ModelArguments(dose, 100 * response)))

# %% [markdown]
# ## The fit
#
# `AuxiliaryGibbs` samples the labels, and NUTS the lines.

# %%
kernel = Gibbs([(bnp.AuxiliaryGibbs(regressions), ["z"]), (NUTS(regressions), None)])
mcmc = MCMC(
    kernel,
    num_warmup=num_warmup,
    num_samples=num_samples,
    num_chains=num_chains,
    chain_method="sequential",
    progress_bar=False,
)
mcmc.run(jax.random.key(0), x, y)
draws = bnp.to_arviz(mcmc, data)
bnp.diagnostics(draws).round(3)

# %% [markdown]
# The diagnostics refer to quantities that do not depend on the numbers of the clusters. How many are there?

# %%
z = draws["posterior"]["z"].values
plt.figure(figsize=(5, 3))
bnp.plots.number_of_clusters(bnp.number_of_clusters(z), ax=plt.gca())
# %% [markdown]
# The point estimate, and the lines of the larger clusters in fifty draws. Where the lines cross, a row may belong to any
# of them, and its certainty (the size of its point) is low.

# %%
estimate = bnp.point_estimate(z)
certainty = bnp.membership_probabilities(z, estimate)[np.arange(n_rows), estimate]
ends = np.array([-1.8, 1.8])
figure, axes = plt.subplots(figsize=(6, 3.8))
samples = mcmc.get_samples()
for draw in np.linspace(0, len(samples["z"]) - 1, 50).astype(int):
    sizes = np.bincount(samples["z"][draw], minlength=samples["slope"].shape[1])
    for k in np.flatnonzero(sizes > 0.1 * n_rows):
        axes.plot(ends, samples["intercept"][draw, k] + samples["slope"][draw, k] * ends, color="0.8", lw=0.5, zorder=0)
for k in range(estimate.max() + 1):
    own = estimate == k
    axes.scatter(x[own], y[own], s=8 + 30 * certainty[own] ** 2, label=f"cluster {k}")
axes.set(xlabel="dose (standardised)", ylabel="response (standardised)")
axes.legend(fontsize=8)
# %%
pd.crosstab(pd.Series(truth, name="truth"), pd.Series(estimate, name="cluster"))

# %% [markdown]
# `describe` tells what the clusters contain, and how strongly each column is associated with them: the response is, the
# dose is not.

# %%
bnp.describe(mcmc, data, estimate).association.round(2)

# %% [markdown]
# ## New rows
#
# New patients, with the same dose and different responses. The last column is the probability of a cluster of its own.

# %%
new = bnp.ModelArguments(np.full(4, 1.5), np.array([-2.0, -0.2, 2.4, 5.0]))
table = pd.DataFrame(bnp.cluster_probabilities(mcmc, data, estimate, new).round(2))
table.columns = [*(f"cluster {k}" for k in range(table.shape[1] - 1)), "new"]
table.assign(response=new.args[1]).set_index("response")

# %% [markdown]
# ## Is it worth it?
#
# A simpler model has clusters that differ in the level of the response, whatever the dose. Leave-one-out cross-validation
# compares the two by the log density of each response given its dose.


# %%
def levels(x, y, slots=20):
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, x.shape[0], max_clusters=slots))
    with numpyro.plate("clusters", slots):
        intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
        noise = numpyro.sample("noise", dist.LogNormal(-1.5, 0.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(intercept[z], noise[z]), obs=y)


simpler = MCMC(
    Gibbs([(bnp.AuxiliaryGibbs(levels), ["z"]), (NUTS(levels), None)]),
    num_warmup=num_warmup,
    num_samples=num_samples,
    num_chains=num_chains,
    chain_method="sequential",
    progress_bar=False,
)
with warnings.catch_warnings(record=True) as caught:
    simpler.run(jax.random.key(1), x, y)
    table = bnp.compare_models({"lines": mcmc, "levels": simpler}, data)
for message in dict.fromkeys(str(warning.message) for warning in caught):
    print("warning:", message)
table[["elpd", "se", "elpd_diff", "dse", "mcse"]].round(1)

# %% [markdown]
# ## What to conclude, and what not
#
# **Conclude:**
#
# - **That the response depends on the dose in different ways.** The lines predict better than levels, by many standard
#   errors (`dse`) and by much more than the error of too short chains (`mcse`), of which the warnings tell.
# - **Which rows belong together at high doses.** There, the lines are far apart.
#
# **Do not conclude:**
#
# - **That every row has a group.** At low doses the lines cross, and the probabilities of new rows say so.
# - **That there are exactly three lines.** Three clusters are the most probable number, and four are not excluded.
# - **Anything about the doses.** The model has no density for them, so missing doses are refused (leave such rows out, or
#   impute them first), and an unusual dose does not make a row unusual.
#
# To compare models on rows held out from the fit instead, `data.take(rows)` are the arguments to fit, and
# `data.take(others)` those for `compare(..., held_out=...)`.

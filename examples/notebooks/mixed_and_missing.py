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
# # Mixed and missing data
#
# **Question.** A table has continuous, binary, count and categorical columns, and some of its values are missing. Which
# groups of rows does it contain, and what would the missing values have been?
#
# Each kind of column gets its own likelihood within a cluster, and missing values are integrated out exactly: nothing is
# imputed before the fit. Afterwards, missing values can be drawn from their posterior predictive distribution.

# %% tags=["parameters"]
n_rows = 250
n_held_out = 200
num_warmup = 200
num_samples = 500
num_chains = 4
num_draws = 200

# %%
# %matplotlib inline
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS, Gibbs

import bnp_hier as bnp
from bnp_hier.models import dpm

# %% [markdown]
# ## The data
#
# The data are simulated, so that the missing values are known. They describe pumps of four types, but the type is not
# recorded. For each pump the table has its temperature and vibration (continuous), whether it raised an alarm (binary),
# its number of stops (a count), and its oil (one of three).

# %%
rng = np.random.default_rng(0)


def pumps(n, apart=1.0):
    """A complete table of pumps and the type of each pump; the types differ by a share `apart` of what they could."""

    def typical(*values):
        return np.mean(values) + apart * (np.array(values) - np.mean(values))

    kind = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    oil = [
        rng.choice(["mineral", "mixed", "synthetic"], p=[[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]][k % 3])
        for k in kind
    ]
    table = {
        "temperature": rng.normal(typical(50.0, 65.0, 55.0, 75.0)[kind], 3.0),
        "vibration": rng.normal(typical(1.0, 2.0, 4.0, 5.0)[kind], 0.4),
        "alarm": rng.binomial(1, typical(0.05, 0.3, 0.6, 0.9)[kind]).astype(float),
        "stops": rng.poisson(typical(1.0, 3.0, 8.0, 12.0)[kind]).astype(float),
        "oil": oil,
    }
    return pd.DataFrame(table), kind


complete, kind = pumps(n_rows + n_held_out)

# %% [markdown]
# Now we remove values. Pumps that stop often tend to have lost their vibration sensor, so vibration is missing more
# often where there are many stops; the number of stops is always known. This is *missing at random*: whether a value is
# missing depends on what is observed, not on the missing value itself. Alarms, temperatures and oils are missing
# completely at random.


# %%
def losses(complete):
    """Which values are lost."""
    lost = pd.DataFrame(False, index=complete.index, columns=complete.columns)
    lost["vibration"] = rng.random(len(complete)) < np.where(complete["stops"] >= 5, 0.6, 0.1)
    for column in ("temperature", "alarm", "oil"):
        lost[column] = rng.random(len(complete)) < 0.1
    return lost


lost = losses(complete)
frame = complete.mask(lost)
print((frame.isna().mean() * 100).round().astype(int).rename("% missing").to_string())
frame.head(4).round(2)

# %% [markdown]
# ## What does the package recommend?
#
# The package expects numeric tables, so a categorical column is first converted to one column per category.
# `bnp.recommend` reports what it finds in the columns, which likelihoods it would use, and which methods fit the time
# budget.

# %%
oils = pd.get_dummies(frame["oil"], prefix="oil", dtype=float)
numbers = pd.concat([frame.drop(columns="oil"), oils.mask(frame["oil"].isna())], axis=1)
advice = bnp.recommend(numbers, progress_bar=False)
print(pd.DataFrame(advice.columns).round(2).to_string(index=False))

# %%
print(advice)

# %% [markdown]
# `bnp.check_model` looks for modelling choices that do not suit the columns. This is what it reports about the usual
# shortcut of treating every column as normal:

# %%
shortcut = partial(dpm, component=bnp.NormalInverseGamma.from_data(numbers, learn=False), concentration=1.0)
for warning in bnp.check_model(shortcut, numbers):
    print("-", warning)

# %% [markdown]
# ## A model by hand
#
# The recommendation treats each oil as a separate binary column, as if a pump could have two oils.
# `DirichletMultinomial` on the three columns is the better likelihood: a category is a single count among three
# columns. It does not accept NaN, but a row of three zeros contains no count and therefore no information about the
# oil, which is exactly what a missing category means.
#
# The model is ordinary NumPyro. It has priors on the concentration `alpha` and on `width`, the expected variance within
# clusters as a share of the variance of the whole column.

# %%
X = pd.concat([frame.drop(columns="oil"), oils], axis=1)  # get_dummies turns a missing oil into three zeros
names = list(X.columns)
columns = [(0, 1), (2,), (3,), (4, 5, 6)]
X, Y = X.to_numpy()[:n_rows], X.to_numpy()[n_rows:]


def mixture(X):
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    width = numpyro.sample("width", dist.LogNormal(-1.5, 1.0))
    measured = X[:, :2]
    rate = width * jnp.nanvar(measured, axis=0)
    parts = [
        bnp.NormalInverseGamma(mean=jnp.nanmean(measured, axis=0), kappa=0.1, shape=2.0, rate=rate),
        bnp.BetaBernoulli(a=np.ones(1), b=np.ones(1)),
        bnp.GammaPoisson(shape=np.ones(1), rate=np.full(1, 0.2)),
        bnp.DirichletMultinomial(concentration=np.ones(3), total_count=1),
    ]
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, X.shape[0]))
    numpyro.sample("X", bnp.ConjugateMixture(bnp.ProductComponent(parts, columns), z), obs=X)


bnp.check_model(mixture, X, names)

# %% [markdown]
# ## Three methods
#
# Gibbs sampling of the partition combined with NUTS for `alpha` and `width`; BHC; and MAP-DP. The sampler has room for 16
# clusters, far more than it uses (fewer would be faster, and reaching the limit would raise a warning). BHC and MAP-DP fit
# `alpha` and `width`, by gradients of their objectives.


# %%
def sampled(X):
    kernel = Gibbs([(bnp.PartitionGibbs(mixture, max_clusters=16), ["z"]), (NUTS(mixture), None)])
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="sequential",
        progress_bar=False,
    )
    run = bnp.ResumableRun(mcmc, checkpoint_every=num_samples)  # compiles one program for all chains; MCMC one per chain
    run.run(jax.random.key(0), X)
    return run


run = sampled(X)

# %%
bhc = bnp.BHC(mixture, progress_bar=False).fit(X)

# %%
mapdp = bnp.MAPDP(mixture).fit(X)

# %%
fits = {"Gibbs": run, "BHC": bhc, "MAP-DP": mapdp}
table = bnp.compare(fits, X, held_out=Y, truth=kind[:n_rows])
table[["clusters", "held_out", "held_out_se", "NMI", "ARI", "rhat"]].astype(float).round(3)

# %%
z = run.get_samples(group_by_chain=True)["z"]
print("posterior number of clusters:", {k: round(float(p), 2) for k, p in enumerate(bnp.number_of_clusters(z)) if p > 0.01})
pd.crosstab(bnp.point_estimate(z), kind[:n_rows], rownames=["cluster"], colnames=["true type"])

# %% [markdown]
# All three methods find the four types. The sampler's point estimate differs only in two unusual pumps, each of which becomes a
# cluster of its own. Most draws contain such small extra clusters. They belong to the Dirichlet process prior and are not
# evidence of further types (see the notebook "How many clusters?").

# %% [markdown]
# ## What would the missing values have been?
#
# Given its cluster, the columns of a pump are independent. A draw for a missing value is therefore a new value from the
# pump's cluster, for one posterior draw of the partition and the parameters; the pump's observed values have already
# influenced which cluster that is. `to_arviz(..., posterior_predictive=...)` draws such values for every entry of the
# table.


# %%
def filled(fit, X):
    """Draws of every entry, (draw, row, column)."""
    kept = num_draws // num_chains if isinstance(fit, bnp.ResumableRun) else num_draws
    groups = bnp.to_arviz(fit, X, num_samples=num_draws, posterior_predictive=kept)
    return groups["posterior_predictive"]["X"].stack(s=("chain", "draw")).transpose("s", ...).values


truth = pd.get_dummies(complete, columns=["oil"], dtype=float)[names].to_numpy()[:n_rows]
lacking = lost.to_numpy()[:n_rows]


def scores(fit, X, truth, lacking):
    """Errors at missing values, next to those of the column's mean (for alarm and oil, its most frequent value)."""
    draws = filled(fit, X)
    rows = {}
    for column in (0, 1):
        at = lacking[:, column]
        low, high = np.quantile(draws[:, at, column], (0.05, 0.95), axis=0)
        value = truth[at, column]
        rows[f"{names[column]}: root mean square error"] = (
            np.sqrt(np.mean((draws[:, at, column].mean(0) - value) ** 2)),
            np.sqrt(np.mean((np.nanmean(X[:, column]) - value) ** 2)),
        )
        rows[f"{names[column]}: share within the 90% interval"] = np.mean((low <= value) & (value <= high)), np.nan
    at, value = lacking[:, 2], truth[:, 2]
    usual = np.nanmean(X[:, 2]) > 0.5
    rows["alarm: share wrong"] = np.mean((draws[:, at, 2].mean(0) > 0.5) != value[at]), np.mean(usual != value[at])
    at, value = lacking[:, 4], truth[:, 4:].argmax(1)
    usual = X[:, 4:].sum(0).argmax()
    rows["oil: share wrong"] = np.mean(draws[:, at, 4:].mean(0).argmax(1) != value[at]), np.mean(usual != value[at])
    return pd.DataFrame(rows, index=["clusters", "one value"]).T


scores(run, X, truth, lacking).round(2)

# %% [markdown]
# ## When the groups overlap
#
# So far the four types hardly overlap, and every method finds them. Now the types differ in every column by less than half as
# much, and the same share of the values is lost. Many pumps could be of two types, and no method can tell which.

# %%
closer, close_kind = pumps(n_rows + n_held_out, apart=0.45)
close_lost = losses(closer)
seen = closer.mask(close_lost)
close_oils = pd.get_dummies(seen["oil"], prefix="oil", dtype=float)
close_X = pd.concat([seen.drop(columns="oil"), close_oils], axis=1)[names].to_numpy()
close_X, close_Y, close_kind = close_X[:n_rows], close_X[n_rows:], close_kind[:n_rows]

close_fits = {
    "Gibbs": sampled(close_X),
    "BHC": bnp.BHC(mixture, progress_bar=False).fit(close_X),
    "MAP-DP": bnp.MAPDP(mixture).fit(close_X),
}
table = bnp.compare(close_fits, close_X, held_out=close_Y, truth=close_kind)
table[["clusters", "held_out", "held_out_se", "NMI", "ARI", "rhat"]].astype(float).round(3)

# %% [markdown]
# The one partition that a method reports is now a poor summary. What remains useful is the probability that two pumps are of
# the same type: a share of the posterior draws of Gibbs, a share of the partitions in the tree of BHC, and 0 or 1 for MAP-DP.
# In the right panel, pairs are grouped by this probability: if it is right, the points lie on the grey line. (The line of BHC
# lies under that of MAP-DP.)

# %%
draws = close_fits["Gibbs"].get_samples(group_by_chain=True)["z"]
together = {"Gibbs": bnp.coclustering(draws), "BHC": close_fits["BHC"].coclustering()}
one = close_fits["MAP-DP"].labels_
together["MAP-DP"] = (one[:, None] == one).astype(float)
first, second = np.triu_indices(n_rows, 1)
same_type = close_kind[first] == close_kind[second]

figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
bnp.plots.coclustering(together["Gibbs"], labels=close_kind, ax=panels[0])
panels[0].set_title("Gibbs, pumps ordered by their true type")
panels[1].plot([0, 1], [0, 1], color="0.8", linewidth=3.0)
errors = {}
for name, stated in together.items():
    bins = (stated[first, second] * 7.999).astype(int)
    counts = np.bincount(bins, minlength=8)
    kept = counts >= 50
    means = [np.bincount(bins, values, 8)[kept] / counts[kept] for values in (stated[first, second], same_type)]
    panels[1].plot(*means, "o-", markersize=4, label=name)
    errors[name] = np.mean((stated[first, second] - same_type) ** 2)
panels[1].set(xlabel="stated probability of the same type", ylabel="share of pairs of the same type")
panels[1].legend()
plt.show()
pd.Series(errors, name="mean squared error").round(3).to_frame()

# %%
print("posterior number of clusters:", {k: round(float(p), 2) for k, p in enumerate(bnp.number_of_clusters(draws)) if p > 0.01})
close_truth = pd.get_dummies(closer, columns=["oil"], dtype=float)[names].to_numpy()[:n_rows]
scores(close_fits["Gibbs"], close_X, close_truth, close_lost.to_numpy()[:n_rows]).round(2)

# %% [markdown]
# All three methods agree with the true types for about two thirds (ARI 0.7). Gibbs knows which pairs are doubtful: its
# probabilities are close to the shares of pairs that are of the same type. BHC here is as certain as MAP-DP: of the pairs that
# they put together, nearly a quarter are of different types. Four clusters, the true number, now have only half of the
# probability. The missing values are hardly better predicted than by one value per column, except for vibration and oil, and
# the intervals of temperature contain eight values in ten instead of nine.

# %% [markdown]
# ## When not to trust it
#
# So far the observed columns could explain why values are missing: pumps that stop often lack the sensor, and the
# number of stops shows which pumps these are. Now take the same table, but let the sensor fail when the vibration
# itself is large: every value above 4.2 is lost. This is *missing not at random*: none of the largest values remains to
# learn from. In the figure, correct predictions lie on the grey line. The dashed line is the mean of the observed
# values.

# %%
broken = X.copy()
broken[:, 1] = np.where(truth[:, 1] > 4.2, np.nan, truth[:, 1])
again = bnp.BHC(mixture, progress_bar=False).fit(broken)
figure, panels = plt.subplots(1, 2, figsize=(7.5, 3.6), sharex=True, sharey=True, layout="constrained")
means = {}
cases = {"missing at random": (X, bhc), "missing because it is large": (broken, again)}
for panel, (title, (rows, fit)) in zip(panels, cases.items(), strict=True):
    at = np.isnan(rows[:, 1])
    guess = filled(fit, rows)[:, at, 1].mean(0)
    panel.scatter(truth[at, 1], guess, s=10)
    panel.axline((3.0, 3.0), slope=1.0, color="0.5", linewidth=1.0)
    panel.axhline(np.nanmean(rows[:, 1]), color="0.5", linewidth=1.0, linestyle="--")
    panel.set(title=title, xlabel="true vibration of a missing value")
    whole = np.where(at, 0.0, rows[:, 1])
    whole[at] = guess
    means[title] = {
        "truth": truth[:, 1].mean(),
        "observed values": np.nanmean(rows[:, 1]),
        "missing filled in": whole.mean(),
    }
panels[0].set_ylabel("mean of its predictive draws")
plt.show()

# %%
pd.DataFrame(means).T.round(2).rename_axis("mean vibration")

# %% [markdown]
# ## What to conclude, and what not
#
# **Conclude:**
#
# - The methods find the same four groups, which are the true pump types, and their held-out densities are practically
#   equal. Only the sampler sets two pumps apart. Such agreement is no surprise when the groups are this distinct. If your
#   own data do not show it, find out why.
# - Predicting missing values from the clusters gives far smaller errors than using one value per column, and the
#   intervals are about as wide as they should be: the 90% intervals contain slightly more than nine values in ten.
# - If values are missing at random, the mean of the observed vibrations is too low, because the pumps with large values
#   are the ones that lack the sensor. With the missing values filled in, the mean is right: the number of stops showed
#   which pumps these are.
#
# - When the groups overlap, report probabilities instead of one partition. Those of the sampler were right; those of the tree
#   and of MAP-DP were not.
#
# **Do not conclude:**
#
# - That a better method would separate overlapping groups. The columns do not say which of two types such a pump has.
# - That filling in missing values is always safe. If values are missing because they are large, the filled-in values
#   are all too low, and so is the mean. **Nothing in the table alone reveals this.** You have to know from how the data
#   were collected whether values are missing at random.
# - That the columns are related only as the model says. Within a cluster the columns are independent here, so one
#   column is informative about another only through the cluster.
# - That missingness itself is never informative. If the chance that a value is missing depends on the type of the row,
#   add a binary column that marks the missing values.

"""How unusual new rows are: p-values of their densities among those of replicated rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bnp_hier.capabilities import Clustering
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.inspection.model_arguments import Data
from bnp_hier.partitions.seating import Prior, log_seating
from bnp_hier.posterior.draws import Draws, draws_of, log_predictive_of_table, map_draws, of_many_draws, thinned
from bnp_hier.posterior.mixtures import CollapsedMixture
from bnp_hier.posterior.wrapped_fits import unwrapped
from bnp_hier.utils.randomness import random_key

__all__ = ["outlier_pvalues"]

MOST_DRAWS = 200
"""Largest number of draws of a run that are used."""


def outlier_pvalues(
    fit: Any, X: Data | None, new_rows: Data, *, num_samples: int = 1000, random_state: int | Array = 0
) -> Float[np.ndarray, " m"]:
    """Compute a p-value for each new row: the probability that a row of the model has at most its predictive density.

    Rows are drawn from the predictive distribution of the fit: first a cluster, possibly a new one, then its parameters given
    its rows, and then a row. The p-value of a new row is the share of rows, among these and the new row itself, whose log
    predictive density is at most that of the new row (Box 1980). If a new row comes from the model, its p-value has a uniform
    distribution (up to the number of rows drawn, and larger where densities are tied); a small one marks an outlier. With
    missing values in a new row, densities are those of the cells that are there.

    Parameters
    ----------
    fit
        `MCMC` or `ResumableRun` that has run a kernel with a partition site, or a fitted estimator; a scikit-learn `Pipeline`
        that ends with one, in which case densities are those of the transformed rows; a search such as `GridSearchCV`, whose
        best estimator is taken; or the result of `bnp_hier.cluster`.
    X
        The data the fit was made of: (n, d), a DataFrame, or `ModelArguments` of a model with several data arguments; None for
        a result of `bnp_hier.cluster`, which keeps its data.
    new_rows
        The new rows, (m, d), in the same form; for a result, a DataFrame if any column was converted. Rows that the model was
        fitted to look less unusual than they are.
    num_samples
        Number of rows drawn; no p-value is below 1/(num_samples + 1).
    random_state
        Whole number or JAX key for these rows.

    Returns
    -------
    pvalues
        (m,), one for each new row.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or has no conjugate component, the rows are not valid for the component,
        columns of a result were converted and the new rows are an array, or `num_samples` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> fit = bnp.MAPDP().fit(X)
    >>> (bnp.outlier_pvalues(fit, X, [[0.0, 0.0], [9.0, 9.0]]) < 0.01).tolist()
    [False, True]
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, but it is {num_samples}")
    fit, known, new_rows = unwrapped(fit, X, new_rows)
    key, key_of_draws = jax.random.split(random_key(random_state))
    draws = thinned(draws_of(fit, known, num_samples=MOST_DRAWS, random_state=key_of_draws), MOST_DRAWS)
    mixture = draws.mixture
    if not isinstance(mixture, CollapsedMixture):
        raise ValueError("outlier_pvalues needs a model whose cluster parameters are integrated out")
    rows = mixture.table(mixture.data.new_rows(new_rows))  # what the model observes

    def densities(table: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        return fit.score_samples(table) if isinstance(fit, Clustering) else log_predictive_of_table(draws, table)

    found, replicates = densities(rows), replicated_rows(draws, num_samples, key)
    pvalues = np.empty(len(rows))
    absent = np.isnan(rows)
    patterns, which = np.unique(absent, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        own = np.sort(densities(np.where(pattern, np.nan, replicates) if pattern.any() else replicates))
        here = which.ravel() == k
        pvalues[here] = (1 + np.searchsorted(own, found[here], side="right")) / (1 + num_samples)
    return pvalues


def replicated_rows(draws: Draws, count: int, key: Array) -> Float[np.ndarray, "count d"]:
    """Draw rows from the predictive distribution of partitions, the same number (or one more) from each draw."""
    mixture, shape = draws.mixture, draws.labels.shape[:2]
    slots, total = mixture.slots(draws.labels), shape[0] * shape[1]
    each = -(-count // total)
    most = float(mixture.sites.max_clusters or np.inf) if isinstance(mixture, CollapsedMixture) else np.inf

    def some(item: tuple[Array, Array, dict[str, Array]]) -> tuple[Array]:
        key, labels, hyperparameters = item
        values = mixture.conjugate(hyperparameters)
        key_of_labels, key_of_parameters, key_of_rows = jax.random.split(key, 3)
        stats = cluster_statistics(values.component.suff_stats(values.X), labels, slots)
        stats = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.zeros_like(leaf[:1])]), stats)  # a new cluster
        weights = log_seating(cluster_counts(labels, slots).astype(float), Prior(values.concentration, values.discount), most)
        chosen = jax.random.categorical(key_of_labels, weights, shape=(each,))
        parameters = values.component.sample_parameters(key_of_parameters, jax.tree.map(lambda leaf: leaf[chosen], stats))
        return (values.component.likelihood(parameters).sample(key_of_rows),)

    with jax.enable_x64(True):
        keys = jax.random.split(key, shape)
        (rows,) = map_draws(of_many_draws(some), (keys, draws.labels, draws.hyperparameters), batch=1)
    kept = np.linspace(0, total * each - 1, count).round().astype(int)  # evenly spaced, so that no chain is left out
    return np.asarray(rows, dtype=np.float64).reshape(total * each, -1)[kept]

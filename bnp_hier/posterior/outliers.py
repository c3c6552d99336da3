"""How unusual rows are: p-values of their densities among those of replicated rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bnp_hier.capabilities import Clustering
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.seating import log_seating
from bnp_hier.inspection.model_arguments import Data
from bnp_hier.native.cores import on_cores
from bnp_hier.partitions.leave_one_out import DensitiesWithoutRows, densities_without_rows
from bnp_hier.posterior.draws import Draws, draws_of, log_predictive_of_table, thinned
from bnp_hier.posterior.mixtures import CollapsedMixture
from bnp_hier.posterior.wrapped_fits import unwrapped
from bnp_hier.utils.arrays import take
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.quick_compilation import compiled_quickly
from bnp_hier.utils.randomness import random_key

__all__ = ["leave_one_out_pvalues", "outlier_pvalues"]

MOST_DRAWS = 200
"""Largest number of draws of a run that are used."""

MOST_LEFT_OUT = 100
"""The same for p-values of the rows of the fit."""

BLOCK = 256
"""Most of these rows that are left out at once, each from a copy of its cluster."""

FEW = 100_000
"""Cells, times columns, below which machine code that draws rows takes longer to optimise than to run."""

TIES = 1e-9
"""Difference of log densities (nats), relative to their size, below which they count as tied."""


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
        fitted to look less unusual than they are: see `leave_one_out_pvalues`.
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


def leave_one_out_pvalues(
    fit: Any, X: Data | None, *, num_samples: int = 1000, random_state: int | Array = 0
) -> Float[np.ndarray, " n"]:
    """Compute a p-value for each row of the fitted data: `outlier_pvalues` as if the model had been fitted to the other rows.

    It is the probability that a row drawn from the predictive distribution given all other rows has at most the density that
    this distribution has at the row. The distribution given the other rows is the average over the draws, weighted as in `loo`,
    of those of the draws without the row. If the data come from the model, the p-value of a row has a uniform distribution (up
    to the numbers of draws and of rows drawn, and larger where densities are tied, as those of counts and categories are); a
    small one marks an outlier, even if it has a cluster of its own. With missing values in the row, densities are those of the
    cells that are there.

    Parameters
    ----------
    fit, X
        As in `outlier_pvalues`. For an estimator with a single partition, that of the other rows is held fixed, and p-values
        are only roughly uniform.
    num_samples
        Number of rows drawn; no p-value is below 1/(num_samples + 1).
    random_state
        Whole number or JAX key for these rows.

    Returns
    -------
    pvalues
        (n,), one for each row. Some are small by chance: of n, 0.01 n are expected to be below 0.01.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or has no conjugate component, or `num_samples` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> X[7] = [9.0, 9.0]
    >>> pvalues = bnp.leave_one_out_pvalues(bnp.MAPDP().fit(X), X)
    >>> int(pvalues.argmin()), bool(pvalues[7] < 0.01)
    (7, True)
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, but it is {num_samples}")
    fit, known, _ = unwrapped(fit, X)
    key, key_of_draws = jax.random.split(random_key(random_state))
    draws = thinned(draws_of(fit, known, num_samples=MOST_LEFT_OUT, random_state=key_of_draws), MOST_LEFT_OUT)
    mixture = draws.mixture
    if not isinstance(mixture, CollapsedMixture):
        raise ValueError("leave_one_out_pvalues needs a model whose cluster parameters are integrated out")
    completed = np.zeros(mixture.X.shape, dtype=bool) if draws.missing is None else mixture.absent
    patterns, which = np.unique(completed | np.isnan(mixture.X), axis=0, return_inverse=True)
    members = [np.flatnonzero(which.ravel() == k) for k in range(len(patterns))]
    size = min(max(map(len, members)), BLOCK)
    blocks = [
        (pattern, rows[at : at + size])
        for pattern, rows in zip(patterns, members, strict=True)
        for at in range(0, len(rows), size)
    ]
    replicates, pvalues = replicated_rows(draws, num_samples, key), np.empty(len(completed))

    def fill(block: tuple[Bool[np.ndarray, " d"], Int[np.ndarray, " b"]]) -> None:
        pattern, rows = block
        found = programs(bool(completed[rows].any()))(np.resize(rows, size), pattern, replicates)
        own, left_out, whole = map(np.asarray, found)
        ratios = left_out - whole
        weights = np.exp(ratios - ratios.max(1, keepdims=True))  # the replicates were drawn given all rows
        shares = (weights * (left_out <= (own + TIES * (1.0 + np.abs(own)))[:, None])).sum(1) / weights.sum(1)
        pvalues[rows] = ((1 + num_samples * shares) / (1 + num_samples))[: len(rows)]

    @cache
    def programs(incomplete: bool) -> Callable[..., tuple[Array, Array, Array]]:
        return compiled_quickly(_program(draws).lower(np.resize(members[0], size), patterns[0], replicates, incomplete))

    with double_precision():
        for incomplete in {bool(completed[rows].any()) for _, rows in blocks}:
            programs(incomplete)
        on_cores(fill, blocks)
    return pvalues


class _Sums(NamedTuple):
    """Running sums over draws of densities without each of b rows, each weighted by 1 / density of the row, as logarithms.

    - **weights** - log of the sum of the weights.
    - **left_out** - weighted densities of the replicates, divided by exp(`row` + `replicate`).
    - **row**, **replicate** - their units: the largest so far (nats).
    - **whole** - log of the sum of the densities of the replicates given all rows.
    """

    weights: Float[Array, " b"]
    left_out: Float[Array, "b m"]
    row: Float[Array, " b"]
    replicate: Float[Array, " m"]
    whole: Float[Array, " m"]

    def plus(self, found: DensitiesWithoutRows) -> _Sums:
        row, replicate = jnp.maximum(self.row, -found.of_rows), jnp.maximum(self.replicate, found.reference)
        before = jnp.outer(jnp.exp(self.row - row), jnp.exp(self.replicate - replicate)) * self.left_out
        now = jnp.outer(jnp.exp(-found.of_rows - row), jnp.exp(found.reference - replicate)) * found.of_new
        weights, whole = jnp.logaddexp(self.weights, -found.of_rows), jnp.logaddexp(self.whole, found.given_all)
        return _Sums(weights, before + now, row, replicate, whole)


def _program(draws: Draws) -> Any:
    """Make the function that returns log predictive densities of b rows given the others, and of m replicates.

    Those of the replicates are given the others, (b, m), and given all rows, (m,). Cells in `absent` are left out.
    """
    mixture = draws.mixture
    assert isinstance(mixture, CollapsedMixture)
    slots, most = mixture.slots(draws.labels), float(mixture.sites.max_clusters or np.inf)
    flat = _flat((draws.labels, draws.hyperparameters))

    def program(
        rows: Int[Array, " b"], absent: Bool[Array, " d"], replicates: Float[Array, "m d"], incomplete: bool
    ) -> tuple[Array, Array, Array]:
        def add(sums: _Sums, item: tuple[Array, dict[str, Array]]) -> tuple[_Sums, None]:
            values = mixture.conjugate(item[1])
            seen = jnp.where(absent, jnp.nan, replicates)
            return sums.plus(densities_without_rows(values, item[0], slots, most, rows, seen, incomplete=incomplete)), None

        b, m = len(rows), len(replicates)
        low, none = (partial(jnp.full, fill_value=value) for value in (-1e300, 0.0))
        sums, _ = jax.lax.scan(add, _Sums(low(b), none((b, m)), low(b), low(m), low(m)), flat)
        left_out = jnp.log(sums.left_out) + sums.replicate[None] + (sums.row - sums.weights)[:, None]
        count = np.log(len(flat[0]))
        return count - sums.weights, left_out, sums.whole - count

    return jax.jit(program, static_argnums=3)


def _flat(tree: Any) -> Any:
    """Arrays of all chains one after another."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def replicated_rows(draws: Draws, count: int, key: Array) -> Float[np.ndarray, "count d"]:
    """Draw rows from the predictive distribution of partitions, the same number (or one more) from each draw."""
    mixture, shape = draws.mixture, draws.labels.shape[:2]
    slots, total = mixture.slots(draws.labels), shape[0] * shape[1]
    each = -(-count // total)
    most = float(mixture.sites.max_clusters or np.inf) if isinstance(mixture, CollapsedMixture) else np.inf

    def some(item: tuple[Array, Array, dict[str, Array]]) -> Float[Array, "each d"]:
        key, labels, hyperparameters = item
        values = mixture.conjugate(hyperparameters)
        key_of_labels, key_of_rows = jax.random.split(key)
        stats = cluster_statistics(values.component.suff_stats(values.X), labels, slots)
        stats = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.zeros_like(leaf[:1])]), stats)  # a new cluster
        weights = log_seating(cluster_counts(labels, slots).astype(float), values.process, most)
        chosen = jax.random.categorical(key_of_labels, weights, shape=(each,))
        return values.component.predictive(take(stats, chosen)).sample(key_of_rows)

    with double_precision():
        items = _flat((jax.random.split(key, shape), draws.labels, draws.hyperparameters))
        lowered = jax.jit(lambda items: jax.lax.map(some, items)).lower(items)
        rows = compiled_quickly(lowered, small=mixture.X.size * mixture.X.shape[1] < FEW)(items)
    kept = np.linspace(0, total * each - 1, count).round().astype(int)  # evenly spaced, so that no chain is left out
    return np.asarray(rows, dtype=np.float64).reshape(total * each, -1)[kept]

"""Whether fewer clusters with another likelihood describe the rows better: clusters that are there only because of a misfit."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.special import gammaln

from bnp_hier.components import Component, NormalKnownCovariance, ProductComponent, UninformativeNormal
from bnp_hier.components.base import Statistics
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.partitions.clusters import joint_and_statistics, log_predictives, marginals_of, packed, unpacked
from bnp_hier.partitions.imputation import impute
from bnp_hier.utils.labels import canonical_labels

__all__ = ["CLEAR", "Coarser", "TestedColumns", "coarser", "redrawn", "statistics_of"]

MOST_CLUSTERS = 25
"""Most clusters that are merged: of more, there are too many pairs."""

FEWEST = 10
"""Fewest values of a column in a cluster that may show another likelihood."""

CLEAR = 20.0
"""Gain (nats) above which a misfit is reported that overlapping clusters might explain as well."""

SPLITS = 10
"""Number of times that a cluster is split, to find overlapping clusters that the fit has missed."""

SWEEPS = 20
"""Draws of all labels before the one that is looked at."""

LOG_T3 = float(gammaln(2.0) - gammaln(1.5) - 0.5 * np.log(3 * np.pi))


class TestedColumns(NamedTuple):
    """What is known about the columns.

    - **continuous**, **counts**, **bits** - (d,) whether they are measurements, counts, or 0 and 1.
    - **tested** - (d, d) pairs that the family takes as independent.
    """

    continuous: Bool[np.ndarray, " d"]
    counts: Bool[np.ndarray, " d"]
    bits: Bool[np.ndarray, " d"]
    tested: Bool[np.ndarray, "d d"]


class Coarser(NamedTuple):
    """A partition whose clusters are unions of those fitted.

    - **labels** - (n,) clusters.
    - **gain** - gain in the log joint from other likelihoods of its clusters, over that of the fitted partition (nats).
    """

    labels: Int[np.ndarray, " n"]
    gain: float


def coarser(
    component: Component,
    X: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    columns: TestedColumns,
    rng: np.random.Generator,
) -> Coarser:
    """Merge clusters as long as this raises the log joint, if each cluster may have another likelihood than the family's.

    The log marginal likelihood of a cluster is that of the family plus the gain of the best of a few others: dependent pairs of
    columns, a log-normal or Student-t column, and negative binomial or zero-inflated counts. Gains are differences of maximum
    log likelihoods, less half the log number of rows for each further parameter. Rows of overlapping clusters may have other
    labels: a large gain is only what remains if these are summed out, and if clusters are split that overlap.

    Parameters
    ----------
    component
        The likelihood.
    X
        Rows.
    labels
        (n,) clusters 0, ..., K − 1.
    columns
        What is known about the columns.
    rng
        Random numbers.
    """
    if component.incomplete_cells(X).any():  # the clusters' statistics are not sums of the rows'
        return Coarser(labels, float(sum(_gain(X[labels == k], columns) for k in range(int(labels.max()) + 1))))
    found = max((_merged(each, X, labels, columns, component) for each in _priors(component, X)), key=lambda each: each.gain)
    if found.gain < CLEAR:
        return found
    splits = [redrawn(component, X, _split(labels, rng), rng) for _ in range(SPLITS)]
    joint = _log_joint(component, X, labels) + _overlap(component, X, found.labels)
    best = max(_log_joint(component, X, each) + _overlap(component, X, each) for each in (labels, *splits))
    return found._replace(gain=found.gain + min(0.0, joint - best))


def _priors(component: Component, X: Float[np.ndarray, "n d"]) -> list[Component]:
    """The component, and with default hyperparameters: those learned with too many clusters suit no others."""

    def default(part: Component, rows: np.ndarray) -> Component:
        suits = not isinstance(part, NormalKnownCovariance | UninformativeNormal)
        return type(part).from_data(rows, learn=False) if suits else part

    try:
        parts, columns = zip(*component.parts_and_columns(), strict=True)
        given = [default(part, X[:, list(where)]) for part, where in zip(parts, columns, strict=True)]
    except (TypeError, ValueError):  # a family without defaults
        return [component]
    again = ProductComponent(given, columns) if isinstance(component, ProductComponent) else given[0]
    return [component, jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), again.centered_on(X))]


def _merged(
    component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], columns: TestedColumns, fitted: Component
) -> Coarser:
    """The best partition among those of greedy merges."""
    own = [np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1)]
    gains = [_gain(X[rows], columns) for rows in own]
    gain = float(sum(gains))
    gain += _log_joint(component, X, labels) - _log_joint(fitted, X, labels) if component is not fitted else 0.0
    if len(own) > MOST_CLUSTERS:
        return Coarser(labels, gain)
    flat = packed(statistics_of(component, X, labels))
    kept: dict[int, tuple[np.ndarray, float]] = {k: (rows, gains[k]) for k, rows in enumerate(own)}
    sums = dict(enumerate(flat))
    marginals = dict(enumerate(_marginals(component, flat, np.array([len(rows) for rows in own]))))
    rise: dict[tuple[int, int], tuple[float, float, float]] = {}
    best = Coarser(labels, gain)
    merged, new = labels.copy(), [(a, b) for a in kept for b in kept if a < b]
    while len(kept) > 1:  # also past merges that lower the log joint: a row with two outliers fits in once others have
        sizes = np.array([len(kept[a][0]) + len(kept[b][0]) for a, b in new])
        joint = _marginals(component, np.stack([sums[a] + sums[b] for a, b in new]), sizes)
        for (a, b), value in zip(new, joint, strict=True):
            (one, gain_a), (two, gain_b) = kept[a], kept[b]
            both = _gain(X[np.concatenate([one, two])], columns)
            seating = gammaln(len(one) + len(two)) - gammaln(len(one)) - gammaln(len(two))
            rise[a, b] = float(value - marginals[a] - marginals[b] + both - gain_a - gain_b + seating), both, float(value)
        a, b = max(rise, key=lambda pair: rise[pair][0])
        more, both, marginals[a] = rise[a, b]
        gain += more
        kept[a] = np.concatenate([kept[a][0], kept.pop(b)[0]]), both
        sums[a] = sums[a] + sums.pop(b)
        merged[kept[a][0]] = a
        if gain > best.gain:
            best = Coarser(canonical_labels(merged), gain)
        rise = {pair: found for pair, found in rise.items() if not {a, b} & set(pair)}
        new = [(min(a, k), max(a, k)) for k in kept if k != a]
    return best


def _marginals(component: Component, flat: Float[np.ndarray, "m p"], sizes: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    return marginals_of(component, unpacked(component, flat), sizes)


def _gain(X: Float[np.ndarray, "n d"], columns: TestedColumns) -> float:
    """Gain of the best other likelihoods over the family's, for the rows of a cluster (nats)."""
    if len(X) < FEWEST:
        return 0.0
    total = _of_measurements(X[:, columns.continuous]) if columns.continuous.any() else 0.0
    for j in np.flatnonzero(columns.counts):
        x = X[~np.isnan(X[:, j]), j]
        if len(x) >= FEWEST and np.ptp(x) > 0:
            total += max(0.0, _of_counts(x) - 0.5 * np.log(len(x)))
    return total + _of_dependence(X, columns)


def _of_measurements(X: Float[np.ndarray, "n c"]) -> float:
    """Rise of the maximum log likelihoods by log-normal columns, or t distributions with three degrees of freedom."""
    there = ~np.isnan(X)
    n = np.maximum(there.sum(0), 1)
    mean = np.where(there, X, 0.0).sum(0) / n
    variance = (np.where(there, X - mean, 0.0) ** 2).sum(0) / n
    used = (n >= FEWEST) & (variance > 1e-12 * mean**2)
    if not used.any():
        return 0.0
    there, n, mean, variance = there[:, used], n[used], mean[used], variance[used]
    x = np.where(there, X[:, used], mean)
    center, square = np.median(x, axis=0), variance / 3
    for _ in range(20):
        weights = np.where(there, 4.0 / (3.0 + (x - center) ** 2 / square), 0.0)
        center = (weights * x).sum(0) / weights.sum(0)
        square = np.maximum((weights * (x - center) ** 2).sum(0) / n, 1e-6 * variance)
    far = np.where(there, np.log1p((x - center) ** 2 / square / 3), 0.0).sum(0)
    rise = n * (LOG_T3 - 0.5 * np.log(square)) - 2 * far + 0.5 * n * (np.log(2 * np.pi * variance) + 1)
    positive = (x > 0).all(0)
    logs = np.where(there & positive, np.log(np.where(positive, x, 1.0)), 0.0)
    spread = (logs**2).sum(0) / n - (logs.sum(0) / n) ** 2
    skewed = 0.5 * n * np.log(variance / np.maximum(spread, 1e-12)) - logs.sum(0)
    rise = np.where(positive, np.maximum(rise, skewed), rise)
    return float(np.maximum(rise - 0.5 * np.log(n), 0.0).sum())


def _of_counts(x: Float[np.ndarray, " n"]) -> float:
    """Rise of the maximum log likelihood of a column by a negative binomial distribution, or by a share of zeros of its own."""
    n, mean, variance, factorials = len(x), x.mean(), x.var(), gammaln(x + 1).sum()
    poisson = n * mean * (np.log(mean) - 1) - factorials
    rise = 0.0
    if variance > 1.01 * mean:  # near the limit, log gamma functions cancel
        r = mean**2 / (variance - mean)
        ratios = (gammaln(x + r) - gammaln(r)).sum() - factorials
        rise = ratios + n * (r * np.log(r / (r + mean)) + mean * np.log(mean / (r + mean))) - poisson
    zeros = int((x == 0).sum())
    if 0 < zeros < n:
        positive = x[x > 0]
        rate = average = positive.mean()
        for _ in range(50):
            rate = max(average * -np.expm1(-rate), 1e-9)
        hurdle = zeros * np.log(zeros / n) + (n - zeros) * np.log(1 - zeros / n) + positive.sum() * np.log(rate)
        rise = max(rise, hurdle - len(positive) * (rate + np.log(-np.expm1(-rate))) - factorials - poisson)
    return float(rise)


def _of_dependence(X: Float[np.ndarray, "n d"], columns: TestedColumns) -> float:
    """Rise by the best tree of dependent pairs, less its cost; of counts, a lower bound."""
    there = ~np.isnan(X)
    Z = np.where(there, X - np.nanmean(np.where(there.any(0), X, 0.0), axis=0), 0.0)
    squares = (Z**2).T @ there
    scale = np.sqrt(squares * squares.T)
    r2 = np.minimum((Z.T @ Z / np.where(scale > 0, scale, np.inf)) ** 2, 1 - 1e-9)
    number = there.astype(float).T @ there
    measured = columns.continuous[:, None] | columns.continuous[None]  # regressions, of numbers on bits or counts, too
    information = np.where(measured, -0.5 * np.log1p(-r2), 0.5 * r2)
    information[np.ix_(columns.bits, columns.bits)] = _of_bits(X[:, columns.bits], there[:, columns.bits])
    gains = number * information - 0.5 * np.log(np.maximum(number, 1.0))
    useful = np.triu(columns.tested & (number >= FEWEST) & (gains > 0), 1)
    return -float(minimum_spanning_tree(np.where(useful, -gains, 0.0)).sum())


def _of_bits(X: Float[np.ndarray, "n b"], there: Bool[np.ndarray, "n b"]) -> Float[np.ndarray, "b b"]:
    """Mutual information of pairs of bits (nats)."""
    values = [np.where(there, X == bit, 0.0) for bit in (0, 1)]
    total = np.maximum(there.astype(float).T @ there, 1.0)
    shares = {(i, j): values[i].T @ values[j] / total for i in (0, 1) for j in (0, 1)}
    found = np.zeros_like(total)
    for (i, j), share in shares.items():
        independent = (shares[i, 0] + shares[i, 1]) * (shares[0, j] + shares[1, j])
        found += share * np.log(np.where(share > 0, share, 1.0) / np.where(share > 0, independent, 1.0))
    return found


def statistics_of(component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Statistics:
    """Statistics of the clusters; expected ones where missing values of dependent columns are imputed."""
    if component.incomplete_cells(X).any():
        return impute(MixtureValues(Prior(1.0), component, X), X, labels).stats
    return joint_and_statistics(component, X, labels, Prior(1.0, 0.0))[1]


def redrawn(
    component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], rng: np.random.Generator
) -> Int[np.ndarray, " n"]:
    """Labels drawn in turn with the statistics of the clusters: in clusters that overlap, rows that look like theirs."""
    for _ in range(SWEEPS if labels.max() > 0 else 0):
        weights = _log_weights(component, X, labels)
        labels = canonical_labels((weights + rng.gumbel(size=weights.shape)).argmax(axis=1))
    return labels


def _log_weights(component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
    """Log weights of the clusters, with their statistics, for each row."""
    sizes = np.bincount(labels)
    return log_predictives(component, statistics_of(component, X, labels), X, len(X))[:, : len(sizes)] + np.log(sizes)


def _log_joint(component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> float:
    return joint_and_statistics(component, X, labels, Prior(1.0, 0.0))[0]


def _overlap(component: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> float:
    """What the other labels of the rows add to the log joint of one partition, given its clusters (nats)."""
    weights = _log_weights(component, X, labels)
    return float((np.logaddexp.reduce(weights, axis=1) - weights[np.arange(len(X)), labels]).sum())


def _split(labels: Int[np.ndarray, " n"], rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Move half of the rows of a cluster to a new one."""
    sizes = np.bincount(labels)
    cluster = rng.choice(len(sizes), p=sizes / len(labels))
    return canonical_labels(np.where((labels == cluster) & (rng.random(len(labels)) < 0.5), labels.max() + 1, labels))

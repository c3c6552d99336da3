"""Findings in plain language: which methods agree, what is certain, and what not to trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from bnp_hier.posterior.credible_balls import number_of_clusters
from bnp_hier.posterior.gains_of_parts import PartGain
from bnp_hier.posterior.item_uncertainty import CERTAIN
from bnp_hier.reports.row_certainty import RowCertainty
from bnp_hier.trees import Dendrogram, Hierarchy
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.wording import conjoined, listed, some_of

__all__ = [
    "Association",
    "agreement",
    "association",
    "best_partition",
    "clusters_at_cuts",
    "clusters_verdict",
    "columns_in_words",
    "disagreement",
    "dispersion_verdict",
    "held_out_verdict",
    "parts_verdict",
    "support_verdict",
    "tree_verdict",
]

MOST_PARTS, MOST_NAMED = 6, 4
"""Most parts of a mixed table that are listed, and most columns of each that are named."""

BOUNDS = ", a difference of two lower bounds"
"""Said of the gain of a part with missing values."""

DOMINANT = 0.9
"""Share of the gain of a partition from which one part of a mixed table is said to dominate."""

OVERDISPERSED = 1.5
"""Index of dispersion within clusters above which counts are said to be over-dispersed."""

AGREE, ALIKE, DIFFER_SOMEWHAT = 0.9, 0.8, 0.6
"""Least normalised mutual information of partitions that are said to agree, not to need a choice, and to differ somewhat."""

SURE = 0.9
"""Share of the draws that must contain a node of a tree for it to be called certain."""

IDENTICAL = 1.0 - 1e-9
"""Least agreement of partitions that are called identical."""

UNRELATED = 0.05
"""Adjusted Rand index below which the clusters are said not to recover the known classes."""

CHANCE = 0.05
"""Least p-value of an association that is attributed to chance."""

WEAK, STRONG = 0.3, 0.5
"""Cramér's V below which an association is called weak, and above which it is called strong."""

FREQUENT, IMPOSSIBLE = 5, 20.0
"""Least number of draws with a partition that show its probability, and an estimate of a probability that shows an error."""

CLOSE = 2.0
"""Standard errors of the paired difference within which methods are said to predict held-out rows about equally well."""

NEAR = float(np.log(3.0))
"""Nats within which two partitions are called about equally probable: odds of less than three to one."""


def _between(table: pd.DataFrame) -> Float[np.ndarray, "k k"]:
    """Normalised mutual information between the methods' partitions; infinite on the diagonal."""
    names = list(table.index)
    if not all(f"NMI {name}" in table for name in names):
        return np.zeros((len(names), len(names)))
    matrix = table[[f"NMI {name}" for name in names]].to_numpy(dtype=float)
    return np.where(np.eye(len(names), dtype=bool), np.inf, matrix)


def best_partition(table: pd.DataFrame) -> Iterator[str]:
    """Which method found the most probable single partition, with hyperpriors.

    Parameters
    ----------
    table
        Of `bnp_hier.compare`.
    """
    joints = table["log_posterior"].dropna().sort_values(ascending=False, kind="stable")
    if not len(joints):
        return
    best = joints.index[0]
    clusters = int(table.loc[best, "clusters"])
    if len(table) > 1 and _between(table).min() >= IDENTICAL:
        yield f"All methods found the same partition: {clusters} clusters."
        return
    line = f"{best} found the most probable single partition: {clusters} clusters, log posterior {joints.iloc[0]:.1f} nats"
    if len(joints) == 1:
        yield f"{line}."
        return
    behind = joints.iloc[0] - joints.iloc[1:]
    same = [str(name) for name in behind.index if behind[name] < 1e-6]
    near = [str(name) for name in behind.index if 1e-6 <= behind[name] <= NEAR]
    far = behind[behind > NEAR]
    line += f"; equally probable: {conjoined(same)}" if same else ""
    line += f"; about as probable (odds below 3 to 1): {conjoined(near)}" if near else ""
    if len(far):
        line += f"; less probable: {conjoined([f'{name} ({_odds(gap)})' for name, gap in far.items()])}"
    yield f"{line}. Each is at the hyperparameters that suit it best, with their prior densities."


def _odds(nats: float) -> str:
    """How much less probable something is."""
    return f"{nats:.1f} nats lower, odds of {np.exp(nats):.0f} to 1" if nats < np.log(1000.0) else f"{nats:.0f} nats lower"


def disagreement(
    table: pd.DataFrame,
    lead: str,
    searches: Sequence[str],
    labels: Int[np.ndarray, " n"],
    draws: Int[np.ndarray, "s n"],
    settled: bool,
) -> Iterator[str]:
    """Which partition to believe where that of a method that samples the posterior differs from those of searches, and why.

    Parameters
    ----------
    table
        Of `bnp_hier.compare`.
    lead
        The method that samples.
    searches
        Methods with a single partition.
    labels
        Point estimate of the method that samples.
    draws
        Its partitions.
    settled
        Whether its chains have at least nearly converged.
    """
    gaps = table["log_posterior"] - table.loc[lead, "log_posterior"]
    alike = table.loc[lead, [f"NMI {name}" for name in searches]].set_axis(list(searches))
    far = [name for name in searches if alike[name] < ALIKE or (abs(gaps[name]) > NEAR and alike[name] < IDENTICAL)]
    if not far:
        return
    seen = Counter(canonical_labels(draw).tobytes() for draw in draws)
    shares = [seen[canonical_labels(labels).tobytes()] / len(draws), max(seen.values()) / len(draws)]
    highest = gaps[far].max()
    line = f"{lead} differs from {conjoined(far)}. "
    if not settled:
        yield f"{line}Believe neither yet: the chains of {lead} have not converged; run longer (--samples)."
    elif shares[0] * len(draws) >= FREQUENT and np.log(shares[0]) + highest > np.log(IMPOSSIBLE):
        yield (
            f"{line}Believe {gaps[far].idxmax()}: its partition is {highest:.1f} nats more probable than that of {lead}, which "
            f"has {shares[0]:.1%} of the draws, so that it would have most of them if the chains had found it; run longer or "
            "from other initial values."
        )
    else:
        yield (
            f"{line}Believe {lead}: the posterior is spread over many partitions, of which the most frequent has "
            f"{shares[1]:.1%} of its {len(draws)} draws, and its partition is the one nearest to all of them. A search finds a "
            "peak, which can be higher than each of these partitions and still hold far less probability than all of them "
            "together."
        )


class Association(NamedTuple):
    """Strength of the association between clusters and known classes.

    - **value** - Cramér's V with Bergsma's (2013) correction for bias, 0 if independent and 1 if one determines the other; the
      median over the draws.
    - **low**, **high** - 95% interval of the draws.
    - **p_value** - of Pearson's chi-squared test of independence, the median over the draws; approximate for small clusters.
    """

    value: float
    low: float
    high: float
    p_value: float


def association(draws: Int[np.ndarray, "chain draw n"], classes: ArrayLike, most: int = 200) -> Association:
    """Association of known classes with the clusters of draws of partitions.

    Parameters
    ----------
    draws
        Partitions.
    classes
        (n,) classes.
    most
        Largest number of draws used, evenly spaced.
    """
    from scipy.stats import chi2_contingency
    from sklearn.metrics.cluster import contingency_matrix

    flat = draws.reshape(-1, draws.shape[-1])
    some = np.unique(np.linspace(0, len(flat) - 1, min(most, len(flat))).round().astype(int))
    found = []
    for labels in flat[some]:
        counts = contingency_matrix(classes, labels)
        test = chi2_contingency(counts, correction=False)
        found.append((_corrected_v(float(test.statistic), counts.shape, len(labels)), float(test.pvalue)))
    values, p_values = np.array(found).T
    low, high = np.quantile(values, (0.025, 0.975))
    return Association(float(np.median(values)), float(low), float(high), float(np.median(p_values)))


def _corrected_v(chi_squared: float, shape: tuple[int, ...], n: int) -> float:
    rows, columns = shape
    beyond = max(0.0, chi_squared / n - (rows - 1) * (columns - 1) / (n - 1))
    least = min(size - (size - 1) ** 2 / (n - 1) for size in (rows, columns)) - 1
    return float(np.sqrt(beyond / least)) if least > 0 else 0.0


def agreement(table: pd.DataFrame, associations: Mapping[str, Association] | None = None) -> Iterator[str]:
    """Whether the methods' partitions agree with each other, and with known classes.

    Parameters
    ----------
    table
        Of `bnp_hier.compare`.
    associations
        Method -> association of its clusters with the known classes, if there are any.
    """
    names = list(table.index)
    off = _between(table)
    if len(names) > 1 and off.min() < IDENTICAL:
        low = off.min()
        one, other = np.unravel_index(off.argmin(), off.shape)
        word = "agree" if low >= AGREE else "differ somewhat" if low >= DIFFER_SOMEWHAT else "disagree"
        yield (
            f"The methods' partitions {word}: the least similar are those of {names[int(one)]} and {names[int(other)]}, with a "
            f"normalised mutual information of {low:.2f}."
        )
    if "ARI" in table:
        best = table["ARI"].idxmax()
        index, information = float(table.loc[best, "ARI"]), float(table.loc[best, "NMI"])
        if index >= IDENTICAL:
            exact = [str(name) for name in table.index[table["ARI"] >= IDENTICAL]]
            yield f"The known classes are recovered exactly by {conjoined(exact)}."
        elif index < UNRELATED:
            yield from _unlike(max(index, 0.0), associations or {})
        else:
            yield (
                f"{best} recovers the known classes best: adjusted Rand index {index:.2f} (1 for a perfect match, 0 by "
                f"chance), normalised mutual information {information:.2f}."
            )


def _unlike(index: float, associations: Mapping[str, Association]) -> Iterator[str]:
    """How clusters that do not recover the known classes relate to them."""
    line = (
        f"No method recovers the known classes: the adjusted Rand index is at most {index:.2f} (1 for a perfect match, 0 by "
        "chance)"
    )
    if not associations:
        yield f"{line}."
        return
    name, strongest = max(associations.items(), key=lambda item: item[1].value)
    value, low, high, p_value = strongest
    span = f" (95% of its draws between {low:.2f} and {high:.2f})" if low < high else ""
    size = f"bias-corrected Cramér's V {value:.2f}{span}; chi-squared test of independence, p = {p_value:.2g}"
    if p_value >= CHANCE:
        yield f"{line}, and the clusters show no association with the classes beyond chance ({name}: {size})."
    else:
        strength = "strongly" if value >= STRONG else "moderately" if value >= WEAK else "weakly"
        yield f"{line}, but the clusters of {name} are {strength} associated with them ({size})."


def held_out_verdict(table: pd.DataFrame) -> Iterator[str]:
    """Which method predicts held-out rows best, and which cannot be told from it by the paired differences of the rows."""
    if "held_out" not in table:
        return
    others = table.sort_values("held_out", ascending=False, kind="stable")
    best, density = others.index[0], others["held_out"].iloc[0]
    others = others.iloc[1:]
    close = others[-others["held_out_diff"] <= CLOSE * others["held_out_dse"]]
    line = f"{best} predicts the held-out rows best, with a mean log density of {density:.3f} nats per row"
    if len(close):
        behind = [f"{name} ({-row.held_out_diff:.3f} ± {row.held_out_dse:.3f} lower)" for name, row in close.iterrows()]
        line += f"; within two standard errors of the paired difference: {conjoined(behind)}"
    yield f"{line}."


def clusters_verdict(name: str, draws: Int[np.ndarray, "chain draw n"], certainty: RowCertainty) -> Iterator[str]:
    """How certain the number of clusters and the assignments are.

    Parameters
    ----------
    name
        Of the method.
    draws
        Partitions.
    certainty
        Of the rows in the method's point estimate.
    """
    probability = number_of_clusters(draws)
    mode, (low, high) = int(probability.argmax()), _central(probability)
    span = f"; 95% of the draws have {low} to {high}" if low < high else ""
    yield f"{name}: the most probable number of clusters is {mode} (probability {probability[mode]:.0%}{span})."
    n, certain = len(certainty.labels), int(certainty.certain.sum())
    rule = f"certain: the row belongs to its cluster with a probability of at least {CERTAIN:g}"
    torn = int((certainty.torn & ~certainty.certain).sum())
    more = f"; for {torn} of them another cluster is at least half as probable as their own" if torn else ""
    if certain == n:
        yield f"{name}: every row's cluster is certain ({rule})."
    else:
        yield f"{name}: the clusters of {certain} of {n} rows are certain, and {n - certain} are in doubt{more} ({rule})."


def _central(probability: Float[np.ndarray, " k"]) -> tuple[int, int]:
    """Numbers of clusters between which it lies with a probability of 95%."""
    up_to = np.cumsum(probability)
    return int(np.searchsorted(up_to, 0.025)), int(np.searchsorted(up_to, 0.975))


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def clusters_at_cuts(tree: Dendrogram) -> dict[float, int]:
    """Number of clusters of a tree cut at several merge probabilities, to see whether the cut matters."""
    return {threshold: int(tree.cut(threshold).max()) + 1 for threshold in (0.1, 0.3, 0.5, 0.7, 0.9)}


def tree_verdict(name: str, clusters: Mapping[float, int], draws: Int[np.ndarray, "s n"]) -> Iterator[str]:
    """How much the number of clusters depends on where a tree is cut.

    Parameters
    ----------
    name
        Of the method.
    clusters
        Of `clusters_at_cuts`.
    draws
        Partitions drawn from the tree's posterior.
    """
    thresholds, counts = list(clusters), clusters.values()
    span, drawn = _span(min(counts), max(counts)), _span(*_central(number_of_clusters(draws)))
    yield (
        f"{name}: cutting the tree at merge probabilities from {thresholds[0]:g} to {thresholds[-1]:g} gives {span} clusters; "
        f"95% of the partitions drawn from it have {drawn}."
    )


def support_verdict(tree: Hierarchy, support: Float[np.ndarray, " nodes"]) -> Iterator[str]:
    """How well the draws support a tree.

    Parameters
    ----------
    tree
        The tree.
    support
        (nodes,) share of the draws that have a node of the same items.
    """
    inner = (tree.sizes > 1) & (tree.sizes < tree.n_items)
    if not inner.any():
        yield "Below its root, the tree has no node with several items."
        return
    sure = int((support[inner] >= SURE).sum())
    yield (
        f"Of {int(inner.sum())} nodes with several items, {sure} occur in at least {SURE:.0%} of the draws and "
        f"{int((support[inner] < 0.5).sum())} in less than half: judge each node by the share beside it."
    )


def parts_verdict(name: str, gains: Sequence[PartGain], names: Sequence[str]) -> Iterator[str]:
    """What separates the clusters of a mixed table: the share of each part in the gain over one cluster.

    Parameters
    ----------
    name
        Of the method.
    gains
        Of `part_gains`; nothing is said of a single part, or if no part gains anything.
    names
        Name of each column as it was read: the indicators of a category have the same.
    """
    total = sum(max(part.gain, 0.0) for part in gains)
    if len(gains) < 2 or total <= 0:
        return

    ordered = sorted(gains, key=lambda part: -part.gain)
    words = [columns_in_words(names, part.columns) for part in ordered]
    shares = [
        f"{columns}: {max(part.gain, 0.0) / total:.0%} ({part.gain:.0f} nats{BOUNDS if part.approximate else ''})"
        for columns, part in zip(words, ordered, strict=True)
    ]
    more = f"; ... ({len(shares)} in all)" if len(shares) > MOST_PARTS else ""
    line = f"What separates the clusters of {name}, relative to one cluster: {'; '.join(shares[:MOST_PARTS])}{more}"
    if ordered[0].gain >= DOMINANT * total:
        line += f". Columns other than {words[0]} hardly influence the clusters"
    yield line + "."


def columns_in_words(names: Sequence[str], which: Sequence[int]) -> str:
    """Names of some of the columns, each once: the first ones and the number of the others if there are more than four."""
    return some_of([repr(name) for name in dict.fromkeys(names[j] for j in which)], MOST_NAMED)


def dispersion_verdict(name: str, index: Mapping[str, float]) -> Iterator[str]:
    """Which columns of counts are over-dispersed within clusters.

    Parameters
    ----------
    name
        Of the method.
    index
        Column -> index of dispersion, of `dispersion_within`.
    """
    high = {column: value for column, value in index.items() if value > OVERDISPERSED}
    if high:
        most = max(high.values())
        yield (
            f"The counts {listed([repr(column) for column in high], 5)} vary more within the clusters of {name} than Poisson "
            f"counts do (variance up to {most:.1f} times the mean): clusters may have been split for this reason alone."
        )

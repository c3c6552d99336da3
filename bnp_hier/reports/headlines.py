"""Summary of a comparison in a few sentences: the clusters that matter, how certain their number is, and who agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix

from bnp_hier.posterior.credible_balls import LARGE, large_clusters, least_share
from bnp_hier.utils.wording import conjoined, in_words

__all__ = ["Relation", "alternative_verdict", "headline", "large_in_words", "relation"]

ALIKE = 0.95
"""Share of the rows that must follow a partition for another to be called a coarser or a finer version of it."""

NOT_EXCLUDED = 0.05
"""Probability of a single large cluster from which on the draws do not exclude it."""

CREDIBLE = 0.05, 0.95
"""Quantiles of the number of large clusters between which it lies with a probability of 90%."""


class Relation(NamedTuple):
    """How a partition relates to a reference partition.

    - **kind** - "same", "nearly the same", "merges", "splits" or "differs".
    - **clusters** - the clusters of the reference that are merged, one tuple for each cluster made of several, or those that
      are split, one tuple for all.
    """

    kind: str
    clusters: tuple[tuple[int, ...], ...] = ()


def relation(reference: Int[np.ndarray, " n"], labels: Int[np.ndarray, " n"]) -> Relation:
    """Find out whether a partition merges or splits clusters of a reference partition, up to 5% of the rows."""
    counts = contingency_matrix(reference, labels)
    n = counts.sum()
    coarser, finer = counts.max(1).sum() / n >= ALIKE, counts.max(0).sum() / n >= ALIKE
    if adjusted_rand_score(reference, labels) >= 1.0 - 1e-9:
        return Relation("same")
    into, of = counts.argmax(1), counts.argmax(0)
    joined = [tuple(int(k) for k in np.flatnonzero(into == target)) for target in np.unique(into)]
    merged = tuple(group for group in joined if len(group) > 1)
    divided = tuple(int(k) for k in range(counts.shape[0]) if (of == k).sum() > 1)
    if coarser and finer:
        return Relation("nearly the same")
    if coarser and merged:
        return Relation("merges", merged)
    if finer and divided:
        return Relation("splits", (divided,))
    return Relation("differs")


def headline(
    lead: str,
    labels: Mapping[str, Int[np.ndarray, " n"]],
    numbers: Int[np.ndarray, " s"] | None = None,
    columns: int = 0,
    disagreeing: str | None = None,
) -> str:
    """A few sentences on the clusters that matter, how certain their number is, and how the methods agree.

    It begins with the large clusters of the leading partition, those of at least 2% of the rows (and two rows), the share
    of the rows that they hold, and their number in the draws. It begins with no number where none has a probability of 1/2,
    and says that the data do not show groups where the draws do not exclude a single large cluster.

    Parameters
    ----------
    lead
        The method that the others are compared with.
    labels
        Method -> (n,) its partition.
    numbers
        (s,) number of large clusters of every draw, if the leading method samples the posterior.
    columns
        Number of columns of the data.
    disagreeing
        The method whose chains do not agree, and therefore supply no probabilities.
    """
    sizes, rows = np.bincount(labels[lead]), len(labels[lead])
    alone = int((sizes == 1).sum())
    start = ""
    if disagreeing is not None:
        start = f"Unsettled: the chains of {disagreeing} do not agree, and supply no probabilities; run them longer. "
    if alone > rows / 2:
        return start + _without_groups(lead, alone, rows, columns)
    agree = len(labels) > 1 and all(relation(labels[lead], other).kind == "same" for other in labels.values())
    first = _of_partition(lead, labels, sizes, agree) if numbers is None else _of_draws(numbers, sizes)
    rest = [*_small(sizes), *(() if agree and numbers is None else _others(lead, labels))]
    if numbers is None and disagreeing is None:
        rest.append("Run gibbs to see how probable this number is.")
    return start + " ".join([first, *rest])


def alternative_verdict(name: str, shown: Int[np.ndarray, " n"], alternative: Int[np.ndarray, " n"]) -> Iterator[str]:
    """Why the partition of a method has another number of large clusters than most draws.

    Parameters
    ----------
    name
        Of the method.
    shown
        Its partition.
    alternative
        The best partition with the most probable number of large clusters.
    """
    least = least_share(len(shown))
    own, other = (int(large_clusters(labels, least)) for labels in (shown, alternative))
    yield (
        f"{name}: {in_words(other)} clusters of at least {least:.0%} of the rows are the most probable number, but the "
        f"partition shown has {in_words(own)}: it is the one nearest to all draws, and draws with {in_words(other)} differ in "
        f"which rows form them. The report draws the best partition with {in_words(other)} beside it."
    )


def _least(rows: int) -> str:
    return f"at least {LARGE:.0%}" if least_share(rows) == LARGE else "at least two rows"


def _held(sizes: Int[np.ndarray, " k"]) -> tuple[int, str]:
    """Number of large clusters, and what they hold, in words."""
    large = sizes >= least_share(int(sizes.sum())) * sizes.sum()
    share = sizes[large].sum() / sizes.sum()
    held = "all rows" if share == 1 else "more than 99% of the rows" if share > 0.99 else f"{share:.0%} of the rows"
    return int(large.sum()), held


def large_in_words(sizes: Int[np.ndarray, " k"]) -> str:
    """Say how many of the rows the large clusters hold; empty if all clusters are large, or none.

    Examples
    --------
    >>> import numpy as np
    >>> large_in_words(np.array([90, 69, 62, 59, 2, 2, 1, 1]))
    'the four largest hold 98% of the rows'
    """
    own, held = _held(sizes)
    if own in (0, len(sizes)):
        return ""
    return f"the {in_words(own)} largest hold {held}" if own > 1 else f"the largest holds {held}"


def _of_draws(numbers: Int[np.ndarray, " s"], sizes: Int[np.ndarray, " k"]) -> str:
    """How many large clusters there are, from the posterior."""
    probabilities, least = np.bincount(numbers) / len(numbers), _least(int(sizes.sum()))
    low, high = (int(value) for value in np.quantile(numbers, CREDIBLE, method="inverted_cdf"))
    mode, (own, held) = int(probabilities.argmax()), _held(sizes)
    credible = f"{CREDIBLE[1] - CREDIBLE[0]:.0%} credible"
    span = f"{credible}: {low} to {high} of {least}"
    if low == high:
        span = f"probability {probabilities[mode]:.0%} of {mode} of {least}"
    if (single := probabilities[:2].sum()) >= NOT_EXCLUDED:
        return f"The data do not show groups: there is a single cluster with a probability of {single:.0%} ({span})."
    nearest = f"In the partition nearest to all draws, {in_words(own)} hold{'s' if own == 1 else ''} {held}"
    if probabilities[mode] < 0.5:
        return f"Between {in_words(low)} and {in_words(high)} clusters of {least} ({credible}). {nearest}."
    if own != mode:
        sure = f"{probabilities[mode]:.0%}; {credible}: {low} to {high}"
        more = f"{in_words(mode)} of {least} are more probable ({sure})"
        return f"{_counted(own)} hold{'s' if own == 1 else ''} {held}, in the partition nearest to all draws; {more}."
    return f"{_counted(own)} hold{'s' if own == 1 else ''} {held} ({span})."


def _of_partition(lead: str, labels: Mapping[str, Int[np.ndarray, " n"]], sizes: Int[np.ndarray, " k"], agree: bool) -> str:
    """Where no method samples the posterior, there is no probability to report."""
    own, held = _held(sizes)
    by = "by every method" if agree else f"by {lead}"
    if len(labels) > 1 and not agree:
        by = f"in the most probable partition found, that of {lead}"
    if not own:
        return f"{_counted(len(sizes))}, none of which holds {_least(int(sizes.sum()))}, {by}."
    if len(sizes) == 1:
        return f"One cluster, {by}."
    return f"{_counted(own)} hold{'s' if own == 1 else ''} {held}, {by}."


def _small(sizes: Int[np.ndarray, " k"]) -> Iterator[str]:
    """How many further clusters the partition has."""
    large = sizes >= least_share(int(sizes.sum())) * sizes.sum()
    few = sizes[~large]
    if large.any() and len(few):
        rows = "a single row" if few.max() == 1 else f"at most {in_words(int(few.max()))} rows"
        each = " each" if len(few) > 1 else ""
        yield f"The partition has {in_words(len(few))} more, of {rows}{each}."


def _without_groups(lead: str, alone: int, rows: int, columns: int) -> str:
    """Where most rows are clusters of their own, the number of clusters is no finding."""
    why = "the likelihood does not suit the columns, or no two rows are alike: see the warnings"
    if columns > rows:
        why = f"there are more columns ({columns}) than rows: use fewer of them, or principal components"
    return f"No groups were found: in the partition of {lead}, {alone} of {rows} rows are each a cluster of their own; {why}."


def _counted(clusters: int) -> str:
    """The number in words, at the beginning of a sentence."""
    return f"{in_words(clusters).capitalize()} cluster{'s' if clusters != 1 else ''}"


def _others(lead: str, labels: Mapping[str, Int[np.ndarray, " n"]]) -> Iterator[str]:
    """How the partitions of the other methods relate to that of the leading one, methods that agree in one sentence."""
    groups: dict[tuple[Relation, int], list[str]] = {}
    for name, other in labels.items():
        if name != lead:
            found = relation(labels[lead], other)
            size = int(other.max()) + 1 if found.kind == "differs" else 0
            groups.setdefault((found, size), []).append(name)
    if [found.kind for found, _ in groups] == ["same"] and len(labels) > 2:
        yield "All methods agree."
        return
    for (found, size), names in groups.items():
        yield _related(names, found, size)


def _related(names: list[str], found: Relation, size: int) -> str:
    several = len(names) > 1
    who = conjoined(names)
    if found.kind == "same":
        return f"{who} find{'' if several else 's'} the same clusters."
    if found.kind == "nearly the same":
        return f"{who} find{'' if several else 's'} nearly the same clusters."
    if found.kind == "merges":
        merged = conjoined([f"clusters {conjoined(group)}" for group in found.clusters])
        return f"{who} merge{'' if several else 's'} {merged}."
    if found.kind == "splits":
        (divided,) = found.clusters
        return f"{who} split{'' if several else 's'} cluster{'s' if len(divided) > 1 else ''} {conjoined(divided)}."
    return f"{who} {'find' if several else 'finds'} a different partition, of {in_words(size)}."

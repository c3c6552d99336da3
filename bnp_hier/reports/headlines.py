"""Summary of a comparison in a few sentences: the number of clusters, how certain it is, their sizes, and who agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix

from bnp_hier.reports.cluster_sizes import sizes_in_words
from bnp_hier.utils.wording import conjoined, in_words

__all__ = ["Relation", "headline", "relation"]

ALIKE = 0.95
"""Share of the rows that must follow a partition for another to be called a coarser or a finer version of it."""

WORTH_NAMING = 0.05
"""Probability from which on a second number of clusters appears in the headline."""

NEAREST = "The partition nearest to all draws has"
"""Beginning of a sentence on the point estimate."""


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
    probabilities: Float[np.ndarray, " k1"] | None = None,
    converged: bool = True,
    columns: int = 0,
) -> str:
    """A few sentences on the number of clusters and their sizes, reconciled over the methods.

    Of clusters of very unequal sizes, it says how many of the rows the large ones hold, and how many are tiny.

    Parameters
    ----------
    lead
        The method that the others are compared with.
    labels
        Method -> (n,) its partition.
    probabilities
        Posterior probabilities of 0, 1, ..., K clusters, if the leading method samples the posterior.
    converged
        Whether the chains agree on the number of clusters.
    columns
        Number of columns of the data.
    """
    reference = labels[lead]
    alone = int((np.bincount(reference) == 1).sum())
    if alone > len(reference) / 2:
        return _without_groups(lead, alone, len(reference), columns)
    own, sizes = int(reference.max()) + 1, sizes_in_words(np.bincount(reference))
    if probabilities is None:
        return _without_probabilities(lead, labels, sizes)
    if not converged:
        shown = [f"{NEAREST} {in_words(own)} clusters; {sizes}."] if sizes else []
        return " ".join([_unsettled(lead, probabilities), *shown, *_others(lead, labels)])
    mode = int(probabilities.argmax())
    rest = [int(k) for k in np.argsort(-probabilities, kind="stable")[1:] if probabilities[k] >= WORTH_NAMING][:3]
    beside = "".join(f"{', ' if i else '; '}{in_words(k)} {probabilities[k]:.0%}" for i, k in enumerate(rest))
    first = f"{_counted(mode)} (probability {probabilities[mode]:.0%}{beside})"
    if mode == 1:
        first += ". Under this model the data show no groups" if probabilities[1] >= 0.5 else ""
    elif own != mode:
        first += f". {NEAREST} {in_words(own)}"
    first += f"; {sizes}." if sizes and mode != 1 else "."
    return " ".join([first, *_others(lead, labels)])


def _without_groups(lead: str, alone: int, rows: int, columns: int) -> str:
    """Where most rows are clusters of their own, the number of clusters is no finding."""
    why = "the likelihood does not suit the columns, or no two rows are alike: see the warnings"
    if columns > rows:
        why = f"there are more columns ({columns}) than rows: use fewer of them, or principal components"
    return f"No groups were found: in the partition of {lead}, {alone} of {rows} rows are each a cluster of their own; {why}."


def _counted(clusters: int) -> str:
    """The number in words, at the beginning of a sentence."""
    return f"{in_words(clusters).capitalize()} cluster{'s' if clusters != 1 else ''}"


def _unsettled(lead: str, probabilities: Float[np.ndarray, " k1"]) -> str:
    seen = np.flatnonzero(probabilities >= 0.01)
    span = f"between {seen[0]} and {seen[-1]}" if seen[0] < seen[-1] else f"around {seen[0]}"
    return f"Unsettled: the chains of {lead} do not agree on the number of clusters ({span}); run them longer."


def _without_probabilities(lead: str, labels: Mapping[str, Int[np.ndarray, " n"]], sizes: str) -> str:
    """Where no method samples the posterior, there is no probability to report."""
    own = int(labels[lead].max()) + 1
    advice = "Run gibbs to see how probable this number is."
    shown = f"; {sizes}." if sizes else "."
    if len(labels) == 1:
        return f"{_counted(own)}, by {lead}{shown} {advice}"
    if all(relation(labels[lead], other).kind == "same" for other in labels.values()):
        return f"{_counted(own)}, by every method{shown} {advice}"
    first = f"{_counted(own)} in the most probable partition found, that of {lead}{shown}"
    return " ".join([first, *_others(lead, labels), advice])


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

"""How clusters lie in known classes, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Int, Shaped
from sklearn.metrics.cluster import contingency_matrix

from bnp_hier.reports.headlines import ALIKE
from bnp_hier.utils.wording import conjoined, counted, some_of

__all__ = ["classes_verdict", "clusters_in_classes", "known_classes_of"]

MOST_NAMED = 4
"""Most classes, and most clusters, that are named."""


def classes_verdict(
    name: str,
    labels: Int[np.ndarray, " n"],
    classes: Shaped[np.ndarray, " n"],
    truths: Mapping[str, Shaped[np.ndarray, " n"]],
    scores: Mapping[str, float],
) -> Iterator[str]:
    """How the clusters of a method lie in known classes, beside the adjusted Rand index.

    Parameters
    ----------
    name
        Of the method.
    labels
        Its clusters, from 0.
    classes
        The known classes, or combinations of classes if there are several columns of them.
    truths
        Name -> classes, for each of several columns.
    scores
        "ARI", and "ARI" with the name of each column -> adjusted Rand index.
    """
    all_of = f"the combinations of {conjoined([*map(repr, truths)])}" if truths else "the known classes"
    kinds = {f"the classes {of!r}": (f"ARI {of}", values) for of, values in truths.items()} | {all_of: ("ARI", classes)}
    for what, (score, values) in kinds.items():
        found = f"adjusted Rand index {scores[score]:.2f}", clusters_in_classes(labels, values)
        yield f"The clusters of {name} beside {what}: {'; '.join(filter(None, found))}."


def known_classes_of(classes: Shaped[np.ndarray, " m"], most: int = 10) -> str:
    """The classes of some rows with their numbers of rows, the most frequent ones first."""
    found, counts = np.unique(classes, return_counts=True)
    return "Known classes: " + ", ".join(f"{found[i]} ({counts[i]})" for i in np.argsort(-counts)[:most])


def clusters_in_classes(labels: Int[np.ndarray, " n"], classes: Shaped[np.ndarray, " n"]) -> str:
    """Whether clusters lie within classes (homogeneity) or classes within clusters (completeness), but for 5% of the rows.

    A clause, such as "every cluster lies within one class but for 5 rows of 'b'; class 'a' is cut into 3 clusters"; empty if
    neither is the case, or there is only one cluster or one class.

    Parameters
    ----------
    labels
        Clusters from 0.
    classes
        Known classes.
    """
    found, of = np.unique(classes, return_inverse=True)
    counts, names = contingency_matrix(of, labels), [repr(str(name)) for name in found]  # (classes, clusters)
    if 1 in counts.shape:
        return ""
    class_of, cluster_of = counts.argmax(0), counts.argmax(1)
    outside = counts.sum(1) - np.bincount(class_of, weights=counts.max(0), minlength=len(names)).astype(int)
    if outside.sum() <= (1.0 - ALIKE) * len(labels):
        parts = np.bincount(class_of, minlength=len(names))
        cut = [f"class {names[c]} is cut into {parts[c]} clusters" for c in np.flatnonzero(parts > 1)]
        return f"every cluster lies within one class{_except(outside, names)}{_and(cut)}"
    outside = counts.sum(1) - counts.max(1)
    if outside.sum() <= (1.0 - ALIKE) * len(labels):
        groups = {k: [names[c] for c in np.flatnonzero(cluster_of == k)] for k in np.unique(cluster_of)}
        joined = [f"cluster {k} joins the classes {conjoined(group)}" for k, group in groups.items() if len(group) > 1]
        return f"every class lies within one cluster{_except(outside, names)}{_and(joined)}"
    return ""


def _and(clauses: list[str]) -> str:
    return f"; {some_of(clauses, MOST_NAMED)}" if clauses else ""


def _except(outside: Int[np.ndarray, " classes"], names: list[str]) -> str:
    """The numbers of rows to which a statement does not apply, by class."""
    of = [f"{outside[c]} of {names[c]}" for c in np.argsort(-outside, kind="stable") if outside[c]]
    if not of:
        return ""
    rows = counted(int(outside.sum()), "row")
    return (
        f" but for {rows} of {names[int(outside.argmax())]}" if len(of) == 1 else f" but for {rows}, {some_of(of, MOST_NAMED)}"
    )

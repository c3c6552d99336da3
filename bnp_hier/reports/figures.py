"""The figures of a report, for its page and for files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped
from matplotlib.figure import Figure
from sklearn.metrics import adjusted_rand_score

from bnp_hier import plots
from bnp_hier.capabilities import TreePosterior
from bnp_hier.posterior.convergence import LABEL_INVARIANT
from bnp_hier.posterior.credible_balls import large_clusters, least_share, number_of_clusters
from bnp_hier.posterior.partitions import coclustering
from bnp_hier.reports.chains import IN_WORDS
from bnp_hier.reports.findings import Findings
from bnp_hier.reports.tree_page import BRANCHES, tree_figure
from bnp_hier.utils.files import replacing
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.wording import in_words

__all__ = [
    "FORMATS",
    "MOST_CLASSES",
    "MOST_PAIRED",
    "MOST_POINTS",
    "NamedFigure",
    "alternative_figures",
    "association_figure",
    "cluster_number_figures",
    "coclustering_figures",
    "flow_figures",
    "pairs_figure",
    "profile_figure",
    "some_rows",
    "trace_figures",
    "write_figures",
]

FORMATS = ("pdf", "png", "svg")
"""Formats of figure files."""

MOST_PAIRED = 600
"""Most rows in a heat map of all pairs of rows; of more, this many are drawn at random."""

MOST_POINTS = 3000
"""Most rows in a scatter plot."""

MOST_CLASSES = 15
"""Most known classes that are shown beside the clusters."""


class NamedFigure(NamedTuple):
    """A figure of a report.

    - **name** - of its file, without suffix.
    - **caption** - what it shows.
    - **figure** - the figure.
    """

    name: str
    caption: str
    figure: Figure


def profile_figure(findings: Findings) -> NamedFigure:
    """What the clusters of the method shown contain."""
    caption = (
        f"Means ± standard deviations, or shares, of the rows in each cluster of {findings.lead} and, in parentheses, 95% "
        "intervals of its mean parameters; the names of columns that were not used to find the clusters are in italics"
    )
    return NamedFigure("profiles", caption, _figure(plots.cluster_profiles(findings.profiles)))


def association_figure(findings: Findings) -> NamedFigure:
    """How far the columns go with the clusters."""
    caption = f"How strongly columns are associated with the clusters of {findings.lead}, with intervals over its draws"
    return NamedFigure("association", caption, _figure(plots.associations(findings.profiles)))


def alternative_figures(findings: Findings) -> Iterator[NamedFigure]:
    """The partition shown beside the best one with the most probable number of large clusters, where these numbers differ."""
    if findings.alternative is not None:
        lead, least = findings.lead, least_share(len(findings.data.X))
        number = int(large_clusters(findings.alternative, least))
        beside = {f"{lead}, shown": findings.labels[lead], f"best with {in_words(number)}": findings.alternative}
        caption = (
            f"Where the rows of the clusters of {lead} are in the best partition with {in_words(number)} clusters of at least "
            f"{least:.0%} of the rows, the most probable number"
        )
        yield NamedFigure("alternative", caption, _figure(plots.partition_flow(beside)))


def pairs_figure(findings: Findings) -> NamedFigure:
    """The columns by cluster."""
    data, lead = findings.data, findings.lead
    some = some_rows(len(data.X), MOST_POINTS, findings.random_state)
    caption = f"The columns of the data, coloured by the clusters of {lead}{_of(len(some), len(data.X))}"
    if len(data.source_columns) < len(data.feature_names):
        caption += "; the indicators of a category are columns of their own here"
    figure = plots.pairs(data.X[some], labels=findings.labels[lead][some], feature_names=data.feature_names)
    return NamedFigure("columns", caption, figure)


def cluster_number_figures(findings: Findings) -> Iterator[NamedFigure]:
    """The probability of each number of clusters, for the chains that agree."""
    for name in findings.trusted:
        draws = findings.draws(name)
        least = least_share(draws.shape[-1])
        figure = _figure(plots.number_of_clusters(number_of_clusters(draws, least)))
        caption = f"{name}: probability of each number of clusters of at least {least:.0%} of the rows"
        yield NamedFigure(_file("number-of-clusters", name), caption, figure)


def coclustering_figures(findings: Findings) -> Iterator[NamedFigure]:
    """The probabilities that two rows share a cluster, for methods with several draws, the one shown first."""
    for name in sorted(findings.fits, key=lambda name: name != findings.lead):
        draws = findings.draws(name)
        if draws.shape[0] * draws.shape[1] == 1:
            continue
        some = some_rows(draws.shape[-1], MOST_PAIRED, findings.random_state)
        figure = Figure(figsize=(6, 5), layout="constrained")
        plots.coclustering(coclustering(draws[..., some]), labels=findings.labels[name][some], ax=figure.subplots())
        caption = f"Probability that two rows share a cluster, {name}, ordered by cluster{_of(len(some), draws.shape[-1])}"
        yield NamedFigure(_file("coclustering", name), caption, figure)


def flow_figures(findings: Findings) -> Iterator[NamedFigure]:
    """Which rows of a cluster of one method are in which clusters of another and in which known classes; none if all agree."""
    partitions = _distinct(findings)
    classes = findings.data.classes
    if classes is not None and 1 < len(np.unique(classes)) <= MOST_CLASSES:
        partitions["known classes"] = classes
    if len(partitions) > 1:
        caption = (
            f"Where the rows of each cluster go, from method to method; colours are the clusters of {findings.lead}, and "
            "methods with the same partition share a column"
        )
        yield NamedFigure("flow", caption, _figure(plots.partition_flow(partitions)))


def trace_figures(findings: Findings) -> Iterator[NamedFigure]:
    """Traces and rank histograms of the methods that are chains."""
    for name in findings.certainty:
        posterior = findings.packages[name]["posterior"]
        caption = f"{name}: traces and rank histograms; the histograms of chains that agree follow the dashed line"
        shown = {IN_WORDS[of].removeprefix("the "): np.asarray(posterior[of]) for of in LABEL_INVARIANT}
        yield NamedFigure(_file("traces", name), caption, plots.traces(shown))


def write_figures(folder: Path, findings: Findings, suffix: str) -> dict[str, str]:
    """Write every figure of the report to a file of its own.

    Parameters
    ----------
    folder
        Folder of the files.
    findings
        What to show.
    suffix
        One of `FORMATS`.

    Returns
    -------
    written
        Name of a file -> its caption.
    """
    written = {}
    for each in _all_figures(findings):
        file = f"{each.name}.{suffix}"
        with replacing(folder / file) as draft:
            each.figure.savefig(draft, dpi=200, bbox_inches="tight")
        written[file] = each.caption
    return written


def _all_figures(findings: Findings) -> Iterator[NamedFigure]:
    yield profile_figure(findings)
    yield association_figure(findings)
    yield from cluster_number_figures(findings)
    yield from alternative_figures(findings)
    yield from coclustering_figures(findings)
    yield from flow_figures(findings)
    for name, fit in findings.fits.items():
        if isinstance(fit, TreePosterior):
            figure = tree_figure(fit.dendrogram_, findings.data.item_names)
            yield NamedFigure(_file("tree", name), f"{name}. {BRANCHES.format(0.5)}", figure)
    yield pairs_figure(findings)
    yield from trace_figures(findings)


def some_rows(n: int, most: int, seed: int) -> Int[np.ndarray, " m"]:
    """All n rows, or a random sample of them."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def _distinct(findings: Findings) -> dict[str, Shaped[np.ndarray, " n"]]:
    """The distinct partitions of the methods, that of the method shown first, and each followed by the most similar one."""
    groups: list[tuple[list[str], Int[np.ndarray, " n"]]] = []
    for name in sorted(findings.fits, key=lambda name: name != findings.lead):
        labels = findings.labels[name]
        same = [names for names, other in groups if (canonical_labels(other) == canonical_labels(labels)).all()]
        if same:
            same[0].append(name)
        else:
            groups.append(([name], labels))
    ordered, rest = groups[:1], groups[1:]
    while rest:
        alike = [adjusted_rand_score(ordered[-1][1], labels) for _, labels in rest]
        ordered.append(rest.pop(int(np.argmax(alike))))
    return {", ".join(names): labels for names, labels in ordered}


def _figure(axes: Any) -> Figure:
    """The figure of a plot."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure


def _file(what: str, method: str) -> str:
    return f"{what}-{method.lower().replace(' ', '-')}"


def _of(shown: int, n: int) -> str:
    return "" if shown == n else f" ({shown} of {n} rows, drawn at random)"

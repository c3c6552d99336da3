"""The result of a clustering, which prints as text and shows itself as HTML in notebooks."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.advice.column_kinds import advised
from bnp_hier.capabilities import Chains, Clustering
from bnp_hier.clustering.plans import ClusteringPlan
from bnp_hier.datasets import Dataset
from bnp_hier.datasets.tabular import rows_like
from bnp_hier.methods import METHODS, Outcome
from bnp_hier.posterior.cluster_profiles import ClusterProfiles
from bnp_hier.posterior.item_uncertainty import CERTAIN, row_probabilities
from bnp_hier.posterior.new_rows import cluster_probabilities
from bnp_hier.reports.chains import Convergence
from bnp_hier.runs.saved_fit import SavedFit
from bnp_hier.utils.files import write_text
from bnp_hier.utils.spreadsheets import csv_text
from bnp_hier.utils.wording import listed, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bnp_hier.advice.fit_checks import FitCheck
    from bnp_hier.reports.findings import Findings
    from bnp_hier.reports.row_certainty import RowCertainty

__all__ = ["ClusteringResult", "Summary", "changes"]


PLOTS = ("pairs", "coclustering", "number_of_clusters")
"""Kinds of plots."""


WIDTH = 100
"""Characters of a line of text."""

MOST_CLUSTERS = 12
"""Largest number of clusters that are listed, the largest first."""

NEXT = "Next: .plot(), .to_frame(), .report('report.html'), .to_arviz(), .predict(X_new), .table, .notes"


@dataclass(frozen=True, eq=False, repr=False)
class ClusteringResult:
    """The clusters of a data set and how certain they are, by several methods; made by `bnp_hier.cluster`.

    The clusters are the point estimate of one method, `method`: the first method that draws from the posterior, or else the
    one whose partition is most probable. They are numbered from 0. `print(result)` shows a summary, and a notebook shows it as
    HTML.

    Parameters
    ----------
    plan
        What was run on which rows.
    outcome
        The fits, run times and problems.
    index
        Index of the fitted rows of a DataFrame; None to use the names or numbers of the rows.
    again
        Function that returns the code or command that makes the result again, for the report, with the changes that
        `bnp_hier.clustering.results.changes` makes; None if there is none.
    """

    plan: ClusteringPlan
    outcome: Outcome
    index: pd.Index | None = None
    again: Callable[..., str] | None = None

    # ---- the clusters -----------------------------------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """Title of the method whose clusters these are."""
        return self.findings.lead

    @property
    def _labels(self) -> Int[np.ndarray, " n"]:
        """(n,) cluster of each fitted row: the method's point estimate."""
        return self.findings.labels[self.method]

    @property
    def labels_(self) -> Int[np.ndarray, " m"]:
        """(m,) cluster of each row that was not held out, in the order of the data; −1 for rows that were left out."""
        return self._with_left_out(self._labels, -1)

    def _with_left_out(self, values: np.ndarray, fill: Any) -> np.ndarray:
        """Values of the fitted rows and, in between, `fill` for those that were left out."""
        plan = self.plan
        whole = np.full((len(plan.rows), *values.shape[1:]), fill, dtype=values.dtype)
        whole[np.searchsorted(plan.rows, plan.fitted_rows)] = values
        return whole

    @property
    def n_clusters_(self) -> int:
        """Number of clusters in `labels_`."""
        return int(self._labels.max()) + 1

    @cached_property
    def probabilities(self) -> Float[np.ndarray, "n k"]:
        """(n, K) probability that each fitted row belongs to each cluster.

        For methods that draw partitions, `membership_probabilities` of the draws, whose rows sum to at most 1: the rest is the
        probability of none of the clusters. For the others, the predictive probabilities given their one partition, which are
        too certain because they include the row itself.
        """
        draws = self.findings.draws(self.method)
        s, fit = draws.shape[0] * draws.shape[1], self.fits[self.method]
        if s > 1 or not isinstance(fit, Clustering):
            return row_probabilities(draws, self._labels)
        known = np.asarray(fit.predict_proba(self.data.X))[:, : self.n_clusters_]
        return known / known.sum(1, keepdims=True)

    @cached_property
    def _certainty(self) -> RowCertainty:
        from bnp_hier.reports.row_certainty import RowCertainty

        return RowCertainty.of(self.probabilities, self._labels)

    def uncertainty(self) -> Float[np.ndarray, " n"]:
        """(n,) probability that each fitted row does not belong to its cluster in `labels_`."""
        return 1.0 - self._certainty.own

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with one line for each row of `labels_`, under the index of the data or the names of the rows.

        Its columns are `cluster`; `probability`, that of this cluster; `alternative` and `probability_of_alternative`, the next
        most probable cluster (missing if no other is possible); `certain`, whether the probability is at least 0.9; `p_value`,
        that of `bnp_hier.leave_one_out_pvalues`, small for an outlier (missing for more than 3,000 rows); and, if classes are
        known, `truth`.
        """
        import pandas as pd

        certainty = self._certainty
        several = certainty.alternative >= 0
        columns: dict[str, Any] = {
            "cluster": certainty.labels,
            "probability": certainty.own,
            "alternative": pd.array(certainty.alternative, dtype="Int64"),
            "probability_of_alternative": np.where(several, certainty.other, np.nan),
            "certain": certainty.certain,
            "p_value": np.nan if self.findings.pvalues is None else self.findings.pvalues,
        }
        if self.data.classes is not None:
            columns["truth"] = self.data.classes
        frame = pd.DataFrame(columns, index=self.plan.fitted_rows)
        frame.loc[~several, "alternative"] = pd.NA
        if len(self.plan.left_out):
            frame = frame.reindex(self.plan.rows).fillna({"cluster": -1, "certain": False})
            frame = frame.astype({"cluster": certainty.labels.dtype, "certain": bool})
        return frame.set_axis(self._index())

    def _index(self) -> pd.Index:
        import pandas as pd

        if self.index is not None:
            return self.index
        names = self.plan.row_names
        return pd.Index(self.plan.rows if names is None else names, name="row")

    # ---- what was found ---------------------------------------------------------------------------------------------------

    @cached_property
    def findings(self) -> Findings:
        """Everything that is computed from the fits, for the table, the files and the report."""
        from bnp_hier.reports.findings import Findings

        plan, seed = self.plan, self.plan.asked.random_state
        return Findings.of(
            plan.data,
            self.fits,
            held_out=plan.held_out,
            seconds=self.seconds,
            random_state=seed,
            rows=plan.fitted_rows,
        )

    @property
    def data(self) -> Dataset:
        """The fitted rows as numbers, with their names, and those of the columns."""
        return self.plan.data

    @property
    def fits(self) -> dict[str, Any]:
        """Title of a method -> its fit: an estimator, or a run of chains."""
        return self.outcome.fits

    @property
    def seconds(self) -> dict[str, float]:
        """Title of a method -> its run time (s)."""
        return self.outcome.seconds

    @property
    def table(self) -> pd.DataFrame:
        """The methods side by side, as `bnp_hier.compare` returns it."""
        return self.findings.table

    @property
    def profiles(self) -> ClusterProfiles:
        """Means and shares of the columns in each cluster, and how strongly each column is associated with the clusters."""
        return self.findings.profiles

    @cached_property
    def headline(self) -> str:
        """The number of clusters, its probability, how unequal they are, and which methods agree, in a few sentences."""
        return self.findings.headline()

    @property
    def notes(self) -> list[str]:
        """The findings in plain sentences."""
        return self.findings.notes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Choices that look wrong before the fit or within its clusters, each with a suggestion."""
        return (*self.plan.advice.warnings, *self.fit_check.sentences)

    @property
    def fit_check(self) -> FitCheck:
        """Whether the rows within the clusters look like those that the likelihood implies, and what was not checked."""
        return self.findings.fit_check

    @cached_property
    def remedy(self) -> str:
        """The call or command that made the result, with what its warnings advise; empty if they advise no other arguments."""
        changed = changes(self.plan, self.findings)
        return self.again(**changed) if changed and self.again is not None else ""

    @property
    def call(self) -> str:
        """The call or command that makes the result again."""
        return "" if self.again is None else self.again()

    @property
    def problems(self) -> list[str]:
        """What failed, was interrupted or was not run, in sentences."""
        return self.outcome.problems

    # ---- figures, files and other packages --------------------------------------------------------------------------------

    def plot(self, kind: str = "pairs") -> Figure:
        """Plot the clusters.

        Parameters
        ----------
        kind
            "pairs" for all pairs of columns, coloured by cluster; "coclustering" for the probabilities that two rows share a
            cluster; "number_of_clusters" for the posterior distribution of that number. Of more than 3,000 rows (600 for
            "coclustering"), some drawn at random are shown.

        Returns
        -------
        figure
            A figure, which is not registered with pyplot.

        Raises
        ------
        ValueError
            If there is no such kind.
        """
        from matplotlib.figure import Figure

        from bnp_hier import plots
        from bnp_hier.posterior import coclustering, number_of_clusters
        from bnp_hier.reports.figures import MOST_PAIRED, MOST_POINTS, some_rows

        if kind not in PLOTS:
            raise ValueError(f"kind must be one of {', '.join(PLOTS)}, but it is {kind!r}")
        draws, labels = self.findings.draws(self.method), self._labels
        n, seed = len(labels), self.plan.asked.random_state
        if kind == "pairs":
            some = some_rows(n, MOST_POINTS, seed)
            return plots.pairs(self.data.X[some], labels=labels[some], feature_names=self.data.feature_names)
        figure = Figure(figsize=(6, 5), layout="constrained")
        if kind == "coclustering":
            some = some_rows(n, MOST_PAIRED, seed)
            plots.coclustering(coclustering(draws[..., some]), labels=labels[some], ax=figure.subplots())
        else:
            plots.number_of_clusters(number_of_clusters(draws), ax=figure.subplots())
        return figure

    def report(
        self, path: str | os.PathLike[str], *, files: Mapping[str, str] | None = None, reproduce: str | None = None
    ) -> Path:
        """Write the report: one HTML file with the findings, tables and figures, which needs nothing else.

        Parameters
        ----------
        path
            File to write; missing folders are created.
        files
            File beside the report -> what it contains.
        reproduce
            Command or code that makes the report again; by default, the call that made this result.

        Returns
        -------
        path
            The file written.
        """
        from bnp_hier.reports.report import write_report

        return write_report(
            path,
            self.findings,
            problems=self.problems,
            warnings=self.warnings,
            facts=self.plan.facts,
            files=files,
            code={
                "What to run next, as the checks advise": self.remedy,
                "How to reproduce this report": self.call if reproduce is None else reproduce,
            },
        )

    def to_arviz(self, method: str | None = None) -> Any:
        """Return the draws of a method, and quantities computed from them, as `bnp_hier.to_arviz` does.

        Parameters
        ----------
        method
            Name or title of a method; by default, the one whose clusters these are.

        Raises
        ------
        ValueError
            If the method was not run.
        """
        return self.findings.packages[self._title(method)]

    def save(self, path: str | os.PathLike[str], method: str | None = None, *, figures: str | None = None) -> Path:
        """Save the fit of a method and its data, for `bnp_hier.load_fit` and `bnp-hier predict`.

        Parameters
        ----------
        path
            File to write, usually ``.npz``.
        method
            As in `to_arviz`.
        figures
            Format "pdf", "png" or "svg", to write every figure of the report and tables of the clusters as well:
            clusters.csv (sizes, means, shares, and intervals over the draws), association.csv, and rows.csv (`to_frame`). They
            are about the clusters in `labels_`, and their folder is named like the file, with "-figures" instead of its suffix.

        Returns
        -------
        path
            The file written.

        Raises
        ------
        ValueError
            If the method was not run, or the format is unknown.
        """
        title = self._title(method)
        if figures is not None:
            self._write_figures(Path(path), figures)
        return self._saved(title).save(path)

    def _write_figures(self, path: Path, suffix: str) -> None:
        from bnp_hier.reports.figures import FORMATS, write_figures
        from bnp_hier.reports.profiles import write_tables

        if suffix not in FORMATS:
            raise ValueError(f"figures must be one of {', '.join(FORMATS)}, but it is {suffix!r}")
        folder = path.with_name(f"{path.stem}-figures")
        write_figures(folder, self.findings, suffix)
        write_tables(folder, self.profiles)
        write_text(folder / "rows.csv", csv_text(self.to_frame(), digits=6))

    def _saved(self, title: str) -> SavedFit:
        name = next(name for name, each in METHODS.items() if each.title == title)
        notes = (*self.problems, *self.warnings)
        return SavedFit(self.fits[title], self.data, name, self.plan.advice.family, self.seconds[title], notes)

    def _title(self, method: str | None) -> str:
        title = self.method if method is None else METHODS[method].title if method in METHODS else method
        if title not in self.fits:
            raise ValueError(f"there is no fit of the method {method!r}; those that were run are {listed(self.fits, 20)}")
        return title

    # ---- new rows ---------------------------------------------------------------------------------------------------------

    def predict_proba(self, X: ArrayLike | pd.DataFrame) -> Float[np.ndarray, "m k1"]:
        """Compute the probability that each new row belongs to each cluster or, in the last column, to a new one.

        Given the data and the row, which is treated by itself, as in `cluster_probabilities`.

        Parameters
        ----------
        X
            New rows, (m, d); of a DataFrame, the columns are found by name and converted as those of the data were, and other
            columns are ignored.

        Raises
        ------
        ValueError, TypeError
            If a column is missing, or a value does not suit it; if an array has another number of columns, or columns of the
            data were converted.
        """
        return cluster_probabilities(self.fits[self.method], self.data.X, self._labels, rows_like(self.data, X))

    def predict(self, X: ArrayLike | pd.DataFrame) -> Int[np.ndarray, " m"]:
        """Return the most probable cluster of each new row, as in `predict_proba`; `n_clusters_` means a new cluster."""
        return self.predict_proba(X).argmax(axis=1)

    def score_samples(self, X: ArrayLike | pd.DataFrame) -> Float[np.ndarray, " m"]:
        """Compute the log predictive density (nats) of each new row, as in `predict_proba`.

        Columns that were converted have the density of the converted values.
        """
        return self._saved(self.method).score_samples(rows_like(self.data, X))

    # ---- the summary ------------------------------------------------------------------------------------------------------

    @cached_property
    def clusters(self) -> pd.DataFrame:
        """One line for each cluster: `rows`; `probability`, the mean over its rows; and `features` that distinguish them."""
        import pandas as pd

        from bnp_hier.reports.distinguishing_features import features_in_words

        sizes = np.bincount(self._labels)
        columns = {
            "rows": sizes,
            "probability": np.bincount(self._labels, weights=self._certainty.own) / sizes,
            "features": features_in_words(self.profiles, brief=True),
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(len(sizes), name="cluster"))

    @cached_property
    def _summary(self) -> Summary:
        n, d = len(self.data.X), len(self.data.source_columns)
        doubtful = int((~self._certainty.certain).sum())
        sampled = isinstance(self.fits[self.method], Chains)
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return Summary(
            title=f"{self.data.name}: {n} rows, {d} columns",
            headline=self.headline,
            clusters=self.clusters,
            lines=(
                f"Clusters of {self.method}" + ("" if sampled else ", which does not draw from the posterior"),
                f"{doubtful} of {n} rows belong to their cluster with a probability below {CERTAIN:g}",
                *(note.removesuffix(".") for note in self.findings.notes_on_classes),
                f"Likelihood: {self.plan.advice.family} ({self.plan.advice.family_reason})",
                f"Run times: {times}",
                *([f"What the warnings and checks advise: {self.remedy}"] if self.remedy else []),
                *(f"{note[0].upper()}{note[1:]}" for note in self.data.notes),
            ),
            warnings=(*self.problems, *(f"{each[0].upper()}{each[1:]}." for each in self.warnings)),
        )

    def __str__(self) -> str:
        return self._summary.as_text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._summary.as_html()


def changes(plan: ClusteringPlan, findings: Findings) -> dict[str, Any]:
    """Return the arguments that the warnings and checks advise to change.

    Parameters
    ----------
    plan
        What was run.
    findings
        Its results.

    Returns
    -------
    changed
        Some of: `kinds`, column -> kind; `drop`, columns to leave out; `family`; and `times`, how many times as long chains
        have to be.
    """
    kinds: dict[str, str] = {}
    drop: list[str] = []
    for warning in plan.advice.warnings:
        found = advised(warning)
        kinds |= found.get("kinds", {})
        drop += found.get("drop", [])
    changed: dict[str, Any] = {}
    for misfit in findings.fit_check.misfits:
        if logarithm := re.search(r"\((log1p|log) in --kinds", misfit.advice):
            kinds[misfit.columns[0]] = logarithm.group(1)
        elif family := re.search(r"\(--family (\w+)\)", misfit.advice):
            changed["family"] = family.group(1)
    known = plan.data.source_columns
    chains = [Convergence.of(table, findings.fits[name].num_chains) for name, table in findings.convergence.items()]
    times = max((each.times for each in chains if each.chains > 1), default=1)
    changed["drop"] = [name for name in dict.fromkeys(drop) if name in known]
    changed["kinds"] = {name: kind for name, kind in kinds.items() if name in known and name not in changed["drop"]}
    return {name: value for name, value in changed.items() if value} | ({"times": times} if times > 1 else {})


class Summary(NamedTuple):
    """What a result shows of itself.

    - **title** - the data.
    - **headline** - the finding in a sentence or two.
    - **clusters** - one line for each cluster: `rows`, `probability` and `features`.
    - **lines** - further facts, without a full stop.
    - **warnings** - sentences.
    """

    title: str
    headline: str
    clusters: pd.DataFrame
    lines: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_text(self) -> str:
        """The summary for a terminal; control characters are written out."""
        head = "cluster    rows  probability  distinguishing features, with means or shares"
        lines = [printable(self.title), *_wrapped(self.headline), "", head]
        shown = self._largest()
        for row in shown.itertuples():
            start = f"{row.Index:>7} {row.rows:>7}  {row.probability:>11.2f}  "
            lines += _wrapped(str(row.features) or "–", start, " " * len(start))
        lines += [*self._more(), ""]
        for line in self.lines:
            lines += _wrapped(f"{line}.")
        for warning in self.warnings:
            lines += _wrapped(f"Warning: {warning}", "", "  ")
        return "\n".join([*lines, NEXT])

    def as_html(self) -> str:
        """The same as HTML: text is escaped, and there are no scripts, styles or links."""
        heads = ("cluster", "rows", "probability", "distinguishing features, with means or shares")
        body = [
            (f"{row.Index}", f"{row.rows}", f"{row.probability:.2f}", str(row.features) or "–")
            for row in self._largest().itertuples()
        ]
        parts = [
            f"<p>{_html(self.title)}</p>",
            f"<p><strong>{_html(self.headline)}</strong></p>",
            "<table><thead><tr>" + "".join(f'<th scope="col">{_html(head)}</th>' for head in heads) + "</tr></thead><tbody>",
            *(f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in cells)}</tr>" for cells in body),
            "</tbody></table>",
            *(f"<p>{_html(line)}</p>" for line in self._more()),
            "<ul>",
            *(f"<li>{_html(line)}.</li>" for line in self.lines),
            *(f"<li>Warning: {_html(warning)}</li>" for warning in self.warnings),
            "</ul>",
        ]
        return f"<div>{''.join(parts)}</div>"

    def _largest(self) -> pd.DataFrame:
        return self.clusters.nlargest(MOST_CLUSTERS, "rows") if len(self.clusters) > MOST_CLUSTERS else self.clusters

    def _more(self) -> Iterator[str]:
        if len(self.clusters) > MOST_CLUSTERS:
            yield f"and {len(self.clusters) - MOST_CLUSTERS} smaller clusters, in .clusters"


def _wrapped(text: str, start: str = "", indent: str = "") -> list[str]:
    return textwrap.wrap(printable(text, one_line=True), WIDTH, initial_indent=start, subsequent_indent=indent) or [start]


def _html(text: str) -> str:
    return escape(printable(text, one_line=True))

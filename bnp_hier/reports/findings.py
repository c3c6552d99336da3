"""The results of several methods on one data set, computed once for the table, the files and the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from bnp_hier.advice.fit_checks import FitCheck, check_fit
from bnp_hier.arviz_bridge import to_arviz
from bnp_hier.capabilities import Chains, TreePosterior
from bnp_hier.comparison import shared_component, tabulate
from bnp_hier.components import Component, GammaPoisson
from bnp_hier.datasets import Dataset
from bnp_hier.posterior.cluster_profiles import ClusterProfiles
from bnp_hier.posterior.convergence import LABEL_INVARIANT, diagnostics
from bnp_hier.posterior.count_dispersion import dispersion_within
from bnp_hier.posterior.credible_balls import large_clusters, least_share
from bnp_hier.posterior.draws import partition_of, shared_summaries
from bnp_hier.posterior.gains_of_parts import part_gains
from bnp_hier.posterior.item_uncertainty import row_probabilities, without_improbable_clusters
from bnp_hier.posterior.outliers import leave_one_out_pvalues
from bnp_hier.posterior.point_estimates import expected_losses, point_estimate
from bnp_hier.reports.chains import ROUGH_RHAT, chains_verdict
from bnp_hier.reports.distinguishing_features import features_in_words
from bnp_hier.reports.headlines import alternative_verdict, headline
from bnp_hier.reports.known_classes import classes_verdict
from bnp_hier.reports.oddities import MOST_ROWS, UNUSUAL, unusual_rows
from bnp_hier.reports.profiles import columns_of, profiles_of
from bnp_hier.reports.row_certainty import RowCertainty
from bnp_hier.reports.verdicts import (
    agreement,
    association,
    best_partition,
    clusters_at_cuts,
    clusters_verdict,
    columns_in_words,
    disagreement,
    dispersion_verdict,
    held_out_verdict,
    parts_verdict,
    tree_verdict,
)
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.wording import listed

__all__ = ["Findings"]

TREE_DRAWS = 200
"""Partitions drawn from a tree."""

MOST_DRAWS = 1000
"""Most draws whose partitions are counted, evenly spaced."""


@dataclass(frozen=True)
class Findings:
    """The results of several methods on one data set, computed once for the table, the files and the report.

    Parameters
    ----------
    data
        What was fitted.
    fits
        Method -> fit.
    table
        Of `bnp_hier.compare`.
    labels
        Method -> (n,) its partition.
    packages
        Method -> ArviZ data.
    certainty
        Method -> how certain each row's cluster is, of the methods that are chains.
    random_state
        Of rows drawn for the plots.
    """

    data: Dataset
    fits: dict[str, Any]
    table: pd.DataFrame
    labels: dict[str, Int[np.ndarray, " n"]]
    packages: dict[str, Any]
    certainty: dict[str, RowCertainty]
    random_state: int = 0

    @classmethod
    def of(
        cls,
        data: Dataset,
        fits: Mapping[str, Any],
        *,
        held_out: np.ndarray | None = None,
        seconds: Mapping[str, float] | None = None,
        random_state: int = 0,
        rows: Int[np.ndarray, " n"] | None = None,
    ) -> Findings:
        """Compare the fits and collect their draws; `rows` are the numbers of the rows, if only some of a table were fitted."""
        if rows is not None and data.item_names is None and (rows != np.arange(len(rows))).any():
            data = dataclasses.replace(data, item_names=tuple(map(str, rows)))
        named = partial(to_arviz, feature_names=data.feature_names, item_names=data.item_names)
        with shared_summaries():
            labels = {name: partition_of(fit, data.X) for name, fit in fits.items()}
            table = tabulate(fits, data.X, labels, held_out, data.truth, seconds)
            packages = {
                name: named(fit, data.X, num_samples=TREE_DRAWS, random_state=random_state) for name, fit in fits.items()
            }
        draws = {name: _partitions(packages[name]) for name, fit in fits.items() if isinstance(fit, Chains)}
        certainty = {name: RowCertainty.of(row_probabilities(z, labels[name]), labels[name]) for name, z in draws.items()}
        return cls(data, dict(fits), table, labels, packages, certainty, random_state)

    def draws(self, name: str) -> Int[np.ndarray, "chain draw n"]:
        """Partitions of a method."""
        return _partitions(self.packages[name])

    @cached_property
    def lead(self) -> str:
        """The method shown: the first chains that agree, or else the method with the most probable partition."""
        searches = [name for name in self.fits if name not in self.certainty]
        log_posterior = self.table["log_posterior"].loc[searches or list(self.fits)]
        return next(iter(self.trusted), None) or str(log_posterior.fillna(-np.inf).idxmax())

    def settled(self, name: str) -> bool:
        """Whether chains agree, at least roughly, on everything that does not depend on labels.

        R-hat is NaN for single chains, which cannot show it, and where a quantity is the same in all draws.
        """
        rhat = self.convergence[name]["rhat"].reindex([*LABEL_INVARIANT, "n_large_clusters"])
        return not (rhat > ROUGH_RHAT).any()

    @cached_property
    def trusted(self) -> dict[str, RowCertainty]:
        """`certainty` of the chains that agree; those of the others are withheld."""
        return {name: certainty for name, certainty in self.certainty.items() if self.settled(name)}

    def headline(self) -> str:
        """The clusters that matter, how certain their number is, and which methods agree, in a few sentences."""
        columns, disagreeing = self.data.X.shape[1], next((name for name in self.certainty if name not in self.trusted), None)
        if self.lead in self.trusted:
            numbers = np.asarray(self.packages[self.lead]["posterior"]["n_large_clusters"]).ravel()
            return headline(self.lead, self.labels, numbers, columns)
        return headline(self.lead, self.labels, columns=columns, disagreeing=disagreeing)

    def certainties(self) -> dict[str, Shaped[np.ndarray, " n"]]:
        """For each trusted method, the probability of each row's cluster, the best other one or NaN, and its probability."""
        return {
            f"{name} {what}": values
            for name, certainty in self.trusted.items()
            for known in (certainty.alternative >= 0,)
            for what, values in (
                ("probability", certainty.own),
                ("alternative", np.where(known, certainty.alternative, np.nan)),
                ("probability of alternative", np.where(known, certainty.other, np.nan)),
            )
        }

    @cached_property
    def convergence(self) -> dict[str, pd.DataFrame]:
        """For each chain method, R-hat and effective sample sizes, of `bnp_hier.diagnostics`."""
        return {name: diagnostics(self.packages[name]) for name in self.certainty}

    @cached_property
    def profiles(self) -> ClusterProfiles:
        """What the clusters of the method shown contain."""
        return profiles_of(self.fits[self.lead], self.data, self.labels[self.lead])

    @cached_property
    def pvalues(self) -> Float[np.ndarray, " n"] | None:
        """`bnp_hier.leave_one_out_pvalues` of the method shown; None for more than 3,000 rows, or if parameters are sampled."""
        if len(self.data.X) > MOST_ROWS or self._component is None:
            return None
        return leave_one_out_pvalues(self.fits[self.lead], self.data.X, random_state=self.random_state)

    @property
    def unusual(self) -> pd.DataFrame | None:
        """The most unusual rows under the method shown, with the columns that make them odd; None without p-values."""
        if self.pvalues is None:
            return None
        used = [column for column in columns_of(self.data) if column.used]
        return unusual_rows(self.pvalues, self.labels[self.lead], used, self.data.item_names)

    @cached_property
    def clusters(self) -> pd.DataFrame:
        """One line for each cluster of the method shown: rows, share, how many are in doubt, and what distinguishes it."""
        labels = self.labels[self.lead]
        sizes, n = np.bincount(labels), len(labels)
        columns: dict[str, Any] = {"rows": sizes, "share": [f"{share:.0%}" if share >= 0.005 else "<1%" for share in sizes / n]}
        if self.lead in self.trusted:
            columns["rows in doubt"] = np.bincount(labels, weights=~self.trusted[self.lead].certain).astype(int)
        columns["what distinguishes its rows, with their means or shares"] = features_in_words(self.profiles)
        return pd.DataFrame(columns, index=pd.RangeIndex(len(sizes), name="cluster"))

    @cached_property
    def alternative(self) -> Int[np.ndarray, " n"] | None:
        """(n,) the best partition with the most probable number of large clusters; None if that of the lead has this number.

        It is the point estimate of the draws with this number or, if it has another number itself, the one of these draws
        with the smallest expected loss over all draws.
        """
        if self.lead not in self.trusted:
            return None
        draws, shown = self.draws(self.lead), self.labels[self.lead]
        flat = draws.reshape(-1, draws.shape[-1])
        least = least_share(len(shown))
        numbers = large_clusters(flat, least)
        mode = int(np.bincount(numbers).argmax())
        if mode in (0, int(large_clusters(shown, least))):
            return None
        some = flat[numbers == mode]
        some = some[:: -(-len(some) // MOST_DRAWS)]
        best = without_improbable_clusters(some[None], point_estimate(some))
        if large_clusters(best, least) != mode:
            best = some[expected_losses(some, flat[:: -(-len(flat) // MOST_DRAWS)]).argmin()]
        return canonical_labels(best)

    @cached_property
    def fit_check(self) -> FitCheck:
        """Whether the rows within the clusters of the method shown look like those that the likelihood implies."""
        names = self.data.feature_names
        if self._component is None:
            return FitCheck((), {}, dict.fromkeys(names, "the parameters of the clusters are not integrated out"))
        return check_fit(self._component, self.data.X, self.labels[self.lead], names, random_state=self.random_state)

    # ---- the findings in plain sentences ----------------------------------------------------------------------------------

    @property
    def notes(self) -> list[str]:
        """All of them."""
        found = [*self.notes_on_methods]
        for name in self.fits:
            found += [*self._of_chains(name), *self._of_certainty(name), *self._of_tree(name)]
        return found + self.notes_on_clusters + self.notes_on_limits

    @cached_property
    def notes_on_methods(self) -> list[str]:
        """Which method found the most probable partition, and whether the methods agree."""
        known = {} if self.data.y is None else {name: association(self.draws(name), self.data.y) for name in self.fits}
        found = [*best_partition(self.table), *agreement(self.table, known)]
        if self.lead in self.certainty:
            searches = [name for name in self.fits if name not in self.certainty]
            draws = self.draws(self.lead)
            draws = draws.reshape(-1, draws.shape[-1])[:: -(-draws.shape[0] * draws.shape[1] // MOST_DRAWS)]
            found += disagreement(self.table, self.lead, searches, self.labels[self.lead], draws, self.settled(self.lead))
        return [*found, *self.notes_on_classes, *held_out_verdict(self.table)]

    @cached_property
    def notes_on_classes(self) -> list[str]:
        """How the clusters of the method shown lie in known classes: those of each column, and their combinations."""
        data, lead = self.data, self.lead
        if data.classes is None:
            return []
        scores = {str(name): float(score) for name, score in self.table.loc[lead].items() if str(name).startswith("ARI")}
        return list(classes_verdict(lead, self.labels[lead], data.classes, data.truths, scores))

    @cached_property
    def notes_on_certainty(self) -> list[str]:
        """How certain the number of clusters and the assignments are, by the methods that are chains."""
        return [note for name in self.certainty for note in self._of_certainty(name)]

    @cached_property
    def notes_on_chains(self) -> list[str]:
        """Whether chains have converged."""
        return [note for name in self.certainty for note in self._of_chains(name)]

    @cached_property
    def notes_on_trees(self) -> list[str]:
        """How much the number of clusters depends on where a tree is cut."""
        return [note for name in self.fits for note in self._of_tree(name)]

    @cached_property
    def notes_on_clusters(self) -> list[str]:
        """Sizes of the clusters of the method shown, and which columns separate them."""
        sizes = np.sort(np.bincount(self.labels[self.lead]))[::-1]
        return [f"The clusters of {self.lead} have {listed(sizes, 12)} rows.", *self._of_parts()]

    @cached_property
    def notes_on_unusual_rows(self) -> list[str]:
        """How many rows are unusual under the method shown, and how many of them are expected."""
        n = len(self.data.X)
        if self._component is None:
            return ["p-values of rows need a model whose cluster parameters are integrated out."]
        if self.pvalues is None:
            return [f"p-values of more than {MOST_ROWS:,} rows are not computed here: bnp_hier.leave_one_out_pvalues does it."]
        found = int((self.pvalues < UNUSUAL).sum())
        sampled = self.lead in self.certainty or isinstance(self.fits[self.lead], TreePosterior)
        rough = "" if sampled else f" {self.lead} has one partition, in which they are only roughly right."
        return [f"{found} of {n} rows have a p-value below {UNUSUAL:g}; {UNUSUAL * n:.1f} are expected by chance.{rough}"]

    @cached_property
    def notes_on_limits(self) -> list[str]:
        """Which methods reached their limit on the number of clusters."""
        return [
            f"{name} reached its limit on the number of clusters {row['capacity_hits']:.0f} times: raise it (max_clusters)."
            for name, row in self.table[self.table["capacity_hits"].fillna(0) > 0].iterrows()
        ]

    @property
    def parts(self) -> str:
        """Family and columns of each part of a model of columns of several kinds; empty for other models."""
        parts = () if self._component is None else self._component.parts_and_columns()
        described = (
            f"part{i}: {type(part).__name__} for {columns_in_words(self._sources(), columns)}"
            for i, (part, columns) in enumerate(parts)
        )
        return "; ".join(described) if len(parts) > 1 else ""

    @cached_property
    def _component(self) -> Component | None:
        """The likelihood that the methods share."""
        return shared_component(self.fits, self.data.X)

    def _sources(self) -> list[str]:
        """For each column of numbers, the name of the column that it was made from."""
        names = {j: name for name, places in self.data.source_columns.items() for j in places}
        return [names[j] for j in range(len(names))]

    def _of_chains(self, name: str) -> Iterator[str]:
        if name in self.certainty:
            yield from chains_verdict(name, self.convergence[name], self.fits[name].num_chains)

    def _of_certainty(self, name: str) -> Iterator[str]:
        if name in self.certainty and name not in self.trusted:
            yield f"{name}: the chains disagree, so that their probabilities are withheld."
        elif name in self.certainty:
            yield from clusters_verdict(name, self.draws(name), self.certainty[name])
            if name == self.lead and self.alternative is not None:
                yield from alternative_verdict(name, self.labels[name], self.alternative)

    def _of_tree(self, name: str) -> Iterator[str]:
        fit = self.fits[name]
        if name not in self.certainty and isinstance(fit, TreePosterior):
            yield from tree_verdict(name, clusters_at_cuts(fit.dendrogram_), self.draws(name)[0])

    def _of_parts(self) -> Iterator[str]:
        """What separates the clusters of the lead, and whether counts are over-dispersed within them."""
        X, labels, names = self.data.X, self.labels[self.lead], list(self.data.feature_names)
        component = self._component
        if component is None:
            return
        yield from parts_verdict(self.lead, part_gains(component, X, labels), self._sources())
        for part, columns in component.parts_and_columns():
            if isinstance(part, GammaPoisson):
                index = dispersion_within(X[:, list(columns)], labels)
                yield from dispersion_verdict(self.lead, {names[j]: value for j, value in zip(columns, index, strict=True)})


def _partitions(package: Any) -> Int[np.ndarray, "chain draw n"]:
    return np.asarray(package["posterior"]["z"])

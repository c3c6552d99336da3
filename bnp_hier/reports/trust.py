"""Checks of a comparison in words: what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from bnp_hier.advice.fit_checks import FitCheck
from bnp_hier.posterior.convergence import LARGEST_RHAT, LEAST_ESS
from bnp_hier.reports.chains import Convergence, written_rhat
from bnp_hier.reports.findings import Findings
from bnp_hier.reports.verdicts import ALIKE
from bnp_hier.utils.wording import conjoined, counted, in_words, listed, rough_time

__all__ = ["Check", "checks", "checks_of_chains"]

PASSED, LOOK, ACT = "✓ passed", "○ look", "✗ act"
"""Results of a check: nothing to do, judge for yourself, or do what it says before using the results."""

LONGER = "--minutes or --samples; budget= in Python"
"""What makes chains longer."""

DOUBTFUL = 0.2
"""Share of rows in doubt from which on the partition is said to be one of several."""


class Check(NamedTuple):
    """A check of the computation or of the model.

    - **about** - what is checked.
    - **result** - passed, look or act, with a mark.
    - **finding** - what was found.
    - **action** - what to do; "nothing" if the check is passed.
    """

    about: str
    result: str
    finding: str
    action: str = "nothing"


def checks(findings: Findings, warnings: Sequence[str] = ()) -> pd.DataFrame:
    """All checks of a comparison as a table.

    Parameters
    ----------
    findings
        The results of the methods.
    warnings
        Doubtful choices, each with a suggestion; those of `Findings.fit_check` need not be among them.
    """
    checks: list[Check] = []
    warnings = list(dict.fromkeys([*warnings, *findings.fit_check.sentences]))
    for name, table in findings.convergence.items():
        seconds = findings.table["seconds"].get(name) if "seconds" in findings.table else None
        checks += checks_of_chains(name, table, findings.fits[name].num_chains, seconds)
    checks += [*_on_certainty(findings), *_on_limits(findings), *_on_agreement(findings)]
    checks += [Check("the data and the model", LOOK, "a doubtful choice", f"{each[0].upper()}{each[1:]}") for each in warnings]
    if not warnings:
        checks.append(Check("the data and the model", PASSED, "no column or choice looks wrong before the fit"))
    checks += _on_fit(findings.fit_check)
    heads = ["check", "result", "what was found", "what to do"]
    return pd.DataFrame(checks, columns=heads).set_index("check")


def _on_fit(check: FitCheck) -> Iterator[Check]:
    """Whether the likelihood suits the columns within clusters, and what was not checked."""
    about = "the likelihood within clusters"
    if check.made and not check.misfits:
        checked = len({name for names in check.made.values() for name in names})
        finding = f"{conjoined(list(check.made))} as in simulated tables, in {counted(checked, 'column')}"
        yield Check(about, PASSED, finding)
    for why in dict.fromkeys(check.unchecked.values()):
        names = [repr(name) for name, reason in check.unchecked.items() if reason == why]
        yield Check(about, LOOK, f"not checked in {listed(names, 5)}: {why}", "look at these columns in each cluster yourself")


def checks_of_chains(name: str, diagnostics: pd.DataFrame, chains: int, seconds: float | None = None) -> Iterator[Check]:
    """Whether chains agree, and whether there are enough draws.

    Parameters
    ----------
    name
        Of the method.
    diagnostics
        Of `bnp_hier.diagnostics`.
    chains
        Number of chains.
    seconds
        Time that they took, if known.
    """
    about = f"{name}: do the chains agree?"
    if chains < 2:
        yield Check(about, ACT, "there is one chain, which cannot show it", "run four (--chains 4)")
        return
    convergence = Convergence.of(diagnostics, chains)
    if not convergence.moved:
        yield Check(about, ACT, "no chain moved, or there are too few draws", f"run longer ({LONGER})")
        return
    bad, times = convergence.bad, convergence.times
    took = "" if seconds is None else f"{rough_time(times * seconds)} instead of {rough_time(seconds)}; "
    longer = f"about {in_words(times)} times as long ({took}{LONGER})"
    finding = f"the largest R\u2011hat is {written_rhat(convergence.rhat)}; at most {LARGEST_RHAT} shows agreement"
    if not bad:
        yield Check(about, PASSED, finding)
    elif convergence.nearly:
        yield Check(about, LOOK, finding, f"use {bad} with care, or run {longer}")
    else:
        advice = "see “When chains disagree” in the guide if that does not help"
        yield Check(about, ACT, finding, f"do not use {bad}; run longer ({LONGER}); {advice}")
    finding = f"the smallest effective sample size is {convergence.ess:.0f}; {LEAST_ESS:.0f} is enough for intervals"
    about = f"{name}: are there enough draws?"
    if convergence.enough:
        yield Check(about, PASSED, finding)
    else:
        yield Check(about, LOOK if not bad else ACT, finding, f"for intervals, run {longer}")


def _on_certainty(findings: Findings) -> Iterator[Check]:
    """Whether most rows have one cluster."""
    for name, certainty in findings.trusted.items():
        n, doubtful = len(certainty.labels), int((~certainty.certain).sum())
        finding = f"{doubtful} of {n} rows are in doubt"
        if doubtful <= DOUBTFUL * n:
            yield Check(f"{name}: is one partition enough?", PASSED, finding)
        else:
            action = "use the draws or the probabilities (labels.csv, probabilities in Python) rather than one label per row"
            yield Check(f"{name}: is one partition enough?", LOOK, finding, action)
    if not findings.certainty:
        action = "run gibbs, too (--methods, methods= in Python)"
        yield Check("the certainty of the clusters", LOOK, "no method has drawn from the posterior", action)


def _on_limits(findings: Findings) -> Iterator[Check]:
    """Whether a limit on the number of clusters was reached."""
    hits = findings.table["capacity_hits"].fillna(0)
    if not len(findings.table["capacity_hits"].dropna()):
        return
    for name in hits.index[hits > 0]:
        finding = f"reached {hits[name]:.0f} times"
        yield Check(f"{name}: the limit on the number of clusters", ACT, finding, "raise it (max_clusters) and run again")
    if not (hits > 0).any():
        yield Check("the limit on the number of clusters", PASSED, "never reached")


def _on_agreement(findings: Findings) -> Iterator[Check]:
    """Whether the methods find similar partitions."""
    table = findings.table
    if len(table) < 2:
        return
    between = table[[f"NMI {name}" for name in table.index]].to_numpy(dtype=float)
    least = float(between.min())
    finding = f"the least normalised mutual information of two methods is {least:.2f}"
    if least >= ALIKE:
        yield Check("agreement of the methods", PASSED, finding)
    else:
        sampled = findings.lead in findings.certainty
        action = f"prefer {findings.lead}, {'which averages over partitions' if sampled else 'the most probable partition'}"
        if sampled and not findings.settled(findings.lead):
            action = f"run longer ({LONGER}): the chains of {findings.lead} have not converged"
        yield Check("agreement of the methods", LOOK, finding, f"{action}; the flow figure shows which rows differ")

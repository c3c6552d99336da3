"""What to change in a call or command, according to the warnings and checks of its result."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bnp_hier.advice.column_kinds import advised
from bnp_hier.clustering.plans import ClusteringPlan
from bnp_hier.reports.chains import Convergence

if TYPE_CHECKING:
    from bnp_hier.reports.findings import Findings

__all__ = ["changes"]


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

"""Whether the chains of a method agree, and whether there are enough draws, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from bnp_hier.posterior.convergence import LARGEST_RHAT, LEAST_ESS
from bnp_hier.utils.wording import conjoined, in_words

__all__ = ["Convergence", "chains_verdict", "disagreeing", "written_rhat"]

ROUGH_RHAT = 1.05
"""Largest R-hat of chains that are said to have nearly converged."""

IN_WORDS = {
    "log_joint": "the log joint",
    "n_clusters": "the number of clusters",
    "n_large_clusters": "the number of large clusters",
    "largest_cluster": "the size of the largest cluster",
    "entropy": "the entropy of the cluster sizes",
    "log_tree_prior": "the log prior of the trees",
    "n_nodes": "the number of nodes",
    "n_leaves": "the number of leaves",
    "n_components": "the number of components",
    "largest_branch": "the size of the largest branch",
    "lca_depth": "the mean depth of the lowest common ancestor",
}

DIAGNOSTICS = {"rhat": "R\u2011hat", "ess_bulk": "effective sample size, bulk", "ess_tail": "effective sample size, tails"}
"""Headings of a table of convergence diagnostics."""


class Convergence(NamedTuple):
    """What the diagnostics of the chains of a method say.

    - **chains** - number of chains.
    - **moved** - whether any quantity changes, in enough draws to judge.
    - **rhat**, **ess** - largest R-hat and smallest effective sample size of the quantities that change.
    - **bad** - the quantities on which the chains disagree, in words; empty if there are none.
    """

    chains: int
    moved: bool
    rhat: float
    ess: float
    bad: str

    @classmethod
    def of(cls, diagnostics: pd.DataFrame, chains: int) -> Convergence:
        """From the table of `bnp_hier.diagnostics` and the number of chains."""
        moving = diagnostics.dropna(subset=["ess_bulk"])
        least = float(moving.filter(like="ess").min().min())
        return cls(chains, len(moving) > 0, float(moving["rhat"].max()), least, disagreeing(moving))

    @property
    def nearly(self) -> bool:
        """Whether even the largest R-hat is small enough for a rough answer."""
        return self.rhat <= ROUGH_RHAT

    @property
    def enough(self) -> bool:
        """Whether there are enough effective draws for intervals."""
        return self.ess >= LEAST_ESS

    @property
    def times(self) -> int:
        """About how many times as many draws reach the limits; at least twice as many of chains that disagree.

        Effective sample sizes grow with the number of draws, and R-hat − 1 of chains in equilibrium falls with it.
        """
        if not self.moved:
            return 2
        by_rhat = (self.rhat - 1) / (LARGEST_RHAT - 1) if self.nearly else 2.0
        return max(math.ceil(LEAST_ESS / max(self.ess, 1.0)), math.ceil(by_rhat) if self.bad else 1)


def written_rhat(value: float) -> str:
    """R-hat with three decimals, or as many as show on which side of the limit it is.

    Examples
    --------
    >>> written_rhat(1.0104), written_rhat(1.03)
    ('1.0104', '1.030')
    """
    texts = [f"{value:.{decimals}f}" for decimals in range(3, 9)]
    return next((text for text in texts if (float(text) > LARGEST_RHAT) == (value > LARGEST_RHAT)), texts[-1])


def disagreeing(moving: pd.DataFrame, most: int = 5) -> str:
    """The quantities on which chains disagree, those that do not depend on the model first; empty if there are none.

    Parameters
    ----------
    moving
        Of `bnp_hier.diagnostics`.
    most
        Number of quantities that are named; the others are counted.
    """
    bad = [str(of) for of in moving.index[~(moving["rhat"] <= LARGEST_RHAT)]]
    words = [IN_WORDS.get(of, of) for of in bad]
    if len(bad) <= most + 1:
        return conjoined(words)
    first = sorted(range(len(bad)), key=lambda place: bad[place] not in IN_WORDS)[:most]
    return conjoined([*(words[place] for place in first), f"{len(bad) - most} others"])


def chains_verdict(name: str, diagnostics: pd.DataFrame, chains: int) -> Iterator[str]:
    """Whether the chains of a method have converged, and if not, what not to trust.

    Parameters
    ----------
    name
        Of the method.
    diagnostics
        Of `bnp_hier.diagnostics`.
    chains
        Number of chains.
    """
    if chains < 2:
        yield f"{name}: a single chain cannot show whether it has converged; run four (--chains 4)."
        return
    found = Convergence.of(diagnostics, chains)
    if not found.moved:
        yield f"{name}: no chain moved, or there are too few draws to judge convergence; run longer (--samples)."
        return
    words, worst, least, bad = in_words(chains), found.rhat, found.ess, found.bad
    if bad and found.nearly:
        yield (
            f"{name}: the {words} chains have nearly converged (R-hat {written_rhat(worst)}), but not for {bad}; "
            "run longer (--samples)."
        )
    elif bad:
        yield f"{name}: the {words} chains disagree (R-hat {worst:.2f}). Do not trust {bad}; run longer (--samples)."
    elif not found.enough:
        yield (
            f"{name}: the {words} chains have converged (R-hat {written_rhat(worst)}), but the effective sample size is only "
            f"{least:.0f}: enough for means, too few for intervals; run longer (--samples)."
        )
    else:
        rhat = written_rhat(worst)
        yield f"{name}: the {words} chains have converged (R-hat {rhat}, effective sample size at least {least:.0f})."

"""Parameters of the clusters of an estimate, from draws in which parameters and labels are sites of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

from bnp_hier.utils.wording import listed

__all__ = ["MatchedSlots", "match_slots", "sites_of_clusters"]


class MatchedSlots(NamedTuple):
    """The cluster of each draw that corresponds to each cluster of an estimate.

    - **slots** - its slot, (chain, draw, K).
    - **overlap** - (rows that are in both) / (rows that are in either), (chain, draw, K); 1 if the clusters are the same.
    """

    slots: Int[np.ndarray, "chain draw k"]
    overlap: Float[np.ndarray, "chain draw k"]

    def take(self, values: Num[np.ndarray, "chain draw entries ..."]) -> Float[np.ndarray, "chain draw k ..."]:
        """The values of these slots, in float64."""
        slots = self.slots.reshape(*self.slots.shape, *(1,) * (values.ndim - 3))
        return np.take_along_axis(np.asarray(values, dtype=np.float64), slots, axis=2)


def match_slots(labels: Int[np.ndarray, "chain draw n"], estimate: Int[np.ndarray, " n"]) -> MatchedSlots:
    """Find the cluster of each draw that has the most rows in common with each cluster of an estimate.

    Among several such clusters, it is the smallest and, of the same size, that of the first row. The numbers of the slots do
    not matter.

    Parameters
    ----------
    labels
        Slot of each row, (chain, draw, n).
    estimate
        Cluster of each row, 0, ..., K − 1, each with at least one row.
    """
    (*shape, n), members = labels.shape, np.bincount(estimate)
    slots = np.empty((*shape, len(members)), dtype=int)
    overlap = np.empty(slots.shape)
    for draw in np.ndindex(*shape):
        used, first = np.unique(labels[draw], return_index=True)
        used = used[np.argsort(first)]
        place = np.empty(used.max() + 1, dtype=int)
        place[used] = np.arange(len(used))
        each = np.bincount(estimate * len(used) + place[labels[draw]], minlength=len(members) * len(used))
        shared = each.reshape(len(members), len(used))
        sizes = shared.sum(0)
        best = (shared * (n + 1) - sizes).argmax(1)
        common = shared[np.arange(len(members)), best]
        slots[draw], overlap[draw] = used[best], common / (members + sizes[best] - common)
    return MatchedSlots(slots, overlap)


def sites_of_clusters(
    samples: Mapping[str, Num[np.ndarray, "chain draw ..."]], entries: int, asked: str | Sequence[str] | None
) -> dict[str, Num[np.ndarray, "chain draw k ..."]]:
    """Select the draws of sites with one entry per cluster.

    Parameters
    ----------
    samples
        Draws of all sites except the labels.
    entries
        Number of entries.
    asked
        Names of some of these sites; None for all of them.

    Raises
    ------
    ValueError
        If a site does not exist or has another number of entries, or if there is none with this number.
    """
    there = {name: values for name, values in samples.items() if values.shape[2:3] == (entries,)}
    if not there:
        raise ValueError(f"none of the sites {listed(samples, 20)} has {entries} entries, one for each cluster")
    if asked is None:
        return there
    names = [asked] if isinstance(asked, str) else list(asked)
    for name in names:
        if name not in there:
            found = f"has draws of shape {samples[name].shape[2:]}" if name in samples else "does not exist"
            raise ValueError(
                f"the site {name!r} {found}; the sites with {entries} entries, one for each cluster, are {listed(there, 20)}"
            )
    return {name: there[name] for name in names}

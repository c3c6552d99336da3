"""Parameters of the clusters of an estimate, from draws in which parameters and labels are sites of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int, Num

from bnp_hier.utils.wording import listed

__all__ = ["averages_over_rows", "sites_of_clusters"]


def averages_over_rows(
    values: Num[np.ndarray, "chain draw k ..."], labels: Int[np.ndarray, "chain draw n"], estimate: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "chain draw clusters ..."]:
    """Average the parameters of the rows' clusters over the rows of each cluster of an estimate, draw by draw.

    In a draw with labels z and parameters θ, cluster C of the estimate has ``Σ_{i in C} θ[z_i] / |C|``. This does not depend on
    how the draw numbers its clusters.

    Parameters
    ----------
    values
        One entry per slot, (chain, draw, slot, ...).
    labels
        Slot of each row, (chain, draw, n).
    estimate
        Cluster of each row, 0, ..., K − 1, each with at least one row.

    Returns
    -------
    averages
        (chain, draw, K, ...), in float64.
    """
    shape = labels.shape[:2]
    clusters = int(estimate.max()) + 1
    sizes = np.bincount(estimate)[:, None]
    out = np.empty((*shape, clusters, int(np.prod(values.shape[3:], dtype=int))))
    for draw in np.ndindex(shape):
        slots, place = np.unique(labels[draw], return_inverse=True)  # other slots are empty
        shared = np.bincount(estimate * len(slots) + place, minlength=clusters * len(slots)).reshape(clusters, -1)
        out[draw] = shared / sizes @ np.asarray(values[draw][slots], dtype=np.float64).reshape(len(slots), -1)
    return out.reshape(*shape, clusters, *values.shape[3:])


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

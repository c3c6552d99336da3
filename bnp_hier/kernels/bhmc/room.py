"""Numbers of nodes and components for which the arrays of a hierarchical mixture have room, and larger arrays.

A model that does not restrict its trees allows 1 + n·depth nodes, and an infinite root n components: far more than occur.
Arrays are therefore made for fewer, and replaced by larger ones when they do not suffice. Steps that never lack room do not
depend on the room (from the same key, they draw the same numbers), so that it is enough to repeat those that do. If they did,
steps would be repeated because of what they drew, and draws that need more room would be too rare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bnp_hier.inspection.nested import TreeSites
from bnp_hier.utils.arrays import is_traced

__all__ = ["enlargement", "is_restricted", "larger_room", "room_at_first", "room_of"]

NODES, COMPONENTS = 128, 64
"""Smallest initial numbers of nodes and of components."""

MARGIN = 0.8
"""Share in use, after steps that lacked room, above which it is nodes, or components, that are taken to lack it."""


def is_restricted(sites: TreeSites) -> bool:
    """Whether the model restricts the number of nodes."""
    return sites.max_nodes < 1 + sites.size * sites.depth


def room_at_first(sites: TreeSites, own: Mapping[str, Any]) -> TreeSites:
    """The sites with the initial room for nodes and components, enough for the given values of some sites.

    All of the model's nodes if it restricts their number, otherwise n, at least 128; all components of a finite root, and 64 of
    an infinite one.
    """
    if sites.mixing in own:
        return room_of(sites, own)
    nodes, components = sites.max_nodes, sites.components
    if not is_restricted(sites):
        nodes = max(NODES, sites.size, _largest(own.get(sites.paths), nodes) + 1)
    if sites.infinite:
        components = max(COMPONENTS, _largest(own.get(sites.labels), components) + 2)
    if sites.parameters in own:
        components = own[sites.parameters].shape[np.ndim(own[sites.labels]) - 1 if sites.labels in own else 0]
    return sites._replace(max_nodes=min(nodes, sites.max_nodes), components=min(components, sites.components))


def _largest(numbers: Any, otherwise: int) -> int:
    """The largest of the numbers, a limit that is not exceeded if they are traced by JAX, and −1 if there are none."""
    if numbers is None:
        return -1
    return otherwise if is_traced(numbers) else int(np.max(numbers))


def room_of(sites: TreeSites, z: Mapping[str, Any]) -> TreeSites:
    """The sites with the room for nodes and components in the values of a state."""
    nodes, components = z[sites.mixing].shape[-2:]
    return sites._replace(max_nodes=nodes, components=components)


def larger_room(
    sites: TreeSites, z: Mapping[str, Any], n_nodes: Any, n_components: Any
) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
    """Return how values of the sites are given twice the room for nodes, components, or both; None if there can be no more.

    Parameters
    ----------
    sites
        The sites, with the sizes of the model.
    z
        Values of the sites with too little room.
    n_nodes, n_components
        Numbers of nodes and components in use at the end, of one or several chains.
    """
    old = room_of(sites, z)
    used = np.asarray(n_nodes).max() / old.max_nodes, np.asarray(n_components).max() / max(old.components - 1, 1)
    lacks_nodes, lacks_components = used[0] > MARGIN, sites.infinite and used[1] > MARGIN
    if not is_restricted(sites) and not (lacks_nodes or lacks_components):
        lacks_nodes, lacks_components = True, sites.infinite
    nodes = min(2 * old.max_nodes, sites.max_nodes) if lacks_nodes else old.max_nodes
    components = min(2 * old.components, sites.components) if lacks_components else old.components
    return enlargement(sites, z, nodes, components)


def enlargement(
    sites: TreeSites, z: Mapping[str, Any], nodes: int, components: int
) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
    """Return how values of the sites are given room for so many nodes and components; None if they have it."""
    old = room_of(sites, z)
    more_nodes, more_components = nodes - old.max_nodes, components - old.components
    if not more_nodes and not more_components:
        return None
    axis = np.ndim(z[sites.labels]) - 1 - np.ndim(z[sites.parameters])  # of the components, from the last

    def enlarge(values: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(values)
        if sites.mixing in found:
            shares = np.asarray(found[sites.mixing])
            shares = np.insert(shares, [shares.shape[-1] - 1] * more_components, 0.0, axis=-1)  # the last one stays the last
            found[sites.mixing] = np.pad(shares, [(0, 0)] * (shares.ndim - 2) + [(0, more_nodes), (0, 0)])
        if sites.parameters in found and more_components:
            given = np.asarray(found[sites.parameters])
            last = np.take(given, [-1] * more_components, axis)  # valid values of components without items
            found[sites.parameters] = np.concatenate([given, last], axis)
        return found

    return enlarge

"""Trees over items as plain values: binary dendrograms, and hierarchies of any branching."""

from bnp_hier.trees.dendrogram import Dendrogram
from bnp_hier.trees.hierarchy import Hierarchy

__all__ = ["Dendrogram", "Hierarchy"]

"""Data structures for trees over items: binary dendrograms and hierarchies with arbitrary branching."""

from bnp_hier.trees.dendrogram import Dendrogram
from bnp_hier.trees.hierarchy import Hierarchy

__all__ = ["Dendrogram", "Hierarchy"]

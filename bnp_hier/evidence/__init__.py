"""The evidence log p(X) of a Dirichlet-process mixture: exactly, and from below."""

from bnp_hier.evidence.bounds import KINDS, TreeBound, tree_bound
from bnp_hier.evidence.enumeration import exact

__all__ = ["KINDS", "TreeBound", "exact", "tree_bound"]

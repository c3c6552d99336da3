"""Log evidence log p(X) of a Dirichlet-process mixture: exact values, lower bounds and estimates."""

from bnp_hier.evidence.enumeration import exact
from bnp_hier.evidence.evidence_table import table
from bnp_hier.evidence.occupancy_identity import OccupancyEstimate, occupancy
from bnp_hier.evidence.particle_filter import SMCEstimate, smc
from bnp_hier.evidence.tree_bounds import KINDS, TreeBound, tree_bound

__all__ = ["KINDS", "OccupancyEstimate", "SMCEstimate", "TreeBound", "exact", "occupancy", "smc", "table", "tree_bound"]

"""Plots of partitions, trees, densities, bounds and chains. All return Matplotlib figures or axes and open no windows."""

from bnp_hier.plots.bounds import evidence_bounds
from bnp_hier.plots.chains import rank, traces
from bnp_hier.plots.cluster_number import number_of_clusters
from bnp_hier.plots.density import predictive_density
from bnp_hier.plots.drawn_hierarchy import hierarchy
from bnp_hier.plots.flows import partition_flow
from bnp_hier.plots.heatmap import coclustering
from bnp_hier.plots.profiles import associations, cluster_profiles
from bnp_hier.plots.scatter import pairs
from bnp_hier.plots.scores import level_scores
from bnp_hier.plots.tree import dendrogram

__all__ = [
    "associations",
    "cluster_profiles",
    "coclustering",
    "dendrogram",
    "evidence_bounds",
    "hierarchy",
    "level_scores",
    "number_of_clusters",
    "pairs",
    "partition_flow",
    "predictive_density",
    "rank",
    "traces",
]

"""Posterior summaries of partition draws: point estimates, uncertainty, cluster parameters and diagnostics."""

from bnp_hier.posterior.cluster_profiles import ClusterProfiles, describe
from bnp_hier.posterior.convergence import diagnostics
from bnp_hier.posterior.credible_balls import credible_ball, number_of_clusters
from bnp_hier.posterior.gains_of_parts import PartGain, part_gains
from bnp_hier.posterior.hierarchies import HierarchyDraws, hierarchy_draws
from bnp_hier.posterior.item_uncertainty import assignment_uncertainty, membership_probabilities
from bnp_hier.posterior.label_recovery import recover_labels
from bnp_hier.posterior.new_rows import cluster_probabilities
from bnp_hier.posterior.outliers import leave_one_out_pvalues, outlier_pvalues
from bnp_hier.posterior.parameter_draws import cluster_parameters
from bnp_hier.posterior.partitions import coclustering
from bnp_hier.posterior.point_estimates import point_estimate

__all__ = [
    "ClusterProfiles",
    "HierarchyDraws",
    "PartGain",
    "assignment_uncertainty",
    "cluster_parameters",
    "cluster_probabilities",
    "coclustering",
    "credible_ball",
    "describe",
    "diagnostics",
    "hierarchy_draws",
    "leave_one_out_pvalues",
    "membership_probabilities",
    "number_of_clusters",
    "outlier_pvalues",
    "part_gains",
    "point_estimate",
    "recover_labels",
]

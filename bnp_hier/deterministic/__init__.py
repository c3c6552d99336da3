"""Deterministic clustering estimators with the scikit-learn API, and model-free baselines."""

from bnp_hier.deterministic.agglomeration.kmeans_hierarchies import recursive_kmeans
from bnp_hier.deterministic.agglomerative import AgglomerativeBayesianClustering
from bnp_hier.deterministic.bayesian_kmeans import BayesianKMeans
from bnp_hier.deterministic.bhc import BHC
from bnp_hier.deterministic.dp_means import DPMeans
from bnp_hier.deterministic.from_statistics import merge_fits, tree_of_clusters
from bnp_hier.deterministic.map_dp import MAPDP
from bnp_hier.deterministic.variational_dp import VariationalDP

__all__ = [
    "BHC",
    "MAPDP",
    "AgglomerativeBayesianClustering",
    "BayesianKMeans",
    "DPMeans",
    "VariationalDP",
    "merge_fits",
    "recursive_kmeans",
    "tree_of_clusters",
]

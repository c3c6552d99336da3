"""Bayesian nonparametric clustering for NumPyro: one model, every inference method."""

from bnp_hier.utils.interruption import end_quietly

end_quietly()  # the command, also while what follows is imported

import numpyro  # noqa: E402

# ArviZ 1.x leaves behind a lazily loaded numpyro, whose submodules are incomplete unless the package itself is loaded first
numpyro.__version__  # noqa: B018

from bnp_hier import datasets, distributed, evidence, models, plots
from bnp_hier.advice.fit_checks import FitCheck, Misfit, check_fit
from bnp_hier.advice.model_checks import check_model
from bnp_hier.advice.recommendation import recommend
from bnp_hier.arviz_bridge import loo, to_arviz
from bnp_hier.clustering.one_call import cluster
from bnp_hier.clustering.results import ClusteringResult
from bnp_hier.comparison import compare
from bnp_hier.components import (
    BetaBernoulli,
    Component,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
    UninformativeNormal,
)
from bnp_hier.deterministic import (
    BHC,
    MAPDP,
    AgglomerativeBayesianClustering,
    BayesianKMeans,
    DPMeans,
    VariationalDP,
    merge_fits,
    recursive_kmeans,
    tree_of_clusters,
)
from bnp_hier.distributions import (
    ChineseRestaurantProcess,
    ConjugateMixture,
    FiniteDirichlet,
    FiniteMixture,
    IntegratedConcentration,
    MixtureOfFiniteMixtures,
    NestedChineseRestaurantProcess,
    NormalizedGeneralizedGamma,
    PartitionPrior,
    StickBreaking,
    TreeMixing,
    complete_rows,
    concentration_for,
    prior_clusters,
)
from bnp_hier.inspection.model_arguments import ModelArguments
from bnp_hier.kernels import AuxiliaryGibbs, BHMCGibbs, HyperparameterGibbs, ParallelSplitMerge, PartitionGibbs
from bnp_hier.model_comparison import compare_models
from bnp_hier.native.cores import set_xla_threads
from bnp_hier.posterior import (
    ClusterProfiles,
    HierarchyDraws,
    PartGain,
    assignment_uncertainty,
    cluster_parameters,
    cluster_probabilities,
    coclustering,
    credible_ball,
    describe,
    diagnostics,
    hierarchy_draws,
    leave_one_out_pvalues,
    membership_probabilities,
    number_of_clusters,
    outlier_pvalues,
    part_gains,
    point_estimate,
    recover_labels,
)
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.runs.saved_fit import SavedFit, load_fit
from bnp_hier.trees import Dendrogram, Hierarchy
from bnp_hier.utils.compilation_cache import enable_compilation_cache

__all__ = [
    "BHC",
    "MAPDP",
    "AgglomerativeBayesianClustering",
    "AuxiliaryGibbs",
    "BHMCGibbs",
    "BayesianKMeans",
    "BetaBernoulli",
    "ChineseRestaurantProcess",
    "ClusterProfiles",
    "ClusteringResult",
    "Component",
    "ConjugateMixture",
    "DPMeans",
    "Dendrogram",
    "DirichletMultinomial",
    "FiniteDirichlet",
    "FiniteMixture",
    "FitCheck",
    "GammaPoisson",
    "Hierarchy",
    "HierarchyDraws",
    "HyperparameterGibbs",
    "IntegratedConcentration",
    "Misfit",
    "MixtureOfFiniteMixtures",
    "ModelArguments",
    "NestedChineseRestaurantProcess",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "NormalKnownCovariance",
    "NormalizedGeneralizedGamma",
    "ParallelSplitMerge",
    "PartGain",
    "PartitionGibbs",
    "PartitionPrior",
    "ProductComponent",
    "ResumableRun",
    "SavedFit",
    "StickBreaking",
    "TreeMixing",
    "UninformativeNormal",
    "VariationalDP",
    "assignment_uncertainty",
    "check_fit",
    "check_model",
    "cluster",
    "cluster_parameters",
    "cluster_probabilities",
    "coclustering",
    "compare",
    "compare_models",
    "complete_rows",
    "concentration_for",
    "credible_ball",
    "datasets",
    "describe",
    "diagnostics",
    "distributed",
    "enable_compilation_cache",
    "evidence",
    "hierarchy_draws",
    "leave_one_out_pvalues",
    "load_fit",
    "loo",
    "membership_probabilities",
    "merge_fits",
    "models",
    "number_of_clusters",
    "outlier_pvalues",
    "part_gains",
    "plots",
    "point_estimate",
    "prior_clusters",
    "recommend",
    "recover_labels",
    "recursive_kmeans",
    "to_arviz",
    "tree_of_clusters",
]

set_xla_threads()

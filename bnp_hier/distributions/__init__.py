"""NumPyro distributions of partitions and trees, and of data given a partition or tree."""

from bnp_hier.distributions.chinese_restaurant import ChineseRestaurantProcess
from bnp_hier.distributions.cluster_numbers import concentration_for, prior_clusters
from bnp_hier.distributions.conjugate_mixture import ConjugateMixture
from bnp_hier.distributions.finite_dirichlet import FiniteDirichlet
from bnp_hier.distributions.finite_mixture import FiniteMixture
from bnp_hier.distributions.generalized_gamma import NormalizedGeneralizedGamma
from bnp_hier.distributions.integrated_concentration import IntegratedConcentration
from bnp_hier.distributions.missing_values import MissingValues, complete_rows
from bnp_hier.distributions.mixture_of_finite_mixtures import MixtureOfFiniteMixtures
from bnp_hier.distributions.nested_chinese_restaurant import NestedChineseRestaurantProcess
from bnp_hier.distributions.partition_prior import PartitionPrior
from bnp_hier.distributions.stick_breaking import StickBreaking
from bnp_hier.distributions.tree_mixing import TreeMixing

__all__ = [
    "ChineseRestaurantProcess",
    "ConjugateMixture",
    "FiniteDirichlet",
    "FiniteMixture",
    "IntegratedConcentration",
    "MissingValues",
    "MixtureOfFiniteMixtures",
    "NestedChineseRestaurantProcess",
    "NormalizedGeneralizedGamma",
    "PartitionPrior",
    "StickBreaking",
    "TreeMixing",
    "complete_rows",
    "concentration_for",
    "prior_clusters",
]

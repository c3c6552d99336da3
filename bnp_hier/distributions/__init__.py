"""NumPyro distributions of partitions, and of data given a partition."""

from bnp_hier.distributions.chinese_restaurant import ChineseRestaurantProcess
from bnp_hier.distributions.cluster_numbers import concentration_for, prior_clusters
from bnp_hier.distributions.conjugate_mixture import ConjugateMixture
from bnp_hier.distributions.finite_mixture import FiniteMixture
from bnp_hier.distributions.stick_breaking import StickBreaking

__all__ = [
    "ChineseRestaurantProcess",
    "ConjugateMixture",
    "FiniteMixture",
    "StickBreaking",
    "concentration_for",
    "prior_clusters",
]

"""NumPyro models of Dirichlet-process and hierarchical mixtures, meant to be read and copied."""

from bnp_hier.models.dirichlet_process import DEFAULT_CONCENTRATION as DEFAULT_CONCENTRATION
from bnp_hier.models.dirichlet_process import dpm, dpm_stick_breaking, pitman_yor_mixture
from bnp_hier.models.mixture_model import MixtureModel
from bnp_hier.models.nested_hierarchical import bhmc, bhmc_finite, bhmc_paper, spherical_normal

__all__ = [
    "MixtureModel",
    "bhmc",
    "bhmc_finite",
    "bhmc_paper",
    "dpm",
    "dpm_stick_breaking",
    "pitman_yor_mixture",
    "spherical_normal",
]

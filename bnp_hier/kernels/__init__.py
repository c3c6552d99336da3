"""NumPyro kernels, usable alone and as blocks of `numpyro.infer.Gibbs`."""

from bnp_hier.kernels.auxiliary_gibbs import AuxiliaryGibbs, AuxiliaryGibbsState
from bnp_hier.kernels.bhmc_gibbs import BHMCGibbs, BHMCGibbsState
from bnp_hier.kernels.hyperparameter_gibbs import HyperparameterGibbs, HyperparameterGibbsState
from bnp_hier.kernels.parallel_split_merge import ParallelSplitMerge, ParallelSplitMergeState
from bnp_hier.kernels.partition_gibbs import PartitionGibbs, PartitionGibbsState

__all__ = [
    "AuxiliaryGibbs",
    "AuxiliaryGibbsState",
    "BHMCGibbs",
    "BHMCGibbsState",
    "HyperparameterGibbs",
    "HyperparameterGibbsState",
    "ParallelSplitMerge",
    "ParallelSplitMergeState",
    "PartitionGibbs",
    "PartitionGibbsState",
]

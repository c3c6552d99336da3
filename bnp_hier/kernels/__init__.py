"""NumPyro kernels, usable alone and as blocks of `numpyro.infer.Gibbs`."""

from bnp_hier.kernels.parallel_split_merge import ParallelSplitMerge, ParallelSplitMergeState
from bnp_hier.kernels.partition_gibbs import PartitionGibbs, PartitionGibbsState

__all__ = ["ParallelSplitMerge", "ParallelSplitMergeState", "PartitionGibbs", "PartitionGibbsState"]

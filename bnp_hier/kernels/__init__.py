"""NumPyro kernels, usable alone and as blocks of `numpyro.infer.Gibbs`."""

from bnp_hier.kernels.partition_gibbs import PartitionGibbs, PartitionGibbsState
from bnp_hier.kernels.resumable_run import ResumableRun

__all__ = ["PartitionGibbs", "PartitionGibbsState", "ResumableRun"]

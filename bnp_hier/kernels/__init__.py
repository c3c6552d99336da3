"""NumPyro kernels, usable alone and as blocks of `numpyro.infer.Gibbs`."""

from bnp_hier.kernels.auxiliary_gibbs import AuxiliaryGibbs, AuxiliaryGibbsState
from bnp_hier.kernels.partition_gibbs import PartitionGibbs, PartitionGibbsState

__all__ = ["AuxiliaryGibbs", "AuxiliaryGibbsState", "PartitionGibbs", "PartitionGibbsState"]

"""Tables in which compiled code finds the addresses of the kernels and of the families' operations."""

from __future__ import annotations

from bnp_hier.native.memory import Addresses
from bnp_hier.native.names import FAMILIES, KERNELS, OPERATIONS

__all__ = ["KERNEL_ADDRESSES", "OPERATION_ADDRESSES"]

KERNEL_ADDRESSES = Addresses("bnp_hier_kernels", len(KERNELS))
OPERATION_ADDRESSES = Addresses("bnp_hier_operations", len(FAMILIES) * len(OPERATIONS))

"""Native kernels, compiled by Numba when they are first needed, for algorithms that visit one row after another."""

from bnp_hier.native.description import Part

__all__ = ["Part"]

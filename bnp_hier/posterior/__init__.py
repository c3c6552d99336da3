"""Draws of partitions, and what they say."""

from bnp_hier.posterior.partitions import coclustering, point_estimate

__all__ = ["coclustering", "point_estimate"]

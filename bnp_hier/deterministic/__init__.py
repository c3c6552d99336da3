"""Deterministic estimators in scikit-learn's style."""

from bnp_hier.deterministic.bhc import BHC
from bnp_hier.deterministic.map_dp import MAPDP
from bnp_hier.deterministic.variational import VariationalDP

__all__ = ["BHC", "MAPDP", "VariationalDP"]

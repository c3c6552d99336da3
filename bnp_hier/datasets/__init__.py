"""Data sets: the papers' data by name (:func:`load`), and a user's own CSV or Parquet table (:func:`read_table`)."""

from bnp_hier.datasets.catalogue import load, names
from bnp_hier.datasets.tabular import Dataset, read_table

__all__ = ["Dataset", "load", "names", "read_table"]

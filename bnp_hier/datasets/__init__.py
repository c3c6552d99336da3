"""Data sets: known ones by name (:func:`load`), a user's own CSV or Parquet table (:func:`read_table`).

:func:`principal_components` gives them fewer columns.
"""

from bnp_hier.datasets.catalogue import listing, load, names
from bnp_hier.datasets.reduction import principal_components
from bnp_hier.datasets.tabular import Dataset, read_columns, read_table

__all__ = ["Dataset", "listing", "load", "names", "principal_components", "read_columns", "read_table"]

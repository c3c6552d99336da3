"""Load data sets by name (:func:`load`) or from the user's CSV, Parquet or NumPy files (:func:`read_table`)
and tables in memory (:func:`from_frame`).

:func:`principal_components` reduces the number of columns.
"""

from bnp_hier.datasets.catalogue import listing, load, names
from bnp_hier.datasets.dataset import Dataset
from bnp_hier.datasets.reduction import principal_components
from bnp_hier.datasets.tabular import from_frame, read_columns, read_table

__all__ = ["Dataset", "from_frame", "listing", "load", "names", "principal_components", "read_columns", "read_table"]

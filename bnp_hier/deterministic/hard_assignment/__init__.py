"""Hard assignment of rows to clusters: dense, by kd-tree, or over tables that are read in parts."""

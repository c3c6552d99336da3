"""Hard assignments of rows to clusters, dense, by kd-tree, or of streams."""

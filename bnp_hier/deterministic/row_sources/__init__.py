"""Tables that are read in parts: streams, memory-mapped files, Arrow and Dask, and how to sample their rows."""

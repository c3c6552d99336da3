"""Clustering of a table by one call, and its result: what `bnp_hier.cluster` and `bnp-hier compare` share."""

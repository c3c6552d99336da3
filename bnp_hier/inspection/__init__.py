"""Inspection of NumPyro models: their sites, the values at these sites, and the problem passed to an estimator."""

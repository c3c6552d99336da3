"""Building blocks of variational inference."""

"""Parts of variational inference."""

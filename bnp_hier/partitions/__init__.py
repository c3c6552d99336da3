"""What every method does to a partition of rows."""

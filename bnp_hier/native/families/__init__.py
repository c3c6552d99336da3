"""Native families: one module for each, with the operations that `operations` describes."""

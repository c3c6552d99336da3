"""Names of the kernels, and of the families with their operations."""

__all__ = ["FAMILIES", "KERNELS", "OPERATIONS"]

KERNELS = (
    "echo",
    "sweep_rows",
    "split_merge",
    "partition_step",
    "descend",
    "merge_pair",
    "anneal",
    "rows_of",
    "joint",
    "agglomerate",
    "marginals_of",
    "predictives",
    "leave_one_out",
)
"""Functions of the kernels; the position of each is its number in compiled XLA programs."""

FAMILIES = ("normal", "diagonal", "known", "bernoulli", "multinomial", "poisson")
"""Modules in `families`; the position of each is its number."""

OPERATIONS = ("lengths", "rows", "size", "prepare", "refresh", "update", "predict", "marginals", "features", "joined")
"""Operations of a family; see `families.operations`."""

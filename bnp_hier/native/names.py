"""Names of the kernels, and of the families with their operations."""

__all__ = ["FAMILIES", "KERNELS", "OPERATIONS", "SWITCH"]

SWITCH = "BNP_HIER_NATIVE"
"""Environment variable that, if it is 0, makes XLA programs run instead of kernels, and if it is "compile", has all kernels
compiled from source instead of taking those that come with the package."""

KERNELS = (
    "return_arguments",
    "sweep_rows",
    "move_once",
    "step_of_gibbs",
    "descend",
    "merge_pair",
    "anneal",
    "rows_of",
    "joint",
    "agglomerate",
    "extend",
    "move_particles",
    "sweep_particles",
    "tree_masses",
    "node_statistics",
    "prune_regraft",
    "marginals_of",
    "predictives",
    "row_densities",
    "seat_all",
    "seat_greedily",
    "summaries_of",
    "sweep_paths",
    "mixing_of",
    "divide_components",
)
"""Functions of the kernels; the position of each is its number in compiled XLA programs."""

FAMILIES = ("normal", "diagonal", "known", "bernoulli", "multinomial", "poisson")
"""Modules in `families`; the position of each is its number."""

OPERATIONS = ("lengths", "rows", "size", "prepare", "refresh", "update", "predict", "marginals", "features", "joined")
"""Operations of a family; see `families.operations`."""

"""How much each part of a table, such as its counts or its continuous columns, contributes to a partition."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from bnp_hier.components.base import Component
from bnp_hier.distributions.chinese_restaurant import log_partition_prior
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.partitions.clusters import joint_and_statistics, marginals_of
from bnp_hier.partitions.imputation import impute
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.labels import canonical_labels

__all__ = ["PartGain", "part_gains"]


class PartGain(NamedTuple):
    """Contribution of one part of a table to a partition.

    - **family** - class of the component that models the part.
    - **columns** - numbers of its columns.
    - **gain** - log marginal likelihood of these columns given the partition, less that of a single cluster (nats).
    - **approximate** - whether both are replaced by lower bounds, because values are missing in columns that depend on each
      other; their difference is then neither a lower nor an upper bound.
    """

    family: str
    columns: tuple[int, ...]
    gain: float
    approximate: bool = False


def part_gains(component: Component, X: object, labels: Int[np.ndarray, " n"]) -> list[PartGain]:
    """Return what each part of a `ProductComponent` gains by a partition; a single part for other components.

    The parts are independent given the partition, so that their gains add up to the log marginal likelihood of the partition
    relative to one cluster. A part with a negative gain speaks against the partition. Where values are missing in columns that
    depend on each other, the gain is a difference of two lower bounds, and `approximate` is true.

    Parameters
    ----------
    component
        The component with all its hyperparameters, such as the `component_` of an estimator.
    X
        Data, (n, d).
    labels
        (n,) labels of the partition.

    Returns
    -------
    gains
        One `PartGain` for each part, in the order of the parts (nats).

    Raises
    ------
    ValueError
        If the data are invalid for the component, or there is not one label per row.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> X = np.column_stack([[0.0, 0.1, 0.2, 9.0, 9.1, 9.2], [0, 1, 0, 1, 0, 1]])
    >>> normal = bnp.NormalInverseGamma.from_data(X[:, :1], learn=False)
    >>> bits = bnp.BetaBernoulli.from_data(X[:, 1:], learn=False)
    >>> product = bnp.ProductComponent([normal, bits], [[0], [1]])
    >>> continuous, binary = bnp.part_gains(product, X, np.array([0, 0, 0, 1, 1, 1]))
    >>> continuous.gain > 5, binary.gain < 1
    (True, True)
    """
    matrix, found = as_matrix(X), np.asarray(labels)
    component.validate_new_rows(matrix)
    if found.shape != (len(matrix),):
        raise ValueError(f"labels must contain one label for each of the {len(matrix)} rows, but their shape is {found.shape}")
    partition = canonical_labels(found)
    with double_precision():
        return [
            PartGain(type(part).__name__, columns, *_gain(part, matrix[:, list(columns)], partition))
            for part, columns in component.parts_and_columns()
        ]


def _gain(part: Component, X: np.ndarray, labels: np.ndarray) -> tuple[float, bool]:
    """The gain, and whether it is a difference of two lower bounds."""
    component: Component = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), part.centered_on(X))

    approximate = bool(component.incomplete_cells(X).any())

    def evidence(labels: np.ndarray) -> float:
        if approximate:
            joint = impute(MixtureValues(Prior(1.0), component, X), X, labels).log_joint
            return joint - float(log_partition_prior(np.bincount(labels), 1.0))
        _, stats = joint_and_statistics(component, X, labels, Prior(1.0, 0.0))
        return float(marginals_of(component, stats, np.bincount(labels)).sum())

    return evidence(labels) - evidence(np.zeros_like(labels)), approximate

"""Choices that look wrong: a likelihood that does not suit a column, a prior out of scale or too strong, a telling column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from bnp_hier.advice.column_kinds import ColumnKind, infer_column_kinds, names_of_columns
from bnp_hier.components import Component
from bnp_hier.distributions.cluster_numbers import mean_clusters
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.utils.arrays import as_matrix

__all__ = ["check_model"]

TOO_WIDE, TOO_NARROW = 2.0, 0.02
"""Expected spread within a cluster over that of all rows, from which on a prior looks out of scale."""

FAR = 10.0
"""Distance of the prior mean from the data's, in standard deviations that the prior gives cluster means."""

SPIKE = 0.3
"""Share of the cells of a continuous column that are one number, from which on it is a spike."""

SKEW = 3.0
"""Skewness of positive numbers from which on logarithms are advised."""

MISSING = 0.5
"""Share of missing values from which on a column is mentioned."""


class _Part(NamedTuple):
    """A family and the columns that it models."""

    component: Component
    columns: tuple[int, ...]


def check_model(model: Model, X: ArrayLike, feature_names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Warnings about choices that look wrong on these data, each with what to do.

    Looked for: counts, grades or bits taken for normal numbers; long tails and spikes in columns taken for normal; a prior
    whose clusters are wider than all data, or far narrower, in some columns (columns on different scales under one prior
    scale, for instance); a prior mean far from the data; a prior, or a concentration, that outweighs the data; columns
    that number the rows, hold one value only, or are mostly missing. Of a family of your own the prior is looked at as far as
    it has the hints of `Component`. That nothing is found proves nothing.

    Parameters
    ----------
    model
        NumPyro model with one partition site and one `ConjugateMixture` on it; hyperparameters with priors are taken at
        their prior medians.
    X
        Data, (n, d).
    feature_names
        Names of the columns; a DataFrame brings its own.

    Returns
    -------
    warnings
        Sentences; none if nothing looks wrong.

    Raises
    ------
    ValueError
        If the data do not fit the model at all.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=np.eye(1), covariance=np.eye(1))
    >>> warnings = bnp.check_model(partial(bnp.models.dpm, component=component), np.linspace(90, 110, 30)[::-1, None] ** 1.1)
    >>> any("the prior mean is far from every row" in warning for warning in warnings)
    True
    """
    names = names_of_columns(X, feature_names)
    with jax.enable_x64(True):
        values = Problem(model, X).values
        matrix, alpha, discount = as_matrix(values.X), float(values.concentration), float(values.discount)
        component = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), values.component)
    if matrix.shape[1] != len(names):  # the model observes something else than X
        names = tuple(f"x{j}" for j in range(matrix.shape[1]))
    kinds = infer_column_kinds(matrix, names)
    found = list(_telling_columns(kinds))
    for part in map(_Part._make, component.parts_and_columns()):
        found += _likelihood(part, kinds, matrix)
        found += _scale(part, kinds, matrix)
        found += _strength(part, matrix)
    found += _concentration(alpha, discount, len(matrix))
    return tuple(found)


def _named(names: Sequence[str], verb: str = "", most: int = 5) -> str:
    """The first of the columns by name, and what they do, in the right number."""
    shown = ", ".join(map(repr, names[:most]))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    if len(names) == 1:
        return f"column {shown}{f' {verb}s' if verb else ''}"
    return f"columns {shown}{more}{f' {verb}' if verb else ''}"


def _telling_columns(kinds: Sequence[ColumnKind]) -> Iterator[str]:
    numbers = [kind.name for kind in kinds if kind.kind == "row number"]
    if numbers:
        yield f"{_named(numbers, 'number')} the rows: leave out what only counts them (--drop), or it shapes the clusters"
    constant = [kind.name for kind in kinds if kind.kind in ("constant", "binary") and kind.reason.endswith("in every row")]
    if constant:
        yield f"{_named(constant, 'hold')} one value only, which tells nothing: leave it out (--drop)"
    lacking = [kind.name for kind in kinds if kind.missing > MISSING]
    if lacking:
        yield f"{_named(lacking, 'lack')} a value in more than half of the rows: think of leaving out such columns (--drop)"


def _likelihood(part: _Part, kinds: Sequence[ColumnKind], X: np.ndarray) -> Iterator[str]:
    family = type(part.component).__name__
    if not part.component.is_normal:
        return
    for kind, advice in {"binary": "BetaBernoulli (--family bernoulli)", "count": "GammaPoisson (--family poisson)"}.items():
        wrong = [kinds[j].name for j in part.columns if kinds[j].kind == kind]
        if wrong:
            what = "0 and 1 only" if kind == "binary" else "counts"
            yield (
                f"{_named(wrong, 'hold')} {what}, but {family} takes them for normal numbers: use {advice}, or "
                "ProductComponent.from_data (--family mixed) if the columns are of different kinds"
            )
    skewed, spiky = [], []
    for j in part.columns:
        cells = X[~np.isnan(X[:, j]), j]
        if kinds[j].kind != "continuous" or len(cells) < 20:
            continue
        values, counts = np.unique(cells, return_counts=True)
        if counts.max() > SPIKE * len(cells) and len(values) > 10:
            spiky.append(kinds[j].name)
        elif cells.min() > 0 and ((cells - cells.mean()) ** 3).mean() > SKEW * cells.std() ** 3:
            skewed.append(kinds[j].name)
    if skewed:
        yield (f"{_named(skewed)} have a long tail to the right, for which {family} needs clusters of its own: take logarithms")
    if spiky:
        yield (
            f"{_named(spiky, 'hold')} one number in more than {SPIKE:.0%} of the rows, such as 0 for none: {family} makes a "
            "narrow cluster of such rows; model whether it is that number in a column of bits, and leave the cell empty there"
        )


def _scale(part: _Part, kinds: Sequence[ColumnKind], X: np.ndarray) -> Iterator[str]:
    spread = part.component.expected_spread()
    if spread is None:
        return
    columns = X[:, list(part.columns)]
    names = [kinds[j].name for j in part.columns]
    deviation = np.nanstd(columns, axis=0)
    varying = deviation > 0
    ratio = spread.within / np.where(varying, deviation, 1.0)
    family = type(part.component).__name__
    advice = f"standardise the columns, or let {family}.from_data read the prior off the data"
    wide, narrow = (np.flatnonzero(varying & wrong) for wrong in (ratio > TOO_WIDE, ratio < TOO_NARROW))
    for which, what in ((wide, "wider than all rows together"), (narrow, "far narrower than the rows are spread")):
        if len(which):
            worst = which[np.argmax(np.abs(np.log(ratio[which])))]
            yield (
                f"the prior expects clusters {what} in {_named([names[j] for j in which])} (standard deviation "
                f"{spread.within[worst]:.3g} in a cluster, {deviation[worst]:.3g} of all rows in {names[worst]!r}): {advice}"
            )
    far = np.abs(np.nanmean(columns, axis=0) - spread.mean) > FAR * np.maximum(spread.of_mean, deviation)
    if far.any():
        yield f"the prior mean is far from every row in {_named([names[j] for j in np.flatnonzero(far)])}: {advice}"


def _strength(part: _Part, X: np.ndarray) -> Iterator[str]:
    """Whether the prior weighs more than the data of a cluster with a tenth of the rows."""
    component, n = part.component, len(X)
    limit = max(3.0, 0.1 * n)
    columns = X[:, list(part.columns)]
    yield from component.prior_warnings(columns, limit)
    weights = component.prior_rows(columns)
    heavy = {name: weight for name, weight in weights.items() if weight > limit}
    if heavy:
        name, weight = max(heavy.items(), key=lambda item: item[1])
        yield (
            f"the prior outweighs the data: {name} is {weight:.3g} rows, more than a cluster with a tenth of the {n} rows has; "
            f"lower it, or use {type(component).__name__}.from_data"
        )


def _concentration(alpha: float, discount: float, n: int) -> Iterator[str]:
    expected = mean_clusters(alpha, n, discount)
    if expected > n / 3:
        yield (
            f"concentration {alpha:.3g} expects {expected:.0f} clusters among {n} rows before any is seen: lower it "
            "(bnp_hier.concentration_for gives the one for an expected number)"
        )
    elif expected < 1.02:
        yield (
            f"concentration {alpha:.3g} expects one cluster almost surely: raise it (bnp_hier.concentration_for gives the one "
            "for an expected number), or give it a prior"
        )

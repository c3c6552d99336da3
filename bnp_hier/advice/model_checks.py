"""Warn about questionable models: an unsuitable likelihood, a prior on the wrong scale or too strong, useless columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from bnp_hier.advice.column_kinds import ColumnKind, how_to_drop, how_to_take, infer_column_kinds, names_of_columns
from bnp_hier.advice.simulated_checks import check_simulated
from bnp_hier.components import Component
from bnp_hier.datasets.recognition import is_size
from bnp_hier.distributions.cluster_numbers import mean_clusters
from bnp_hier.inspection.collapsed import MixtureSites, MixtureValues
from bnp_hier.inspection.forms import find_any_sites
from bnp_hier.inspection.model_arguments import Data, ModelArguments, as_arguments
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.slots import SlotSites
from bnp_hier.inspection.sticks import StickSites
from bnp_hier.inspection.trace import Model
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.options import check_options
from bnp_hier.utils.wording import listed

__all__ = ["check_model", "warnings_about"]

TOO_WIDE, TOO_NARROW = 2.0, 0.02
"""Ratios of the expected spread within a cluster to that of all rows beyond which a prior looks out of scale."""

FAR = 10.0
"""Distance from the prior mean to the mean of the data beyond which a warning is given.

In standard deviations, of cluster means under the prior or of the data, whichever is larger.
"""

SPIKE = 0.3
"""Share of equal values above which a continuous column has a spike."""

FEWEST_MISSING = 8
"""Number of rows with and without a value from which the reasons why it is missing are tested."""

MOST_PAIRS = 2000
"""Number of pairs of columns that are tested: each test takes about half a millisecond."""

NOT_BY_CHANCE = 0.001
"""Corrected p-value below which a warning is given."""

MISSING = 0.5
"""Share of missing values above which a column is mentioned."""


class _ModelledPart(NamedTuple):
    """A component and the columns that it models."""

    component: Component
    columns: tuple[int, ...]


def check_model(
    model: Model, X: Data, feature_names: Sequence[str] | None = None, *, kinds: Mapping[Any, str] | None = None
) -> tuple[str, ...]:
    """Return warnings about modelling choices that look wrong for these data, each with a suggestion.

    The checks look for counts, bits or grades modelled as normal; long tails and spikes in columns modelled as normal; a
    prior whose clusters are wider than all data, or far narrower, in some columns (for instance, when columns on different
    scales share one prior scale); a prior mean far from the data; a prior or a concentration that outweighs the data;
    columns that tell rows apart, are constant, or are mostly missing; and values that are missing more often where those of
    another column are high or low. The weight of a component's prior is checked only if none of its hyperparameters has a
    prior itself. The prior of a user-defined family is checked only to the extent that the family implements the hints of
    `Component`. The absence of warnings does not show that a model is adequate.

    Parameters
    ----------
    model
        NumPyro model with one partition site and one `ConjugateMixture` on it, whose hyperparameters with priors are set to
        their prior medians; or with explicit cluster parameters, as for `AuxiliaryGibbs`. The prior of the latter is checked
        by simulating data from it, and its arguments must have no missing values.
    X
        Data, (n, d), or `ModelArguments` of a model with several data arguments.
    feature_names
        Names of the columns; a DataFrame provides its own.
    kinds
        What columns are taken for, instead of what their values suggest: name -> "continuous", "count" or "binary".

    Returns
    -------
    warnings
        One sentence per warning; empty if nothing looks wrong.

    Raises
    ------
    ValueError
        If the model cannot describe the data.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=np.eye(1), covariance=np.eye(1))
    >>> warnings = bnp.check_model(partial(bnp.models.dpm, component=component), np.linspace(90, 110, 30)[::-1, None] ** 1.1)
    >>> any("the prior mean is far from the data" in warning for warning in warnings)
    True
    """
    check_options(
        "check_model",
        {"model": [callable], "feature_names": [None, "array-like"], "kinds": [None, Mapping]},
        {"model": model, "feature_names": feature_names, "kinds": kinds},
    )
    return warnings_about(model, X, feature_names, kinds)


def warnings_about(
    model: Model,
    X: Data,
    feature_names: Sequence[str] | None = None,
    kinds: Mapping[Any, str] | None = None,
    *,
    default_prior: bool = False,
) -> tuple[str, ...]:
    """`check_model`; without checks of the prior if it is the default one, which the user has not chosen."""
    data = as_arguments(X).named_by(model)
    with double_precision():
        sites = find_any_sites(model, data.args, data.kwargs)
        if not isinstance(sites, MixtureSites) or not data.is_table:
            return tuple(_of_arguments(model, data, sites))
        table: Any = X
        names = names_of_columns(table, feature_names)
        problem = Problem(model, table, allow_missing=True)
        values = problem.values
        # a prior whose hyperparameters have priors adapts to the number of rows
        adapts = _differ(values.component, _moved(problem).component)
        rows = values.X if problem.sites.missing is None else problem.X
        matrix, alpha, discount = as_matrix(rows), float(values.concentration), float(values.discount)
        component = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), values.component)
    if matrix.shape[1] != len(names):  # the model observes something other than X
        names, kinds = tuple(f"x{j}" for j in range(matrix.shape[1])), None
    columns = infer_column_kinds(matrix, names, kinds=kinds)
    found = list(_telling_columns(columns))
    for part in map(_ModelledPart._make, component.parts_and_columns()):
        found += _likelihood(part, columns, matrix)
        if not default_prior:
            found += _scale(part, columns, matrix)
            found += _strength(part, matrix, adapts)
    if not default_prior:
        found += _concentration(alpha, discount, len(matrix))
    found += _impossible_zeros(names, matrix)
    found += _missing_by_value(names, matrix)
    return tuple(found)


def _of_arguments(model: Model, data: ModelArguments, sites: MixtureSites | SlotSites | StickSites) -> Iterator[str]:
    """Checks of a model with several data arguments or explicit cluster parameters."""
    if not isinstance(sites, MixtureSites):
        advice = data.advice_on_missing()
        if advice:
            raise ValueError(advice)
    columns = data.columns
    yield from _telling_columns(infer_column_kinds(np.column_stack(list(columns.values())), list(columns)))
    if isinstance(sites, SlotSites):
        yield from check_simulated(model, data, sites)


def _missing_by_value(names: Sequence[str], X: Float[np.ndarray, "n d"]) -> Iterator[str]:
    """Columns whose values are missing more often where those of another column are high or low.

    Mann-Whitney tests of pairs of columns, with Bonferroni's correction; only the clearest pair of each column is reported. Of
    many columns with missing values, those with the most are tested.
    """
    from scipy.stats import mannwhitneyu

    absent = np.isnan(X)
    tested: dict[int, list[tuple[float, bool, int]]] = {}
    counts = absent.sum(axis=0)
    incomplete = [j for j in np.argsort(-counts, kind="stable") if counts[j] >= FEWEST_MISSING]
    for j in sorted(incomplete[: max(1, MOST_PAIRS // len(names))]):
        for k in range(len(names)):
            with_it, without = X[absent[:, j] & ~absent[:, k], k], X[~absent[:, j] & ~absent[:, k], k]
            if k != j and min(len(with_it), len(without)) >= FEWEST_MISSING and np.ptp(np.concatenate([with_it, without])) > 0:
                test = mannwhitneyu(with_it, without)
                is_high = test.statistic > len(with_it) * len(without) / 2
                tested.setdefault(j, []).append((float(test.pvalue), is_high, k))
    pairs = sum(map(len, tested.values()))
    for j, found in tested.items():
        p, is_high, k = min(found)
        if p * pairs < NOT_BY_CHANCE:
            yield (
                f"values of {names[j]!r} are missing more often where {names[k]!r} is {'high' if is_high else 'low'} "
                f"(p = {p:.1g}): clusters and imputed values are right only if a value is not missing because of what it is; "
                "otherwise, add a column that tells whether it is missing"
            )


def _moved(problem: Problem) -> MixtureValues:
    near = jax.tree.map(lambda value: np.asarray(value) + 0.1, problem.unconstrained)
    return problem.values_at(problem.prior.constrain(near))


def _differ(one: Component, other: Component) -> bool:
    return not all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def _named(names: Sequence[str], verb: str = "", most: int = 5) -> str:
    """Names of the first few columns, followed by a verb in the singular or plural."""
    shown = ", ".join(map(repr, names[:most]))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    if len(names) == 1:
        return f"column {shown}{f' {verb}s' if verb else ''}"
    return f"columns {shown}{more}{f' {verb}' if verb else ''}"


def _telling_columns(kinds: Sequence[ColumnKind]) -> Iterator[str]:
    telling = [kind for kind in kinds if kind.kind in ("identifier", "date")]
    if telling:
        yield (
            f"{_named([kind.name for kind in telling], 'tell')} rows apart ({telling[0].kind}: {telling[0].reason}), which "
            f"would shape the clusters: leave out identifiers and dates ({how_to_drop(telling)})"
        )
    constant = [kind for kind in kinds if kind.alternative == "drop" and kind not in telling]
    if constant:
        yield (
            f"{_named([kind.name for kind in constant], 'contain')} only one value, which is uninformative: leave out such "
            f"columns ({how_to_drop(constant)})"
        )
    lacking = [kind.name for kind in kinds if kind.missing > MISSING]
    if lacking:
        yield (
            f"{_named(lacking, 'lack')} a value in more than half of the rows: consider leaving out such columns (drop= or "
            "--drop)"
        )


def _likelihood(part: _ModelledPart, kinds: Sequence[ColumnKind], X: np.ndarray) -> Iterator[str]:
    family = type(part.component).__name__
    if not part.component.is_normal:
        return
    for kind, advice in {"binary": "BetaBernoulli (--family bernoulli)", "count": "GammaPoisson (--family poisson)"}.items():
        wrong = [kinds[j].name for j in part.columns if kinds[j].kind == kind]
        if wrong:
            what = "only 0 and 1" if kind == "binary" else "counts"
            yield (
                f"{_named(wrong, 'contain')} {what}, but {family} models them as normal: use {advice}, or "
                "ProductComponent.from_data (--family mixed) if the columns are of different kinds"
            )
    graded = [kinds[j] for j in part.columns if kinds[j].alternative in ("ordered", "category")]
    if graded:
        yield (
            f"{_named([kind.name for kind in graded], 'contain')} a few different numbers, perhaps grades or codes, and "
            f"clusters of {family} may collapse onto single ones: take them as {graded[0].alternative} ({how_to_take(graded)})"
        )
    skewed, spiky = [], []
    for j in part.columns:
        cells = X[~np.isnan(X[:, j]), j]
        if kinds[j].kind != "continuous" or len(cells) < 20:
            continue
        values, counts = np.unique(cells, return_counts=True)
        if counts.max() > SPIKE * len(cells) and len(values) > 10:
            spiky.append(kinds[j].name)
        elif kinds[j].alternative in ("log", "log1p"):
            skewed.append(kinds[j])
    if skewed:
        yield (
            f"{_named([kind.name for kind in skewed], 'show')} a long right tail, which {family} can only model with "
            f"additional clusters: take logarithms ({how_to_take(skewed)})"
        )
    if spiky:
        yield (
            f"{_named(spiky, 'contain')} the same number in more than {SPIKE:.0%} of the rows (such as 0 for none): {family} "
            "puts these rows in a narrow cluster; mark them in an additional binary column and treat the number as missing"
        )


def _impossible_zeros(names: Sequence[str], X: Float[np.ndarray, "n d"]) -> Iterator[str]:
    """Columns of sizes in which a few zeros stand far from all other values."""
    found = []
    for name, column in zip(names, X.T, strict=True):
        zeros, others = (column == 0).sum(), column[column > 0]
        if zeros and is_size(name) and (column >= 0).sum() == (~np.isnan(column)).sum() and zeros < 0.5 * len(column):
            # as far from zero as half of the others are from one another
            if others.min() > max(np.ptp(np.percentile(others, (25, 75))), 0.1 * np.median(others)):
                found.append(f"{name!r} ({zeros})")
    if found:
        yield (
            f"zeros (their number in parentheses) are impossible sizes and far from all other values in {listed(found, 12)}: "
            "if they stand for missing values, leave these cells empty (NaN)"
        )


def _scale(part: _ModelledPart, kinds: Sequence[ColumnKind], X: np.ndarray) -> Iterator[str]:
    spread = part.component.expected_spread()
    if spread is None:
        return
    columns = X[:, list(part.columns)]
    names = [kinds[j].name for j in part.columns]
    deviation = np.nanstd(columns, axis=0)
    varying = deviation > 0
    ratio = spread.within / np.where(varying, deviation, 1.0)
    family = type(part.component).__name__
    advice = f"standardise the columns, or derive the prior from the data with {family}.from_data"
    wide, narrow = (np.flatnonzero(varying & wrong) for wrong in (ratio > TOO_WIDE, ratio < TOO_NARROW))
    for which, what in ((wide, "wider than all rows together"), (narrow, "far narrower than the spread of all rows")):
        if len(which):
            worst = which[np.argmax(np.abs(np.log(ratio[which])))]
            yield (
                f"the prior expects clusters {what} in {_named([names[j] for j in which])} (standard "
                f"deviation in {names[worst]!r}: {spread.within[worst]:.3g} within a cluster, {deviation[worst]:.3g} over all "
                f"rows): {advice}"
            )
    far = np.abs(np.nanmean(columns, axis=0) - spread.mean) > FAR * np.maximum(spread.of_mean, deviation)
    if far.any():
        yield f"the prior mean is far from the data in {_named([names[j] for j in np.flatnonzero(far)])}: {advice}"


def _strength(part: _ModelledPart, X: np.ndarray, adapts: bool) -> Iterator[str]:
    """Whether the prior outweighs the data of a cluster that has a tenth of the rows."""
    component, n = part.component, len(X)
    limit = max(3.0, 0.1 * n)
    columns = X[:, list(part.columns)]
    yield from component.prior_warnings(columns, limit)
    if adapts:
        return
    weights = component.prior_rows(columns)
    heavy = {name: weight for name, weight in weights.items() if weight > limit}
    if heavy:
        name, weight = max(heavy.items(), key=lambda item: item[1])
        yield (
            f"the prior outweighs the data: {name} counts as {weight:.3g} rows, more than a cluster with a tenth of the {n} "
            f"rows has; lower it, or use {type(component).__name__}.from_data"
        )


def _concentration(alpha: float, discount: float, n: int) -> Iterator[str]:
    expected = mean_clusters(alpha, n, discount)
    if expected > n / 3:
        yield (
            f"with concentration {alpha:.3g}, the prior expects {expected:.0f} clusters among {n} rows: lower the "
            "concentration (bnp_hier.concentration_for finds the value for a given expected number)"
        )
    elif expected < 1.02:
        yield (
            f"with concentration {alpha:.3g}, the prior expects a single cluster almost surely: raise the concentration "
            "(bnp_hier.concentration_for finds the value for a given expected number) or give it a prior"
        )

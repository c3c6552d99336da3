"""What the clusters of an estimate contain: means and shares of any columns, and which columns go with the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num

from bnp_hier.capabilities import Chains
from bnp_hier.inspection.model_arguments import Data, ModelArguments, as_arguments
from bnp_hier.posterior.draws import Draws, draws_of, partition_of, thinned
from bnp_hier.posterior.parameter_draws import cluster_means
from bnp_hier.posterior.partitions import one_partition
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import require_count

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ClusterProfiles",
    "Column",
    "as_number",
    "column_of",
    "describe",
    "describe_columns",
    "deviations",
    "is_share",
    "sizes_of",
]

MOST_LEVELS = 50
"""Largest number of distinct texts of a column that is described."""

FEW = 64
"""Number of rows by which columns are compared first."""


class ClusterProfiles(NamedTuple):
    """Tables that describe the clusters of an estimate.

    - **profiles** - one row for each column, level (of a category) and cluster. Of the cluster's own rows: `rows`, the number
      of those with a value; `mean`, the mean of a number or date, or the share of a level; and `sd`, the standard deviation.
      Of all rows: `overall`, the mean or share. Of the posterior: `low` and `high`, the interval of the cluster's mean
      parameter, as `describe` explains; NaN for columns that the model does not observe. Its ``attrs["sizes"]`` are the numbers
      of rows of the clusters, with or without a value.
    - **association** - one row for each column, the strongest first: `kind`, "number", "binary" (only 0 and 1), "date" or
      "category"; `used`, whether it is a column of X; `measure`; `effect`, its mean over the draws; and `low` and `high`, an
      interval over the draws.
    """

    profiles: pd.DataFrame
    association: pd.DataFrame


class Column(NamedTuple):
    """A column as numbers: one value per row and level, NaN where missing."""

    name: str
    kind: str
    used: bool
    levels: tuple[str, ...]
    values: Float[np.ndarray, "n levels"]


def describe(
    fit: Any,
    X: Data,
    estimate: ArrayLike | None = None,
    *,
    others: pd.DataFrame | None = None,
    credible: float = 0.95,
    num_samples: int = 200,
    random_state: int | Array = 0,
) -> ClusterProfiles:
    """Describe the clusters of an estimate by the columns of the data and by others that were not used to find them.

    The number of rows, the mean and the standard deviation are those of the rows that the estimate puts into the cluster.
    Missing values are left out.

    `low` and `high` are the credible interval of the cluster's mean parameter: the mean of a normal, the rate of a Poisson, the
    probability of a bit or level. In each draw, parameters of its clusters are drawn given their rows, and averaged over the
    clusters to which the rows of the estimate's cluster belong there; so the interval has the uncertainty of the parameters and
    that of the partition. It need not contain the mean of the rows: two rows that are with many others in most draws share
    their parameter there. An estimator has a single partition and single hyperparameters (`BHC`: partitions of its tree), whose
    uncertainty is left out. There is no interval for columns that the model does not observe as they are (those in `others`,
    and logarithms), without a conjugate component, or for a family whose likelihood has no `mean`.

    The association of a column with the partition is measured in each draw: for numbers and dates by ε², the share of the
    variance that lies between clusters, less what is expected by chance (Kelley 1935); for categories by Cramér's V with
    Bergsma's (2013) correction for chance. Both are at most 1 and near 0 for a column that has nothing to do with the
    clusters. Columns that were used to find the clusters are associated with them by construction.

    Parameters
    ----------
    fit
        `MCMC` or `ResumableRun` that has run a kernel with a partition site, or a fitted estimator.
    X
        The data the model was fitted to, (n, d), or `ModelArguments` of a model with several data arguments; the names of the
        columns of a DataFrame are used.
    estimate
        (n,) whole numbers; by default the estimator's `labels_`, or the point estimate of the draws.
    others
        Further columns, with n rows: numbers, bits, dates or texts with at most 50 distinct values.
    credible
        Probability of the intervals, in (0, 1).
    num_samples
        Maximum number of draws used, over all chains together, evenly spaced; of an estimator with one partition, the number of
        draws of the parameters.
    random_state
        Whole number or JAX key for the draws of the parameters.

    Returns
    -------
    description
        `ClusterProfiles`, whose tables can be written with `to_csv`.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run or does not match X; if `others` does not have n rows, has the index of X in another order, a
        column of X, or a column that is neither finite numbers, dates nor few texts; or if `credible` or `num_samples` is out
        of range.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import bnp_hier as bnp
    >>> X = pd.DataFrame({"length": [0.0, 0.1, 0.2, 9.0, 9.1, 9.2]})
    >>> fit = bnp.MAPDP().fit(X)
    >>> found = bnp.describe(fit, X, others=pd.DataFrame({"site": list("aabbbb")}))
    >>> found.profiles.loc[("length", "", 1), "mean"].round(2)
    np.float64(9.1)
    >>> found.association["measure"].to_dict()
    {'length': 'ε²', 'site': "Cramér's V"}
    """
    if isinstance(X, ModelArguments):
        X = X.named_by(fit.sampler.model if isinstance(fit, Chains) else fit.model)
    return describe_columns(fit, X, estimate, _columns(X, others), credible, num_samples, random_state)


def describe_columns(
    fit: Any,
    X: Data,
    estimate: ArrayLike | None,
    columns: Sequence[Column],
    credible: float,
    num_samples: int,
    random_state: int | Array = 0,
) -> ClusterProfiles:
    """`describe` for columns that are given."""
    import pandas as pd

    if not 0 < credible < 1:
        raise ValueError(f"credible must be a probability between 0 and 1, but it is {credible!r}")
    require_count("num_samples", num_samples)
    n = len(as_arguments(X))
    given = one_partition(partition_of(fit, X) if estimate is None else estimate, n)
    clusters, labels = np.unique(given, return_inverse=True)
    draws = thinned(draws_of(fit, X, num_samples=num_samples), num_samples)
    tails = (1 - credible) / 2, (1 + credible) / 2
    low, high = np.quantile(_mean_parameters(draws, labels, columns, num_samples, random_state), tails, axis=0)
    origins = [_origin(column) for column in columns]
    columns = [column._replace(values=column.values - origin) for column, origin in zip(columns, origins, strict=True)]
    values = np.concatenate([column.values for column in columns], axis=1)
    ends = np.cumsum([len(column.levels) for column in columns])
    effects = []
    for draw in map(canonical_labels, draws.labels.reshape(-1, n)):
        sums, counts = _sums(draw, values)
        parts = zip(columns, np.split(sums, ends[:-1], axis=1), np.split(counts, ends[:-1], axis=1), strict=True)
        effects.append([_effect(column, *sums_and_counts) for column, *sums_and_counts in parts])
    overall, profiles, place = np.nanmean(values, axis=0), [], 0
    for column, origin in zip(columns, origins, strict=True):
        for name in column.levels:
            for k, cluster in enumerate(clusters.tolist()):
                inside = values[labels == k, place]
                inside = inside[~np.isnan(inside)]
                mean = inside.mean() if len(inside) else np.nan
                sd = inside.std(ddof=1) if len(inside) > 1 else np.nan
                numbers = origin + mean, sd, origin + overall[place], low[k, place], high[k, place]
                profiles.append((column.name, name, cluster, len(inside), *_in_units(column.kind, numbers)))
            place += 1
    spread = np.mean(effects, axis=0), *np.quantile(effects, tails, axis=0)
    association = [
        (column.name, column.kind, column.used, "Cramér's V" if column.kind == "category" else "ε²", *numbers)
        for column, *numbers in zip(columns, *spread, strict=True)
    ]
    heads = ["column", "level", "cluster", "rows", "mean", "sd", "overall", "low", "high"]
    table = pd.DataFrame(association, columns=["column", "kind", "used", "measure", "effect", "low", "high"])
    table = table.sort_values("effect", ascending=False, kind="stable").set_index("column")
    described = pd.DataFrame(profiles, columns=heads).set_index(heads[:3])
    described.attrs["sizes"] = dict(zip(clusters.tolist(), np.bincount(labels).tolist(), strict=True))
    return ClusterProfiles(described, table)


def sizes_of(description: ClusterProfiles) -> pd.Series:
    """Cluster, in the order of their numbers -> its number of rows; without the sizes, the most rows that have a value."""
    import pandas as pd

    sizes = description.profiles.attrs.get("sizes") or description.profiles["rows"].groupby("cluster").max()
    return pd.Series(sizes).sort_index()


def deviations(profiles: pd.DataFrame) -> pd.DataFrame:
    """Compare the means and shares of the rows of the clusters with those of all rows.

    Parameters
    ----------
    profiles
        Of `ClusterProfiles`.

    Returns
    -------
    deviations
        With the index of `profiles`: `spread`, the standard deviation of the column or level over all rows (days for dates);
        and `deviation`, the difference between the mean in the cluster and in all rows, in units of it; NaN if it is 0.
    """
    import pandas as pd

    mean, overall = (profiles[name].map(as_number).astype(float) for name in ("mean", "overall"))
    within = (profiles["rows"] - 1) * profiles["sd"].astype(float) ** 2
    squares = within.fillna(0.0) + profiles["rows"] * (mean - overall).fillna(0.0) ** 2
    both = ["column", "level"]
    rows = profiles["rows"].groupby(both, sort=False).transform("sum")
    spread = np.sqrt(squares.groupby(both, sort=False).transform("sum") / rows)
    return pd.DataFrame({"spread": spread, "deviation": (mean - overall) / spread.where(spread > 0)})


def is_share(description: ClusterProfiles, column: str, level: str) -> bool:
    """Return whether the means of a column or level are shares: of a level of a category, or of ones."""
    return bool(level) or description.association.loc[column, "kind"] == "binary"


def as_number(value: Any) -> float:
    """A date as days since 1970."""
    return value.timestamp() / 86_400 if hasattr(value, "timestamp") else float(value)


def _columns(X: Data, others: pd.DataFrame | None) -> list[Column]:
    """The columns of the data and the others, as numbers."""
    import pandas as pd

    columns = as_arguments(X).columns
    names = list(columns) if isinstance(X, ModelArguments) else [str(name) for name in getattr(X, "columns", columns)]
    found = [Column(name, _kind(one), True, ("",), one[:, None]) for name, one in zip(names, columns.values(), strict=True)]
    if others is None:
        return found
    if not hasattr(others, "columns"):
        raise TypeError(f"others must be a DataFrame, but it is of the type {type(others).__name__}")
    if len(others) != len(found[0].values):
        raise ValueError(f"others must have one row for each of the {len(found[0].values)} rows of X, but it has {len(others)}")
    if isinstance(X, pd.DataFrame) and isinstance(others, pd.DataFrame):
        own, given = X.index, others.index
        if not own.equals(given) and own.is_unique and set(own) == set(given):
            at = int(np.argmax(own != given))
            raise ValueError(
                f"others has the rows of X in another order, first in row {at} ({given[at]!r} instead of {own[at]!r}): "
                "pass others.loc[X.index]"
            )
    twice = sorted(set(names) & set(map(str, others.columns)))
    if twice:
        raise ValueError(f"others has columns that X has too: {', '.join(twice)}")
    repeated = others.columns[others.columns.duplicated()]
    if len(repeated):
        raise ValueError(f"others has several columns of the name {repeated[0]!r}: rename or leave out all but one")
    return found + [column_of(str(name), others[name], False) for name in others.columns]


def column_of(name: str, cells: pd.Series, used: bool) -> Column:
    """A column of a DataFrame: numbers, dates or texts, whose levels are in the order of an ordered categorical type."""
    import pandas as pd

    there = cells.notna().to_numpy()
    if not there.any():
        raise ValueError(f"all values are missing in column {name!r} of others")
    if pd.api.types.is_datetime64_any_dtype(cells):
        times = cells.dt.tz_localize(None).to_numpy("datetime64[us]")  # which holds any year, unlike nanoseconds
        days = np.where(np.isnat(times), np.nan, times.astype(np.int64) / 86_400e6)
        return Column(name, "date", used, ("",), days[:, None])
    if pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_bool_dtype(cells):
        numbers = cells.astype("Float64").to_numpy(float, na_value=np.nan)
        if np.isinf(numbers).any():
            raise ValueError(
                f"column {name!r} of others is infinite in row {np.isinf(numbers).argmax()}, so that it has no mean: leave out "
                "the column, or mark the value as missing"
            )
        return Column(name, _kind(numbers), used, ("",), numbers[:, None])
    texts = cells.astype(str).to_numpy()
    levels = np.unique(texts[there])
    if isinstance(cells.dtype, pd.CategoricalDtype) and cells.dtype.ordered:
        rank = dict(zip(texts, cells.cat.codes, strict=True))
        levels = np.array(sorted(levels, key=rank.__getitem__))
    if len(levels) > MOST_LEVELS:
        raise ValueError(
            f"column {name!r} of others has {len(levels)} distinct texts, such as {levels[0]!r}; expected at most "
            f"{MOST_LEVELS}, numbers or dates: leave it out, or group its values"
        )
    values = (texts[:, None] == levels).astype(float)
    values[~there] = np.nan
    return Column(name, "category", used, tuple(map(str, levels)), values)


def _kind(numbers: Float[np.ndarray, " n"]) -> str:
    return "binary" if np.isin(numbers[~np.isnan(numbers)], (0.0, 1.0)).all() else "number"


def _origin(column: Column) -> float:
    """The first value of numbers and dates, 0 for shares: counted from it, equal values have no variance, not even rounding."""
    if column.kind in ("binary", "category"):
        return 0.0
    there = column.values[:, 0][~np.isnan(column.values[:, 0])]
    return float(there[0]) if len(there) else 0.0


def _in_units(kind: str, numbers: tuple[float, ...]) -> tuple[Any, ...]:
    """Days since 1970 as dates, to the second; the standard deviation, the second number, stays in days."""
    if kind != "date":
        return numbers
    import pandas as pd

    return tuple(
        number if place == 1 or np.isnan(number) else pd.Timestamp(np.datetime64(round(number * 86_400), "s"))
        for place, number in enumerate(numbers)
    )


def _sums(labels: Int[np.ndarray, " n"], values: Float[np.ndarray, "n q"]) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the values that are there, and their numbers, by label."""
    indicators = np.eye(labels.max() + 1)[labels].T
    there = ~np.isnan(values)
    return indicators @ np.where(there, values, 0.0), indicators @ there.astype(float)


def _mean_parameters(
    draws: Draws, labels: Int[np.ndarray, " n"], columns: Sequence[Column], num_samples: int, random_state: int | Array
) -> Float[np.ndarray, "s k q"]:
    """Draws of the mean parameter of each cluster in every column and level; NaN where the model has none."""
    levels = [values for column in columns for values in column.values.T]
    unknown = np.full((1, labels.max() + 1, len(levels)), np.nan)
    if not draws.mixture.integrated:
        return unknown
    with double_precision():
        observed = np.asarray(draws.mixture.conjugate({name: value[0, 0] for name, value in draws.hyperparameters.items()}).X)
    used = np.repeat([column.used for column in columns], [len(column.levels) for column in columns])
    places = [_place(values, observed) if one else None for values, one in zip(levels, used, strict=True)]
    try:
        means = cluster_means(draws, labels, num_samples, random_state)
    except NotImplementedError:  # the likelihood of a user's family need not have a mean
        return unknown
    found = np.broadcast_to(unknown, (len(means), *unknown.shape[1:])).copy()
    for place, at in enumerate(places):
        if at is not None:
            column, is_complement = at
            found[:, :, place] = 1.0 - means[:, :, column] if is_complement else means[:, :, column]
    return found


def _place(values: Float[np.ndarray, " n"], observed: Num[np.ndarray, "n q"]) -> tuple[int, bool] | None:
    """The observed column with these values, where they are not missing; and whether it has 1 minus them, as of two levels."""
    rows = np.flatnonzero(~np.isnan(values))
    for is_complement, wanted in ((False, values), (True, 1.0 - values)):
        alike = np.arange(observed.shape[1])
        for some in (rows[:FEW], rows):  # most columns differ in the first rows
            alike = alike[(observed[np.ix_(some, alike)] == wanted[some, None]).all(axis=0)]
        if len(rows) and len(alike):
            return int(alike[0]), is_complement
    return None


def _effect(column: Column, sums: Float[np.ndarray, "c levels"], counts: Float[np.ndarray, "c levels"]) -> float:
    """ε² or Cramér's V with its correction, at least 0; 0 for a partition that cannot be associated with anything."""
    filled = counts[:, 0] > 0
    sums, counts = sums[filled], counts[filled, 0]
    n, k = counts.sum(), len(counts)
    if column.kind == "category":
        levels = sums.shape[1]
        expected = sums.sum(1, keepdims=True) * sums.sum(0) / n
        phi = ((sums - expected) ** 2 / expected).sum() / n - (k - 1) * (levels - 1) / max(n - 1, 1)
        sides = [side - (side - 1) ** 2 / max(n - 1, 1) for side in (k, levels)]
        return float(np.sqrt(max(phi, 0.0) / (min(sides) - 1))) if min(sides) > 1 else 0.0
    cells = column.values[:, 0]
    mean, total = np.nanmean(cells), np.nanvar(cells) * n
    if k >= n or k < 2 or total == 0:
        return 0.0
    within = max(total - ((sums[:, 0] / counts - mean) ** 2 * counts).sum(), 0.0)
    return float(max(1.0 - within / (n - k) * (n - 1) / total, 0.0))

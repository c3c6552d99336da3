"""Check a fitted partition: whether the rows within clusters look like those that the likelihood implies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from bnp_hier.advice.coarser_partitions import CLEAR, TestedColumns, coarser, redrawn, statistics_of
from bnp_hier.advice.column_kinds import names_of_columns
from bnp_hier.advice.numpy_draws import drawn
from bnp_hier.components import (
    Component,
    DirichletMultinomial,
    NormalInverseWishart,
    NormalKnownCovariance,
    UninformativeNormal,
)
from bnp_hier.partitions.capacities import in_steps, more_slots
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import SEED, check_options
from bnp_hier.utils.wording import listed

__all__ = ["FitCheck", "Misfit", "check_fit"]

FALSE_ALARMS = 0.01
"""Probability of any alarm for a table that is drawn from the model."""

MOST_ROWS, MOST_CELLS, MOST_PAIRED = 2000, 40_000, 100
"""Most rows and cells that are looked at, of larger tables a random choice; most columns whose pairs are looked at."""

FEWEST_IN_CLUSTER, FEWEST_IN_COLUMN = 5, 30
"""Fewest values of a column in a cluster that count, and in all such clusters."""

FEWEST_ONES = 10.0
"""Least sum of squares of bits or counts about the means of their clusters for pairs: about the number of the rarer bit."""

CELLS_AT_ONCE = 2_000_000
"""Cells of all tables that are simulated at once."""

SKEWED = 0.3
"""Ratio of squared skewness to excess kurtosis above which the tails are those of a skewed column, not of outliers."""

SIMULATIONS = 200
"""Number of simulated tables."""

NAMED = 5
"""Most columns or pairs that a sentence names."""


ABSORBED = ("dispersion", "skewness", "correlation")
"""What overlapping clusters may explain: of two that were fitted as one, the rows are skewed or their columns correlated."""


PILE = 0.05
"""Share of rows with one value, and twice as many as expected, that matters."""


class _Kind(NamedTuple):
    """A statistic: the scale on which it varies alike everywhere, whether a difference matters, its words, and its number."""

    scale: Callable[[Any], Any]
    matters: Callable[[Any, Any], Any]
    words: str
    number: str


def _beyond(least: float) -> Callable[[Any, Any], Any]:
    return lambda observed, expected: np.abs(observed - expected) > least


def _above(least: float) -> Callable[[Any, Any], Any]:
    return lambda observed, expected: observed - expected > least


KINDS = {
    "pile-up": _Kind(
        lambda share: np.arcsin(np.sqrt(share)),
        lambda observed, expected: (observed > expected + PILE) & (observed > 2 * expected),
        "one value in many rows",
        ".0%",
    ),
    "zeros": _Kind(lambda share: np.arcsin(np.sqrt(share)), _beyond(0.05), "another share of zeros", ".0%"),
    "dispersion": _Kind(
        lambda ratio: np.log(ratio + 0.01),
        lambda observed, expected: (observed > 1.5 * expected) | (observed < expected / 1.5),
        "another ratio of variance to mean",
        ".2f",
    ),
    "skewness": _Kind(np.arcsinh, _beyond(0.5), "skewness", ".2f"),
    "tails": _Kind(np.log1p, _above(2.0), "heavy tails (kurtosis)", ".1f"),
    "correlation": _Kind(lambda r: np.arctanh(np.clip(r, -0.999, 0.999)), _beyond(0.2), "correlation", ".2f"),
}
"""The statistics within clusters, the clearest causes first: of a column with one, those of its shape are not reported."""

LEAST_SD = 0.01
"""Least standard deviation, on the scale of a statistic, of what is simulated."""


class Misfit(NamedTuple):
    """A statistic within clusters that tables simulated from the fit do not have.

    - **columns** - name of the column, or names of the pair.
    - **what** - "pile-up", "zeros", "dispersion", "skewness", "tails" or "correlation".
    - **observed** - the statistic: the share of the most frequent value or of zeros, variance over mean, the third or fourth
      moment of standardised residuals, or their correlation.
    - **expected** - interval of 99% of the simulated tables.
    - **advice** - what to do.
    """

    columns: tuple[str, ...]
    what: str
    observed: float
    expected: tuple[float, float]
    advice: str

    @property
    def sentence(self) -> str:
        """What was found, and what to do about it."""
        return _sentence([self])


class FitCheck(NamedTuple):
    """What was found in a fitted partition, and what was looked at.

    - **misfits** - statistics that tables simulated from the fit do not have.
    - **made** - statistic -> names of the columns in which it was looked at.
    - **unchecked** - name of a column that was not looked at -> why.
    """

    misfits: tuple[Misfit, ...]
    made: dict[str, tuple[str, ...]]
    unchecked: dict[str, str]

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each statistic and advice, without a capital or a full stop."""
        groups: dict[tuple[str, str], list[Misfit]] = {}
        for each in self.misfits:
            groups.setdefault((each.what, each.advice), []).append(each)
        return tuple(map(_sentence, groups.values()))


def _sentence(misfits: Sequence[Misfit]) -> str:
    kind, first = KINDS[misfits[0].what], misfits[0]
    which = [
        f"{' and '.join(map(repr, each.columns))} ({each.observed:{kind.number}}; expected {each.expected[0]:{kind.number}} to "
        f"{each.expected[1]:{kind.number}})"
        for each in sorted(misfits, key=lambda each: -abs(each.observed - np.mean(each.expected)))
    ]
    return f"the clusters do not fit the likelihood: within them, {kind.words} in {listed(which, NAMED)}: {first.advice}"


def check_fit(
    component: Component,
    X: ArrayLike,
    labels: ArrayLike,
    feature_names: Sequence[str] | None = None,
    *,
    random_state: int = 0,
) -> FitCheck:
    """Compare statistics within fitted clusters with those of tables that are simulated from the fit.

    Looks for values that pile up, too many or too few zeros, counts that vary more or less than the family's, skewness, heavy
    tails, and correlations between columns that the family does not model. An alarm requires that the difference matters and is
    not by chance: of tables drawn from the model, about one in a hundred has any.

    Parameters
    ----------
    component
        The likelihood, with the hyperparameters of the fit.
    X
        Data, (n, d).
    labels
        (n,) cluster of each row.
    feature_names
        Names of the columns; a DataFrame provides its own.
    random_state
        Seed.

    Returns
    -------
    check
        `FitCheck` with what was found, and what was looked at.

    Raises
    ------
    ValueError
        If the data are invalid for the component, or there is not one label per row.

    Notes
    -----
    A hard partition truncates overlapping clusters. Therefore labels are drawn given the clusters, starting with the fitted
    ones, and the same labels are those of the simulated rows. Cells that are missing in the data are missing in these, too.

    A family that does not suit a column often gets more clusters than there are, within which little is left to see. Therefore
    clusters are also merged, if fewer clusters with dependent columns, long tails or overdispersed counts describe the rows
    better than the fitted ones, by 20 nats; what is found in these is reported as well. Without such a gain, correlation,
    skewness and overdispersion are not reported: two overlapping clusters, fitted as one, show them too.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> X = np.hstack([x, x + 0.5 * np.random.default_rng(1).normal(size=(200, 1))])
    >>> component = bnp.NormalInverseGamma.from_data(X, learn=False)
    >>> [(misfit.columns, misfit.what) for misfit in bnp.check_fit(component, X, np.zeros(200, int)).misfits]
    [(('x0', 'x1'), 'correlation')]
    """
    check_options(
        "check_fit",
        {"component": [Component], "feature_names": [None, "array-like"], "random_state": SEED},
        {"component": component, "feature_names": feature_names, "random_state": random_state},
    )
    matrix, codes, names = as_matrix(X), np.asarray(labels), names_of_columns(X, feature_names)
    component.validate_new_rows(matrix)
    if codes.shape != (len(matrix),):
        raise ValueError(f"labels must contain one label for each of the {len(matrix)} rows, but their shape is {codes.shape}")
    rng = np.random.default_rng(random_state)
    most = min(MOST_ROWS, max(500, MOST_CELLS // len(names)))
    some = np.sort(rng.choice(len(matrix), most, replace=False)) if len(matrix) > most else np.arange(len(matrix))
    rows, partition = matrix[some], canonical_labels(codes[some])
    if np.bincount(partition).max() < FEWEST_IN_CLUSTER:
        return FitCheck((), {}, dict.fromkeys(names, "every cluster is too small"))
    with double_precision():
        centred = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), component.centered_on(rows))
        try:
            drawn_labels = redrawn(centred, rows, partition, rng)
        except Exception as error:  # a family of a user's own, or one without a predictive density of a new cluster
            return FitCheck((), {}, dict.fromkeys(names, _reason(error)))
        fitted = _compared(centred, rows, drawn_labels, names, rng)
        return _with_coarser(fitted, centred, rows, partition, names, rng)


def _with_coarser(
    fitted: FitCheck,
    component: Component,
    X: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    names: tuple[str, ...],
    rng: np.random.Generator,
) -> FitCheck:
    """Check fewer clusters, too, if these describe the rows better with another likelihood."""
    continuous, counts = (np.isin(names, fitted.made.get(what, ())) for what in ("tails", "zeros"))
    bits = (np.isin(X, (0.0, 1.0)) | np.isnan(X)).all(0) & ~continuous & ~counts
    # also bits that hardly vary within the fitted clusters, which they may have shaped
    paired = np.isin(names, fitted.made.get("correlation", ())) | (bits & (len(names) <= MOST_PAIRED))
    tested = np.outer(paired, paired) & ~np.isin(names, list(fitted.unchecked))
    for part, columns in component.parts_and_columns():
        if _models_dependence(part):
            tested[np.ix_(columns, columns)] = False
    merged = coarser(component, X, labels, TestedColumns(continuous, counts, bits, tested), rng)
    if merged.gain < CLEAR:
        return fitted._replace(misfits=tuple(each for each in fitted.misfits if not _is_absorbed(each)))
    if merged.labels.max() == labels.max():
        return fitted
    again = _compared(component, X, merged.labels, names, rng)
    known = {(each.columns, each.what) for each in again.misfits}
    others = [each for each in fitted.misfits if (each.columns, each.what) not in known]
    made = {what: tuple(dict.fromkeys([*columns, *again.made.get(what, ())])) for what, columns in fitted.made.items()}
    return FitCheck(tuple(_causes([*again.misfits, *others])), again.made | made, fitted.unchecked)


def _is_absorbed(misfit: Misfit) -> bool:
    return misfit.what in ABSORBED and not (misfit.what == "dispersion" and misfit.observed < misfit.expected[0])


def _models_dependence(part: Component) -> bool:
    """Whether the columns of a cluster are not independent under this family."""
    if isinstance(part, NormalKnownCovariance):
        covariance = np.asarray(part.covariance)
        return bool((covariance != np.diag(np.diag(covariance))).any())
    return isinstance(part, NormalInverseWishart | UninformativeNormal | DirichletMultinomial)


def _reason(error: Exception) -> str:
    return f"rows cannot be simulated ({str(error).splitlines()[0] if str(error) else type(error).__name__})"


def _compared(
    component: Component,
    X: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    names: tuple[str, ...],
    rng: np.random.Generator,
) -> FitCheck:
    """Simulate tables like X, with the rows in the order of their clusters, and compare the statistics."""
    order = np.argsort(labels, kind="stable")
    X, labels = X[order], labels[order]
    rounds = -(-SIMULATIONS * X.size // CELLS_AT_ONCE)
    simulated = np.zeros((-(-SIMULATIONS // rounds), *X.shape))
    absent, shares, unchecked, draws = np.isnan(X), np.zeros(X.shape[1], bool), dict[str, str](), []
    for part, columns in component.parts_and_columns():
        where = list(columns)
        try:
            draw = _sampler(part, X[:, where], labels)
            simulated[..., where] = draw(rng, len(simulated))
        except Exception as error:  # a family of a user's own may not draw rows
            unchecked |= dict.fromkeys((names[j] for j in where), _reason(error))
            absent[:, where] = True
            continue
        draws.append((where, draw))
        if isinstance(part, DirichletMultinomial):  # a row of zeros is a missing value of a category or a scale
            shares[where], absent[:, where] = True, X[:, where].sum(1, keepdims=True) == 0
    first = np.flatnonzero(np.diff(labels, prepend=-1))
    cells = ~absent & (np.add.reduceat(~absent, first, axis=0, dtype=int) >= FEWEST_IN_CLUSTER)[labels]
    few = cells.sum(0) < FEWEST_IN_COLUMN
    unchecked |= {names[j]: "too few values in clusters that are not small" for j in np.flatnonzero(few & ~absent.all(0))}
    unchecked |= {names[j]: "no values" for j in np.flatnonzero(np.isnan(X).all(0))}
    cells &= ~few
    looked = _looked_at(X, simulated, cells, shares, first, rng)
    grids = [(j, _grid(X[cells[:, j], j])) for (j,) in looked["tails"]]
    statistics = [_measured(X[None], cells, first, looked)]
    for i in range(rounds):
        if i > 0:
            for where, draw in draws:
                simulated[..., where] = draw(rng, len(simulated))
        for j, grid in grids:
            simulated[..., j] = _rounded(simulated[..., j], grid)
        statistics.append(_measured(simulated, cells, first, looked))
    misfits = []
    for what in [what for what in KINDS if looked[what]]:
        values = np.concatenate([each[what] for each in statistics])
        share = FALSE_ALARMS / sum(map(bool, looked.values()))
        for index in _alarms(KINDS[what], values, share):
            columns, observed = looked[what][index], float(values[0, index])
            low, high = np.quantile(values[1:, index], [0.005, 0.995])
            advice = _advice(what, columns, bool(observed < low), X, names, {j for (j,) in looked["tails"]})
            misfits.append(Misfit(tuple(names[j] for j in columns), what, observed, (float(low), float(high)), advice))
    looked["pile-up"] = looked["tails"] + looked["zeros"]
    made = {what: tuple(dict.fromkeys(names[j] for columns in of for j in columns)) for what, of in looked.items() if of}
    return FitCheck(tuple(_causes(misfits)), made, unchecked)


def _sampler(
    part: Component, X: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]
) -> Callable[[np.random.Generator, int], Float[np.ndarray, "s n d"]]:
    """A function that draws tables: parameters of each cluster from their posterior, then its rows."""
    if isinstance(part, DirichletMultinomial):
        totals = X.sum(1)
        if not np.isin(totals, (0.0, totals.max())).all() or not totals.any():
            raise ValueError("their totals differ between rows")
        part = dataclasses.replace(part, total_count=int(totals.max()))
    sizes = np.bincount(labels)
    slots = in_steps(len(sizes))
    posterior = _posterior(part, more_slots(statistics_of(part, X, labels), slots - len(sizes)))

    def draw(rng: np.random.Generator, size: int) -> Float[np.ndarray, "s n d"]:
        parameters = drawn(posterior, size, rng)
        rows = [drawn(_likelihood(part, parameters[k]), int(count), rng) for k, count in enumerate(sizes)]
        tables = np.concatenate(rows, axis=1)
        if not np.isfinite(tables).all():
            raise ValueError("values are not finite")
        return tables

    return draw


# compiled as a whole: XLA takes longer to compile the operations one by one
_posterior = jax.jit(lambda component, stats: component.posterior(stats))
_likelihood = jax.jit(lambda component, parameters: component.likelihood(parameters))


def _looked_at(
    X: Float[np.ndarray, "n d"],
    simulated: Float[np.ndarray, "s n d"],
    cells: Bool[np.ndarray, "n d"],
    shares: Bool[np.ndarray, " d"],
    first: Int[np.ndarray, " k"],
    rng: np.random.Generator,
) -> dict[str, list[tuple[int, ...]]]:
    """Columns and pairs of each statistic: what the family draws tells measurements, counts and bits."""
    there = cells.any(0)
    whole = np.array([bool((of == np.round(of)).all()) for of in np.moveaxis(simulated, 2, 0)])
    bits = shares | (whole & (simulated.max((0, 1)) <= 1) & (simulated.min((0, 1)) >= 0))
    singles: list[list[tuple[int, ...]]] = [
        [(int(j),) for j in np.flatnonzero(there & of)] for of in (~whole & ~shares, whole & ~bits)
    ]
    continuous, counts = singles
    varying = there & (~whole | (_residuals(X[None], cells, first)[2][0].sum(0) >= FEWEST_ONES))
    shared = _largest_share(X[None], cells)[0]
    some = np.flatnonzero(varying)
    if len(some) > MOST_PAIRED:
        some = np.sort(rng.choice(some, MOST_PAIRED, replace=False))
    return {
        "pile-up": [(j,) for (j,) in continuous + counts if shared[j] > PILE],  # others need not be sorted
        "zeros": counts,
        "dispersion": counts,
        "skewness": continuous,
        "tails": continuous,
        "correlation": [(int(j), int(k)) for i, j in enumerate(some) for k in some[i + 1 :]],
    }


def _residuals(
    tables: Float[np.ndarray, "s n d"], cells: Bool[np.ndarray, "n d"], first: Int[np.ndarray, " k"]
) -> tuple[Float[np.ndarray, "s k d"], Float[np.ndarray, "s n d"], Float[np.ndarray, "s k d"]]:
    """Means of the clusters, deviations of the rows from these, and sums of their squares; 0 for cells that do not count."""
    sizes = np.diff(first, append=len(cells))
    means = np.add.reduceat(np.where(cells, tables, 0.0), first, axis=1)
    means /= np.maximum(np.add.reduceat(cells, first, axis=0, dtype=int), 1)
    residuals = np.where(cells, tables - np.repeat(means, sizes, axis=1), 0.0)
    return means, residuals, np.add.reduceat(residuals**2, first, axis=1)


def _measured(
    tables: Float[np.ndarray, "s n d"],
    cells: Bool[np.ndarray, "n d"],
    first: Int[np.ndarray, " k"],
    looked: dict[str, list[tuple[int, ...]]],
) -> dict[str, Float[np.ndarray, "s m"]]:
    """The statistics of each table; rows are in the order of their clusters."""
    means, residuals, squares = _residuals(tables, cells, first)
    numbers, total = np.add.reduceat(cells, first, axis=0, dtype=int), np.maximum(cells.sum(0), 1)
    zeros = ((tables == 0) & cells).sum(1) / total
    tied = [j for (j,) in looked["pile-up"]]
    expected = (np.maximum(numbers - 1, 0) * means).sum(1)
    continuous = [j for (j,) in looked["tails"]]
    sd = np.sqrt(squares / np.maximum(numbers, 1))
    sd = np.where(sd > 1e-9 * (np.abs(means) + sd.max(1, keepdims=True)), sd, np.inf)  # a cluster of equal values
    scaled = residuals[..., continuous] / np.repeat(sd[..., continuous], np.diff(first, append=len(cells)), axis=1)
    freedom = np.maximum((scaled**2).sum(1), 1.0)
    statistics = {"zeros": zeros, "dispersion": squares.sum(1) / np.maximum(expected, 1e-9)}
    statistics = {what: values[:, [j for (j,) in looked[what]]] for what, values in statistics.items()}
    statistics |= {"pile-up": _largest_share(tables[..., tied], cells[:, tied])}
    statistics |= {"skewness": (scaled**3).sum(1) / freedom, "tails": (scaled**4).sum(1) / freedom}
    # the variances of bits and counts are those of all clusters: in one where ones are rare, a pair of them is no correlation
    residuals[..., continuous] = scaled
    some = sorted({j for pair in looked["correlation"] for j in pair})
    chosen, there = residuals[..., some], cells[:, some].astype(float)
    products = np.swapaxes(chosen, 1, 2) @ chosen
    shared = np.swapaxes(chosen**2, 1, 2) @ there  # squares where the other column has a value
    scale = np.sqrt(shared * np.swapaxes(shared, 1, 2))
    correlations = products / np.where(scale > 0, scale, np.inf)
    return statistics | {"correlation": correlations[:, *np.triu_indices(len(some), 1)]}


def _largest_share(tables: Float[np.ndarray, "s n d"], cells: Bool[np.ndarray, "n d"]) -> Float[np.ndarray, "s d"]:
    """Share of the most frequent value of each column."""
    ordered = np.sort(np.where(cells, tables, np.nan), axis=1)  # NaN differs from itself
    rank = np.arange(ordered.shape[1])[:, None]
    new = np.concatenate([np.ones_like(ordered[:, :1], bool), ordered[:, 1:] != ordered[:, :-1]], axis=1)
    counts = np.maximum(cells.sum(0), 1)
    return (rank - np.maximum.accumulate(np.where(new, rank, 0), axis=1)).max(1, initial=0) / counts + 1.0 / counts


def _grid(values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " g"]:
    """The values of a column, if many of them are equal, as those of rounded numbers are."""
    grid = np.unique(values)
    return grid if len(grid) < 0.9 * len(values) else grid[:0]


def _rounded(values: Float[np.ndarray, "s n"], grid: Float[np.ndarray, " g"]) -> Float[np.ndarray, "s n"]:
    """Replace values by the nearest of the grid, except beyond its ends, where a limit may have cut the data off."""
    if len(grid) < 2:
        return values
    middles = (grid[1:] + grid[:-1]) / 2
    low, high = grid[0] - (middles[0] - grid[0]), grid[-1] + (grid[-1] - middles[-1])
    return np.where((values >= low) & (values <= high), grid[np.searchsorted(middles, values)], values)


def _alarms(kind: _Kind, values: Float[np.ndarray, "s m"], share: float) -> Int[np.ndarray, " a"]:
    """Statistics of the first table that are further from those of the others than chance explains, and matter.

    Distances are in standard deviations of the others, of which each is left out in turn. The largest one has to exceed those
    of all others, and the quantile of an extreme-value distribution, because 200 tables do not show a share of 1 in 600.
    """
    scaled = kind.scale(values)
    observed, others = scaled[0], scaled[1:]
    s, off = len(others), others - others.mean(0)
    squares = (off**2).sum(0)
    without = np.sqrt(np.maximum((squares - off**2 * s / (s - 1)) / (s - 2), LEAST_SD**2))
    largest = (np.abs(off) * s / (s - 1) / without).max(1)
    distance = np.abs(observed - others.mean(0)) / np.sqrt(np.maximum(squares / (s - 1), LEAST_SD**2))
    quantile = largest.mean() + largest.std() * np.sqrt(6) / np.pi * (-np.log(-np.log1p(-share)) - np.euler_gamma)
    clear = distance > max(largest.max(), quantile)
    return np.flatnonzero(clear & kind.matters(values[0], values[1:].mean(0)))


def _causes(misfits: Sequence[Misfit]) -> Iterator[Misfit]:
    """Leave out what another misfit of the same column explains: a pile-up, skewness, or tails, whose outliers are skewed."""
    observed = {(each.columns, each.what): each.observed for each in misfits}
    for each in misfits:
        of = {what: observed.get((each.columns, what), 0.0) for what in KINDS}
        skewed = of["skewness"] ** 2 > SKEWED * (of["tails"] - 3.0)  # true if there are no tails
        explained = {
            "pile-up": (each.columns, "zeros") in observed,
            "skewness": of["pile-up"] or not skewed,
            "tails": of["pile-up"] or (skewed and of["skewness"]),
        }
        if not explained.get(each.what):
            yield each


def _advice(
    what: str, columns: tuple[int, ...], low: bool, X: Float[np.ndarray, "n d"], names: Sequence[str], continuous: set[int]
) -> str:
    """What to do about a misfit; `low` if the statistic is smaller than expected."""
    cells = X[~np.isnan(X[:, columns[0]]), columns[0]]
    if what == "correlation":
        if set(columns) <= continuous:
            return "use a family with a full covariance matrix for them (--family normal), or leave out one of them"
        return (
            "the family takes them as independent, and clusters may be split for this reason alone: leave out one of them, or "
            "combine them"
        )
    if what == "pile-up":
        values, counts = np.unique(cells, return_counts=True)
        return (
            f"the value is {values[counts.argmax()]:g}, perhaps a limit or a code: treat it as missing, and mark its rows in "
            "an additional column of 0 and 1"
        )
    if what == "zeros":
        return (
            "clusters may only tell whether there is anything to count"
            if low
            else ("mark them in an additional column of 0 and 1, and treat them as missing")
        )
    if what == "dispersion":
        return "take the counts as continuous" if low else "take logarithms (log1p in --kinds or kinds=)"
    if what == "skewness" and not low and cells.min() >= 0:
        return f"take logarithms ({'log' if cells.min() > 0 else 'log1p'} in --kinds or kinds=)"
    if what == "skewness":
        return "transform the column, because a tail may get clusters of its own"
    return "outliers may get clusters of their own: leave them out, or do not interpret small clusters"

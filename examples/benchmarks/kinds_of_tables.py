"""Small generated tables of the kinds that people bring, three variants each, with the classes that generated them.

``table(kind, variant)`` is deterministic. Variants differ in seed, in numbers of rows and in how far the classes are apart.
`RULES` says, per kind, what a user in a hurry would tell another program about the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pandas as pd

Made = tuple[pd.DataFrame, np.ndarray | None]
"""A table, and the class of each row, (n,); None where there are none to find."""

VARIANTS = 3


class Draw(NamedTuple):
    """The random numbers of a variant, the factor of its numbers of rows, and that of the distances between its classes."""

    rng: np.random.Generator
    size: float
    gap: float

    def classes(self, *sizes: int) -> np.ndarray:
        """(n,) classes of about these sizes, one after another."""
        return np.repeat(np.arange(len(sizes)), [max(2, round(self.size * size)) for size in sizes])

    def around(self, centres: Sequence | np.ndarray, k: np.ndarray, spread: float | np.ndarray = 1.0) -> np.ndarray:
        """(n, d) normal rows around the centres of their classes, which are moved apart or together by the variant."""
        centres = np.asarray(centres, dtype=float)
        middle = centres.mean(axis=0)
        return (middle + self.gap * (centres - middle))[k] + spread * self.rng.normal(size=(len(k), centres.shape[1]))


class Rules(NamedTuple):
    """Columns that a user leaves out, and columns of numbers that are names of categories."""

    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


KINDS: dict[str, Callable[[Draw], Made]] = {}
RULES: dict[str, Rules] = {}


def kind(
    drop: Sequence[str] = (), categories: Sequence[str] = ()
) -> Callable[[Callable[[Draw], Made]], Callable[[Draw], Made]]:
    """Register a generator under its name."""

    def register(make: Callable[[Draw], Made]) -> Callable[[Draw], Made]:
        KINDS[make.__name__], RULES[make.__name__] = make, Rules(tuple(drop), tuple(categories))
        return make

    return register


def table(name: str, variant: int = 0) -> Made:
    """The table of a kind, and its classes."""
    rng = np.random.default_rng([crc32(name.encode()), variant])
    return KINDS[name](Draw(rng, (1.0, 0.7, 1.5)[variant], (1.0, 1.3, 0.85)[variant]))


def frame(X: np.ndarray, names: str | Sequence[str], digits: int | None = None) -> pd.DataFrame:
    """A table whose columns have these names, or a letter and their number."""
    columns = [f"{names}{j + 1}" for j in range(X.shape[1])] if isinstance(names, str) else list(names)
    return pd.DataFrame(X if digits is None else X.round(digits), columns=columns)


# Numbers


@kind()
def one_column(draw: Draw) -> Made:
    k = draw.classes(250, 200)
    return frame(draw.around([[3100.0], [6300.0]], k, np.array([380.0, 520.0])[k, None]), ["discharge"], 1), k


@kind()
def ragged_blobs(draw: Draw) -> Made:
    k = draw.classes(*draw.rng.integers(15, 90, 8))
    centres, spread = draw.rng.uniform(-12, 12, (8, 2)), draw.rng.gamma(2.0, 0.6, 8) + 0.1
    return frame(draw.around(centres, k, spread[k, None]), "f"), k


@kind()
def jittered_duplicates(draw: Draw) -> Made:
    k = draw.classes(70, 40, 25, 12)
    X = np.array([[2.0, 1, 0], [2, 6, 0], [7, 6, 3], [0, 0, 9]])[k]
    loose = draw.rng.random(len(k)) < 0.25
    X[loose] += 0.35 * draw.rng.normal(size=(loose.sum(), 3))
    return frame(X, "x"), k


@kind()
def only_duplicates(draw: Draw) -> Made:
    k = draw.classes(30, 50, 20, 25)
    return frame(draw.rng.integers(0, 20, (4, 3)).astype(float)[k], "u"), k


@kind(drop=["unit"])
def nearly_constant(draw: Draw) -> Made:
    k = draw.classes(50, 60, 40)
    X = draw.around([[0.0, 0, 0], [5, 3, 0], [1, 6, 5]], k)
    X[:, 0] += 0.7 * (X[:, 2] - X[:, 2].mean())
    rows = frame(X, ["p", "q", "r"]).assign(offset=0.2, unit=25)
    rows.loc[int(draw.rng.integers(len(k))), "offset"] += 2e-3
    return rows, k


@kind()
def angles(draw: Draw) -> Made:
    k = draw.classes(110, 80, 90)
    direction = np.array([3.0, 140, 250])[k] + draw.rng.normal(0, 16 / draw.gap, len(k))
    speed = np.abs(np.array([11.0, 4, 7])[k] + draw.rng.normal(0, 1.8, len(k)))
    return pd.DataFrame({"wind_direction": (direction % 360).round(), "wind_speed": speed.round(1)}), k


@kind()
def unit_embeddings(draw: Draw) -> Made:
    k, d = draw.classes(90, 70, 60, 50), 64
    centres = draw.rng.normal(size=(4, d))
    X = draw.gap * (centres / np.linalg.norm(centres, axis=1, keepdims=True))[k] + 0.8 / np.sqrt(d) * draw.rng.normal(
        size=(len(k), d)
    )
    return frame(X / np.linalg.norm(X, axis=1, keepdims=True), "dim"), k


@kind()
def compositions(draw: Draw) -> Made:
    k = draw.classes(60, 45, 40)
    strength = draw.gap * 9 * draw.rng.gamma(0.5, size=(3, 10)) + 0.08
    X = np.array([draw.rng.dirichlet(strength[j]) for j in k])
    X[X < 0.005] = 0.0
    return frame(X / X.sum(axis=1, keepdims=True), "genus"), k


@kind()
def tiny(draw: Draw) -> Made:
    k = draw.classes(16, 9)
    return frame(draw.around([[1.0, 4.0], [4.2, 2.2]], k), "v"), k


def courses(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """(n, 10) smooth courses in time around four shapes."""
    k, t = draw.classes(50, 45, 35, 25), np.linspace(0, 1, 10)
    shapes = np.array([np.sin(2 * np.pi * t), np.exp(-4 * t), np.cos(2 * np.pi * t), 0.3 * t])
    smooth = np.linalg.cholesky(np.exp(-0.5 * ((t[:, None] - t) / 0.2) ** 2) + 1e-6 * np.eye(10))
    smooth_noise = 0.5 * draw.rng.normal(size=(len(k), 10)) @ smooth.T
    return draw.around(2 * shapes, k, 0.2) + smooth_noise, k


@kind()
def time_courses(draw: Draw) -> Made:
    X, k = courses(draw)
    return frame(X, "hour").set_index(pd.Index([f"YGR{i:03d}" for i in range(len(k))], name="gene")), k


@kind()
def integer_time_courses(draw: Draw) -> Made:
    X, k = courses(draw)
    return frame((12 * X).round().astype(int), "hour"), k


@kind()
def heavy_tails(draw: Draw) -> Made:
    k = draw.classes(250, 180, 110)
    spread = 1 / np.sqrt(draw.rng.chisquare(3, len(k)) / 3)
    X = draw.around([[0.0, 0], [10, 1], [4, 9]], k, spread[:, None])
    return frame(X @ np.array([[1.0, 0.4], [0, 0.9]]), "pc"), k


@kind()
def gross_outliers(draw: Draw) -> Made:
    k = draw.classes(500, 300, 8)
    X = draw.around([[0.0, 0, 0], [5, 1, 2], [0, 0, 0]], k)
    X[k == 2] = draw.rng.uniform(-400, 400, ((k == 2).sum(), 3))
    return frame(X, "m"), k


@kind()
def fewer_rows_than_columns(draw: Draw) -> Made:
    k, d = draw.classes(18, 12, 10), 200
    centres = np.repeat(np.eye(3), [25, 25, d - 50], axis=1)[:, :d] * np.r_[np.full(75, 1.8), np.zeros(d - 75)]
    factors = 0.4 * draw.rng.normal(size=(len(k), 6)) @ draw.rng.normal(size=(6, d))
    return frame(draw.around(centres, k) + factors, "protein"), k


@kind()
def ten_rows_fifty_columns(draw: Draw) -> Made:
    k = draw.classes(6, 4)
    return frame(draw.around(np.array([[-2.0], [2.0]]) * np.ones(50), k), "g"), k


@kind()
def pairs(draw: Draw) -> Made:
    k = np.repeat(np.arange(round(30 * draw.size)), 2)
    return frame(draw.rng.uniform(0, 80, (len(k) // 2, 3))[k] + 0.4 * draw.rng.normal(size=(len(k), 3)), "x"), k


@kind()
def collinear(draw: Draw) -> Made:
    k = draw.classes(60, 55, 45)
    celsius, rain, east, west = draw.around(
        [[8.0, 30, 5, 9], [14, 34, 9, 5], [20, 24, 7, 7]], k, np.array([1.3, 2.0, 1.0, 1.0])
    ).T
    parts = {"celsius": celsius, "fahrenheit": 1.8 * celsius + 32, "rain_mm": rain, "rain_inch": rain / 25.4}
    return pd.DataFrame({**parts, "east": east, "west": west, "total": east + west}), k


@kind()
def morphometrics(draw: Draw) -> Made:
    k = draw.classes(70, 70)
    size = draw.rng.normal(0, 0.22, (len(k), 1))
    shape = 0.045 * np.array([[1.0, -1, 0.5, -0.5, 0.0], [-1, 1, -0.5, 0.5, 0.0]])
    logs = np.log([16.0, 13, 33, 37, 14]) + size * np.array([1.0, 0.95, 1.0, 1.02, 1.05]) + draw.around(shape, k, 0.022)
    sex = draw.rng.choice(["F", "M"], len(k))
    logs[:, 1] += 0.06 * (sex == "F")
    return frame(np.exp(logs), ["lobe", "rear", "length", "width", "depth"], 1).assign(sex=sex), k


@kind()
def repeated_rows(draw: Draw) -> Made:
    k = draw.classes(180, 20, 20)
    X = draw.rng.normal(size=(len(k), 3))
    X[k == 1], X[k == 2] = [0.5, -0.25, 1.0], [-1.0, 0.75, 0.125]
    order = draw.rng.permutation(len(k))
    return frame(X[order], "x"), k[order]


@kind()
def clipped(draw: Draw) -> Made:
    k = draw.classes(160, 120, 100)
    X = np.exp(draw.around([[9.0, 10.5, 8], [12.4, 9, 10], [10.5, 12.6, 11]], k, 0.45))
    return frame(np.minimum(X, 262143.0), ["FSC", "SSC", "CD4"], 0), k


@kind()
def absurd_cell(draw: Draw) -> Made:
    k = draw.classes(90, 70)
    rows = frame(
        draw.around([[50.0, 1.0, 300], [62, 3.0, 340]], k, np.array([2.5, 0.5, 9.0])), ["weight", "dose", "pressure"], 2
    )
    rows.loc[int(draw.rng.integers(len(k))), "weight"] = 1e12
    return rows, k


# Counts, bits, codes and prices


@kind()
def sparse_bits(draw: Draw) -> Made:
    k, chance = draw.classes(110, 90, 80), np.full((3, 90), 0.006)
    for j in range(3):
        chance[j, 25 * j : 25 * j + 14] = 0.16 * draw.gap
    return frame((draw.rng.random((len(k), 90)) < chance[k]).astype(int), "item"), k


@kind()
def zero_inflated(draw: Draw) -> Made:
    k = draw.classes(80, 65)
    mean = np.array([[30.0, 4, 12, 2, 9, 20, 6], [6, 22, 12, 16, 2, 18, 1]])
    return frame(draw.rng.poisson(mean[k] ** draw.gap) * (draw.rng.random((len(k), 7)) > 0.35), "species"), k


@kind()
def forty_counts(draw: Draw) -> Made:
    k, level = draw.classes(60, 50, 40), 10 ** draw.rng.uniform(-0.5, 4, 40)
    change = np.where(draw.rng.random((3, 40)) < 0.3, draw.rng.normal(0, 0.8 * draw.gap, (3, 40)), 0.0)
    return frame(draw.rng.poisson(level * np.exp(change)[k] * draw.rng.gamma(8.0, 1 / 8, (len(k), 40))), "word"), k


@kind()
def grades(draw: Draw) -> Made:
    k = draw.classes(200, 110)
    benign = 1 + draw.rng.geometric(0.75, (len(k), 9)) - 1
    other = np.clip(draw.around(np.full((2, 9), 6.5) * [[0.9], [1.1]], np.ones(len(k), int), 2.4).round(), 1, 10)
    return frame(np.where(k[:, None] == 0, np.minimum(benign, 10), other).astype(int), "grade"), k


@kind(categories=[f"q{j}" for j in range(1, 9)])
def survey_codes(draw: Draw) -> Made:
    k, chance = draw.classes(130, 90, 80), draw.rng.dirichlet(np.full(4, 0.7 / draw.gap), size=(3, 8))
    X = np.array([[draw.rng.choice(4, p=p) + 1.0 for p in chance[j]] for j in k])
    X[(draw.rng.random(X.shape) < 0.3) & (X == 1)] = np.nan
    return frame(X, "q"), k


@kind()
def three_prices(draw: Draw) -> Made:
    k = draw.classes(140, 100, 60)
    sold = draw.rng.poisson(np.array([40.0, 22, 8])[k])
    rating = np.clip(draw.rng.normal(np.array([3.2, 3.8, 4.5])[k], 0.4), 1, 5).round(1)
    return pd.DataFrame({"price": np.array([4.99, 9.99, 24.9])[k], "sold": sold, "rating": rating}), k


@kind()
def years(draw: Draw) -> Made:
    k = draw.classes(70, 60, 50)
    built = draw.around([[1905.0], [1962], [2004]], k, np.array([9.0, 6, 5])[k, None])[:, 0].round().astype(int)
    area = draw.rng.normal(np.array([120.0, 70, 95])[k], 14).round()
    renovated = np.where(draw.rng.random(len(k)) < 0.4, np.minimum(built + draw.rng.integers(20, 60, len(k)), 2023), np.nan)
    return pd.DataFrame(
        {"built": built, "renovated": renovated, "area": area, "sold": draw.rng.integers(2015, 2024, len(k))}
    ), k


@kind()
def impossible_zeros(draw: Draw) -> Made:
    k = draw.classes(130, 80)
    centres = [[105.0, 68, 27, 30], [150, 76, 38, 36]]
    X = np.abs(draw.around(centres, k, np.array([14.0, 9, 8, 5])))
    X[:, 1:3][draw.rng.random((len(k), 2)) < [0.06, 0.3]] = 0.0
    return frame(X, ["glucose", "pressure", "skin", "bmi"], 0), k


# Mixed tables


@kind()
def ten_mixed_rows(draw: Draw) -> Made:
    rng = draw.rng
    ages, sex = rng.integers(19, 80, 10), rng.choice(["f", "m"], 10)
    rows = {"age": ages, "sex": sex, "state": rng.choice(["single", "married", "widowed"], 10), "car": rng.random(10) < 0.5}
    return pd.DataFrame({**rows, "income": (900 * ages + rng.normal(0, 4000, 10)).round(-2)}), None


@kind(drop=["order_id", "ordered", "remark", "country", "zip"])
def export(draw: Draw) -> Made:
    k, rng = draw.classes(110, 70), draw.rng
    n = len(k)
    amount = rng.lognormal(np.array([3.2, 3.2 + 2 * draw.gap])[k], 0.5)
    remarks = [f"{rng.choice(['please ring', 'leave at the door', 'call first'])}, no. {i}" for i in range(n)]
    return pd.DataFrame(
        {
            "order_id": 500_200 + np.arange(n),
            "ordered": (pd.Timestamp("2022-03-01") + pd.to_timedelta(rng.integers(0, 700, n), "D")).strftime("%Y-%m-%d"),
            "remark": remarks,
            "zip": rng.choice([4109, 10243, 22765, 50823, 80469, 90402], n),
            "country": "AT",
            "amount": [f"€{value:,.2f}" for value in amount],
            "items": rng.poisson(np.array([2.0, 11])[k]),
            "visits": rng.poisson(np.array([5.0, 14])[k]),
        }
    ), k


@kind()
def birds(draw: Draw) -> Made:
    k, rng = draw.classes(120, 60, 100), draw.rng
    island = np.array(
        [rng.choice(["Biscoe", "Dream", "Torgersen"], p=p) for p in np.array([[0.3, 0.35, 0.35], [0, 1, 0], [1, 0, 0]])[k]]
    )
    male = rng.random(len(k)) < 0.5
    X = draw.around(
        [[38.8, 18.3, 190, 3700], [48.8, 18.4, 196, 3730], [47.5, 15.0, 217, 5080]], k, np.array([2.2, 0.9, 5, 280])
    )
    X += male[:, None] * np.array([3.4, 1.4, 6, 600]) / 2
    X[rng.random(X.shape) < 0.02] = np.nan
    sex = np.where(rng.random(len(k)) < 0.06, None, np.where(male, "male", "female"))
    return frame(X, ["bill", "depth", "flipper", "mass"], 1).assign(island=island, sex=sex), k


@kind()
def empty_rows(draw: Draw) -> Made:
    k = draw.classes(70, 50, 40)
    X = draw.around([[0.0, 0, 0, 0], [5, 4, 0, 2], [0, 5, 5, -2]], k)
    X[draw.rng.random(X.shape) < 0.15] = np.nan
    order = draw.rng.permutation(len(k))
    X[order[:4]] = np.nan
    X[order[4:16], 1:] = np.nan
    return frame(X, "s"), k


@kind(drop=["class"])
def class_column(draw: Draw) -> Made:
    """The classes are a column of the table, as in many files for teaching."""
    k = draw.classes(50, 45, 55)
    X = draw.around([[5.0, 3.4, 1.5], [6, 2.8, 4.3], [6.6, 3, 5.6]], k, np.array([0.4, 0.3, 0.4]))
    return frame(X, ["a", "b", "c"], 1).assign(**{"class": np.array(["red", "green", "blue"])[k]}), k


@kind()
def categoricals(draw: Draw) -> Made:
    k, rng = draw.classes(90, 70, 60), draw.rng
    grade = np.clip(rng.normal(np.array([0.4, 1.6, 2.7])[k], 0.6).round(), 0, 3).astype(int)
    chance = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.15, 0.15, 0.7]])
    branch = np.array([rng.choice([10, 20, 30], p=p) for p in chance[k]])
    scale = ["low", "medium", "high", "top"]
    return pd.DataFrame(
        {
            "branch": pd.Categorical(branch),
            "grade": pd.Categorical.from_codes(grade, categories=scale, ordered=True),
            "score": draw.around([[40.0], [52], [64]], k, 5.0)[:, 0].round(1),
        }
    ), k

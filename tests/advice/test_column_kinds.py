"""What columns hold, and the family that follows."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier.advice.column_kinds import component_for, infer_column_kinds
from bnp_hier.components import FAMILIES

RNG = np.random.default_rng(0)
COLUMNS: dict[str, tuple[np.ndarray, str]] = {
    "bits": (RNG.integers(0, 2, 60), "binary"),
    "all ones": (np.ones(60), "binary"),
    "visits": (RNG.poisson(3.0, 60), "count"),
    "rare": (RNG.poisson(0.3, 60) + np.eye(60)[0] * 4, "count"),
    "height": (RNG.normal(size=60), "continuous"),
    "age": (RNG.integers(18, 90, 60), "continuous"),
    "grade": (RNG.integers(3, 6, 60), "continuous"),
    "balance": (RNG.integers(-5, 6, 60), "continuous"),
    "id": (np.arange(60) + 100, "identifier"),
    "same": (np.full(60, 7.0), "constant"),
    "nothing": (np.full(60, np.nan), "empty"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_kinds(name: str) -> None:
    values, kind = COLUMNS[name]
    (found,) = infer_column_kinds(np.asarray(values, float)[:, None], [name])
    assert (found.name, found.kind) == (name, kind), found.reason
    holes = np.asarray(values, float).copy()
    holes[5:20] = np.nan
    (again,) = infer_column_kinds(holes[:, None], [name])
    assert again.missing == pytest.approx(1.0 if name == "nothing" else 0.25)
    assert again.kind == ("continuous" if name == "id" and again.kind != "identifier" else kind)


@pytest.mark.parametrize(
    ("columns", "family"),
    [
        (["bits", "all ones"], "bernoulli"),
        (["visits", "rare"], "poisson"),
        (["visits", "rare", "bits"], "poisson"),
        (["height", "age"], "normal"),
        (["height", "bits"], "mixed"),
        (["visits", "height", "bits"], "mixed"),
        (["height", "id"], "normal"),
    ],
)
def test_families(columns: list[str], family: str) -> None:
    table = pd.DataFrame({name: COLUMNS[name][0] for name in columns})
    found = component_for(table)
    assert found.name == family and type(found.component) is FAMILIES[family]
    found.component.validate(table.to_numpy(float))


def test_families_by_size_and_missing_cells() -> None:
    X = RNG.normal(size=(50, 4))
    assert component_for(X).name == "normal"
    assert component_for(X[:7]).name == "diagonal"
    assert component_for(RNG.normal(size=(200, 21))).name == "diagonal"
    X[3, 1] = np.nan
    assert component_for(X).name == "diagonal"
    words = RNG.poisson(0.1, (80, 60)).astype(float)
    assert component_for(words).name == "multinomial"
    rng = np.random.default_rng(2)
    bursts = rng.poisson(rng.gamma(0.02, 3.0, (400, 80))).astype(
        float
    )  # a rare word has few different counts, some of them large
    bursts[:2] += 1
    assert sum(len(np.unique(word)) <= 5 for word in bursts.T) >= 10
    assert component_for(bursts).name == "multinomial"


def test_mixed_columns_go_to_their_families() -> None:
    table = pd.DataFrame({name: COLUMNS[name][0] for name in ("bits", "height", "visits", "age")})
    component = component_for(table).component
    assert isinstance(component, bnp.ProductComponent)
    parts = {type(part).__name__: columns for part, columns in zip(component.parts, component.columns, strict=True)}
    assert parts == {"BetaBernoulli": (0,), "GammaPoisson": (2,), "NormalInverseGamma": (1, 3)}


@pytest.mark.parametrize(
    ("name", "values", "kind", "alternative", "words"),
    [
        ("income", np.exp(RNG.normal(0, 2, 200)), "continuous", "log", "long right tail"),
        ("spent", np.append(np.exp(RNG.normal(0, 2, 200)), 0.0), "continuous", "log1p", "long right tail"),
        ("sales", np.round(np.exp(RNG.normal(4, 1.5, 200))) + 1, "continuous", "log", "large enough for a normal"),
        ("rare events", RNG.poisson(90.0, 200), "continuous", "count", "large enough for a normal"),
        ("error", RNG.standard_t(2.0, 500), "continuous", "", "heavy tails"),
        ("share_pct", 100 * RNG.beta(1, 9, 200), "continuous", "logit", "percentages .* near 0"),
        ("proportion", RNG.beta(50, 50, 200), "continuous", "", "proportions"),
        ("agreement", RNG.binomial(4, 0.6, 200) + 1, "continuous", "ordered", "perhaps grades"),
        ("stars", RNG.integers(1, 6, 200), "continuous", "ordered", "none of them 0"),
        ("mood", RNG.integers(-2, 3, 200), "continuous", "ordered", "some of them negative"),
        ("zip", RNG.choice([1067, 4103, 10115, 20095, 50667, 60311, 80331], 200), "continuous", "category", "7 different"),
        ("price", RNG.choice([9.99, 19.99, 49.5], 200), "continuous", "category", "3 different numbers in 200 rows"),
        ("dose", RNG.choice([0.0, 0.5, 1.0, 1.5], 200), "continuous", "", "0 to 1.5"),
        ("day", 20240000 + 100 * RNG.integers(1, 13, 90) + RNG.integers(1, 28, 90), "date", "drop", "dates from 2024"),
        ("customerId", RNG.permutation(5000)[:90], "identifier", "drop", "different whole numbers"),
    ],
)
def test_alternatives(name: str, values: np.ndarray, kind: str, alternative: str, words: str) -> None:
    (found,) = infer_column_kinds(np.asarray(values, float)[:, None], [name])
    assert (found.kind, found.alternative) == (kind, alternative), found
    assert re.search(words, found.reason), found.reason


def test_infinite_values_are_left_to_the_families() -> None:
    (found,) = infer_column_kinds(np.array([[1.0], [np.inf], [-np.inf], [np.nan]]), ["a"])
    assert (found.kind, found.reason, found.missing) == ("continuous", "infinite values", 0.25)


def test_kinds_that_are_given_overrule_the_values() -> None:
    X = np.column_stack([RNG.poisson(90.0, 40), RNG.poisson(2.0, 40), RNG.integers(0, 2, 40)]).astype(float)
    names = ["large", "small", "flag"]
    given = {"large": "count", "small": "continuous", "flag": "continuous"}
    found = infer_column_kinds(X, names, kinds=given)
    assert [kind.kind for kind in found] == ["count", "continuous", "continuous"]
    assert {kind.reason for kind in found} == {"as requested"}
    component = component_for(X, feature_names=names, kinds=given).component
    assert isinstance(component, bnp.ProductComponent)
    parts = {type(part).__name__: columns for part, columns in zip(component.parts, component.columns, strict=True)}
    assert parts == {"GammaPoisson": (0,), "NormalInverseGamma": (1, 2)}
    with pytest.raises(ValueError, match="there is no column 'larg' to take as 'count'; did you mean 'large'"):
        infer_column_kinds(X, names, kinds={"larg": "count"})
    with pytest.raises(ValueError, match="column 'flag': found the kind 'category', expected continuous, count or binary"):
        infer_column_kinds(X, names, kinds={"flag": "category"})
    with pytest.raises(ValueError, match="column 'large', row 0: found .*, expected 0 or 1, as the column is taken as binary"):
        infer_column_kinds(X, names, kinds={"large": "binary"})


@pytest.mark.slow
def test_recommendations_say_what_columns_are_taken_for() -> None:
    table = pd.DataFrame({"income": np.exp(np.random.default_rng(3).normal(0, 2, 60)), "age": RNG.integers(18, 90, 60)})
    advice = bnp.recommend(table, kinds={"age": "count"})
    assert [kind.kind for kind in advice.columns] == ["continuous", "count"] and advice.family == "mixed"
    text = str(advice)
    assert (
        re.search(r"income: continuous, .*long right tail.* \[--kinds income=log\]", text)
        and "age: count, as requested" in text
    )
    wide = bnp.recommend(np.random.default_rng(0).normal(size=(30, 25)))
    assert "and 25 further columns" in str(wide)


KNOWN = {
    "iris": "normal",
    "wine": "normal",
    "breast_cancer": "diagonal",
    "animals33": "bernoulli",
    "animals50_ratings": "diagonal",
    "glass": "normal",
    "pendigits_sample": "normal",
    "newsgroups_words": "poisson",
}
LARGER = {"newsgroups20_hier": "multinomial", "flipkart_products_1050": "multinomial"}


@pytest.mark.parametrize("sets", [KNOWN, pytest.param(LARGER, marks=pytest.mark.data)], ids=["package", "folder"])
def test_known_data_sets(sets: dict[str, str]) -> None:
    for name, family in sets.items():
        assert component_for(bnp.datasets.load(name).X).name == family, name


def test_bad_input() -> None:
    X = np.column_stack([COLUMNS["height"][0], COLUMNS["same"][0]])
    with pytest.raises(ValueError, match="'b c': 7 in every row; leave them out .drop=\\['b c'\\], or --drop 'b c'"):
        component_for(X, feature_names=["a", "b c"])
    with pytest.raises(ValueError, match="family must be one of auto, .*normal.* but it is 'gauss'"):
        component_for(X, "gauss")
    with pytest.raises(ValueError, match="'x1': all values are missing; leave them out .*--drop x1"):
        component_for(np.column_stack([X[:, 0], np.full(60, np.nan)]))
    with pytest.raises(ValueError, match="X has 2 columns, but there are 1 feature_names"):
        infer_column_kinds(X, ["a"])


def test_categories_are_parts_of_their_own() -> None:
    color = np.eye(3)[RNG.integers(0, 3, 60)]
    color[:6] = 0.0
    which = np.where(color.any(axis=1), color.argmax(axis=1), 3)
    X = np.column_stack([RNG.normal(size=60), color, RNG.integers(0, 2, 60)])
    names = ["height", "colour=blue", "colour=green", "colour=red", "smokes"]
    kinds = infer_column_kinds(X, names, categories=[(1, 2, 3)])
    assert [kind.kind for kind in kinds] == ["continuous", "category", "category", "category", "binary"]
    assert kinds[2].missing == pytest.approx(0.1) and kinds[2].reason == "one of 3 categories"
    chosen = component_for(X, feature_names=names, categories=[(1, 2, 3)])
    assert chosen.name == "mixed" and isinstance(chosen.component, bnp.ProductComponent)
    found = {tuple(columns): type(part) for part, columns in zip(chosen.component.parts, chosen.component.columns, strict=True)}
    assert found == {(0,): bnp.NormalInverseGamma, (1, 2, 3): bnp.DirichletMultinomial, (4,): bnp.BetaBernoulli}
    # a row without its category counts for nothing there: the density is that of the other columns
    without = bnp.ProductComponent(
        [p for p in chosen.component.parts if not isinstance(p, bnp.DirichletMultinomial)], [[1], [0]]
    )
    unknown = chosen.component.log_marginal(chosen.component.suff_stats(X[:1]))
    np.testing.assert_allclose(unknown, without.log_marginal(without.suff_stats(X[:1, [0, 4]])), rtol=1e-6)
    assert "mixed" == component_for(color[6:], categories=[(0, 1, 2)]).name
    with pytest.raises(ValueError, match="columns height, colour=blue are not indicators of a category"):
        component_for(X, feature_names=names, categories=[(0, 1)])
    data = bnp.datasets.from_frame(pd.DataFrame({"height": X[:, 0], "colour": np.array(["blue", "green", "red", None])[which]}))
    advice = bnp.recommend(data)
    assert advice.family == "mixed" and advice.columns[1].kind == "category"


def test_the_first_family_of_the_registry_models_a_kind_of_column(monkeypatch: pytest.MonkeyPatch) -> None:
    class LateCounts(bnp.GammaPoisson):
        pass

    rng = np.random.default_rng(0)
    X = np.column_stack([rng.poisson(3.0, 60), rng.normal(size=60), rng.integers(0, 2, 60)])
    before = component_for(X, "mixed").component
    monkeypatch.setitem(FAMILIES, "late", LateCounts)
    after = component_for(X, "mixed").component
    assert [type(part) for part in after.parts] == [type(part) for part in before.parts]
    assert bnp.GammaPoisson in map(type, after.parts)


def test_the_message_about_an_infinite_value_names_the_column() -> None:
    X = np.arange(12.0).reshape(6, 2) ** 1.5
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"infinite value at row 3, column 1 \('speed'\); expected finite numbers: mark it as"):
        component_for(X, feature_names=["length", "speed"])


def test_a_constant_column_that_is_taken_as_continuous_is_named() -> None:
    X = np.column_stack([np.arange(6) ** 1.5, np.ones(6)])
    with pytest.raises(ValueError, match=r"'flat': 1 in every row; leave them out \(drop=\['flat'\], or --drop flat\)"):
        component_for(X, feature_names=["length", "flat"], kinds={"flat": "continuous"})


def test_grey_levels_are_a_scale_rather_than_counts() -> None:
    rng = np.random.default_rng(3)
    levels = np.clip(np.round(rng.normal(rng.uniform(0, 16, 12), 6.0, (200, 12))), 0, 16)
    kinds = infer_column_kinds(levels)
    assert {(kind.kind, kind.alternative) for kind in kinds} == {("continuous", "count")}
    assert "scale up to 16" in kinds[0].reason
    visits = rng.poisson(rng.uniform(1, 5, 12), (200, 12))
    assert {kind.kind for kind in infer_column_kinds(visits)} == {"count"}
    small = np.clip(rng.poisson(0.8, (30, 12)), 0, 2) * np.r_[1, np.ones(11, int)]
    assert not any("scale up to" in kind.reason for kind in infer_column_kinds(small))

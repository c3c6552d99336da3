"""What columns are, from their names and values."""

from __future__ import annotations

import numpy as np
import pytest

from bnp_hier.datasets.recognition import (
    DATE,
    identifier,
    known_classes,
    ordered_scale,
    share_scale,
    useless_numbers,
    written_date,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "cells", "words"),
    [
        ("x", np.arange(20) + 7.0, "7, 8, ..., 26: increases by one"),
        ("x", RNG.permutation(20) + 1.0, "every whole number from 1 to 20 once"),
        ("customerId", RNG.permutation(1000)[:20] * 7.0, "named 'customerId'"),
        ("patient_id", RNG.permutation(1000)[:20] * 7.0, "named 'patient_id'"),
        ("ZIP", np.array([10115.0, 20095.0, 80331.0]), "named 'ZIP'"),
        ("population", RNG.permutation(1000)[:20] * 7.0, ""),
        ("width", np.arange(20) + 0.5, ""),
        ("idea", RNG.permutation(1000)[:20] * 7.0, ""),
        ("id", np.array([1.0, 1.0, 2.0, 3.0]), ""),
        ("x", np.array([1.0, 2.0, 3.0]), ""),
    ],
)
def test_identifiers(name: str, cells: np.ndarray, words: str) -> None:
    found = identifier(name, cells)
    assert words in found if words else not found


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-31",
        "2024-01-31T12:00:00",
        "31.1.2024",
        "1/31/24",
        "31-01-2024",
        "2024/01/31",
        "12:30",
        "31 Jan 2024",
        "January 31, 2024",
        "Jan 2024",
        "12 Jan",
        "1. sept.",
        "12-december",
    ],
)
def test_notations_of_dates(text: str) -> None:
    assert DATE.match(text)


@pytest.mark.parametrize("text", ["3.5", "12-34", "march", "1 small", "2024", "1.2.3", "may 5 b", "5 marks", "3 decades"])
def test_other_texts_are_not_dates(text: str) -> None:
    assert not DATE.match(text)


def test_dates_as_whole_numbers() -> None:
    assert written_date("day", np.array([20240131.0, 20231105.0])) == "dates from 20231105 to 20240131"
    assert not written_date("day", np.array([20240131.0, 20241305.0]))
    assert not written_date("day", np.array([1.0, 2.0]))
    years = np.arange(2001.0, 2020.0)
    assert written_date("model_year", years[:5].repeat(9)) == "years from 2001 to 2005"
    assert not written_date("price", years[:5].repeat(9)) and not written_date("year", years)  # too many to be dates


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [("class", 3, True), ("Target", 2, True), ("true_label", 4, True), ("classroom", 3, False), ("class", 60, False)],
)
def test_known_classes_are_recognised_by_name_and_number(name: str, values: int, found: bool) -> None:
    assert bool(known_classes(name, values, 150)) == found


def test_codes_with_many_values_are_identifiers() -> None:
    codes = RNG.choice(np.arange(1000.0, 1100.0), 150)
    assert (
        "named 'zip'" in identifier("zip", codes) and not identifier("zip", codes % 7 + 10) and not identifier("price", codes)
    )
    nearly = np.append(RNG.permutation(9000)[:99], 7.0).astype(float)
    nearly[-1] = nearly[0]
    assert "named 'ID'" in identifier("ID", nearly)


@pytest.mark.parametrize(
    ("name", "cells", "bound"),
    [
        ("share_pct", [0.5, 99.0], 100.0),
        ("% urban", [10.0, 100.0], 100.0),
        ("proportion of men", [0.2, 0.9], 1.0),
        ("share", [0.2, 130.0], None),
        ("height", [0.2, 0.9], None),
        ("percent change", [-4.0, 5.0], None),
    ],
)
def test_percentages_and_proportions(name: str, cells: list[float], bound: float | None) -> None:
    assert share_scale(name, np.array(cells)) == bound


@pytest.mark.parametrize(
    "scale",
    [
        ("small", "medium", "large"),
        ("Strongly disagree", "Disagree", "Neutral", "Agree", "Strongly agree"),
        ("never", "rarely", "sometimes", "often", "always"),
        ("XS", "S", "M", "L", "XL"),
        ("1 - poor", "2 - fair", "3 - good"),
        ("Mon", "Tue", "Sat"),
    ],
)
def test_ordered_scales(scale: tuple[str, ...]) -> None:
    assert ordered_scale(sorted(scale)) == scale


@pytest.mark.parametrize("levels", [("red", "green", "blue"), ("low", "high"), ("1a", "3b", "7c"), ("small", "Small", "large")])
def test_other_levels_have_no_order(levels: tuple[str, ...]) -> None:
    assert ordered_scale(levels) == ()


def test_useless_numbers() -> None:
    assert useless_numbers("a", np.full(3, np.nan)) == "all values are missing"
    assert useless_numbers("a", np.array([5.0, np.nan, 5.0])) == "5 in every row"
    assert useless_numbers("a", np.arange(10.0)).startswith("an identifier (0, 1, ..., 9")
    assert useless_numbers("a", np.ones(3)) == ""  # a Bernoulli column may have no zeros
    assert useless_numbers("a", np.array([1.0, 2.5])) == ""

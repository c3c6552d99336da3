"""Numbers with units and separators in cells of text."""

from __future__ import annotations

import numpy as np
import pytest

from bnp_hier.datasets.written_numbers import Written, read_numbers


def _read(*texts: str) -> Written:
    return read_numbers(list(texts), np.array([not text for text in texts]))


@pytest.mark.parametrize(
    ("texts", "values", "unit"),
    [
        (["1", "-2.5", "", "TRUE", "false", "1e3"], [1, -2.5, np.nan, 1, 0, 1000], ""),
        (["10.6 kg", "11kg", "", "-3 kg"], [10.6, 11, np.nan, -3], "kg"),
        ([".5 km/h", "1. km/h", "1e3 km/h"], [0.5, 1, 1000], "km/h"),
        (["5 m2", "6.5 m2"], [5, 6.5], "m2"),
        (["3 fl oz", "4 fl oz"], [3, 4], "fl oz"),
        (["21.5 °C", "\u22123 °C"], [21.5, -3], "°C"),
        (["50%", "20 %", ""], [50, 20, np.nan], "%"),
        (["$1,234.50", "-$3", "$-4"], [1234.5, -3, -4], "$"),
        (["1,234,567.8", "987", "1,000", "12.25", "-45,000"], [1234567.8, 987, 1000, 12.25, -45000], ""),
        (["1,234 kg", "987 kg"], [1234, 987], "kg"),
        (["1 234", "12 345 678"], [1234, 12345678], ""),
        (["1'234.5", "1"], [1234.5, 1], ""),
        (["1\u202f234 €", "5 €"], [1234, 5], "€"),
        (["12 345", "23 456", "1 234 567"], [12345, 23456, 1234567], ""),
        (["12 345", "23 456", "34 567.5"], [12345, 23456, 34567.5], ""),
        (["12 345", "23 456", "-34 567"], [12345, 23456, -34567], ""),
        (["12 345 €", "23 456 €", "34 567 €"], [12345, 23456, 34567], "€"),
        (["+12 345", "-23 456", "34 567"], [12345, -23456, 34567], ""),
        (["+12 345 m", "+3 m"], [12345, 3], "m"),
        (["12 345", "12 345", "34 567"], [12345, 12345, 34567], ""),
        (["12\u00a0345", "23\u00a0456", "34\u00a0567"], [12345, 23456, 34567], ""),
    ],
)
def test_numbers_that_are_written_alike(texts: list[str], values: list[float], unit: str) -> None:
    found = _read(*texts)
    np.testing.assert_array_equal(found.values, values)
    assert not found.is_text.any() and found.obstacle is None and found.unit == unit
    if any("," in text for text in texts):
        assert found.grouped == next(text for text in texts if "," in text)


@pytest.mark.parametrize(
    ("texts", "row", "reason", "is_certain"),
    [
        (
            ["10 kg", "11 kg", "900 g", "12 kg"],
            2,
            "numbers with different units: 3 in 'kg' (such as '10 kg'), 1 in 'g' (such as '900 g')",
            False,
        ),
        (
            ["10 kg", "11 kg", "12", "13 kg"],
            2,
            "numbers with different units: 3 in 'kg' (such as '10 kg'), 1 without a unit",
            False,
        ),
        (["5 Kg", "6 kg", "7 kg", "8 kg"], 0, "numbers with different units", False),
        (["10 kg", "11 kg", "12 kg", "heavy"], 3, "the text 'heavy' among numbers such as '10 kg'", False),
        (["1,5", "2,75"], 0, "'1,5', which seems to have a decimal comma", True),
        (["1,234", "3,5"], 1, "'3,5', which seems to have a decimal comma, although '1,234' seems to have a thousands", True),
        (["1.234,5", "1.234,6"], 0, "'1.234,5', which seems to have a decimal comma", True),
        (["0,123", "1,234"], 0, "'0,123', which seems to have a decimal comma", True),
        (["10 000,5", "3"], 0, "'10 000,5', which seems to have a decimal comma", True),
        (["1,234", "5678"], 1, "'5678', whose thousands separators differ from those of '1,234'", True),
        (["1,234", "5 678"], 1, "'5 678', whose thousands separators differ from those of '1,234'", True),
        (["1,234,567", "12,34,567"], 1, "'12,34,567', whose thousands separators differ", True),
        (["1,5 kg", "2,5 kg"], 0, "'1,5 kg', which seems to have a decimal comma", True),
        (["612 345 678", "", "611 100 200", "644 999 123"], 0, "groups of digits such as '612 345 678', which may be", False),
        (["75 001", "13 002", "69 003"], 0, "groups of digits such as '75 001', which may be identifiers", False),
        (["1 234", "+49 123 456 789"], 1, "groups of digits such as '+49 123 456 789', which may be identifiers", False),
    ],
)
def test_what_cannot_be_read_is_explained(texts: list[str], row: int, reason: str, is_certain: bool) -> None:
    found = _read(*texts)
    assert found.is_text.any() and found.obstacle is not None
    assert found.obstacle.row == row and reason in found.obstacle.reason and found.obstacle.is_certain == is_certain
    assert found.obstacle.advice and found.unit == "" == found.grouped


@pytest.mark.parametrize(
    "texts",
    [
        ["1st", "2nd", "3rd", "4th", "5th", "1st"],  # as many endings as half of the cells
        ["12 Main Street", "13 Oak Street", "12 Mill Lane"],
        ["10.0.0.1", "10.0.0.2"],
        ["1.2.3", "1.2.4"],
        ["12 34", "56 78"],
        ["5'11\"", "6'1\""],
        ["1-2", "3-4"],
        ["18+", "20+"],
        ["2 h 30 min", "1 h 30 min"],
        ["7f3a", "9b2c", "a1"],
        ["low", "high"],
        ["red", "10 kg"],
        ["1", "x", "2"],
        ["+-5", "3 kg"],
    ],
)
def test_other_texts_remain_texts(texts: list[str]) -> None:
    found = _read(*texts)
    assert found.is_text.any() and found.obstacle is None


def test_only_plain_numbers_where_asked() -> None:
    found = read_numbers(["5 May", "1"], np.zeros(2, dtype=bool), plain=True)
    np.testing.assert_array_equal(found.is_text, [True, False])
    np.testing.assert_array_equal(found.values, [np.nan, 1.0])

"""What the tables of `recommend` and `datasets` say about columns."""

from __future__ import annotations

import shlex

import pytest

from bnp_hier.advice.column_kinds import infer_column_kinds
from bnp_hier.commands.options import TableOptions
from bnp_hier.commands.overview import leaving_out, print_columns, taking_otherwise
from bnp_hier.datasets import read_table
from bnp_hier.datasets.conversions import parse_kinds


def test_units_of_numbers_and_of_scales(tmp_path, capsys) -> None:
    """A scale is one column, with the unit of its numbers."""
    path = tmp_path / "stars.csv"
    path.write_text("stars,weight\n1 star,1.5 kg\n4 star,2.7 kg\n2 star,3.1 kg\n4 star,2.2 kg\n1 star,5.5 kg\n")
    part = TableOptions(str(path), kinds=["stars=ordered"]).read_usable()
    assert part.data is not None
    shown = print_columns(part, infer_column_kinds(part.data.X, part.data.feature_names))
    stars, weight = shown
    assert (stars.name, stars.kind, stars.reason) == ("stars", "ordered", "from low to high: 1, 2, 3, 4, in star")
    assert weight.name == "weight" and weight.reason.endswith(", in kg")
    assert "in star" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("grades", "option"),
    [
        (["low", "medium", "high"], "low<medium<high"),
        (["1=low", "2=medium", "3=high"], "ordered"),
        (["1 - low, cheap", "2 - medium", "3 - high"], "ordered"),
        (["1: <18", "2: 18-30", "3: >30"], ""),
    ],
)
def test_the_offered_option_takes_a_scale_as_ordered(tmp_path, grades: list[str], option: str) -> None:
    """Whatever its grades contain; none is offered if they contain the sign between grades."""
    path = tmp_path / "ages.csv"
    path.write_text("age,weight\n" + "".join(f'"{grades[i % 3]}",{i**1.5 - 2}\n' for i in range(12)))
    part = TableOptions(str(path)).read_usable()
    assert part.data is not None
    shown = print_columns(part, infer_column_kinds(part.data.X, part.data.feature_names, part.data.categories))
    assert shown[0].alternative == option
    words = shlex.split(taking_otherwise(part, shown))
    assert words == (["--kinds", f"age={option}"] if option else [])
    if option:
        assert read_table(path, kinds=parse_kinds(words[1:])).kinds == {"age": "<".join(grades)}
    else:
        with pytest.raises(ValueError, match="column 'age': found the grade '1: <18', expected grades without '<'"):
            read_table(path, kinds={"age": "ordered"})


def test_no_other_kind_is_offered_for_a_column_that_had_better_be_left_out(tmp_path) -> None:
    """Both options can be given together."""
    path = tmp_path / "bits.csv"
    path.write_text("a,b\n" + "".join(f"{i % 2},0\n" for i in range(12)))
    part = TableOptions(str(path)).read_usable()
    assert part.data is not None
    shown = print_columns(part, infer_column_kinds(part.data.X, part.data.feature_names))
    assert taking_otherwise(part, shown) == "--kinds a=continuous" and leaving_out(part, shown) == "--drop b"

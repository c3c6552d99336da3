"""What the tables of `recommend` and `datasets` say about columns."""

from __future__ import annotations

from bnp_hier.advice.column_kinds import infer_column_kinds
from bnp_hier.commands.described_columns import print_columns
from bnp_hier.datasets.tabular import read_usable_part


def test_units_of_numbers_and_of_scales(tmp_path, capsys) -> None:
    """A scale is one column, with the unit of its numbers."""
    path = tmp_path / "stars.csv"
    path.write_text("stars,weight\n1 star,1.5 kg\n4 star,2.7 kg\n2 star,3.1 kg\n4 star,2.2 kg\n1 star,5.5 kg\n")
    part = read_usable_part(path, kinds={"stars": "ordered"})
    assert part.data is not None
    shown = print_columns(part, infer_column_kinds(part.data.X, part.data.feature_names))
    stars, weight = shown
    assert (stars.name, stars.kind, stars.reason) == ("stars", "ordered", "from low to high: 1, 2, 3, 4, in star")
    assert weight.name == "weight" and weight.reason.endswith(", in kg")
    assert "in star" in capsys.readouterr().out

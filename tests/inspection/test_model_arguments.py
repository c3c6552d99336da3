"""Arguments of models with several: which have rows, taking rows, new rows, and bad input."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from bnp_hier import ModelArguments
from bnp_hier.inspection.model_arguments import as_arguments, as_table

X, Y, KNOTS = np.arange(12.0).reshape(6, 2), np.arange(6.0), np.arange(4.0)


def test_rows_are_recognised_by_their_length() -> None:
    data = ModelArguments(X, KNOTS, 3.0, y=Y, option="a")
    assert len(data) == 6 and data.row_arguments == (0, "y") and not data.is_table
    half = data.take(slice(1, 3))
    np.testing.assert_array_equal(half.args[0], X[1:3])
    np.testing.assert_array_equal(half.kwargs["y"], Y[1:3])
    np.testing.assert_array_equal(half.args[1], KNOTS)
    assert half.args[2] == 3.0 and half.kwargs["option"] == "a" and len(half) == 2
    np.testing.assert_array_equal(data.take([5, 0]).kwargs["y"], [5.0, 0.0])
    mask = np.arange(6) % 2 == 0
    assert len(data.take(mask)) == 3 and len(data) == 6


def test_rows_may_be_named() -> None:
    square = np.eye(6)  # as long as there are rows, but not of the rows
    data = ModelArguments(X, square, Y, rows=(0, 2))
    assert data.take([0]).args[1].shape == (6, 6)
    assert ModelArguments(KNOTS, Y, rows=(1,)).row_arguments == (1,)


def test_names_and_columns() -> None:
    def model(covariates, response, *, weight=None):
        del covariates, response, weight

    data = ModelArguments(X, Y, weight=Y + 1).named_by(model)
    assert list(data.columns) == ["covariates[0]", "covariates[1]", "response", "weight"]
    np.testing.assert_array_equal(data.columns["covariates[1]"], X[:, 1])
    assert list(as_arguments(X).columns) == ["x0", "x1"] and list(ModelArguments(X, Y).columns)[2] == "argument 1"
    assert repr(data) == "ModelArguments((6, 2), (6,), weight=(6,): 6 rows)"


def test_kinds_of_arrays() -> None:
    data = ModelArguments(jnp.ones(3), pd.Series([1, 2, None], dtype="Int64"), [1, 2, 3], pd.DataFrame({"a": [1.0, 2, 3]}))
    assert [value.dtype.kind for value in data.args] == ["f", "f", "i", "f"] and data.args[0].dtype == np.float64
    assert data.first_missing() == "'argument 1' is missing at row 2"
    assert ModelArguments(np.array([[1.0, np.nan]]), rows=(0,)).first_missing() == "'argument 0' is missing at row 0, column 1"


def test_digests_differ_with_any_argument() -> None:
    found = {ModelArguments(X, *rest).digest() for rest in ((), (Y,), (Y + 1,), (Y, 2.0), (Y, 3.0))}
    assert len(found) == 5 and ModelArguments(X, Y).digest() == ModelArguments(X.copy(), Y.copy()).digest()


def test_new_rows() -> None:
    data = ModelArguments(X, Y, 3.0)
    assert len(data.new_rows(ModelArguments(X[:1], Y[:1], 3.0))) == 1
    with pytest.raises(ValueError, match=r"fitted to 3 arguments \(argument 0, .*\), but the new rows have 1: pass"):
        data.new_rows(X)
    with pytest.raises(ValueError, match=r"the rows of 'argument 0' have shape \(3,\), but those of the fit have shape \(2,\)"):
        data.new_rows(ModelArguments(np.zeros((4, 3)), np.zeros(4), 3.0))
    with pytest.raises(ValueError, match="X has 3 columns, but the model was fitted to 2 columns"):
        as_arguments(X).new_rows(np.zeros((4, 3)))
    np.testing.assert_array_equal(as_table(X), X)
    with pytest.raises(ValueError, match="expected a table, since estimators are fitted to tables"):
        as_table(data)


@pytest.mark.parametrize(
    ("args", "rows", "match"),
    [
        ((3.0,), None, "none of the arguments is an array"),
        ((Y, KNOTS), None, "the arguments have different lengths .*say which have one entry per row by rows="),
        ((X, Y), (2,), "rows contains 2, which is not an array argument; the array arguments are 0, 1"),
        ((X, KNOTS), (0, 1), "must have the same number of rows, but they have 0: 6, 1: 4"),
        ((X, KNOTS), (), "must have the same number of rows, but they have none"),
    ],
)
def test_bad_input(args: tuple, rows: tuple | None, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ModelArguments(*args, rows=rows)

"""Every option of every estimator and kernel: declared, and refused by name where it is not as declared."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.utils._param_validation import generate_invalid_param_val, make_constraint

import bnp_hier as bnp
from bnp_hier.models import dpm

X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
MODEL = partial(dpm, component=bnp.NormalInverseGamma(np.zeros(1), 0.1, 2.0, 1.0))
ESTIMATORS = [
    bnp.BHC(MODEL),
    bnp.MAPDP(MODEL),
    bnp.BayesianKMeans(MODEL),
    bnp.AgglomerativeBayesianClustering(MODEL),
    bnp.VariationalDP(MODEL),
    bnp.DPMeans(n_clusters=2),
]
KERNELS = [bnp.PartitionGibbs, bnp.AuxiliaryGibbs, bnp.ParallelSplitMerge, bnp.BHMCGibbs]
COUNTS = (1.5, 1.0, True, "many", np.nan, np.inf, None, [2], 2j)
"""Values that are no whole numbers."""


def _name(thing: Any) -> str:
    return (thing if inspect.isclass(thing) else type(thing)).__name__


def _options(thing: Any) -> list[str]:
    return [name for name in inspect.signature((thing if inspect.isclass(thing) else type(thing)).__init__).parameters][1:]


def _bad_values(constraints: list[Any]) -> list[Any]:
    """Some of another type, and those that scikit-learn derives from the constraints."""
    made = [make_constraint(constraint) for constraint in constraints]
    candidates: list[Any] = [type("NoOption", (), {})(), "nonsense", 3.7, {}, True, None, np.array(["a"]), *COUNTS]
    for constraint in made:
        try:
            candidates.append(generate_invalid_param_val(constraint))
        except NotImplementedError:
            continue
    return [value for value in candidates if not any(constraint.is_satisfied_by(value) for constraint in made)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=_name)
def test_estimators(estimator: Any) -> None:
    """Before anything is computed; the message names the option, the estimator and the value."""
    constraints = type(estimator)._parameter_constraints
    assert sorted(constraints) == sorted(_options(estimator)) == sorted(estimator.get_params())
    defaults = estimator.get_params()
    for name, allowed in constraints.items():
        bad = _bad_values(allowed)
        assert len(bad) > 4
        for value in bad:
            with pytest.raises(ValueError, match=f"The '{name}' parameter of {_name(estimator)} must be ") as caught:
                estimator.set_params(**{name: value}).fit(X)
            assert str(caught.value).endswith(f"Got {value!r} instead.")
            assert isinstance(caught.value, TypeError)
        estimator.set_params(**defaults)
        assert not hasattr(estimator, "labels_")


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_kernels(kernel: Any) -> None:
    constraints = getattr(kernel, "_parameter_constraints", {"model": [callable]})
    assert sorted(constraints) == sorted(_options(kernel))
    for name, allowed in constraints.items():
        for value in _bad_values(allowed):
            with pytest.raises(ValueError, match=f"The '{name}' parameter of {_name(kernel)} must be "):
                kernel(**{"model": MODEL, name: value})


def test_the_ones_that_were_taken() -> None:
    """Options that passed for true, and numbers that passed for whole ones."""
    with pytest.raises(ValueError, match="'merge' parameter of MAPDP must be .*bool.* Got 'nonsense' instead"):
        bnp.MAPDP(MODEL, merge="nonsense").fit(X)
    with pytest.raises(ValueError, match="'polish' parameter of BayesianKMeans must be .* Got 'no' instead"):
        bnp.BayesianKMeans(MODEL, polish="no").fit(X)
    with pytest.raises(ValueError, match="'polish' parameter of BayesianKMeans"):  # also of chunks
        bnp.BayesianKMeans(MODEL, polish="no").fit(lambda: iter([X]))
    with pytest.raises(ValueError, match="'max_iter' parameter of MAPDP must be a whole number of at least 1. Got 0 instead"):
        bnp.MAPDP(MODEL, max_iter=0).fit(X)
    with pytest.raises(ValueError, match="'penalty' parameter of DPMeans must be a finite number above 0 or None. Got inf"):
        bnp.DPMeans(penalty=np.inf).fit(X)


@pytest.mark.parametrize("estimator", [bnp.MAPDP(MODEL, n_init=1), bnp.VariationalDP(MODEL, n_init=1)], ids=_name)
def test_what_is_declared_is_taken(estimator: Any) -> None:
    """NumPy's numbers and truth values, and keys."""
    estimator.set_params(random_state=jax.random.key(1), max_rounds=np.int64(3), optimize=np.bool_(False))
    assert estimator.fit(X).n_clusters_ == 2

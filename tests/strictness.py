"""What tests are strict about: the package's annotations, and the types and ranks of the arrays that it computes with.

Nothing of this is on where the package is used.
"""

import ast
import os
import sys
from collections.abc import Callable
from typing import Any, Self, TypeVar, get_args

import jax
import jaxtyping
import numpy as np
import pytest
from beartype import BeartypeConf, FrozenDict, beartype
from jax._src import dtypes
from jax._src.numpy import util
from jaxtyping._import_hook import JaxtypingTransformer

_F = TypeVar("_F", bound=Callable[..., Any])

_BETWEEN = tuple(os.path.dirname(module.__file__) + os.sep for module in (jax, jaxtyping))  # frames that are nobody's own
_BATCHED = ("components" + os.sep, "distributions" + os.sep)
_SEATING = os.path.join("distributions", "seating.py")  # what samplers compute with: one partition, one prior
_CONVERTING = ("Dendrogram.__init__",)  # data classes that hold arrays and take lists
_ARRAY_LIKES = (jax.typing.ArrayLike, np.typing.ArrayLike)
_CONFIGURATION = BeartypeConf(
    hint_overrides=FrozenDict(
        {
            Self: Any,  # jaxtyping decorates methods one by one, without their class
            **dict.fromkeys(_ARRAY_LIKES, Any),
            int: int | np.integer,
            float: float | int | np.floating | np.integer,
        }
    )
)


def is_array_like(hint: Any) -> bool:
    """Whether the hint is JAX's or NumPy's `ArrayLike`, or a union with it."""
    parts = _parts(hint)
    return any(kind in parts or all(part in parts for part in _parts(kind)) for kind in _ARRAY_LIKES)


def _parts(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or of an alias of one, as `ArrayLike` is in newer NumPy; else the hint alone."""
    hint = getattr(hint, "__value__", hint)
    return get_args(hint) or (hint,)


def checked(function: _F) -> _F:
    """The function with its annotations enforced, but for array-likes: doors take more (lists, tables) and check it."""
    estimator = function.__module__.startswith("bnp_hier.deterministic") and function.__name__ == "__init__"
    if estimator or function.__qualname__ in _CONVERTING:
        return function  # as scikit-learn's, estimators keep what they are given until they fit
    hints = function.__annotations__
    function.__annotations__ = {name: Any if is_array_like(hint) else hint for name, hint in hints.items()}
    return beartype(conf=_CONFIGURATION)(function)


def leave_inner_functions_out() -> None:
    """Enforce no annotation of a function inside another: it is made anew, and with it its checks, whenever that one runs."""
    decorate = JaxtypingTransformer.visit_FunctionDef

    def visit_FunctionDef(self: JaxtypingTransformer, node: ast.FunctionDef) -> ast.FunctionDef:
        return node if any(isinstance(parent, ast.FunctionDef) for parent in self._parents) else decorate(self, node)

    JaxtypingTransformer.visit_FunctionDef = visit_FunctionDef  # type: ignore[method-assign]


def leave_expected_errors_to_the_package() -> None:
    """Enforce nothing inside ``with pytest.raises(...)``: bad input must be refused by the package's own checks."""
    context: Any = type(pytest.raises(Exception))
    enter, leave = context.__enter__, context.__exit__
    before: list[bool] = []

    def __enter__(self: Any) -> Any:
        before.append(jaxtyping.config.jaxtyping_disable)
        jaxtyping.config.update("jaxtyping_disable", True)
        return enter(self)

    def __exit__(self: Any, *error: Any) -> Any:
        jaxtyping.config.update("jaxtyping_disable", before.pop())
        return leave(self, *error)

    context.__enter__, context.__exit__ = __enter__, __exit__


def _line_of_the_package() -> str | None:
    """File of the first frame outside JAX and the checkers, from the package's folder, if it is the package's."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*_BETWEEN, "<")):
        frame = frame.f_back
    folder = sys.modules["bnp_hier"].__path__[0] + os.sep
    file = frame.f_code.co_filename
    return file.removeprefix(folder) if file.startswith(folder) else None


def _is_batched(file: str) -> bool:
    return file.startswith(_BATCHED) and file != _SEATING


def take_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the package's functions in place as users have them, for tests of the lines that warnings point to."""
    own = [module for name, module in sys.modules.items() if name.split(".")[0] == "bnp_hier"]
    for module in own:
        for name, value in list(vars(module).items()):
            code = getattr(value, "__code__", None)
            if code is not None and code.co_filename.startswith(os.path.dirname(jaxtyping.__file__)):
                monkeypatch.setattr(module, name, value.__wrapped__)


def forbid_promotion() -> None:
    """No implicit promotion of types or ranks in the package's own lines.

    JAX's options are for the whole process, and NumPyro's own code promotes both (`Gamma.log_prob`, `MultivariateNormal`,
    and others), so that a promotion is let through where the line that asks for it is not the package's. Components and
    distributions may promote ranks, and real numbers to wider ones: that batches of statistics or values go with parameters
    of one row, and that parameters are kept as they were given, is their interface.
    """
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    refuse, bound = util._rank_promotion_warning_or_error, dtypes._least_upper_bound

    def refuse_ours(*arguments: Any) -> None:
        file = _line_of_the_package()
        if file is not None and not _is_batched(file):
            refuse(*arguments)

    def bound_if_ours(promotion: Any, *arguments: Any) -> Any:
        try:
            return bound(promotion, *arguments)
        except dtypes.TypePromotionError:
            file = _line_of_the_package()
            types = [kind for kind in arguments if not isinstance(kind, bool)]
            real = all(jax.numpy.issubdtype(kind, jax.numpy.floating) for kind in types)
            if file is not None and not (real and _is_batched(file)):
                raise
            return bound(type(promotion).STANDARD, *arguments)

    util._rank_promotion_warning_or_error, dtypes._least_upper_bound = refuse_ours, bound_if_ours

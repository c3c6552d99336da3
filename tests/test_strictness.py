"""The strictness of the tests themselves: annotations are enforced, and the package's lines promote nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpyro.distributions as dist
import pytest

import bnp_hier as bnp
from bnp_hier.deterministic.base import Prior
from bnp_hier.distributions.seating import draw_index, log_slot_seating
from bnp_hier.posterior.point_estimates import cluster_costs
from bnp_hier.utils.jax_settings import standard_settings


def expect_refusal(call) -> Exception:
    """What the call raises, caught without `pytest.raises`, inside which annotations are not enforced."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "call",
    [
        lambda: draw_index(jnp.ones((2, 3)), jnp.float32(0.5)),  # rank
        lambda: draw_index(jnp.ones(3, int), jnp.float32(0.5)),  # type
        lambda: draw_index([1.0, 2.0], jnp.float32(0.5)),  # no array
        lambda: cluster_costs(2.5, "vi"),
    ],
)
def test_wrong_arguments_are_refused_by_annotations(call) -> None:
    assert isinstance(expect_refusal(call), jaxtyping.TypeCheckError)


def test_expected_errors_are_the_packages_own() -> None:
    with pytest.raises(ValueError, match="size must be a whole number") as caught:
        bnp.ChineseRestaurantProcess(1.0, 2.5)  # type: ignore[arg-type]
    assert not isinstance(caught.value, jaxtyping.TypeCheckError)
    assert not jaxtyping.config.jaxtyping_disable


def test_the_packages_own_lines_promote_nothing() -> None:
    ranks = expect_refusal(lambda: log_slot_seating(jnp.array([2.0, 1.0, 0.0]), Prior(jnp.ones((1, 1)), jnp.zeros((1, 1)))))
    assert "rank_promotion" in str(ranks)
    types = expect_refusal(lambda: log_slot_seating(jnp.array([2.0, 1.0, 0.0]), Prior(jnp.ones((), int), 0.0)))
    assert isinstance(types, jax.dtypes.TypePromotionError)


def test_promotion_is_forbidden_under_the_packages_settings_too() -> None:
    with standard_settings():
        ranks = expect_refusal(lambda: log_slot_seating(jnp.array([2.0, 1.0, 0.0]), Prior(jnp.ones((1, 1)), jnp.zeros((1, 1)))))
    assert "rank_promotion" in str(ranks)


def test_numpyros_lines_may_promote() -> None:
    draw = dist.Normal(jnp.zeros(3), 1.0).log_prob(jnp.ones((2, 3)))
    assert draw.shape == (2, 3)
    assert np.isfinite(dist.Gamma(jnp.array(2), jnp.array(1.5)).log_prob(jnp.array(1.0)))


def test_users_have_neither_checks_nor_changed_configuration() -> None:
    code = (
        "import jax; names = 'jax_numpy_dtype_promotion', 'jax_numpy_rank_promotion', 'jax_enable_x64'\n"
        "before = [str(getattr(jax.config, name)) for name in names]\n"
        "from bnp_hier.distributions.seating import draw_index\n"
        "assert before == [str(getattr(jax.config, name)) for name in names]\n"
        "assert draw_index.__code__.co_filename.endswith('seating.py')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])

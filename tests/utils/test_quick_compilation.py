"""Programs that are compiled quickly compute the same, and where XLA does not know the options, they are compiled as usual."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest
from jax.scipy.special import gammaln

from bnp_hier.utils import quick_compilation
from bnp_hier.utils.quick_compilation import compile_everything_quickly, compiled_quickly


def objective(matrix: jax.Array) -> jax.Array:
    factor = jnp.linalg.cholesky(matrix @ matrix.T + jnp.eye(len(matrix)))
    return gammaln(jnp.abs(factor) + 1.0).sum() + jnp.log(jnp.diagonal(factor)).sum()


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_same_values(small: bool, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:
        monkeypatch.setattr(quick_compilation, "LEAN", {"xla_option_that_does_not_exist": False})
        assert not quick_compilation._known(quick_compilation.LEAN)
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    with jax.enable_x64(True):
        program = jax.jit(jax.value_and_grad(objective))
        found = compiled_quickly(program.lower(matrix), small=small)(matrix)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, program(matrix))


WHOLE_PROCESS = """
import os
from bnp_hier.utils.quick_compilation import compile_everything_quickly
compile_everything_quickly()
import jax
print(float(jax.jit(lambda x: x + 1)(1.0)), os.environ.get("XLA_FLAGS"))
"""


def test_the_flag_is_known_to_this_version() -> None:
    """XLA would end the process otherwise."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", WHOLE_PROCESS], env=environment, capture_output=True, text=True, check=True)
    known = tuple(map(int, jaxlib.__version__.split(".")[:2])) in quick_compilation.WITH_FLAG
    assert done.stdout.split() == ["2.0", "--xla_cpu_use_fusion_emitters=false" if known else "None"]


def test_flags_of_the_user_and_unknown_versions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=1")
    compile_everything_quickly()
    assert os.environ["XLA_FLAGS"] == "--xla_force_host_platform_device_count=1"
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(jaxlib, "__version__", "99.0.1")
    compile_everything_quickly()
    assert "XLA_FLAGS" not in os.environ

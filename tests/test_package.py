"""The package as a whole: its public names, and what importing it does and does not do."""

from __future__ import annotations

import subprocess
import sys

import bnp_hier


def test_public_names_are_there_documented_and_sorted() -> None:
    assert bnp_hier.__all__ == sorted(bnp_hier.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in bnp_hier.__all__:
        assert getattr(bnp_hier, name).__doc__, name


def test_import_is_light_and_changes_no_setting() -> None:
    code = (
        "import sys, jax\n"
        "before = dict(jax.config.values)\n"
        "import bnp_hier, bnp_hier.models\n"
        "assert dict(jax.config.values) == before\n"
        "heavy = {'matplotlib', 'arviz', 'networkx', 'typer', 'sklearn.neighbors', 'sklearn.metrics', 'scipy.cluster'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_works_after_arviz_was_imported_first() -> None:
    code = "import arviz, bnp_hier, numpyro.distributions as dist; assert dist.distribution.Unit"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

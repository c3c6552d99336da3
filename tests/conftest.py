"""Shared fixtures; two forced CPU devices so that parallel chains are really parallel."""

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
os.environ.setdefault("MPLBACKEND", "Agg")

from pathlib import Path  # noqa: E402

import jax  # noqa: E402
import pytest  # noqa: E402

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def local_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Library code finds the papers' data sets in the shared folder, never on the network."""
    monkeypatch.setenv("BNP_HIER_DATA", str(SHARED_DATA))


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield

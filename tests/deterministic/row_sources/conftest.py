"""Few rows at once, so that small tables have many parts."""

import pytest

from bnp_hier.deterministic import bayesian_kmeans, streaming
from bnp_hier.deterministic.row_sources import chunked_rows


@pytest.fixture
def few_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """200, then 400 of the 900 rows are searched on, and chunks have 256 rows."""
    monkeypatch.setattr(bayesian_kmeans, "SKETCH", 200)
    monkeypatch.setattr(streaming, "SKETCH", 200)
    monkeypatch.setattr(streaming, "SAMPLE", 400)
    monkeypatch.setattr(chunked_rows, "ROWS_AT_ONCE", 256)

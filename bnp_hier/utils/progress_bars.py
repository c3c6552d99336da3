"""Progress bars that are drawn only where they can be redrawn."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

__all__ = ["ProgressBar", "can_redraw"]


def can_redraw() -> bool:
    """Whether standard error is a terminal or the output of a notebook, where lines can be redrawn."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


class ProgressBar(tqdm):
    """A progress bar of tqdm that writes nothing where lines cannot be redrawn."""

    def __init__(self, *args: Any, disable: bool = False, **options: Any) -> None:
        super().__init__(*args, disable=disable or not can_redraw(), **options)

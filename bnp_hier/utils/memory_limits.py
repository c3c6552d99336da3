"""Refusal of requests for more memory than the machine has."""

from __future__ import annotations

import os

__all__ = ["check_memory", "physical_memory"]


def physical_memory() -> float:
    """Size of the machine's memory in bytes; infinite where the system does not tell it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def check_memory(what: str, size: float) -> None:
    """Raise an error if something would take more bytes than the machine has.

    Raises
    ------
    ValueError
        If it would; the message says how much it would take and how much there is.
    """
    if size > (most := physical_memory()):
        raise ValueError(f"{what} would take {size / 1e9:,.1f} GB of memory, but this machine has {most / 1e9:,.1f} GB")

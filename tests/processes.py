"""Programs that run in several processes on this machine, each with its part of the rows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

JOIN = """
import jax, sys
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv.pop(1), int(sys.argv.pop(1)), int(sys.argv.pop(1)))
"""


def free_address() -> str:
    """An unused port of the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def flags(devices: int) -> str:
    """Flags of XLA for a process with some devices: otherwise those of these tests, with which it compiles faster."""
    count = "--xla_force_host_platform_device_count="
    others = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(count)]
    return " ".join([*others, f"{count}{devices}"])


def start(code: str, *arguments: str, devices: int = 1) -> subprocess.Popen:
    """Run a program in a process with some devices."""
    environment = os.environ | {
        "XLA_FLAGS": flags(devices),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(ROOT),
    }
    if devices > 1:  # several devices of a process wait for one another in the same threads, of which there must be enough
        environment["NPROC"] = "16"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, text=True, stdout=subprocess.PIPE)


def started_together(code: str, *arguments: str, number: int = 2) -> list[subprocess.Popen]:
    """Start a program in several processes that have joined each other."""
    address = free_address()
    return [start(JOIN + code, address, str(number), str(process), *arguments) for process in range(number)]


def together(code: str, *arguments: str, number: int = 2, timeout: float = 600) -> list[list[str]]:
    """Words of the last lines that the processes print."""
    processes = started_together(code, *arguments, number=number)
    try:
        printed = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * number
    return [text.splitlines()[-1].split() for text in printed]

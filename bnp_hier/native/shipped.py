"""Kernels that come with the package: optimised code of LLVM, from which each machine makes its own machine code.

Compiling a kernel takes seconds, most of them for the inference of types and for optimisation, whose result is the same on all
machines with the same kind of processor and operating system. What is left takes a tenth of a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import threading
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from bnp_hier.native.memory import immortal
from bnp_hier.native.names import OPERATIONS, SWITCH

__all__ = [
    "ABOUT",
    "archive_path",
    "digest_of_sources",
    "is_shipped",
    "prepare_shipped",
    "shipped_address",
    "shipped_names",
    "versions",
]

ABOUT = "about.json"
"""Entry of an archive: for which sources and versions it was made, and the symbols of the kernels."""

WAIT = 35
"""Time (s) to compile the kernels that MAP-DP, BHC and Gibbs sampling of one family use."""

CODEGEN = threading.RLock()
"""Held while machine code is made."""


NOT_COMPILED = ("availability", "check", "cores", "shipped", "shipping", "warming_up", "warning")
"""Modules of this folder without compiled functions."""


@cache
def digest_of_sources() -> str:
    """Digest of the sources: a compiled kernel contains functions of several files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in Path(__file__).parent.rglob("*.py") if path.stem not in NOT_COMPILED):
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:12]


def archive_path() -> Path:
    """Where the kernels for this kind of machine are, or would be."""
    return Path(__file__).parent / "archives" / f"{llvm.get_process_triple()}.zip"


def versions() -> dict[str, str]:
    """What an archive must have been made for to be used: these sources, and Numba, whose run-time functions kernels call."""
    return {"sources": digest_of_sources(), "numba": ".".join(numba.__version__.split(".")[:2])}


@cache
def _symbols() -> dict[str, str]:
    """Name -> symbol of the kernels in the archive; none if it is missing, was made for other versions, or is not wanted."""
    if os.environ.get(SWITCH) == "compile":
        return {}
    try:
        with zipfile.ZipFile(archive_path()) as archive:
            about = json.loads(archive.read(ABOUT))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        _announce(f"none come with the package for {llvm.get_process_triple()}")
        return {}
    if about.get("numba") != versions()["numba"]:
        _announce(f"those that come with the package are for Numba {about.get('numba')}, and this is {versions()['numba']}")
    return about["symbols"] if {name: about.get(name) for name in versions()} == versions() else {}


def _announce(reason: str) -> None:
    """Say in one line that kernels must be compiled, unless some were compiled and kept before."""
    from bnp_hier.native.bridge import cache_folder

    folder = cache_folder()
    if folder is None or not any(folder.rglob("*.nbi")):
        kept = "in every process" if folder is None else "once"
        print(f"bnp_hier: native kernels are compiled {kept}, about {WAIT} s of CPU time in all: {reason}", file=sys.stderr)


def is_shipped(name: str) -> bool:
    """Whether a kernel, or an operation of a family, comes with the package, by module and function."""
    return name in _symbols()


def shipped_names(name: str) -> list[str]:
    """The functions of a kernel, or of a family in the order in which they are loaded, that come with the package."""
    found = [each for each in _symbols() if name in each.split(".")]
    order = [f"{name}.{operation}" for operation in reversed(OPERATIONS)]
    return sorted(found, key=lambda each: order.index(each) if each in order else -1)


@cache
def _processor() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _machine() -> Any:
    """A target as Numba has it; each engine takes one."""
    name, features = _processor()
    triple = llvm.get_process_triple()
    reloc = "static" if triple.startswith("x86") else "default"
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=name, features=features, opt=2, reloc=reloc, codemodel="jitdefault", jit=True
    )


@cache
def _start_numba() -> None:
    """Make the run-time functions of Numba known to LLVM."""
    with global_compiler_lock:
        rtsys.initialize(cpu_target.target_context)


def _file(name: str, folder: Path) -> Path:
    processor = hashlib.sha256(" ".join(_processor()).encode()).hexdigest()[:12]
    return folder / f"{name}-llvm{'.'.join(map(str, llvm.llvm_version_info))}-{processor}.o"


def prepare_shipped(name: str, folder: Path | None) -> bytes:
    """Return the machine code of a kernel for this processor, from a file in the folder, or made and written there."""
    path = None if folder is None else _file(name, folder)
    if path is not None and path.exists():
        return path.read_bytes()
    with CODEGEN:
        if path is not None and path.exists():  # another thread has made it
            return path.read_bytes()
        with zipfile.ZipFile(archive_path()) as archive:
            module = llvm.parse_bitcode(archive.read(f"{name}.bc"))
        code: bytes = _machine().emit_object(module)
        if path is not None:
            descriptor, draft = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(code)
            Path(draft).replace(path)  # as a whole, since other processes may look
    return code


def shipped_address(name: str, folder: Path | None) -> int:
    """Load a kernel that comes with the package, and return the address of its machine code."""
    code = prepare_shipped(name, folder)
    _start_numba()
    engine = immortal(llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine()))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address: int = engine.get_function_address(_symbols()[name])
    return address

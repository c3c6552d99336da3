"""Makes the archive of kernels that come with the package, for this kind of machine: ``python -m bnp_hier.native.shipping``."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

__all__ = ["ship"]

BASELINE = {"x86_64": "x86-64-v3"}
"""Processors for which code is optimised: most of those in use. It runs on all others, too."""

MATHEMATICS = "exp exp2 expm1 log log2 log10 log1p lgamma tgamma erf erfc sqrt pow fmod sin cos tan atan2 fma floor ceil"
KNOWN = re.compile(rf"(numba_|NRT_|Py|bnp_hier_)\w*|llvm\.[\w.]+|mem\w+|{MATHEMATICS.replace(' ', '|')}")
"""Functions that kernels may call, all of which are there whenever Numba is."""


def ship() -> str:
    """Compile all kernels and write the archive; return a sentence about it."""
    import llvmlite.binding as llvm

    from bnp_hier.native.shipped import ABOUT, archive_path, versions

    path, symbols, entries = archive_path(), {}, {}
    for name, library in sorted(_compiled_libraries()):
        module = llvm.parse_assembly(library.get_llvm_str())
        things = [*module.functions, *module.global_variables]
        unknown = [each.name for each in things if each.is_declaration and not KNOWN.fullmatch(each.name)]
        if unknown:
            raise ValueError(f"{name} needs {', '.join(unknown)}, which may be missing on other machines")
        symbols[name] = next(each.name for each in module.functions if each.name.startswith("cfunc."))
        entries[f"{name}.bc"] = module.as_bitcode()
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        about = json.dumps({**versions(), "symbols": symbols}, indent=1, sort_keys=True)
        for entry, content in {ABOUT: about, **entries}.items():
            archive.writestr(zipfile.ZipInfo(entry), content, zipfile.ZIP_LZMA)  # without the time
    return f"{len(symbols)} functions in {path}, {path.stat().st_size / 1e6:.1f} MB"


def _compiled_libraries() -> Iterator[tuple[str, Any]]:
    from bnp_hier.native import bridge
    from bnp_hier.native.warming_up import compile_kernels

    compile_kernels(progress_bar=True)
    for function in bridge._compiled:
        yield bridge.name_of(function._pyfunc), function._library


def _main() -> None:
    """Run in a process in which Numba compiles everything from source, for the baseline."""
    wanted = {
        "BNP_HIER_NATIVE": "compile",
        "NUMBA_CPU_NAME": BASELINE.get(platform.machine(), "generic"),
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_DISABLE_INTEL_SVML": "1",
    }
    if all(os.environ.get(name) == value for name, value in wanted.items()):
        print(ship())
        return
    with tempfile.TemporaryDirectory() as folder:  # what Numba finds on disk is machine code only
        environment = os.environ | wanted | {"NUMBA_CACHE_DIR": folder}
        raise SystemExit(subprocess.run([sys.executable, "-m", __spec__.name], env=environment, check=False).returncode)


if __name__ == "__main__":
    _main()

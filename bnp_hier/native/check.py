"""Check that calls of kernels from XLA programs arrive as they should."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numba
import numpy as np

from bnp_hier.native.bridge import cache_folder, exact
from bnp_hier.native.echo import ECHO

__all__ = ["check_calls", "check_layout"]

MAJOR = 0
"""Version of XLA's binary interface for which `call_frames` is written."""

FIELDS = {
    "Api_Version": "struct_size extension_start major_version minor_version",
    "Api": "struct_size extension_start api_version",
    "CallFrame": "struct_size extension_start api ctx stage args rets",
    "Args": "struct_size extension_start size types args",
    "Rets": "struct_size extension_start size types rets",
    "Buffer": "struct_size extension_start dtype data rank dims",
    "Metadata": "struct_size api_version traits",
    "Metadata_Extension": "extension_base metadata",
}
"""First fields of the structs that `call_frames` reads and writes, in order; later versions may append others."""


def check_calls() -> None:
    """Call a kernel from compiled, vectorised and repeated programs in both precisions; once per machine and version.

    Raises
    ------
    RuntimeError
        If XLA's structs are not those that kernels read, or a result differs from what was passed.
    """
    folder = cache_folder()
    mark = None if folder is None else folder / f"checked-jaxlib-{jaxlib.__version__}-numba-{numba.__version__}"
    if mark is not None and mark.exists():
        return
    check_layout((Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text())
    for double in (True, False):
        # the first kernel may be needed while a program is traced
        with jax.ensure_compile_time_eval(), jax.enable_x64(double):
            _check_echo()
    if mark is not None:
        mark.touch()


def check_layout(header: str) -> None:
    """Compare the C header of XLA's foreign function interface, which jaxlib contains, with what `call_frames` relies on.

    Another layout would mean reads of other memory, which end a process rather than raise an exception.

    Raises
    ------
    RuntimeError
        If the version or the first fields of a struct differ.
    """
    header = re.sub(r"//.*", "", header)
    version = re.search(r"#define XLA_FFI_API_MAJOR (\d+)", header)
    if version is None or int(version[1]) != MAJOR:
        raise RuntimeError(f"expected version {MAJOR} of XLA's foreign function interface, found {version and version[1]}")
    for name, expected in FIELDS.items():
        struct = re.search(rf"struct XLA_FFI_{name} \{{(.*?)\}};", header, re.DOTALL)
        fields = re.findall(r"(\w+)\s*;", struct[1]) if struct else []
        if fields[: len(expected.split())] != expected.split():
            raise RuntimeError(
                f"expected the fields {expected} of XLA_FFI_{name}, found {' '.join(fields) or 'no such struct'}"
            )


def _check_echo() -> None:
    real, whole = jnp.result_type(float), jnp.result_type(int)
    sent = np.array(0.1), np.arange(3.0) / 7, np.arange(6.0).reshape(2, 3) / 7, np.arange(-2, 2)

    def call(number: jax.Array, vector: jax.Array, matrix: jax.Array, integers: jax.Array) -> list[jax.Array]:
        shapes = [jax.ShapeDtypeStruct(np.shape(value), real) for value in sent[:3]]
        return ECHO.ffi_call([*shapes, jax.ShapeDtypeStruct((4,), whole)], number, vector, matrix, integers)

    def repeated(*values: jax.Array) -> list[jax.Array]:
        return jax.lax.fori_loop(0, 2, lambda _, now: call(*now), list(values))

    given = [jnp.asarray(value) for value in sent]
    stacked = [jnp.stack([value, value + 1]) for value in given]
    twice = jax.vmap(jax.vmap(repeated, (0, None, 0, None)), (None, 0, None, 0))(*stacked)
    expected = [
        jnp.broadcast_to(stack[(None, slice(None)) if first else (slice(None), None)], (2, 2, *value.shape))
        for stack, value, first in zip(stacked, given, (True, False, True, False), strict=True)
    ]
    digits = jax.jit(lambda: call(given[0], jnp.asarray(exact(sent[1])), given[2], given[3]))()[1]
    pairs = [*zip(twice, expected, strict=True), (digits, given[1])]
    if not all(np.array_equal(found, wanted) for found, wanted in pairs):
        raise RuntimeError("a kernel that returns its arguments returned something else")

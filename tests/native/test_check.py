"""What kernels rely on in XLA's binary interface is compared with its header; where it differs, XLA programs run instead."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from bnp_hier.native import availability, check

HEADER = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()


def test_the_header_of_this_version_is_the_expected_one() -> None:
    check.check_layout(HEADER)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#define XLA_FFI_API_MAJOR 0", "#define XLA_FFI_API_MAJOR 1"),
        ("  int64_t rank;\n", ""),
        ("void* data;", "int64_t extra; void* data;"),
        ("struct XLA_FFI_Rets {", "struct XLA_FFI_Results {"),
    ],
)
def test_another_layout_is_refused(old: str, new: str) -> None:
    assert old in HEADER
    with pytest.raises(RuntimeError, match="expected (version 0|the fields struct_size)"):
        check.check_layout(HEADER.replace(old, new))


def test_kernels_are_not_called_from_programs_of_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "cache_folder", lambda: None)
    monkeypatch.setattr(check, "MAJOR", 99)
    availability._works.cache_clear()
    try:
        with pytest.warns(
            RuntimeWarning, match="version 99 of XLA's foreign function interface, found 0.*XLA programs run instead"
        ):
            assert not availability.ffi_available()
        assert availability.kernels_run()  # called from Python, they do not need the interface
    finally:
        availability._works.cache_clear()

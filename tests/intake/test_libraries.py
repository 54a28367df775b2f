"""Which files are libraries, and which of those define an operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.program.uninstalled_files import is_library, is_path
from shrinkfx.worker.intake.watching.origins import _named_in

NAMES = b"\0ops\0add(Tensor x) -> Tensor\0"


@pytest.mark.parametrize("name", ["ops.so", "/a/libops.so.2", "libops.so.1.2.3"])
def test_library_is_recognised_by_file_name(name: str) -> None:
    assert is_library(name)
    assert is_path(name)


@pytest.mark.parametrize("name", ["my.so.loader", "ops", "a.b", "ops.so.py.x"])
def test_module_name_is_no_library(name: str) -> None:
    assert not is_library(name)
    assert not is_path(name)


@pytest.mark.parametrize(
    "symbol",
    [
        b"_ZN5torch7Library4_defEON3c106eitherI",
        b"_ZN3c1017RegisterOperators15checkSchemaAndRegisterOp_E",
        b"aoti_torch_library_init_def",
    ],
)
def test_library_with_registration_symbol_defines_named_operators(
    tmp_path: Path, symbol: bytes
) -> None:
    library = tmp_path / "libops.so"
    library.write_bytes(b"\x7fELF" + symbol + NAMES)
    assert _named_in(str(library), ["ops::add", "others::add"]) == ["ops::add"]


def test_library_without_registration_symbol_defines_no_operators(
    tmp_path: Path,
) -> None:
    """A compiler's has ``ops`` and ``add`` among its texts, as many have."""
    library = tmp_path / "libnvrtc.so.13"
    library.write_bytes(b"\x7fELF" + NAMES)
    assert _named_in(str(library), ["ops::add"]) == []

"""Headers are precompiled as ever, and looked for once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch._inductor.config

from shrinkfx.worker.aoti.headers import remembered


class Precompiler:
    """Leaves a header and what was compiled from it, as AOTInductor does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.asked = 0

    def __call__(self, header: str, flags: str, **options: object) -> str:
        self.asked += 1
        path = self._folder / f"{self.asked}.h"
        path.with_name(path.name + ".gch").touch()
        return str(path)


def test_header_is_looked_for_once(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    names = [
        remembered(stock, tmp_path)("cpu.h", "-O1", vec_isa=isa)
        for isa in ("avx2", "avx2", "avx512", "avx2")
    ]
    assert stock.asked == 2
    assert names[0] == names[1] == names[3] != names[2]


def test_header_is_looked_for_again_with_other_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = Precompiler(tmp_path)
    find = remembered(stock, tmp_path)
    assert find("cpu.h", "-g") != find("cpu.h", "-g1") != find("prefix.h", "-g1")
    config = torch._inductor.config.aot_inductor
    monkeypatch.setattr(config, "compile_wrapper_opt_level", "O0")
    find("cpu.h", "-g")
    assert stock.asked == 4


def test_header_is_compiled_again_if_it_is_gone(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    find = remembered(stock, tmp_path)
    first = find("cpu.h", "-g")
    Path(first + ".gch").unlink()
    assert find("cpu.h", "-g") != first
    assert stock.asked == 2

"""Headers are precompiled as ever, and looked for once."""

from __future__ import annotations

import functools
from pathlib import Path

import torch._inductor.config

from shrinkfx.worker.aoti.fast_build import cache_header_names

_PLAIN = {"aot_inductor.compile_wrapper_opt_level": "O0"}


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


def test_header_is_precompiled_once_per_instruction_set(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    names = [
        cache_header_names(stock, tmp_path)("cpu.h", "-O1", vec_isa=isa)
        for isa in ("avx2", "avx2", "avx512", "avx2")
    ]
    assert stock.asked == 2
    assert names[0] == names[1] == names[3] != names[2]


def test_header_is_precompiled_separately_for_other_flags(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    find = cache_header_names(stock, tmp_path)
    assert find("cpu.h", "-g") != find("cpu.h", "-g1") != find("prefix.h", "-g1")
    with torch._inductor.config.patch(_PLAIN):
        find("cpu.h", "-g")
    assert stock.asked == 4


def test_header_matches_the_current_optimization_level(
    tmp_path: Path,
) -> None:
    """AOTInductor reads the level off its options, and forgets that it may change."""
    stock = functools.cache(Precompiler(tmp_path))
    of_server = stock("cpu.h", "-g")
    with torch._inductor.config.patch(_PLAIN):
        own = cache_header_names(stock, tmp_path)("cpu.h", "-g")
    assert own != of_server


def test_missing_header_is_precompiled_again(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    find = cache_header_names(stock, tmp_path)
    first = find("cpu.h", "-g")
    Path(first + ".gch").unlink()
    assert find("cpu.h", "-g") != first
    assert stock.asked == 2

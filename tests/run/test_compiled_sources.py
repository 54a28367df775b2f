"""C++ of preloads: carried as source first, if that does as the library does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.compiling import PLAIN, beside
from test_preloading import judge, says

from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.preload_bundle import Preload, PreloadBundle, PreloadCut
from shrinkfx.protocol.answers import Ending, Registered
from shrinkfx.run.preloading import smallest_first

IMPORTED = {"torch.utils cpp_extension": "builtins.module"}
"""What is other in PyTorch where something was compiled, and no program sees."""


def ways(
    folder: Path, compiled: dict[str, str]
) -> tuple[list[PreloadBundle], list[str]]:
    """List the ways to carry a preload that compiles, and the texts that were run.

    Args:
        compiled: what is other in PyTorch after its source was compiled.
    """
    file, used = beside(folder, PLAIN)
    run: list[str] = []

    def answer(text: str) -> Ending:
        run.append(text)
        said = says(text, "register_fake")
        if "load_library" not in text and "load_inline(" not in text:
            return Ending("exit", code=1)
        if not isinstance(said.answer, Registered):
            return said
        if "load_inline(" in text:
            return replace(said, answer=replace(said.answer, changes=compiled))
        used = replace(said.answer, files=("my_ops.so",), modules=("ops",))
        return replace(said, answer=used)

    def made(cut: PreloadCut) -> PreloadBundle:
        return build_bundle([Preload(str(file), file)], used, cut)

    asked = judge(answer)
    cuts = smallest_first(made, asked)
    return [made(cut) for cut in cuts], run


@pytest.mark.parametrize("compiled", [{}, IMPORTED])
def test_cpp_source_is_preferred_to_the_compiled_library(
    tmp_path: Path, compiled: dict[str, str]
) -> None:
    first, *others = ways(tmp_path, compiled)[0]
    assert first.compiles
    assert "load_inline(" in first.definitions[0].text
    assert "my_ops.so" not in first.files
    assert [each.compiles for each in others] == [False] * len(others)
    assert all("my_ops.so" in each.files for each in others)


def test_cpp_source_with_another_effect_is_not_carried(tmp_path: Path) -> None:
    found, _ = ways(tmp_path, {"torch._inductor.lowering lowerings: aten.relu": "f"})
    assert not any(each.compiles for each in found)
    assert "my_ops.so" in found[0].files


def test_cpp_source_is_compiled_once(tmp_path: Path) -> None:
    """It takes longer to compile than all other questions together."""
    _, run = ways(tmp_path, IMPORTED)
    assert sum("load_inline(" in text for text in run) == 1

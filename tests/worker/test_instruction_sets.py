"""Inductor's question for an instruction set is asked once for all runs of a user."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch._inductor.config
from torch._inductor.cpu_vec_isa import VecAVX2, VecISA

from shrinkfx.worker.aoti.backend import cache_instruction_sets


class Compiler:
    """Takes the place of g++ and of the Python that loads what it has made."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.can = True

    def __call__(self, isa: VecISA, code: str) -> bool:
        self.asked.append(code)
        return self.can


@pytest.fixture(name="compiler")
def _compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    compiler = Compiler()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def check_build(isa: VecISA, code: str) -> bool:
        return compiler(isa, code)

    monkeypatch.setattr(VecISA, "check_build", check_build)
    return compiler


def can_use(code: str) -> bool:
    """Ask as another process would."""
    with cache_instruction_sets():
        return VecAVX2().check_build(code)


def test_usable_instruction_set_is_checked_once(compiler: Compiler) -> None:
    assert [can_use(code) for code in ("exp", "exp", "dot", "exp")] == [True] * 4
    assert compiler.asked == ["exp", "dot"]


def test_failed_check_is_repeated(compiler: Compiler) -> None:
    compiler.can = False
    assert not can_use("exp")
    compiler.can = True
    assert can_use("exp")
    assert compiler.asked == ["exp", "exp"]


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "CPLUS_INCLUDE_PATH"])
def test_check_is_repeated_if_library_paths_change(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    can_use("exp")
    monkeypatch.setenv(variable, "")
    can_use("exp")
    assert compiler.asked == ["exp", "exp"]


def test_check_is_repeated_for_another_compiler(
    compiler: Compiler, tmp_path: Path
) -> None:
    can_use("exp")
    other = tmp_path / "c++"
    other.write_text('#!/bin/sh\nexec g++ "$@"\n')
    other.chmod(0o755)
    with torch._inductor.config.patch({"cpp.cxx": (str(other),)}):
        can_use("exp")
    assert compiler.asked == ["exp", "exp"]


def test_check_is_repeated_if_the_cache_is_unwritable(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = tmp_path / "file"
    full.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(full))
    assert can_use("exp")
    assert can_use("exp")
    assert compiler.asked == ["exp", "exp"]


def test_original_check_is_restored_after_the_context(compiler: Compiler) -> None:
    with cache_instruction_sets():
        VecAVX2().check_build("exp")
    VecAVX2().check_build("exp")
    assert compiler.asked == ["exp", "exp"]

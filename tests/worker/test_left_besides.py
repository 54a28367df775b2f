"""What a check leaves besides its answer, whatever it checks."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.explain.values import find_first_wrong
from shrinkfx.protocol.answers import Checked
from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.testing import chain, whole
from shrinkfx.worker import disk_space
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.checking.check import Check
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a compiled program that triples, and writes code as AOTInductor does."""
    folder = tmp_path / "child"
    folder.mkdir()

    def build_once(*_: Any) -> str:
        (folder / "inductor").mkdir()
        (folder / "inductor/c1.wrapper.cpp").write_text("code")
        return "package"

    monkeypatch.setattr(aoti, "build_once", build_once)
    monkeypatch.setattr(aoti, "load", lambda _: lambda x: x * 3)
    return folder


def checked(folder: Path, **options: Any) -> Checked:
    inputs = Inputs((torch.ones(4),), {})
    run = RebuiltCandidate(torch.export.export(Doubles(), inputs.args), inputs, inputs)
    setup = Setup(str(folder))
    check = Check(setup, run, CheckOptions(**options), lambda _: None, folder)
    answer = check.perform()
    assert isinstance(answer, Checked)
    assert answer.difference
    return answer


def test_generated_code_of_a_checked_program_is_kept(
    folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "left"
    checked(folder, leave=str(home))
    assert (home / ArtifactFile.SOURCES / "c1.wrapper.cpp").read_text() == "code"
    assert (home / ArtifactFile.LOG).exists()


def test_kernel_values_are_unknown_if_the_disk_is_too_small(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "MANY_BYTES", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    left = tmp_path / "values.json"
    checked(folder, values=str(left))
    told = KernelValues.from_line(left.read_text())
    found = find_first_wrong(whole(chain("x", "mul")), told)
    assert not found.culprits
    assert found.unknown == (
        "which kernel is wrong: what each kernel is given and makes takes up to 0.1 GB "
        "of disk; 0.0 GB are free",
    )

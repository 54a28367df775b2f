"""The run on inputs that must pass, before the one that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from shrinkfx.protocol.answers import Checked
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.checking.check import Check
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs

Compiled = Callable[[Tensor], Any]


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Counts(nn.Module):
    """Add how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return x + self.calls


def tried(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    load: Callable[[], Compiled],
    of: nn.Module | None = None,
    recording: Recording | None = None,
) -> tuple[Checked, list[str]]:
    """Check a program that passes at 3 rows, and may fail at 4.

    Returns:
        The answer, and the stages.
    """
    example, passing, failing = (
        Inputs((torch.full((n, 2), float(n)),), {}) for n in (5, 3, 4)
    )
    dims = ({0: Dim("n", min=2, max=9)},)
    exported = export(of or Doubles(), example.args, dynamic_shapes=dims)
    monkeypatch.setattr(aoti, "build_once", lambda *_: "package")
    monkeypatch.setattr(aoti, "load", lambda _: load())
    stages: list[str] = []
    setup = Setup(str(folder))
    run = RebuiltCandidate(exported, example, failing, passing=passing)
    check = Check(setup, run, CheckOptions(), stages.append, folder, recording)
    said = check.answer()
    assert isinstance(said, Checked)
    return said, stages


def wrong_at(*rows: int) -> Compiled:
    return lambda x: x * 2 + (len(x) in rows)


def test_passing_inputs_run_before_failing_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[int] = []

    def compiled(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x * 2

    answer, stages = tried(monkeypatch, tmp_path, lambda: compiled)
    assert answer.difference is None
    assert seen == [3, 4]
    assert stages == ["eager", "compile", "load", "passing", "run", "compare", "done"]


def test_failure_on_failing_inputs_is_found_at_the_run_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer, stages = tried(monkeypatch, tmp_path, lambda: wrong_at(4))
    assert answer.difference is not None
    assert stages[-3:] == ["run", "compare", "done"]


def test_failure_on_passing_inputs_ends_the_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer, stages = tried(monkeypatch, tmp_path, lambda: wrong_at(3, 4))
    assert answer.difference is not None
    assert stages[-1] == "passing"


def test_program_with_buffers_is_reloaded_between_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer, _ = tried(monkeypatch, tmp_path, Counts, Counts())
    assert answer.difference is None


def test_recorded_values_of_both_runs_are_saved_in_the_check_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """C++ saves them below the current folder, which is the user's."""
    here, folder = tmp_path / "here", tmp_path / "check"
    here.mkdir()
    folder.mkdir()
    monkeypatch.chdir(here)
    wrote: list[Path] = []

    def compiled(x: Tensor) -> Tensor:
        Path("tmp").mkdir(exist_ok=True)
        (Path("tmp") / f"aoti_torchbefore_0_{len(x)}.pt").touch()
        wrote.append(Path.cwd())
        return x * 2

    tried(monkeypatch, folder, lambda: compiled, recording=Recording(folder))
    assert list(here.iterdir()) == []
    assert wrote == [folder / "passing", folder]  # what is read is the last one's

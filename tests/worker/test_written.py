"""What a worker does to write a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Answer, Description, Printed
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.requests import (
    CheckOptions,
    Describe,
    Request,
    Setup,
    Task,
    WriteCandidate,
)
from shrinkfx.worker import tasks, worker_state
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.printing import module as printing
from shrinkfx.worker.printing.module import export_source


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.tanh() + 1


@pytest.mark.parametrize(
    ("dynamic", "form", "times"),
    [
        (False, CandidateForm.PROGRAM, 0),
        (False, CandidateForm.SOURCE, 1),
        (True, CandidateForm.PROGRAM, 1),
    ],
)
def test_source_is_reexported_for_writing_only_if_dims_are_dynamic(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dynamic: bool,
    form: CandidateForm,
    times: int,
) -> None:
    shapes = ({0: torch.export.Dim("batch", min=2)},) if dynamic else None
    exported = torch.export.export(Plain(), (torch.randn(3, 4),), dynamic_shapes=shapes)
    torch.export.save(exported, tmp_path / "model.pt2")
    setup = Setup(str(tmp_path), model=str(tmp_path / "model.pt2"))
    worker, exports = tasks.Worker(setup, 1, load(setup)), []

    def noted(built: RebuiltCandidate) -> Any:
        exports.append(built)
        return export_source(built)

    for module in (printing, worker_state):
        monkeypatch.setattr(module, "export_source", noted)

    def ask(task: Task) -> Answer:
        request = Request(task, CheckOptions(form=form))
        return worker.perform(request, lambda stage: None, tmp_path)

    said = ask(Describe())
    assert isinstance(said, Description)
    skeleton = Skeleton.from_json(json.loads(Path(said.skeleton).read_text()))
    paths = str(tmp_path / "one.pt2"), str(tmp_path / "one.pt")
    whole = Candidate.from_skeleton(skeleton).to_json()
    answer = ask(WriteCandidate(whole, *paths))
    assert isinstance(answer, Printed)
    assert (answer.unprintable, len(exports)) == ("", times)
    assert answer.source is not None
    assert answer.source.body
    assert answer.dynamic_dims == int(dynamic)

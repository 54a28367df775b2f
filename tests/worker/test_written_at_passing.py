"""What fails on the inputs on which it must pass is written for these alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from test_listed import Scaled, scaled
from torch.export import Dim

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Answer, Description, Listed, Printed
from shrinkfx.protocol.requests import (
    CheckOptions,
    Describe,
    ListCandidate,
    Request,
    Setup,
    Task,
    WriteCandidate,
)
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.printing.module import is_identical
from shrinkfx.worker.tasks import Worker

ROWS = {"failing": 5, "passing": 4}


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Worker:
    rows = {0: Dim("rows", min=2)}
    exported = torch.export.export(Scaled(), scaled(3, 0), dynamic_shapes=(rows, None))
    torch.export.save(exported, tmp_path / "model.pt2")
    near = {"args": scaled(ROWS["passing"], 2), "kwargs": {}}
    given = {"args": scaled(ROWS["failing"], 1), "kwargs": {}, "passing": near}
    torch.save(given, tmp_path / "inputs.pt")
    model, inputs = (str(tmp_path / name) for name in ("model.pt2", "inputs.pt"))
    setup = Setup(str(tmp_path), model, inputs)
    return Worker(setup, 1, load(setup))


@pytest.mark.parametrize("listed", [False, True])
def test_result_can_be_written_for_the_passing_inputs_alone(
    worker: Worker, tmp_path: Path, *, listed: bool
) -> None:
    program, data = str(tmp_path / "one.pt2"), str(tmp_path / "values.pt")
    options = CheckOptions()

    def ask(task: Task) -> Answer:
        return worker.perform(Request(task, options), lambda stage: None, tmp_path)

    def written(*, at_passing: bool) -> Printed:
        answer = ask(
            WriteCandidate(whole.to_json(), program, data, at_passing=at_passing)
        )
        assert isinstance(answer, Printed)
        return answer

    said = ask(Describe())
    assert isinstance(said, Description)
    skeleton = Skeleton.from_json(json.loads(Path(said.skeleton).read_text()))
    whole = Candidate.from_skeleton(skeleton)
    if listed:
        as_listing = ask(ListCandidate(whole.to_json(), str(tmp_path / "data")))
        assert isinstance(as_listing, Listed)
        whole = whole.with_listing(as_listing.listing)
        options = CheckOptions(data=as_listing.data)
    both, alone = written(at_passing=False), written(at_passing=True)
    assert (both.passes, alone.passes, alone.two_sets) == (True, False, True)
    assert both.source
    assert alone.source
    for given, one in zip(both.source.inputs, alone.source.inputs, strict=True):
        assert (one.failing, one.passing) == (given.passing, None)
    assert alone.source.inputs[0].failing
    assert alone.source.body == both.source.body
    values = torch.load(data, weights_only=True)
    if "failing" in values:
        assert all(map(is_identical, values["failing"], scaled(ROWS["passing"], 2)))
    assert "passing" not in values

"""A run on a GPU that is made up: its allocator, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import DESCRIPTION, FakeServer, context_with

from shrinkfx.check.baseline.with_caching import NO_CACHING
from shrinkfx.errors import NotReproducible
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import MEMORY_FAULT, Kind
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Checked, Ending, Raised, Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import CheckCandidate, CheckOriginal, Request
from shrinkfx.run.observe import reproduce_failure
from shrinkfx.run.result import Result, make_record
from shrinkfx.testing import chain

DIES = Raised("RuntimeError", "CUDA error: an illegal memory access was encountered")
BLOCKING = "CUDA_LAUNCH_BLOCKING"
VERSIONS = {"torch": "2.11.0", "GPU": "NVIDIA H100", "driver": "580.95.05"}


class Gpu(FakeServer):
    """Describes a program that dies with one of the allocators, with both or none."""

    def __init__(self, folder: Path, dies: Callable[[bool], bool]) -> None:
        skeleton = folder / "skeleton.json"
        skeleton.write_text(json.dumps(chain("x", "relu", "tanh").to_json()))
        self._described = replace(DESCRIPTION, skeleton=str(skeleton))
        self._dies = dies
        self.ready = Ready(
            backend=Backend.AOTI,
            for_cuda=True,
            gpu="NVIDIA H100 as cuda:0, with CUDA_VISIBLE_DEVICES=3",
            environment={NO_CACHING: "1", BLOCKING: "1"},
            versions=VERSIONS,
        )
        super().__init__()

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        if not isinstance(request.task, (CheckOriginal, CheckCandidate)):
            return Ending("exit", stage="done", answer=self._described)
        if self._dies(request.options.environment.get(NO_CACHING) == ""):
            return Ending("exit", stage="run", answer=DIES)
        return Ending("exit", stage="done", answer=Checked())


def note_texts(listener: list[Event]) -> list[str]:
    return [event.text for event in listener if isinstance(event, NoteAdded)]


@pytest.fixture(autouse=True)
def _default_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NO_CACHING, raising=False)


@pytest.mark.parametrize("with_it", [True, False])
def test_search_and_repro_use_the_allocator_that_shows_the_failure(
    tmp_path: Path, with_it: bool
) -> None:
    gpu, events = Gpu(tmp_path, lambda cached: cached is with_it), list[Event]()
    options = Options(Path("m.pt2"), environment={"TORCH_SOMETHING": ""})
    subject = reproduce_failure(context_with(gpu, options, tmp_path, events.append))
    assert (subject.target.kind, subject.target.detail) == (Kind.IMA, MEMORY_FAULT)
    asked = {"environment": {NO_CACHING: ""}} if with_it else {}
    assert dict(subject.client.options.environment) == asked.get("environment", {})
    result = Result(subject, subject.whole, "program", None)
    set_there = make_record(result).conditions.environment
    assert set_there[BLOCKING] == "1"
    assert set_there.get(NO_CACHING) == (None if with_it else "1")
    assert "TORCH_SOMETHING" not in set_there
    said = note_texts(events)
    assert said[0] == "running on NVIDIA H100 as cuda:0, with CUDA_VISIBLE_DEVICES=3"
    only = (
        "the program fails only with the caching allocator: the search and "
        "the repro use the allocator ("
    )
    assert any(line.startswith(only) for line in said) is with_it


def test_allocator_chosen_by_the_user_is_the_only_one_tried(tmp_path: Path) -> None:
    gpu = Gpu(tmp_path, lambda cached: cached)
    options = Options(Path("m.pt2"), environment={NO_CACHING: "1"}, baseline_runs=2)
    context = context_with(gpu, options, tmp_path)
    with pytest.raises(NotReproducible):
        reproduce_failure(context)
    environments = [asked.get("environment", {}) for asked in gpu.arguments]
    assert all(NO_CACHING not in each for each in environments)

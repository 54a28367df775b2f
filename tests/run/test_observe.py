"""What the baseline and the search are told of what a user has asked for."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import DESCRIPTION, Arguments, FakeServer, context_with

from shrinkfx.api import require_valid_options
from shrinkfx.errors import NotReproducible, UsageError
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import Kind
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import (
    Checked,
    Description,
    Difference,
    Ending,
    Raised,
    Ready,
)
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Describe, Request
from shrinkfx.run.observe import reproduce_failure
from shrinkfx.testing import chain

DIFFERS = Checked(Difference("values", "wrong"))


class Worker(FakeServer):
    """Describes a program that gives wrong results."""

    ready = Ready(backend=Backend.AOTI)

    def __init__(self, folder: Path, operators: int = 0) -> None:
        skeleton = folder / "skeleton.json"
        skeleton.write_text(json.dumps(chain("x", "relu", "tanh").to_json()))
        described = replace(DESCRIPTION, skeleton=str(skeleton), operators=operators)
        super().__init__(lambda asked: self._ending(asked, described))

    def _ending(self, asked: Arguments, described: Description) -> Ending:
        is_asked = "package" in asked or "candidate" in asked or "sanity" in asked
        return Ending("exit", stage="done", answer=DIFFERS if is_asked else described)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(Path("m.pt2")), {}),
        (Options(Path("m.pt2"), rtol=0.1), {"rtol": 0.1}),
        (
            Options(Path("m.pt2"), atol=0.0, strict=True),
            {"atol": 0.0, "strict": True},
        ),
    ],
)
def test_each_comparison_uses_the_requested_tolerance(
    tmp_path: Path, options: Options, told: dict[str, object]
) -> None:
    worker = Worker(tmp_path)
    subject = reproduce_failure(context_with(worker, options, tmp_path))
    names = ("rtol", "atol", "strict")
    _, *compared = worker.arguments  # the first only describes
    assert len(compared) > 10
    for asked in (*compared, asdict(subject.client.options)):
        said = {name: asked.get(name) for name in names}
        assert {
            k: v for k, v in said.items() if v is not None and v is not False
        } == told


def test_probes_are_refused_without_the_interpreter(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    for options in (
        Options(Path("m.pt2"), probe="real"),
        Options(Path("m.pt2"), all_probes=True),
    ):
        with pytest.raises(UsageError, match="only works for CUDA without a GPU: add"):
            reproduce_failure(context_with(worker, options, tmp_path))
    with pytest.raises(UsageError, match="only one of them"):
        require_valid_options(Options(Path("m.pt2"), probe="real", all_probes=True))


class Passing(Worker):
    """Describes a program that passes."""

    def _reply(self, request: Request) -> Ending:
        if isinstance(request.task, Describe):
            return super()._reply(request)
        return Ending("exit", stage="done", answer=Checked())


LACKING = "Inductor's x is lacking: it is a lambda; --preload a module that sets it"


def seen(worker: Worker, folder: Path, **options: Any) -> NotReproducible:
    asked = Options(Path("m.pt2"), lacking=(LACKING,), **options)
    with pytest.raises(NotReproducible) as raised:
        reproduce_failure(context_with(worker, asked, folder))
    return raised.value


def test_program_that_passes_for_lack_of_a_setting_runs_once(tmp_path: Path) -> None:
    worker = Passing(tmp_path)
    error = seen(worker, tmp_path)
    compiled = [each for each in worker.asked if not isinstance(each.task, Describe)]
    assert len(compiled) == 1
    assert error.exit_code == 3
    assert "the program does not fail; outcome of 1 run:" in str(error)
    assert LACKING in str(error)
    assert "possible differences from the failing run:" not in str(error)


def test_program_that_fails_despite_a_missing_setting_is_reduced(
    tmp_path: Path,
) -> None:
    options = Options(Path("m.pt2"), lacking=(LACKING,))

    class Failing(Worker):
        def _reply(self, request: Request) -> Ending:
            if isinstance(request.task, Describe):
                return super()._reply(request)
            return Ending("exit", stage="done", answer=DIFFERS)

    subject = reproduce_failure(context_with(Failing(tmp_path), options, tmp_path))
    assert subject.target.kind is Kind.MISMATCH


class Raising(Worker):
    """Describes a program that raises when it is loaded, or else now and then."""

    def __init__(self, folder: Path, *stages: str) -> None:
        super().__init__(folder)
        self.stages = itertools.cycle(stages)

    def _reply(self, request: Request) -> Ending:
        if isinstance(request.task, Describe):
            return super()._reply(request)
        raised = Raised("RuntimeError", "undefined symbol: u0")
        return Ending("exit", stage=next(self.stages), answer=raised)


def test_exception_kind_covers_a_load_error(tmp_path: Path) -> None:
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, NoteAdded):
            notes.append(event.text)

    options = Options(Path("m.pt2"), until="exception")
    context = context_with(Raising(tmp_path, "load"), options, tmp_path, listen)
    subject = reproduce_failure(context)
    assert subject.target.kind is Kind.LOAD_ERROR
    assert (
        "every run of the program fails with kind load-error, not exception: reducing "
        "that failure (--strict-kind refuses it)"
    ) in notes


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ({"until": "exception", "strict_kind": True}, ["load"]),
        ({"until": "exception", "match": "another text"}, ["load"]),
        ({"until": "ima"}, ["load"]),
        ({"until": "mismatch"}, ["load"]),
    ],
)
def test_failure_other_than_requested_is_refused(
    tmp_path: Path, options: dict[str, Any], stages: list[str]
) -> None:
    asked = Options(Path("m.pt2"), guard_pages="off", baseline_runs=3, **options)
    context = context_with(Raising(tmp_path, *stages), asked, tmp_path)
    with pytest.raises(NotReproducible, match="--until load-error"):
        reproduce_failure(context)

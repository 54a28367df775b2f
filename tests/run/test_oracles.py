"""How many candidates a run asks about at once, and what it says of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from support.doubles import context_with

from shrinkfx.check.command import Command
from shrinkfx.check.limits import usual_jobs
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, Listener, NoteAdded, ignore_event
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Request
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.context import Subject
from shrinkfx.run.reduction import jobs_for
from shrinkfx.testing import chain, whole

GB = 1 << 30
WRONG = Signature(Kind.MISMATCH, Stage.COMPARE, "", "wrong")
ON_CPU = Ready(backend=Backend.AOTI)
ON_GPU = Ready(backend=Backend.AOTI, for_cuda=True)
INTERPRETED = Ready(backend=Backend.INTERPRETER, for_cuda=True)


class NoServer:
    def ask(self, request: Request) -> Ending:
        return Ending("exit", stage="done")


CLIENT = CheckClient(NoServer(), Limits(10.0, 8 * GB))
SIZE = ProgramSize(1, 3, 1, 0)


def subject_of(
    options: Options, folder: Path, ready: Ready, listener: Listener = ignore_event
) -> Subject:
    server = SimpleNamespace(ready=ready)
    context = context_with(server, options, folder, listener)
    return Subject(context, whole(chain("x", "relu")), SIZE, CLIENT, WRONG, 1.0)


def chosen(
    folder: Path,
    jobs: int | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    ready: Ready = ON_CPU,
    peak_bytes: int = 0,
) -> tuple[int, list[str]]:
    events: list[Event] = []
    options = Options(Path("m.pt2"), jobs=jobs)
    subject = replace(subject_of(options, folder, ready, events.append), **changes)
    context = subject.context
    peak = replace(Ending("exit", stage="done"), peak_rss_bytes=peak_bytes)
    context.meters["baseline"].add(peak)
    found = jobs_for(subject)
    return found, [event.text for event in events if isinstance(event, NoteAdded)]


COMMAND = {"command": Command("./fails {}")}


@pytest.mark.parametrize(
    ("changes", "ready"), [(COMMAND, ON_CPU), ({}, ON_GPU)], ids=["check", "gpu"]
)
def test_jobs_default_to_one_if_the_device_must_not_be_shared(
    tmp_path: Path, changes: Mapping[str, Any], ready: Ready
) -> None:
    assert chosen(tmp_path, None, changes, ready) == (1, [])
    assert chosen(tmp_path, 3, changes, ready) == (3, [])
    assert chosen(tmp_path, ready=INTERPRETED) == (usual_jobs(), [])


def test_flaky_failure_is_checked_one_candidate_at_a_time(tmp_path: Path) -> None:
    flaky = {"rate": 0.5}
    assert chosen(tmp_path, None, flaky) == (1, [])
    jobs, (said,) = chosen(tmp_path, 3, flaky)
    assert (jobs, "one at a time" in said) == (1, True)


def test_jobs_are_limited_by_the_free_memory(tmp_path: Path) -> None:
    jobs, (said,) = chosen(tmp_path, 4, peak_bytes=3 * GB)
    assert jobs == 2
    assert said == (
        "--jobs 4: memory suffices for 2 at a time; a check needs up to 3.2 GB"
    )
    assert chosen(tmp_path, 2, peak_bytes=3 * GB) == (2, [])

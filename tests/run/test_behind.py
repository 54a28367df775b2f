"""Whether a failure needs what lies behind a short result is asked once, of it all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import FakeServer, context_with
from support.lies import lie, tensor

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Listener, NoteAdded, ignore_event
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Checked, Difference, Ending, Invalid
from shrinkfx.protocol.choices import Guard
from shrinkfx.report.record import OtherCauses, ProgramSize
from shrinkfx.run.context import Subject
from shrinkfx.run.observe import require_any_adjacent_memory
from shrinkfx.testing import chain

SHORT = ("my.narrow.default",)
WRONG = Ending("exit", stage="done", answer=Checked(Difference("values", "wrong")))
PASSES = Ending("exit", stage="done", answer=Checked())
OTHERWISE = Ending("exit", stage="done", answer=Invalid("it depends"))
TARGET = Signature(Kind.MISMATCH, Stage.COMPARE, "", "values")


def subject_of(
    server: FakeServer, folder: Path, listener: Listener = ignore_event
) -> Subject:
    whole = Candidate.from_skeleton(chain("x", "relu", "tanh"))
    client = CheckClient(server, Limits(9.0, 1 << 30))
    size = ProgramSize(2, 3, 1, 0)
    narrow = tensor("int32", 8), tensor("int64", 8)
    causes = OtherCauses(tuple(lie("m", *narrow, operator=name) for name in SHORT))
    context = context_with(server, Options(Path("m.pt2")), folder, listener)
    return Subject(context, whole, size, client, TARGET, 1.0, other_causes=causes)


def subject_and_server(
    ending: Ending, tmp_path: Path, listener: Listener = ignore_event, **changes: object
) -> tuple[Subject, FakeServer]:
    server = FakeServer(lambda _: ending)
    subject = replace(subject_of(server, tmp_path, listener), **changes)  # type: ignore[arg-type]
    return require_any_adjacent_memory(subject), server


def test_adjacent_memory_is_defined_if_irrelevant_to_the_failure(
    tmp_path: Path,
) -> None:
    subject, server = subject_and_server(WRONG, tmp_path)
    assert subject.client.options.tails == SHORT
    assert subject.short_results == ()
    (told,) = server.arguments
    assert told["tails"] == SHORT


@pytest.mark.parametrize("ending", [PASSES, OTHERWISE])
def test_dependence_on_adjacent_memory_is_reported_and_memory_left_as_is(
    tmp_path: Path, ending: Ending
) -> None:
    said: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, NoteAdded):
            said.append(event.text)

    subject, _ = subject_and_server(ending, tmp_path, listen)
    assert subject.client.options.tails == ()
    assert subject.short_results == SHORT
    assert (
        ": the result's storage is smaller than declared. The failure "
        "depends on the adjacent memory; with known content of that memory:"
    ) in said[-1]


def test_no_query_is_made_with_guard_pages_or_for_compile_errors(
    tmp_path: Path,
) -> None:
    compiling = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "", "boom")
    assert not subject_and_server(WRONG, tmp_path, target=compiling)[1].arguments
    server = FakeServer(lambda _: WRONG)
    subject = subject_of(server, tmp_path).with_options(guard_pages=Guard.AFTER)
    assert require_any_adjacent_memory(subject) is subject
    assert not server.arguments

"""Which build a run searches with, and how far it builds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.doubles import FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Verdict
from shrinkfx.options.options import Options
from shrinkfx.program.skeleton import Node, Role, Skeleton
from shrinkfx.protocol.answers import Built, Ending, Raised
from shrinkfx.protocol.choices import MANY_BYTES, Build, GraphForm, Step, Weights
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.observe import choose_build, place_of_weights
from shrinkfx.testing import FLOATS, chain, whole

WHOLE = whole(chain("x", "relu", "tanh"))
ERROR = Raised("InductorError", "no such thing")
TARGET = Signature(
    Kind.COMPILE_ERROR, Stage.COMPILE, "InductorError | no such thing", "no such thing"
)
HANG = Signature(Kind.HANG, Stage.COMPILE)
PASSES = Ending("exit", stage="done", built=Built(Build.FAST, Step.LINK))


def raised_in(step: Step) -> Ending:
    built = Built(Build.FAST, step)
    return Ending("exit", stage="compile", answer=ERROR, built=built)


def chosen(
    worker: FakeServer,
    target: Signature = TARGET,
    build: Build = Build.FAST,
    minutes: float | None = None,
) -> tuple[Subject | None, Sequence[Verdict], list[str]]:
    events: list[Event] = []
    options = Options(Path("model.pt2"), max_minutes=minutes)
    context = RunContext(options, Path("out"), events.append)
    client = CheckClient(worker, Limits(10.0, 1 << 30), CheckOptions(build=build))
    subject = Subject(context, WHOLE, ProgramSize(2, 4, 1, 0), client, target, 1.0)
    tried = choose_build(subject)
    assert tried.form is GraphForm.FUNCTIONAL
    notes = [event.text for event in events if isinstance(event, NoteAdded)]
    return tried.subject, tried.seen, notes


def test_failure_before_compilation_is_searched_without_the_compiler() -> None:
    worker = FakeServer(lambda _: raised_in(Step.LOWERING))
    subject, _, _ = chosen(worker)
    assert subject is not None
    assert subject.client.options.only == Step.LOWERING
    assert len(worker.asked) == 1


@pytest.mark.parametrize("step", [Step.WRAPPER, Step.KERNEL])
def test_failing_file_is_tested_alone(step: Step) -> None:
    worker = FakeServer(lambda _: raised_in(step))
    subject, _, _ = chosen(worker)
    assert subject is not None
    assert subject.client.options.only == step
    assert [asked.get("only") for asked in worker.arguments] == [None, step]


@pytest.mark.parametrize(
    ("ending", "target"),
    [
        (raised_in(Step.LINK), TARGET),
        (
            Ending("timeout", stage="compile", built=raised_in(Step.LOWERING).built),
            HANG,
        ),
    ],
)
def test_other_build_failures_need_the_whole_build(
    ending: Ending, target: Signature
) -> None:
    subject, _, _ = chosen(FakeServer(lambda _: ending), target)
    assert subject is not None
    assert subject.build is Build.FAST
    assert subject.client.options.only is None


def test_failure_in_the_stock_build_only_is_reduced_with_the_stock_build() -> None:
    worker = FakeServer(
        lambda a: raised_in(Step.KERNEL) if "build" not in a else PASSES
    )
    subject, seen, (note,) = chosen(worker)
    assert subject is not None
    assert subject.build is Build.STOCK
    assert [verdict.reproduced for verdict in seen] == [False, True]
    assert "--build stock" in note


def test_weights_are_external_only_if_large_and_in_the_fast_build() -> None:
    def program(nbytes: int, role: Role) -> Skeleton:
        held = Node("w", role, value=FLOATS, nbytes=nbytes)
        relu = Node("relu", Role.OPERATOR, "aten.relu.default", ("w",), FLOATS, 1)
        return Skeleton([held, relu], ["relu"])

    large, small = (program(n, Role.PARAMETER) for n in (MANY_BYTES, MANY_BYTES - 1))
    assert place_of_weights(Build.FAST, large) is Weights.BESIDE
    assert place_of_weights(Build.STOCK, large) is Weights.INSIDE
    assert place_of_weights(Build.FAST, small) is Weights.INSIDE
    inputs = program(MANY_BYTES, Role.INPUT)
    assert place_of_weights(Build.FAST, inputs) is Weights.INSIDE

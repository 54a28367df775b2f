"""What a run makes of what is seen of custom operators."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import DESCRIPTION, Arguments, FakeServer
from support.lies import strided, tensor

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import NoteAdded
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Examined, Raised
from shrinkfx.protocol.operators import Misbehavior, OperatorFinding
from shrinkfx.protocol.requests import Request
from shrinkfx.report.record import format_finding
from shrinkfx.run.context import RunContext
from shrinkfx.run.observe import Described, examine_operators
from shrinkfx.testing import chain

MIX = "mix (my.mix.default)"
FILL = "fill (my.fill.default)"
FOUND = [
    OperatorFinding("my.mix.default", Misbehavior.WRITES, "mix", argument="x"),
    OperatorFinding(
        "my.mix.default",
        Misbehavior.FAKE,
        "mix",
        error="TypeError: \x1b[31mless",
    ),
    OperatorFinding("my.roll.default", Misbehavior.FAKE, "roll", error="more"),
    OperatorFinding("my.fill.default", Misbehavior.FAKE, "fill", error="4"),
    OperatorFinding("my.fill.default", Misbehavior.UNFILLED, "fill"),
    OperatorFinding("my.fill.default", Misbehavior.UNSTEADY, "fill_1"),
    OperatorFinding(
        *("my.fill.default", Misbehavior.FIXES, "fill"),
        declared=tensor("float32", 4, 6),
        made=tensor("float32", 5, 6),
    ),
]


class Server(FakeServer):
    """Keeps what each question might take by the clock, too."""

    def __init__(self, answer: Callable[[Arguments], Ending]) -> None:
        super().__init__(answer)
        self.limits: list[tuple[float, float]] = []

    def ask(self, request: Request) -> Ending:
        self.limits.append((request.timeout_s, request.wall_clock_limit_s))
        return super().ask(request)


def examined(
    folder: Path,
    ending: Ending,
    custom: tuple[str, ...] = ("my.mix.default",),
    stopped: str = "",
    minutes: float | None = None,
) -> tuple[list[str], list[str], Server]:
    """Examine a program of which one operator is known to lie."""

    def answer(arguments: Any) -> Ending:
        lines = "".join(finding.to_line() for finding in FOUND)
        Path(arguments["findings"]).write_text(lines + '{"what": "wri')
        return ending

    server, said = Server(answer), []
    options = Options(Path("model.pt2"), max_minutes=minutes)
    context = RunContext(options, folder, lambda event: said.append(event))
    context.budget.clock = lambda: context.budget.started
    known = (strided("roll", (1,), (2,), "my.roll.default"),)
    about = replace(DESCRIPTION, stopped=stopped, custom=custom, mismatches=known)
    described = Described(chain("x", "relu"), about)
    client = CheckClient(server, Limits(600.0, 1 << 30))
    warnings = [*map(format_finding, examine_operators(context, client, described))]
    return warnings, [e.text for e in said if isinstance(e, NoteAdded)], server


WARNINGS = [
    f"custom operator: {MIX} writes to its argument x, which its schema does not "
    "declare",
    f"custom operator: {MIX} has a fake kernel that raises TypeError: less",
    f"custom operator: {FILL} returns values computed from uninitialized memory",
    f"custom operator: {FILL} has a fake kernel that declares size 4 for dim 0 of its "
    "result, whatever the input sizes, but the size is 5",
]


def test_findings_are_warnings_unless_the_mismatch_is_known(tmp_path: Path) -> None:
    warnings, said, _ = examined(tmp_path, Ending("exit", answer=Examined((), False)))
    assert said == WARNINGS
    assert warnings == WARNINGS


def test_findings_before_a_crash_are_reported_with_the_crash(tmp_path: Path) -> None:
    at = "my.mix.default (mix) for x of shape [5, 3]"
    dead = Ending("signal", signal.SIGSEGV, operator=at)
    _, said, _ = examined(tmp_path, dead)
    assert said == [
        *WARNINGS,
        f"custom operator: {MIX} crashes with SIGSEGV in eager at sizes that the "
        "program declares, for x of shape [5, 3]",
    ]


RAISED = Raised("ValueError", "no such size\nat all")


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (Ending("timeout"), "for 10 s"),
        (Ending("exit", answer=Examined((), True)), "for 10 s"),
        (Ending("late"), "for 10 s"),
        (Ending("memory"), "up to the memory limit"),
        (Ending("signal", signal.SIGBUS), "up to SIGBUS in another operator"),
        (Ending("exit", answer=RAISED), "up to ValueError: no such size"),
    ],
)
def test_examination_that_was_cut_short_is_reported(
    tmp_path: Path, ending: Ending, why: str
) -> None:
    _, said, _ = examined(tmp_path, ending)
    assert said == [*WARNINGS, f"custom operators: only partly tested, {why}"]

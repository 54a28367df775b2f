"""What ``minify`` prints: lines while a run goes on, and the result at its end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from shrinkfx import api as reducing
from shrinkfx import minify
from shrinkfx.api import Reduction
from shrinkfx.events import (
    Event,
    Listener,
    NoteAdded,
)
from shrinkfx.events.terminal import Plain, Progress, make_display
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.testing import chain, whole


def test_progress_goes_to_stderr_unless_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    came = reduction_of(Path("out/repro.py"))

    def reduce(_: Options, listener: Listener) -> Reduction:
        listener(NoteAdded("baseline: it fails"))
        return came

    monkeypatch.setattr(reducing, "reduce", reduce)
    minify("model.pt2")
    assert capsys.readouterr() == ("", f"baseline: it fails\n{came}\n")
    minify("model.pt2", quiet=True)
    assert capsys.readouterr() == ("", "")
    told: list[Event] = []
    minify("model.pt2", listener=told.append)
    assert capsys.readouterr() == ("", "")


def test_result_repr_is_one_line_and_str_is_the_summary() -> None:
    came = reduction_of(Path("out/repro.py"))
    assert repr(came) == (
        "<Reduction: reduced, 12 -> 1 operators, exception in run, out/repro.py>"
    )
    first, *_, last = str(came).splitlines()
    assert first == (
        "result:   reduced from 12 to 1 operator, 1-minimal; 3 checks, 4 s"
    )
    assert last == "next:     shrinkfx --explain out"


def test_terminal_gets_a_live_line_and_a_pipe_plain_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(make_display(Terminal()), Progress)
    assert isinstance(make_display(io.StringIO()), Plain)


def reduction_of(repro: Path) -> Reduction:
    failure = Signature(Kind.EXCEPTION, Stage.RUN, text="it `is` so\nor not")
    return Reduction(
        status="reduced",
        candidate=whole(chain("x", "relu")),
        signature=failure,
        seen=failure,
        minimal=True,
        operators=(12, 1),
        checks=3,
        seconds=4.0,
        verified=(3, 3),
        repro=repro,
        summary={"rate": {"before": 1.0, "after": 1.0}, "other_failures": []},
    )

"""What a notebook shows: a bar while a run goes on, and the repro at its end."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from shrinkfx import minify
from shrinkfx.api import Reduction, reducing
from shrinkfx.events import (
    Event,
    Listener,
    NoteAdded,
    QueryAnswered,
    SearchStarted,
    StepTaken,
)
from shrinkfx.events.shown import Bar, in_notebook, show_progress
from shrinkfx.events.terminal import Plain, Progress, Quiet, make_display
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.options.options import Options
from shrinkfx.testing import chain, whole


class FakeBar:
    """What ``tqdm`` is asked to show."""

    said: list[str]

    def __init__(self, total: int | None, bar_format: str) -> None:
        FakeBar.said = [f"of {total}: {bar_format}"]

    @staticmethod
    def write(text: str) -> None:
        FakeBar.said.append(text)

    def set_description_str(self, text: str, *, refresh: bool) -> None:
        self.said.append(text)

    def update(self) -> None:
        self.said.append("+1")

    def close(self) -> None:
        self.said.append("closed")


def test_bar_counts_checks_and_shows_notes_and_steps() -> None:
    bar = Bar(FakeBar)
    bar(SearchStarted(12, 40))
    bar(NoteAdded("simplifying the reduced program: sizes, values, arguments"))
    bar(QueryAnswered(1, Outcome.PASSED, 12, 3.0, None))
    bar(StepTaken(12, 3, "drop_nodes", 1, 4.0))
    bar.close()
    assert FakeBar.said == [
        *(
            "of 40: {desc}, {n_fmt} checks [{elapsed}]",
            "12 operators",
            "simplifying the reduced program: sizes, values, arguments",
        ),
        *("12 operators", "+1", "reduced from 12 to 3 operators, 4 s", "closed"),
    ]


def notebook(monkeypatch: pytest.MonkeyPatch, kernel: object) -> None:
    module = ModuleType("IPython")
    shell = SimpleNamespace(kernel=kernel)
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_bar_is_shown_in_a_notebook_without_another_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook(monkeypatch, kernel=None)  # IPython in a terminal
    assert not in_notebook()
    notebook(monkeypatch, kernel=object())
    with show_progress(None) as listener:
        assert isinstance(listener, Bar)
    with show_progress(print) as listener:
        assert listener is print
    with show_progress(None, quiet=True) as listener:
        assert type(listener) is Quiet


def test_progress_goes_to_stderr_in_a_script_unless_quiet(
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
    monkeypatch.setattr("shrinkfx.events.shown.in_notebook", lambda: True)
    monkeypatch.setattr("shrinkfx.events.shown.make_bar", Quiet)
    minify("model.pt2")  # the cell shows what it returns
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


def test_result_markdown_shows_the_repro_as_code(tmp_path: Path) -> None:
    repro = tmp_path / "repro.py"
    repro.write_text('"""Not a ```fence```."""\n')
    told = reduction_of(repro)._repr_markdown_()
    assert "12 → 1 operators; 3 of 3 runs" in told
    assert "`exception in run: it 'is' so or not`" in told
    assert '````python\n"""Not a ```fence```."""\n````' in told
    assert str(repro) in told
    repro.write_text("x\n" * 50_000)
    assert len(reduction_of(repro)._repr_markdown_()) < 21_000
    repro.unlink()
    assert "```python\n```" in reduction_of(repro)._repr_markdown_()

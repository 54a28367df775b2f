"""Which form of a program is cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import DESCRIPTION, FakeServer
from support.lies import strided

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Ending, Raised
from shrinkfx.protocol.choices import Build, GraphForm
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.observe import choose_graph_form, describe_program
from shrinkfx.testing import chain, operator, skeleton

RAISED = Raised("ValueError", "no such thing")
RAISES = Signature(Kind.EXCEPTION, Stage.RUN, "ValueError: no such thing")
FAILS = Ending("exit", stage="run", answer=RAISED)
PASSES = Ending("exit", stage="done")


WITH_COND = skeleton(
    {"x": "", "relu": "x", "cond": operator("relu", target="cond"), "tanh": "cond"}
)
FORMS = {
    "functional": WITH_COND,
    "inlined-cond": chain("x", "relu", "sin", "tanh"),
    "in-place": chain("x", "relu_", "tanh"),
}
Fails = Callable[[str, str], bool]
"""Whether a form fails in a build."""


def chosen(
    folder: Path,
    fails: Fails,
    forms: dict[str, Skeleton] = FORMS,
    check_s: float = 0.0,
    eager: str = "",
) -> tuple[Subject, list[tuple[str, str]]]:
    """Choose a form; list which were asked about, and in which builds.

    Args:
        eager: the error that it raises, in each form.
    """
    asked: list[tuple[str, str]] = []

    def answer(arguments: Any) -> Ending:
        form = str(arguments.get("graph", GraphForm.FUNCTIONAL))
        if "candidate" in arguments:
            build = str(arguments.get("build", Build.STOCK))
            asked.append((form, build))
            return FAILS if fails(form, build) else PASSES
        if form not in forms:
            error = Raised("SpecViolationError", "no such graph")
            return Ending("exit", answer=error)
        path = folder / f"{form}.json"
        path.write_text(json.dumps(forms[form].to_json()))
        lies = (strided(form, (1,), (2,)),)
        said = replace(DESCRIPTION, skeleton=str(path), mismatches=lies, stopped="relu")
        said = replace(said, eager_error=eager)
        return Ending("exit", answer=said)

    client = CheckClient(
        FakeServer(answer), Limits(10.0, 1 << 30), CheckOptions(build=Build.FAST)
    )
    options = Options(Path("model.pt2"), max_minutes=3.0)
    context = RunContext(options, folder, lambda _: None)
    context.budget.keep(check_s)
    client, described = describe_program(context, client)
    whole = Candidate.from_skeleton(described.skeleton)
    causes = described.other_causes.with_warning("from the baseline")
    subject = Subject(
        context,
        whole,
        ProgramSize(3, 5, 1, 0),
        client,
        RAISES,
        1.0,
        other_causes=causes,
    )
    found = choose_graph_form(subject, described)
    (lie,) = found.other_causes.mismatches
    assert lie.node == found.client.options.graph
    return found, asked


def operators(subject: Subject) -> Sequence[str]:
    return subject.whole.operators


def test_cond_is_inlined_if_the_program_still_fails(tmp_path: Path) -> None:
    subject, asked = chosen(tmp_path, lambda form, build: True)
    assert operators(subject) == ("relu", "sin", "tanh")
    assert subject.client.options.graph is GraphForm.INLINED_COND
    assert asked == [("inlined-cond", "fast")]


def test_cond_is_kept_if_the_failure_needs_cond(tmp_path: Path) -> None:
    """To be without it is worth one question, not one in each build."""
    subject, asked = chosen(tmp_path, lambda form, build: form == "functional")
    assert operators(subject) == ("relu", "cond", "tanh")
    assert subject.client.options.graph is GraphForm.FUNCTIONAL
    assert asked == [("inlined-cond", "fast"), ("functional", "fast")]


def test_program_is_cut_with_cond_if_inlining_is_impossible(
    tmp_path: Path,
) -> None:
    forms = {name: form for name, form in FORMS.items() if name != "inlined-cond"}
    subject, asked = chosen(tmp_path, lambda form, build: True, forms)
    assert operators(subject) == ("relu", "cond", "tanh")
    assert asked == [("functional", "fast")]


def test_in_place_form_is_the_last_resort(tmp_path: Path) -> None:
    subject, asked = chosen(tmp_path, lambda form, build: form == "in-place")
    assert operators(subject) == ("relu_", "tanh")
    assert ("functional", "stock") in asked


@pytest.mark.parametrize("form", ["functional", "inlined-cond", "in-place"])
@pytest.mark.parametrize("error", ["", "no such\nthing"])
def test_warnings_of_the_baseline_are_kept_for_each_form(
    tmp_path: Path, form: str, error: str
) -> None:
    """What eager does is the same in each form, and told once."""
    subject, _ = chosen(tmp_path, lambda asked, _: asked == form, eager=error)
    said = ("eager also fails on the input program: no such",) if error else ()
    assert subject.other_causes.warnings == (*said, "from the baseline")

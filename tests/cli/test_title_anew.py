"""A run that is over may get another title, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx import api
from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.task import refuse_with_task
from shrinkfx.errors import UsageError
from shrinkfx.options.options import Options
from shrinkfx.run import explaining, folder


def test_explain_accepts_a_title_and_refuses_anonymous() -> None:
    parse = make_parser().parse_args
    refuse_with_task("explain", parse(["out", "--explain", "--title", "it fails"]))
    with pytest.raises(UsageError, match="omit --anonymous"):
        refuse_with_task("explain", parse(["out", "--explain", "--anonymous"]))


@pytest.mark.parametrize(
    ("anew", "title"), [(None, "as it was"), ("it fails", "it fails")]
)
def test_title_is_passed_to_explain(
    monkeypatch: pytest.MonkeyPatch, anew: str | None, title: str
) -> None:
    asked: list[Options] = []
    before = Options(Path("m.pt2"), title="as it was")
    monkeypatch.setattr(folder, "load_finished_options", lambda _: before)
    monkeypatch.setattr(
        explaining, "explain_folder", lambda options, *_: asked.append(options)
    )
    monkeypatch.setattr(explaining, "report_explained", lambda *_: None)
    api.explain("out", title=anew)
    assert asked[0].title == title

"""What the baseline and the search are told of what a user has asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pytest
from support.doubles import DESCRIPTION, Arguments, FakeServer

from shrinkfx.check.client.server import Server
from shrinkfx.errors import UsageError
from shrinkfx.events import ignore
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Checked, Difference, Ending, Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.descriptions import Description
from shrinkfx.run.context import RunContext
from shrinkfx.run.observe import find_subject
from shrinkfx.testing import chain
from shrinkfx.validation import require_sense

DIFFERS = Checked(Difference("values", "wrong"))


class Worker(FakeServer):
    """Describes a program that gives wrong results."""

    ready = Ready(backend=Backend.AOTI)

    def __init__(self, folder: Path) -> None:
        skeleton = folder / "skeleton.json"
        skeleton.write_text(json.dumps(chain("x", "relu", "tanh").to_json()))
        described = replace(DESCRIPTION, skeleton=str(skeleton))
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
def test_each_comparison_is_told_how_close_is_close(
    tmp_path: Path, options: Options, told: dict[str, object]
) -> None:
    worker = Worker(tmp_path)
    subject = find_subject(RunContext(options, tmp_path, ignore), cast(Server, worker))
    names = ("rtol", "atol", "strict")
    _, *compared = worker.arguments  # the first only describes
    assert len(compared) > 10
    for asked in (*compared, asdict(subject.client.options)):
        said = {name: asked.get(name) for name in names}
        assert {
            k: v for k, v in said.items() if v is not None and v is not False
        } == told


def test_probes_are_refused_where_nothing_is_interpreted(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    for options in (
        Options(Path("m.pt2"), probe="real"),
        Options(Path("m.pt2"), all_probes=True),
    ):
        with pytest.raises(UsageError, match="is for CUDA without a GPU"):
            find_subject(RunContext(options, tmp_path, ignore), cast(Server, worker))
    with pytest.raises(UsageError, match="not both"):
        require_sense(Options(Path("m.pt2"), probe="real", all_probes=True))

"""The servers of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrinkfx.options.options import Options
from shrinkfx.protocol.choices import Backend
from shrinkfx.run import context
from shrinkfx.run.context import RunContext


def test_bare_server_may_be_the_stem_of_the_main_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []

    class Recorder:
        def __init__(self, **settings: Any) -> None:
            started.append(settings)

    monkeypatch.setattr(context, "RestartingServer", Recorder)
    run = RunContext(Options(model=tmp_path / "m.pt2"), tmp_path, lambda _: None)
    run.bare_server(Backend.AOTI)
    main = run.server()
    run.elsewhere(tmp_path / "scratch").bare_server(Backend.AOTI)
    alone, first, second = started
    assert first["leaves_stem"]
    assert alone["beside"] is None
    assert second["beside"] is main

"""The library's front: what is asked for on the way to a run."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import shrinkfx
from shrinkfx import api
from shrinkfx.options import Options

CHECKED = {"AOTI_RUNTIME_CHECK_INPUTS": "1"}


@pytest.mark.parametrize(
    ("until", "environment", "expected"),
    [
        (None, {"A": "1"}, {"A": "1"}),
        ("assert", {}, {}),
        ("check-inputs", {"A": "1"}, {"A": "1", **CHECKED}),
        ("check-inputs", {"AOTI_RUNTIME_CHECK_INPUTS": "2"}, None),
    ],
)
def test_check_inputs_has_inputs_checked(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    until: str | None,
    environment: Mapping[str, str],
    expected: Mapping[str, str] | None,
) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(api, "run", lambda options, *_: asked.append(options))
    model = tmp_path / "model.pt2"
    with zipfile.ZipFile(model, "w") as archive:  # nobody will load it
        archive.writestr("model/models/model.json", "{}")
    more: dict[str, Any] = {"until": until, "environment": environment}
    shrinkfx.minify(model, out=tmp_path / "out", **more)
    wanted = environment if expected is None else expected
    assert asked[0].environment == wanted

"""The library's front: what is asked for on the way to a run."""

from __future__ import annotations

import traceback
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import shrinkfx
from shrinkfx import api
from shrinkfx import api as reducing
from shrinkfx.errors import UsageError
from shrinkfx.events import Listener
from shrinkfx.options.options import Options
from shrinkfx.run.folder import open_run_folder

CHECKED = {"AOTI_RUNTIME_CHECK_INPUTS": "1"}


@pytest.fixture(name="model")
def _model(tmp_path: Path) -> Path:
    """What looks like a program; nobody will load it."""
    model = tmp_path / "model.pt2"
    with zipfile.ZipFile(model, "w") as archive:
        archive.writestr("model/models/model.json", "{}")
    return model


@pytest.fixture(name="recorded")
def _recorded(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Collect what runs are asked for instead of doing it."""
    recorded: list[Options] = []
    monkeypatch.setattr(reducing, "run", lambda options, *_: recorded.append(options))
    return recorded


def test_public_module_exports_exactly_the_names_in_all() -> None:
    assert {*shrinkfx.__all__} <= {*dir(shrinkfx)}
    assert all(getattr(shrinkfx, name) for name in shrinkfx.__all__)
    assert shrinkfx.api is api
    with pytest.raises(AttributeError, match="'shrinkfx' has no attribute 'maxify'"):
        getattr(shrinkfx, "maxify")  # noqa: B009 - as a name it would not type-check


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        (None, None),
        ("drop_nodes", ("drop_nodes",)),
        (["cut_suffix", "drop_nodes"], ("cut_suffix", "drop_nodes")),
    ],
)
def test_strategies_option_accepts_a_single_name(
    recorded: list[Options],
    model: Path,
    tmp_path: Path,
    strategies: Sequence[str] | None,
    expected: Sequence[str] | None,
) -> None:
    shrinkfx.minify(model, out=tmp_path / "out", strategies=strategies)
    assert recorded[0].strategies == expected


def test_empty_list_of_strategies_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="--list-strategies"):
        shrinkfx.minify(model, strategies=[])


@pytest.mark.parametrize(
    ("until", "environment", "expected"),
    [
        (None, {"A": "1"}, {"A": "1"}),
        ("assert", {}, {}),
        ("check-inputs", {"A": "1"}, {"A": "1", **CHECKED}),
        ("check-inputs", {"AOTI_RUNTIME_CHECK_INPUTS": "2"}, None),
    ],
)
def test_until_check_inputs_sets_the_runtime_check_variable(
    recorded: list[Options],
    model: Path,
    tmp_path: Path,
    until: str | None,
    environment: Mapping[str, str],
    expected: Mapping[str, str] | None,
) -> None:
    more: dict[str, Any] = {"until": until, "environment": environment}
    shrinkfx.minify(model, out=tmp_path / "out", **more)
    wanted = environment if expected is None else expected
    assert recorded[0].environment == wanted


def test_interrupt_is_raised_with_the_resume_command_and_without_context(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inside(options: Options, folder: Path, listener: Listener) -> None:
        with open_run_folder(options, folder, listener):
            try:
                raise OSError("handled")
            except OSError:
                raise KeyboardInterrupt  # noqa: B904 - as Ctrl-C does

    monkeypatch.setattr(reducing, "run", inside)
    with pytest.raises(KeyboardInterrupt) as caught:
        shrinkfx.minify(model, out=tmp_path / "out")
    told = "".join(traceback.format_exception(caught.value)).splitlines()
    assert told[-1] == f"to resume: shrinkfx --resume {tmp_path / 'out'}"
    frames = [line for line in told if line.startswith("  File ")]
    assert len(frames) == 2, told  # the test, and minify()
    assert "in minify" in frames[1]

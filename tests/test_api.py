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
from shrinkfx.api import reducing
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


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Collect what runs are asked for instead of doing it."""
    asked: list[Options] = []
    monkeypatch.setattr(reducing, "run", lambda options, *_: asked.append(options))
    return asked


def test_front_has_the_names_that_it_lists_and_no_others() -> None:
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
def test_one_strategy_may_be_named_alone(
    asked: list[Options],
    model: Path,
    tmp_path: Path,
    strategies: Sequence[str] | None,
    expected: Sequence[str] | None,
) -> None:
    shrinkfx.minify(model, out=tmp_path / "out", strategies=strategies)
    assert asked[0].strategies == expected


def test_no_strategies_at_all_are_refused(model: Path) -> None:
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
def test_check_inputs_has_inputs_checked(
    asked: list[Options],
    model: Path,
    tmp_path: Path,
    until: str | None,
    environment: Mapping[str, str],
    expected: Mapping[str, str] | None,
) -> None:
    more: dict[str, Any] = {"until": until, "environment": environment}
    shrinkfx.minify(model, out=tmp_path / "out", **more)
    wanted = environment if expected is None else expected
    assert asked[0].environment == wanted


def test_interrupt_goes_up_with_the_way_on_and_not_with_what_it_met(
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
    assert ["in called" in frame for frame in frames] == [False, True, False], told
    assert "in minify" in frames[2]

"""A CUDA core dump of the result, which a server's double leaves as CUDA would."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.doubles import Arguments, FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, NoteAdded
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Raised
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.run.context import RunContext
from shrinkfx.run.result import FOLDER, leave_core_dump
from shrinkfx.testing import chain, whole

FAULT = Ending(
    "exit",
    stage="run",
    answer=Raised(
        "AcceleratorError",
        "CUDA error: an illegal memory access was encountered",
    ),
)


def left(
    server: FakeServer, out: Path, guard: Guard = Guard.AFTER
) -> tuple[Path | None, list[str]]:
    events: list[Event] = []
    context = RunContext(Options(Path("model.pt2")), out, events.append)
    options = CheckOptions(guard_pages=guard, environment={"A": "1"})
    client = CheckClient(server, Limits(10.0, 1 << 30), options)
    best = whole(chain("x", "relu"))
    dump = leave_core_dump(context, client, best, "program")
    return dump, [event.text for event in events if isinstance(event, NoteAdded)]


@pytest.mark.parametrize(
    ("guard", "beside"),
    [(Guard.AFTER, Guard.AFTER), (Guard.MEMCHECK, Guard.OFF)],
)
def test_result_is_run_once_with_core_dump_settings_and_leaves_a_dump(
    tmp_path: Path, guard: Guard, beside: Guard
) -> None:
    """One of an earlier result goes."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "core.1").touch()

    def answer(asked: Arguments) -> Ending:
        told = asked["environment"]
        assert told["A"] == told["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] == "1"
        flags = told["CUDA_COREDUMP_GENERATION_FLAGS"].split(",")
        assert {"skip_abort", "skip_global_memory"} <= {*flags}
        assert asked.get("guard_pages", Guard.OFF) == beside
        Path(told["CUDA_COREDUMP_FILE"].replace("%p", "7")).touch()
        return FAULT

    server = FakeServer(answer)
    dump, notes = left(server, tmp_path, guard)
    assert dump == tmp_path / FOLDER / "core.7"
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["core.7"]
    assert (
        notes[-1]
        == f"CUDA core dump; to open it: cuda-gdb -ex 'target cudacore {dump}'"
    )
    assert len(server.asked) == 1


def test_missing_core_dump_is_reported(tmp_path: Path) -> None:
    dump, notes = left(FakeServer(lambda _: FAULT), tmp_path)
    assert dump is None
    assert notes[-1].startswith(
        "CUDA wrote no core dump; the reduced program: ima in run"
    )
    assert not (tmp_path / FOLDER).exists()

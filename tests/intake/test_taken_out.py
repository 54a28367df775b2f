"""What a session has taken out of Inductor's tables is not put there by preloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from shrinkfx.errors import WorkerError
from shrinkfx.intake import in_memory as asking
from shrinkfx.intake.in_memory import Entry, RemovedRegistrations, taken_out
from shrinkfx.intake.worker import AskWorker
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Entries
from shrinkfx.protocol.requests import ListOwnEntries, Task

TABLE = "torch._inductor.decomposition.decompositions"
SOFTMAX, GELU = (TABLE, "aten._softmax.default"), (TABLE, "aten.gelu.default")


def fake_worker_answer(
    monkeypatch: pytest.MonkeyPatch, answer: Ending | WorkerError
) -> list[str]:
    """Have a worker answer; what it has preloaded is collected."""
    preloaded: list[str] = []

    def ask(task: Task) -> Ending:
        assert isinstance(task, ListOwnEntries)
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    @contextmanager
    def worker(_: Options, __: object, preloads: Sequence[str]) -> Iterator[AskWorker]:
        preloaded.extend(preloads)
        yield ask

    monkeypatch.setattr(asking, "bare_worker", worker)
    return preloaded


def find_removed(gone: Sequence[Entry]) -> RemovedRegistrations:
    def not_here(entries: Sequence[Entry]) -> Sequence[Entry]:
        return [each for each in entries if each in gone]

    return taken_out(["recsys.passes"], Options(Path()), not_here)


def test_entry_removed_in_session_is_removed_by_preload_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preloaded = fake_worker_answer(
        monkeypatch, Ending("exit", answer=Entries((SOFTMAX, GELU)))
    )
    taken = find_removed([SOFTMAX])
    assert preloaded == ["recsys.passes"]
    assert taken.preload is not None
    assert taken.preload.name == "preload_taken_out"
    assert taken.preload.text.splitlines()[2:] == [
        "import torch",
        "import torch._inductor.decomposition",
        "",
        f"{TABLE}.pop(torch.ops.aten._softmax.default, None)",
    ]
    (said,) = taken.notes
    assert said.startswith(f"{TABLE} has no aten._softmax.default in this session")
    assert taken.lacking == ()


def test_removed_entry_without_operator_is_only_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = ("torch._inductor.x.table", "<function f at 0x7f>")
    fake_worker_answer(monkeypatch, Ending("exit", answer=Entries((other,))))
    taken = find_removed([other])
    assert (taken.preload, taken.notes) == (None, ())
    (lacking,) = taken.lacking
    assert "the run keeps it, unless preload=['passes'] names other modules" in lacking


@pytest.mark.parametrize(
    "answer",
    [
        Ending("exit", answer=Entries((GELU,))),
        Ending("exit", answer=Entries(())),
        Ending("signal", 11),
        WorkerError("it died"),
    ],
)
def test_no_entry_is_removed_when_none_is_known_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, answer: Ending | WorkerError
) -> None:
    fake_worker_answer(monkeypatch, answer)
    assert find_removed([SOFTMAX]) == RemovedRegistrations()

"""A candidate that an earlier run has met is seen again as that run saw it."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support.doubles import FakeServer

from shrinkfx.check.client.server import WORKER
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import LoadError, UsageError, WorkerError
from shrinkfx.events import ignore_event
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Checked, Difference, Ending
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.report.summary import DIGITS
from shrinkfx.run.folder import describe_request
from shrinkfx.run.observe import SCHEMA
from shrinkfx.run.retrieve import check_again, find_candidate, retrieve
from shrinkfx.system.folders import JOURNAL
from shrinkfx.testing import chain, whole

CANDIDATE = whole(chain("x", "relu"))
PASSES = Ending("exit", stage="done")
CRASHES = Ending("signal", signal.SIGSEGV, "run")
DIFFERS = Ending("exit", stage="done", answer=Checked(Difference("values", "wrong")))
CRASH = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)


def client(worker: FakeServer) -> CheckClient:
    return CheckClient(worker, Limits(10.0, 1 << 30))


def test_other_failure_is_found_despite_the_target_with_its_rate() -> None:
    turns = itertools.cycle([DIFFERS, PASSES, DIFFERS, CRASHES])
    seen, rate = check_again(client(FakeServer(then=turns)), CANDIDATE, CRASH, 0.3)
    assert CRASH.admits(seen.signature)
    assert rate == 0.25


def test_candidate_with_only_another_failure_shows_that_failure() -> None:
    turns = itertools.cycle([PASSES, DIFFERS])
    seen, rate = check_again(client(FakeServer(then=turns)), CANDIDATE, CRASH, 0.5)
    assert seen.signature is not None
    assert seen.signature.kind is Kind.MISMATCH
    assert rate == 0.5


def run_options(folder: Path) -> Options:
    """State what a run was asked for: a program, its inputs and a preload."""
    names = [folder / name for name in ("model.pt2", "failing.pt", "ops.py")]
    for path in names:
        path.write_text(path.name)
    model, inputs, preload = names
    asked = Options(model, inputs=inputs, preload=(str(preload),), anonymous=True)
    return replace(asked, max_minutes=3.0, out=folder)


def noted(
    folder: Path, failures: Sequence[Signature], schema: int = SCHEMA
) -> list[str]:
    """Leave the journal of a run behind that saw these, and return the digests."""
    digests = []
    with closing(Journal(folder / JOURNAL)) as journal:
        journal.note("run", describe_request(run_options(folder)))
        options = asdict(CheckOptions())
        target = {"target": asdict(CRASH), "rate": 1.0, "options": options}
        journal.note("baseline", {**target, "schema": schema})
        for number, failure in enumerate(failures, 1):
            candidate = whole(chain("x", *["relu"] * number))
            outcome = Outcome.REPRODUCED if failure == CRASH else Outcome.DIFFERENT
            verdict = Verdict(outcome, Observation(failure))
            journal.record_verdict(
                journal.record_query("s", "program", candidate), verdict
            )
            digests.append(candidate.digest)
    return digests


def refusal(folder: Path, digest: str) -> str:
    with pytest.raises(UsageError) as caught:
        find_candidate(folder, digest)
    return str(caught.value)


def test_unknown_candidate_is_refused_with_the_known_candidates(tmp_path: Path) -> None:
    nan = Signature(Kind.NAN, Stage.COMPARE, "output 0")
    target, caught = noted(tmp_path, [CRASH, nan])
    said = refusal(tmp_path, "bogus")
    assert f"other failures of that run: {caught[:12]}" in said
    assert target[:12] not in said
    assert "2 candidates in " in refusal(tmp_path, "")
    assert "give more digits" in refusal(tmp_path, "")


def test_candidate_is_found_with_all_options_of_its_run(tmp_path: Path) -> None:
    (digest,) = noted(tmp_path, [CRASH])
    found = find_candidate(tmp_path, digest[:6])
    assert found.options == replace(
        run_options(tmp_path), cwd=Path.cwd(), max_minutes=None
    )
    assert found.query.digest == digest


def test_program_of_a_candidate_may_be_moved_but_not_changed(tmp_path: Path) -> None:
    (digest,) = noted(tmp_path, [CRASH])
    moved = tmp_path / "elsewhere.pt2"
    (tmp_path / "model.pt2").rename(moved)
    with pytest.raises(LoadError, match=r"shrinkfx NEW.pt2 --candidate \w+ --out"):
        find_candidate(tmp_path, digest)
    assert find_candidate(tmp_path, digest, moved).options.model == moved
    (tmp_path / "ops.py").write_text("mended")
    with pytest.raises(
        UsageError, match=(": one of these files changed since that run:")
    ):
        find_candidate(tmp_path, digest, moved)


def test_candidate_is_run_with_the_options_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (digest,) = noted(tmp_path, [CRASH])
    commands: list[Sequence[str]] = []

    class Stopped(Exception):
        """What is asked first has been asked."""

    class Serves:
        def ask(self, request: Request) -> Ending:
            assert request.options == CheckOptions()
            raise Stopped

    @contextmanager
    def server_for(
        options: Options, command: Sequence[str], _: object
    ) -> Iterator[Serves]:
        commands.append(command)
        yield Serves()

    monkeypatch.setattr("shrinkfx.run.retrieve.server_for", server_for)
    with pytest.raises(Stopped):
        retrieve(find_candidate(tmp_path, digest), tmp_path, ignore_event)
    assert commands == [WORKER]


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("raised", [KeyboardInterrupt(), WorkerError("it died")])
def test_candidate_run_that_is_interrupted_leaves_no_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException,
    *,
    was_there: bool,
) -> None:
    (digest,) = noted(tmp_path, [CRASH])
    out = tmp_path / f"candidate-{digest[:DIGITS]}"
    if was_there:
        out.mkdir()
        (out / "repro.py").write_text("of an earlier time")

    @contextmanager
    def server_for(*_: object) -> Iterator[None]:
        out.mkdir(exist_ok=True)
        (out / "minimal.pt2").touch()
        raise type(raised)(*raised.args)
        yield

    monkeypatch.setattr("shrinkfx.run.retrieve.server_for", server_for)
    with pytest.raises(type(raised)) as caught:
        retrieve(find_candidate(tmp_path, digest), tmp_path, ignore_event)
    (note,) = caught.value.__notes__
    again = f"shrinkfx --candidate {digest[:DIGITS]} --out {tmp_path}"
    assert note.endswith(f"to try again: {again}")
    assert ("nothing was kept;" in note) is not was_there
    assert (out / "repro.py").exists() is out.exists() is was_there

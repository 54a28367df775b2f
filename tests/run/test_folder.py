"""The folder of a run: its lock, its options, its state and its outcome."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any, NoReturn

import pytest
from support.pages import explained, searched, transformer

from shrinkfx.api import is_run, past
from shrinkfx.cli.main import main
from shrinkfx.errors import (
    BudgetExhausted,
    Finished,
    JournalError,
    LoadError,
    NotReproducible,
    StorageError,
    UsageError,
    WorkerError,
)
from shrinkfx.events import ignore_event
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.findings.record import Explanation
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.run.explaining import report_folder
from shrinkfx.run.folder import (
    RESULT,
    Run,
    create_run_folder,
    inherited_variables,
    list_runs,
    load_finished_options,
    load_options_to_resume,
    open_run_folder,
    record_run_end,
    variables_to_test,
)
from shrinkfx.system.folders import JOURNAL, LOCK, is_folder_locked, lock_folder
from shrinkfx.testing import chain, whole

# Who may work in a folder, on what, and what is left there.


NOTHING_NEW = Options(Path())


@pytest.fixture(name="out")
def _out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture(name="options")
def _options(tmp_path: Path, out: Path) -> Options:
    model, inputs = tmp_path / "model.pt2", tmp_path / "inputs.pt"
    model.write_bytes(b"program")
    inputs.write_bytes(b"inputs")
    preload = tmp_path / "operators.py"
    preload.write_text("")
    return Options(
        model,
        until="assert",
        inputs=inputs,
        preload=(str(preload), "json"),
        inductor={"max_autotune": True},
        environment={"A": "1"},
        max_checks=5,
        out=out,
        strategies=("drop_nodes",),
        command="shrinkfx model.pt2",
        sweeping=Sweeping(examples=3),
    )


def refuse_if_begun(options: Options) -> None:
    with create_run_folder(options):
        pass


def begin(options: Options) -> None:
    """Work for a while, and be killed after the baseline."""
    assert options.out
    with open_run_folder(options, options.out, ignore_event) as context:
        context.journal.note("baseline", {})


def end(
    options: Options, status: str, said: str, code: int, *, is_short: bool = False
) -> None:
    assert options.out
    with open_run_folder(options, options.out, ignore_event) as context:
        context.out_of_budget = "limit" in said
        record_run_end(context, status, said, code, is_short=is_short)


def test_resume_uses_the_stored_options_and_larger_budgets(
    options: Options, out: Path
) -> None:
    begin(options)
    again = load_options_to_resume(out, NOTHING_NEW)
    assert again == replace(options, cwd=Path.cwd())
    new: dict[str, Any] = {"max_checks": 9, "max_minutes": 2.0, "max_disk": 3.0}
    new["jobs"] = 2
    more = load_options_to_resume(out, replace(NOTHING_NEW, **new))
    assert more == replace(again, **new)
    assert load_options_to_resume(out, NOTHING_NEW) == more


def test_program_in_the_run_folder_moves_with_the_folder(
    options: Options, out: Path, tmp_path: Path
) -> None:
    """As that of ``minify(module, args=...)``, which is in no other file."""
    (out / "intake").mkdir()
    model = [out / "intake" / name for name in ("program.pt2", "inputs.pt")]
    for file in model:
        file.write_bytes(b"program")
    begin(replace(options, model=model[0], inputs=model[1]))
    there = out.rename(tmp_path / "elsewhere")
    again = load_options_to_resume(there, NOTHING_NEW)
    assert again.model == there / "intake" / "program.pt2"
    assert again.inputs == there / "intake" / "inputs.pt"


def test_inputs_found_by_a_sweep_move_with_the_run_folder(
    options: Options, out: Path, tmp_path: Path
) -> None:
    begin(options)
    failing = out / "failing-1.pt"
    failing.touch()
    with open_run_folder(options, out, ignore_event) as context:
        known = {"inputs": str(failing), "environment": {"B": "2"}}
        context.journal.note(RESULT, known)
    end(options, "found", "reduced", 0)
    there = out.rename(tmp_path / "elsewhere")
    asked = load_finished_options(there)
    assert asked.inputs == there / "failing-1.pt"
    assert (asked.environment, asked.model) == ({"B": "2"}, options.model)


def test_program_may_be_moved_but_not_changed_before_resume(
    options: Options, out: Path, tmp_path: Path
) -> None:
    begin(options)
    moved = options.model.rename(tmp_path / "moved.pt2")
    with pytest.raises(
        LoadError, match=r"(?s)the file no longer exists.*NEW\.pt2 --resume"
    ):
        load_options_to_resume(out, NOTHING_NEW)
    assert load_options_to_resume(out, Options(moved)).model == moved
    moved.write_bytes(b"another")
    with pytest.raises(
        UsageError, match=(": one of these files changed since that run:")
    ):
        load_options_to_resume(out, Options(moved))


def test_inputs_must_exist_unchanged_for_resume(options: Options, out: Path) -> None:
    assert options.inputs
    begin(options)
    options.inputs.write_bytes(b"others")
    with pytest.raises(UsageError, match=r"these files changed.*inputs\.pt"):
        load_options_to_resume(out, NOTHING_NEW)
    options.inputs.unlink()
    with pytest.raises(LoadError, match=r"inputs\.pt: the file no longer exists"):
        load_options_to_resume(out, NOTHING_NEW)


def test_environment_variables_of_pytorch_must_be_the_same_for_resume(
    options: Options, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    begin(options)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    with pytest.raises(UsageError, match="export OMP_NUM_THREADS=3"):
        load_options_to_resume(out, NOTHING_NEW)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("TORCH_LOGS", "x")  # which only shows more
    load_options_to_resume(out, NOTHING_NEW)
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    with pytest.raises(UsageError, match="unset TORCHINDUCTOR_MAX_AUTOTUNE"):
        load_options_to_resume(out, NOTHING_NEW)


def test_resume_refuses_a_folder_without_a_run(out: Path) -> None:
    with pytest.raises(
        UsageError,
        match="contains no run",
    ):
        load_options_to_resume(out, NOTHING_NEW)
    with closing(Journal(out / "journal.sqlite")):
        pass
    with pytest.raises(UsageError, match=": the run was killed before it started:"):
        load_options_to_resume(out, NOTHING_NEW)


def test_folder_of_a_run_killed_before_its_start_counts_as_empty(
    options: Options, out: Path
) -> None:
    with closing(Journal(out / "journal.sqlite")):
        pass
    with (out / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # or is it about to begin?
        with pytest.raises(UsageError, match="is running"):
            refuse_if_begun(options)
    with create_run_folder(options):
        assert [path.name for path in out.iterdir()] == [".lock"]
        begin(options)
    assert load_options_to_resume(out, NOTHING_NEW)


def test_folder_with_results_of_another_run_is_refused(
    options: Options, out: Path
) -> None:
    (out / "summary.json").touch()
    with pytest.raises(
        UsageError, match=("contains another run: choose an empty folder")
    ):
        refuse_if_begun(options)


def noise(path: Path) -> None:
    path.write_bytes(b"noise" * 1000)


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def no_options(path: Path) -> None:
    write_fact(path, '{"options": {}, "content": "", "tuning": {}}')


def no_json(path: Path) -> None:
    write_fact(path, '{"options": {"model"')


def no_text(path: Path) -> None:
    write_fact(path, b"\xff\xfe")


def of_another_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")


def write_fact(path: Path, value: str | bytes) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        told = "UPDATE facts SET value=CAST(? AS TEXT) WHERE name='run'"
        db.execute(told, (value,))


@pytest.mark.parametrize(
    "damage", [noise, half, no_options, no_json, no_text, of_another_version]
)
def test_damaged_journal_is_reported_with_advice(
    options: Options, out: Path, damage: Callable[[Path], None]
) -> None:
    begin(options)
    damage(out / "journal.sqlite")
    with pytest.raises(JournalError, match="another --out") as caught:
        load_options_to_resume(out, NOTHING_NEW)
    assert not hasattr(caught.value, "__notes__")
    if damage is not no_options:
        with pytest.raises(JournalError, match="another --out") as caught:
            refuse_if_begun(options)
        assert "--resume" not in str(caught.value)


def test_finished_run_is_reported_with_its_exit_code(
    options: Options, out: Path
) -> None:
    end(options, "unverified", "unverified: 9 -> 2 operators", 5)
    for ask in (
        lambda: load_options_to_resume(out, NOTHING_NEW),
        lambda: refuse_if_begun(options),
    ):
        with pytest.raises(Finished, match="9 -> 2 operators") as caught:
            ask()
        assert caught.value.exit_code == 5


def test_finished_run_that_was_cut_short_resumes_with_a_larger_budget(
    options: Options, out: Path
) -> None:
    options = replace(options, max_minutes=3.0, max_checks=9)
    end(options, "reduced", "reduced: 9 -> 2 operators", 0, is_short=True)
    said = f"shrinkfx --resume {out} --max-checks N --max-minutes M"
    less: list[dict[str, Any]] = [{}, {"max_minutes": 2.0}, {"jobs": 2}]
    for given in less:
        with pytest.raises(Finished) as caught:
            load_options_to_resume(out, replace(NOTHING_NEW, **given))
        assert said in str(caught.value)
        assert caught.value.exit_code == 0
    more = load_options_to_resume(out, replace(NOTHING_NEW, max_minutes=4.0))
    assert more.budget == (9, 4.0)
    assert load_options_to_resume(out, NOTHING_NEW).budget == (
        9,
        4.0,
    )  # it was killed since


def test_interrupted_run_resumes_and_a_spent_run_needs_a_larger_budget(
    options: Options, out: Path
) -> None:
    end(options, "stopped", "interrupted", 4)
    assert load_options_to_resume(out, NOTHING_NEW)
    end(options, "stopped", "limit of 5 checks reached", 4)
    with pytest.raises(BudgetExhausted, match="limit of 5 checks reached") as caught:
        load_options_to_resume(out, NOTHING_NEW)
    assert caught.value.__notes__[0].startswith(
        "to continue with a larger budget: shrinkfx --resume"
    )
    assert load_options_to_resume(out, Options(Path(), max_checks=6)).max_checks == 6


def test_second_run_in_the_same_folder_is_refused(options: Options, out: Path) -> None:
    with (
        open_run_folder(options, out, ignore_event) as context,
        ThreadPoolExecutor(1) as another,
    ):
        with pytest.raises(UsageError, match="is running"):
            another.submit(begin, options).result()
        with pytest.raises(UsageError, match="is running"):
            another.submit(load_options_to_resume, out, NOTHING_NEW).result()
        context.journal.note("baseline", {})
    assert load_options_to_resume(out, NOTHING_NEW)


def test_only_one_of_several_simultaneous_runs_starts_in_a_folder(
    options: Options, out: Path
) -> None:
    out.rmdir()
    at_once, told = Barrier(8), Barrier(8)

    def start(_: int) -> str:
        at_once.wait()
        try:
            with (
                create_run_folder(options),
                open_run_folder(options, out, ignore_event),
            ):
                told.wait()
                return "begins"
        except UsageError as error:
            told.wait()
            return str(error)

    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            answers = sorted(pool.map(start, range(8)))
        assert answers.pop() == "begins"
        assert all("another shrinkfx is running" in said for said in answers)
        shutil.rmtree(out)


def deny(*_: object, **__: object) -> NoReturn:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_unreadable_folder_is_reported_as_a_usage_error(
    options: Options, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", deny)
    with pytest.raises(UsageError, match=r"--out .*out: Permission denied"):
        refuse_if_begun(options)
    with pytest.raises(UsageError, match=r"--resume .*out: Permission denied"):
        load_options_to_resume(out, NOTHING_NEW)


def interrupted_by(
    reason: BaseException, options: Options, known: Callable[[Any], None]
) -> None:
    assert options.out
    with open_run_folder(options, options.out, ignore_event) as context:
        known(context.journal)
        raise reason


def know_nothing(journal: Journal) -> None:
    pass


def know_the_baseline(journal: Journal) -> None:
    journal.note("baseline", {})


@pytest.mark.parametrize(
    "reason",
    [
        UsageError("no dynamic dims"),
        LoadError("model.pt2", "no program"),
        NotReproducible("any", 3, [], ""),
    ],
)
def test_run_that_ends_before_the_baseline_leaves_an_empty_folder(
    options: Options, out: Path, reason: Exception
) -> None:
    with pytest.raises(type(reason)) as caught:
        interrupted_by(reason, options, know_nothing)
    assert not list(out.iterdir())
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(type(reason)):
        interrupted_by(reason, options, know_the_baseline)
    assert load_options_to_resume(out, NOTHING_NEW)


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, "shrinkfx --resume"),
        (WorkerError("died"), WorkerError, "shrinkfx --resume"),
        (BudgetExhausted("spent"), BudgetExhausted, "--max-minutes M"),
        (OSError(errno.ENOSPC, "No space", "x"), StorageError, "shrinkfx --resume"),
    ],
)
def test_interrupted_run_is_reported_with_the_resume_command(
    options: Options,
    out: Path,
    reason: BaseException,
    kind: type[BaseException],
    words: str,
) -> None:
    with pytest.raises(kind) as caught:
        interrupted_by(reason, options, know_nothing)
    (note,) = caught.value.__notes__
    assert words in note
    assert str(out) in note
    assert load_options_to_resume(out, NOTHING_NEW)
    assert not (out / ".lock").exists()


def test_draft_files_are_removed_when_the_run_resumes(
    options: Options, out: Path
) -> None:
    begin(options)
    (out / "draft-minimal.pt2").touch()
    (out / "draft-abc").mkdir()
    (out / "repro.py").touch()
    begin(options)
    names = {path.name for path in out.iterdir()}
    assert names == {"journal.sqlite", "repro.py"}


def test_journal_of_another_version_is_refused_unchanged(out: Path) -> None:
    path = out / "journal.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE checks (number INTEGER)")
    with pytest.raises(StorageError, match="version 0"):
        Journal(path)


def test_explanation_time_does_not_count_towards_the_minutes_of_a_run(
    options: Options, out: Path
) -> None:
    with open_run_folder(options, out, ignore_event) as context:
        context.journal.note("baseline", {})
    with closing(sqlite3.connect(out / "journal.sqlite", isolation_level=None)) as db:
        db.execute("UPDATE sessions SET began_at = seen_at - 50")
    before = worked(out)
    assert before[0] == pytest.approx(50, abs=1e-3)
    with open_run_folder(options, out, ignore_event, "--explain") as context:
        context.journal.tick()  # as after each answer
    assert worked(out) == before


def worked(out: Path) -> list[float]:
    """List how long each session was at work, of those that count."""
    took = "SELECT seen_at - began_at FROM sessions"
    with closing(sqlite3.connect(out / "journal.sqlite")) as db:
        return [seconds for (seconds,) in db.execute(took)]


# What a folder with runs tells of them, and that looking changes nothing there.


CANDIDATE = whole(chain("x", "relu", "tanh", "cos"))


@pytest.fixture(name="options_listing")
def _options_listing(tmp_path: Path) -> Options:
    model = tmp_path / "model.pt2"
    model.write_bytes(b"program")
    return Options(model)


@pytest.fixture(name="runs")
def _runs(tmp_path: Path) -> Path:
    folder = tmp_path / "shrinkfx-out"
    folder.mkdir()
    return folder


def begin_listing(
    options: Options, out: Path, *, ended: tuple[str, str, int] | None = None
) -> None:
    """Have a run see a failure of ten operators, and find three that fail."""
    out.mkdir(parents=True, exist_ok=True)
    with open_run_folder(options, out, ignore_event) as context:
        known = {"before": {"operators": 10}, "target": {"kind": "assert"}}
        context.journal.note("baseline", known)
        for outcome in (Outcome.REPRODUCED, Outcome.PASSED):
            number = context.journal.record_query("drop_nodes", "program", CANDIDATE)
            context.journal.record_verdict(number, Verdict(outcome, Observation()))
        if ended:
            record_run_end(context, *ended)


def only(runs: Path) -> Run:
    (run,) = list_runs(runs)
    return run


def test_running_run_is_listed_with_the_state_of_its_journal(
    options_listing: Options, runs: Path
) -> None:
    out = runs / "model-1"
    begin_listing(options_listing, out)
    with lock_folder(out):
        run = only(runs)
    assert (run.status, run.program, run.kind) == ("at work", "model.pt2", "assert")
    assert (run.operators, run.checks, run.verified) == ((10, 3), 2, None)
    assert run.at > 0


@pytest.mark.parametrize(
    ("ended", "status", "goes_on"),
    [
        (None, "broken off", True),
        (("stopped", "limit of 5 checks reached", 4), "stopped", True),
        (("reduced", "reduced: 10 -> 3 operators", 0), "reduced", False),
        (("unverified", "unverified: 10 -> 3 operators", 5), "unverified", False),
    ],
)
def test_ended_run_is_listed_with_its_ending(
    options_listing: Options,
    runs: Path,
    ended: tuple[str, str, int] | None,
    status: str,
    *,
    goes_on: bool,
) -> None:
    begin_listing(options_listing, runs / "model-1", ended=ended)
    run = only(runs)
    assert (run.status, run.may_go_on) == (status, goes_on)


@pytest.mark.parametrize(
    ("code", "status"), [(0, "passes"), (3, "missed"), (6, "found")]
)
def test_sweep_is_listed_with_the_status_of_its_findings(
    options_listing: Options, runs: Path, code: int, status: str
) -> None:
    out = runs / "model-1"
    out.mkdir()
    with open_run_folder(
        replace(options_listing, sweeping=Sweeping()), out, ignore_event
    ) as context:
        record_run_end(context, status, "2 findings in sweep.json", code)
    assert (only(runs).status, only(runs).kind) == (status, "sweep")


_WORKS = """
import os, signal, sys
from pathlib import Path
from shrinkfx.events import ignore_event
from shrinkfx.options.options import Options
from shrinkfx.run.folder import open_run_folder
options, out = Options(Path(sys.argv[1])), Path(sys.argv[2])
with open_run_folder(options, out, ignore_event) as context:
    context.journal.note("unchanged", {"base": {"target": {"kind": "nan"}}})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_run_is_listed_as_killed(options_listing: Options, runs: Path) -> None:
    out = runs / "model-1"
    command = [sys.executable, "-c", _WORKS, str(options_listing.model), str(out)]
    done = subprocess.run(command, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert (out / LOCK).exists()
    assert not is_folder_locked(out)
    assert (only(runs).status, only(runs).kind) == ("killed", "nan")


def test_summary_overrides_the_journal_for_a_finished_run(
    options_listing: Options, runs: Path
) -> None:
    ended = "reduced", "reduced: 10 -> 2 operators", 0
    begin_listing(options_listing, runs / "model-1", ended=ended)
    summary = {
        "kind": "nan",
        "operators": {"before": 12, "after": 2},
        "verified": {"runs": 3, "failed": 3},
        "checks": {"total": 9},
        "seconds": 61.5,
    }
    (runs / "model-1" / "summary.json").write_text(json.dumps(summary))
    run = only(runs)
    assert (run.kind, run.operators, run.verified) == ("nan", (12, 2), (3, 3))
    assert (run.checks, run.seconds) == (9, 61.5)
    (runs / "model-1" / "summary.json").write_text("{")
    assert only(runs).operators == (10, 3)


def no_database(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_json_listing(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE facts SET value='{'")
        db.commit()


def no_target(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE facts SET value='{}' WHERE name='run'")
        db.commit()


def other_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=77")


@pytest.mark.parametrize(
    ("damage", "status", "problem"),
    [
        (no_database, "damaged", "file is not a database"),
        (empty, "damaged", "the journal is empty"),
        (no_json_listing, "damaged", "content is invalid"),
        (no_target, "damaged", "content is invalid"),
        (other_tables, "foreign", "of version 77"),
    ],
)
def test_unreadable_journal_is_listed_as_a_problem_with_the_other_runs(
    options_listing: Options,
    runs: Path,
    damage: Callable[[Path], None],
    status: str,
    problem: str,
) -> None:
    for name in ("model-1", "model-2"):
        begin_listing(options_listing, runs / name)
    damage(runs / "model-2" / JOURNAL)
    found = {run.folder.name: run for run in list_runs(runs)}
    assert found["model-1"].status == "broken off"
    assert found["model-2"].status == status
    assert problem in found["model-2"].problem
    assert not found["model-2"].may_go_on


def test_runs_of_a_triage_are_listed(options_listing: Options, tmp_path: Path) -> None:
    begin_listing(options_listing, tmp_path / "triage-1/runs/model")
    assert only(tmp_path / "triage-1").folder.name == "model"


def test_listing_changes_no_file(options_listing: Options, runs: Path) -> None:
    begin_listing(options_listing, runs / "model-1")
    before = {p: p.stat().st_mtime_ns for p in runs.rglob("*")}
    assert list_runs(runs)
    assert {p: p.stat().st_mtime_ns for p in runs.rglob("*")} == before


def test_missing_folder_is_reported_with_the_usual_place_of_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    for name, said in {"none": "No such file", "file": "Not a directory"}.items():
        with pytest.raises(UsageError, match=f"(?s){said}.*stored in shrinkfx-out"):
            list_runs(tmp_path / name)


# The folder of a run, named alone, is that run: over, or one to go on with.


TOOL = Path(__file__).resolve().parents[1] / "support" / "torchless" / "command_line.py"


def called(
    home: Path, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    tool: Sequence[str] = [sys.executable, str(TOOL), str(home), *arguments]
    return subprocess.run(tool, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.processes
def test_finished_run_is_reported_and_no_new_run_started(tmp_path: Path) -> None:
    called(tmp_path)
    judge = f"{sys.executable} -S {tmp_path / 'judge.py'} {{}}"
    model = str(tmp_path / "model.pt2")
    first = called(tmp_path, model, "--check", judge, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (out,) = (tmp_path / "shrinkfx-out").iterdir()
    kept = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    named = f"shrinkfx-out/{out.name}"
    for typed in ([named], ["--resume", named]):
        again = called(tmp_path, *typed, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert "this run finished on 20" in again.stderr
        ending = first.stdout.splitlines()
        said = again.stdout.splitlines()
        assert said[1 : len(ending)] == ending[1:]  # the first has seconds, rounded
        assert said[0].startswith("result:   reduced from ")
        assert said[len(ending) :] == [
            f"report:   to regenerate the report: shrinkfx --report {named}",
            f"explain:  for the full root-cause analysis: shrinkfx --explain {named}",
            f"new run:  to reduce the same program again: shrinkfx {model}",
        ]
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == kept
    assert len([*out.parent.iterdir()]) == 1


def over(out: Path, model: Path) -> Path:
    """Leave a run of a program that is over, and what is known of its cause."""
    explained(searched(out, transformer(2)))
    with closing(Journal(out / "journal.sqlite")) as journal:
        journal.note("run", {"options": Options(model).to_json()})
        result = journal.fact("result")
        journal.note("result", {**result, "seen": None})
    summary = json.loads((out / "summary.json").read_text())
    told = {"files": ["repro.py"], "other_failures": [], "guard_pages": None}
    rate = {"rate": {"before": 1.0, "after": 1.0}}
    (out / "summary.json").write_text(json.dumps({**summary, **told, **rate}))
    return out


@pytest.mark.parametrize("anonymous", [False, True])
def test_terminal_and_report_use_the_input_names_of_the_repro(
    tmp_path: Path, anonymous: bool
) -> None:
    out, model = tmp_path / "out", tmp_path / "model.pt2"
    over(out, model)
    with closing(Journal(out / "journal.sqlite")) as journal:
        options = Options(model, anonymous=anonymous)
        journal.note("run", {"options": options.to_json()})
        result = journal.fact("result")
        journal.note("result", {**result, "renamed": {"token_ids": "x"}})
    found = Explanation(cause=("Size of input token_ids is lost.",))
    (out / "explain.json").write_text(found.to_line())
    both = "Size of input x (`token_ids` in the input program) is lost."
    came = past(out).came
    assert came is not None
    assert came.cause == (found.cause if anonymous else (both,))
    text = report_folder(out).read_text()
    assert (both in text) is not anonymous
    assert ("Size of input x is lost." in text) is anonymous


@pytest.mark.parametrize("damaged", ["", "{}", "[1]", '{"signature": 3}'])
def test_unreadable_summary_leaves_the_journal_as_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    out = over(tmp_path / "out", tmp_path / "model.pt2")
    (out / "summary.json").write_text(damaged)
    assert past(out).came is None
    assert main([str(out)]) == 0
    told = capsys.readouterr()
    assert ": this run finished on" in told.err
    assert told.out.splitlines()[-1].endswith(f"shrinkfx {tmp_path / 'model.pt2'}")


def test_interrupted_run_named_by_its_folder_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    class Goes(Exception):
        """It went on."""

    def resume(folder: str, **told: object) -> None:
        asked.append((folder, told["model"], told["max_minutes"]))
        raise Goes

    monkeypatch.setattr("shrinkfx.api.resume", resume)
    Journal(tmp_path / "journal.sqlite").close()
    with pytest.raises(Goes):
        main([str(tmp_path), "--max-minutes", "3"])
    assert asked == [(str(tmp_path), None, 3.0)]


def test_folder_without_a_run_is_not_a_run(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    (tmp_path / "minifier_launcher.py").touch()
    assert not is_run(tmp_path)
    capture = tmp_path / "capture"
    capture.mkdir()
    (capture / "end.json").touch()
    assert is_run(tmp_path)
    assert not is_run(capture)  # a program for another run


# Which variables of a shell a repro is tried without.


SHELL = {
    "TORCH_LOGS": "+dynamo",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "2",
    "OMP_NUM_THREADS": "4",
    "TORCHINDUCTOR_CACHE_DIR": "/somebody/has/room",
    "HOME": "me",
}


def test_variables_that_only_affect_output_are_not_inherited() -> None:
    assert inherited_variables(SHELL) == {
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "2",
        "OMP_NUM_THREADS": "4",
    }
    assert not inherited_variables({"MKL_VERBOSE": "1", "KMP_WARNINGS": "1"})


def test_variables_to_test_include_those_set_by_the_user() -> None:
    given = {"TORCH_LOGS": "+aot", "AOTI_RUNTIME_CHECK_INPUTS": "1"}
    assert variables_to_test(given, SHELL) == [
        "AOTI_RUNTIME_CHECK_INPUTS",
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
        "OMP_NUM_THREADS",
        "TORCH_LOGS",
    ]
    assert variables_to_test({}, {"HOME": "me"}) == []
    assert variables_to_test({"PYTHONHASHSEED": "3", "A": "b"}, {}) == ["A"]

"""Who may work in a folder, on what, and what is left there."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any, NoReturn

import pytest

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
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.run.folder import (
    RESULT,
    create_run_folder,
    load_finished_options,
    load_options_to_resume,
    open_run_folder,
    record_run_end,
)

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

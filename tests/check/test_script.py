"""A repro runs as it would for a stranger, fresh and in forks alike."""

from __future__ import annotations

import math
import os
import signal
import site
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import FakeServer, Minutes

from shrinkfx.check.client import environment
from shrinkfx.check.client.server import GUARDED_WORKER, Server
from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.uninstalled_files import ONLY_ON
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build, Guard

GUARDED = """
import os
import torch

assert "LD_PRELOAD" not in os.environ
tensor = torch.empty(25, dtype=torch.uint8)
print("against a page:", (tensor.data_ptr() + 25) % 4096 == 0)
"""

ASSERTION = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
SCRIPT = """
import os
import helper

assert helper.VALUE == 1
print("saw", sorted(k for k in os.environ if k.startswith("TORCH_TEST_")))
def compiled(): raise RuntimeError("index out of bounds: 0 <= tmp1 < 4L")
actual = compiled()
print("no longer fails")
"""


@pytest.fixture(name="runner", scope="module")
def _runner() -> Iterator[ScriptRunner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_TEST_OF_MAKER", "1")
        patch.setenv("TORCH_TEST_FOLDER", "/where/there/is/room")
        with Server(environment=None) as bare:
            yield ScriptRunner(bare, Limits(120.0, 8 << 30), Meter())


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> list[Path]:
    script, helper = tmp_path / "repro.py", tmp_path / "helper.py"
    script.write_text(SCRIPT)
    helper.write_text("VALUE = 1\n")
    return [script, helper]


@pytest.mark.torch
@pytest.mark.parametrize("how", ["fork", "fresh"])
def test_script_imports_modules_from_its_folder(
    runner: ScriptRunner, files: list[Path], how: str
) -> None:
    seen = runner.run(files, fresh=how == "fresh")
    assert ASSERTION.admits(seen.signature), seen.log


@pytest.mark.torch
@pytest.mark.parametrize("how", ["fork", "fresh"])
def test_script_inherits_only_folder_settings(
    runner: ScriptRunner, files: list[Path], how: str
) -> None:
    seen = runner.run(files, fresh=how == "fresh")
    assert "saw ['TORCH_TEST_FOLDER']" in seen.log


SEEDED = """
import os
import sys

if os.environ.get("PYTHONHASHSEED") != "3":
    os.environ["PYTHONHASHSEED"] = "3"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

print("began", sys.orig_argv[-1] == os.path.abspath(__file__), hash("a"))
def compiled(): raise RuntimeError("index out of bounds: 0 <= tmp1 < 4L")
actual = compiled()
"""


@pytest.mark.torch
def test_script_with_a_hash_seed_has_the_seed_in_forks_and_fresh_runs(
    tmp_path: Path,
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(SEEDED)
    with Server(environment=None, hash_seed="3") as bare:
        runner = ScriptRunner(bare, Limits(120.0, 8 << 30), Meter())
        seen = [runner.run([script], fresh=fresh) for fresh in (False, True)]
    assert all(ASSERTION.admits(each.signature) for each in seen), seen[1].log
    said = [
        next(line.split() for line in each.log.splitlines() if "began" in line)
        for each in seen
    ]
    assert len({number for *_, number in said}) == 1


@pytest.mark.torch
def test_passing_script_does_not_count_as_failed(
    runner: ScriptRunner, files: list[Path]
) -> None:
    files[0].write_text('print("no longer fails")')
    assert runner.run_again(files, ASSERTION) == [False, False]
    assert not runner.fails(files, ASSERTION)


@pytest.mark.torch
@pytest.mark.parametrize("how", ["fork", "fresh"])
def test_script_with_exit_status_125_passes(
    runner: ScriptRunner, files: list[Path], how: str
) -> None:
    said = "ran to its end; an illegal access need not show: ..."
    files[0].write_text(f"print({said!r})\nraise SystemExit(125)")
    seen = runner.run(files, fresh=how == "fresh")
    assert (seen.signature, seen.invalid, seen.unresolved) == (None, "", "")


@pytest.mark.torch
def test_script_that_fails_in_every_run_is_verified(
    runner: ScriptRunner, files: list[Path]
) -> None:
    assert runner.run_again(files, ASSERTION) == [True, True]
    assert runner.fails(files, ASSERTION)


THROWS = """
import ctypes, os, sys
import torch

alone = ctypes.CDLL(None).omp_get_max_active_levels() == 0
alone |= os.environ.get("OMP_THREAD_LIMIT") == "1"
words = "after throwing an instance of 'c10::Error'\\n  what():  index out of bounds: 0"
sys.stderr.write(f"terminate called {words if alone else 'recursively'}\\n")
def compiled(): os.abort()
actual = compiled()
"""


@pytest.mark.torch
@pytest.mark.parametrize("how", ["fork", "fresh"])
def test_script_without_an_exception_text_is_rerun_in_one_thread(
    runner: ScriptRunner, files: list[Path], how: str
) -> None:
    files[0].write_text(THROWS)
    seen = runner.run(files, fresh=how == "fresh")
    assert ASSERTION.admits(seen.signature), seen.log


SETS = """
import os
os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
import torch._inductor.config

def compiled(): raise RuntimeError("index out of bounds: 0 <= tmp1 < 4L")
if torch._inductor.config.max_autotune:
    actual = compiled()
print("no longer fails")
"""

READ_LATE = """
import os
os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
"""


@pytest.mark.torch
def test_variable_read_at_import_applies_to_every_run(
    runner: ScriptRunner, files: list[Path]
) -> None:
    files[0].write_text(SETS)
    assert runner.fails(files, ASSERTION)
    assert runner.run_again(files, ASSERTION) == [True, True]


@pytest.mark.torch
def test_script_has_guard_pages_only_on_request(files: list[Path]) -> None:
    files[0].write_text(GUARDED)
    with Server(environment=None, command=GUARDED_WORKER) as server:
        assert server.ready.no_guard_pages == ""
        for guard in (Guard.AFTER, Guard.OFF):
            limits = Limits(120.0, 8 << 30)
            runner = ScriptRunner(server, limits, Meter(), guard=guard)
            for fresh in (True, False):
                log = runner.run(files, fresh=fresh).log
                assert f"against a page: {guard is Guard.AFTER}" in log, log


@pytest.mark.torch
def test_server_reports_why_guard_pages_are_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with Server(environment=None, command=GUARDED_WORKER) as server:
        assert "NotADirectoryError" in server.ready.no_guard_pages


IMPORTS = """
import importlib.util, os, sys
import torch

names = ("on_path", "in_folder", "of_user")
missing = [n for n in names if not importlib.util.find_spec(n)]
print("missing", missing, "path", sys.path[1:], "script in", sys.path[0] == os.getcwd())
print("ours", [name for name in sys.modules if name.partition(".")[0] == "shrinkfx"])
print("files", sorted(os.listdir()), "home", os.listdir(os.path.expanduser("~")))
print("variables", sorted(k for k in os.environ if k.startswith(("PYTHON", "XDG_"))))
from on_path import VALUE
"""
HOME_OF_USER = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


@pytest.fixture(name="runner_with_user_modules", scope="module")
def _runner_with_user_modules(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ScriptRunner]:
    """A runner of somebody who has modules of their own wherever Python looks."""
    home = tmp_path_factory.mktemp("home")
    for place, name in [
        ("path", "on_path"),
        ("folder", "in_folder"),
        (f"base/{HOME_OF_USER}", "of_user"),
    ]:
        (home / place).mkdir(parents=True)
        (home / place / f"{name}.py").write_text("VALUE = 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home / "folder")
        patch.setenv("PYTHONPATH", f"{home / 'path'}")
        patch.setenv("PYTHONUSERBASE", f"{home / 'base'}")
        patch.setenv("PYTHONSTARTUP", f"{home / 'path' / 'on_path.py'}")
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CONFIG_HOME", str(home))
        with Server(environment=None) as bare:
            yield ScriptRunner(bare, Limits(120.0, 8 << 30), Meter())


@pytest.mark.torch
@pytest.mark.parametrize("how", ["fork", "fresh"])
def test_script_imports_no_module_of_the_user(
    runner_with_user_modules: ScriptRunner, tmp_path: Path, how: str
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(IMPORTS)
    seen = runner_with_user_modules.run([script], fresh=how == "fresh")
    assert seen.signature is None
    assert "No module named 'on_path'" in seen.invalid
    path = subprocess.run(
        [sys.executable, "-s", "-c", "import sys; print(sys.path[1:])"],
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        capture_output=True,
        check=True,
        text=True,
    ).stdout.strip()
    missing = ["on_path", "in_folder", "of_user"]
    assert f"missing {missing} path {path} script in True" in seen.log
    assert "ours []" in seen.log
    assert "files ['repro.py'] home []" in seen.log
    assert "variables ['PYTHONNOUSERSITE', 'PYTHONUNBUFFERED']" in seen.log


def test_pythonpath_is_kept_if_torch_is_only_found_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    makers = {"PYTHONPATH": "/of/torch", "PYTHONSTARTUP": "/x.py", "PATH": "/bin"}
    monkeypatch.setattr(environment, "has_torch", lambda: False)
    kept = environment.remove_python_variables(makers)
    assert kept.pop("PYTHONUSERBASE") == site.getuserbase()
    assert kept == {"PYTHONPATH": "/of/torch", "PATH": "/bin"}


def test_repro_that_uses_local_files_is_not_verified(
    tmp_path: Path,
) -> None:
    failing = Ending("exit", code=1, log="RuntimeError: index out of bounds")
    server, notes = FakeServer(lambda _: failing), list[str]()
    limits = Limits(60.0, 1 << 30)
    runner = ScriptRunner(server, limits, Meter(), note=notes.append)
    script = tmp_path / "repro.py"
    script.write_text(f"# CRASH\n#\n# {ONLY_ON} the machine that has table.txt\n")
    assert runner.run_again([script], ASSERTION) == [False, False]
    assert server.asked == []
    assert "files of this machine" in notes[0]
    script.write_text(f"# CRASH\nimport torch\n# {ONLY_ON} linux\n")
    runner.run_again([script], ASSERTION)
    assert len(server.asked) == 2


FAILS = Ending("exit", code=1, log="RuntimeError: index out of bounds", seconds=2.0)
PASSES = Ending("exit", log="no longer fails\n", seconds=2.0)
LATE = Ending("late", stage="run", seconds=20.0)
KILLED = Ending("signal", signal.SIGKILL, seconds=2.0)
SERVER = Ending("server", log="the worker died with SIGKILL")


def answered(
    folder: Path, *endings: Ending, left: float = math.inf
) -> tuple[list[bool | None], int, list[str]]:
    """Run a repro again that ends so, and then always as it did last."""
    notes, server = list[str](), FakeServer(*endings)
    runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter(), note=notes.append)
    script = folder / "repro.py"
    script.write_text("def compiled(): ...\nactual = compiled()\n")
    failed = runner.run_again([script], ASSERTION, Minutes(left))
    return failed, len(server.asked), notes


@pytest.mark.parametrize("silent", [LATE, KILLED, Ending("cancelled"), Ending("lost")])
def test_inconclusive_verification_run_is_repeated_once(
    tmp_path: Path, silent: Ending
) -> None:
    failed, asked, notes = answered(tmp_path, silent, FAILS)
    assert (failed, asked) == ([True, True], 3)
    assert len(notes) == 1
    assert notes[0].startswith("a run of the repro was inconclusive: ")
    failed, asked, notes = answered(tmp_path, silent, silent, FAILS)
    assert (failed, asked, len(notes)) == ([None, True], 3, 2)


def test_conclusive_verification_run_is_not_repeated(tmp_path: Path) -> None:
    """A repro that hangs, or needs too much memory, has done otherwise itself."""
    for ending in (PASSES, Ending("timeout", stage="run"), Ending("memory")):
        failed, asked, notes = answered(tmp_path, ending)
        assert (failed, asked) == ([False, False], 2)
        assert all(
            "a run of the repro had a different outcome:" in note for note in notes
        )


def test_verification_run_that_kills_the_server_twice_is_not_repeated(
    tmp_path: Path,
) -> None:
    failed, asked, _ = answered(tmp_path, SERVER)
    assert (failed, asked) == ([None, None], 2)


def test_inconclusive_run_is_not_repeated_if_time_is_short(
    tmp_path: Path,
) -> None:
    failed, asked, _ = answered(tmp_path, LATE, FAILS, left=19.0)
    assert (failed, asked) == ([None], 1)


def test_inconclusive_first_run_is_repeated_once(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text("def compiled(): ...\nactual = compiled()\n")
    for endings, fails in (
        ([LATE, FAILS], True),
        ([LATE, PASSES], False),
        ([LATE, LATE], None),
    ):
        server = FakeServer(*endings)
        runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter())
        assert runner.fails([script], ASSERTION) is fails


def test_repro_is_not_rerun_if_time_is_short(tmp_path: Path) -> None:
    failing = Ending("exit", code=1, log="RuntimeError: index out of bounds")
    failing = replace(failing, seconds=20.0)
    script = tmp_path / "repro.py"
    script.write_text("def compiled(): ...\nactual = compiled()\n")
    for left, times in ((100.0, 2), (19.0, 0)):
        server = FakeServer(lambda _: failing)
        runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter())
        runner.fails([script], ASSERTION)
        assert len(runner.run_again([script], ASSERTION, Minutes(left))) == times


def test_script_that_failed_in_a_fresh_interpreter_is_rerun_in_forks(
    tmp_path: Path,
) -> None:
    failing = Ending("exit", code=1, log="RuntimeError: index out of bounds: 0 <= t")
    passing = Ending("exit", code=0, log="no longer fails")
    script = tmp_path / "repro.py"
    for first, text, ways in (
        (failing, SCRIPT, [True, False, False]),
        (passing, SCRIPT, [True, True, False]),  # another script comes to be failing
        (failing, SETS, [True, True, True]),
        (failing, READ_LATE + SCRIPT, [True, False, False]),
    ):
        script.write_text(text)
        server = FakeServer(first, failing)
        runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter(), afresh_first=True)
        runner.fails([script], ASSERTION)
        runner.run_again([script], ASSERTION)
        assert [request.fresh for request in server.asked] == ways


@pytest.mark.parametrize(
    ("endings", "fails", "ways"),
    [
        ([PASSES], False, [(False, Build.FAST)]),
        ([KILLED], None, [(False, Build.FAST)]),
        ([FAILS, FAILS], True, [(False, Build.FAST), (True, Build.STOCK)]),
        ([FAILS, PASSES], False, [(False, Build.FAST), (True, Build.STOCK)]),
    ],
)
def test_unlikely_repro_is_tried_with_a_fast_build_first(
    tmp_path: Path,
    endings: list[Ending],
    fails: bool | None,
    ways: list[tuple[bool, Build]],
) -> None:
    script, server = tmp_path / "repro.py", FakeServer(*endings)
    script.write_text("def compiled(): ...\nactual = compiled()\n")
    runner = ScriptRunner(
        *(server, Limits(60.0, 1 << 30), Meter()),
        afresh_first=True,
        build=Build.FAST,
    )
    assert runner.fails([script], ASSERTION, is_likely=False) is fails
    asked = [(request.fresh, request.options.build) for request in server.asked]
    assert asked == ways
    assert len(runner.times) == len(ways) - 1, "of runs as a stranger's"


def test_script_that_sets_import_time_variables_is_not_run_in_a_fork(
    tmp_path: Path,
) -> None:
    script, server = tmp_path / "repro.py", FakeServer(PASSES)
    script.write_text(SETS)
    runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter(), build=Build.FAST)
    assert runner.fails([script], ASSERTION, is_likely=False) is False
    assert [request.fresh for request in server.asked] == [True]
    assert runner.seems_to_fail([script], ASSERTION) is False
    last = server.asked[-1]
    assert (last.fresh, last.options.build) == (True, Build.STOCK)


@pytest.mark.parametrize(
    ("ending", "seems_to"), [(PASSES, False), (KILLED, None), (FAILS, True)]
)
def test_seems_to_fail_does_not_count_as_a_verification_run(
    tmp_path: Path, ending: Ending, seems_to: bool | None
) -> None:
    script, server = tmp_path / "repro.py", FakeServer(ending)
    script.write_text("def compiled(): ...\nactual = compiled()\n")
    runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter(), build=Build.FAST)
    assert runner.seems_to_fail([script], ASSERTION) is seems_to
    asked = [(request.fresh, request.options.build) for request in server.asked]
    assert set(asked) == {(False, Build.FAST)}
    assert (runner.times, runner.logs) == ([], [])
    before = len(server.asked)
    assert runner.seems_to_fail([script], ASSERTION) is seems_to
    assert (len(server.asked) > before) is (seems_to is None)
    script.write_text("def compiled(): ...\nresult = compiled()\n")
    assert runner.seems_to_fail([script], ASSERTION) is seems_to
    assert len(server.asked) > before, "for another text"


COMPILES = """
program = torch.export.export(model, args)
package = torch._inductor.aoti_compile_and_package(program)
actual = compiled(*args)
"""


def _ended_in_line(line: int) -> Ending:
    frame = f'  File "repro.py", line {line} in <module>'
    return Ending("timeout", log=f"Thread 1 (most recent call first):\n{frame}\n")


IN_COMPILE, IN_RUN = _ended_in_line(3), _ended_in_line(4)
HANG = Signature(Kind.HANG, Stage.RUN)


@pytest.mark.parametrize(
    ("timeout_s", "endings", "target", "limits"),
    [
        (10.0, [IN_COMPILE, IN_RUN], HANG, [10.0, 60.0, 60.0, 60.0]),
        (10.0, [IN_COMPILE], replace(HANG, stage=Stage.COMPILE), [10.0] * 3),
        (100.0, [IN_RUN], HANG, [100.0] * 3),
    ],
)
def test_script_that_times_out_while_compiling_is_rerun_with_more_time(
    tmp_path: Path,
    timeout_s: float,
    endings: list[Ending],
    target: Signature,
    limits: list[float],
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(COMPILES)
    server, notes = FakeServer(*endings), list[str]()
    limited = Limits(timeout_s, 1 << 30)
    runner = ScriptRunner(server, limited, Meter(), note=notes.append)
    assert runner.fails([script], target)
    assert runner.run_again([script], target) == [True, True]
    assert [request.timeout_s for request in server.asked] == limits
    assert len([note for note in notes if "with 60 s" in note]) == len(limits) - 3


def test_script_that_times_out_twice_while_compiling_has_not_failed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "repro.py"
    script.write_text(COMPILES)
    server = FakeServer(IN_COMPILE)
    runner = ScriptRunner(server, Limits(10.0, 1 << 30), Meter())
    assert runner.fails([script], HANG) is False
    assert [request.timeout_s for request in server.asked] == [10.0, 60.0]


def test_independent_runs_use_fresh_interpreters_and_paddings(
    tmp_path: Path,
) -> None:
    server = FakeServer(FAILS)
    runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter(), independent=4)
    script = tmp_path / "repro.py"
    script.write_text("actual = compiled()\n")
    assert runner.fails([script], ASSERTION)
    assert runner.run_again([script], ASSERTION) == [True] * 3
    assert all(request.fresh for request in server.asked)
    assert len({asked["padding"] for asked in server.arguments}) == 4


@pytest.mark.parametrize(("measures_rate", "runs"), [(False, 2), (True, 4)])
def test_passing_run_ends_independent_runs_unless_the_rate_is_measured(
    tmp_path: Path, measures_rate: bool, runs: int
) -> None:
    runner = ScriptRunner(
        FakeServer(FAILS, PASSES, FAILS),
        *(Limits(60.0, 1 << 30), Meter()),
        independent=4,
        measures_rate=measures_rate,
    )
    script = tmp_path / "repro.py"
    script.write_text("def compiled(): ...\nactual = compiled()\n")
    failed = [runner.fails([script], ASSERTION), *runner.run_again([script], ASSERTION)]
    assert failed == [True, False, True, True][:runs]


@pytest.mark.torch
def test_padding_enlarges_the_environment_of_a_fresh_interpreter(
    tmp_path: Path,
) -> None:
    script = tmp_path / "repro.py"
    script.write_text("import os\nprint('size', len(os.environ.get('PADDING', '')))")
    with Server(environment=None) as bare:
        limits = Limits(120.0, 8 << 30)
        runner = ScriptRunner(bare, limits, Meter(), independent=2)
        logs = [runner.run([script], fresh=True).log for _ in range(2)]
    sizes = [int(log.rpartition("size ")[2]) for log in logs]
    assert sizes[0] < sizes[1]

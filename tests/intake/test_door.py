"""From what a user names to a program in the folder of a run; no worker is started."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.dumped import LAUNCHER, RUNNABLE

from shrinkfx import api
from shrinkfx import api as reducing
from shrinkfx.cli.main import main
from shrinkfx.errors import (
    LoadError,
    NotCuttable,
    NotReproducible,
    UsageError,
)
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.intake import resolve_input
from shrinkfx.intake.dump import read_script
from shrinkfx.intake.resolve_input import (
    AskWorker,
    find_changed_settings,
    locate,
    resolve_program,
)
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.protocol.answers import (
    Answer,
    Done,
    Ending,
    Exported,
    Raised,
    Settings,
)
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import ExportRunnable, ReadSettings, Task
from shrinkfx.run.sweep import SweepFinding, Swept
from shrinkfx.sweep.examples import SweepFailure
from shrinkfx.system.folders import is_folder_locked

DEFAULTS: Mapping[str, object] = {
    "comprehensive_padding": True,
    "max_autotune": False,
    "freezing": True,
    "cpp.threads": -1,
    "torch._dynamo.config.specialize_int": True,
    "torch._functorch.config.cse": True,
}


class FakeWorker:
    """A worker that knows those defaults, and answers as it is told."""

    def __init__(self, answer: Answer | None = None, how: str = "exit") -> None:
        self.answer, self.how = answer or Exported(2, 0, (), 0), how
        self.asked: list[Task] = []
        self.said: list[str] = []

    @contextmanager
    def worker(self, *_: object, **__: object) -> Iterator[AskWorker]:
        yield self.ask

    def ask(self, task: Task) -> Ending:
        self.asked.append(task)
        match task:
            case ReadSettings():
                return Ending("exit", answer=Settings(DEFAULTS, (), False))
            case ExportRunnable():
                Path(task.program).write_text("exported")
        return Ending(self.how, 11 if self.how == "signal" else 0, answer=self.answer)


@pytest.fixture
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    worker = FakeWorker()
    monkeypatch.setattr(resolve_input, "bare_worker", worker.worker)
    return worker


def take(options: Options, report: Callable[[str], None]) -> Options:
    with resolve_program(options, report) as asked:
        return asked


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("e/models/model.json", "{}")
    return path


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """What a minifier has left, moved here from another machine."""
    folder = tmp_path / "moved" / "minifier"
    program(folder / "checkpoints" / "e.pt2")
    (folder / "minifier_launcher.py").write_text(LAUNCHER)
    return folder


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "fx_graph_runnable_3.txt"
    path.write_text(RUNNABLE)
    return path


def test_program_file_is_used_unchanged(tmp_path: Path) -> None:
    options = Options(tmp_path / "model.pt2")
    assert take(options, pytest.fail) is options


def test_program_of_dump_is_copied_to_run_folder(
    dump: Path, fake_worker: FakeWorker
) -> None:
    out = dump.parent / "out"
    asked = Options(dump, out=out, inductor={"max_autotune": False})
    options = take(asked, fake_worker.said.append)
    assert options.model == out / "intake" / "program.pt2"
    assert options.model.read_bytes() == (dump / "checkpoints/e.pt2").read_bytes()
    assert options.inductor == {"comprehensive_padding": False, "max_autotune": False}
    assert options.environment == {"TORCHINDUCTOR_FREEZING": "1"}
    assert options.out == out
    assert f"loads {dump}/checkpoints/e.pt2" in fake_worker.said[0]


def test_missing_program_of_dump_is_named(dump: Path, fake_worker: FakeWorker) -> None:
    (dump / "checkpoints" / "e.pt2").unlink()
    out = dump.parent / "out"
    with pytest.raises(
        LoadError, match=r"does not exist, not even next to .*\n.*put e.pt2 next to"
    ):
        take(Options(dump, out=out), fake_worker.said.append)
    assert not out.exists()


def test_moved_file_is_located_by_end_of_its_path(tmp_path: Path) -> None:
    script = tmp_path / "here" / "repro.py"
    near, nearer = tmp_path / "here/e.pt2", tmp_path / "here/checkpoints/e.pt2"
    named = "/home/who/minifier/checkpoints/e.pt2"
    assert locate(named, script) is None
    assert locate("", script) is None
    program(near)
    assert locate(named, script) == near
    assert locate("e.pt2", script) == near
    program(nearer)
    assert locate(named, script) == nearer
    assert locate("checkpoints/e.pt2", script) == nearer
    assert locate(str(near), script) == near


def test_only_settings_that_differ_from_defaults_are_kept(
    fake_worker: FakeWorker,
) -> None:
    text = f"{LAUNCHER}\ntorch._functorch.config.cse = False\n"
    script = read_script(Path("a.py"), text)
    inductor, said = find_changed_settings(fake_worker.ask, script)
    assert inductor == {"comprehensive_padding": False, "max_autotune": True}
    assert said == (
        "with the settings: comprehensive_padding=False, max_autotune=True",
        "omitted settings that are not of Inductor: torch._functorch.config.cse=False",
        "omitted settings that this version of PyTorch lacks: "
        "torch.fx.experimental._config.use_duck_shape",
    )


def test_code_is_run_only_with_run_code_option(
    graph: Path, fake_worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(graph), "--no-progress", "--out", str(graph.parent / "o")]) == 2
    said = capsys.readouterr().err
    assert f"it runs these {len(RUNNABLE.splitlines())} lines of Python" in said
    assert "--run-code" in said
    assert not fake_worker.asked
    assert not (graph.parent / "o").exists()


def test_graph_is_exported_into_run_folder(
    graph: Path, fake_worker: FakeWorker
) -> None:
    out = graph.parent / "out"
    fake_worker.answer = Exported(2, 1, ("s1",), 3)
    asked = Options(graph, out=out, run_code=True, until="crash")
    options = take(asked, fake_worker.said.append)
    there = (out / "intake").resolve()
    code = there / "fx_graph_runnable.py"
    assert fake_worker.asked[0] == ExportRunnable(
        str(code), "", "", str(there / "program.pt2")
    )
    assert code.read_text() == RUNNABLE
    program = out / "intake" / "program.pt2"
    assert options == replace(
        asked, name=graph.name, model=program, backend=Backend.INDUCTOR
    )
    said = "\n".join(fake_worker.said)
    assert "1 of 2 inputs have generated values" in said
    assert "numbers kept as constants: s1" in said
    assert "omitted 3 results of the graph that are not tensors" in said


def test_saved_values_are_looked_up_next_to_moved_graph(
    graph: Path, fake_worker: FakeWorker
) -> None:
    graph.write_text(RUNNABLE.replace("save_dir=None", "save_dir='/gone/checkpoints'"))
    (graph.parent / "checkpoints").mkdir()
    out = graph.parent / "out"
    take(Options(graph, out=out, run_code=True), fake_worker.said.append)
    export, *_ = fake_worker.asked
    assert isinstance(export, ExportRunnable)
    assert export.save_dir == str((graph.parent / "checkpoints").resolve())
    assert repr(export.save_dir) in Path(export.path).read_text()


@pytest.mark.parametrize(
    ("answer", "how", "says"),
    [
        (Raised("NameError", "name 'x' is\nnot defined"), "exit", "NameError: name"),
        (None, "signal", "it died of SIGSEGV"),
        (None, "timeout", "it did not end within"),
        (None, "memory", "more memory"),
        (None, "exit", "it ended with exit 0"),
    ],
)
def test_failed_export_leaves_no_folder(
    graph: Path, fake_worker: FakeWorker, answer: Answer | None, how: str, says: str
) -> None:
    fake_worker.answer, fake_worker.how = answer or Done(), how
    out = graph.parent / "out"
    with pytest.raises(LoadError, match=says):
        take(Options(graph, out=out, run_code=True), fake_worker.said.append)
    assert not out.exists()


def test_folder_that_contains_a_run_is_refused(
    dump: Path, fake_worker: FakeWorker
) -> None:
    out = dump.parent / "out"
    out.mkdir()
    (out / "journal.sqlite").touch()
    with pytest.raises(UsageError, match=f"shrinkfx --resume {out}"):
        take(Options(dump, out=out), fake_worker.said.append)
    assert not fake_worker.asked
    assert not (out / "intake").exists()


def test_folder_in_use_by_another_run_is_left_unchanged(
    dump: Path, fake_worker: FakeWorker
) -> None:
    out = dump.parent / "out"
    with (
        ThreadPoolExecutor(1) as another,
        resolve_program(Options(dump, out=out), print),
    ):
        theirs = out / "intake" / "program.pt2"
        theirs.write_text("theirs")
        begun = another.submit(take, Options(dump, out=out), fake_worker.said.append)
        with pytest.raises(UsageError, match="another shrinkfx is running"):
            begun.result(60)
        assert theirs.read_text() == "theirs"
    assert not (out / ".lock").exists()
    assert fake_worker.said == []


def test_missing_inputs_file_is_reported_before_folder_is_created(
    dump: Path, fake_worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    out = dump.parent / "out"
    given = [str(dump), "--inputs", "nowhere.pt", "--out", str(out), "--no-progress"]
    assert main(given) == 2
    assert "nowhere.pt: no such file" in capsys.readouterr().err
    assert not fake_worker.asked
    assert not out.exists()


def test_explain_with_dump_folder_starts_new_run(
    dump: Path, fake_worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--explain`` beside it is asked of the new run."""
    (dump / "checkpoints" / "e.pt2").unlink()
    out = dump.parent / "out"
    assert main([str(dump), "--explain", "--out", str(out), "--no-progress"]) == 2
    assert "does not exist, not even next to the script" in capsys.readouterr().err


def test_folder_with_unrelated_files_is_left_unchanged(
    fake_worker: FakeWorker, tmp_path: Path
) -> None:
    theirs = tmp_path / "out" / "intake" / "notes.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    script = tmp_path / "minifier_launcher.py"
    script.write_text(LAUNCHER)
    with pytest.raises(UsageError, match=r"contains other files \("):
        take(Options(model=script, out=tmp_path / "out"), fake_worker.said.append)
    assert theirs.read_text() == "mine"
    theirs.rename(tmp_path / "out" / "notes.txt")
    with pytest.raises(LoadError, match="does not exist, not even next to the script"):
        take(Options(model=script, out=tmp_path / "out"), fake_worker.said.append)
    assert (tmp_path / "out" / "notes.txt").exists()


NOTHING = NotReproducible("any", 3, ["passes"], "")


@pytest.mark.parametrize(
    ("error", "status"),
    [(NOTHING, ["does not fail"]), (NotCuttable("any", "crash", ["passes"]), [])],
)
def test_run_of_dump_that_does_not_fail_is_listed(
    dump: Path, fake_worker: FakeWorker, error: NotReproducible, status: list[str]
) -> None:
    options = Options(dump, out=dump.parent / "out")
    with (
        pytest.raises(NotReproducible),
        resolve_program(options, fake_worker.said.append),
    ):
        raise error
    listed = api.runs(dump.parent)
    assert [run.status for run in listed] == status
    assert all(run.program == dump.name and not run.may_go_on for run in listed)
    with resolve_program(options, fake_worker.said.append):
        assert api.runs(dump.parent) == []  # a run is about to begin


def test_dump_is_swept_and_sweep_finding_is_reduced(
    dump: Path, fake_worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are of one program, and the folder is kept until both are over."""
    out = dump.parent / "out"
    failure = SweepFailure((33,), Signature(Kind.NAN, Stage.COMPARE), (32,), 1, 1)
    failing, passing = out / "failing-1.pt", out / "passing-1.pt"
    target = SweepFinding(failure, {"s0": 33}, {"s0": 32}, failing, passing)
    asked: list[tuple[str, Options, bool]] = []

    def run_sweep(options: Options, folder: Path, _: object) -> Swept:
        asked.append(("sweep", options, is_folder_locked(folder)))
        return Swept("found", (target,), target, "", folder, {})

    def run(options: Options, folder: Path, _: object) -> None:
        asked.append(("reduce", options, is_folder_locked(folder)))

    monkeypatch.setattr(reducing, "run_sweep", run_sweep)
    monkeypatch.setattr(reducing, "run", run)
    options = Options(dump, out=out, sweeping=Sweeping())
    with api.taken_in(options) as found:
        swept = api.sweep(found)
        api.reduce_found(found, swept)
    assert [what for what, *_ in asked] == ["sweep", "reduce"]
    for _, options, was_taken in asked:
        assert was_taken
        assert options.model == out / "intake" / "program.pt2"
        assert options.inductor == {
            "comprehensive_padding": False,
            "max_autotune": True,
        }
    (_, sweep, _), (_, reduce, _) = asked
    assert (sweep.inputs, reduce.inputs) == (None, failing)

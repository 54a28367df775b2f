"""Objects of this process become files of a run, and what they need is preloaded."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shrinkfx
from shrinkfx import api as reducing
from shrinkfx.errors import LoadError, StorageError, UsageError
from shrinkfx.events import NoteAdded
from shrinkfx.intake.in_memory import ObjectInput, save_object
from shrinkfx.intake.preload_choice import choose_session_preloads
from shrinkfx.options.options import Options
from shrinkfx.protocol.captured import CapturedProgram, Origin
from shrinkfx.worker.intake.objects import find_registrations

OPERATORS = """
import torch
@torch.library.custom_op("{name}::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
"""


class Small(nn.Module):
    """``x @ weight``, the weight held twice: (3, 4) from (3, 200)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(200, 4))
        self.tied = self.weight

    def forward(self, x: Tensor, *, bias: Tensor) -> Tensor:
        return (x @ self.weight) + (x @ self.tied) + bias


class Custom(nn.Module):
    """Calls a custom operator."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        done: Tensor = getattr(torch.ops, self.name).twice(x)
        return done


X, BIAS = torch.ones(3, 200), {"bias": torch.ones(4)}


@pytest.fixture(name="run_options")
def _run_options(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Collect what runs are asked for; each leaves a journal."""
    run_options: list[Options] = []

    def run(options: Options, out: Path, _: object) -> None:
        (out / "journal.sqlite").touch()
        run_options.append(options)

    monkeypatch.setattr(reducing, "run", run)
    return run_options


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_module_is_exported_and_saved_once_in_run_folder(
    run_options: list[Options],
) -> None:
    shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS, until="nan")
    (options,) = run_options
    assert options.model == Path("shrinkfx-out/Small-1/intake/program.pt2")
    assert options.out == Path("shrinkfx-out/Small-1")
    assert (options.until, options.inputs, options.preload) == ("nan", None, ())
    assert options.command == "shrinkfx.minify(module, args=..., kwargs=...)"
    assert options.called == "Small"
    with zipfile.ZipFile(options.model) as archive:
        weights = [n for n in archive.namelist() if "/weights/weight_" in n]
    assert len(weights) == 1
    assert [*options.model.parent.iterdir()] == [options.model]


def test_function_is_exported_as_a_module(run_options: list[Options]) -> None:
    def scaled(x: Tensor, by: Tensor) -> Tensor:
        return x * by

    shrinkfx.minify(scaled, args=(X, BIAS["bias"][0]), backend="inductor")
    (options,) = run_options
    assert (options.called, options.backend) == ("scaled", "inductor")
    result = torch.export.load(options.model).module()(X, torch.tensor(3.0))
    assert torch.equal(result, X * 3)


def test_exported_program_is_saved_with_failing_inputs(
    run_options: list[Options], tmp_path: Path
) -> None:
    program = torch.export.export(Small().eval(), (X,), BIAS)
    shrinkfx.minify(program, out=tmp_path / "a")
    shrinkfx.minify(program, args=(X * 2,), kwargs=BIAS, out=tmp_path / "b")
    without, failing = run_options
    assert without.inputs is None
    assert failing.inputs == tmp_path / "b" / "intake" / "inputs.pt"
    saved = torch.load(failing.inputs, weights_only=True)
    assert torch.equal(saved["args"][0], X * 2)
    assert saved["kwargs"].keys() == {"bias"}


def test_same_object_is_saved_as_same_bytes_and_other_object_is_refused(
    run_options: list[Options], tmp_path: Path
) -> None:
    """So a cell that is run again is told that its run is there."""
    out, options = tmp_path / "out", Options(Path(), out=tmp_path / "out")
    program = torch.export.export(Small().eval(), (X,), BIAS)
    shrinkfx.minify(program, out=out)
    before = run_options[0].model.read_bytes()
    with save_object(ObjectInput(program), options) as (again, _):
        assert again.model.read_bytes() == before
    other = torch.export.export(Small().double().eval(), (X.double(),), BIAS)
    with pytest.raises(UsageError, match="contains a run of another program:"):
        shrinkfx.minify(other, out=out)
    assert run_options[0].model.read_bytes() == before


def test_second_run_in_same_folder_is_refused_while_first_is_active(
    run_options: list[Options], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    program = torch.export.export(Small().eval(), (X,), BIAS)
    options = Options(Path(), out=out)
    with (
        ThreadPoolExecutor(1) as another,
        save_object(ObjectInput(program), options) as (mine, _),
    ):
        before = mine.model.read_bytes()
        theirs = another.submit(shrinkfx.minify, program, args=(X,), out=out)
        with pytest.raises(UsageError, match="another shrinkfx is running"):
            theirs.result(120)
        assert mine.model.read_bytes() == before
        assert [*mine.model.parent.iterdir()] == [mine.model]
    assert run_options == []
    assert not out.exists()


def test_refused_run_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise UsageError("no")

    monkeypatch.setattr(reducing, "run", fail)
    with pytest.raises(UsageError, match="no"):
        shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    mine = tmp_path / "intake" / "mine.txt"
    mine.parent.mkdir()
    mine.touch()
    with pytest.raises(UsageError, match="no"):
        shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS, out=tmp_path)
    assert [*mine.parent.iterdir()] == [mine]


def test_training_mode_is_reported_and_kept(run_options: list[Options]) -> None:
    module, told = Small(), list[str]()

    def listen(event: object) -> None:
        if isinstance(event, NoteAdded):
            told.append(event.text)

    shrinkfx.minify(module, args=(X,), kwargs=BIAS, listener=listen)
    assert "Small is in training mode" in "\n".join(told)
    assert module.training
    assert len(run_options) == 1


class Unsure(nn.Module):
    """What export refuses: a branch on a value."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("program", "more", "said"),
    [
        (3, {}, "of type int"),
        (Small(), {}, "pass args="),
        ("model.pt2", {"args": (X,)}, "inputs=FILE"),
        ("model.pt2", {"dynamic_shapes": {}}, "has its own"),
        (None, {}, "of type NoneType"),
    ],
)
def test_inconsistent_arguments_are_refused(
    program: object, more: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        shrinkfx.minify(program, **more)  # type: ignore[arg-type]


def test_error_of_export_is_the_cause_of_load_error() -> None:
    with pytest.raises(LoadError, match=r"Unsure: torch\.export refuses it") as told:
        shrinkfx.minify(Unsure().eval(), args=(X,))
    assert told.value.__cause__ is not None
    assert not Path("shrinkfx-out").exists()


def test_unsavable_program_raises_load_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("No registered serialization name for Box")

    monkeypatch.setattr(torch.export, "save", refuse)
    monkeypatch.setattr("shrinkfx.worker.intake.objects.save_as_source", refuse)
    with pytest.raises(LoadError, match="register_dataclass"):
        shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS)
    assert not any(Path("shrinkfx-out").rglob("*.pt2"))


def test_full_disk_raises_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file data.pkl")

    monkeypatch.setattr(torch.export, "save", fail)
    with pytest.raises(StorageError, match="free some space"):
        shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS)


# --- what registers custom operators


@pytest.fixture(name="imported")
def _imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Import a module that registers one; its folder is on the path here alone."""
    folder = tmp_path / "lib"
    folder.mkdir()
    name = f"ops_{abs(hash(str(tmp_path)))}"
    (folder / f"{name}.py").write_text(OPERATORS.format(name=name))
    monkeypatch.syspath_prepend(str(folder))
    importlib.import_module(name)
    yield name
    sys.modules.pop(name, None)


def test_module_importable_only_in_this_process_is_preloaded_by_file(
    run_options: list[Options], imported: str, tmp_path: Path
) -> None:
    shrinkfx.minify(Custom(imported).eval(), args=(X,))
    assert run_options[0].preload == (str(tmp_path / "lib" / f"{imported}.py"),)


def test_module_importable_in_new_process_is_preloaded_by_name(
    run_options: list[Options],
    imported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path / "lib")
    shrinkfx.minify(Custom(imported).eval(), args=(X,))
    assert run_options[0].preload == (imported,)


def test_module_of_package_off_path_is_preloaded_by_generated_file(
    run_options: list[Options], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a captured script's is."""
    name = f"pkg_{abs(hash(str(tmp_path)))}"
    package = tmp_path / "lib" / name
    package.mkdir(parents=True)
    (package / "ops.py").write_text(OPERATORS.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    importlib.import_module(f"{name}.ops")
    shrinkfx.minify(Custom(name).eval(), args=(X,), out=tmp_path / "out")
    (preload,) = map(Path, run_options[0].preload)
    assert preload.parent == tmp_path / "out" / "intake"
    text = preload.read_text()
    assert f"sys.path.insert(0, {str(tmp_path / 'lib')!r})" in text
    assert f"import {name}.ops" in text
    command = [sys.executable, "-W", "ignore", str(preload)]
    subprocess.run(command, cwd="/", check=True)


def test_operators_defined_in_main_are_refused_with_advice(
    run_options: list[Options], tmp_path: Path
) -> None:
    """As in a cell of a notebook, whose module is ``__main__``."""
    name = f"typed_{abs(hash(str(tmp_path)))}"
    cell = types.ModuleType("__main__")
    exec(OPERATORS.format(name=name), cell.__dict__)
    with pytest.raises(UsageError, match=f"{name}::twice: .*%%writefile my_ops.py"):
        shrinkfx.minify(Custom(name).eval(), args=(X,))
    Path("my_ops.py").write_text(OPERATORS.format(name=name))
    shrinkfx.minify(Custom(name).eval(), args=(X,), preload="my_ops.py")
    assert run_options[0].preload == ("my_ops.py",)


def test_operator_registered_with_library_api_is_found(imported: str) -> None:
    name = f"lib_{imported}"
    library: Any = torch.library.Library(name, "DEF")  # type: ignore[no-untyped-call]
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{name}::twice", torch.empty_like, lib=library)
    program = torch.export.export(Custom(name).eval(), (X,))
    (found,) = find_registrations(program)
    assert (found.why, found.module) == (f"{name}::twice", __name__)


# --- what the session has put into Inductor

PASSES = """
import torch._inductor.config as config
from torch._inductor.custom_graph_pass import CustomGraphPass
class Nothing(CustomGraphPass):
    def __call__(self, graph):
        pass
    def uuid(self):
        return "nothing"
def put():
    config.post_grad_custom_pre_pass = Nothing()
def put_what_has_no_name():
    config.post_grad_custom_pre_pass = lambda graph: None
config.post_grad_custom_post_pass = Nothing()
"""


def test_run_uses_inductor_settings_of_session(run_options: list[Options]) -> None:
    with torch._inductor.config.patch({"max_autotune": True, "epilogue_fusion": False}):
        shrinkfx.minify(
            Small().eval(), args=(X,), kwargs=BIAS, inductor={"epilogue_fusion": True}
        )
    shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS)
    assert run_options[0].inductor == {"max_autotune": True, "epilogue_fusion": True}
    assert run_options[1].inductor == {}


def collect_notes() -> tuple[list[str], Callable[[object], None]]:
    """Give a list, and a listener that puts into it what is noted."""
    told: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, NoteAdded):
            told.append(event.text)

    return told, listen


def test_module_of_active_pass_is_preloaded_and_lambda_is_reported(
    run_options: list[Options],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "live_passes.py").write_text(PASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    told, listen = collect_notes()
    config = torch._inductor.config
    names = "post_grad_custom_post_pass", "post_grad_custom_pre_pass"
    with config.patch(dict.fromkeys(names)):
        module = importlib.import_module("live_passes")
        shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS, listener=listen)
        assert not any("cannot be copied to other processes" in said for said in told)
        assert any(
            "preloading module `live_passes`, which defines or changes " in said
            for said in told
        )
        module.put()
        shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS, listener=listen)
        assert not any("cannot be copied to other processes" in said for said in told)
        module.put_what_has_no_name()
        shrinkfx.minify(Small().eval(), args=(X,), kwargs=BIAS, listener=listen)
        (said,) = (
            said for said in told if "cannot be copied to other processes" in said
        )
        assert names[1] in said
        assert names[0] not in said
        assert "preload='passes'" in said
        assert "--" not in said
    sys.modules.pop("live_passes")
    first, second, third = run_options
    assert first.preload == third.preload == ("live_passes",)
    assert (first.lacking, second.lacking, third.lacking) == ((), (), (said,))
    name, written = second.preload
    assert name == "live_passes"
    setting = "torch._inductor.config.post_grad_custom_pre_pass"
    assert f"{setting} = Nothing()\n" in Path(written).read_text()


@pytest.mark.parametrize(
    ("module", "preload", "names", "lost"),
    [
        ("__main__", [], (), True),
        ("ops", [], ("{}/ops.py",), False),
        ("ops", ["{}/ops.py"], (), False),
        ("ops", ["{}/b.py"], (), True),
    ],
)
def test_session_code_is_preloaded_or_reported_as_not_copied(
    tmp_path: Path, module: str, preload: list[str], names: tuple[str, ...], lost: bool
) -> None:
    file = "" if module == "__main__" else str(tmp_path / "ops.py")
    place = "torch._inductor.x.lowerings"
    origin = Origin(module, file, "", is_local=bool(file), why=place)
    preload = [each.format(tmp_path) for each in preload]
    program = CapturedProgram(origins=(origin,))
    found = choose_session_preloads(program, tmp_path, Path("/"), preload)
    assert found.names == tuple(each.format(tmp_path) for each in names)
    said = [
        f"cannot be copied to other processes: {place}: " in s for s in found.lacking
    ]
    assert said == [True] * lost

"""Programs, inputs and preloads that a worker loads or refuses."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support import damaged
from support.exported import save_setup
from support.zoo import export
from torch import Tensor, nn
from torch.export import Dim

from shrinkfx.check.client.server import WORKER, Server
from shrinkfx.errors import LoadError
from shrinkfx.options.options import Options
from shrinkfx.protocol.requests import Setup
from shrinkfx.run.context import server_for
from shrinkfx.worker.loading.import_advice import advice_on
from shrinkfx.worker.loading.load import load, preload, read_inputs


def setup(folder: Path, name: str = "weights", inputs: Any = None) -> Setup:
    return save_setup(folder, export(name), inputs)


class Least(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(x, x)


def test_symbol_of_a_stride_has_a_range_that_can_be_refined(tmp_path: Path) -> None:
    x = torch.as_strided(torch.arange(40), (5, 6, 2), (1, 1, 7))
    dims = dict.fromkeys(range(3), Dim.AUTO)
    program = torch.export.export(Least(), (x,), dynamic_shapes=(dims,))
    loaded = load(save_setup(tmp_path, program))
    value = next(iter(loaded.original.graph.nodes)).meta["val"]
    assert isinstance(value.stride()[2], torch.SymInt)
    torch.minimum(value, value)  # compares the strides


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((torch.zeros(3, 4, device="meta"),), "on meta"),
        ((torch.zeros(3, 4, dtype=torch.int64),), "torch.int64 of shape (3, 4)"),
        ((torch.zeros(4),), "of shape (4,)"),
        ((3,), "input 0 is int"),
        ((torch.zeros(3, 4),) * 2, "2 positional inputs, the program takes 1 (x)"),
        ((), "0 positional inputs, the program takes 1 (x)"),
        (
            {"args": (), "kwargs": {"x": torch.zeros(3, 4)}},
            "0 positional inputs and by keyword x, the program takes 1 (x)",
        ),
        (([torch.zeros(3, 4)],), "the inputs are nested as"),
    ],
)
def test_mismatched_inputs_are_reported_with_the_expected_ones(
    tmp_path: Path, inputs: Any, words: str
) -> None:
    with pytest.raises(LoadError) as caught:
        load(setup(tmp_path, inputs=inputs))
    assert words in str(caught.value)
    assert "the program expects" in str(caught.value)
    assert "inputs.pt" in str(caught.value.subject)


class Scaled(nn.Module):
    def forward(self, x: Tensor, *more: Tensor, by: Tensor) -> Tensor:
        return x * by + sum(more)


def test_wrong_input_count_is_reported_with_keywords_and_advice(
    tmp_path: Path,
) -> None:
    one = torch.ones(2)
    exported = torch.export.export(Scaled(), (one, one), {"by": one})
    with pytest.raises(LoadError) as caught:
        load(save_setup(tmp_path, exported, (one, one, one)))
    assert caught.value.reason.startswith("3 positional inputs, the program takes 2 (x")
    assert caught.value.reason.endswith(") and by keyword by")
    assert "'kwargs': {'by': by}}, file)" in str(caught.value.advice)


def test_inputs_file_may_hold_passing_inputs(tmp_path: Path) -> None:
    failing, passing = torch.zeros(3, 4), torch.ones(3, 4)
    given = {"args": (failing,), "kwargs": {}, "passing": {"args": (passing,)}}
    program = load(setup(tmp_path, inputs=given))
    assert program.passing is not None
    assert torch.equal(program.passing.args[0], passing)
    assert torch.equal(program.failing.args[0], failing)
    assert load(setup(tmp_path, inputs=(failing,))).passing is None


def test_passing_inputs_must_fit_the_program(tmp_path: Path) -> None:
    given = {"args": (torch.zeros(3, 4),), "passing": {"args": (torch.zeros(4),)}}
    with pytest.raises(LoadError, match="of shape"):
        load(setup(tmp_path, inputs=given))


class Sized(nn.Module):
    """Sizes that are free, shared, derived and fixed, and a number that is fixed."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor, times: int) -> Tensor:
        long = torch.cat([x, x])[1:] * z[: x.shape[0] * 2 - 1] * times
        return torch.cat([long, x * y])


def sized(folder: Path, *inputs: object) -> Setup:
    n = Dim("n", min=3, max=64)
    shapes = ({0: n}, {0: n}, {0: 2 * n}, None)
    example = (torch.ones(4, 3), torch.ones(4, 3), torch.ones(8, 1), 3)
    exported = torch.export.export(Sized(), example, dynamic_shapes=shapes)
    return save_setup(folder, exported, inputs)


def of_size(x: int, y: int, z: int, width: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ones(x, width), torch.ones(y, 3), torch.ones(z, 1)


WRONG_SIZES = [
    ((*of_size(65, 65, 130), 3), "dim 0 of input x is 65", "from 3 to 64"),
    ((*of_size(2, 2, 4), 3), "dim 0 of input x is 2", "from 3 to 64"),
    ((*of_size(5, 6, 10), 3), "dim 0 of input y is 6", "which is 5"),
    ((*of_size(5, 5, 11), 3), "dim 0 of input z is 11", "which is 10"),
    ((*of_size(5, 5, 10, 4), 3), "dim 1 of input x is 4", "exported for 3 only"),
    ((*of_size(5, 5, 10), 4), "times is 4", "exported for 3 only"),
    ((*of_size(5, 5, 10), True), "times is True", "exported for 3 only"),
]


@pytest.mark.parametrize(("inputs", "seen", "expected"), WRONG_SIZES)
def test_undeclared_sizes_are_reported_with_the_declared_range(
    tmp_path: Path, inputs: tuple[Any, ...], seen: str, expected: str
) -> None:
    with pytest.raises(LoadError) as caught:
        load(sized(tmp_path, *inputs))
    assert seen in caught.value.reason
    assert expected in str(caught.value.advice)
    assert "--until check-inputs" in str(caught.value.advice)


class Guarded(nn.Module):
    """Two free sizes, of which only a guard says that they are one."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y]) + torch.cat([x, x])


def guarded(folder: Path, dim: Any, *sizes: int) -> Setup:
    example, shapes = (torch.ones(4), torch.ones(4)), ({0: dim}, {0: dim})
    exported = torch.export.export(Guarded(), example, dynamic_shapes=shapes)
    return save_setup(folder, exported, tuple(torch.ones(size) for size in sizes))


def test_sizes_excluded_by_a_guard_are_reported_with_the_guard(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        load(guarded(tmp_path, Dim.DYNAMIC, 5, 6))
    assert "=5" in caught.value.reason
    assert "=6" in caught.value.reason
    assert " == " in str(caught.value.advice)


def test_undeclared_sizes_are_accepted_only_with_runtime_input_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for smallest in (3, 64):
        load(sized(tmp_path, *of_size(smallest, smallest, 2 * smallest), 3))
    monkeypatch.setenv("AOTI_RUNTIME_CHECK_INPUTS", "1")
    load(sized(tmp_path, *of_size(65, 65, 130), 3))


def test_batch_of_one_is_accepted_without_a_declared_minimum(
    tmp_path: Path,
) -> None:
    assert load(guarded(tmp_path, Dim.AUTO, 1, 1)).failing.args


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> Setup:
    """Save a program whose graph, as JSON, is another."""
    given = setup(folder)
    assert given.model is not None
    path = Path(given.model)
    parts = damaged.members(path.read_bytes())
    (name,) = (name for name in parts if name.endswith("models/model.json"))
    graph = json.loads(parts[name])
    change(graph)
    path.write_bytes(damaged.archive({**parts, name: json.dumps(graph).encode()}))
    return given


def reason_for(given: Setup) -> str:
    with pytest.raises(LoadError) as caught:
        load(given)
    assert str(caught.value.subject) == given.model
    return f"{caught.value.reason}: {caught.value.advice}"


def test_program_of_a_newer_torch_is_reported_with_both_versions(
    tmp_path: Path,
) -> None:
    def newer(graph: dict[str, Any]) -> None:
        graph["schema_version"] = {"major": 99, "minor": 1}
        graph["torch_version"] = "3.1.0"

    said = reason_for(rewritten(tmp_path, newer))
    assert "torch 3.1.0 wrote it" in said
    assert f"cannot be read by torch {torch.__version__}" in said


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("torch.ops.strange.gelu.default", "the operator strange.gelu.default is not"),
        ("torch.ops.strange.gelu.default", "--preload"),
        ("torch.ops.aten.of_tomorrow.default", "no operator aten.of_tomorrow.default"),
    ],
)
def test_unknown_operator_is_named(tmp_path: Path, target: str, words: str) -> None:
    def other(graph: dict[str, Any]) -> None:
        nodes = graph["graph_module"]["graph"]["nodes"]
        (relu,) = (node for node in nodes if "relu" in node["target"])
        relu["target"] = target

    assert words in reason_for(rewritten(tmp_path, other))


def test_program_without_example_inputs_is_reported(tmp_path: Path) -> None:
    exported = export("weights")
    exported.example_inputs = None
    given = save_setup(tmp_path, exported)
    assert "holds no example inputs" in reason_for(given)
    assert "--inputs FILE" in reason_for(given)


def test_failing_inputs_replace_missing_example_inputs(tmp_path: Path) -> None:
    exported = export("weights")
    exported.example_inputs = None
    given = save_setup(tmp_path, exported, (torch.full((3, 4), 2.0),))
    program = load(given)
    assert program.example.args[0].sum() == program.failing.args[0].sum() == 24
    torch.save((), str(given.inputs))
    with pytest.raises(LoadError) as caught:
        load(given)
    assert str(caught.value.subject) == given.inputs
    assert "must hold all of its inputs" in str(caught.value.advice)


@dataclass
class Pair:
    """What a preload would register."""

    left: Tensor
    right: Tensor


class OfPair(nn.Module):
    def forward(self, pair: Pair) -> Tensor:
        return pair.left + pair.right


def test_example_inputs_of_a_registered_class_are_loaded(tmp_path: Path) -> None:
    torch.export.register_dataclass(Pair, serialized_type_name="test_load.Pair")
    pair = Pair(torch.ones(2), torch.ones(2))
    given = save_setup(tmp_path, torch.export.export(OfPair(), (pair,)))
    assert isinstance(load(given).example.args[0], Pair)


def test_variable_that_disables_weights_only_loading_is_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    load(setup(tmp_path))
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_example_inputs_of_an_unknown_class_are_not_read(tmp_path: Path) -> None:
    given = setup(tmp_path)
    path = Path(str(given.model))
    parts = damaged.members(path.read_bytes())
    (name,) = (name for name in parts if "sample_inputs" in name)
    torch.save(((Setup("x"),), {}), tmp_path / "blob")
    parts[name] = (tmp_path / "blob").read_bytes()
    path.write_bytes(damaged.archive(parts))
    said = reason_for(given)
    assert "holds shrinkfx.protocol.requests.Setup" in said
    assert "--preload" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nosuch_module", "no module of this name"),
        ("nosuch.py", "no such file"),
        ("nosuch.so", "no such file"),
        ("raises.py", "the preload raised ZeroDivisionError"),
        ("leaves.py", "the preload raised SystemExit"),
        ("unfinished.py", "the preload raised SyntaxError"),
        ("needs_another.py", "No module named 'nosuch_module'"),
        ("text.so", "the preload raised OSError"),
    ],
)
def test_preload_that_cannot_be_loaded_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("raises.py").write_text("1 / 0")
    Path("leaves.py").write_text("raise SystemExit(0)")
    Path("unfinished.py").write_text("def f(:")
    Path("needs_another.py").write_text("import nosuch_module")
    Path("text.so").write_text("not a library")
    with pytest.raises(LoadError) as caught:
        preload([name])
    assert str(caught.value.subject) == name
    assert words in caught.value.reason
    assert caught.value.advice
    if name in ("nosuch_module", "needs_another.py", "raises.py"):
        assert sys.executable in str(caught.value.advice)


def load_with(folder: Path, **inductor: Any) -> None:
    load(save_setup(folder, export("weights"), inductor=inductor))


@pytest.mark.parametrize(
    ("name", "value"), [("max_autotune", "Tru"), ("cpp.threads", "all")]
)
def test_inductor_option_of_another_type_is_refused(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(LoadError) as caught:
        load_with(tmp_path, **{name: value})
    assert f"{name}={value}" in str(caught.value.subject)


def test_old_name_of_an_inductor_option_is_accepted(tmp_path: Path) -> None:
    """Since torch 2.15 it is an alias, which ``get_config_copy`` leaves out."""
    load_with(tmp_path, benchmark_epilogue_fusion=False)


def test_unknown_inductor_option_is_reported_with_similar_names(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        load_with(tmp_path, max_autotun=True)
    assert "did you mean max_autotune" in str(caught.value.advice)


def test_preload_that_crashes_the_loading_process_is_a_load_error(
    tmp_path: Path,
) -> None:
    model = Path(str(setup(tmp_path).model))
    deadly = tmp_path / "deadly.py"
    deadly.write_text("import os\nos.kill(os.getpid(), 11)")
    with pytest.raises(LoadError, match="SIGSEGV") as caught:
        server_for(Options(model, preload=(str(deadly),)), WORKER)
    assert str(deadly) in str(caught.value.subject)


def test_worker_reports_a_missing_compiler(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="set CXX"):
        Server(environment={"CXX": os.devnull})


# --- inputs files


X = torch.ones(3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"args": (X,), "kwargs": {1: X}}, "'kwargs' has the key 1"),
        (
            (torch.nested.nested_tensor([X, X], layout=torch.jagged),),
            "holds a nested tensor",
        ),
        ((X.numpy(),), "holds an array or number of NumPy"),
        ((X.numpy()[0],), "holds an array or number of NumPy"),
    ],
)
def test_unsupported_inputs_are_reported_for_the_inputs_file(
    tmp_path: Path, data: Any, words: str
) -> None:
    path = tmp_path / "inputs.pt"
    torch.save(data, path)
    with pytest.raises(LoadError, match=words) as caught:
        read_inputs(str(path))
    assert str(caught.value.subject) == str(path)


# --- advice on imports


def failed(statement: str) -> ImportError:
    with pytest.raises(ImportError) as caught:
        exec(compile(statement, "<string>", "exec"), {})
    return caught.value


def test_advice_names_the_python_that_lacks_a_module() -> None:
    """It need not be the one that is typed as python: of pipx it is not."""
    said = advice_on(failed("import no_such_module_here"))
    assert said.startswith(f"{sys.executable} has no module no_such_module_here: ")
    assert "python -m shrinkfx" in said


def test_advice_names_a_file_that_shadows_a_standard_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colorsys.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    importlib.invalidate_caches()
    said = advice_on(failed("from colorsys import rgb_to_hsv"))
    monkeypatch.delitem(sys.modules, "colorsys")
    assert said.startswith(f"{tmp_path / 'colorsys.py'} shadows another module of ")
    assert "another folder" in said


def test_user_module_is_not_reported_as_shadowing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_things.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = advice_on(failed("from my_own_things import gone"))
    assert "do not match" in said
    assert advice_on(ValueError("no import")) == ""

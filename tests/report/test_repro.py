"""The text of a repro."""

from __future__ import annotations

import ast
import base64
import copy
import difflib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch

from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.readers.script import STAGE_OF_CALL
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.preloads.preload_bundle import Definitions
from shrinkfx.protocol.choices import Backend, Guard
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.report.header import is_of_interpreter, read_failure, set_cause
from shrinkfx.report.record import (
    Conditions,
    Failure,
    Memory,
    NoSource,
    OtherCauses,
    Programs,
    ProgramSize,
    RunRecord,
    Search,
)
from shrinkfx.report.repro import Data, write_embedded, write_repro

CORRUPT = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT, "free(): invalid pointer")


PRINTED = Source(
    weights=(
        Weight(
            "w",
            "parameter",
            Expression("torch.randn(3)", 'unpack("c$", torch.float32, (3,))'),
        ),
        Weight("b", "buffer", Expression("torch.rand(9)", "")),
    ),
    inputs=(
        Input(
            "x",
            Expression("torch.randn(2, 3)", "torch.tensor([[1.0, 2.0, 3.0]])"),
            None,
        ),
    ),
    branches=("class Inner(torch.nn.Module):\n    def forward(self, v):\n        v",),
    members={"inner": "Inner"},
    body=("y = torch.ops.aten.mul.Tensor(x, self.w)", "return (y,)"),
    dims=('s0 = torch.export.Dim("s0", min=2)',),
    dynamic_shapes="({0: s0},)",
)


def about(kind: Kind = Kind.MISMATCH, **changes: Any) -> RunRecord:
    """Record a run; ``changes`` are of its parts, by the names of their fields."""
    seen = Signature(kind, Stage.COMPARE, "", "output 0: wrong\nvery")
    seen = changes.pop("signature", seen)
    failure = Failure(seen, seen)
    parts: dict[str, Any] = {
        "failure": failure,
        "conditions": Conditions(),
        "memory": Memory(),
        "other_causes": OtherCauses(),
        "search": Search(),
    }
    for name, value in changes.items():
        (part,) = (part for part in parts if hasattr(parts[part], name))
        parts[part] = replace(parts[part], **{name: value})
    return RunRecord(
        programs=Programs(ProgramSize(90), ProgramSize(1), cut=90),
        command="shrinkfx model.pt2",
        versions={"torch": "2.13.0"},
        **parts,
    )


def script(data: Data = Data.SEEDED, **changes: Any) -> str:
    return write_repro(PRINTED, about(**changes), [], data).text


@pytest.mark.parametrize("data", Data)
@pytest.mark.parametrize("kind", Kind)
def test_repro_is_valid_python_for_every_kind(data: Data, kind: Kind) -> None:
    ast.parse(script(data, kind=kind))


def test_repro_does_not_import_shrinkfx() -> None:
    tree = ast.parse(script())
    names = {
        a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
    }
    assert names == {"torch"}


LISTS_NEW_OPERATORS = """
import torch
listed = torch._C._dispatch_get_all_op_names
before = {*listed()}
import torch._inductor.compile_fx
print(*({*listed()} - before), sep="\\n")
"""


def test_script_imports_the_operators_that_inductor_registers() -> None:
    command = [sys.executable, "-c", LISTS_NEW_OPERATORS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spaces = ("prims::", "quantized_decomposed::", "flex_lib::")
    new = [name for name in done.stdout.split() if name.startswith(spaces)]
    assert "prims::_low_memory_max_pool_with_offsets" in new
    for name in (*new, "aten::relu", "prims::convert_element_type"):
        call = f"n = torch.ops.{name.replace('::', '.')}(x)"
        printed = replace(PRINTED, body=(call, "return (n,)"))
        text = write_repro(printed, about(), [], Data.SEEDED).text
        assert ("import torch._inductor.compile_fx " in text) is (name in new), name


def test_script_restarts_python_with_the_hash_seed() -> None:
    text = script(environment={"PYTHONHASHSEED": "3", "OMP_NUM_THREADS": "2"})
    assert "os.environ[\"PYTHONHASHSEED\"] = '3'" in text
    began = text.partition("import torch")[0]
    begins_anew = began.index("os.execv(sys.executable")
    assert begins_anew < began.index('os.environ["OMP_NUM_THREADS"]')
    program = began + "\nprint(os.environ['PYTHONHASHSEED'], hash('a'), sys.argv[1:])"
    bare = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    found = {
        subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program, "some", "words"],
            env={**bare, **seed},
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ({}, {"PYTHONHASHSEED": "5"}, {"PYTHONHASHSEED": "3"})
    }
    (same,) = found
    assert same.startswith("3 ")
    assert same.rstrip().endswith("['some', 'words']")


@pytest.mark.parametrize("failure", [None, CORRUPT])
@pytest.mark.parametrize("backend", [Backend.AOTI, Backend.INDUCTOR])
def test_every_line_that_can_fail_has_a_known_stage(
    failure: Signature | None, backend: Backend
) -> None:
    told: dict[str, Any] = {} if failure is None else {"signature": failure}
    run = script(backend=backend, **told).partition("with torch.no_grad():\n")[2]
    for line in run.splitlines():
        assert any(call in line for call in STAGE_OF_CALL), line


def test_random_values_of_timed_kernels_are_those_of_the_search() -> None:
    """The values with which a GPU times kernels, while they are compiled."""
    illegal = Signature(Kind.IMA, Stage.COMPILE, MEMORY_FAULT)
    record = about(signature=illegal)
    on_gpu = replace(record, versions={**record.versions, "GPU": "NVIDIA H200"})
    seed = "torch.manual_seed(0)  # for the values with which kernels are timed\n"
    for each, expected in ((record, False), (on_gpu, True)):
        text = write_repro(PRINTED, each, [], Data.SEEDED).text
        assert (seed in text) == expected
        ast.parse(text)


def test_repro_with_custom_code_disables_the_cache_of_graphs() -> None:
    """It would give the old result after a change of that code."""
    code = [Definitions("from torch import ops\n\nx = ops.aten\n")]
    disabled = "torch._inductor.config.fx_graph_cache = False"
    for backend, definitions, expected in (
        (Backend.INDUCTOR, code, True),
        (Backend.INDUCTOR, [], False),
        (Backend.AOTI, code, False),
    ):
        text = write_repro(PRINTED, about(backend=backend), definitions, Data.SEEDED)
        assert (disabled in text.text) == expected
        ast.parse(text.text)


ATTENTION = (
    "y = torch.ops.higher_order.flex_attention(x, x, x, self.score, (8, self.mask), "
    "0.5, {'BACKEND': 'AUTO'}, (a, b), ())  # model.py:3"
)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        (Backend.AOTI, ATTENTION),
        (
            Backend.INDUCTOR,
            "y = torch.ops.higher_order.flex_attention(x, x, x, "
            "lambda *args: self.score(*args, a, b), (8, self.mask), 0.5, "
            "{'BACKEND': 'AUTO'})  # model.py:3",
        ),
    ],
)
def test_torch_compile_gets_tensors_of_score_functions_in_closures(
    backend: Backend, expected: str
) -> None:
    printed = replace(PRINTED, body=(ATTENTION, "return (y,)"))
    text = write_repro(printed, about(backend=backend), [], Data.SEEDED).text
    assert expected in text


@pytest.mark.parametrize("backend", [Backend.AOTI, Backend.INDUCTOR])
def test_torch_compile_gets_the_function_of_scan_as_graph(backend: Backend) -> None:
    body = ("y = torch.ops.higher_order.scan(self.f, [x], [x], ())", "return (y,)")
    printed = replace(PRINTED, body=body, members={"f": "F"})
    text = write_repro(printed, about(backend=backend), [], Data.SEEDED).text
    is_graph = "self.f = torch.fx.symbolic_trace(F())" in text
    assert is_graph == (backend is Backend.INDUCTOR)


FAILING = {"failing": "exported.example_inputs[0]"}


def test_embedded_program_is_complete() -> None:
    program = bytes(range(256)) * 40
    text = write_embedded(program, about(), [], FAILING, NoSource.NO_TIME)
    tree = ast.parse(text)
    (value,) = [
        n.value.value
        for n in tree.body
        if isinstance(n, ast.Assign)
        and isinstance(n.value, ast.Constant)
        and isinstance(n.value.value, str)
    ]
    assert base64.b85decode(value.replace("\n", "")) == program
    reason = "# No time was left to verify the generated source, so this script loads "
    assert f"{reason}the exported program.\n" in text


def test_comment_shows_the_graph_of_an_embedded_program() -> None:
    source = replace(PRINTED, body=("return (x + 1,)  # model.py:3",))
    text = write_embedded(b"", about(), [], FAILING, NoSource.PASSES, source)
    assert "# def forward(self, x):\n#     return (x + 1,)\nPROGRAM" in text
    long = replace(source, body=("x = x + 1",) * 1000)
    text = write_embedded(b"", about(), [], FAILING, NoSource.PASSES, long)
    assert "def forward" not in text


def test_embedded_program_runs_in_eager_outside_of_its_ranges() -> None:
    dim = torch.export.Dim("n", min=2, max=4)
    exported = torch.export.export(
        torch.nn.ReLU(), (torch.ones(3),), dynamic_shapes=({0: dim},)
    )
    file = io.BytesIO()
    torch.export.save(exported, file)
    text = write_embedded(
        file.getvalue(), about(), [], {"failing": "(torch.ones(9),)"}, NoSource.PASSES
    )
    made: dict[str, Any] = {}
    exec(text.partition("torch.manual_seed")[0].partition("expected = ")[0], made)
    assert made["model"](*made["failing"]).shape == (9,)


def compared(actual: torch.Tensor, limits: tuple[tuple[float, float], ...]) -> None:
    """Run the comparison of a repro: eager gives two times a thousand."""
    text = script(limits=limits)
    names = {"torch": torch, "actual": (EXACT, actual), "expected": (EXACT, EXACT)}
    exec(text.partition("actual = compiled(*args)\n")[2].partition("print(")[0], names)


EXACT = torch.full((3,), 1000.0)


def test_eager_error_is_tolerated_only_in_its_output() -> None:
    limits = ((1.3e-6, 1e-5), (1.3e-6, 1e-3))
    compared(EXACT + 0.002, limits)
    for wrong, chosen in ((0.5, limits), (0.002, limits[::-1]), (0.002, ())):
        with pytest.raises(AssertionError):
            compared(EXACT + wrong, chosen)


@pytest.mark.parametrize(
    ("strides", "strict", "same"),
    [((1, 2), True, False), ((1, 2), False, True), ((3, 1), True, True)],
)
def test_strides_are_compared_if_strict(
    strides: tuple[int, int], *, strict: bool, same: bool
) -> None:
    text = script(strict=strict).partition("actual = compiled(*args)\n")[2]
    expected = torch.ones(2, 3)
    actual = torch.empty_strided((2, 3), strides).fill_(1.0)
    one = torch.ones(2, 1), torch.empty_strided((2, 1), (1, 7)).fill_(1.0)  # no matter
    names = {
        "torch": torch,
        "actual": (actual, one[0], 3),
        "expected": (expected, one[1], 3),
    }
    code = text.partition("print(")[0]
    if same:
        exec(code, names)
        return
    said = re.escape("strides (1, 2), eager gives (3, 1)")
    with pytest.raises(AssertionError, match=said):
        exec(code, names)


IMA = Signature(
    Kind.IMA, Stage.RUN, MEMORY_FAULT, "guard pages: read just past the end of a tensor"
)


def test_header_of_a_guard_page_failure_fits_on_a_screen() -> None:
    where = "0 bytes after 1024-byte region"
    report = MemoryReport("heap-buffer-overflow", "read", 64, "cpp_fused_0", 27, where)
    plain = "mismatch in compare: output 0 differs by 3.1e+38 (3 of 3 runs)"
    text = script(signature=IMA, guard=Guard.AFTER, without_guards=plain, report=report)
    told = set_cause(text, ["kernel cpp_fused_0 reads beyond what it is given. " * 2])
    for said in (text, told):
        rows = [*takewhile(lambda row: row.startswith("#"), said.splitlines())]
        assert len(rows) <= 24


@pytest.mark.parametrize("guard", [Guard.AFTER, Guard.MEMCHECK])
def test_failure_on_a_gpu_is_run_under_compute_sanitizer(guard: Guard) -> None:
    report = MemoryReport("out of bounds", "read", 4, "triton_0", 33, "", "", "0", "1")
    about: dict[str, Any] = {
        "guard": guard,
        "without_guards": "passes",
        "report": report,
    }
    text = script(signature=IMA, on_gpu=True, **about)
    ast.parse(text)
    assert "# Run:     compute-sanitizer python repro.py, or shrinkfx verify" in text
    assert (
        "# Observed under compute-sanitizer: out of bounds: read of 4 bytes in" in text
    )
    assert "AddressSanitizer" not in text
    assert "libasan" not in text
    assert read_failure(text)[1] is guard


@pytest.mark.parametrize("detail", ["", "index out of bounds", "a | b"])
@pytest.mark.parametrize("guard", [Guard.OFF, Guard.AFTER])
def test_failure_line_round_trips_without_extra_separators(
    detail: str, guard: Guard
) -> None:
    failure = Signature(Kind.CRASH, Stage.RUN, detail, detail)
    text = script(signature=failure, guard=guard)
    (line,) = [row for row in text.splitlines() if row.startswith("# Failure: ")]
    assert not line.endswith("|")
    assert "|  |" not in line
    assert read_failure(text) == (failure, guard)
    older = f"# Failure: crash | run | {detail}".rstrip()
    assert read_failure(text.replace(line, older)) == (failure, Guard.OFF)


def flaky(kind: Kind, stage: Stage, **changes: Any) -> str:
    failure = Signature(kind, stage, "no", "no")
    text = script(signature=failure, runs=29, rate_after=0.4, **changes)
    ast.parse(text)
    return text


class FlakyCompiler:
    """Stands in for ``torch`` where a repro compiles; counts what it is asked."""

    def __init__(self, *, fails_at: int) -> None:
        self.fails_at = fails_at
        self.compiled = 0

    def aoti_compile_and_package(self, program: Any) -> str:
        self.compiled += 1
        if self.compiled == self.fails_at:
            raise ValueError("no such layout")
        return "package"

    def aoti_load_package(self, package: str) -> Any:
        return lambda x: (x + 1,)


def run_with(
    monkeypatch: pytest.MonkeyPatch, stand_in: object, text: str, **inputs: object
) -> None:
    """Run the statements of a script after its inputs, on a module that adds one."""
    for name in ("aoti_compile_and_package", "aoti_load_package"):
        monkeypatch.setattr(torch._inductor, name, getattr(stand_in, name))
    statements = text.partition("model = Repro().eval()\n")[2]
    names = {"torch": torch, "copy": copy, "model": AddsOne(), "s0": None}
    names |= {"args": (torch.ones(2),), **inputs}
    exec(statements.replace(", dynamic_shapes=({0: s0},)", ""), names)


class AddsOne(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + 1,)


def test_flaky_compile_error_is_compiled_until_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = flaky(Kind.COMPILE_ERROR, Stage.COMPILE)
    compiler = FlakyCompiler(fails_at=5)
    with pytest.raises(ValueError, match="no such layout"):
        run_with(monkeypatch, compiler, text)
    assert compiler.compiled == 5
    assert "1 of 5 runs failed" in capsys.readouterr().out


class Counts(torch.nn.Module):
    """Gives 1, 2, 3 and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.calls: torch.Tensor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        self.calls += 1
        return (self.calls * x,)


class WrongAtSecondCall(FlakyCompiler):
    """Fails in the second call after loading, but not the first two times."""

    def __init__(self) -> None:
        super().__init__(fails_at=0)
        self.loaded = 0

    def aoti_load_package(self, package: str) -> Any:
        self.loaded += 1
        program, wrong, counted = Counts(), self.loaded > 2, []

        def compiled(x: torch.Tensor) -> Any:
            counted.append(1)
            (value,) = program(x)
            return (value + (wrong and len(counted) == 2),)

        return compiled


def test_each_run_of_a_program_starts_with_its_initial_buffers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = flaky(Kind.MISMATCH, Stage.COMPARE, keeps_state=True, calls=2)
    compiler = WrongAtSecondCall()
    monkeypatch.setattr("test_repro.AddsOne", Counts)
    with pytest.raises(AssertionError, match="not close"):
        run_with(monkeypatch, compiler, text)
    assert (compiler.compiled, compiler.loaded) == (1, 29)
    assert "27 of 29 runs failed" in capsys.readouterr().out


READS = "out-of-bounds read"
RUNS: dict[str, Any] = {"interpreted_for": "sm_90"}


@pytest.mark.parametrize(
    ("failure", "changes", "what", "checks"),
    [
        ((Kind.IMA, Stage.RUN, READS), RUNS, "an out-of-bounds access", "compute-sa"),
        ((Kind.IMA, Stage.COMPILE, READS), RUNS, "an out-of-bounds access", "compute"),
        ((Kind.IMA, Stage.RUN, "misaligned"), RUNS, "a misaligned address", "compute"),
        ((Kind.ASSERT, Stage.RUN, "layout of mylib.op"), RUNS, "a wrong layout", "`sh"),
        (
            (Kind.IMA, Stage.RUN, MEMORY_FAULT),
            {"guard": Guard.AFTER, "without_guards": "passes"},
            "an illegal access",
            "AddressSanitizer, as above,",
        ),
        (
            (Kind.CRASH, Stage.RUN, MEMORY_FAULT),
            {"guard": Guard.AFTER, "runs": 29, "rate_after": 0.3},
            "an illegal access",
            "AddressSanitizer",
        ),
    ],
)
def test_script_does_not_claim_a_fix_if_the_failure_may_go_unnoticed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: tuple[Kind, Stage, str],
    changes: dict[str, Any],
    what: str,
    checks: str,
) -> None:
    text = script(signature=Signature(*failure), **changes)
    monkeypatch.setenv("LD_PRELOAD", "/lib/libfaster.so")
    with pytest.raises(SystemExit) as ended:
        run_with(monkeypatch, WrongFor(), text, os=os)
    assert ended.value.code == 125
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(
        f"ran to its end; {what} may go unnoticed: run it under {checks}"
    )
    assert said.endswith("`shrinkfx verify`")
    assert (
        "may run to its end, and then exits with 125"
        in text.partition("import torch")[0]
    )
    if "guard" not in changes:
        assert "no longer fails" not in text
        return
    assert "import os\n" in text
    assert "import os\n" in script(signature=IMA, environment={"A": "1"}, **changes)
    monkeypatch.setenv("LD_PRELOAD", "/lib/libasan.so.8:/lib/libfaster.so")
    run_with(monkeypatch, WrongFor(), text, os=os)
    assert capsys.readouterr().out.endswith("no longer fails\n")


def test_header_records_whether_the_failure_is_of_the_interpreter() -> None:
    assert is_of_interpreter(script(kind=Kind.IMA, **RUNS))
    assert not is_of_interpreter(script(kind=Kind.COMPILE_ERROR, **RUNS))
    assert not is_of_interpreter(script(kind=Kind.IMA))


def swept(data: Data = Data.SEEDED, *, own: str = "failing", **changes: Any) -> str:
    """Write a repro that passes before it fails.

    Args:
        own: the runs whose inputs are others than those of the export.
    """
    runs: dict[str, Any] = {
        run: Expression(f"torch.randn({run})", "") for run in own.split()
    }
    changed = replace(PRINTED, inputs=(replace(PRINTED.inputs[0], **runs),))
    return write_repro(changed, about(passes=True, **changes), [], data).text


class WrongFor(FlakyCompiler):
    """Stands in for a compiler whose result is wrong for inputs of some length."""

    def __init__(self, *lengths: int) -> None:
        super().__init__(fails_at=0)
        self.lengths = lengths
        self.called: list[int] = []

    def aoti_load_package(self, package: str) -> Any:
        def compiled(x: torch.Tensor) -> Any:
            self.called.append(len(x))
            return (x + 1 + (len(x) in self.lengths),)

        return compiled


def run_swept(monkeypatch: pytest.MonkeyPatch, stand_in: WrongFor, text: str) -> None:
    names = {"passing": (torch.ones(3),), "failing": (torch.ones(4),)}
    run_with(monkeypatch, stand_in, text, **names)


@pytest.mark.parametrize("flaky_runs", [1, 3])
def test_package_compiled_once_runs_passing_and_then_failing_inputs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flaky_runs: int,
) -> None:
    compiler = WrongFor(4)
    text = swept(runs=flaky_runs, rate_after=1 / flaky_runs)
    with pytest.raises(AssertionError, match="not close"):
        run_swept(monkeypatch, compiler, text)
    assert compiler.compiled == 1
    assert compiler.called == [3] + [4] * flaky_runs
    assert capsys.readouterr().out.startswith("passes at (3,)\n")


def test_failure_at_the_passing_inputs_prints_no_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError, match="not close"):
        run_swept(monkeypatch, WrongFor(3, 4), swept())
    assert "passes at" not in capsys.readouterr().out


def test_fixed_bug_passes_at_passing_and_failing_inputs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_swept(monkeypatch, WrongFor(), swept())
    said = "passes at (3,)\npasses at (4,)\nno longer fails\n"
    assert capsys.readouterr().out == said


def test_passing_and_failing_inputs_load_separate_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Loads(FlakyCompiler):
        def aoti_load_package(self, package: str) -> Any:
            return Counts()

    monkeypatch.setattr("test_repro.AddsOne", Counts)
    text = swept(keeps_state=True)
    run_swept(monkeypatch, Loads(fails_at=0), text)  # type: ignore[arg-type]
    assert text.index("for inputs in") < text.index("aoti_load_package")


# --- other scripts: the lines that differ from the first one


def cases() -> Iterator[tuple[str, str]]:
    """Yield the text of a repro by the condition that shapes it."""
    yield "a wrong result", script()
    yield "the second GPU", script(gpu=1)
    yield "stopped early", script(stopped="/home/me/x: No space left on device\nlog")
    yield "environment", script(environment={"CUDA_LAUNCH_BLOCKING": "1"})
    yield "options", script(inductor={"max_autotune": True})
    yield "exact values", script(Data.EXACT)
    yield "NaN", script(kind=Kind.NAN)
    yield "eager fails too", script(reference=False)
    yield "random", script(random=True)
    yield "tolerances", script(limits=((0.0123, 0.0), (1.3e-6, 2.5e-5)))
    yield "writes", script(keeps_state=True)
    yield "writes, in a later call", script(keeps_state=True, calls=3)
    yield "flaky", script(runs=29, rate_after=0.4)
    yield "flaky load error", flaky(Kind.LOAD_ERROR, Stage.LOAD)
    for more in ({}, {"runs": 29}, {"passes": True}, {"passes": True, "runs": 29}):
        yield f"heap corruption {more}", script(signature=CORRUPT, **more)
    lie = "fake-kernel mismatch: f (lib.f.default) has strides [1], "
    lie += "but its fake kernel declares [2]"
    yield "warnings", script(warnings=(lie, "eager fails too: " + "no " * 40))
    for kind, stage, detail in (
        (Kind.CRASH, Stage.RUN, MEMORY_FAULT),
        (Kind.ASSERT, Stage.RUN, "index out of bounds"),
        (Kind.ASSERT, Stage.COMPILE, "index out of bounds"),
        (Kind.OOM, Stage.RUN, ""),
        (Kind.CHECK_INPUTS, Stage.RUN, "dtype"),
        (Kind.LOAD_ERROR, Stage.LOAD, "in /tmp/a-1/b.so: undefined"),
        (Kind.COMPILE_ERROR, Stage.COMPILE, "Triton: no"),
        (Kind.HANG, Stage.COMPILE, ""),
    ):
        for gpu in ("", "sm_90"):
            if kind in (Kind.ASSERT, Kind.COMPILE_ERROR) or not gpu:
                failure = Signature(kind, stage, detail, detail)
                text = script(signature=failure, interpreted_for=gpu)
                yield f"{failure} {gpu}", text
    kernel = Signature(Kind.IMA, Stage.RUN, operators=("aten.add", "user kernel k"))
    yield "kernel of the user", script(signature=kernel, interpreted_for="sm_80")
    yield "third call", script(signature=Signature(Kind.EXCEPTION, Stage.RUN), calls=3)
    shape = Signature(Kind.MISMATCH, Stage.COMPARE, "", "shapes", differs="shape")
    values = replace(shape, text="output 0: 2 of 2", differs="values")
    yield "another difference", script(target=shape, seen=values)
    command = Signature(Kind.CHECK, Stage.RUN, "", "'./fails.sh {} {inputs}' exits")
    yield "command", script(signature=command, inputs="minimal_inputs.pt")
    yield from cases_of_memory()
    for own in ("failing", "passing", "passing failing"):
        yield f"own inputs of {own}", swept(own=own)
    yield "at passing", script(at_passing=True)
    yield from cases_of_programs()


def cases_of_memory() -> Iterator[tuple[str, str]]:
    report = MemoryReport("heap-buffer-overflow", "read", 64, "cpp_fused_0", 27, "")
    guarded: dict[str, Any] = {
        "signature": IMA,
        "guard": Guard.AFTER,
        "without_guards": "passes",
    }
    yield "guard pages", script(**guarded, report=report)
    yield "needs no guard pages", script(signature=IMA, without_guards="crash in run")
    record = about(short_results=("my.narrow.default", "my.other.default"))
    for name in ("my.narrow.default", "aten.relu.default"):
        programs = replace(record.programs, targets=(name,))
        short = replace(record, programs=programs)
        text = write_repro(PRINTED, short, [], Data.SEEDED).text
        yield f"too small result, {name}", text


def cases_of_programs() -> Iterator[tuple[str, str]]:
    def written(record: RunRecord, *parts: Definitions, **changes: Any) -> str:
        printed = replace(PRINTED, **changes)
        return write_repro(printed, record, parts, Data.SEEDED).text

    (one,) = PRINTED.inputs
    two_sets = replace(one, failing=Expression("torch.randn(9, 3)", ""))
    yield "failing inputs", written(about(), inputs=(two_sets,))
    body = "n = operator.neg(x.shape[0])", "return (n,)"
    yield "standard modules", written(about(), body=body)
    body = "n = torch.ops.prims.fma.default(x, x, x)", "return (n,)"
    yield "operator of Inductor", written(about(), body=body)
    part = Definitions("def mix(x): ...\n", ("annotations",))
    yield "definitions", written(about(), part)
    gpu = {
        "GPU": "NVIDIA H100 80GB HBM3",
        "compute capability": "9.0",
        "GPU memory": "81559 MiB",
        "driver": "580.95.05",
    }
    versions = {"torch": "2.11.0", **gpu, "g++": "12.2.0"}
    yield "versions", written(replace(about(), versions=versions))
    runs = {"passing": "(torch.ones(3),)", "failing": "(torch.ones(4),)"}
    text = write_embedded("minimal.pt2", about(passes=True), [], runs, NoSource.PASSES)
    yield "embedded program", text
    jit: dict[str, Any] = {"backend": Backend.INDUCTOR}
    yield "torch.compile", script(inductor={"max_autotune": True}, **jit)
    for own in ("failing", "passing", "passing failing"):
        yield f"torch.compile, own inputs of {own}", swept(own=own, **jit)
    yield "torch.compile, reads a number", script(depends_on_data=True, **jit)
    writes = about(keeps_state=True, calls=2, **jit)
    yield "torch.compile, writes", written(writes, inputs=(two_sets,))
    flaky = about(Kind.COMPILE_ERROR, signature=ANY_COMPILE_ERROR, runs=9, **jit)
    yield "torch.compile, flaky", written(flaky, inputs=(two_sets,))
    record = about(**jit)
    after = replace(record.programs.after, dynamic_dims=1)
    dynamic = replace(record, programs=replace(record.programs, after=after))
    runs = {"failing": "(torch.ones(4),)"}
    text = write_embedded("minimal.pt2", dynamic, [], runs, NoSource.PASSES)
    yield "torch.compile, embedded program", text


ANY_COMPILE_ERROR = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "no", "no")


def test_scripts_match_the_golden_file(tmp_path: Path) -> None:
    """Read it in one go; to record it again, copy the file that a failure names."""
    first, parts = "", []
    for name, text in cases():
        compile(text, "repro.py", "exec")
        head = text.partition("import torch")[0]
        assert max(map(len, head.splitlines())) <= 100
        assert "/home/me" not in text
        diff = difflib.unified_diff(
            first.splitlines(), text.splitlines(), n=0, lineterm=""
        )
        changed = [row for row in diff if not row.startswith(("--- ", "+++ ", "@@"))]
        parts.append("\n".join([f"=== {name}", *changed, ""]))
        first = first or text
    new = tmp_path / "repros.txt"
    new.write_text("\n".join(parts))
    assert new.read_text() == (GOLDEN / "repros.txt").read_text(), new


GOLDEN = Path(__file__).parents[1] / "golden"

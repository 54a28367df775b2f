"""The text of a repro."""

from __future__ import annotations

import ast
import base64
import copy
import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest
import torch

from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.readers.script import STAGE_OF_CALL
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.preloads.preload_bundle import Definitions
from shrinkfx.protocol.choices import Guard
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


def test_package_is_loaded_onto_the_gpu_of_the_program() -> None:
    assert "aoti_load_package(package)\n" in script()
    assert "aoti_load_package(package, device_index=1)\n" in script(gpu=1)


def test_gpu_is_in_the_header_whose_lines_stay_short() -> None:
    gpu = {
        "GPU": "NVIDIA H100 80GB HBM3",
        "compute capability": "9.0",
        "GPU memory": "81559 MiB",
        "driver": "580.95.05",
        "CUDA": "13.0",
    }
    record = replace(about(), versions={"torch": "2.11.0", **gpu, "g++": "12.2.0"})
    head = write_repro(PRINTED, record, [], Data.SEEDED).text.partition("import")[0]
    said = " ".join(head.replace("#", " ").split())
    assert all(f"{name} {value}" in said for name, value in gpu.items())
    assert all(len(line) <= 88 for line in head.splitlines())


def test_repro_does_not_import_shrinkfx() -> None:
    tree = ast.parse(script())
    names = {
        a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
    }
    assert names == {"torch"}


def test_header_comment_states_the_failure_and_how_to_run() -> None:
    head = script().partition("import torch")[0]
    assert all(not line or line.startswith("#") for line in head.splitlines())
    for words in ("mismatch", "from 90 operators to 1", "wrong very", "2.13.0"):
        assert words in head
    assert "python repro.py" in head
    assert "shrinkfx model.pt2" in head


def test_header_states_that_the_search_was_stopped() -> None:
    assert "stopped early" not in script()
    head = script(stopped="/home/me/x: No space left on device\nlog")
    said = "# The search stopped early (x: No space left on device): a "
    assert said in head.partition("import torch")[0]


def test_environment_is_set_before_torch_is_imported() -> None:
    text = script(environment={"CUDA_LAUNCH_BLOCKING": "1"})
    assert text.index('os.environ["CUDA_LAUNCH_BLOCKING"]') < text.index("import torch")


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


def test_inductor_options_are_in_the_script() -> None:
    assert "inductor_configs={'max_autotune': True}" in script(
        inductor={"max_autotune": True}
    )


def test_dynamic_dims_are_in_the_script() -> None:
    text = script()
    assert 's0 = torch.export.Dim("s0", min=2)' in text
    assert "dynamic_shapes=({0: s0},)" in text


def test_seeded_repro_needs_no_data_file() -> None:
    result = write_repro(PRINTED, about(), [], Data.SEEDED)
    assert not result.needs_data
    assert "unpack" not in result.text
    assert "torch.manual_seed(0)" in result.text


def test_long_exact_values_are_read_from_the_data_file() -> None:
    result = write_repro(PRINTED, about(), [], Data.EXACT)
    assert result.needs_data
    assert 'data["weight_b"]' in result.text
    assert "def unpack(" in result.text
    assert "torch.tensor([[1.0" in result.text


def test_export_uses_example_inputs_and_the_run_uses_failing_inputs() -> None:
    (one,) = PRINTED.inputs
    two_sets = replace(one, failing=Expression("torch.randn(9, 3)", ""))
    printed = replace(PRINTED, inputs=(two_sets,))
    text = write_repro(printed, about(), [], Data.SEEDED).text
    assert "torch.export.export(model, args" in text
    assert "failing = (torch.randn(9, 3),)" in text
    assert "compiled(*failing)" in text


@pytest.mark.parametrize("kind", [Kind.MISMATCH, Kind.NAN])
def test_wrong_results_are_compared(kind: Kind) -> None:
    assert "assert" in script(kind=kind)


def test_outputs_are_not_compared_if_eager_fails_too() -> None:
    text = script(reference=False)
    assert "expected" not in text
    assert "assert" not in text.partition("import torch")[2]


def test_seed_is_set_before_both_runs_if_operators_are_random() -> None:
    assert script(random=True).count("    torch.manual_seed(0)") == 2


@pytest.mark.parametrize("failure", [None, CORRUPT])
def test_every_line_that_can_fail_has_a_known_stage(failure: Signature | None) -> None:
    told: dict[str, Any] = {} if failure is None else {"signature": failure}
    run = script(**told).partition("with torch.no_grad():\n")[2]
    for line in run.splitlines():
        assert any(call in line for call in STAGE_OF_CALL), line


def test_definitions_precede_the_module_and_future_imports_come_first() -> None:
    part = Definitions("def mix(x): ...\n", ("annotations",))
    text = write_repro(PRINTED, about(), [part], Data.SEEDED).text
    ast.parse(text)
    compile(text, "repro.py", "exec")
    assert text.index("from __future__ import annotations") < text.index("import torch")
    assert text.index("def mix") < text.index("class Repro")


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
    said = "# No time was left to verify the printed source: this script embeds the "
    assert f"{said}program.\n" in text


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


def test_header_warns_of_other_possible_causes() -> None:
    lie = "fake-kernel mismatch: f (lib.f.default) has strides [1], "
    lie += "but its fake kernel declares [2]"
    text = script(warnings=(lie, "eager fails too: " + "no " * 40))
    ast.parse(text)
    head = " ".join(text.partition("# Run:")[0].replace("#", " ").split())
    assert f"Warning (input program): {lie}" in head
    assert head.count("no") >= 40
    assert "Warning" not in script()


def test_header_names_the_failing_kernel_and_call() -> None:
    kernel = Signature(Kind.IMA, Stage.RUN, operators=("aten.add", "user kernel k"))
    assert "makes an illegal memory access in user kernel k.\n" in script(
        signature=kernel
    )
    raised = Signature(Kind.EXCEPTION, Stage.RUN)
    assert "# Expect:  the error above, in call 3" in script(signature=raised, calls=3)


def test_header_of_a_crash_states_that_the_process_crashes() -> None:
    crash = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT, "SIGSEGV")
    assert "process crashes" in script(signature=crash)


def test_outputs_are_read_and_freed_before_the_script_passes() -> None:
    read = "torch.testing.assert_close(actual, actual, equal_nan=True)  # touch the "
    freed = f"{read}outputs\ndel actual, compiled  # freeing detects heap corruption\n"
    for more in ({}, {"runs": 29}, {"passes": True}, {"passes": True, "runs": 29}):
        text = script(signature=CORRUPT, **more)
        ast.parse(text)
        assert text.endswith(f'{freed}print("no longer fails")\n')
    assert "del actual" not in script()


def test_program_that_mutates_inputs_gets_copies_and_is_compiled_first() -> None:
    text = script(keeps_state=True)
    ast.parse(text)
    assert "import copy" in text
    assert "compiled(*copy.deepcopy(args))" in text
    assert text.index("aoti_compile_and_package") < text.index("expected = model(")


def test_failure_in_a_later_call_runs_eager_and_compiled_in_a_loop() -> None:
    text = script(keeps_state=True, calls=3)
    ast.parse(text)
    loop = text.partition("    for call in range(3):\n")[2]
    first, second, *rest = loop.splitlines()
    assert first.strip().startswith("expected = model(")
    assert second.strip().startswith("actual = compiled(")
    assert not rest[0].startswith(" ")
    assert "assert_close(actual, expected" in text


def test_script_for_a_command_check_only_saves_the_program() -> None:
    target = Signature(Kind.CHECK, Stage.RUN, "", "'./fails.sh {}' exits with status 0")
    text = script(signature=target)
    ast.parse(text)
    assert "'./fails.sh {}' exits with status 0" in text
    assert 'torch.export.save(program, "repro.pt2")' in text
    assert "aoti_compile_and_package" not in text
    assert "no longer fails" not in text


def compared(actual: torch.Tensor, limits: tuple[tuple[float, float], ...]) -> None:
    """Run the comparison of a repro: eager gives two times a thousand."""
    text = script(limits=limits)
    names = {"torch": torch, "actual": (EXACT, actual), "expected": (EXACT, EXACT)}
    exec(text.partition("actual = compiled(*args)\n")[2].partition("print(")[0], names)


EXACT = torch.full((3,), 1000.0)


def test_header_names_the_inputs_file_of_a_command_check() -> None:
    target = Signature(Kind.CHECK, Stage.RUN, "", "'./fails.sh {} {inputs}' exits")
    assert "{inputs} is minimal_inputs.pt." in script(
        signature=target, inputs="minimal_inputs.pt"
    )
    assert " is minimal_inputs.pt" not in script(signature=target)


def test_eager_error_is_tolerated_only_in_its_output() -> None:
    limits = ((1.3e-6, 1e-5), (1.3e-6, 1e-3))
    compared(EXACT + 0.002, limits)
    for wrong, chosen in ((0.5, limits), (0.002, limits[::-1]), (0.002, ())):
        with pytest.raises(AssertionError):
            compared(EXACT + wrong, chosen)


def test_tolerances_are_printed_exactly() -> None:
    assert "limits = [(0.0123, 0), (1.3e-06, 2.5e-05)]" in script(
        limits=((0.0123, 0.0), (1.3e-6, 2.5e-5))
    )


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


def test_modules_that_the_body_names_are_imported() -> None:
    body = "n = operator.neg(x.shape[0])", "return (n,)"
    text = write_repro(replace(PRINTED, body=body), about(), [], Data.SEEDED).text
    assert "import operator\n" in text


def test_header_names_no_folder() -> None:
    bad = Signature(Kind.LOAD_ERROR, Stage.LOAD, "", "in /tmp/a-1/b.so: undefined")
    assert "# in b.so: undefined" in script(signature=bad)


def test_flaky_failure_is_run_repeatedly_and_counted() -> None:
    text = script(runs=29, rate_after=0.4)
    ast.parse(text)
    assert ", in about 40% of the 29 runs;" in text
    assert "for attempt in range(29):" in text
    assert "of {attempt + 1} runs failed" in text
    assert text.index("aoti_load_package") < text.index("for attempt")
    assert text.rstrip().endswith('print("no longer fails")')


IMA = Signature(
    Kind.IMA, Stage.RUN, MEMORY_FAULT, "guard pages: read just past the end of a tensor"
)


def test_failure_that_needs_guard_pages_is_run_under_a_sanitizer() -> None:
    report = MemoryReport("heap-buffer-overflow", "read", 64, "cpp_fused_0", 27, "")
    plain = "passes (3 of 3 runs)"
    text = script(signature=IMA, guard=Guard.AFTER, without_guards=plain, report=report)
    ast.parse(text)
    assert "# Run:     under AddressSanitizer" in text
    assert "#   LD_PRELOAD=$(g++ -print-file-name=libasan.so) python repro.py\n" in text
    assert "# AddressSanitizer: heap-buffer-overflow: read of 64 bytes in" in text
    said = " ".join(text.replace("\n#", " ").split())
    assert "passes (3 of 3 runs). Verified with guard pages" in said


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
    assert "# Run:     compute-sanitizer python repro.py, or shrinkfx --verify" in text
    assert "# compute-sanitizer: out of bounds: read of 4 bytes in triton_0" in text
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


def test_failure_that_needs_no_guard_pages_runs_plainly() -> None:
    plain = "crash in run: SIGSEGV (10 of 10 runs)"
    text = script(signature=IMA, without_guards=plain)
    assert "# Run:     python repro.py\n" in text
    said = " ".join(text.replace("\n#", " ").split())
    assert (
        f"Without guard pages (inaccessible memory next to each tensor): {plain}."
        in said
    )
    assert "Sanitizer" not in text


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


def test_flaky_load_error_is_compiled_once_and_loaded_repeatedly() -> None:
    text = flaky(Kind.LOAD_ERROR, Stage.LOAD)
    compiled, loop, loaded = map(
        text.index, ("aoti_compile_and_package", "for attempt", "aoti_load_package")
    )
    assert compiled < loop < loaded


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


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Kind.IMA, "# Run:     compute-sanitizer python repro.py"),
        (Kind.COMPILE_ERROR, "# Verified by compiling for sm_80 with no GPU"),
    ],
)
def test_header_states_verification_without_a_gpu(kind: Kind, says: str) -> None:
    assert says in script(signature=Signature(kind, Stage.RUN), interpreted_for="sm_80")
    assert "GPU" not in script(signature=Signature(kind, Stage.RUN))


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
    assert said.endswith("`shrinkfx --verify`")
    assert (
        "not show the failure, and then exits with 125"
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


@pytest.mark.parametrize(
    ("failure", "changes"),
    [
        ((Kind.ASSERT, Stage.RUN, "index out of bounds"), RUNS),
        ((Kind.MISMATCH, Stage.COMPARE, ""), RUNS),
        ((Kind.COMPILE_ERROR, Stage.COMPILE, "Triton: no"), RUNS),
        ((Kind.ASSERT, Stage.RUN, "layout of mylib.op"), {}),
        ((Kind.IMA, Stage.RUN, MEMORY_FAULT), {}),
    ],
)
def test_script_with_a_visible_failure_reports_that_it_no_longer_fails(
    failure: tuple[Kind, Stage, str], changes: dict[str, Any]
) -> None:
    text = script(signature=Signature(*failure), **changes)
    assert text.endswith('print("no longer fails")\n')
    assert "SystemExit" not in text
    assert "# Run:     python repro.py\n" in text


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


def test_passing_inputs_are_the_export_example_if_they_fit() -> None:
    text = swept()
    assert "passing = (torch.randn(2, 3),)\nfailing = (torch.randn(failing),)" in text
    assert "export(model, passing, dynamic_shapes" in text
    assert "args" not in text


def test_failing_inputs_are_the_export_example_if_only_they_fit() -> None:
    text = swept(own="passing")
    assert "failing = (torch.randn(2, 3),)\npassing = (torch.randn(passing),)" in text
    assert "export(model, failing, dynamic_shapes" in text


def test_export_example_is_separate_if_no_other_inputs_fit() -> None:
    text = swept(own="passing failing")
    assert "args = (torch.randn(2, 3),)\npassing = (torch.randn(passing)" in text
    assert "export(model, args, dynamic_shapes" in text


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


def test_header_states_the_passing_sizes() -> None:
    assert "the script passes at the sizes of `passing`" in swept()
    assert "`passing`" not in script()


def test_header_states_a_failure_at_sizes_that_must_pass() -> None:
    text = script(at_passing=True)
    assert "only at the sizes that must pass (the input program passes there):" in text
    assert "`failing`" not in text
    assert "the sizes that must pass" not in swept()


def test_embedded_program_runs_passing_inputs_first() -> None:
    runs = {"passing": "(torch.ones(3),)", "failing": "(torch.ones(4),)"}
    text = write_embedded("minimal.pt2", about(passes=True), [], runs, NoSource.PASSES)
    assert "passing = (torch.ones(3),)\nfailing = (torch.ones(4),)" in text
    assert "for inputs in (passing, failing):" in text
    ast.parse(text)


def test_repro_of_a_too_small_result_does_not_claim_a_fix() -> None:
    record = about(short_results=("my.narrow.default", "my.other.default"))
    programs = replace(record.programs, targets=("my.narrow.default",))
    text = write_repro(PRINTED, replace(record, programs=programs), [], Data.SEEDED)
    said = text.text
    ast.parse(said)
    header = " ".join(said.replace("#", " ").split())
    assert "this can also happen before: it depends on the memory after" in header
    assert "after the end of the too small results of my.narrow.default" in header
    assert "no longer fails, or not in this run: " in said
    assert max(map(len, said.splitlines())) <= 100
    gone = replace(programs, targets=("aten.relu.default",))
    text = write_repro(PRINTED, replace(record, programs=gone), [], Data.SEEDED)
    assert "in this run" not in text.text


def test_header_warns_that_the_failure_changed_its_form() -> None:
    target = Signature(Kind.MISMATCH, Stage.COMPARE, "", "shapes", differs="shape")
    values = replace(target, text="output 0: 2 of 2", differs="values")
    head = script(target=target, seen=values)
    said = " ".join(head.replace("#", "").split())
    assert (
        "Warning: the input program has wrong shape, and the reduced program has wrong "
        "values" in said
    )
    assert "wrong shape" not in script(target=target, seen=target)

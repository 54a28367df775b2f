"""What the compiler was at when it failed, from what it has raised and left."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import Arguments, FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.compiled_view import renumber_quotes
from shrinkfx.explain.compiling import (
    classify_phase,
    explain_stop,
    find_innermost_function,
    quote_error_lines,
)
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.compilers import parse_gcc_error, parse_triton_error
from shrinkfx.failure.readers.script import name_frame
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.record import Explanation
from shrinkfx.protocol.answers import Checked, Ending, Raised
from shrinkfx.protocol.files import Excerpt, Launch, Traces
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.testing import chain, whole

PROGRAM = whole(chain("x", "relu", "tanh", "cos", "sin"))
RECORDED = Path(__file__).parents[1] / "failure" / "recorded"


def recorded(name: str) -> Raised:
    told: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    answer = told.get("ending", told)["answer"]
    error = answer.get("error") or answer["Raised"]
    return Raised(error["type"], error["message"], tuple(error["frames"]))


class Server(FakeServer):
    """Ends in one way after the other, and leaves traces."""

    def __init__(self, traces: Traces, *endings: Ending) -> None:
        told = iter(endings)

        def answer(arguments: Arguments) -> Ending:
            if arguments.get("evidence"):
                Path(arguments["evidence"]).write_text(traces.to_line())
            return next(told)

        super().__init__(answer)


def explain(traces: Traces, *endings: Ending, **options: Any) -> StopPoint:
    target = classify_ending(endings[0]).signature
    assert target
    server = Server(traces, *endings)
    client = CheckClient(server, Limits(20.0, 1 << 30), CheckOptions(**options))
    found = explain_stop(ReducedProgram(client, PROGRAM, target))
    assert found
    return found


def raised(error: Raised) -> Ending:
    return Ending("exit", stage="compile", answer=error)


@pytest.mark.parametrize(
    ("name", "doing", "place"),
    [
        ("lowering/alone", "lowering", "plants.py:cannot_scan"),
        ("compile_lowering_raises", "lowering", "planted.py:lower_unless_padded"),
        (
            "compile_183988_randperm_index",
            "a joint-graph pass",
            "torch/_inductor/pattern_matcher.py:_unflatten_match_kwargs",
        ),
        (
            "cpp_missing/alone",
            "C++ compilation",
            "torch/_inductor/cpp_builder.py:_run_compile_cmd",
        ),
    ],
)
def test_phase_and_function_are_classified_from_frames(
    name: str, doing: str, place: str
) -> None:
    frames = recorded(name).frames
    assert classify_phase(frames) == doing
    assert find_innermost_function(frames) == place


@pytest.mark.parametrize(
    ("frame", "doing"),
    [
        ("torch/_inductor/fx_passes/post_grad.py:post_grad_passes", "a post-grad pass"),
        ("torch/_inductor/codegen/cpp.py:codegen_loops", "C++ code generation"),
        ("torch/_inductor/codegen/triton.py:load", "Triton code generation"),
        (
            "torch/_inductor/codegen/cpp_wrapper_cpu.py:generate",
            "wrapper code generation",
        ),
        ("torch/_decomp/decompositions.py:gelu", "a decomposition"),
        ("torch/nn/modules/module.py:_call_impl", ""),
    ],
)
def test_phase_comes_from_the_innermost_known_frame(frame: str, doing: str) -> None:
    assert classify_phase((frame, "torch/fx/node.py:args")) == doing


def test_interpreter_code_generation_frames_are_not_named() -> None:
    ours = "shrinkfx/worker/interpreter/cuda_source.py:_compile_kernels"
    frames = ("torch/_inductor/codegen/cpp_wrapper_gpu.py:generate", ours)
    assert name_frame(f"/home/me/{ours[:-17]}", "_compile_kernels") == ours
    found = explain(Traces(), raised(Raised("RuntimeError", "out of memory", frames)))
    assert found.cause == ("Benchmarking fails: out of memory.",)


def test_undeclared_size_in_the_wrapper_blames_an_operator_not_a_kernel() -> None:
    said = (
        "CppCompileError: C++ compile error\n\nOutput:\n/tmp/c.wrapper.cpp: In member "
        "function 'void torch::aot_inductor::AOTInductorModel::run_impl(int)':\n"
        "/tmp/c.wrapper.cpp:894:11: error: 'u0' was not declared in this scope\n"
        "  894 |     if (!(u0 >= 0L)) {}\n      |           ^~\n"
    )
    traces = Traces(raised_at=(("tanh",),))
    found = explain(traces, raised(Raised("InductorError", said)))
    assert found.kernel == ""
    assert found.cause[0] == (
        "C++ compilation of aten.tanh.default fails: 'u0' was not declared in this "
        "scope."
    )


def test_lowering_failure_names_operator_and_function() -> None:
    traces = Traces(raised_at=(("tanh",),))
    found = explain(traces, raised(recorded("lowering/alone")))
    assert [operator.name for operator in found.culprits] == ["tanh"]
    assert found.cause == (
        "Lowering of aten.tanh.default fails: NotImplementedError: planted: cannot "
        "scan [5].",
        "The error is raised in plants.py:cannot_scan.",
    )


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        ("InductorError", "AssertionError: ", "AssertionError without a message."),
        ("AssertionError", "", "AssertionError without a message."),
        ("RuntimeError", "must be an alias!", "must be an alias!"),
        ("RuntimeError", "it is: 3.", "it is: 3."),
    ],
)
def test_error_is_quoted_by_message_or_by_type_if_empty(
    kind: str, message: str, said: str
) -> None:
    frames = ("torch/_inductor/codegen/cpp_wrapper_cpu.py:fill_args",)
    found = explain(Traces(), raised(Raised(kind, message, frames)))
    assert found.cause[0].endswith(f"fails: {said}")


KERNEL = "cpp_fused_add_cat_hypot_mul_native_layer_norm_sigmoid_split_view_5"


def test_compile_error_line_is_shown_with_its_context() -> None:
    error = recorded("compile_missing_symbol")
    complaint = parse_gcc_error(error.message)
    assert complaint
    lines = ("{", "    a();", "    b();", *complaint.code, "    c();", "}", "")
    excerpt = Excerpt(638, 641, lines)
    launches = Launch("cpp_0", ("relu",)), Launch(KERNEL, ("tanh", "cos"))
    found = explain(Traces(launches, excerpt=excerpt), raised(error))
    assert [operator.name for operator in found.culprits] == ["tanh", "cos"]
    assert found.kernel == KERNEL
    assert found.cause == (
        f"C++ compilation of kernel {KERNEL}, which computes aten.tanh.default and "
        "aten.cos.default, fails: ‘planted_missing_hypot’ was not declared in this "  # noqa: RUF001
        "scope.",
        "The error is at line 641 of the generated file: `auto tmp15 = "
        "planted_missing_hypot(tmp9, tmp14);`.",
    )
    assert len(found.code) == len(lines)
    (marked,) = (line for line in found.code if line.mark)
    place = marked.text.index("planted_missing")
    assert marked.mark[place:].startswith("^~~")


def test_quoted_lines_are_renumbered_as_in_saved_sources() -> None:
    code = tuple(CodeLine(n, text, n == 12) for n, text in enumerate("abc", 11))
    halted = StopPoint((), "C++ compilation", code=code, file="other.cpp")
    known = Explanation(cause=halted.cause, compile_error=halted)
    told = renumber_quotes(known, {"explain/sources/k.cpp": "x\n  a\nb\n c\n"})
    assert told.cause == (
        "C++ compilation fails.",
        "The error is at line 3 of explain/sources/k.cpp: `b`.",
    )
    assert told.compile_error
    assert told.compile_error.cause == told.cause
    assert [line.number for line in told.compile_error.code] == [2, 3, 4]
    assert renumber_quotes(known, {}) == known


def test_linker_error_is_distinguished_from_a_compile_error() -> None:
    found = explain(Traces(), raised(recorded("linker/alone")))
    assert found.doing == "linking"


def test_triton_error_marks_its_last_quoted_line() -> None:
    text = (
        "at 3:10:\ndef leaky(x):\n    y = x\n    z = y + SLOPE\n          ^\n"
        "NameError('SLOPE')"
    )
    complaint = parse_triton_error(text)
    assert complaint
    code = quote_error_lines(complaint, None)
    assert [line.number for line in code] == [1, 2, 3]
    assert code[-1].mark.index("^") == 10


RUNNING = (Launch("cpp_0", ("relu",)), Launch("cpp_1", ("tanh", "cos")))
HANGS = Ending("timeout", stage="run")
PRINTED = "[ before_launch: cpp_0 ]\n[ after_launch: cpp_0 ]\n"


def test_hang_is_attributed_to_the_running_kernel() -> None:
    hangs = replace(HANGS, log=f"{PRINTED}[ before_launch: cpp_1 ]\n")
    found = explain(Traces(RUNNING), hangs)
    assert [operator.name for operator in found.culprits] == ["tanh", "cos"]
    assert found.cause == (
        "The run of kernel cpp_1 (launch 2 of 2), which computes aten.tanh.default and "
        "aten.cos.default, fails: it did not finish within 20 s.",
    )


def test_kernel_not_yet_launched_is_not_reported_as_run() -> None:
    found = explain(Traces(RUNNING), replace(HANGS, log=PRINTED))
    assert found.cause[0].startswith("The run")
    assert "before kernel cpp_1 (launch 2 of 2) fails" in found.cause[0]
    assert "which computes" not in found.cause[0]


def test_failing_operator_call_blames_only_its_operator() -> None:
    launches = (RUNNING[0], Launch("aoti_torch_cpu_tanh", ("relu", "tanh")))
    printed = f"{PRINTED}[ before_launch: at::_ops::tanh::call ]\n"
    found = explain(Traces(launches), replace(HANGS, log=printed))
    assert [operator.name for operator in found.culprits] == ["tanh"]
    assert (found.launch, found.before) == (2, False)


def test_no_kernel_is_named_if_no_launch_was_printed() -> None:
    found = explain(Traces(RUNNING[:1]), HANGS)
    assert found.kernel == ""


def test_eager_failure_is_recorded_in_the_explanation() -> None:
    found = explain(Traces(RUNNING[:1]), HANGS, reference=False)
    assert found.eager_fails


@pytest.mark.parametrize(
    "target",
    [Signature(Kind.MISMATCH, Stage.COMPARE), Signature(Kind.ASSERT, Stage.RUN, "x")],
)
def test_stop_point_is_none_for_other_failure_kinds(target: Signature) -> None:
    client = CheckClient(FakeServer(HANGS), Limits(20.0, 1 << 30))
    assert explain_stop(ReducedProgram(client, PROGRAM, target)) is None


def test_compiler_crash_is_described_as_compilation() -> None:
    died = Ending("signal", signal.SIGSEGV, "compile")
    found = explain(Traces(raised_at=(("cos",),)), died)
    assert found.doing == "compilation"


def test_compiler_hang_is_described_as_a_timeout() -> None:
    found = explain(Traces(), Ending("timeout", stage="compile"))
    assert found.cause == ("Compilation fails: it did not finish within 20 s.",)


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (
            Ending("exit", 0, "done", Checked()),
            "the instrumented run did not fail",
        ),
        (Ending("late", 9, "compile"), "the run had no result: "),
    ],
)
def test_unknown_stop_point_has_a_reason(then: Ending, why: str) -> None:
    before = Ending("exit", stage="compile", answer=recorded("lowering/alone"))
    seen = classify_ending(before).signature
    assert seen
    client = CheckClient(Server(Traces(), then), Limits(20.0, 1 << 30))
    found = explain_stop(ReducedProgram(client, PROGRAM, seen))
    assert found is not None
    assert not found.cause
    (unknown,) = found.unknown
    assert unknown.startswith(f"where the program stops: {why}")


def lowering(calls: str) -> StopPoint:
    traces = Traces(raised_at=(("tanh",),), at_work=calls)
    return explain(traces, raised(recorded("lowering/alone")))


@pytest.mark.parametrize(
    ("calls", "named"),
    [
        ("aten.tanh.default", "aten.tanh.default"),
        ("aten.exp.default", "aten.exp.default (from aten.tanh.default)"),
    ],
)
def test_failing_lowering_is_named_by_its_call_target(calls: str, named: str) -> None:
    found = lowering(calls)
    assert [operator.name for operator in found.culprits] == ["tanh"]
    assert found.cause[0].startswith(f"Lowering of {named} fails: NotImplemented")


def test_node_without_a_remaining_origin_names_no_origin() -> None:
    traces = Traces(raised_at=(("gone",),), at_work="aten.copy_.default")
    found = explain(traces, raised(recorded("lowering/alone")))
    assert found.cause[0].startswith("Lowering of aten.copy_.default fails: ")

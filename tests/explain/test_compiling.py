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


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (
            Ending("exit", 0, "done", Checked()),
            "the run for this analysis did not fail",
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


UNDECLARED = (
    "CppCompileError: C++ compile error\n\nOutput:\n/tmp/c.wrapper.cpp: In member "
    "function 'void torch::aot_inductor::AOTInductorModel::run_impl(int)':\n"
    "/tmp/c.wrapper.cpp:894:11: error: 'u0' was not declared in this scope\n"
    "  894 |     if (!(u0 >= 0L)) {}\n      |           ^~\n"
)
AT_TANH = Traces(raised_at=(("tanh",),))
CALLS = Traces((RUNNING[0], Launch("aoti_torch_cpu_tanh", ("relu", "tanh"))))
LOWERING = raised(recorded("lowering/alone"))


def generating(kind: str, message: str) -> tuple[Traces, Ending]:
    frames = ("torch/_inductor/codegen/cpp_wrapper_cpu.py:fill_args",)
    return Traces(), raised(Raised(kind, message, frames))


STOPS = {
    "a size that the wrapper does not declare": (
        AT_TANH,
        raised(Raised("InductorError", UNDECLARED)),
    ),
    "the linker": (Traces(), raised(recorded("linker/alone"))),
    "a lowering": (AT_TANH, LOWERING),
    "a lowering of the operator itself": (
        replace(AT_TANH, at_work="aten.tanh.default"),
        LOWERING,
    ),
    "a lowering of its decomposition": (
        replace(AT_TANH, at_work="aten.exp.default"),
        LOWERING,
    ),
    "a lowering of a node without an origin": (
        Traces(raised_at=(("gone",),), at_work="aten.copy_.default"),
        LOWERING,
    ),
    "a type without a message": generating("InductorError", "AssertionError: "),
    "no message": generating("AssertionError", ""),
    "an exclamation": generating("RuntimeError", "must be an alias!"),
    "a sentence": generating("RuntimeError", "it is: 3."),
    "the compiler crashes": (
        Traces(raised_at=(("cos",),)),
        Ending("signal", signal.SIGSEGV, "compile"),
    ),
    "the compiler hangs": (Traces(), Ending("timeout", stage="compile")),
    "a kernel hangs": (
        Traces(RUNNING),
        replace(HANGS, log=f"{PRINTED}[ before_launch: cpp_1 ]\n"),
    ),
    "it hangs before a kernel": (Traces(RUNNING), replace(HANGS, log=PRINTED)),
    "a call of an operator hangs": (
        CALLS,
        replace(HANGS, log=f"{PRINTED}[ before_launch: at::_ops::tanh::call ]\n"),
    ),
    "it hangs, and no launch was printed": (Traces(RUNNING[:1]), HANGS),
}


def all_texts() -> str:
    texts = []
    for name, (traces, ending) in STOPS.items():
        found = explain(traces, ending)
        lines = [f"# {name}", f"culprits: {', '.join(o.name for o in found.culprits)}"]
        lines += [f"cause: {sentence}" for sentence in found.cause]
        texts.append("\n".join([*lines, *(f"unknown: {why}" for why in found.unknown)]))
    return "\n\n".join(texts) + "\n"


def test_stop_points_match_the_golden_file() -> None:
    """Read it in one go, and record it again where it is to change."""
    golden = Path(__file__).parents[1] / "golden" / "stop_points.txt"
    assert all_texts() == golden.read_text()

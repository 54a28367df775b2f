"""Recorded ends of real children, and the identity that each must have."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from recordings import read_ending

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome, judge
from shrinkfx.protocol.answers import (
    Built,
    Checked,
    Difference,
    Ending,
    Raised,
    Stopped,
)
from shrinkfx.protocol.choices import Build, Step

RECORDED = Path(__file__).parent / "recorded"
KINDS = {
    "assert_190272_fractional_pool": (Kind.ASSERT, Stage.RUN),
    "assert_roll_bound": (Kind.ASSERT, Stage.RUN),
    "compile_183988_randperm_index": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "compile_lowering_raises": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "compile_missing_symbol": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "crash_null_read": (Kind.CRASH, Stage.RUN),
    "mismatch_wrong_constant": (Kind.MISMATCH, Stage.COMPARE),
    "planted_dynbatch_index": (Kind.ASSERT, Stage.RUN),
}


def ending(name: str) -> Ending:
    return read_ending(json.loads((RECORDED / f"{name}.json").read_text()))


def signature(name: str) -> Signature:
    seen = classify_ending(ending(name)).signature
    assert seen is not None
    return seen


def raised(
    kind: str, message: str, stage: str = "compile", frames: Sequence[str] = ()
) -> Ending:
    return Ending("exit", stage=stage, answer=Raised(kind, message, tuple(frames)))


@pytest.mark.parametrize("name", KINDS)
def test_recorded_failure_has_its_kind_and_stage(name: str) -> None:
    assert (signature(name).kind, signature(name).stage) == KINDS[name]


@pytest.mark.parametrize("name", KINDS)
def test_failure_of_the_small_program_is_admitted(name: str) -> None:
    assert signature(name).admits(signature(f"{name}_small"))


@pytest.mark.parametrize("name", KINDS)
def test_signature_detail_has_no_digits(name: str) -> None:
    assert not any(c.isdigit() for c in signature(name).detail.replace("C++", ""))


def test_abort_and_exception_are_the_same_assertion() -> None:
    abort, exception = (
        ending("assert_190272_fractional_pool"),
        ending("assert_roll_bound_small"),
    )
    assert (abort.how, abort.code) == ("signal", signal.SIGABRT)
    assert exception.raised is not None
    assert exception.raised.type == "RuntimeError"
    one, other = classify_ending(abort).signature, classify_ending(exception).signature
    assert one is not None
    assert one.admits(other)


def test_aborting_check_is_the_same_assertion_as_a_raising_one() -> None:
    said = "Expected table_is_ready to be True"
    log = f"terminate called after throwing 'c10::Error'\n  what():  {said}\n"
    abort = classify_ending(Ending("signal", signal.SIGABRT, "run", log=log)).signature
    error = classify_ending(raised("RuntimeError", said, "run")).signature
    assert abort is not None
    assert abort.kind is Kind.ASSERT
    assert abort.admits(error)


def test_misaligned_result_of_an_operator_is_an_assertion() -> None:
    said = "\nError in op: torch.ops.my.off.default\nExpect the tensor to be 16 bytes "
    said += "aligned. Fail due to storage_offset=1 itemsize=4"
    seen = classify_ending(raised("RuntimeError", said, "run")).signature
    assert seen is not None
    assert seen.kind is Kind.ASSERT
    assert seen.detail == "alignment of torch.ops.my.off.default"
    assert "16 bytes aligned" in seen.text


def test_compile_errors_have_distinct_details() -> None:
    names = ["compile_183988_randperm_index", "compile_lowering_raises"]
    names.append("compile_missing_symbol")
    details = {signature(name).detail for name in names}
    assert len(details) == len(names)


def test_error_is_the_same_if_dynamo_wraps_it() -> None:
    texts = [f"backend='{name}' raised:\nRuntimeError: no" for name in ("a", "b")]
    endings = [raised("BackendCompilerFailed", text) for text in texts]
    for each in (*endings, raised("RuntimeError", "no")):
        seen = classify_ending(each).signature
        assert seen is not None
        assert seen.detail == "RuntimeError | no"


def test_same_lowering_error_of_another_operator_is_different() -> None:
    seen = ending("compile_lowering_raises")
    assert seen.raised is not None
    message = seen.raised.message
    other = dataclasses.replace(
        seen,
        answer=dataclasses.replace(
            seen.raised,
            message=message.replace("aten.cumsum.default", "aten.sort.stable"),
        ),
    )
    assert not signature("compile_lowering_raises").admits(
        classify_ending(other).signature
    )


def test_empty_messages_are_distinguished_by_the_innermost_torch_frame() -> None:
    seen = [
        classify_ending(
            raised("InductorError", "AssertionError: ", frames=["x.py:f", at, "y.py:g"])
        ).signature
        for at in ("torch/_inductor/ir.py:freeze", "torch/_inductor/ir.py:realize")
    ]
    assert seen[0] is not None
    assert "torch/_inductor/ir.py:freeze" in seen[0].detail
    assert not seen[0].admits(seen[1])


@pytest.mark.parametrize(
    "log",
    [
        "double free or corruption (out)",
        "malloc(): invalid size (unsorted)",
        "Fatal glibc error: malloc assertion failure in _int_malloc: (unsigned long) "
        "(size) >= (unsigned long) (nb)",
        "free(): invalid pointer",
    ],
)
def test_heap_corruption_is_a_memory_fault_like_a_segfault(log: str) -> None:
    corrupt = classify_ending(
        Ending("signal", signal.SIGABRT, "run", log=log)
    ).signature
    fault = classify_ending(Ending("signal", signal.SIGSEGV, "run")).signature
    assert corrupt is not None
    assert corrupt.kind is Kind.IMA
    assert corrupt.admits(fault)


def test_segfault_during_comparison_has_stage_run() -> None:
    seen = classify_ending(Ending("signal", signal.SIGSEGV, "compare")).signature
    assert seen is not None
    assert seen.stage is Stage.RUN


def test_crash_of_the_compiler_is_not_a_crash_of_the_program() -> None:
    compiling = classify_ending(Ending("signal", signal.SIGSEGV, "compile")).signature
    running = classify_ending(Ending("signal", signal.SIGSEGV, "run")).signature
    assert compiling is not None
    assert not compiling.admits(running)


@pytest.mark.parametrize("stage", ["rebuild", "eager"])
def test_failure_before_the_compiler_is_invalid(stage: str) -> None:
    seen = classify_ending(raised("IndexError", "index 9 is out of bounds", stage))
    assert seen.signature is None
    assert "index 9" in seen.invalid


def test_timeout_is_an_unresolved_hang() -> None:
    seen = classify_ending(Ending("timeout", stage="run"))
    assert seen.signature is not None
    assert seen.signature.kind is Kind.HANG
    assert seen.unresolved


def test_hang_says_how_long_the_program_ran() -> None:
    ending = Ending("timeout", stage="run", seconds=43.0, waited_s=13.0)
    seen = classify_ending(ending).signature
    assert seen is not None
    assert seen.text == "did not end within 30 s"
    unknown = classify_ending(dataclasses.replace(ending, seconds=13.0)).signature
    assert unknown == seen


def test_kill_from_outside_is_no_failure() -> None:
    seen = classify_ending(Ending("signal", signal.SIGKILL, "run"))
    assert seen.signature is None
    assert seen.unresolved


def test_rejected_input_is_a_check_inputs_failure() -> None:
    log = "Error: input_handles[0]: unmatched dim value at 0, expected: 4, but got: 5"
    seen = classify_ending(
        dataclasses.replace(raised("RuntimeError", "API call failed", "run"), log=log)
    ).signature
    assert seen is not None
    assert seen.kind is Kind.CHECK_INPUTS


def on_cuda(kind: str, message: str, log: str = "", stage: str = "run") -> Signature:
    """A failure that no recording shows: its texts are quoted from bug reports."""
    ending = dataclasses.replace(raised(kind, message, stage), log=log)
    signature = classify_ending(ending).signature
    assert signature is not None
    return signature


def test_device_index_assertion_is_the_same_as_on_cpu() -> None:
    asserts = [
        on_cuda(
            "AcceleratorError",
            "CUDA error: device-side assert triggered",
            log=f"x.py:9: unknown: block: [{block}], thread: [1,0,0] Assertion "
            f"`index out of bounds: 0 <= tmp{block[0]} < ks0` failed",
        )
        for block in ("0,0,0", "7,0,0")
    ]
    for seen in asserts:
        assert signature("planted_dynbatch_index").admits(seen)
        assert seen.admits(asserts[0])


def test_device_assertions_are_distinct_and_match_the_interpreter() -> None:
    def asserted(words: str) -> Signature:
        return on_cuda(
            "AcceleratorError",
            "CUDA error: device-side assert triggered",
            log=f"x.py:9: unknown: block: [0,0,0], thread: [1,0,0] Assertion `{words}` "
            "failed.",
        )

    scale, shift = asserted("scale must be positive"), asserted("no shift")
    assert not scale.admits(shift)
    text = "interpreter: device-side assert in k (aten.mul): scale must be positive "
    error = Raised("Report", f"{text}[program (0, 0, 0), 5 lanes] at `x`")
    found = classify_ending(Ending("exit", stage="run", answer=error)).signature
    assert found is not None
    assert found.admits(scale)


def test_pass_has_no_signature() -> None:
    seen = classify_ending(Ending("exit", stage="done", answer=Checked()))
    assert seen.signature is None
    assert not seen.invalid
    assert not seen.unresolved


TRITON = """RuntimeError: Failed to run autotuning code block: at 5:56:
def {kernel}(source, target, block: tl.constexpr):
    value = tl.load(source + {offset})
                             ^
{error}"""


def test_triton_compile_error_is_identified_by_message_not_kernel() -> None:
    error = "NameError('SLOPE is not defined')"
    large, small = (
        classify_ending(raised("InductorError", text)).signature
        for text in (
            TRITON.format(kernel="leaky_kernel", offset="place + 64", error=error),
            TRITON.format(kernel="triton_poi_0", offset="x0", error=error),
        )
    )
    assert large is not None
    assert large == small
    assert large.kind is Kind.COMPILE_ERROR
    assert large.detail == f"Triton: {error}"


def test_triton_compile_error_in_a_helper_has_the_helper_message() -> None:
    inner = "at 2:8:\ndef helper(x):\n  return x.y\n         ^\nAttributeError('y')"
    text = TRITON.format(kernel="kernel", offset="helper(place)", error=inner)
    seen = classify_ending(raised("InductorError", text)).signature
    assert seen is not None
    assert seen.detail == "Triton: AttributeError('y')"


def test_too_much_shared_memory_is_a_compile_error_at_any_size() -> None:
    text = (
        "RuntimeError: Failed to run autotuning code block: out of resource: shared "
        "memory, Required: {}, Hardware limit: 232448. Reducing block sizes may help."
    )
    large, small = (
        classify_ending(raised("InductorError", text.format(n))).signature
        for n in (524_288, 262_144)
    )
    assert large is not None
    assert large == small
    assert large.kind is Kind.COMPILE_ERROR


def test_build_step_is_recorded_for_compile_failures() -> None:
    built = Built(Build.FAST, Step.KERNEL)
    raised = Raised("InductorError", "no")
    seen = classify_ending(Ending("exit", stage="compile", answer=raised, built=built))
    assert seen.step == "kernel"
    assert classify_ending(Ending("signal", 11, "run", built=built)).step is None


def test_stopped_candidate_has_passed_with_its_reason() -> None:
    stopped = Stopped("lowering passes, nothing else was tried")
    seen = classify_ending(Ending("exit", stage="compile", answer=stopped))
    assert judge(seen, Signature(Kind.COMPILE_ERROR, Stage.COMPILE)) is Outcome.PASSED
    assert seen.stopped == stopped.why


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (
            raised("RuntimeError", "index out of bounds: 0 <= tmp0 < 3", "passing"),
            "assert",
        ),
        (Ending("signal", signal.SIGSEGV, "passing"), "crash"),
        (
            Ending("exit", 0, "passing", Checked(Difference("nan", "nan"))),
            "nan",
        ),
    ],
)
def test_failure_in_the_passing_run_is_a_different_one(seen: Ending, kind: str) -> None:
    early = classify_ending(seen)
    late = classify_ending(dataclasses.replace(seen, stage="run")).signature
    assert late is not None
    assert early.signature is not None
    assert (early.signature.kind, early.signature.stage) == (kind, Stage.PASSING)
    assert judge(early, late) is Outcome.DIFFERENT
    assert (
        judge(classify_ending(dataclasses.replace(seen, stage="run")), late).value
        == "reproduced"
    )


def test_timeout_in_the_passing_run_is_unresolved() -> None:
    hang = Signature(Kind.HANG, Stage.RUN)
    seen = classify_ending(Ending("timeout", stage="passing"))
    assert judge(seen, hang) is Outcome.UNRESOLVED


@pytest.mark.parametrize(("besides", "beside_nan"), [("nan", True), ("", False)])
def test_mismatch_records_nan_in_other_outputs(besides: str, beside_nan: bool) -> None:
    answer = Checked(Difference("values", "wrong", besides))
    seen = classify_ending(Ending("exit", stage="done", answer=answer))
    assert seen.signature is not None
    assert seen.signature.beside_nan is beside_nan


def test_log_keeps_text_before_a_multithreaded_fault() -> None:
    frames = '  File "/torch/_inductor/model.py", line 1 in load\n' * 40
    dump = f"Fatal Python error: Segmentation fault\n\n{frames}"
    ending = Ending("signal", signal.SIGSEGV, "run", log="code at 5\n" + dump * 9)
    log = classify_ending(ending).log
    assert log.startswith(f"code at 5\n{dump}")
    assert log.endswith(dump)
    assert len(log) == 16_005

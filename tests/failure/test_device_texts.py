"""What a GPU dies with: texts of bug reports, of libcudart 13.0 and of the driver."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.device import find_gpu_loss
from shrinkfx.failure.signature import (
    MEMORY_FAULT,
    Kind,
    Signature,
    Stage,
    is_until_target,
)
from shrinkfx.failure.verdict import Observation, Outcome, judge
from shrinkfx.protocol.answers import Ending, Raised

STRAY = {
    700: ("an illegal memory access was encountered", "cudaErrorIllegalAddress"),
    716: ("misaligned address", "cudaErrorMisalignedAddress"),
    717: (
        "operation not supported on global/shared address space",
        "cudaErrorInvalidAddressSpace",
    ),
    719: ("unspecified launch failure", "cudaErrorLaunchFailure"),
}
ASTRAY = {
    714: ("hardware stack error", "cudaErrorHardwareStackError"),
    715: ("an illegal instruction was encountered", "cudaErrorIllegalInstruction"),
    718: ("invalid program counter", "cudaErrorInvalidPc"),
}
MACHINES = {
    214: ("uncorrectable ECC error encountered", "cudaErrorECCUncorrectable"),
    220: (
        "uncorrectable NVLink error detected during the execution",
        "cudaErrorNvlinkUncorrectable",
    ),
    721: (
        "Invalid access of peer GPU memory over nvlink or a hardware error",
        "cudaErrorContained",
    ),
    46: (
        "CUDA-capable device(s) is/are busy or unavailable",
        "cudaErrorDevicesUnavailable",
    ),
    100: ("no CUDA-capable device is detected", "cudaErrorNoDevice"),
    999: ("unknown error", "cudaErrorUnknown"),
}
ADVICE = (
    "\nSearch for `{}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART"
    "__TYPES.html for more information.\nCUDA kernel errors might be asynchronously "
    "reported at some other API call, so the stacktrace below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
API = (
    "run_func_( container_handle_, input_handles.data(), input_handles.size()) API "
    "call failed at /src/model_container_runner.cpp, line 147"
)


def seen(kind: str, message: str, log: str = "", stage: str = "run") -> Observation:
    ending = Ending("exit", stage=stage, answer=Raised(kind, message))
    return classify_ending(dataclasses.replace(ending, log=log))


def ways_to_say(words: str, name: str) -> list[Observation]:
    """As PyTorch before 2.12 and since, Triton, and AOTInductor's runner say it."""
    aborts = f"terminate called\n  what():  CUDA error: {words}\n"
    return [
        seen("RuntimeError", f"CUDA error: {words}"),
        seen("AcceleratorError", f"CUDA error: {words}{ADVICE.format(name)}"),
        seen("RuntimeError", f"Triton Error [CUDA]: {words}"),
        seen("RuntimeError", API, log=f"CUDA driver error: {words}\n"),
        classify_ending(Ending("signal", 6, "run", log=aborts)),
    ]


def signatures(words: str, name: str) -> list[Signature]:
    found = [each.signature for each in ways_to_say(words, name)]
    assert None not in found
    return [each for each in found if each is not None]


@pytest.mark.parametrize("code", STRAY)
def test_illegal_access_is_one_failure_in_all_wordings(code: int) -> None:
    illegal = signatures(*STRAY[700])[0]
    for each in signatures(*STRAY[code]):
        assert (each.kind, each.stage, each.detail) == (
            Kind.IMA,
            Stage.RUN,
            MEMORY_FAULT,
        )
        assert illegal.admits(each)
        assert each.admits(illegal)
        assert is_until_target("ima", each)
    by_name = seen("RuntimeError", f"CUDA error: {STRAY[code][1]}").signature
    assert illegal.admits(by_name)


def test_kernel_that_fails_when_it_is_timed_may_fail_when_it_runs() -> None:
    runs = signatures(*STRAY[700])[0]
    timed = replace(runs, stage=Stage.COMPILE)
    assert timed.admits(runs)
    assert not runs.admits(timed)
    corrupt = replace(timed, text="free(): invalid pointer")
    assert not corrupt.admits(replace(runs, text=corrupt.text))


@pytest.mark.parametrize("code", ASTRAY)
def test_device_execution_errors_are_distinct_crashes(code: int) -> None:
    illegal = signatures(*STRAY[700])[0]
    others = [signatures(*words)[0] for c, words in ASTRAY.items() if c != code]
    first, *same = signatures(*ASTRAY[code])
    for each in (first, *same):
        assert (each.kind, each.stage) == (Kind.CRASH, Stage.RUN)
        assert first.admits(each)
        assert not illegal.admits(each)
        assert not any(other.admits(each) for other in others)


def test_launch_that_times_out_is_a_hang() -> None:
    for each in signatures(
        "the launch timed out and was terminated", "cudaErrorLaunchTimeout"
    ):
        assert each.kind is Kind.HANG
        hang = classify_ending(Ending("timeout", stage="run")).signature
        assert hang is not None
        assert hang.admits(each)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity",
        "CUDA error: out of memory",
        "CUDA driver error: out of memory",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        f"CUDA error: out of memory{ADVICE.format('cudaErrorMemoryAllocation')}",
    ],
)
def test_device_out_of_memory_is_classified_at_each_stage(text: str) -> None:
    for stage in ("compile", "load", "run"):
        found = seen("OutOfMemoryError", text, stage=stage).signature
        assert found is not None
        assert (found.kind, found.stage) == (Kind.OOM, Stage(stage))


@pytest.mark.parametrize("stage", ["compile", "load", "run"])
@pytest.mark.parametrize("code", STRAY)
def test_illegal_access_has_the_stage_where_it_occurs(code: int, stage: str) -> None:
    found = seen("RuntimeError", f"CUDA error: {STRAY[code][0]}", stage=stage)
    assert found.signature is not None
    assert (found.signature.kind, found.signature.stage) == (Kind.IMA, Stage(stage))


@pytest.mark.parametrize("code", MACHINES)
def test_gpu_failure_is_unresolved(code: int) -> None:
    for each in ways_to_say(*MACHINES[code]):
        assert each.signature is None
        assert "the GPU has failed" in each.unresolved
        for target in (signatures(*STRAY[700])[0], signatures(*ASTRAY[715])[0]):
            assert judge(each, target) is Outcome.UNRESOLVED


def test_gpu_loss_is_only_a_missing_device() -> None:
    assert find_gpu_loss("CUDA error: no CUDA-capable device is detected")
    assert find_gpu_loss("GPU has fallen off the bus")
    assert not find_gpu_loss("CUDA error: uncorrectable ECC error encountered")


def printed(*words: str) -> str:
    return "".join(
        f"/x/c{i}.py:{30 + i}: unknown: block: [{i},0,0], thread: [{i},0,0] Assertion "
        f"`{said}` failed.\n"
        for i, said in enumerate(words)
    )


def asserted(*words: str) -> Signature:
    found = seen(
        "AcceleratorError",
        f"CUDA error: device-side assert triggered{ADVICE.format('cudaErrorAssert')}",
        log=printed(*words),
    ).signature
    assert found is not None
    assert found.kind is Kind.ASSERT
    return found


BOUNDS, OTHER_BOUNDS = (
    "index out of bounds: 0 <= tmp4 < ks0",
    '-sizes[i] <= index && index < sizes[i] && "index out of bounds"',
)
SCALE, SHIFT = "scale must be positive", "no shift"


def test_signature_ignores_the_order_of_device_assertions() -> None:
    for one, other in ((SCALE, SHIFT), (BOUNDS, SCALE), (BOUNDS, OTHER_BOUNDS)):
        first, second = asserted(one, other, one), asserted(other, one)
        assert (first.detail, first.text) == (second.detail, second.text)


def test_index_assertion_takes_precedence_over_others() -> None:
    index = asserted(BOUNDS)
    assert index.detail == "index out of bounds"
    assert index.admits(asserted(SCALE, OTHER_BOUNDS))
    assert not index.admits(asserted(SCALE))


def test_assertion_of_a_benchmarked_kernel_is_not_a_compile_error() -> None:
    """As an H100 has said it (torch 2.11)."""
    text = "AcceleratorError: CUDA error: device-side assert triggered"
    found = seen("InductorError", text, log=printed(SCALE), stage="compile").signature
    assert found is not None
    assert (found.kind, found.stage) == (Kind.ASSERT, Stage.COMPILE)
    assert found.text == SCALE


def test_signature_ignores_assertion_quote_style() -> None:
    log = printed(SCALE).replace("`", "'")
    found = seen("RuntimeError", "CUDA error: device-side assert triggered", log=log)
    assert asserted(SCALE).admits(found.signature)


def test_device_assertion_without_text_is_an_assertion() -> None:
    found = seen("RuntimeError", "CUDA error: device-side assert triggered").signature
    assert found is not None
    assert found.kind is Kind.ASSERT

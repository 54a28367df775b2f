"""What the interpreter says, and what it is the same failure as."""

from __future__ import annotations

import pytest

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.device import classify_finding
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.protocol.answers import Ending, Raised, Unresolved

ACCESS = (
    "interpreter{who}: illegal memory access: out-of-bounds {access} of {size} bytes "
    "in triton_poi_fused_{number} ({operators}) through in_ptr0 (input 0): element "
    "{number} of 1056 [program (3, 0, 0), 32 lanes] at `tl.load(in_ptr0 + x0)`"
)
ASSERTION = (
    "interpreter: device-side assert in triton_red_fused_0 ({operators}): {words} "
    "[program (0, 0, 0), 5 lanes] at `tl.device_assert()`"
)
MISALIGNED = (
    "interpreter: misaligned address in triton_poi_fused_add_0 (aten.add) through "
    "in_ptr0 (result of mylib.op): declared divisible by 16, but is 4 bytes past"
)


def access(
    access: str = "load", number: int = 7, size: int = 4, operators: str = "aten.index"
) -> Signature:
    text = ACCESS.format(
        who="", access=access, number=number, size=size, operators=operators
    )
    seen = classify_finding(text, Stage.RUN)
    assert seen is not None
    return seen


def asserted(words: str, operators: str = "aten.index") -> Signature:
    seen = classify_finding(
        ASSERTION.format(words=words, operators=operators), Stage.RUN
    )
    assert seen is not None
    return seen


def test_out_of_bounds_access_has_a_direction() -> None:
    assert (access().kind, access().detail) == (Kind.IMA, "out-of-bounds read")
    assert access("store").detail == access("atomic").detail == "out-of-bounds write"
    assert not access().admits(access("store"))


def test_signature_ignores_kernel_offset_and_size() -> None:
    assert access(number=1, size=2).admits(access(number=900, size=8))


def test_signature_admits_fewer_operators_in_the_kernel() -> None:
    large = access(operators="aten.relu, aten.index, aten.add")
    assert large.admits(access(operators="aten.index"))
    assert not large.admits(access(operators="aten.gather"))


def test_interpreter_access_equals_the_illegal_access_on_a_device() -> None:
    on_device = Signature(
        Kind.IMA, Stage.RUN, MEMORY_FAULT, "CUDA error: an illegal ..."
    )
    assert access().admits(on_device)
    assert on_device.admits(access())
    assert not access().admits(Signature(Kind.IMA, Stage.COMPILE, MEMORY_FAULT))
    assert not access().admits(Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT))


def test_index_assertion_equals_that_of_compiled_code() -> None:
    seen = asserted("index out of bounds: 0 <= tmp4 < 10")
    assert seen.admits(asserted("index out of bounds: 0 <= tmp91 < ks0"))
    assert seen.admits(Signature(Kind.ASSERT, Stage.RUN, "index out of bounds"))
    assert not seen.admits(asserted("n must be even"))
    assert asserted("n 4 is odd").admits(asserted("n 6 is odd"))


def test_misaligned_access_differs_from_an_out_of_bounds_access() -> None:
    seen = classify_finding(MISALIGNED, Stage.RUN)
    assert seen is not None
    assert (seen.kind, seen.operators) == (Kind.IMA, ("aten.add",))
    assert not seen.admits(access(operators="aten.add"))


@pytest.mark.parametrize("stage", ["compile", "run"])
def test_benchmark_failure_has_stage_compile(stage: str) -> None:
    text = ACCESS.format(
        who=", compile-time benchmark",
        access="load",
        size=4,
        number=3,
        operators="aten.add",
    )
    error = Raised("Report", text)
    seen = classify_ending(Ending("exit", stage=stage, answer=error)).signature
    assert seen is not None
    assert (seen.kind, seen.stage) == (Kind.IMA, Stage.COMPILE)


def test_unsupported_code_on_the_interpreter_is_unresolved() -> None:
    reason = "interpreter: unsupported: inline assembly"
    seen = classify_ending(Ending("exit", stage="run", answer=Unresolved(reason)))
    assert seen.unresolved == reason
    assert seen.signature is None


def test_unrelated_text_is_not_a_finding() -> None:
    assert classify_finding("RuntimeError: the interpreter: no", Stage.RUN) is None
    assert (
        classify_finding("interpreter: unsupported: inline assembly", Stage.RUN) is None
    )

"""Reports of compute-sanitizer, in the forms that CUDA 12 and 13 give them.

No run of ours is among them: these are forms that others have published (NVIDIA's
manual, reports of bugs), with kernels by the names that Inductor gives.
"""

from __future__ import annotations

import pytest

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.memory import (
    RACE,
    UNINITIALIZED,
    MemoryReport,
    find_sanitizer_refusal,
    parse_sanitizer_report,
)
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.protocol.answers import Checked, Ending, Raised

OVERRUN = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at triton_poi_fused_add_0+0x1b0 in c7x2.py:33
=========     by thread (96,0,0) in block (3906,0,0)
=========     Access at 0x79fd33fd0980 is out of bounds
=========     and is 12 bytes after the nearest allocation at 0x7f00 of size 4,096 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at triton_poi_fused_add_0+0x1b0 in c7x2.py:33
=========     by thread (97,0,0) in block (3906,0,0)
=========     Access at 0x79fd33fd0984 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
MISALIGNED = """\
========= Invalid __global__ write of size 16 bytes
=========     at triton_red_fused_sum_1+0x160 in k.py:12
=========     by thread (0,0,0) in block (1,2,3)
=========     Address 0x7f5ffb000001 is misaligned
"""
INLINED = """\
========= Invalid __global__ read of size 4 bytes
=========     at load(float *)+0x1dd40 in array.h:908
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x327f6c26d4 is out of bounds
=========     and is 209 bytes after the nearest allocation at 0x327f26 of size 4 bytes
=========         Device Frame: helper(float *, int)+0x1dd40 in helper.py:1047
=========         Device Frame: triton_poi_fused_mul_2+0x19560 in k.py:58
=========     Saved host backtrace up to driver entry point at kernel launch time
"""
WITHOUT_LINES = """\
========= Invalid __shared__ read of size 8 bytes
=========     at void at::native::gather(float *, int)+0x490
=========     by thread (1,0,0) in block (0,0,0)
=========     Access at 0x40 is out of bounds
"""
IN_LIBRARY = """\
========= Uninitialized __global__ memory read of size 8 bytes
=========     at void cub::ThreadLoad(T2)+0x8a70 in thread_load.cuh:260
=========     by thread (16,0,0) in block (80,0,0)
=========     Address 0x7f615d40daf0
"""
UNWRITTEN = f"""{IN_LIBRARY}=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at triton_poi_fused_add_0+0x50 in k.py:7
=========     by thread (1,0,0) in block (2,0,0)
=========     Address 0x7f615d40db00
"""
RACES = """\
========= Error: Race reported between Write access at triton_red_0+0x90 in k.py:40
=========     and Read access at triton_red_0+0xf0 in k.py:44 [1088 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            OVERRUN,
            MemoryReport(
                *("global out of bounds", "read", 4, "triton_poi_fused_add_0", 33),
                "12 bytes after a 4,096-byte allocation",
                *("0x79fd33fd0980", "3906,0,0", "96,0,0"),
            ),
        ),
        (
            MISALIGNED,
            MemoryReport(
                *("global misaligned", "write", 16, "triton_red_fused_sum_1", 12, ""),
                *("0x7f5ffb000001", "1,2,3", "0,0,0"),
            ),
        ),
        (
            INLINED,
            MemoryReport(
                *("global out of bounds", "read", 4, "triton_poi_fused_mul_2", 58),
                "209 bytes after a 4-byte allocation",
                *("0x327f6c26d4", "0,0,0", "0,0,0"),
            ),
        ),
        (
            WITHOUT_LINES,
            MemoryReport(
                *("shared out of bounds", "read", 8, "void at::native::gather", 0, ""),
                *("0x40", "0,0,0", "1,0,0"),
            ),
        ),
        (
            UNWRITTEN,
            MemoryReport(
                *(UNINITIALIZED, "read", 4, "triton_poi_fused_add_0", 7, ""),
                *("0x7f615d40db00", "2,0,0", "1,0,0"),
            ),
        ),
        (RACES, MemoryReport(RACE, "write", 0, "triton_red_0", 40, "")),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", None),
        (IN_LIBRARY, None),
        ("", None),
    ],
)
def test_sanitizer_report_is_parsed(text: str, expected: MemoryReport | None) -> None:
    assert parse_sanitizer_report(f"before\n{text}after\n") == expected


def test_report_text_names_kernel_line_and_thread() -> None:
    assert str(parse_sanitizer_report(OVERRUN)) == (
        "global out of bounds: read of 4 bytes in triton_poi_fused_add_0, line 33 of "
        "its source, 12 bytes after a 4,096-byte allocation, by thread (96,0,0) in "
        "block (3906,0,0)"
    )


def test_report_of_a_generated_kernel_is_preferred() -> None:
    found = parse_sanitizer_report(WITHOUT_LINES + "=========\n" + OVERRUN)
    assert found is not None
    assert found.kernel == "triton_poi_fused_add_0"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '========= Error: Device not supported. Please refer to the "Supported '
            'Devices" section of the sanitizer documentation\n',
            "compute-sanitizer refuses: Device not supported. Please refer to the "
            '"Supported Devices" section of the sanitizer documentation',
        ),
        (
            "========= Internal Sanitizer Error: The Sanitizer encountered an error\n",
            "compute-sanitizer refuses: The Sanitizer encountered an error",
        ),
        ("========= Error: process didn't terminate successfully\n", ""),
        (RACES, ""),
        (OVERRUN, ""),
    ],
)
def test_sanitizer_refusal_is_distinguished_from_reports(text: str, why: str) -> None:
    assert find_sanitizer_refusal(text) == why


LAUNCH_FAILED = Raised("RuntimeError", "CUDA error: unspecified launch failure")


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (
            Ending("exit", 0, "run", answer=LAUNCH_FAILED, log=OVERRUN),
            Signature(
                Kind.IMA, Stage.RUN, MEMORY_FAULT, str(parse_sanitizer_report(OVERRUN))
            ),
        ),
        # These tools look on and let it run to its end.
        (
            Ending("exit", 0, "done", answer=Checked(), log=UNWRITTEN),
            Signature(
                Kind.IMA,
                Stage.RUN,
                UNINITIALIZED,
                str(parse_sanitizer_report(UNWRITTEN)),
            ),
        ),
        (
            Ending("exit", 0, "compare", answer=Checked(), log=RACES),
            Signature(Kind.IMA, Stage.RUN, RACE, str(parse_sanitizer_report(RACES))),
        ),
    ],
)
def test_sanitizer_report_becomes_the_signature(
    ending: Ending, expected: Signature
) -> None:
    assert classify_ending(ending).signature == expected


def test_out_of_bounds_access_in_eager_is_not_a_compiler_failure() -> None:
    ending = Ending("exit", 0, "eager", answer=LAUNCH_FAILED, log=WITHOUT_LINES)
    assert classify_ending(ending).signature is None
    assert classify_ending(ending).invalid.startswith("eager")


def test_check_refused_by_the_sanitizer_is_unresolved() -> None:
    log = "========= Error: Device not supported.\n"
    seen = classify_ending(Ending("exit", 1, "start", log=log))
    assert seen.signature is None
    assert seen.unresolved == "compute-sanitizer refuses: Device not supported."

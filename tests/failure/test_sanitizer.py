"""Reports of AddressSanitizer, recorded from compiled programs of ``repros/``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shrinkfx.failure.readers.memory import MemoryReport, parse_asan_report

RECORDED = Path(__file__).parent / "sanitized"

NULL_READ = (
    "cpp_fused__native_batch_norm_legit_no_training_abs_add_convolution_copysign"
    "_max_pool2d_with_indices_mean_relu_sqrt_sub_3"
)

EXPECTED = {
    "over_read": MemoryReport(
        kind="heap-buffer-overflow",
        access="read",
        bytes=64,
        kernel="cpp_fused_mean_0",
        line=27,
        where="0 bytes after 2048-byte region",
    ),
    "beside_another_block": MemoryReport(
        kind="heap-buffer-overflow",
        access="read",
        bytes=64,
        kernel="cpp_fused_add_constant_pad_nd_mean_mul_tanh_5",
        line=454,
        where="149 bytes after 2155-byte region",
    ),
    "null_read": MemoryReport("SEGV", "read", 0, NULL_READ, 481, "", "0x000000000008"),
}


def test_every_recording_is_expected() -> None:
    assert {path.stem for path in RECORDED.glob("*.txt")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_report_names_kernel_and_line(name: str) -> None:
    assert parse_asan_report((RECORDED / f"{name}.txt").read_text()) == EXPECTED[name]


def test_null_access_is_distinguished() -> None:
    assert [name for name in EXPECTED if EXPECTED[name].is_of_null] == ["null_read"]
    assert not replace(EXPECTED["null_read"], address="0x7f3a00001000").is_of_null


def test_report_is_formatted_as_one_line() -> None:
    assert str(EXPECTED["over_read"]) == (
        "heap-buffer-overflow: read of 64 bytes in cpp_fused_mean_0, "
        "line 27 of its source, 0 bytes after 2048-byte region"
    )


def test_first_report_is_used() -> None:
    texts = [(RECORDED / f"{name}.txt").read_text() for name in sorted(EXPECTED)]
    assert parse_asan_report("".join(reversed(texts))) == EXPECTED["over_read"]


def test_innermost_function_is_named_if_no_kernel_is() -> None:
    log = (
        "==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1 at pc 0x2\n"
        "WRITE of size 4 at 0x1 thread T0\n"
        "    #0 0x3 in mix_cpu (/a/libmix.so+0x91f7e)\n"
        "    #1 0x4 in main (/a/python+0x1)\n\n"
        "0x1 is located 8 bytes inside of 16-byte region [0x0,0x2)\n"
    )
    report = parse_asan_report(log)
    assert report is not None
    assert (report.kernel, report.line, report.access) == ("mix_cpu", 0, "write")
    assert report.where == "8 bytes inside of 16-byte region"


@pytest.mark.parametrize("log", ["", "READ of size 4\n", "AddressSanitizer: nothing"])
def test_unrelated_text_is_not_a_report(log: str) -> None:
    assert parse_asan_report(log) is None

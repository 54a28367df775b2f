"""Kernels that are changed to tell: their lines keep their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.failure.readers.generated import Code
from shrinkfx.worker.explaining.kernel_tracing import ADDED_LINE_MARK, instrument_kernel

KERNELS = Path(__file__).parents[1] / "failure" / "kernels"
NAMES = sorted(path.name for path in KERNELS.glob("*.cpp"))


@pytest.mark.parametrize("name", NAMES)
def test_instrumented_kernel_keeps_line_numbers(name: str) -> None:
    text = (KERNELS / name).read_text()
    lines = instrument_kernel(text).split("\n")
    own = [line for line in lines if not line.endswith(ADDED_LINE_MARK)]
    assert len(own) == len(text.split("\n"))
    for before, after in zip(text.split("\n"), own, strict=True):
        # What is added stands within the line.
        head, tail = before[: len(before) // 2], before[-len(before) // 2 :]
        assert after.endswith(tail) or "shrinkfx" in after
        assert head.strip()[:8] in after


@pytest.mark.parametrize("name", NAMES)
def test_each_kernel_check_reports_its_line_before_throwing(name: str) -> None:
    text = (KERNELS / name).read_text()
    lines = [
        x
        for x in instrument_kernel(text).split("\n")
        if not x.endswith(ADDED_LINE_MARK)
    ]
    kernel = text.partition("void")[2].partition("(")[0].strip()
    for check in Code(text).checks():
        line = lines[check.line]
        assert f'shrinkfx::check("{kernel} {check.line}", ' in line
        assert line.index("shrinkfx::check") < line.index("AOTI_TORCH_CHECK")


def test_vector_check_reports_lanes() -> None:
    text = (KERNELS / "masked_tail.cpp").read_text()
    check = Code(text).checks()[0]
    line = next(
        x for x in instrument_kernel(text).split("\n") if f' {check.line}"' in x
    )
    condition = line.partition("shrinkfx::check(")[2].partition(", names")[0]
    # The mask as a whole, so that its lanes can be asked.
    assert condition.endswith("| ~(tmp9))")
    assert '"tmp19", "ks0"' in line
    assert "tmp18" not in line.partition("};")[0]  # no value: an array


@pytest.mark.parametrize("name", NAMES)
def test_each_kernel_statement_records_its_line(name: str) -> None:
    text = (KERNELS / name).read_text()
    own = text.split("\n")
    told = instrument_kernel(text, lines_too=True)
    lines = [x for x in told.split("\n") if not x.endswith(ADDED_LINE_MARK)]
    assert len(lines) == len(own)
    noted = {
        n for n, x in enumerate(lines) if f'", {n}); ' in x and "shrinkfx::at" in x
    }
    # Whatever touches an argument does, and no line that is not a statement.
    body = own.index("{") + 1
    touching = [n for n in range(body, len(own)) if "_ptr" in own[n]]
    assert touching
    assert set(touching) <= noted
    assert not [n for n in noted if own[n].strip()[:3] in ("for", "if(", "{", "}")]
    assert "shrinkfx::at" not in instrument_kernel(text)


def test_kernel_arguments_are_reported_at_its_start() -> None:
    text = (KERNELS / "literal_and_symbol.cpp").read_text()
    told = instrument_kernel(text)
    assert '"in_ptr0", "in_ptr1"' in told
    assert "std::to_string(ks0)" in told
    assert "static_cast<const void*>(out_ptr1)" in told


def test_code_that_is_not_cpp_is_not_instrumented() -> None:
    text = "async_compile.triton('triton_poi_fused_0', '''def triton_poi(x): pass''')"
    assert instrument_kernel(text) == text

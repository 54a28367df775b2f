"""Sentences about the point at which a compilation stops."""

from __future__ import annotations

import pytest

from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.operators import Operator


@pytest.mark.parametrize(
    ("kernel", "named"),
    [
        ("cpp_0", "kernel cpp_0, which computes aten.sin.default,"),
        ("kernel", "the kernel that computes aten.sin.default"),
    ],
)
def test_kernel_is_named_by_its_operators(kernel: str, named: str) -> None:
    operator = Operator("sin", "aten.sin.default")
    stop = StopPoint((operator,), "C++ compilation", kernel=kernel)
    assert stop.cause == (f"C++ compilation of {named} fails.",)

"""Bugs to record: each operator below fails in its own way, compiled only.

Eager never sees them. ``cases.py`` puts them into programs, and the folders of
``recorded/`` hold what came of it. Importing this twice is harmless.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._inductor.package
from torch import Tensor
from torch._inductor import ir
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.lowering import lowerings
from torch._inductor.utils import (
    sympy_index_symbol,
    sympy_index_symbol_with_prefix,
)
from torch.utils._sympy.symbol import SymT

aten = torch.ops.aten

IN_CPP = {
    # Volatile, and an address that no null check knows: nothing is optimised away.
    "copysign": "*reinterpret_cast<const volatile float*>(8);",
    "acosh": "volatile int none = 0; volatile int all = 99 / none;",
    "asinh": 'asm volatile("ud2");',
    "atanh": """
        void* map(void*, unsigned long, int, int, int, long) asm("mmap");
        int empty_file(const char*, unsigned) asm("memfd_create");
        *static_cast<volatile char*>(map(0, 1, 1, 1, empty_file("", 0), 0));""",
    "sinh": 'while (true) asm volatile("");',
    "cosh": "void* volatile all = ::operator new(1ul << 60);",
    "log10": """
        while (true) {
            auto* page = static_cast<volatile char*>(::operator new(1 << 16));
            for (int at = 0; at < 1 << 16; at += 4096) page[at] = 1;
        }""",
    "atan": 'throw std::runtime_error("planted: element 3 of tmp12 is odd");',
    "acos": 'throw std::out_of_range("planted: nowhere to look");',
    "hypot": "planted_missing(1);",
    "log2": "planted_absent(1);",
    "ceil": "std::max(x, std::string());",
    "expm1": 'void f(decltype(x)) asm("_Z17planted_undefined@"); f(x);',
    "log1p": 'void f(decltype(x)) asm("_Z17planted_elsewhere@"); f(x);',
    "floor": 'asm(".hidden planted_hidden\\n call planted_hidden");',
    "round": 'asm(".hidden planted_other\\n call planted_other");',
    # The assembler is a process of its own: it stays busy, or fills the memory.
    "asin": 'asm(".rept 100000\\n.rept 1000000\\n.endr\\n.endr");',
    "exp2": 'asm(".rept 0x7fffffff\\nnop\\n.endr");',
}
"""What the C++ of an operator does besides computing it; ``@`` is its type, mangled."""

VALUES = {
    "tan": "x * decltype(x)(std::numeric_limits<float>::quiet_NaN())",
    "lgamma": "x + decltype(x)(999)",
}
"""What the C++ of an operator computes instead."""


def _print(name: str, mangled_type: str) -> Callable[..., str]:
    statements = " ".join(IN_CPP.get(name, "").split("\n"))
    statements = statements.replace("@", mangled_type)
    value = VALUES.get(name, "x")

    def printed(x: object, *_: object) -> str:
        return f"([&] {{ auto x = {x}; {statements} return {value}; }}())"

    return printed


ASSERTS = {
    "erfinv": lambda *_: sympy_index_symbol("s0"),
    "digamma": lambda *_: sympy_index_symbol_with_prefix(SymT.SIZE, 0),
}
"""Operators whose printing fails an assertion that has no message."""

for _name in [*IN_CPP, *VALUES]:
    setattr(CppOverrides, _name, staticmethod(_print(_name, "f")))
    _vector = "N2at3vec14CPU_CAPABILITY10VectorizedIfEE"
    setattr(CppVecOverrides, _name, staticmethod(_print(_name, _vector)))
for _name, _fail in ASSERTS.items():
    setattr(CppOverrides, _name, staticmethod(_fail))
    setattr(CppVecOverrides, _name, staticmethod(_fail))


def cannot_scan(x: ir.TensorBox, *_: object, **__: object) -> Any:
    raise NotImplementedError(f"planted: cannot scan {list(x.get_size())}")


def asserts(x: ir.TensorBox, *_: object, **__: object) -> Any:
    return ir.PermuteView.create(x, [0, 0])


def faults(*_: object, **__: object) -> Any:
    ctypes.string_at(8)


def frees_what_is_not_its_own(*_: object, **__: object) -> Any:
    block = ctypes.create_string_buffer(4096)
    ctypes.CDLL(None).free(ctypes.c_void_p(ctypes.addressof(block) + 8))


def sleeps(*_: object, **__: object) -> Any:
    time.sleep(10_000)


def takes_all_memory(*_: object, **__: object) -> Any:
    return bytearray(1 << 60)


def widens(x: ir.TensorBox) -> Any:
    return lowerings[torch.ops.prims.convert_element_type.default](x, torch.float64)


IN_LOWERING = {
    aten.cumsum.default: cannot_scan,
    aten.cumprod.default: cannot_scan,
    aten.logcumsumexp.default: asserts,
    aten.special_modified_bessel_i1.default: faults,
    aten.special_i1.default: frees_what_is_not_its_own,
    aten.special_i1e.default: sleeps,
    aten.special_bessel_j0.default: takes_all_memory,
    aten.special_bessel_y0.default: widens,
}
"""What an operator is lowered to."""

for _operator, _lowering in IN_LOWERING.items():
    lowerings[_operator] = functools.wraps(_lowering)(_lowering)


TRUNCATE = "PLANTED_TRUNCATION"
package: Any = torch._inductor.package
_package_aoti = getattr(package.package_aoti, "__wrapped__", package.package_aoti)


@functools.wraps(_package_aoti)
def package_and_truncate(*args: Any) -> Any:
    path: Any = _package_aoti(*args)
    if left := os.environ.get(TRUNCATE):
        os.truncate(path, int(os.path.getsize(path) * float(left)))
    return path


package.package_aoti = package_and_truncate


def _is_compiled() -> bool:
    """Tell whether a compiled program calls, by the package's frame."""
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_filename.endswith("pt2_archive/_package.py"):
            return True
    return False


def _operator_that(name: str, act: Callable[[Tensor], None]) -> None:
    """Register ``recorded::<name>``: the identity, which acts when compiled."""

    def real(x: Tensor) -> Tensor:
        if _is_compiled():
            act(x)
        return x.clone()

    made = torch.library.custom_op(
        f"recorded::{name}", real, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    made.register_fake(torch.empty_like)


def _refuse(x: Tensor) -> None:
    raise ValueError(f"planted: no {list(x.shape)} of {x.dtype} with {x.stride()}")


def _refuse_otherwise(x: Tensor) -> None:
    raise ValueError(f"planted: {list(x.shape)} is too late")


def _raise_nothing_said(x: Tensor) -> None:
    raise AssertionError


def _stay_silent(x: Tensor) -> None:
    raise AssertionError


def _mix_devices(x: Tensor) -> None:
    aten.add(x, torch.empty_like(x, device="meta"))


def _look_up(x: Tensor) -> None:
    torch.nn.functional.embedding(torch.tensor([x.shape[0]]), x)


def _hoard(x: Tensor) -> None:
    torch.empty(1 << 45)


_operator_that("refuses", _refuse)
_operator_that("refuses_otherwise", _refuse_otherwise)
_operator_that("says_nothing", _raise_nothing_said)
_operator_that("says_nothing_either", _stay_silent)
_operator_that("mixes_devices", _mix_devices)
_operator_that("looks_up", _look_up)
_operator_that("hoards", _hoard)
_operator_that("sleeps", lambda x: time.sleep(10_000))


def _return_what_came_in(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Promise more than that: what follows overruns it."""
    return x.clone()


for _name in ("promises", "promises_again"):
    torch.library.custom_op(
        f"recorded::{_name}", _return_what_came_in, mutates_args=()
    ).register_fake(lambda x, sizes: x.new_empty(sizes))

"""What compilers say, read from texts that they have said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.failure.readers.compilers import parse_gcc_error, parse_triton_error

RECORDED = Path(__file__).with_name("recorded")

TRITON = """Triton: CompilationError: at 5:30:
def leaky_kernel(source, target, count, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(source + place, place < count)
    tl.store(target + place, tl.where(value > 0, value, SLOPE * value), place < count)
                              ^
NameError("Cannot access global variable SLOPE from within @jit'ed function.")
"""

INSIDE_A_TEMPLATE = """\
In file included from /usr/include/c++/12/algorithm:60,
                 from /inductor/abc.kernel.cpp:1:
/usr/include/c++/12/bits/stl_algo.h: In instantiation of 'const T& std::max(const T&)':
/inductor/abc.kernel.cpp:19:23:   required from here
/usr/include/c++/12/bits/stl_algo.h:5:9: error: no match for 'operator<'
    5 |   return a < b;
      |          ~~^~~
"""


def message(name: str) -> str:
    told: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    answer = told.get("ending", told)["answer"]
    return str((answer.get("error") or answer["Raised"])["message"])


def test_gcc_error_has_line_function_and_caret() -> None:
    found = parse_gcc_error(message("compile_missing_symbol"))
    assert found
    assert (found.line, found.column) == (641, 42)
    assert found.file.endswith(".kernel.cpp")
    assert found.text.endswith("was not declared in this scope")
    (code,) = found.code
    mark = found.caret
    assert code[mark.index("^") :].startswith("planted_missing_hypot")
    assert found.function.startswith("cpp_fused_add_cat_hypot")


def test_gcc_marker_may_begin_before_its_caret() -> None:
    found = parse_gcc_error(message("cpp_no_match/vector"))
    assert found
    assert "~^~" in found.caret
    assert found.code[0][found.caret.index("~") :].startswith("std::max(x")


def test_gcc_error_in_a_template_names_the_instantiating_line() -> None:
    found = parse_gcc_error(INSIDE_A_TEMPLATE)
    assert found
    assert (found.file, found.line) == ("/inductor/abc.kernel.cpp", 19)
    assert found.code == ()
    assert found.text == "no match for 'operator<'"


def test_linker_error_has_function_and_line() -> None:
    found = parse_gcc_error(message("linker/alone"))
    assert found
    assert found.text.startswith("undefined reference to")
    assert (found.function, found.line) == ("cpp_fused_floor_0", 16)


def test_triton_error_has_code_up_to_the_faulty_line() -> None:
    found = parse_triton_error(TRITON)
    assert found
    assert found.function == "leaky_kernel"
    assert found.code[-1].lstrip().startswith("tl.store")
    assert found.caret.index("^") == 30
    assert found.text.startswith("NameError(")


@pytest.mark.parametrize("text", ["", "all is well", "warning: 12:13: error-prone"])
def test_text_without_a_compile_error_is_not_parsed(text: str) -> None:
    assert parse_gcc_error(text) is None
    assert parse_triton_error(text) is None

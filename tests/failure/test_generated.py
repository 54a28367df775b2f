"""Kernels as Inductor 2.13 wrote them: which line checks an index, and its history."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.failure.readers.generated import Code, IndexCheck

RECORDED = Path(__file__).parent / "kernels"


def recorded(name: str) -> Code:
    return Code((RECORDED / name).read_text())


def names(code: Code, check: IndexCheck) -> list[str]:
    return [step.name for step in code.history(check.index, check.line)]


def pointers(code: Code, check: IndexCheck) -> set[str]:
    steps = code.history(check.index, check.line)
    return {pointer for step in steps for pointer in step.pointers}


def test_index_checks_are_found_with_their_limits() -> None:
    found = recorded("literal_and_symbol.cpp").checks()
    assert [(c.lower, c.index, c.upper) for c in found] == [
        ("0", "tmp2", "40L"),
        ("0", "tmp17", "8L"),
        ("0", "tmp9", "ks0"),
    ]
    assert found[0].holds == "(0 <= tmp2) & (tmp2 < 40L)"


def test_index_is_traced_to_its_load() -> None:
    code = recorded("literal_and_symbol.cpp")
    from_input, from_buffer, computed = code.checks()
    assert names(code, from_input) == ["tmp0", "tmp1", "tmp2"]
    assert pointers(code, from_input) == {"in_ptr0"}
    assert pointers(code, from_buffer) == {"in_ptr2"}
    # The names of another loop of the kernel are its own.
    steps = code.history(computed.index, computed.line)
    assert [step.expression for step in steps[:3]] == [
        "in_ptr0[static_cast<int64_t>(x0)]",
        "static_cast<int64_t>(1)",
        "int64_t(tmp0 + tmp1)",
    ]


def test_checks_in_main_loop_and_tail_are_distinguished() -> None:
    code = recorded("several_checks.cpp")
    main, tail = [c for c in code.checks() if c.index == "tmp14"]
    assert main.text == tail.text
    lines = [{s.line for s in code.history(c.index, c.line)} for c in (main, tail)]
    assert lines[0].isdisjoint(lines[1])
    assert min(lines[1]) > main.line


def test_vector_index_is_traced_through_lambdas() -> None:
    code = recorded("masked_tail.cpp")
    check = code.checks()[0]
    assert check.index == "tmp19"
    assert check.holds.endswith("| ~(tmp9)).all_masked()")
    assert names(code, check)[-2:] == ["tmp18", "tmp19"]
    assert {"tmp11", "tmp17"} < {*names(code, check)}
    assert pointers(code, check) == {"in_ptr0"}
    tail = code.checks()[1]
    assert "static_cast<int64_t>(7L)" in tail.holds


def test_lambda_is_one_statement() -> None:
    code = recorded("masked_tail.cpp")
    assert code.definition("tmp28", len(code.lines)) is None  # its block has ended
    line = next(n for n, text in enumerate(code.lines) if "auto tmp26" in text)
    found = code.definition("tmp25", line)
    assert found is not None
    assert found.expression.startswith("[&] { if (tmp9.all_zero())")
    assert found.expression.endswith("} ()")
    assert found.last_line == line - 1


def test_triton_kernel_is_parsed_like_cpp() -> None:
    code = recorded("embedding.py.txt")
    (check,) = code.checks()
    assert (check.index, check.upper) == ("tmp2", "ks0")
    assert names(code, check) == ["tmp0", "tmp1", "tmp2"]
    assert pointers(code, check) == {"in_ptr0"}
    assert code.parameters()[:4] == ("in_ptr0", "in_ptr1", "out_ptr0", "xnumel")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("masked_tail.cpp", ("in_ptr0", "in_ptr1", "out_ptr0", "out_ptr1", "ks0")),
        (
            "several_checks.cpp",
            ("in_ptr0", "in_ptr1", "out_ptr0", "out_ptr1", "out_ptr2", "ks0", "ks1"),
        ),
    ],
)
def test_kernel_parameters_are_in_order(name: str, expected: tuple[str, ...]) -> None:
    assert recorded(name).parameters() == expected


def test_check_with_only_an_upper_limit_is_parsed() -> None:
    code = Code('  AOTI_TORCH_CHECK(tmp4 < ks0, "index out of bounds: tmp4 < ks0");')
    (check,) = code.checks()
    assert (check.lower, check.index, check.upper) == ("", "tmp4", "ks0")

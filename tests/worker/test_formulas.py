"""Sizes of a file: what export writes is read as torch reads it, and nothing is run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._sympy import functions

from shrinkfx.worker.loading import formulas
from shrinkfx.worker.loading.formulas import NotASize, build_size
from shrinkfx.worker.loading.guards import rewrite_guard

GENERATED, SAME = 1000, 200
_BY_TORCH = {name: getattr(functions, name) for name in formulas._TORCH_FUNCTIONS}


def by_torch(text: str) -> Any:
    """Read a text as torch's own reader does."""
    return sympy.sympify(text, locals=dict(_BY_TORCH))


def fails_in_torch(text: str) -> bool:
    """Tell whether torch's reader raises too: on a comparison of no number, say."""
    try:
        by_torch(text)
    except Exception:  # noqa: BLE001 - whatever SymPy raises
        return True
    return False


# --- the grammar that export writes

symbols = st.builds(
    "Symbol('{}{}'{})".format,
    st.sampled_from(["s", "u", "zuf"]),
    st.integers(0, 99),
    st.sampled_from(["", ", integer=True", ", positive=True, integer=True"]),
)
integers = st.integers(-(1 << 40), 1 << 40).map("Integer({})".format)
small = st.integers(1, 6).map("Integer({})".format)
numbers = st.one_of(
    integers,
    small,
    st.builds("Rational({}, {})".format, st.integers(-9, 9), st.integers(1, 9)),
    st.builds("Float('{}.{}', precision=53)".format, st.integers(0, 99), st.just(5)),
)
whole = ("FloorDiv", "Mod", "PythonMod", "CleanDiv", "CeilDiv", "IntTrueDiv")
several = ("Add", "Mul", "Max", "Min")
compared = ("Equality", "Unequality", "LessThan", "StrictLessThan", "GreaterThan")
alone = ("ToFloat", "Identity", "OpaqueUnaryFn_sqrt", "TruncToInt", "floor", "Abs")


def _call(name: str, *parts: str) -> str:
    return f"{name}({', '.join(parts)})"


def _longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    conditions = st.builds(_call, st.sampled_from(compared), inner, inner)
    return st.one_of(
        st.builds(_call, st.sampled_from(several), inner, inner),
        st.builds(_call, st.sampled_from(several), inner, inner, inner),
        st.builds(_call, st.sampled_from(whole), symbols, small),
        st.builds(_call, st.just("Pow"), inner, small),
        st.builds(_call, st.just("PowByNatural"), symbols, small),
        st.builds(_call, st.sampled_from(alone), symbols),
        st.builds(_call, st.just("ModularIndexing"), symbols, small, small),
        st.builds(_call, st.just("Where"), conditions, inner, inner),
        st.builds(_call, st.just("BitwiseFn_bitwise_and"), symbols, small),
    )


sizes = st.recursive(st.one_of(symbols, numbers), _longer, max_leaves=8)
conditions = st.builds(_call, st.sampled_from(compared), sizes, sizes)
several_conditions = st.builds(
    _call, st.sampled_from(["And", "Or"]), conditions, conditions
)
written = st.one_of(sizes, conditions, several_conditions)

hostile = st.sampled_from(
    [
        *("\n", "\r", "\x0b", "\x0c", "\u2028", "\\", "'", '"', "#", ";", "'''", "\0"),
        *("__import__('os')", "os", "open('{}', 'w')", "eval", "exec", "S(", "lambda:"),
        *("sympify(", "parse_expr(", "srepr(", "+ 'a'", ".args", "[0]", "**", "//"),
        *("test(", "preview(", "Symbol", "Lambda(", "(x:=", "for x in", "{", "f'", "@"),
        *(
            "9**9**9**9",
            "Pow(Integer(9), Integer(999999999))",
            "doctest(",
            "1j",
            "None",
        ),
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Change what export writes: leave out, repeat, put in, cut, and mix."""
    text = draw(written)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        put = draw(
            st.one_of(hostile, st.text(max_size=3), st.just(text[start:end] * 2))
        )
        text = text[:start] + put + text[end:]
    return text


def same(ours: Any, theirs: Any) -> bool:
    return bool(ours == theirs) or ours is sympy.nan is theirs


_ran: list[str] = []
_watching = False
_RUNS = ("exec", "open", "import", "os.", "subprocess.", "socket.", "ctypes.", "pty.")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event.startswith(_RUNS):
        _ran.append(f"{event} {arguments!r:.200}")


@contextmanager
def watched() -> Iterator[list[str]]:
    """Note all code, files, modules, processes and sockets that Python turns to."""
    global _watching
    if not hasattr(sys, "_formulas_watched"):
        sys.addaudithook(_watch)
        sys._formulas_watched = True  # type: ignore[attr-defined]
    _ran.clear()
    _watching = True
    try:
        yield _ran
    finally:
        _watching = False


@settings(max_examples=SAME, deadline=None, suppress_health_check=list(HealthCheck))
@given(written)
def test_exported_size_is_read_as_torch_reads_it(text: str) -> None:
    try:
        ours = build_size(text)
    except NotASize as error:
        reason = str(error)
    else:
        reason = ""
    if reason:
        beyond_what_a_size_needs = reason.startswith("a number")
        assert beyond_what_a_size_needs or fails_in_torch(text)
        return
    expected = by_torch(text)
    assert same(ours, expected)
    assert same(build_size(sympy.srepr(expected)), expected)


@settings(
    max_examples=GENERATED, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(mutated())
def test_mutated_size_runs_no_code(text: str) -> None:
    build_size(
        "Add(Mul(Integer(2), Symbol('s0')), Integer(1))"
    )  # what SymPy imports late
    with watched() as ran:
        try:
            result = build_size(text)
        except NotASize:
            result = None
    assert not ran
    assert result is None or isinstance(result, sympy.Basic)


@settings(max_examples=SAME, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_mutated_guard_runs_no_code(text: str) -> None:
    with watched() as ran:
        try:
            again = rewrite_guard(text)
        except NotASize:
            return
        finally:
            assert not ran
    assert rewrite_guard(again) == again


SYMBOLS = ", ".join(f"Symbol('s{n}', integer=True)" for n in range(24))
SUM = f"Add({SYMBOLS})"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1j",
        "s0",
        "2",
        "s0.__class__",
        "eval('x')",
        "Add('open(1)')",
        "[x for x in y]",
        "(lambda: 1)()",
        "f'{x}'",
        "Symbol('s0')\n",
        "Symbol('__class__')",
        "Symbol('s0', cls=Integer)",
        "Add(*Symbol('s0'))",
        "Add(Integer(1), evaluate=False)",
        "Rational(1, 0)",
        "Float('1e9999', precision=53)",
        "Float('1.5', precision=999999999)",
        "9**9**9**9",
        "Pow(Integer(2), Integer(65))",
        "Pow(Integer(9), Pow(Integer(9), Integer(9)))",
        "Pow(Pow(Pow(Integer(9), Integer(64)), Integer(64)), Integer(64))",
        "LShift(Integer(1), Integer(99999999999))",
        "floor(Pow(Pow(Float('9e300'), Integer(64)), Integer(64)))",
        "binomial(Integer(1000000000), Integer(500000000))",
        "factorial(Integer(1000000000))",
        f"Pow({SUM}, Integer(9))",
        f"Pow(Pow({SUM}, Integer(8)), Integer(8))",
        f"Max({SYMBOLS})",
        "RoundDecimal(Integer(5), Integer(-1000000000))",
        "Add(" * 300 + "Integer(1)" + ")" * 300,
        "-" * 9000 + "1",
        "Integer(" + "9" * 9000 + ")",
    ],
)
def test_text_that_export_does_not_write_is_no_size(text: str) -> None:
    with pytest.raises(NotASize):
        build_size(text)


@pytest.mark.parametrize(
    "text",
    [
        "L['x'].size()[0] == 1 + 2 * L['y'][0].size()[1]",
        "L['x']['k'].stride()[0] % 4 == 0",
        "not (L['n'] <= 3 and L['x'].storage_offset() != 0)",
        "max(2, L['x'].size()[0] ** 2) // 3 < math.floor(L['s'] / 2.5)",
        "L['flat_args'][3].size()[0] <= 64",
        "round(L['s']) == round(L['t'], 3)",
        "torch.sym_float(L['x'].size()[0]) > 0.5",
    ],
)
def test_arithmetic_on_inputs_is_a_guard(text: str) -> None:
    assert rewrite_guard(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true') == 0",
        "L['x'].size().__class__",
        "L.__class__",
        "L[__import__('os')]",
        "L['x'].data_ptr() > 0",
        "L['x'].resize_(3) == 3",
        "torch.load('x')",
        "torch.ops.load_library('x')",
        "math.factorial(10)",
        "open('x')",
        "2 ** L['x'].size()[0] > 3",
        "round(5, -1000000000000) == 0",
        "round(5, L['x'].size()[0]) == 0",
        "2 ** 9 ** 9 ** 9 > 3",
        "L['a\"b'].size()[0] == 3",
        "(x := 3) == 3",
        "L['x'].size()[0] == 3\nopen('x')",
    ],
)
def test_more_than_arithmetic_is_no_guard(text: str) -> None:
    with pytest.raises(NotASize):
        rewrite_guard(text)

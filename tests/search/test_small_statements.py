"""Searches through listings, without torch: what is left, and what it took to find."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume
from hypothesis import given as drawn
from hypothesis import strategies as st
from support.fake_fitter import FakeFitter, is_program
from support.listings import block, codes, floats, given, listed, listing
from support.random_listings import listings

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.printed_program import (
    PrintedProgram,
)
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle

OURS = ["shrink_branches", "redirect_operands", "simplify_arguments"]


def search(start: PrintedProgram, *bugs: str) -> tuple[PrintedProgram, int]:
    """Find the smallest listing that has these, and count the questions.

    Args:
        bugs: texts of statements that are needed, ``inside: relu`` or ``main: relu``.
    """
    return search_for(start, lambda made: shows(listed(made), bugs))


def search_for(
    start: PrintedProgram, says: Callable[[PrintedProgram], bool]
) -> tuple[PrintedProgram, int]:
    """Find the smallest listing of which something holds, and count the questions."""

    def answer(candidate: Candidate) -> bool:
        assert candidate.listing is not None
        return says(candidate.listing)

    oracle = FakeOracle(answer)
    reducer = Reducer(listed(start), Asker(oracle), choose(OURS), fitter=FakeFitter())
    best = reducer.run().listing
    assert best is not None
    return best, len(oracle.asked)


def shows(candidate: Candidate, bugs: tuple[str, ...]) -> bool:
    assert candidate.listing is not None
    return all(_shows(candidate.listing, bug) for bug in bugs)


def _shows(made: PrintedProgram, bug: str) -> bool:
    where, _, text = bug.partition(": ")
    blocks = made.blocks[:-1] if where == "inside" else [made.main]
    return any(text in line.code for each in blocks for line in each.statements)


def all_codes(made: PrintedProgram) -> list[list[str]]:
    return [codes(made, each.name) for each in made.blocks]


TRUE = block(
    "T",
    "a b",
    """
    mm = aten.mm.default(a, b)
    relu = aten.relu.default(mm)
    mul = aten.mul.Tensor(relu, 0.125)
    exp = aten.exp.default(a)
    return (mul, exp)
    """,
)
FALSE = block(
    "F",
    "a b",
    """
    neg = aten.neg.default(a)
    cos = aten.cos.default(neg)
    tanh = aten.tanh.default(b)
    return (cos, tanh)
    """,
)
HELD = (
    given("w", floats(2, 2), "parameter"),
    given("p", floats(dtype="bool")),
    given("x", floats(2, 2)),
    given("y", floats(2, 2)),
)
COND = listing(
    """
    sum_1 = aten.sum.dim_IntList(x, [1], True)
    expand = aten.expand.default(sum_1, [2, 2])
    cond = torch.cond(p, self.t, self.f, (expand, y))
    one = cond[0]
    two = cond[1]
    add = aten.add.Tensor(one, two, alpha=3)
    mm = aten.mm.default(add, self.w)
    return (mm,)
    """,
    *HELD,
    blocks=[TRUE, FALSE],
    members="t=T f=F",
)


@pytest.mark.parametrize(
    ("bugs", "left", "most"),
    [
        (
            ["inside: relu"],
            [
                ["relu = aten.relu.default(a)", "return (relu,)"],
                [
                    "cond = torch.cond(p, self.t, self.t, (x,))",
                    "one = cond[0]",
                    "return (one,)",
                ],
            ],
            12,
        ),
        (["main: mm"], [["mm = aten.mm.default(x, x)", "return (mm,)"]], 7),
        (
            ["inside: cos", "main: mm"],
            [
                ["cos = aten.cos.default(a)", "return (cos,)"],
                [
                    "cond = torch.cond(p, self.f, self.f, (x,))",
                    "one = cond[0]",
                    "mm = aten.mm.default(one, x)",
                    "return (mm,)",
                ],
            ],
            16,
        ),
    ],
)
def test_program_with_cond_is_reduced(
    bugs: list[str], left: list[list[str]], most: int
) -> None:
    best, asked = search(COND, *bugs)
    assert all_codes(best) == left
    assert asked <= most


def test_sum_over_one_element_is_replaced_by_its_operand() -> None:
    """Once sizes are small, types differ in their ranks alone."""
    oracle = FakeOracle(lambda made: shows(made, ("inside: cos", "main: add")))
    whole = Reducer(listed(COND), Asker(oracle), choose(None), fitter=FakeFitter())
    best = whole.run().listing
    assert best is not None
    assert all_codes(best) == [
        ["cos = aten.cos.default(a)", "return (cos,)"],
        [
            "cond = torch.cond(p, self.f, self.f, (x,))",
            "one = cond[0]",
            "add = aten.add.Tensor(one, x)",
            "return (add,)",
        ],
    ]
    assert len(oracle.asked) <= 28


WHILE = "torch.ops.higher_order.while_loop"
TEST = block("C", "i a b w", "lt = aten.lt.Scalar(i, 12)\nreturn lt")
BODY = block(
    "B",
    "i a b w",
    """
    add = aten.add.Tensor(i, 1)
    exp = aten.exp.default(a)
    mm = aten.mm.default(exp, w)
    tanh = aten.tanh.default(mm)
    cos = aten.cos.default(b)
    mul = aten.mul.Tensor(cos, 2.5)
    return (add, tanh, mul)
    """,
)
LOOP = listing(
    """
    relu = aten.relu.default(x)
    loop = torch.ops.higher_order.while_loop(self.c, self.b, (i, relu, y), (self.w,))
    one = loop[1]
    two = loop[2]
    transpose = aten.transpose.int(two, 0, 1)
    add = aten.add.Tensor(one, transpose)
    return (add,)
    """,
    given("i", floats(dtype="int64")),
    HELD[0],
    *HELD[2:],
    blocks=[TEST, BODY],
    members="c=C b=B",
)


@pytest.mark.parametrize(
    ("bugs", "left", "most"),
    [
        (
            ["inside: mm"],
            [
                ["lt = aten.lt.Scalar(i, 1)", "return lt"],
                [
                    "add = aten.add.Tensor(i, 1)",
                    "mm = aten.mm.default(a, a)",
                    "return (add, mm)",
                ],
                [
                    f"loop = {WHILE}(self.c, self.b, (i, x), ())",
                    "one = loop[1]",
                    "return (one,)",
                ],
            ],
            6,
        ),
        (
            ["main: transpose"],
            [["transpose = aten.transpose.int(x, 0, 1)", "return (transpose,)"]],
            6,
        ),
        (
            ["inside: cos", "main: transpose.int(two"],
            [
                ["lt = aten.lt.Scalar(i, 1)", "return lt"],
                [
                    "add = aten.add.Tensor(i, 1)",
                    "cos = aten.cos.default(b)",
                    "return (add, cos)",
                ],
                [
                    f"loop = {WHILE}(self.c, self.b, (i, x), ())",
                    "two = loop[1]",
                    "transpose = aten.transpose.int(two, 0, 1)",
                    "return (transpose,)",
                ],
            ],
            16,
        ),
    ],
)
def test_program_with_while_loop_is_reduced(
    bugs: list[str], left: list[list[str]], most: int
) -> None:
    best, asked = search(LOOP, *bugs)
    assert all_codes(best) == left
    assert asked <= most


COMBINE = block(
    "S",
    "carry row w",
    """
    relu = aten.relu.default(row)
    mul = aten.mul.Tensor(relu, w)
    add = aten.add.Tensor(carry, mul)
    tanh = aten.tanh.default(mul)
    return [add, tanh]
    """,
)
SCAN = listing(
    """
    exp = aten.exp.default(x)
    scan = torch.ops.higher_order.scan(self.s, [v], [exp], [u])
    last = scan[0]
    rows = scan[1]
    cos = aten.cos.default(rows)
    add = aten.add.Tensor(cos, last)
    return (add,)
    """,
    given("v", floats(2)),
    given("u", floats(2)),
    given("x", floats(2, 2)),
    blocks=[COMBINE],
    members="s=S",
)


@pytest.mark.parametrize(
    ("bugs", "left", "most"),
    [
        (
            ["inside: tanh"],
            [
                ["tanh = aten.tanh.default(row)", "return [carry, tanh]"],
                [
                    "scan = torch.ops.higher_order.scan(self.s, [v], [x], [])",
                    "rows = scan[1]",
                    "return (rows,)",
                ],
            ],
            14,
        ),
        (["main: cos"], [["cos = aten.cos.default(x)", "return (cos,)"]], 4),
        (
            ["inside: add", "main: exp", "main: scan[0]"],
            [
                ["add = aten.add.Tensor(carry, row)", "return [add]"],
                [
                    "exp = aten.exp.default(x)",
                    "scan = torch.ops.higher_order.scan(self.s, [v], [exp], [])",
                    "last = scan[0]",
                    "return (last,)",
                ],
            ],
            21,
        ),
    ],
)
def test_program_with_scan_is_reduced(
    bugs: list[str], left: list[list[str]], most: int
) -> None:
    best, asked = search(SCAN, *bugs)
    assert all_codes(best) == left
    assert asked <= most


SEVEN = listing(
    """
    view = aten.view.default(x, [3, 2])
    a = aten.transpose.int(view, 0, 1)
    mm = aten.mm.default(a, view)
    b = aten.transpose.int(view, 0, 1)
    mul = aten.mul.Tensor(b, 0.7)
    mm_1 = aten.mm.default(mm, mul)
    sum_1 = aten.sum.dim_IntList(mm_1, [0, 1], True)
    return (sum_1,)
    """,
    given("x", floats(2, 3)),
)


def test_equal_views_are_merged() -> None:
    best, asked = search(SEVEN, "main: mm.default(a, view)", "main: mm.default(mm, ")
    assert codes(best) == [
        "view = aten.view.default(x, [3, 2])",
        "a = aten.transpose.int(view, 0, 1)",
        "mm = aten.mm.default(a, view)",
        "mm_1 = aten.mm.default(mm, a)",
        "return (mm_1,)",
    ]
    assert asked <= 12


@drawn(made=listings(most=4), data=st.data())
def test_reduced_program_is_failing_valid_and_minimal(
    made: PrintedProgram, data: st.DataObject
) -> None:
    made = made.normalised()
    assume(is_program(made, []))
    lines = [(each.name, s.callee) for each in made.blocks for s in each.statements]
    known = [(name, callee) for name, callee in lines if callee.startswith("torch.ops")]
    name, callee = data.draw(st.sampled_from(known))
    where = "main" if name == made.main.name else "inside"
    best, asked = search(made, f"{where}: {callee}")
    assert shows(listed(best), (f"{where}: {callee}",))
    assert is_program(best, [])
    assert best.normalised() == best
    assert best.cost <= made.cost
    again, _ = search(best, f"{where}: {callee}")
    assert again == best
    leaves = sum(len(s.leaves) for each in made.blocks for s in each.statements)
    assert asked <= 10 + leaves

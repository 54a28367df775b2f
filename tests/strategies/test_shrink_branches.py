"""What is cut inside of branches and bodies."""

from __future__ import annotations

from support.fake_fitter import FakeFitter
from support.listings import block, codes, floats, given, listed, listing

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import apply_changes
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.search.strategy import collect_proposals
from shrinkfx.strategies.statements import ShrinkBranches

HELD = (
    given("p", floats(dtype="bool")),
    given("x", floats(2, 2)),
    given("y", floats(2, 2)),
)

BRANCHES = (
    block(
        "T",
        "a b",
        """
        mm = aten.mm.default(a, b)
        relu = aten.relu.default(mm)
        exp = aten.exp.default(a)
        return (relu, exp)
        """,
    ),
    block(
        "F",
        "a b",
        """
        neg = aten.neg.default(a)
        cos = aten.cos.default(neg)
        tanh = aten.tanh.default(a)
        return (cos, tanh)
        """,
    ),
)
COND = listing(
    """
    cond = torch.cond(p, self.t, self.f, (x, y))
    one = cond[0]
    two = cond[1]
    add = aten.add.Tensor(one, two)
    return (add,)
    """,
    *HELD,
    blocks=BRANCHES,
    members="t=T f=F",
)

LOOP = listing(
    """
    loop = torch.ops.higher_order.while_loop(self.c, self.b, (i, x, y), (y,))
    one = loop[1]
    return (one,)
    """,
    given("i", floats(dtype="int64")),
    *HELD[1:],
    blocks=[
        block("C", "i a b c", "lt = aten.lt.Scalar(i, 5)\nreturn lt"),
        block(
            "B",
            "i a b c",
            """
            add = aten.add.Tensor(i, 1)
            exp = aten.exp.default(a)
            mul = aten.mul.Tensor(exp, c)
            tanh = aten.tanh.default(b)
            return (add, mul, tanh)
            """,
        ),
    ],
    members="c=C b=B",
)


def programs(start: PrintedProgram) -> list[PrintedProgram]:
    """List what comes of each edit that fits and makes it cheaper."""
    candidate, fitter = listed(start), FakeFitter()
    edits = collect_proposals(
        ShrinkBranches(), candidate, types=fitter.types(candidate)
    )
    fits = fitter.fit(candidate, [e for e in edits if isinstance(e, Rewrite)])
    assert candidate.listing is not None
    made = [apply_changes(candidate.listing, fit.changes) for fit in fits if fit]
    return [program for program in made if program.cost < candidate.cost]


def inside(start: PrintedProgram, name: str) -> list[list[str]]:
    """List what becomes of one block, where it stays."""
    made = programs(start)
    return [codes(p, name) for p in made if name in {b.name for b in p.blocks}]


def test_unused_loop_values_are_cut_first() -> None:
    first, *_ = programs(LOOP)
    assert codes(first)[:2] == [
        "loop = torch.ops.higher_order.while_loop(self.c, self.b, (i, x), (y,))",
        "one = loop[1]",
    ]
    assert codes(first, "B")[-1] == "return (add, mul)"


def test_branch_is_reduced_to_its_operands() -> None:
    plain = ["return (a, a)"]
    for name in ("F", "T"):
        assert plain in inside(COND, name)


def test_one_branch_replaces_both() -> None:
    made = [codes(made)[0] for made in programs(COND)]
    assert "cond = torch.cond(p, self.t, self.t, (x, y))" in made
    assert "cond = torch.cond(p, self.f, self.f, (x, y))" in made


def test_single_branch_statements_are_cut() -> None:
    made = inside(COND, "T")
    without_relu = [
        "mm = aten.mm.default(a, b)",
        "exp = aten.exp.default(a)",
        "return (mm, exp)",
    ]
    without_mm = [
        "relu = aten.relu.default(a)",
        "exp = aten.exp.default(a)",
        "return (relu, exp)",
    ]
    assert without_relu in made
    assert without_mm in made


def test_loop_count_is_reduced_to_one_or_two() -> None:
    counts = [codes(made, "C")[0] for made in programs(LOOP)]
    assert "lt = aten.lt.Scalar(i, 1)" in counts
    assert "lt = aten.lt.Scalar(i, 2)" in counts


def test_no_proposal_makes_a_loop_endless() -> None:
    for made in programs(LOOP):
        assert codes(made, "B")[-1].startswith("return (add")
        assert "add = aten.add.Tensor(i, 1)" in codes(made, "B")


def test_program_without_subgraphs_gives_no_proposals() -> None:
    start = listing("a = aten.relu.default(x)\nreturn (a,)", HELD[1])
    assert collect_proposals(ShrinkBranches(), listed(start)) == []

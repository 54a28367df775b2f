"""Plain arguments: what is proposed, and what fits."""

from __future__ import annotations

import pytest
from support.fake_fitter import FakeFitter
from support.listings import block, codes, floats, given, listed, listing

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import apply_changes
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.search.strategy import collect_proposals
from shrinkfx.strategies.statements import SimplifyArguments


def rewrites(start: PrintedProgram) -> list[Rewrite]:
    edits = collect_proposals(SimplifyArguments(), listed(start))
    return [edit for edit in edits if isinstance(edit, Rewrite)]


def line(code: str) -> PrintedProgram:
    held = given("x", floats(2, 3, 4)), given("y", floats(2, 3, 4))
    return listing(f"a = aten.{code}\nreturn (a,)", *held)


def texts(code: str) -> list[list[str]]:
    """List what is proposed for each leaf, with nothing in the place of ''."""
    return [
        [getattr(change, "text", "?") for change in rewrite.changes]
        for rewrite in rewrites(line(code))
    ]


@pytest.mark.parametrize(
    ("code", "proposed"),
    [
        ("mul.Tensor(x, 2.5)", [["", "1", "0"]]),
        ("mul.Tensor(x, 1)", [[""]]),
        ("sum.dim_IntList(x, [1, 2], True)", [[""], ["1", "0"], ["", "[]"]]),
        (
            "full.default([], 3, dtype=torch.float64)",
            [["", "torch.float32"], ["", "1", "0"], [""]],
        ),
        ("add.Tensor(x, y)", []),
        ("to.dtype_layout(x, dtype=torch.bfloat16)", [["", "torch.float32"]]),
        ("to.dtype_layout(x, layout=torch.strided)", [[""]]),
        ("div.Tensor_mode(x, y, rounding_mode='trunc')", [[""]]),
        ("cat.default([x, y], 1)", [[""]]),
        ("view.default(x, [x.shape[0], 12])", [["1", "0"]]),
        ("to.dtype(x, None, False)", [[""], [""]]),
    ],
)
def test_each_argument_gets_simpler_proposals(
    code: str, proposed: list[list[str]]
) -> None:
    assert [made for made in texts(code) if made] == proposed


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ("sum.dim_IntList(x, [2], True)", "sum.dim_IntList(x)"),
        ("transpose.int(x, 2, 1)", "transpose.int(x, 1, 1)"),
        ("add.Tensor(x, y, alpha=7)", "add.Tensor(x, y)"),
        ("mul.Tensor(x, 2.5)", "mul.Tensor(x, 1)"),
    ],
)
def test_all_argument_proposals_together_give_a_valid_program(
    code: str, plain: str
) -> None:
    start = listed(line(code))
    assert start.listing is not None
    changes = [change for r in rewrites(start.listing) for change in r.changes]
    [fit] = FakeFitter().fit(start, [Rewrite(tuple(changes), partly=True)])
    assert fit is not None
    made = apply_changes(start.listing, fit.changes)
    assert codes(made)[0] == f"a = aten.{plain}"
    assert made.cost < start.listing.cost


def test_loop_counter_arguments_are_not_simplified() -> None:
    test = block("C", "i h", "lt = aten.lt.Scalar(i, 5)\nreturn lt")
    body = block(
        "B",
        "i h",
        "a = aten.add.Tensor(i, 2)\nb = aten.mul.Tensor(h, 2)\nreturn (a, b)",
    )
    text = """
        w = torch.ops.higher_order.while_loop(self.c, self.b, (i, h), ())
        one = w[1]
        return (one,)
    """
    held = given("i", floats(dtype="int64")), given("h", floats(2))
    start = listing(text, *held, blocks=[test, body], members="c=C b=B")
    changes = [change for r in rewrites(start) for change in r.changes]
    assert {getattr(change, "statement", "") for change in changes} == {"lt", "b"}

"""Indices that branches and bodies read stay inside as well."""

from __future__ import annotations

import pytest
from listings import block, listing, recipe

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, Refill, Resize
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.listing.tensor_specs import Constant, Counted, Seeded
from shrinkfx.worker.listing.fit import fit_rewrites
from shrinkfx.worker.listing.integer_values import list_block_operands

ATEN, HIGHER = "torch.ops.aten", "torch.ops.higher_order"
IDS = recipe(2, 5, dtype="int64", fill=Seeded("randint", 0, 100))
TABLE = {"w": recipe(100, 8)}
LOOKED_UP = f"e = {ATEN}.embedding.default(t, s)"


def fitted(program: PrintedProgram, *changes: Change) -> Rewrite | None:
    [fit] = fit_rewrites(program, [Rewrite(changes)]).fits
    return fit


def in_a_branch() -> PrintedProgram:
    first = f"s = {ATEN}.slice.Tensor(i, 1, 0, 4)"
    yes = block("Yes", ["i", "t"], first, LOOKED_UP, "return (e,)")
    zeros = f"e = {ATEN}.mul.Tensor(e_1, 0)"
    again = LOOKED_UP.replace("e =", "e_1 =")
    no = block("No", ["i", "t"], first, again, zeros, "return (e,)")
    return listing(
        {"x": IDS, "p": recipe(dtype="bool", fill=Constant(True))},
        "cond = torch.cond(p, self.yes, self.no, (x, self.w))",
        "y = cond[0]",
        "return (y,)",
        weights=TABLE,
        blocks={"yes": yes, "no": no},
    )


def in_a_loop() -> PrintedProgram:
    carried = ["n", "a", "i", "t"]
    goes = block("Goes", carried, f"l = {ATEN}.lt.Scalar(n, 3)", "return l")
    body = block(
        "Body",
        carried,
        f"m = {ATEN}.add.Tensor(n, 1)",
        f"s = {ATEN}.clone.default(i)",
        LOOKED_UP,
        f"b = {ATEN}.mean.default(e)",
        f"c = {ATEN}.add.Tensor(a, b)",
        "return (m, c)",
    )
    inputs = {
        "n": recipe(dtype="int64", fill=Constant(0)),
        "a": recipe(3),
        "x": IDS,
    }
    return listing(
        inputs,
        f"w_1 = {HIGHER}.while_loop(self.goes, self.body, (n, a), (x, self.w))",
        "y = w_1[1]",
        "return (y,)",
        weights=TABLE,
        blocks={"goes": goes, "body": body},
    )


def row_by_row() -> PrintedProgram:
    first = f"s = {ATEN}.slice.Tensor(i, 0, 0, 4)"
    body = block("Body", ["i", "t"], first, LOOKED_UP, "return (e,)")
    return listing(
        {"x": IDS},
        f"map_1 = {HIGHER}.map_impl(self.body, [x], [self.w])",
        "y = map_1[0]",
        "return (y,)",
        weights=TABLE,
        blocks={"body": body},
    )


@pytest.mark.parametrize("make", [in_a_branch, in_a_loop, row_by_row])
def test_indices_read_in_a_block_stay_in_bounds(make: object) -> None:
    assert callable(make)
    program = make()
    smaller = Resize("w", 0, 3)
    assert fitted(program, smaller) == Rewrite(
        (Refill("x", Seeded("randint", 0, 3)), smaller)
    )
    assert fitted(program, smaller, Refill("x", Counted())) is None
    inside = Resize("w", 0, 10), Refill("x", Counted())
    assert fitted(program, *inside) is not None


def test_operands_of_blocks_are_listed_by_name() -> None:
    assert list_block_operands("torch.cond(p, self.yes, self.no, (x, 3, self.w))") == (
        *("x", "", "self.w"),
    )
    loop = "while_loop(self.goes, self.body, (i, a), (self.m,))"
    assert list_block_operands(loop) == ("i", "a", "self.m")
    assert list_block_operands("invoke_subgraph(self.sub, 'sub_0', x, y)") == ("x", "y")
    assert list_block_operands("torch.relu(x)") == ()

"""Random listings, for Hypothesis: programs of the operators of ``fake_fitter``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    Dim,
    InputOrWeight,
    PrintedProgram,
)
from support.listings import block, floats, given

_LINES = (
    *("{n} = aten.relu.default({a})", "{n} = aten.add.Tensor({a}, {b})"),
    *("{n} = aten.mul.Tensor({a}, 2)", "{n} = aten.add.Tensor({a}, {b}, alpha=37)"),
    *("{n} = aten.transpose.int({a}, 0, 1)", "{n} = aten.mm.default({a}, {b})"),
    *("{n} = aten.add_.Tensor({a}, {b}, alpha=3)", "aten.check_.default({a})"),
)


def _lines(
    draw: st.DrawFn, values: Sequence[str], prefix: str, most: int
) -> tuple[list[str], list[str]]:
    """Draw statements and the values that are there then."""
    held, lines = list(values), []
    for number in range(draw(st.integers(0, most))):
        value = st.sampled_from(held)
        line, name = draw(st.sampled_from(_LINES)), f"{prefix}{number}"
        lines.append(line.format(n=name, a=draw(value), b=draw(value)))
        held += [name] if "{n}" in line else []
    return lines, held


def _called(draw: st.DrawFn, name: str, head: str, count: str = "") -> Block:
    """Draw a branch or a body; it returns as much as it takes."""
    lines, held = _lines(draw, ["arg0", "arg1"], "v", 3)
    results = [draw(st.sampled_from(held)) for _ in "ab"]
    first = ["n = aten.add.Tensor(i, 1)"] if count else []
    returned = ", ".join([*(["n"] if count else []), *results])
    return block(name, head, "\n".join([*lines, *first, f"return ({returned})"]))


def _cond(draw: st.DrawFn, values: Sequence[str]) -> tuple[list[Block], list[str]]:
    blocks = [_called(draw, name, "arg0 arg1") for name in ("Block0", "Block1")]
    call = f"call = torch.cond(p, self.one, self.two, ({', '.join(values)}))"
    return blocks, [call, "p0 = call[0]", "p1 = call[1]"]


def _loop(draw: st.DrawFn, values: Sequence[str]) -> tuple[list[Block], list[str]]:
    head = "i arg0 arg1"
    test = block("Block0", head, "lt = aten.lt.Scalar(i, 5)\nreturn lt")
    carried = ", ".join(["c", *values])
    loop = f"torch.ops.higher_order.while_loop(self.one, self.two, ({carried}), ())"
    lines = [f"call = {loop}", "p0 = call[1]", "p1 = call[2]"]
    return [test, _called(draw, "Block1", head, "i")], lines


@st.composite
def listings(draw: st.DrawFn, most: int = 5) -> PrintedProgram:
    """Draw a program: weights, dims, and maybe a ``cond`` or a loop."""
    square = floats(2, 2)
    held: list[InputOrWeight] = [given("w", square, "parameter")]
    held += [given("p", floats(dtype="bool")), given("c", floats(dtype="int64"))]
    held += [given("x", square), replace(given("y", square), open_dims=((0, "n"),))]
    lines, values = _lines(draw, ["x", "y", "self.w"], "v", most)
    blocks: list[Block] = []
    if inside := draw(st.sampled_from([None, _cond, _loop])):
        handed = [draw(st.sampled_from(values)) for _ in "ab"]
        blocks, more = inside(draw, handed)
        lines += more
        values += ["p0", "p1"]
    lines.append(f"last = aten.add.Tensor({draw(st.sampled_from(values))}, x)")
    also = draw(st.lists(st.sampled_from(values), max_size=2, unique=True))
    lines.append(f"return ({', '.join(['last', *also])},)")
    members = "one=Block0 two=Block1" if blocks else ""
    main = block(MAIN, f"p c x y {members}", "\n".join(lines))
    return PrintedProgram(
        (*blocks, main), tuple(held), (Dim("n", 0, 9), Dim("m", 0, 9))
    )

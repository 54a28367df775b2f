"""Random listings, for Hypothesis: programs of the operators of ``fake_fitter``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from shrinkfx.program.listing.listing import MAIN, Block, Dim, Given, Listing
from support.listings import block, floats, given

_LINES = (
    *("{n} = aten.relu.default({a})", "{n} = aten.add.Tensor({a}, {b})"),
    *("{n} = aten.mul.Tensor({a}, 2)", "{n} = aten.mul.Tensor({a}, {b}, k=1e-05)"),
    *(
        "{n} = aten.sum.dim_IntList({a}, [0, 1], True)",
        "{n} = aten.mm.default({a}, {b})",
    ),
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


def _called(draw: st.DrawFn, name: str, arguments: int) -> Block:
    """Draw a branch or a body; it returns as much as it takes."""
    names = [f"arg{i}" for i in range(arguments)]
    lines, held = _lines(draw, names, "v", 3)
    results = [draw(st.sampled_from(held)) for _ in names]
    text = "\n".join([*lines, f"return ({', '.join(results)},)"])
    return block(name, " ".join(names), text)


@st.composite
def listings(draw: st.DrawFn, most: int = 5) -> Listing:
    """Draw a program: weights, dims, and maybe a ``cond`` or a loop."""
    held: list[Given] = [
        given("w", floats(2, 2), "parameter"),
        given("x", floats(2, 2)),
    ]
    held += [replace(given("y", floats(2, 2)), open_dims=((0, "n"),))]
    lines, values = _lines(draw, ["x", "y", "self.w"], "v", most)
    blocks: list[Block] = []
    members = ""
    kind = draw(st.sampled_from(["", "cond", "while_loop"]))
    if kind:
        first, second = (draw(st.sampled_from(values)) for _ in "ab")
        blocks = [_called(draw, name, 2) for name in ("Block0", "Block1")]
        members = "one=Block0 two=Block1"
        called = (
            f"torch.cond({first}, self.one, self.two, ({first}, {second}))"
            if kind == "cond"
            else "torch.ops.higher_order.while_loop("
            f"self.one, self.two, ({first}, {second}), ())"
        )
        lines += [f"call = {called}", "p0 = call[0]", "p1 = call[1]"]
        values += ["p0", "p1"]
    lines.append(f"last = aten.add.Tensor({draw(st.sampled_from(values))}, x)")
    more = draw(st.lists(st.sampled_from(values), max_size=2, unique=True))
    lines.append(f"return ({', '.join(['last', *more])},)")
    main = block(MAIN, f"x y {members}", "\n".join(lines))
    return Listing((*blocks, main), tuple(held), (Dim("n", 0, 9), Dim("m", 0, 9)))

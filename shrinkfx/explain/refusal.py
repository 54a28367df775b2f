"""What a program that checks its inputs refuses: the input, and what it declares."""

from __future__ import annotations

import re
from dataclasses import replace

from shrinkfx.explain.anatomy import Known
from shrinkfx.report.explanation.chain import Chain, Layout, Refusal

_REFUSED = re.compile(
    r"input_handles\[(?P<input>\d+)\]: (?P<what>[a-z ]+?)(?: at (?P<dim>\d+))?,\s*"
    r"expected(?: it)?(?: to be)?:? ?(?P<expected>[^\n]*?),? but got: (?P<given>[^\n]*)"
)
_WORDS = re.compile(r"[A-Za-z_]\w*")


def refusal_chain(known: Known, text: str, eager_fails: bool) -> Chain:
    """Say which input is refused, for what, and who has declared that.

    Args:
        text: what the run has said.
    """
    found = _REFUSED.search(text)
    if found is None:
        return Chain(eager_fails=eager_fails, unknown=("which input: it is not said",))
    given = [i for i in known.anatomy.inputs if i.role == "input"]
    place = int(found["input"])
    layout = known.layout_of(given[place]) if place < len(given) else None
    dim = int(found["dim"]) if found["dim"] else None
    size = layout.shape[dim] if layout and dim is not None and _is_size(found) else ""
    refusal = Refusal(
        what=found["what"],
        input=layout,
        dim=dim,
        expected=found["expected"].strip(),
        given=found["given"].strip(),
        symbols=tuple(known.symbols(_WORDS.findall(size))),
    )
    chain = Chain(
        eager_fails=eager_fails,
        refusal=refusal,
        inputs=(layout,) if layout else (),
        cause=_said(refusal, layout),
    )
    if refusal.symbols and not any(s.guards for s in refusal.symbols):
        line = "the line of the model that asks for it: the program does not hold that"
        return replace(chain, unknown=(line,))
    return chain


def _is_size(found: re.Match[str]) -> bool:
    return "dim value" in found["what"]


def _said(refusal: Refusal, layout: Layout | None) -> tuple[str, ...]:
    name = layout.name if layout else "an input"
    role = layout.role if layout else ""
    what = f"{role} {name}".strip()
    where = "" if refusal.dim is None else f", dim {refusal.dim}"
    first = (
        f"The program refuses {what}{where}: {refusal.what}, expected "
        f"{refusal.expected}, given {refusal.given}."
    )
    declared = [str(symbol) for symbol in refusal.symbols]
    if declared:
        return (first, f"That is {'; '.join(declared)}: the program's own declaration.")
    return (first, "The program was exported for that alone.")

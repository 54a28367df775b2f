"""Explain an input that the compiled program's checks reject."""

from __future__ import annotations

import re

from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.program.sizes import holds, names_in
from shrinkfx.report.explanation.chain import Chain, InputRejection, Layout

_REFUSED = re.compile(
    r"input_handles\[(?P<input>\d+)\]: (?P<what>[a-z ]+?)(?: at (?P<dim>\d+))?,\s*"
    r"expected(?: it)?(?: to be)?:? ?(?P<expected>[^\n]*?),? but got: (?P<given>[^\n]*)"
)
_WORDS = re.compile(r"[A-Za-z_]\w*")


def refusal_chain(view: CompiledView, text: str, eager_fails: bool) -> Chain:
    """Describe which input is rejected, why, and what declares its size.

    Args:
        text: the output of the run.
    """
    match = _REFUSED.search(text)
    if match is None:
        return Chain(
            eager_fails=eager_fails,
            unknown=("which input: the error does not name it",),
        )
    inputs = [i for i in view.recorded.inputs if i.role == "input"]
    place = int(match["input"])
    layout = view.layout_of(inputs[place]) if place < len(inputs) else None
    dim = int(match["dim"]) if match["dim"] else None
    size = layout.shape[dim] if layout and dim is not None and _is_size(match) else ""
    refusal = InputRejection(
        what=match["what"],
        input=layout,
        dim=dim,
        expected=match["expected"].strip(),
        actual=match["given"].strip(),
        symbols=tuple(view.symbols(_WORDS.findall(size))),
    )
    sentences, unknown = _describe_guards(refusal, view.recorded.guards_unknown)
    return Chain(
        eager_fails=eager_fails,
        refusal=refusal,
        inputs=(layout,) if layout else (),
        cause=(*_describe_rejection(refusal, layout), *sentences),
        unknown=unknown if _is_size(match) else (),
    )


_LINE = "the model line that requires it"
_NO_LINE = f"{_LINE}: torch.export records guards without their lines"
_FIXED = (
    f"{_LINE}: torch.export records a fixed size as a number, and not whether the "
    "model fixed it"
)
_NO_GUARD = "The program has no guard of the model on this size."
_SHOWN = 2


def _describe_guards(
    refusal: InputRejection, guards_unknown: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences about guards on the size, and what is unknown about them.

    A guard exists if the model, as export traced it, compared a size or called
    ``torch._check``. Guards that do not hold for the actual sizes take precedence.
    """
    if not refusal.symbols:
        return (), (_FIXED,)
    if guards_unknown:
        return (), (f"{_LINE}, and whether a line does: {guards_unknown}",)
    guards = list(dict.fromkeys(g for s in refusal.symbols for g in s.guards))
    if not guards:
        return (_NO_GUARD,), ()
    sizes = {s.name: s.value for s in refusal.symbols if s.value is not None}
    evaluable = [guard for guard in guards if names_in(guard) <= sizes.keys()]
    broken = [guard for guard in evaluable if not holds(guard, sizes)]
    template = (
        "The model requires {}" if broken else "The model's guards on this size are {}"
    )
    shown = ", ".join((broken or guards)[:_SHOWN])
    return (f"{template.format(shown)}: torch.export recorded this.",), (_NO_LINE,)


def _is_size(found: re.Match[str]) -> bool:
    return "dim value" in found["what"]


def _describe_rejection(
    refusal: InputRejection, layout: Layout | None
) -> tuple[str, ...]:
    name = layout.name if layout else "an input"
    role = layout.role if layout else ""
    what = f"{role} {name}".strip()
    where = "" if refusal.dim is None else f", dim {refusal.dim}"
    first = (
        f"The compiled program rejects {what}{where}: {refusal.what}, expected "
        f"{refusal.expected}, got {refusal.actual}."
    )
    declared = [str(symbol) for symbol in refusal.symbols]
    if declared:
        return (
            first,
            f"The exported program declares this size: {'; '.join(declared)}.",
        )
    return (first, f"The program was exported for {refusal.expected} only.")

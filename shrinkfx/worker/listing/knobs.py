"""Knobs of a repair: numbers and dtypes in statements, and sizes of inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from shrinkfx.program.listing.changes import Cast, Change, Resize, Write
from shrinkfx.program.listing.printed_program import InputOrWeight, Run
from shrinkfx.program.listing.statements import Leaf, LeafKind, Statement
from shrinkfx.program.listing.tensor_specs import Opaque
from shrinkfx.worker.listing.arguments import arguments_of, get_operator_name, is_index

_LONGEST = 2**31
"""Numbers from here on stand for the end of a slice; they are no sizes."""

_NO_SIZES = re.compile(r"dims?\d?|.*_dim|dimension|axis|correction|device|layout|k")
"""Integer arguments that are not sizes."""

_COUNTING = frozenset({"arange", "linspace"})
"""Operators whose schemas declare sizes as numbers of any type."""


@dataclass(frozen=True)
class Knob:
    """A number or a dtype that a repair may change.

    Attributes:
        change: the change that writes it, with the current value.
        now: the current value.
        argument: the operator argument that it belongs to, or ''.
    """

    change: Write | Resize | Cast
    now: int | str
    argument: str = ""

    def change_to(self, to: int | str) -> Change:
        """Return the change that writes another value."""
        match self.change:
            case Write():
                return replace(self.change, text=str(to))
            case Resize():
                return replace(self.change, size=int(to))
            case Cast():
                return replace(self.change, dtype=str(to).removeprefix("torch."))


def list_statement_knobs(
    block: str, statement: Statement, requested: Set[int]
) -> Iterator[Knob]:
    """Yield the knobs of a statement, without leaves that the rewrite itself sets."""
    fixed = set(requested)
    for leaf in statement.leaves:
        if leaf.number in fixed or leaf.parent in fixed:
            fixed.add(leaf.number)
            continue
        value = _number_or_dtype(leaf, statement)
        if value is not None:
            write = Write(block, statement.name, leaf.number, leaf.text)
            argument = arguments_of(statement).get(leaf.number, ("", ""))[0]
            yield Knob(write, value, argument)


def _number_or_dtype(leaf: Leaf, statement: Statement) -> int | str | None:
    name, kind = arguments_of(statement).get(leaf.number, ("", "int"))
    if leaf.kind is LeafKind.WORD:
        return leaf.text if leaf.text.startswith("torch.") else None
    if leaf.kind is not LeafKind.NUMBER or not leaf.text.lstrip("-").isdigit():
        return None
    counts = "number" in kind.lower() and get_operator_name(statement) in _COUNTING
    if not counts and "int" not in kind.lower():
        return None
    number = int(leaf.text)
    if _NO_SIZES.fullmatch(name) or is_index(leaf, statement):
        return None
    return number if number != -1 and abs(number) < _LONGEST else None


def list_input_knobs(
    entry: InputOrWeight, requested: Set[tuple[object, ...]]
) -> Iterator[Knob]:
    """Yield static sizes and dtype of an input, unless the rewrite sets them."""
    recipe = entry.recipe()
    if isinstance(recipe.fill, Opaque):
        return
    for dim, size in enumerate(recipe.shape):
        if dim not in dict(entry.open_dims) and not _is_rejected_resize(
            entry.name, dim, requested
        ):
            yield Knob(Resize(entry.name, dim, size), size)
    if (Cast, entry.name) not in requested:
        yield Knob(Cast(entry.name, recipe.dtype), f"torch.{recipe.dtype}")


def _is_rejected_resize(
    name: str, dim: int, requested: Set[tuple[object, ...]]
) -> bool:
    return any((Resize, name, dim, run) in requested for run in (None, *Run))


Pair = tuple[int, int]
"""An old number and the new one."""


def apply_replacements(
    knobs: Iterable[Knob], replaced: Mapping[int | str, int | str]
) -> tuple[Change, ...]:
    """Change each knob whose value has been replaced elsewhere."""
    return tuple(
        knob.change_to(replaced[knob.now])
        for knob in knobs
        if replaced.get(knob.now, knob.now) != knob.now
    )


def scale_number(number: int, pairs: Iterable[Pair]) -> Iterator[int]:
    """Yield scaled values of a multiple or divisor of a replaced number."""
    seen = {number}
    for old, new in pairs:
        related = old and number and (number % old == 0 or old % number == 0)
        if related and number * new % old == 0 and number * new // old not in seen:
            seen.add(number * new // old)
            yield number * new // old

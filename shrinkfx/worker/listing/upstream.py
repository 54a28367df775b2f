"""The knobs before a statement, and the sizes and dtypes replaced there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from shrinkfx.program.listing.changes import Cast, Change, Resize, Write, place_of
from shrinkfx.program.listing.printed_program import MAIN, Block, PrintedProgram, Run
from shrinkfx.program.listing.statements import Leaf, Statement
from shrinkfx.program.listing.tensor_specs import Opaque
from shrinkfx.worker.listing.fakes import Value
from shrinkfx.worker.listing.knobs import Knob, list_input_knobs, list_statement_knobs
from shrinkfx.worker.listing.program_trace import Place, shapes_of
from shrinkfx.worker.listing.proposals import Replacements

Values = Mapping[Place, Value]


class UpstreamKnobs:
    """The knobs of a changed program, as leaves of the unchanged program.

    Args:
        was: the unchanged program.
        now: the changed program, which runs.
        request: the requested changes; their leaves and sizes are no knobs.
    """

    def __init__(
        self, was: PrintedProgram, now: PrintedProgram, request: Sequence[Change]
    ) -> None:
        self._was = was
        self._now = now
        self._places = {place_of(change) for change in request}
        self._leaves: dict[Place, set[int]] = {}
        for change in request:
            if isinstance(change, Write):
                place = change.block, change.statement
                self._leaves.setdefault(place, set()).add(change.leaf)

    def around(self, frames: Sequence[Place]) -> tuple[list[Knob], list[list[Knob]]]:
        """List the knobs of a statement, and of each earlier one in reverse order.

        Args:
            frames: the statements that call its block, and the statement last.
        """
        groups = [
            self._list_knobs(*place)
            for block, statement in reversed(frames)
            for place in self._before(self._now.block(block), statement)
        ]
        read = {name for b, s in frames for name in self._reads(b, s) if b == MAIN}
        for entry in self._now.given:
            if entry.spelling in read:
                was = self._was.find(entry.name)
                groups.append(list(list_input_knobs(was, self._places)))
        return self._list_knobs(*frames[-1]), [group for group in groups if group]

    def before(self, name: str) -> list[Knob]:
        """List the knobs of everything that a value of the main block depends on."""
        for entry in self._now.given:
            if entry.spelling == name:
                return list(list_input_knobs(self._was.find(entry.name), self._places))
        near, far = self.around([(MAIN, name)])
        return [*near, *(knob for group in far for knob in group)]

    def list_arithmetic(self) -> list[Knob]:
        """List the knobs of arithmetic statements in the main block.

        A search upstream misses them if only an assertion reads them.
        """
        lines = (line for line in self._now.main.statements if not line.callee)
        return [knob for line in lines for knob in self._list_knobs(MAIN, line.name)]

    def _list_knobs(self, block: str, name: str) -> list[Knob]:
        found = [s for s in self._was.block(block).statements if s.name == name]
        if not found or not found[0].yields:
            return []
        requested = self._leaves.get((block, name), set())
        return list(list_statement_knobs(block, found[0], requested))

    def _before(self, block: Block, name: str) -> Iterator[Place]:
        """Yield the statements that a statement depends on, also indirectly."""
        for statement in reversed(block.statements):
            if statement.name == name:
                yield from self._within(block, statement)
            elif statement.name in self._reads(block.name, name):
                yield block.name, statement.name
                yield from self._within(block, statement)

    def _within(self, block: Block, statement: Statement) -> Iterator[Place]:
        """Yield the statements of the blocks that a statement calls."""
        for attribute, kind in block.members:
            if f"self.{attribute}" in statement.reads:
                inner = self._now.block(kind)
                for each in reversed(inner.statements):
                    yield kind, each.name
                    yield from self._within(inner, each)

    def _reads(self, block: str, name: str) -> set[str]:
        """Return the names that a statement reads, also indirectly."""
        found: set[str] = set()
        after = False
        for statement in reversed(self._now.block(block).statements):
            if statement.name == name and not after:
                after = True
                found |= statement.reads
            elif after and statement.name in found:
                found |= statement.reads
        return found


def collect_replacements(
    was: PrintedProgram,
    now: PrintedProgram,
    request: Sequence[Change],
    place: Place,
    values: tuple[Values, Values],
) -> Replacements:
    """Collect replaced sizes and dtypes: requested ones, and those of operands.

    Args:
        values: the values before and after the change.
    """
    pairs = list(_sizes_moved(was, request))
    totals: list[int] = []
    block, name = place
    statement = next(s for s in now.block(block).statements if s.name == name)
    for read in sorted(statement.reads):
        old, new = (mapping.get((block, read)) for mapping in values)
        if new is not None:
            for shape in shapes_of(new):
                totals += [_count(shape), *shape]
        if old is not None and new is not None:
            for before, after in zip(shapes_of(old), shapes_of(new), strict=False):
                if len(before) == len(after):
                    pairs += zip(before, after, strict=True)
                pairs.append((_count(before), _count(after)))
        if old is not None and new is not None and old.exact and new.exact:
            pairs += zip(_sums(old), _sums(new), strict=False)
    sizes = tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    dtypes = tuple(dict.fromkeys(iter_dtype_changes(was, request)))
    return Replacements(sizes, dtypes, tuple(dict.fromkeys(totals)))


def _sums(value: Value) -> list[int]:
    """Add up whole numbers, because a size may be the sum of lengths."""
    return [int(tensor.sum()) for tensor in value.tensors()]


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _sizes_moved(
    was: PrintedProgram, request: Sequence[Change]
) -> Iterator[tuple[int, int]]:
    for change in request:
        if isinstance(change, Resize):
            recipe = was.find(change.name).recipe(change.run or Run.EXAMPLE)
            if not isinstance(recipe.fill, Opaque) and change.dim < len(recipe.shape):
                yield recipe.shape[change.dim], change.size
        elif isinstance(change, Write) and (leaf := _leaf(was, change)):
            texts = leaf.text, change.text
            if all(text.isdigit() for text in texts):
                yield int(leaf.text), int(change.text)


def iter_dtype_changes(
    was: PrintedProgram, request: Sequence[Change]
) -> Iterator[tuple[str, str]]:
    """Yield the old and new dtype of each cast, as statements write them."""
    for change in request:
        if isinstance(change, Cast):
            old = was.find(change.name).recipe().dtype
            if old != change.dtype:
                yield f"torch.{old}", f"torch.{change.dtype}"
        elif isinstance(change, Write) and (leaf := _leaf(was, change)):
            texts = leaf.text, change.text
            if all(map(_is_dtype, texts)):
                yield texts


def _is_dtype(text: str) -> bool:
    named = getattr(torch, text.removeprefix("torch."), None)
    return text.startswith("torch.") and isinstance(named, torch.dtype)


def _leaf(was: PrintedProgram, change: Write) -> Leaf | None:
    for statement in was.block(change.block).statements:
        if statement.name == change.statement:
            leaves = statement.leaves
            return leaves[change.leaf] if change.leaf < len(leaves) else None
    return None

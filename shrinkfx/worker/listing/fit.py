"""Test of rewrites: which ones make a valid program, and what follows from them.

Fake tensors tell whether a program is valid. If a statement does not run, a table of
repairs is tried in order.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import torch
from torch import Tensor

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Cast,
    Change,
    Refill,
    Resize,
    Squeeze,
    Write,
    apply_changes,
    place_of,
)
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    InputOrWeight,
    Leaf,
    LeafKind,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import Opaque
from shrinkfx.protocol.answers import Fitted, Typed
from shrinkfx.worker.listing.describe import list_saved_part
from shrinkfx.worker.listing.dims import (
    Contradiction,
    OtherSizes,
    Outside,
    Recipes,
    find_dims_out_of_range,
    make_specs_at_other_sizes,
    propagate_resizes,
    recipes_in,
    require_declared,
    runs_of,
)
from shrinkfx.worker.listing.eager_statement import (
    Misfit,
    arguments_of,
    get_operator_name,
    is_index,
)
from shrinkfx.worker.listing.fakes import (
    Admit,
    Place,
    StandInRunner,
    Trace,
    Value,
    admit_all,
    admit_like,
    run,
    shapes_of,
)
from shrinkfx.worker.listing.indices import BoundsCheck, require_valid_inputs

Changes = tuple[Change, ...]
Values = Mapping[Place, Value]
Pair = tuple[int, int]
"""An old number and the new one."""


def fit_rewrites(
    listing: PrintedProgram,
    rewrites: Sequence[Rewrite],
    saved: Mapping[str, torch.Tensor] | None = None,
) -> Fitted:
    """Complete each rewrite to a valid program, independently of the others.

    Args:
        saved: saved values by the keys of tensor specs.
    """
    with _silence_fake_tensors():
        fitter = Fitter(listing, saved or {})
        fits = tuple(_fit(fitter, rewrite) for rewrite in rewrites)
    misfit = str(fitter.base.misfit or "")
    return Fitted(fits, tuple(_describe_values(fitter.base)), misfit)


@contextmanager
def _silence_fake_tensors() -> Iterator[None]:
    """Keep fake tensors from logging a traceback for each invalid operator."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was


def _fit(fitter: Fitter, rewrite: Rewrite) -> Rewrite | None:
    changes = rewrite.changes
    fitted = fitter.fit(changes)
    if fitted is None and rewrite.partly:
        fitted = fitter.fit(_fitting(fitter, changes))
    return Rewrite(fitted) if fitted else None


def _fitting(fitter: Fitter, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Keep each change that fits together with those kept before."""
    accepted: tuple[Change, ...] = ()
    for change in changes:
        if fitter.fit((*accepted, change)) is not None:
            accepted = (*accepted, change)
    return accepted


def _describe_values(trace: Trace) -> Iterator[Typed]:
    """Describe each value that is a single strided tensor."""
    for (block, name), value in trace.values.items():
        match value.what:
            case torch.Tensor(layout=torch.strided) as fake:
                yield Typed(
                    block=block,
                    name=name,
                    dtype=str(fake.dtype).removeprefix("torch."),
                    shape=tuple(fake.shape),
                    stride=tuple(fake.stride()),
                    device=str(fake.device),
                )


_MOST_TRIES = 120
"""Maximal number of repairs to try for one statement."""

_MOST_REFILLS = 4


@dataclass
class Fitter:
    """Completes rewrites of one printed program, so that it stays valid.

    Attributes:
        saved: saved values by the keys of tensor specs.
        base: the trace of the unchanged program.
        outside: dims that are out of their declared range in a run. This may be why the
            program fails, so they may stay so.
        pointing: the bounds check of indices.
        roams: the other sizes of dynamic dims at which the unchanged program runs. A
            changed program must run there, too. At the remaining sizes, the program
            needs more than it declares.
    """

    listing: PrintedProgram
    saved: Mapping[str, Tensor]
    fakes: StandInRunner = field(default_factory=StandInRunner)
    base: Trace = field(init=False)
    roams: tuple[OtherSizes, ...] = field(init=False)
    outside: Outside = frozenset()
    pointing: BoundsCheck = field(init=False)

    def __post_init__(self) -> None:
        self.fakes.trusting = True
        runs = [recipes_in(self.listing, each) for each in runs_of(self.listing)]
        self.base, *_ = (self._run(self.listing, recipes) for recipes in runs)
        self.fakes.trusting = False
        self.pointing = BoundsCheck(self.saved)
        self._fitted: dict[Changes, Changes | None] = {}
        try:
            self.outside = find_dims_out_of_range(self.listing)
            require_declared(self.listing, self.outside)
            self.pointing = self.pointing.with_allowed(self.listing, self.base)
            kinds = OtherSizes if self.listing.dims else ()
            self.roams = tuple(
                kind for kind in kinds if self._roams(self.listing, kind)
            )
        except Contradiction:
            self.roams = ()

    def fit(self, request: Sequence[Change]) -> Changes | None:
        """Add the changes that follow; None if they make no valid program."""
        if self.base.misfit is not None:
            return self._fit_refills(tuple(request))
        key = tuple(map(self._write_out_values, request))
        if key not in self._fitted:
            self._fitted[key] = self._fit(key)
        return self._fitted[key]

    def _write_out_values(self, change: Change) -> Change:
        """Write out the saved values that remain after a refill, if they are few."""
        entries = {entry.name: entry for entry in self.listing.given}
        if not isinstance(change, Refill) or change.name not in entries:
            return change
        recipe = entries[change.name].recipe(change.run or Run.EXAMPLE)
        return replace(
            change, fill=list_saved_part(recipe.filled(change.fill), self.saved).fill
        )

    def _fit(self, request: Changes) -> Changes | None:
        attempt = self._make_runnable(request)
        if attempt is None:
            return None
        attempt = self._undo_needless_resizes(attempt, request)
        bounded = self._bound_indices(attempt, request)
        return None if bounded is None else sort_changes(bounded.changes)

    def _make_runnable(self, request: Changes) -> Attempt | None:
        """Add the changes that make the program run, ignoring bounds of indices."""
        try:
            changes = propagate_resizes(self.listing, request)
            renamed = self._renumber_dims(self._attempt(changes, request), request)
            attempt = self._repair_statements(renamed, request)
        except (Contradiction, InvalidEdit):
            return None
        runs = attempt is not None and self._runs_in_all(attempt.listing)
        return attempt if runs else None

    def _undo_needless_resizes(self, attempt: Attempt, request: Changes) -> Attempt:
        """Undo each resize that a single requested resize does not need.

        This is necessary because a repair changes all equal numbers upstream, although
        two of three may suffice.
        """
        is_alone = len(request) == 1 and isinstance(request[0], Resize)
        more = set(attempt.changes) - set(request) if is_alone else set()
        for change in sort_changes(c for c in more if isinstance(c, Resize)):
            changes = tuple(c for c in attempt.changes if c != change)
            with contextlib.suppress(InvalidEdit, Contradiction):
                tried = self._attempt(changes, request)
                runs = tried.trace.misfit is None and self._runs_in_all(tried.listing)
                attempt = tried if runs else attempt
        return attempt

    def _fit_refills(self, request: Changes) -> Changes | None:
        """Accept refills only, because fake tensors cannot run the program."""
        if not all(isinstance(change, Refill) for change in request):
            return None
        try:
            require_valid_inputs(
                apply_changes(self.listing, request), self.listing, self.saved
            )
        except InvalidEdit:
            return None
        return sort_changes(request)

    def _attempt(self, changes: Changes, request: Changes) -> Attempt:
        listing = apply_changes(self.listing, changes)
        require_declared(listing, self.outside)
        require_valid_inputs(listing, self.listing, self.saved)
        cast = any(True for _ in iter_dtype_changes(self.listing, request))
        admit = admit_like(self.base.values, cast=cast)
        recipes = recipes_in(listing, Run.EXAMPLE)
        return Attempt(changes, listing, self._run(listing, recipes, admit))

    def _run(
        self, listing: PrintedProgram, recipes: Recipes, admit: Admit = admit_all
    ) -> Trace:
        """Run a program on fake tensors."""
        try:
            inputs = {}
            for each in listing.given:
                inputs[each.spelling] = self.fakes.given(recipes[each.name])
        except Misfit as misfit:
            return Trace(misfit=misfit)
        return run(self.fakes, listing, inputs, admit)

    def _renumber_dims(self, attempt: Attempt, request: Changes) -> Attempt:
        """Renumber dims in statements, if the rewrite squeezes an input."""
        if not any(isinstance(change, Squeeze) for change in request):
            return attempt
        for line in self.listing.main.statements:
            writes = renumber_dims(line, self.base.values, attempt.trace.values)
            with contextlib.suppress(InvalidEdit, Contradiction):
                tried = self._attempt(merge_changes(attempt.changes, writes), request)
                worse = attempt.trace.is_further_than(tried.trace)
                attempt = attempt if worse else tried
        return attempt

    def _repair_statements(self, attempt: Attempt, request: Changes) -> Attempt | None:
        """Changes one statement after another, until all of them run."""
        while attempt.trace.misfit is not None:
            better = None
            repairs = self._repairs(attempt, request)
            for repair in islice(repairs, _MOST_TRIES):
                try:
                    tried = self._attempt(
                        merge_changes(attempt.changes, repair), request
                    )
                except (InvalidEdit, Contradiction):
                    continue
                if tried.trace.is_further_than(attempt.trace):
                    better = tried
                    break
            if better is None:
                return None
            attempt = better
        return attempt

    def _repairs(self, attempt: Attempt, request: Changes) -> Iterator[Changes]:
        misfit = attempt.trace.misfit
        if misfit is None or not misfit.frames:
            return iter(())  # an input is invalid: no repair helps
        knobs = UpstreamKnobs(self.listing, attempt.listing, request)
        near, before = knobs.around(misfit.frames)
        last = misfit.frames[-1]
        values = self.base.values, attempt.trace.values
        replaced = collect_replacements(
            self.listing, attempt.listing, request, last, values
        )
        return propose_repairs(near, before, replaced)

    def _runs_in_all(self, listing: PrintedProgram) -> bool:
        """Return whether the program runs in its other runs, and at other sizes."""
        others = [recipes_in(listing, each) for each in runs_of(listing)[1:]]
        ran = all(self._run(listing, recipes).misfit is None for recipes in others)
        return ran and all(self._roams(listing, kind) for kind in self.roams)

    def _roams(self, listing: PrintedProgram, kind: OtherSizes) -> bool:
        recipes = make_specs_at_other_sizes(listing, kind)
        return self._run(listing, recipes).misfit is None

    def _bound_indices(self, attempt: Attempt, request: Changes) -> Attempt | None:
        """Bound the indices that are out of bounds; None if that is impossible."""
        places = {place_of(change) for change in request}
        for _ in range(_MOST_REFILLS):
            try:
                refills = self.pointing.list_refills(attempt.listing, attempt.trace)
                if not refills:
                    return attempt
                if any(place_of(refill) in places for refill in refills):
                    return None
                changes = merge_changes(attempt.changes, refills)
                repaired = self._repair_statements(
                    self._attempt(changes, request), request
                )
            except (Contradiction, InvalidEdit):
                return None
            if repaired is None:
                return None
            attempt = repaired
        return None


@dataclass(frozen=True)
class Attempt:
    """A changed printed program, and its trace at the sizes of the example."""

    changes: Changes
    listing: PrintedProgram
    trace: Trace


def merge_changes(changes: Iterable[Change], more: Iterable[Change]) -> Changes:
    """Add changes; a later change replaces an earlier one of the same place."""
    by_place = {place_of(change): change for change in changes}
    by_place |= {place_of(change): change for change in more}
    return tuple(by_place.values())


def sort_changes(changes: Iterable[Change]) -> Changes:
    """Sort changes into their normal order, without duplicates."""
    return tuple(sorted(set(changes), key=lambda c: (type(c).__name__, str(c))))


_DIMS = re.compile(r"dims?\d?|.*_dim|axis")
"""Arguments that number dims."""

_SIZES = re.compile(r"\w*size|\w*shape|repeats")
"""Lists with an item for each dim, or for the last dims."""


def renumber_dims(statement: Statement, was: Values, now: Values) -> tuple[Write, ...]:
    """Renumber the dims in a statement of the main block, if an operand lost some.

    Args:
        was: the values before the change.
        now: the values after it.
    """
    for leaf in statement.leaves:
        old, new = (values.get((MAIN, leaf.text)) for values in (was, now))
        if leaf.kind is LeafKind.VALUE and old is not None and new is not None:
            shapes = [*shapes_of(old)[:1], *shapes_of(new)[:1]]
            if len(shapes) == 2 and (removed := _lost(*shapes)):
                return tuple(_writes(statement, len(shapes[0]), removed))
    return ()


def _lost(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """List the removed dims of size 1; [] if anything else has changed."""
    removed, remaining = [], list(new)
    for dim, size in enumerate(old):
        more = len(old) - dim > len(remaining)
        if remaining[:1] == [size] and not (more and size == 1):
            remaining.pop(0)
        else:
            removed.append(dim)
    return removed if not remaining and all(old[dim] == 1 for dim in removed) else []


def _writes(statement: Statement, rank: int, removed: Sequence[int]) -> Iterator[Write]:
    lists = {x.number: x for x in statement.leaves if x.kind is LeafKind.LIST}
    for leaf in statement.leaves:
        name, kind = arguments_of(statement).get(leaf.number, ("", ""))
        if leaf.kind is not LeafKind.NUMBER or "nt" not in kind or not _is_whole(leaf):
            continue
        items = [x for x in statement.leaves if x.parent == leaf.parent in lists]
        if _DIMS.fullmatch(name):
            text = _renumbered(int(leaf.text), rank, removed)
            if not any(_renumbered(int(x.text), rank, removed) for x in items):
                text = text or leaf.text  # an empty list may stand for all dims
        elif _SIZES.fullmatch(name) and items and leaf.text in ("1", "-1"):
            place = items.index(leaf) + rank - len(items)
            text = "" if place in removed else leaf.text
        else:
            continue
        if text != leaf.text and (text or leaf.parent in lists):
            yield Write(MAIN, statement.name, leaf.number, text)


def _is_whole(leaf: Leaf) -> bool:
    return leaf.text.lstrip("-").isdigit()


def _renumbered(dim: int, rank: int, removed: Sequence[int]) -> str:
    """Return the new number of a dim, or '' for a removed dim."""
    place = dim % rank
    if place in removed:
        return ""
    new_dim = place - sum(each < place for each in removed)
    return str(new_dim if dim >= 0 else new_dim - rank + len(removed))


# x: (2, 12, 32) -> (2, 4, 32)        x.view([24, 32])  ->  x.view([8, 32])
#
# A number that equals a replaced size becomes the new size; multiples and divisors
# are scaled alike; one number of a shape may be computed from the others.

_SHAPES = frozenset({"size", "shape", "split_sizes"})
"""Arguments whose product or sum equals that of the operand's sizes."""


@dataclass(frozen=True)
class Replacements:
    """The sizes and dtypes that have been replaced, as far as known.

    Attributes:
        sizes: old and new sizes; those nearest to the statement last, because they
            follow from the others.
        dtypes: old and new dtypes, as statements write them.
        totals: the current element counts and sizes of the operands.
    """

    sizes: tuple[Pair, ...]
    dtypes: tuple[tuple[str, str], ...]
    totals: tuple[int, ...]

    @property
    def exact(self) -> dict[int | str, int | str]:
        """The new value of each old value; of several the first."""
        return dict([*reversed(self.sizes), *reversed(self.dtypes)])


def propose_repairs(
    near: Sequence[Knob], before: Sequence[Knob], replaced: Replacements
) -> Iterator[Changes]:
    """Yield repairs, each once.

    Args:
        near: knobs of the invalid statement.
        before: knobs of earlier statements and of inputs, the nearest first.
    """
    shape = [k for k in near if k.argument in _SHAPES and isinstance(k.now, int)]
    fallbacks = (
        [apply_replacements(near, replaced.exact)],
        _single_changes(near, replaced.sizes),
        _fill_shape(shape, replaced.totals),
        [apply_replacements(before, replaced.exact)],
        [apply_replacements([*near, *before], replaced.exact)],
    )
    seen: set[Changes] = {()}
    for repair in chain.from_iterable(fallbacks):
        if repair not in seen:
            seen.add(repair)
            yield repair


def _single_changes(
    knobs: Iterable[Knob], pairs: Sequence[Pair]
) -> Iterator[tuple[Change]]:
    """Change one number to a new size, or scale it with one."""
    numbers = [knob for knob in knobs if isinstance(knob.now, int)]
    for old, new in pairs:
        yield from ((knob.change_to(new),) for knob in numbers if knob.now == old)
    for knob in numbers:
        for number in scale_number(int(knob.now), pairs):
            yield (knob.change_to(number),)


def _fill_shape(shape: Sequence[Knob], totals: Sequence[int]) -> Iterator[Changes]:
    """Compute one number of a shape from the others, or set all but the last to 1."""
    now = [int(knob.now) for knob in shape]
    for total in totals:
        for place, knob in enumerate(shape):
            rest = math.prod(now[:place] + now[place + 1 :])
            if rest > 0 and total % rest == 0 and total // rest != knob.now:
                yield (knob.change_to(total // rest),)
    ones = tuple(knob.change_to(1) for knob in shape[:-1] if knob.now != 1)
    for total in totals if shape else ():
        for last in (total, total - len(shape) + 1):  # of a product, or of a sum
            if last > 0:
                yield (*ones, shape[-1].change_to(last))


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

    def around(self, frames: Sequence[Place]) -> tuple[list[Knob], list[Knob]]:
        """List the knobs of a statement, and those before it, the nearest first.

        Args:
            frames: the statements that call its block, and the statement last.
        """
        before = [
            knob
            for block, statement in reversed(frames)
            for place in self._before(self._now.block(block), statement)
            for knob in self._list_knobs(*place)
        ]
        read = {name for b, s in frames for name in self._reads(b, s) if b == MAIN}
        for entry in self._now.given:
            if entry.spelling in read:
                was = self._was.find(entry.name)
                before += list_input_knobs(was, self._places)
        return self._list_knobs(*frames[-1]), before

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
    sizes = tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    dtypes = tuple(dict.fromkeys(iter_dtype_changes(was, request)))
    return Replacements(sizes, dtypes, tuple(dict.fromkeys(totals)))


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

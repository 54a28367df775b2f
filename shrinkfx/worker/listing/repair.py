"""Completion of rewrites: the requested changes, and all that follow from them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Self

import torch
from torch import Tensor

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.changes import (
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
    Leaf,
    LeafKind,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Saved,
    TensorSpec,
)
from shrinkfx.worker.listing import proposals
from shrinkfx.worker.listing.describe import (
    list_saved_part,
    make_exact_spec,
    make_few_integers,
)
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
    mutates_operand,
)
from shrinkfx.worker.listing.fakes import (
    Admit,
    Place,
    StandInRunner,
    Trace,
    admit_all,
    admit_like,
    run,
    shapes_of,
)
from shrinkfx.worker.listing.indices import (
    IndexChecker,
    OutOfBoundsIndex,
    list_bounding_refills,
    require_valid_inputs,
)
from shrinkfx.worker.listing.integer_values import IntegerValues
from shrinkfx.worker.listing.proposals import (
    Knob,
    Values,
    apply_replacements,
    propose_repairs,
)

_MOST_TRIES = 120
"""Maximal number of runs for one rewrite, most of them of a few new statements."""

_MOST_REFILLS = 4

_MOST_LENGTHS = 3
"""Maximal number of sizes to try to reduce, so that indices stay in bounds."""


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
        lines = (line for block in self.listing.blocks for line in block.statements)
        self._known = None if any(mutates_operand(s) for s in lines) else self.saved
        self.fakes.trusting = True
        runs = [recipes_in(self.listing, each) for each in runs_of(self.listing)]
        self.base, *_ = (self._run(self.listing, recipes) for recipes in runs)
        self.fakes.trusting = False
        self.pointing = BoundsCheck(IndexChecker(self.saved))
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
        bounded = self._bound_indices(attempt, request) or self._reduce_lengths(
            attempt, request
        )
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
        cast = any(True for _ in proposals.iter_dtype_changes(self.listing, request))
        admit = admit_like(self.base.values, cast=cast)
        recipes = recipes_in(listing, Run.EXAMPLE)
        return Attempt(changes, listing, self._run(listing, recipes, admit))

    def _run(
        self,
        listing: PrintedProgram,
        recipes: Recipes,
        admit: Admit = admit_all,
        *,
        called_so: bool = True,
    ) -> Trace:
        """Run a program on fake tensors.

        Args:
            called_so: the program is called with exactly these inputs, so that their
                whole numbers are known.
        """
        known = self._known if called_so else None
        try:
            inputs = {}
            for each in listing.given:
                inputs[each.spelling] = self.fakes.given(recipes[each.name], known)
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
        """Repair one statement after another, until all of them run."""
        tries = _MOST_TRIES
        while attempt.trace.misfit is not None:
            better = None
            repairs = self._repairs(attempt, request)
            for repair in islice(repairs, max(0, tries)):
                tries -= 1
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
        knobs = proposals.UpstreamKnobs(self.listing, attempt.listing, request)
        near, far = knobs.around(misfit.frames)
        last = misfit.frames[-1]
        values = self.base.values, attempt.trace.values
        replaced = proposals.collect_replacements(
            self.listing, attempt.listing, request, last, values
        )
        lengths = propose_length_refills(
            attempt.listing, attempt.trace, self.saved, last, replaced.totals
        )
        places = {place_of(change) for change in request}
        fills = [refill for refill in lengths if place_of(refill) not in places]
        arithmetic = apply_replacements(knobs.list_arithmetic(), replaced.exact)
        filled = [(*extra, refill) for extra in ((), arithmetic) for refill in fills]
        return chain(propose_repairs(near, far, replaced), filled)

    def _runs_in_all(self, listing: PrintedProgram) -> bool:
        """Return whether the program runs in its other runs, and at other sizes."""
        others = [recipes_in(listing, each) for each in runs_of(listing)[1:]]
        ran = all(self._run(listing, recipes).misfit is None for recipes in others)
        return ran and all(self._roams(listing, kind) for kind in self.roams)

    def _roams(self, listing: PrintedProgram, kind: OtherSizes) -> bool:
        recipes = make_specs_at_other_sizes(listing, kind)
        return self._run(listing, recipes, called_so=False).misfit is None

    def _bound_indices(self, attempt: Attempt, request: Changes) -> Attempt | None:
        """Bound the indices that are out of bounds; None if that is impossible."""
        places = {place_of(change) for change in request}
        for _ in range(_MOST_REFILLS):
            refills = self.pointing.list_refills(attempt)
            if not refills:
                return attempt
            if None in refills or any(place_of(r) in places for r in refills if r):
                return None
            changes = merge_changes(attempt.changes, [r for r in refills if r])
            try:
                repaired = self._repair_statements(
                    self._attempt(changes, request), request
                )
            except (Contradiction, InvalidEdit):
                return None
            if repaired is None:
                return None
            attempt = repaired
        return None

    def _reduce_lengths(self, attempt: Attempt, request: Changes) -> Attempt | None:
        """Reduce the sizes that indices depend on, but no more than necessary.

        The values of a count, such as a sum of ones, follow from a size: a table with
        fewer rows needs fewer elements to count. This applies only to requested sizes.
        """
        if {Resize} != {type(change) for change in request} - {Write}:
            return None
        for knobs in islice(self._lengths(attempt, request), _MOST_LENGTHS):

            def made(size: int, knobs: Sequence[Knob] = knobs) -> Attempt | None:
                shorter = (*request, *(knob.change_to(size) for knob in knobs))
                tried = self._make_runnable(shorter)
                return tried and self._bound_indices(tried, shorter)

            if found := find_largest_attempt(int(knobs[0].now) - 1, made):
                return found
        return None

    def _lengths(self, attempt: Attempt, request: Changes) -> Iterator[list[Knob]]:
        """Yield the numbers that an index is computed from, each with all its knobs."""
        knobs = proposals.UpstreamKnobs(self.listing, attempt.listing, request)
        by_number: dict[int, list[Knob]] = {}
        places = dict.fromkeys(
            beyond.place for _, beyond in self.pointing.beyond(attempt)
        )
        for name in (name for block, name in places if block == MAIN):
            for knob in knobs.before(name):
                if isinstance(knob.now, int) and knob.now > 1:
                    by_number.setdefault(knob.now, []).append(knob)
        yield from sorted(by_number.values(), key=len, reverse=True)


@dataclass(frozen=True)
class BoundsCheck:
    """The bounds check of a printed program, and of its changed versions.

    Attributes:
        known_out_of_bounds: the run and the inputs of each index that is out of bounds
            in the unchanged program. This may be why it fails, so they may stay out of
            bounds.
    """

    indices: IndexChecker
    known_out_of_bounds: frozenset[tuple[Run, tuple[str, ...]]] = frozenset()

    def with_allowed(self, listing: PrintedProgram, trace: Trace) -> Self:
        """Allow the indices that are out of bounds in the unchanged program."""
        found = self._iter_out_of_bounds(listing, trace)
        return replace(
            self, known_out_of_bounds=frozenset((run, b.givens) for run, b in found)
        )

    def beyond(self, attempt: Attempt) -> Iterator[tuple[Run, OutOfBoundsIndex]]:
        """Yield the indices that are out of bounds and were not before."""
        for inputs, beyond in self._iter_out_of_bounds(attempt.listing, attempt.trace):
            if (inputs, beyond.givens) not in self.known_out_of_bounds:
                yield inputs, beyond

    def list_refills(self, attempt: Attempt) -> list[Refill | None]:
        """List refills that bound the indices; None for an index without a refill."""
        refills: dict[Refill | None, None] = {}
        for inputs, beyond in self.beyond(attempt):
            found = list_bounding_refills(
                attempt.listing, inputs, beyond.givens, beyond.size
            )
            refills |= dict.fromkeys(found or [None])
        return list(refills)

    def _iter_out_of_bounds(
        self, listing: PrintedProgram, trace: Trace
    ) -> Iterator[tuple[Run, OutOfBoundsIndex]]:
        for inputs in runs_of(listing):
            for beyond in self.indices.find_out_of_bounds(listing, inputs, trace):
                yield inputs, beyond


Changes = tuple[Change, ...]


@dataclass(frozen=True)
class Attempt:
    """A changed printed program, and its trace at the sizes of the example."""

    changes: Changes
    listing: PrintedProgram
    trace: Trace


def find_largest_attempt(
    most: int, attempt_at: Callable[[int], Attempt | None]
) -> Attempt | None:
    """Find the attempt with the largest number up to ``most``, by binary search.

    Returns:
        None if there is no attempt for 1.
    """
    largest = attempt_at(1) if most > 0 else None
    least = 1
    while largest and least < most:
        middle = (least + most + 1) // 2
        if larger := attempt_at(middle):
            largest, least = larger, middle
        else:
            most = middle - 1
    return largest


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


# New values for lengths, offsets and counts that eager refuses.
#
#     segment_reduce(x, lengths=[4, 9, 2])  ->  of an x of 5 rows: [4, 1, 0]
#
# A schema does not say which numbers an operator accepts. Therefore a repair tries
# some, those close to the current values first, and eager accepts or refuses them.

_MOST_TOTALS = 6
"""Maximal number of sizes to try as the sum of lengths, or the last offset."""


def propose_length_refills(
    listing: PrintedProgram,
    trace: Trace,
    saved: Mapping[str, Tensor],
    place: Place,
    totals: Sequence[int],
) -> Iterator[Refill]:
    """Yield refills for the inputs of the whole numbers that a statement reads.

    Args:
        totals: the sizes of its operands.
    """
    block, name = place
    slices = IntegerValues({}, saved, listing, Run.EXAMPLE, trace)
    statement = listing.block(block).statement(name)
    read = [n for n in sorted(statement.reads) if _is_exact(trace, (block, n))]
    names = dict.fromkeys(g for n in read for g in slices.givens((block, n)))
    for entry in map(listing.find, names):
        run = None if len(entry.recipes) == 1 else Run.EXAMPLE
        recipe = entry.recipe()
        for fill in dict.fromkeys(_fills(recipe, saved, totals)):
            if fill != recipe.fill:
                yield Refill(entry.name, fill, run)


def _is_exact(trace: Trace, place: Place) -> bool:
    value = trace.values.get(place)
    return value is not None and value.exact


def _fills(
    recipe: TensorSpec, saved: Mapping[str, Tensor], totals: Sequence[int]
) -> Iterator[Initializer]:
    """Yield initializers whose numbers add up to a total, or do not exceed it."""
    numbers = make_few_integers(recipe, saved)
    if numbers is None or not numbers.numel() or numbers.dtype is torch.bool:
        return
    limit = torch.iinfo(numbers.dtype).max
    feasible = dict.fromkeys(total for total in totals if total <= limit)
    for total in islice(feasible, _MOST_TOTALS):
        if total == numbers.numel():
            yield Constant(1)
        near = _truncate_to_total(numbers, total), numbers.clamp(max=total)
        for other in (*near, _spread(numbers, total)):
            fill = make_exact_spec(other, "").fill
            if not isinstance(fill, Saved):
                yield fill
    yield from (Constant(0), Constant(1), Counted())


def _truncate_to_total(numbers: Tensor, total: int) -> Tensor:
    """Keep the first lengths up to a total; the next length takes the rest.

    If the lengths add up to less, the last length takes the difference.
    """
    ends = numbers.clamp(min=0).flatten().cumsum(0).clamp(max=total)
    ends[-1] = total
    lengths = torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype))
    return lengths.reshape(numbers.shape).to(numbers.dtype)


def _spread(numbers: Tensor, total: int) -> Tensor:
    """Divide a total evenly, so that no length is 0 if possible."""
    count = numbers.numel()
    shares = total // count + (torch.arange(count) < total % count).long()
    return shares.reshape(numbers.shape).to(numbers.dtype)

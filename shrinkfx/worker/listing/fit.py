"""Completion of rewrites: the requested changes, and all that follow from them."""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain, combinations, islice
from typing import NamedTuple

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
from shrinkfx.program.listing.sizes import parse_linear
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Opaque,
    Saved,
    TensorSpec,
)
from shrinkfx.protocol.answers import Fitted, Typed
from shrinkfx.worker.listing.describe import (
    list_saved_part,
    make_exact_spec,
    make_few_integers,
)
from shrinkfx.worker.listing.indices import (
    IntegerValues,
    OutOfBoundsIndex,
    find_out_of_bounds,
    list_bounding_refills,
    require_valid_inputs,
)
from shrinkfx.worker.listing.stand_ins import (
    Admit,
    Misfit,
    Place,
    StandInRunner,
    Trace,
    Value,
    admit_all,
    admit_like,
    arguments_of,
    get_operator_name,
    is_index,
    mutates_operand,
    run_program,
    shapes_of,
)


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


def _fitting(fitter: Fitter, changes: Sequence[Change]) -> Changes:
    """Keep each change that fits together with those kept before."""
    accepted: Changes = ()
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
        known_out_of_bounds: the run and the inputs of each index that is out of bounds
            in the unchanged program. This may be why it fails, so they may stay out of
            bounds.
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
    known_out_of_bounds: frozenset[tuple[Run, tuple[str, ...]]] = frozenset()

    def __post_init__(self) -> None:
        lines = (line for block in self.listing.blocks for line in block.statements)
        self._known = None if any(mutates_operand(s) for s in lines) else self.saved
        self.fakes.trusting = True
        runs = [recipes_in(self.listing, each) for each in runs_of(self.listing)]
        self.base, *_ = (self._run(self.listing, recipes) for recipes in runs)
        self.fakes.trusting = False
        self._integers: dict[Hashable, Tensor | None] = {}
        self._fitted: dict[Changes, Changes | None] = {}
        try:
            self.outside = find_dims_out_of_range(self.listing)
            require_declared(self.listing, self.outside)
            beyond = self._beyond(Attempt((), self.listing, self.base))
            self.known_out_of_bounds = frozenset((r, b.givens) for r, b in beyond)
            kinds = OtherSizes if self.listing.dims else ()
            self.roams = tuple(
                kind for kind in kinds if self._roams(self.listing, kind)
            )
        except InvalidEdit:
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
        except InvalidEdit:
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
            with contextlib.suppress(InvalidEdit):
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
        return run_program(self.fakes, listing, inputs, admit)

    def _renumber_dims(self, attempt: Attempt, request: Changes) -> Attempt:
        """Renumber dims in statements, if the rewrite squeezes an input."""
        if not any(isinstance(change, Squeeze) for change in request):
            return attempt
        for line in self.listing.main.statements:
            writes = renumber_dims(line, self.base.values, attempt.trace.values)
            with contextlib.suppress(InvalidEdit):
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
                except InvalidEdit:
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
        near, far = knobs.around(misfit.frames)
        last = misfit.frames[-1]
        values = self.base.values, attempt.trace.values
        replaced = collect_replacements(
            self.listing, attempt.listing, request, last, values
        )
        lengths = propose_length_refills(
            attempt.listing, attempt.trace, self.saved, last, replaced.totals
        )
        places = {change.place for change in request}
        fills = [refill for refill in lengths if refill.place not in places]
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
        places = {change.place for change in request}
        for _ in range(_MOST_REFILLS):
            refills = self._list_bounding_refills(attempt)
            if not refills:
                return attempt
            if None in refills or any(r.place in places for r in refills if r):
                return None
            changes = merge_changes(attempt.changes, [r for r in refills if r])
            try:
                repaired = self._repair_statements(
                    self._attempt(changes, request), request
                )
            except InvalidEdit:
                return None
            if repaired is None:
                return None
            attempt = repaired
        return None

    def _beyond(self, attempt: Attempt) -> Iterator[tuple[Run, OutOfBoundsIndex]]:
        """Yield the indices that are out of bounds and were not before."""
        listing, trace = attempt.listing, attempt.trace
        for inputs in runs_of(listing):
            known = self._integers, self.saved, listing, inputs, trace
            for beyond in find_out_of_bounds(IntegerValues(*known), listing, trace):
                if (inputs, beyond.givens) not in self.known_out_of_bounds:
                    yield inputs, beyond

    def _list_bounding_refills(self, attempt: Attempt) -> list[Refill | None]:
        """List refills that bound the indices; None for an index without a refill."""
        refills: dict[Refill | None, None] = {}
        for inputs, beyond in self._beyond(attempt):
            found = list_bounding_refills(
                attempt.listing, inputs, beyond.givens, beyond.size
            )
            refills |= dict.fromkeys(found or [None])
        return list(refills)

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
        knobs = UpstreamKnobs(self.listing, attempt.listing, request)
        by_number: dict[int, list[Knob]] = {}
        places = dict.fromkeys(beyond.place for _, beyond in self._beyond(attempt))
        for name in (name for block, name in places if block == MAIN):
            for knob in knobs.before(name):
                if isinstance(knob.now, int) and knob.now > 1:
                    by_number.setdefault(knob.now, []).append(knob)
        yield from sorted(by_number.values(), key=len, reverse=True)


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
    by_place = {change.place: change for change in changes}
    by_place |= {change.place: change for change in more}
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


# x: (2, 12, 32) -> (2, 4, 32)        x.view([24, 32])  ->  x.view([8, 32])
#
# A number that equals a replaced size becomes the new size; multiples and divisors
# are scaled alike; one number of a shape may be computed from the others.

_MOST_NEAR = 40
_MOST_FAR = 60
_MOST_EACH = 8
"""Maximal number of repairs: of the statement, of all before it, of each of these."""

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
    near: Sequence[Knob], far: Sequence[Sequence[Knob]], replaced: Replacements
) -> Iterator[Changes]:
    """Yield repairs, each once.

    Args:
        near: knobs of the invalid statement.
        far: knobs of each earlier statement, the nearest first.
    """
    before = [knob for knobs in far for knob in knobs]
    chain = [
        islice(_near(near, replaced), _MOST_NEAR),
        iter(
            [
                apply_replacements(before, replaced.exact),
                apply_replacements([*near, *before], replaced.exact),
            ]
        ),
        islice(_far(far, replaced), _MOST_FAR),
        islice(_guesses(near, replaced), _MOST_NEAR),
    ]
    seen: set[Changes] = {()}
    for repair in (repair for part in chain for repair in part):
        if repair not in seen:
            seen.add(repair)
            yield repair


def _near(knobs: Sequence[Knob], replaced: Replacements) -> Iterator[Changes]:
    yield apply_replacements(knobs, replaced.exact)
    singles = list(_singles(knobs, replaced.sizes))
    yield from ((change,) for _, change in singles)
    yield _all_following(knobs, replaced.sizes)
    shape = [k for k in knobs if k.argument in _SHAPES and isinstance(k.now, int)]
    yield from _left_over(shape, replaced.totals)
    for (one, first), (other, second) in combinations(singles, 2):
        if one is not other:
            yield first, second


def _far(groups: Sequence[Sequence[Knob]], replaced: Replacements) -> Iterator[Changes]:
    for knobs in groups:
        yield apply_replacements(knobs, replaced.exact)
        singles = ((change,) for _, change in _singles(knobs, replaced.sizes))
        yield from islice(singles, _MOST_EACH)
        yield _all_following(knobs, replaced.sizes)


def _guesses(knobs: Sequence[Knob], replaced: Replacements) -> Iterator[Changes]:
    """Try 1, the new sizes, the last valid indices, and 0."""
    ends = {n for _, new in replaced.sizes for n in (new, new - 1) if n > 0}
    for knob in knobs:
        if isinstance(knob.now, int):
            for number in [1, *sorted(ends, reverse=True), 0]:
                if number < abs(knob.now):
                    yield (knob.change_to(number),)


def _singles(
    knobs: Iterable[Knob], pairs: Sequence[Pair]
) -> Iterator[tuple[Knob, Change]]:
    numbers = [knob for knob in knobs if isinstance(knob.now, int)]
    for old, new in pairs:
        for knob in numbers:
            if knob.now == old != new:
                yield knob, knob.change_to(new)
    for knob in numbers:
        for number in scale_number(int(knob.now), pairs):
            yield knob, knob.change_to(number)


def _all_following(knobs: Iterable[Knob], pairs: Sequence[Pair]) -> Changes:
    turned = []
    for knob in knobs:
        if isinstance(knob.now, int):
            turned += [
                knob.change_to(n) for n in islice(scale_number(knob.now, pairs), 1)
            ]
    return tuple(turned)


def _left_over(shape: Sequence[Knob], totals: Sequence[int]) -> Iterator[Changes]:
    """Compute one number of a shape from the others, or set all but one to 1."""
    now = [int(knob.now) for knob in shape]
    for total in totals:
        for place, knob in enumerate(shape):
            rest = math.prod(now[:place] + now[place + 1 :])
            if rest > 0 and total % rest == 0 and total // rest != knob.now:
                yield (knob.change_to(total // rest),)
    ones = tuple(knob.change_to(1) for knob in shape[:-1] if knob.now != 1)
    yield from _solve_with_one(shape, now, totals)
    if len(shape) > 2:  # e.g. a prime total for [2, 4, 4]
        yield from ((*ones, shape[-1].change_to(total)) for total in totals)
    for total in totals:
        if shape and (last := total - len(shape) + 1) > 0:
            yield (*ones, shape[-1].change_to(last))


def _solve_with_one(
    shape: Sequence[Knob], now: Sequence[int], totals: Sequence[int]
) -> Iterator[Changes]:
    """Set one number of a shape to 1, and compute another.

    Numbers that are sizes of an operand are changed last.
    """
    pairs = ((i, j) for i in range(len(now)) for j in range(len(now)) if i != j)
    by_stay = sorted(pairs, key=lambda p: (now[p[0]] in totals) + (now[p[1]] in totals))
    for total in totals:
        for one, place in by_stay:
            rest = math.prod(n for i, n in enumerate(now) if i not in (one, place))
            if rest > 0 and total % rest == 0:
                yield shape[one].change_to(1), shape[place].change_to(total // rest)


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
    block: str, statement: Statement, requested: Set[tuple[object, ...]]
) -> Iterator[Knob]:
    """Yield the knobs of a statement, without leaves that the rewrite itself sets."""
    fixed: set[int | None] = set()
    for leaf in statement.leaves:
        write = Write(block, statement.name, leaf.number, leaf.text)
        if write.place in requested or leaf.parent in fixed:
            fixed.add(leaf.number)
        elif (value := _number_or_dtype(leaf, statement)) is not None:
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
        places = {(Resize, entry.name, dim, run) for run in (None, *Run)}
        if dim not in dict(entry.open_dims) and not places & requested:
            yield Knob(Resize(entry.name, dim, size), size)
    if (Cast, entry.name) not in requested:
        yield Knob(Cast(entry.name, recipe.dtype), f"torch.{recipe.dtype}")


Pair = tuple[int, int]
"""An old number and the new one."""


def apply_replacements(
    knobs: Iterable[Knob], replaced: Mapping[int | str, int | str]
) -> Changes:
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
        self._places = {change.place for change in request}

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
        read = {n for b, s in frames if b == MAIN for n in self._reads(b, s)}
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
        found = self._was.block(block).find(name)
        if found is None or not found.yields:
            return []
        return list(list_statement_knobs(block, found, self._places))

    def _before(self, block: Block, name: str) -> Iterator[Place]:
        """Yield the statements that a statement depends on, also indirectly."""
        reads = self._reads(block.name, name)
        for statement in reversed(block.statements):
            if statement.name == name:
                yield from self._within(block, statement)
            elif statement.name in reads:
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
        now = self._now.block(block)
        line = next(line for line in reversed(now.statements) if line.name == name)
        return {*line.reads, *now.upstream_of(name)}


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
    for read in sorted(now.block(block).statement(name).reads):
        old, new = (mapping.get((block, read)) for mapping in values)
        if new is not None:
            for shape in shapes_of(new):
                totals += [math.prod(shape), *shape]
        if old is not None and new is not None:
            for before, after in zip(shapes_of(old), shapes_of(new), strict=False):
                if len(before) == len(after):
                    pairs += zip(before, after, strict=True)
                pairs.append((math.prod(before), math.prod(after)))
        if old is not None and new is not None and old.exact and new.exact:
            pairs += zip(_sums(old), _sums(new), strict=False)
    sizes = tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    dtypes = tuple(dict.fromkeys(iter_dtype_changes(was, request)))
    return Replacements(sizes, dtypes, tuple(dict.fromkeys(totals)))


def _sums(value: Value) -> list[int]:
    """Add up whole numbers, because a size may be the sum of lengths."""
    return [int(tensor.sum()) for tensor in value.tensors()]


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
    statement = was.block(change.block).find(change.statement)
    leaves = statement.leaves if statement else ()
    return leaves[change.leaf] if change.leaf < len(leaves) else None


Recipes = Mapping[str, TensorSpec]
"""Tensor specs, by the name of the input or weight."""


def runs_of(listing: PrintedProgram) -> list[Run]:
    """List the runs that the program must work in, the example first."""
    used = {run for entry in listing.given for run, _ in entry.recipes}
    return [run for run in Run if run in used or run is Run.EXAMPLE]


def recipes_in(listing: PrintedProgram, run: Run) -> Recipes:
    return {entry.name: entry.recipe(run) for entry in listing.given}


Outside = frozenset[tuple[Run, str]]
"""Dims that are out of their declared range in a run.

This may be why the program fails.
"""


def find_dims_out_of_range(listing: PrintedProgram) -> Outside:
    """Return the dims that are out of their declared range, with the run."""
    found = set()
    for run in runs_of(listing):
        sizes = compute_dim_sizes(listing, run)
        for dim in listing.dims:
            if not dim.holds(sizes.get(dim.name, dim.low)):
                found.add((run, dim.name))
    return frozenset(found)


def require_declared(listing: PrintedProgram, outside: Outside = frozenset()) -> None:
    """Check that dims are in range in all runs, and that static sizes are equal.

    Args:
        outside: dims that were out of range before, and may stay so.

    Raises:
        InvalidEdit: a dim is out of range, static sizes differ between runs, or
            export would refuse a declaration.
    """
    for dim in listing.dims:
        if dim.high is not None and not dim.low < dim.high:  # export refuses others
            raise InvalidEdit(f"{dim.name} has the range {dim.low} to {dim.high}")
    for entry in listing.given:
        _require_static(entry)
    for each in _declared(listing):
        if each.entry.recipe().shape[each.dim] < 2:
            raise InvalidEdit(f"export takes {each.name} for static")
    if more := sorted(find_dims_out_of_range(listing) - outside):
        run, name = more[0]
        size = compute_dim_sizes(listing, run)[name]
        raise InvalidEdit(f"{name} is {size} in the {run} run")


def _require_static(entry: InputOrWeight) -> None:
    dynamic = dict(entry.open_dims)
    shapes = set()
    for _, recipe in entry.recipes:
        if isinstance(recipe.fill, Opaque):
            return
        pairs = enumerate(recipe.shape)
        shapes.add(tuple(-1 if dim in dynamic else size for dim, size in pairs))
    if len(shapes) > 1:
        raise InvalidEdit(f"{entry.name} has other static sizes in other runs")


def compute_dim_sizes(listing: PrintedProgram, run: Run) -> dict[str, int]:
    """Compute the size of each declared dim in a run.

    Raises:
        InvalidEdit: a size does not fit its declaration, or two inputs imply
            different sizes of one dim.
    """
    sizes: dict[str, int] = {}
    for each in _declared(listing):
        size = each.solve(each.entry.recipe(run).shape[each.dim])
        if sizes.setdefault(each.name, size) != size:
            raise InvalidEdit(f"{each.name} is {size} for {each.entry.name} only")
    return sizes


class _Declared(NamedTuple):
    """A dim whose declaration is linear in one named dim."""

    entry: InputOrWeight
    dim: int
    name: str
    start: int
    step: int

    def at(self, size: int) -> int:
        """Return the size of the dim where the named dim has a size."""
        return self.start + self.step * size

    def solve(self, size: int) -> int:
        """Return the size of the named dim where this dim has a size.

        Raises:
            InvalidEdit: there is none.
        """
        if (size - self.start) % self.step:
            raise InvalidEdit(f"{self.entry.name} has the size {size} for {self.name}")
        return (size - self.start) // self.step


def _declared(listing: PrintedProgram) -> Iterator[_Declared]:
    """Yield the dims whose declaration reads exactly one named dim."""
    known = {dim.name for dim in listing.dims}
    for entry in listing.given:
        if isinstance(entry.recipe().fill, Opaque):
            continue
        for dim, how in entry.open_dims:
            linear = parse_linear(how)
            if linear and linear[0] in known:
                yield _Declared(entry, dim, *linear)


def propagate_resizes(listing: PrintedProgram, changes: Sequence[Change]) -> Changes:
    """Add resizes of all inputs that share a named dim with a resized input.

    Raises:
        InvalidEdit: the named dim cannot give the new size.
    """
    resizes = [change for change in changes if isinstance(change, Resize)]
    requested = {(change.name, change.dim) for change in resizes}
    more: list[Change] = []
    declared = list(_declared(listing))
    for change in resizes:
        for one in declared:
            if (one.entry.name, one.dim) != (change.name, change.dim):
                continue
            size = one.solve(change.size)
            more += [
                Resize(other.entry.name, other.dim, other.at(size), change.run)
                for other in declared
                if other.name == one.name
                and (other.entry.name, other.dim) not in requested
            ]
    return (*changes, *dict.fromkeys(more))


class OtherSizes(Enum):
    """Other sizes within the declared ranges.

    A program with the size of a dynamic dim hard-coded does not run at these sizes.
    """

    DISTINCT = "each dim larger, by its own number"
    ALIKE = "all dims larger by one"
    LEAST = "all dims as small as can be"


def make_specs_at_other_sizes(listing: PrintedProgram, kind: OtherSizes) -> Recipes:
    """Return tensor specs at other sizes of the declared ranges, with any values."""
    sizes_now = compute_dim_sizes(listing, Run.EXAMPLE)
    sizes = {}
    for place, dim in enumerate(dim for dim in listing.dims if dim.name in sizes_now):
        more = 1 + 2 * place if kind is OtherSizes.DISTINCT else 1
        size = 2 if kind is OtherSizes.LEAST else sizes_now[dim.name] + more
        size = max(size, dim.low)
        sizes[dim.name] = size if dim.high is None else min(size, dim.high)
    specs = dict(recipes_in(listing, Run.EXAMPLE))
    for each in _declared(listing):
        # Saved values cannot grow, and the values do not matter here.
        spec = replace(specs[each.entry.name], fill=Constant(0))
        specs[each.entry.name] = spec.resized(each.dim, each.at(sizes[each.name]))
    return specs

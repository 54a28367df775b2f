"""A rewrite made to fit: what it asks for, and all that follows from that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from torch import Tensor

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.changes import (
    Change,
    Refill,
    changed,
    place_of,
)
from shrinkfx.program.listing.listing import Listing, Run
from shrinkfx.program.listing.recipes import Opaque
from shrinkfx.worker.listing import upstream
from shrinkfx.worker.listing.dims import (
    Contradiction,
    Outside,
    Recipes,
    Way,
    elsewhere,
    followed,
    outside_of,
    recipes_in,
    require_declared,
    runs_of,
)
from shrinkfx.worker.listing.fakes import Fakes
from shrinkfx.worker.listing.indices import Indices, bounded, require_made
from shrinkfx.worker.listing.proposals import proposals
from shrinkfx.worker.listing.scope import Misfit
from shrinkfx.worker.listing.stepwise import Admit, Trace, admit_all, admit_like, run

_MOST_TRIES = 120
"""Runs of a listing for one rewrite, most of them of a few new statements."""

_MOST_REFILLS = 4

_FIXED = ("parameter", "constant")
"""Kinds of weights that no program that is exported writes."""

Changes = tuple[Change, ...]


@dataclass(frozen=True)
class Attempt:
    """A listing with changes, run at the sizes of its example."""

    changes: Changes
    listing: Listing
    trace: Trace


@dataclass
class Fitter:
    """Makes rewrites of one listing fit.

    Attributes:
        saved: values by the keys of recipes.
        base: what its values are as it is.
        outside: dims that are in a run what they are not declared to be.
        astray: what indices are made of that point outside in a run. Both may be why
            it fails: they may stay so.
        roams: at which other sizes of its dynamic dims it runs as well: so must what
            is made of it. Where it does not, more is asked of those than is declared.
    """

    listing: Listing
    saved: Mapping[str, Tensor]
    fakes: Fakes = field(default_factory=Fakes)
    base: Trace = field(init=False)
    roams: tuple[Way, ...] = field(init=False)
    outside: Outside = frozenset()
    astray: frozenset[tuple[Run, tuple[str, ...]]] = frozenset()

    def __post_init__(self) -> None:
        self.fakes.trusting = True
        self.base = self._run(self.listing, recipes_in(self.listing, Run.EXAMPLE))
        self.fakes.trusting = False
        self._indices = Indices(self.saved)
        self._fitted: dict[Changes, Changes | None] = {}
        try:
            self.outside = outside_of(self.listing)
            require_declared(self.listing, self.outside)
            self.astray = frozenset(
                (each, beyond.givens)
                for each in runs_of(self.listing)
                for beyond in self._indices.beyond(self.listing, each, self.base)
            )
            self.roams = tuple(way for way in Way if self._roams(self.listing, way))
        except Contradiction:
            self.roams = ()

    def fit(self, asked: Sequence[Change]) -> Changes | None:
        """Add what follows from changes; None where that makes no valid program."""
        if self.base.misfit is not None:
            return None
        key = tuple(asked)
        if key not in self._fitted:
            self._fitted[key] = self._fit(key)
        return self._fitted[key]

    def _fit(self, asked: Changes) -> Changes | None:
        try:
            changes = followed(self.listing, asked)
            attempt = self._repaired(self._attempt(changes, asked), asked)
            if attempt is None or not self._runs_in_all(attempt.listing):
                return None
            attempt = self._inside(attempt, asked)
        except (Contradiction, InvalidEdit):
            return None
        return None if attempt is None else in_order(attempt.changes)

    def _attempt(self, changes: Changes, asked: Changes) -> Attempt:
        listing = changed(self.listing, changes)
        require_declared(listing, self.outside)
        self._require_made(listing)
        cast = any(True for _ in upstream.dtypes_moved(self.listing, asked))
        admit = admit_like(self.base.values, cast=cast)
        recipes = recipes_in(listing, Run.EXAMPLE)
        return Attempt(changes, listing, self._run(listing, recipes, admit))

    def _require_made(self, listing: Listing) -> None:
        """See that what is given otherwise can be made, and has not become empty."""
        written = {line.callee for line in listing.main.statements}
        for given in listing.given:
            if given.kind in _FIXED and f"{given.spelling}.copy_" in written:
                raise InvalidEdit(f"{given.name} is written")
            old = dict(self.listing.find(given.name).recipes)
            for each, recipe in given.recipes:
                if isinstance(recipe.fill, Opaque) or recipe == old.get(each):
                    continue
                if 0 in recipe.shape and 0 not in old[each].shape:
                    raise InvalidEdit(f"{given.name} would be empty")
                require_made(recipe, self.saved)

    def _run(
        self, listing: Listing, recipes: Recipes, admit: Admit = admit_all
    ) -> Trace:
        try:
            given = {}
            for each in listing.given:
                given[each.spelling] = self.fakes.given(recipes[each.name])
        except Misfit as misfit:
            return Trace(misfit=misfit)
        return run(self.fakes, listing, given, admit)

    def _repaired(self, attempt: Attempt, asked: Changes) -> Attempt | None:
        """Repair statement after statement, until all of them run."""
        tries = _MOST_TRIES
        while attempt.trace.misfit is not None:
            better = None
            repairs = self._repairs(attempt, asked)
            for repair in islice(repairs, max(0, tries)):
                tries -= 1
                try:
                    tried = self._attempt(_merged(attempt.changes, repair), asked)
                except (InvalidEdit, Contradiction):
                    continue
                if tried.trace.is_further_than(attempt.trace):
                    better = tried
                    break
            if better is None:
                return None
            attempt = better
        return attempt

    def _repairs(self, attempt: Attempt, asked: Changes) -> Iterator[Changes]:
        misfit = attempt.trace.misfit
        if misfit is None or not misfit.frames:
            return iter(())  # what is given is none: nothing follows from that
        knobs = upstream.Knobs(self.listing, attempt.listing, asked)
        near, far = knobs.around(misfit.frames)
        last = misfit.frames[-1]
        values = self.base.values, attempt.trace.values
        moved = upstream.moved(self.listing, attempt.listing, asked, last, values)
        return proposals(near, far, moved)

    def _runs_in_all(self, listing: Listing) -> bool:
        """Tell whether it runs in its other runs, and elsewhere in declared ranges."""
        others = [recipes_in(listing, each) for each in runs_of(listing)[1:]]
        ran = all(self._run(listing, sizes).misfit is None for sizes in others)
        return ran and all(self._roams(listing, way) for way in self.roams)

    def _roams(self, listing: Listing, way: Way) -> bool:
        return self._run(listing, elsewhere(listing, way)).misfit is None

    def _inside(self, attempt: Attempt, asked: Changes) -> Attempt | None:
        """Have all indices point inside; None where they cannot be made to."""
        places = {place_of(change) for change in asked}
        for _ in range(_MOST_REFILLS):
            refills = self._refills(attempt)
            if not refills:
                return attempt
            if None in refills or any(place_of(r) in places for r in refills if r):
                return None
            changes = _merged(attempt.changes, [r for r in refills if r])
            attempt = self._attempt(changes, asked)
            if attempt.trace.misfit is not None:
                return None
        return None

    def _refills(self, attempt: Attempt) -> list[Refill | None]:
        """List what bounds the indices that point outside; None where nothing does."""
        refills: dict[Refill | None, None] = {}
        for each in runs_of(attempt.listing):
            for beyond in self._indices.beyond(attempt.listing, each, attempt.trace):
                if (each, beyond.givens) in self.astray:
                    continue
                found = _bounding(attempt.listing, each, beyond.givens, beyond.size)
                refills |= dict.fromkeys(found or [None])
        return list(refills)


def _bounding(
    listing: Listing, each: Run, names: Iterable[str], size: int
) -> list[Refill | None]:
    found: list[Refill | None] = []
    for name in names:
        given = listing.find(name)
        fill = bounded(given.recipe(each), size)
        if fill is None or fill == given.recipe(each).fill:
            continue
        own = each if each in dict(given.recipes) else Run.EXAMPLE
        alone = len(given.recipes) == 1
        found.append(Refill(name, fill, None if alone else own))
    return found


def _merged(changes: Iterable[Change], more: Iterable[Change]) -> Changes:
    """Add changes; a later one takes the place of an earlier one."""
    by_place = {place_of(change): change for change in changes}
    by_place |= {place_of(change): change for change in more}
    return tuple(by_place.values())


def in_order(changes: Iterable[Change]) -> Changes:
    """Put changes into the order of their normal form, each once."""
    return tuple(sorted(set(changes), key=lambda c: (type(c).__name__, str(c))))

"""Searches of listings with planted conditions, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, apply_changes
from shrinkfx.program.listing.printed_program import (
    UNTYPED,
    InputOrWeight,
    PrintedProgram,
    Run,
    Types,
)
from shrinkfx.program.listing.tensor_specs import Seeded, TensorSpec
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker
from shrinkfx.search.fitting import Fitter
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle
from support.listings import listed

Says = Callable[[PrintedProgram], bool]

SIZES = ("minimize_sizes", "shrink_sizes")
ALL = (
    *("make_dims_static", "simplify_weights", "simplify_values"),
    *("simplify_dtypes", "simplify_layouts", *SIZES),
)
"""The strategies for what a program is given, in the order of a search."""


def always(program: PrintedProgram) -> bool:
    return True


@dataclass(frozen=True)
class Fits:
    """A fitter to whom all is a program of which something holds; nothing follows."""

    holds: Says = always

    def types(self, candidate: Candidate) -> Types:
        return UNTYPED

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> list[Rewrite | None]:
        assert candidate.listing is not None
        return [self._fitted(candidate.listing, rewrite) for rewrite in rewrites]

    def ahead(self) -> Fits:
        return self

    def _fitted(self, program: PrintedProgram, rewrite: Rewrite) -> Rewrite | None:
        if self._is_program(program, rewrite.changes):
            return replace(rewrite, partly=False)
        if not rewrite.partly:
            return None
        kept: tuple[Change, ...] = ()
        for change in rewrite.changes:
            if self._is_program(program, (*kept, change)):
                kept = (*kept, change)
        return Rewrite(kept) if kept else None

    def _is_program(self, program: PrintedProgram, changes: Sequence[Change]) -> bool:
        try:
            return self.holds(apply_changes(program, changes))
        except InvalidEdit:
            return False


def reduced(
    program: PrintedProgram,
    fails: Says,
    names: Sequence[str] = ALL,
    fits: Says = always,
    fitter: Fitter | None = None,
) -> tuple[PrintedProgram, int]:
    """Search with some strategies; tell what is left, and after how many questions.

    Args:
        fitter: one that knows types; else what ``fits`` says is all that is known.
    """

    def answer(candidate: Candidate) -> bool:
        assert candidate.listing is not None
        assert fits(candidate.listing), "what does not fit was asked about"
        assert candidate.listing == candidate.listing.normalised()
        return fails(candidate.listing)

    oracle = FakeOracle(answer)
    asker = Asker(oracle)
    fitter = fitter or Fits(fits)
    best = Reducer(listed(program), asker, choose(names), fitter=fitter).run()
    assert best.listing is not None
    assert best.listing == program.normalised() or fails(best.listing)
    assert best.listing.cost <= program.normalised().cost
    return best.listing, len(oracle.asked)


def view(program: PrintedProgram) -> View:
    return View(listed(program))


def drawn(*shape: int, dtype: str = "float32") -> TensorSpec:
    """A recipe from a seed."""
    return TensorSpec(shape, dtype, Seeded("randn"))


def called(
    name: str, recipe: TensorSpec, dims: dict[int, str], **runs: TensorSpec
) -> InputOrWeight:
    """Make an input that has dynamic dims, and other values in other runs."""
    others = ((Run(run), made) for run, made in runs.items())
    recipes = ((Run.EXAMPLE, recipe), *others)
    return InputOrWeight(name, "input", recipes, tuple(dims.items()))


def shape(
    program: PrintedProgram, name: str, run: Run = Run.EXAMPLE
) -> tuple[int, ...]:
    return program.find(name).recipe(run).shape

"""Check that a program that was made smaller still fails for the same reason.

Small sizes are compiled to other code, which may hide one failure and bring another
(``docs/rooms/run.md``). A setting of Inductor disables each of these decisions. If one
of two programs passes with the setting and the other fails, there are two reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shrinkfx.check.oracle import make_oracle
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.listing import Run
from shrinkfx.program.listing.recipes import Recipe
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.run.context import RunContext
from shrinkfx.run.reduction import SearchResult
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation

_INLINED = 8
"""Elements up to which Inductor writes a 1-D weight into the kernel
(``torch/_inductor/graph.py``: ``get_attr``)."""

_VECTORISED = (4, 16)
"""Elements of float32 from which on a loop is vectorised, and fills a vector of AVX-512
(``torch/_inductor/codegen/cpp.py``: ``select_tiling``)."""


def restore_cause(context: RunContext, subject: Subject, listed: SearchResult) -> None:
    """Go back to a step that fails for the reason of the first, and continue there.

    Compiles the first step and the last one with the settings of the limits that a size
    has crossed. If both pass with two settings, tests each setting alone.

    Raises:
        BudgetExhausted: minutes are short.
    """
    search, target = listed.search, subject.target
    first, best = search.reducer.history[0], search.reducer.best
    compared = target.stage in (Stage.RUN, Stage.COMPARE) and target.is_vague
    if not compared or subject.rate < 1.0 or subject.command:
        return
    settings = dict(_settings_to_test(first, best))
    if not settings:
        return
    alone = [{name: value} for name, value in settings.items()]
    for tested in [settings, *(alone if len(alone) > 1 else [])]:
        judge = _Judge(_asker(context, subject, search.reducer.asker, tested), context)
        before, after = (judge.verdict(each).outcome for each in (first, best))
        if before is after is Outcome.REPRODUCED:
            return
        if {before, after} == {Outcome.REPRODUCED, Outcome.PASSED}:
            said = ", ".join(f"{name}={value}" for name, value in tested.items())
            did = _DOES[before], _DOES[after]
            context.note(_ANOTHER.format(said, *did, best.digest[:12]))
            wanted = _SameOutcome(judge, before, search.reducer.asker)
            reason = "it seems to fail for another reason"
            if search.confirm(Confirmation(_NAME, Asker(wanted), reason)):
                search.run_on()
            return


_NAME = "same cause"
_ANOTHER = (
    "the smaller program seems to fail for another reason: with {}, the program {} "
    "before its sizes became smaller, and {} after (--candidate {}); continuing from a "
    "step that behaves as before"
)
_DOES = {Outcome.REPRODUCED: "still failed", Outcome.PASSED: "passed"}


def _settings_to_test(
    first: Candidate, best: Candidate
) -> Iterator[tuple[str, bool | int]]:
    """List the settings that disable decisions which changed with the sizes."""
    if first.listing is None or best.listing is None:
        return
    after = {each.name: each.recipe(Run.FAILING) for each in best.listing.given}
    both = [each for each in first.listing.given if each.name in after]
    pairs = [(each, each.recipe(Run.FAILING), after[each.name]) for each in both]
    if any(
        not each.is_input
        and len(old.shape) == 1
        and old.elements > _INLINED >= new.elements
        for each, old, new in pairs
    ):
        yield "always_keep_tensor_constants", True
    if any(old.device == "cpu" and _crosses(old, new) for _, old, new in pairs):
        yield "cpp.simdlen", 1


def _crosses(old: Recipe, new: Recipe) -> bool:
    """Tell whether a size fell below one of the limits of vectorised code."""
    sizes = [(old.elements, new.elements)]
    if len(old.shape) == len(new.shape):
        sizes += zip(old.shape, new.shape, strict=True)
    return any(was >= limit > now for was, now in sizes for limit in _VECTORISED)


@dataclass(frozen=True)
class _Judge:
    """Tests candidates with other settings.

    Attributes:
        asker: answers; none twice, in a resumed run either.
    """

    asker: Asker
    context: RunContext

    def verdict(self, candidate: Candidate) -> Verdict:
        """Fetch what a candidate does with these settings.

        Raises:
            BudgetExhausted: minutes are short.
        """
        known = self.asker.known(candidate)
        budget = self.context.budget
        if known is None and not budget.has(budget.pace_s):
            raise BudgetExhausted("minutes are short")
        return self.asker.ask(_NAME, candidate)


@dataclass(frozen=True)
class _SameOutcome:
    """Accepts candidates that fail, and whose outcome with the settings is wanted.

    Attributes:
        fails: answers whether a candidate fails without the settings.
    """

    judge: _Judge
    wanted: Outcome
    fails: Asker

    def check(self, candidate: Candidate) -> Verdict:
        if not self.fails.has_reproduced(candidate):
            return Verdict(Outcome.PASSED)
        verdict = self.judge.verdict(candidate)
        alike = verdict.outcome is self.wanted
        outcome = Outcome.REPRODUCED if alike else Outcome.DIFFERENT
        return replace(verdict, outcome=outcome)


def _asker(
    context: RunContext, subject: Subject, like: Asker, settings: InductorOptions
) -> Asker:
    """Make an asker that tests the candidates of another one with more settings."""
    # The time limit follows the answers of the search, and not these.
    client = replace(subject.client, patience=None)
    client = client.with_options(inductor={**client.options.inductor, **settings})
    return Asker(
        make_oracle(client, subject.target, subject.rate),
        journal=context.journal,
        form=like.form,
        build=f"{like.build}, {dict(settings)}",
        again=True,
    )

"""Whether what has become smaller still fails by the same cause.

Inductor generates other code for small sizes: a 1-D weight of at most 8 elements
becomes constants in the kernel, and a short loop is not vectorised. So smaller sizes
can hide one failure and bring another that looks like it.

Each of these is a decision that a setting takes away. A program and a smaller one that
fail by one cause do the same without it: if one passes and the other fails, there are
two causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shrinkfx.check.oracle import make_oracle
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.listing import Listing, Run
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.run.context import RunContext
from shrinkfx.run.reduction import SearchResult
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation

_INLINED = 8
"""Elements up to which Inductor writes a 1-D weight into the kernel
(``torch/_inductor/graph.py``: ``get_attr``)."""

_VECTOR = 16
"""Elements of the widest vector, of AVX-512: what has fewer is computed one by one."""


def keep_cause(context: RunContext, subject: Subject, listed: SearchResult) -> None:
    """Go back to a step that fails by the cause of the first, and on from there.

    Asks two questions about the first step and the last, if sizes became so small that
    other code is generated for them, and more only if the answers differ.

    Raises:
        BudgetExhausted: minutes are short.
    """
    search, target = listed.search, subject.target
    first, best = search.history[0], search.reducer.best
    compared = target.stage in (Stage.RUN, Stage.COMPARE) and target.is_vague
    if not compared or subject.rate < 1.0 or subject.command:
        return
    settings = dict(_decided_otherwise(first, best))
    if subject.client.options.probe is not None:  # no C++ is generated
        settings.pop("cpp.simdlen", None)
    alone = [{name: value} for name, value in settings.items()]
    for asked in [settings, *(alone if len(alone) > 1 else [])]:
        if not asked or not context.budget.has(2 * context.budget.pace_s):
            return
        judge = _judge(context, subject, search.reducer.asker, asked)
        before, after = (judge.verdict(each).outcome for each in (first, best))
        if before is after is Outcome.REPRODUCED:
            return
        if {before, after} == {Outcome.REPRODUCED, Outcome.PASSED}:
            said = ", ".join(f"{name}={value}" for name, value in asked.items())
            context.note(_ANOTHER.format(said, _DOES[before], _DOES[after]))
            _go_back(listed, judge, before)
            return


_ANOTHER = (
    "with smaller sizes it fails by another cause: with {} the larger program {}, and "
    "the smaller one {}; going on from a step that does as the larger one"
)
_DOES = {Outcome.REPRODUCED: "still fails", Outcome.PASSED: "passes"}


def _go_back(listed: SearchResult, judge: _Judge, before: Outcome) -> None:
    """Take the failure of another cause for by-catch, and go on without it."""
    reducer = listed.search.reducer
    other = reducer.best, reducer.asker.known(reducer.best)
    if listed.search.confirm(judge.confirmation(before)):
        if other[1] is not None:
            found = Verdict(Outcome.DIFFERENT, other[1].observation)
            reducer.asker.by_catch.append((other[0], found))
        listed.search.run_on()


def _decided_otherwise(
    first: Candidate, best: Candidate
) -> Iterator[tuple[str, bool | int]]:
    """Find the settings that take decisions away which sizes have changed."""
    if first.listing is None or best.listing is None:
        return
    before, after = dict(_spans(first.listing)), dict(_spans(best.listing))
    shared = [(before[name], after[name]) for name in before.keys() & after.keys()]
    if any(was > _INLINED >= now for (flat, was), (_, now) in shared if flat):
        yield "always_keep_tensor_constants", True
    if any(was >= _VECTOR > now for (_, was), (_, now) in shared):
        yield "cpp.simdlen", 1


def _spans(listing: Listing) -> Iterator[tuple[str, tuple[bool, int]]]:
    """Tell of each input and weight whether it is a 1-D weight, and its elements."""
    for each in listing.given:
        recipe = each.recipe(Run.FAILING)
        flat = not each.is_input and len(recipe.shape) == 1
        yield each.name, (flat, recipe.elements)


@dataclass(frozen=True)
class _Judge:
    """Asks with other settings what a candidate does.

    Attributes:
        asker: answers; none twice, in a resumed run either.
    """

    asker: Asker
    journal: Journal

    def verdict(self, candidate: Candidate) -> Verdict:
        return self.asker.ask(_NAME, candidate)

    def confirmation(self, wanted: Outcome) -> Confirmation:
        """Confirm what does as the first step does."""
        asker = Asker(
            _Alike(self, wanted),
            journal=self.journal,
            form=self.asker.form,
            build=f"{self.asker.build}, {wanted}",
            again=True,
        )
        return Confirmation(_NAME, asker, "it fails by another cause")


_NAME = "same cause"


@dataclass(frozen=True)
class _Alike:
    """Answers REPRODUCED where a candidate does what is wanted."""

    judge: _Judge
    wanted: Outcome

    def check(self, candidate: Candidate) -> Verdict:
        verdict = self.judge.verdict(candidate)
        alike = verdict.outcome is self.wanted
        outcome = Outcome.REPRODUCED if alike else Outcome.DIFFERENT
        return replace(verdict, outcome=outcome)


def _judge(
    context: RunContext, subject: Subject, like: Asker, settings: InductorOptions
) -> _Judge:
    """Make what asks about the candidates of an asker, with settings besides."""
    client = subject.client
    client = client.with_options(inductor={**client.options.inductor, **settings})
    asker = Asker(
        make_oracle(client, subject.target, subject.rate),
        journal=context.journal,
        form=like.form,
        build=f"{like.build}, {dict(settings)}",
        again=True,
    )
    return _Judge(asker, context.journal)

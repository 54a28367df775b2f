"""A wrong value: which kernel has made it, from what, and how wrong it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shrinkfx.protocol.kernel_values import Wrong
from shrinkfx.protocol.record import Message
from shrinkfx.report.explanation.operators import Operator

_SHOWN = 4
"""Operators that a sentence names."""

_GIVEN = "its inputs may differ from eager, but eager computes other values from them"

_EXACT = {
    "eager": "a float64 run agrees with eager",
    "compiled": "a float64 run agrees with the compiled result",
    "both": "a float64 run is near both",
    "neither": "a float64 run agrees with neither",
}


@dataclass(frozen=True)
class WrongValue(Message):
    """A kernel that gives what eager does not, on the very values that it was given.

    Attributes:
        guilty: the operators that it may come from; several where nothing that lies in
            memory tells them apart. None where it is not known: ``unknown`` says why.
        kernel: '' where none has made the value; ``launch`` from 1, of ``launches``.
        value: the buffer, or ``result 0``.
        calls: what the guilty ones are in the graph that Inductor lowers.
        agrees: what it was given is eager's of the whole program.
        rewritten: no kernel is wrong, but the graph that Inductor lowers: what came
            before has changed it.
        lost: so that what the guilty one writes into an operand is lost.
        overwrites: the guilty one changes ``value``, which it declares to read alone;
            ``shown_by`` are the kernels that read it then, ``shown_in`` what the first
            of them computes.
        missized: no operator is guilty, but how compiled code has worked out a size.
        is_named: the failure's own words have the first wrong value.
        tiny: the error is below the tolerances, and all of the value.
        told_apart: others of its operators were cleared by having inner values
            returned, which changes what is fused.
        fused: how the program was compiled when it passed, which shows that the guilty
            operators fail only together; or ''.
        shown_by: later kernels with wrong results that are right for what they were
            given.
        call: of the program, from 1.
        without: operators that were left out, since they die of what they are given.
    """

    guilty: tuple[Operator, ...] = ()
    wrong: Wrong | None = None
    kernel: str = ""
    launch: int = 0
    launches: int = 0
    value: str = ""
    calls: tuple[str, ...] = ()
    agrees: bool = True
    rewritten: bool = False
    lost: bool = False
    overwrites: bool = False
    missized: str = ""
    tiny: bool = False
    told_apart: bool = False
    fused: str = ""
    shown_by: tuple[str, ...] = ()
    shown_in: tuple[Operator, ...] = ()
    call: int = 1
    without: tuple[Operator, ...] = ()
    unknown: tuple[str, ...] = field(default=())
    is_named: bool = False

    @property
    def cause(self) -> tuple[str, ...]:
        """State it in at most three sentences; in none where it is not known."""
        if self.wrong is None:
            return ()
        if self.overwrites:
            return (self._overwrites(self.wrong),)
        if self.missized:
            return (self._missized(self.wrong),)
        first = self._first(self.wrong)
        if self.fused:
            first = f"The program passes {self.fused}."
        found = self._which(self.wrong), first, self._elsewhere()
        return tuple(filter(None, found))

    def _overwrites(self, wrong: Wrong) -> str:
        """Say who has changed what the others were to read as it was."""
        what = named(self.guilty) or self.kernel
        changed = f"{wrong.wrong} of {wrong.of} values of its argument {self.value}"
        first, *more = self.shown_by
        shown = named(self.shown_in)
        then = f"Kernel {first}, which computes {shown}, reads the argument afterwards"
        others = f", as {_some(more)} does" if more else ""
        wrote = f"{what}{self._launch()} changes {changed} without declaring the write"
        return f"{wrote}. {then}{others}."

    def _missized(self, wrong: Wrong) -> str:
        """Say that sizes are worked out wrongly, and where that shows."""
        kernel = f"kernel {self.kernel}{self._launch()}"
        shows = f"The error shows in {kernel}: {wrong.metadata}"
        what = "Compiled code computes a size wrongly, outside any operator"
        return f"{what}: {self.missized}. {shows}."

    def _which(self, wrong: Wrong) -> str:
        if self.rewritten:
            how = in_words(wrong, "differ")
            return f"{self._rewritten()}: {how}; no kernel is at fault."
        what = named(self.guilty) or (
            "A value" if self.kernel else "A copy of an input"
        )
        if len(self.guilty) > 1 and not self.fused:
            what = f"One of {what}"
        place = f"in {self.value}"
        if self.kernel:
            place = f"in kernel {self.kernel}{self._launch()}"
        called = f" in call {self.call}" if self.call > 1 else ""
        if self.agrees:
            how = in_words(wrong, "of its result do not")
            how = f"{'their' if self.fused else 'its'} inputs agree with eager, {how}"
        else:
            how = f"{_GIVEN}: {in_words(wrong, 'differ')}"
        seen = ", with inner values returned" if self.told_apart else ""
        if self.without:
            seen += f", observed without {_some([o.operator for o in self.without])}"
        if self.fused:
            return f"{what}, fused {place}, give a wrong result{called}{seen}: {how}."
        return f"{what} {place} is wrong{called}{seen}: {how}."

    def _launch(self) -> str:
        """Say which launch it was, where there are several."""
        several = self.launches > 1
        return f" (launch {self.launch} of {self.launches})" if several else ""

    def _rewritten(self) -> str:
        """Say what another graph does than the program, run in eager as that is."""
        what = named(self.guilty) or "The result of the program"
        if self.lost:
            return f"The write of {what} is lost in the graph that Inductor lowers"
        return f"{what} is computed differently in the graph that Inductor lowers"

    def _first(self, wrong: Wrong) -> str:
        if wrong.metadata or (self.is_named and not self.tiny):
            return ""
        first = f"The first wrong value is at {place_of(wrong)}"
        return (
            f"{first}; the error is below the tolerance." if self.tiny else f"{first}."
        )

    def _elsewhere(self) -> str:
        if not self.shown_by:
            return ""
        names = _some(self.shown_by)
        what = (
            "shows the error, and its result is right for its inputs"
            if len(self.shown_by) == 1
            else "show the error, and their results are right for their inputs"
        )
        return f"{names} {what}."


def place_of(wrong: Wrong) -> str:
    """Say where the first wrong value is, and what it is."""
    return f"{[*wrong.first]}: {wrong.got}, eager gives {wrong.expected}"


def in_words(wrong: Wrong, differ: str) -> str:
    """Say how much of a value is wrong, and how far."""
    if wrong.metadata:
        return wrong.metadata
    facts = []
    if wrong.largest is not None:
        error = f"largest error {wrong.largest:.3g}"
        facts.append(error if wrong.ulps is None else f"{error}, {wrong.ulps:.3g} ulps")
    if wrong.exact:
        facts.append(_EXACT[wrong.exact])
    more = f" ({'; '.join(facts)})" if facts else ""
    told = f"{wrong.wrong} of {wrong.of} values {differ}"
    if wrong.nans > wrong.nans_expected:
        born = wrong.nans - wrong.nans_expected
        told += f", {born} of them NaN" if born < wrong.wrong else ", all NaN"
    return f"{told}{more}"


def named(operators: Sequence[Operator]) -> str:
    """Name operators with where each comes from."""
    return _some([str(operator) for operator in operators], " and ")


def _some(words: Sequence[str], last: str = ", ") -> str:
    shown = [*words][:_SHOWN]
    if len(words) > _SHOWN:
        shown.append(f"{len(words) - _SHOWN} more")
    return last.join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))

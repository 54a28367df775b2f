"""A wrong value: the kernel that computes it, the kernel's inputs, and the error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar

from shrinkfx.findings.code import Quoted
from shrinkfx.findings.operators import Operator
from shrinkfx.program.display_text import join_words
from shrinkfx.protocol.kernel_values import Wrong
from shrinkfx.protocol.record import Message

_MOST_ULPS = 1e4
"""A larger error is not stated in units in the last place."""

_SHOWN = 4
"""Maximum number of operators that a sentence names."""

_OTHER_VALUES = (
    "its inputs may differ from eager's, but from these inputs eager computes other "
    "values"
)

_SEPARATED = (
    " This was measured in a build that also returns the kernel's intermediate values."
)
_WITHOUT = " This was measured in the program without {}, which ends normally."
_FIRST = "The first value that differs from eager's on the same inputs is computed"
_MANY = "Which of its {} operators is wrong is not determined."
_EITHER_SIGN = " Which sign is right is not determined."
_UNFIT = (
    " Some of the converted values do not fit {}; PyTorch does not define the results "
    "of such conversions, so this may be no bug."
)

_EXACT = {
    "eager": "eager's result is confirmed in float64",
    "compiled": "the compiled result is confirmed in float64",
    "both": "both results are near eager's in float64",
    "neither": "neither result is confirmed in float64",
}


@dataclass(frozen=True)
class WrongValue(Message):
    """A kernel whose result differs from eager on the same inputs.

    Attributes:
        culprits: the culprit operators; several if no intermediate value in memory
            distinguishes them. Empty if not known: ``unknown`` says why.
        wrong: the size of the error.
        kernel: the kernel that computes the value, or ''; ``launch`` is the number of
            the launch, from 1, of ``launches``.
        value: the buffer, or ``result 0``.
        calls: the targets of the culprit operators in the graph that Inductor lowers.
        amplifies: the value is right for its inputs, and these agree with eager's run
            of the program, but the value does not.
        agrees: the kernel's inputs agree with those in eager's run of the program.
        rewritten: no kernel is wrong; an earlier pass changed the graph that Inductor
            lowers.
        decomposition: the decomposition that changed it, as ``FILE:FUNCTION``, or ''.
        lost: that change loses the culprit operator's write into an operand.
        functionalized: functionalization makes that change.
        is_named: the failure's message already contains the first wrong value.
        tiny: the whole value is below the tolerance.
        separated: other operators of the kernel were ruled out by returning inner
            values, which changes the fusion.
        fused: how the program was compiled when it passed, which shows that the culprit
            operators fail only if fused; or ''.
        shown_by: later kernels with wrong results that are correct for their inputs.
        call: number of the call of the program, from 1.
        without: operators that were left out because they fail on their inputs.
        code: the kernel, or its lines around those for the culprit operators, which are
            marked then; the graph that Inductor lowers if it is ``rewritten``.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {
        "guilty": "culprits",
        "told_apart": "separated",
    }

    culprits: tuple[Operator, ...] = ()
    wrong: Wrong | None = None
    kernel: str = ""
    launch: int = 0
    launches: int = 0
    value: str = ""
    calls: tuple[str, ...] = ()
    amplifies: bool = False
    agrees: bool = True
    rewritten: bool = False
    decomposition: str = ""
    lost: bool = False
    functionalized: bool = False
    tiny: bool = False
    separated: bool = False
    fused: str = ""
    shown_by: tuple[str, ...] = ()
    call: int = 1
    without: tuple[Operator, ...] = ()
    unknown: tuple[str, ...] = field(default=())
    is_named: bool = False
    code: Quoted = ()

    @property
    def cause(self) -> tuple[str, ...]:
        """The cause in at most three sentences; empty if not known."""
        if self.wrong is None:
            return ()
        first = self._first(self.wrong)
        if self.fused:
            first = f"The program passes {self.fused}."
        found = self._which(self.wrong), first, self._elsewhere()
        return tuple(filter(None, found))

    @property
    def is_undecided(self) -> bool:
        """Whether eager's result is not known to be the right one."""
        wrong = self.wrong or Wrong()
        is_open = bool(self.decomposition) and wrong.exact != "eager"
        return wrong.is_undecided or is_open

    @property
    def is_vague(self) -> bool:
        """Whether many operators may be wrong, and their inputs may be, too."""
        return len(self.culprits) > _SHOWN and not (self.agrees or self.fused)

    def _which(self, wrong: Wrong) -> str:
        if self.rewritten:
            how = describe_error(wrong, "differ")
            is_open = bool(self.decomposition) and not wrong.exact
            doubt = " Which of the two is right is not determined." * is_open
            link = ", in which" if self.functionalized else ":"
            return f"{self._rewritten()}{link} {how}. No kernel is at fault.{doubt}"
        if self.is_named and wrong.of == 1 and (wrong.ulps or inf) >= _MOST_ULPS:
            wrong = replace(wrong, largest=None)  # the message has both values
        names = join_operators(self.culprits)
        what = names or ("A value" if self.kernel else "A copy of an input")
        if len(self.culprits) > 1 and not self.fused:
            what = f"One of {what}"
        kernel = self.kernel and name_kernel(self.kernel, self.launch, self.launches)
        place = f"in {kernel}" if kernel else f"as {self.value} of the program"
        call = f" in call {self.call}" if self.call > 1 else ""
        if self.amplifies:
            how = describe_error(wrong, "differ from eager's")
            return (
                f"{what} {place} amplifies rounding: its result is right for its "
                f"inputs, and these agree with eager within the tolerances, but {how}. "
                "This may be no bug."
            )
        if self.is_vague:
            return f"{_FIRST} {place}. {_MANY.format(len(self.culprits))}"
        if self.agrees:
            pronoun = "their" if self.fused else "its"
            how = describe_error(wrong, f"of {pronoun} result do not")
            how = f"{pronoun} inputs agree with eager, but {how}"
        else:
            how = f"{_OTHER_VALUES}: {describe_error(wrong, 'differ')}"
        is_of = names and kernel and not self.fused
        of = f" of {' or '.join(names.rsplit(' and ', 1))}" if is_of else ""
        result = f"a wrong result{of}"
        if wrong.is_undecided:
            result = f"a result{of} that differs from eager's"
        is_separated = self.separated and not self.fused
        measured = _EITHER_SIGN * wrong.of_signs + _SEPARATED * is_separated
        measured += _UNFIT.format(wrong.unfit) * bool(wrong.unfit)
        if self.without:
            measured += _WITHOUT.format(_some([o.operator for o in self.without]))
        if self.fused:
            how = f"fused {place}, give {result}{call}: {how}"
            return f"{what}, {how}.{measured}"
        subject = f"{kernel[:1].upper()}{kernel[1:]}" or f"{what} {place}"
        return f"{subject} computes {result}{call}: {how}.{measured}"

    def _rewritten(self) -> str:
        """State what the lowered graph, run in eager, computes differently."""
        what = join_operators(self.culprits) or "the program"
        if self.lost:
            return f"The write of {what} is lost in the graph that Inductor lowers"
        if self.functionalized:
            same = "torch.func.functionalize gives the same wrong result"
            start = f"Functionalization changes the result of {what}"
            return f"{start}: without Inductor, {same}"
        if self.decomposition:
            is_wrong = self.wrong is not None and self.wrong.exact == "eager"
            verb = "is wrong" if is_wrong else "computes another result than eager"
            return f"The decomposition of {what} by {self.decomposition} {verb}"
        of = f" for {what}" * bool(self.culprits)
        graph = f"The graph that Inductor lowers gives a different result{of}"
        return f"{graph} than the program, although both run in eager"

    def _first(self, wrong: Wrong) -> str:
        is_quoted = wrong.of == 1 and not (self.rewritten or wrong.of_signs)
        is_stated = self.is_named or is_quoted
        if wrong.metadata or self.is_vague or (is_stated and not self.tiny):
            return ""
        where = f"{wrong.got} at {[*wrong.first]}"
        kind = "different" if wrong.is_undecided else "wrong"
        first = f"The first {kind} value is {where}, where eager gives {wrong.expected}"
        if self.rewritten:  # the compiled program may give another wrong value
            graph = f"Run in eager, the graph that Inductor lowers gives {where}"
            first = f"{graph}; the program gives {wrong.expected}"
        more = "; later operators may increase this tiny error"
        return f"{first}{more * bool(self.tiny and wrong.largest)}."

    def _elsewhere(self) -> str:
        if not self.shown_by:
            return ""
        names = _some(self.shown_by)
        if len(self.shown_by) == 1:
            return f"{names} propagates the error: its result is right for its inputs."
        return f"{names} propagate the error: their results are right for their inputs."


def name_kernel(kernel: str, launch: int, launches: int) -> str:
    """Name a kernel, with its launch if the program has several and it is known."""
    where = f" (launch {launch} of the {launches} in the program)"
    named = "the kernel" if kernel == "kernel" else f"kernel {kernel}"
    return f"{named}{where * (launch > 0 and launches > 1)}"


def describe_first_error(wrong: Wrong) -> str:
    """Return the first wrong value as the message of a mismatch contains it."""
    return f"{[*wrong.first]}: {wrong.got}, eager gives {wrong.expected}"


def describe_error(wrong: Wrong, differ: str) -> str:
    """Return the number of wrong values, and the size of the error."""
    if wrong.metadata:
        return wrong.metadata
    facts = []
    is_one, is_nan = wrong.of == 1, wrong.nans > wrong.nans_expected
    text = f"{wrong.wrong} of {wrong.of} values {differ}"
    if is_one and is_nan:
        text = "the value " + re.sub(r"\b(do not|differ.*)$", "is NaN", differ)
    elif is_one:
        singular = re.sub(r"\bdo not\b", "does not", differ)
        text = "the value " + re.sub(r"\bdiffer\b", "differs", singular)
    if wrong.of_signs:
        return f"{text} (in the sign of zero)"
    if wrong.largest is not None:
        error = f"largest error {wrong.largest:.3g}"
        if is_one:
            error = f"{wrong.got} instead of {wrong.expected}"
        is_small = wrong.ulps is not None and wrong.ulps < _MOST_ULPS
        facts.append(f"{error}, {wrong.ulps:.3g} ulps" if is_small else error)
    if wrong.exact:
        facts.append(_EXACT[wrong.exact])
    more = f" ({'; '.join(facts)})" if facts else ""
    if is_nan and not is_one:
        born = wrong.nans - wrong.nans_expected
        text += f", {born} of them NaN" if born < wrong.wrong else ", all NaN"
    return f"{text}{more}"


def join_operators(operators: Sequence[Operator]) -> str:
    """List operators, each with its place in the user's model."""
    return _some([str(operator) for operator in operators])


def _some(words: Sequence[str]) -> str:
    more = [f"{len(words) - _SHOWN} more"] * (len(words) > _SHOWN)
    return join_words([*words[:_SHOWN], *more])

"""Issues for other authors than PyTorch.

The recipient is the author of a custom operator that violates its declaration, or of
custom code in the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shrinkfx.protocol.operators import (
    VALUE_DEPENDENCIES,
    Misbehavior,
    differing_properties,
)
from shrinkfx.report.explanation.operator_mismatch import OperatorMismatch
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.in_compiler import (
    capitalize_sentence,
    describe_custom_code,
    format_stops_in_function,
    name_sources,
)
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.opcheck import write_opcheck
from shrinkfx.report.issue.plain import strip_default_overload


@dataclass(frozen=True)
class IncorrectOperator:
    """A custom operator that is at fault.

    Attributes:
        what: the incorrect part: ``fake kernel``, ``schema`` or ``kernel``.
        does: the incorrect behavior of that part.
        so: the consequence for compiled code.
        mismatch: the result that is not as declared; None if the schema is incorrect.
        writes: the argument that it writes to without declaring that; or ''.
    """

    operator: Operator
    what: str
    does: str
    mismatch: OperatorMismatch | None = None
    writes: str = ""
    so: str = "compiled code relies on it"

    @property
    def name(self) -> str:
        """Name of the operator, without ``.default``."""
        return strip_default_overload(self.operator.operator)

    @property
    def title(self) -> str:
        """Title of the issue: the operator, and its incorrect part."""
        is_fake = self.what == "fake kernel"
        fault = "fake-kernel mismatch" if is_fake else f"incorrect {self.what}"
        return f"{self.name}: {fault}"

    @property
    def test(self) -> str:
        """The test of opcheck that shows the error."""
        return "test_faketensor" if self.mismatch is not None else "test_schema"

    @property
    def expected(self) -> str:
        """The expected behavior of the operator."""
        if self.what == "fake kernel":
            return "The operator returns what its fake kernel declares."
        return f"The {self.what} of the operator is correct."

    def place(self, facts: IssueFacts) -> str:
        """Return file and line of the incorrect part in parentheses, or ''."""
        place = self.mismatch.place if self.mismatch is not None else ""
        return f" (`{place}`)" if place and not facts.anonymous else ""


def find_incorrect_operator(explanation: Explanation) -> IncorrectOperator | None:
    """Return the operator whose author is the recipient; None for PyTorch."""
    diff, values = explanation.culprit_mismatch, explanation.values
    if diff is not None and diff.is_of_values:
        does, so = VALUE_DEPENDENCIES[diff.what], _SO.get(diff.what, _NO_MEASURE)
        return IncorrectOperator(diff.operator, "kernel", does, mismatch=diff, so=so)
    if diff is not None and diff.operator.is_custom:
        promises = "declares a result different from the one that the operator returns"
        return IncorrectOperator(diff.operator, "fake kernel", promises, mismatch=diff)
    if values is not None and values.overwrites and len(explanation.culprits) == 1:
        (culprit,) = explanation.culprits
        value = values.value
        writes = f"does not declare that the operator writes to `{value}`"
        wrong = IncorrectOperator(culprit, "schema", writes, writes=value)
        return wrong if culprit.is_custom else None
    return None


_NO_MEASURE = "the result of eager is therefore no valid reference for compiled code"

_SO = {Misbehavior.LAYOUT: "compiled code can change these strides"}

_HOW = {
    Misbehavior.STRAYS: "Call the operator in eager with the arguments of the script "
    "below, "
    "either under AddressSanitizer (a compiler tool that reports out-of-bounds "
    "accesses) or with arguments that end at a page boundary.",
    Misbehavior.UNFILLED: "Call the operator in eager with the arguments of the script "
    "below "
    "after `torch.use_deterministic_algorithms(True, warn_only=True)`, with which "
    "PyTorch fills new memory with NaN.",
    Misbehavior.UNSTEADY: "Call the operator in eager twice, with the arguments of the "
    "script "
    "below and the same seed, and compare the results.",
    Misbehavior.LAYOUT: "Call the operator in eager with the arguments of the script "
    "below. "
    "Call it again with the same values in tensors with different strides, and compare "
    "the results. For a contiguous tensor, "
    "`x.transpose(0, -1).contiguous().transpose(0, -1)` changes the strides; for any "
    "other tensor, `x.contiguous()` does.",
}
"""How to reproduce errors that ``opcheck`` does not test."""


def format_recipient_note(facts: IssueFacts, wrong: IncorrectOperator) -> str:
    """Return the note that names the recipient and the error."""
    return (
        "> **Do not file this with PyTorch: send it to the author of "
        f"`{wrong.name}`.** The "
        f"{wrong.what} of `{wrong.name}`{wrong.place(facts)} {wrong.does}, and "
        f"{wrong.so}."
    )


def format_custom_code_note(facts: IssueFacts) -> str:
    """Return the note that custom Inductor code takes part in the failure."""
    known, anonymous = facts.in_compiler, facts.anonymous
    sources = name_sources(known, anonymous=anonymous, mark="`")
    does = capitalize_sentence(
        describe_custom_code(known, anonymous=anonymous, mark="`")
    )
    shown = [
        f"The script registers custom Inductor code ({sources}), and the failure "
        f"disappears without it. {does}."
    ] * facts.needs_own
    if facts.inside:
        args = facts.kind, facts.inside
        shown.append(format_stops_in_function(*args, anonymous=anonymous, mark="`"))
    return (
        f"> **Do not file this with PyTorch as it is.** {' '.join(shown)} "
        "Please rule out a bug in that code before filing against PyTorch."
    )


def format_contradiction(facts: IssueFacts, wrong: IncorrectOperator) -> str:
    """Return the declared and the actual result as a list."""
    diff = wrong.mismatch
    if diff is None:
        return (
            "- declared: the schema names no argument that the operator writes to\n"
            f"- actual: the operator writes to `{wrong.writes}`"
        )
    if diff.declared is None or diff.made is None:
        return f"- {diff.difference}"
    result = f" (result {diff.result})" if diff.result else ""
    # ``said`` may repeat both; the arguments of the call come after them.
    _, is_known, arguments = diff.difference.rpartition(", for ")
    rows = [
        f"- declared by the fake kernel{wrong.place(facts)}: `{diff.declared}`{result}",
        f"- returned by the operator: `{diff.made}`{result}",
    ]
    if diff.declared.device != diff.made.device:
        devices = f"`{diff.declared.device}`, actual `{diff.made.device}`"
        rows.append(f"- device: declared {devices}")
    rows += [f"- called with: `{arguments}`"] * bool(is_known)
    rows += ["- observed in the input program, before the reduction"] * diff.in_original
    return "\n".join(rows)


def format_reproduction(wrong: IncorrectOperator, script: str) -> Iterator[str]:
    """Yield instructions that reproduce the error without compiling."""
    if wrong.mismatch is not None and wrong.mismatch.is_of_values:
        yield _HOW[wrong.mismatch.what]
        return
    operator = wrong.operator.operator
    pasted = write_opcheck(operator, wrong.test, script)
    if pasted is None:
        yield (
            f"Run `torch.library.opcheck(torch.ops.{operator}, args, kwargs, "
            f'test_utils="{wrong.test}")` with the arguments of its call in the '
            "script below, as a tuple and a dict (not the script's own `args`)."
        )
        return
    yield (
        "Insert these lines into the script below, after the assignment to "
        f"`{pasted.below}`. While the {wrong.what} is wrong, they raise an error; "
        "nothing is compiled."
    )
    yield f"```python\n{pasted.text}\n```"
    if wrong.mismatch is not None and (
        wrong.mismatch.in_original or not _shows_in_one_run(wrong.mismatch)
    ):
        yield (
            "The mismatch was observed at sizes different from those in the script, so "
            "this check can pass. In that case, call the operator at those sizes."
        )

    if wrong.mismatch is not None and _is_of_strides(wrong.mismatch):
        yield "`opcheck` detects wrong strides in torch 2.13 and newer, not in 2.11."


def _is_of_strides(mismatch: OperatorMismatch) -> bool:
    if mismatch.declared is None or mismatch.made is None:
        return False
    return differing_properties(mismatch.declared, mismatch.made) == ("strides",)


def _shows_in_one_run(mismatch: OperatorMismatch) -> bool:
    """Return whether one run shows the mismatch.

    A fake kernel that fixes a dynamic dim is right at one size.
    """
    return " fixes dim " not in mismatch.difference

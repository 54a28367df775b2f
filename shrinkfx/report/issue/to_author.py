"""An issue for others than PyTorch: for whoever wrote what is at fault, or may be.

That is an operator that does not do what it declares, or code in the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shrinkfx.protocol.operators import OF_VALUES, What, differing
from shrinkfx.report.explanation.lies import Lie
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.in_compiler import begun, sentence_inside, told, whose
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.opcheck import opcheck_of
from shrinkfx.report.issue.plain import short


@dataclass(frozen=True)
class Wrong:
    """A custom operator that is at fault.

    Attributes:
        what: of it is wrong: its ``fake kernel``, its ``schema``, or its ``kernel``.
        does: what that does which is wrong.
        so: what that means for compiled code.
        lie: the result that is not as declared; None where the schema is wrong.
        writes: to what it writes, where it declares that it writes nothing.
    """

    operator: Operator
    what: str
    does: str
    lie: Lie | None = None
    writes: str = ""
    so: str = "compiled code believes it"

    @property
    def name(self) -> str:
        return short(self.operator.operator)

    @property
    def test(self) -> str:
        """The part of opcheck that shows it."""
        return "test_faketensor" if self.lie is not None else "test_schema"

    def place(self, facts: IssueFacts) -> str:
        """File and line of what is wrong, in brackets; or ''."""
        place = self.lie.place if self.lie is not None else ""
        return f" (`{place}`)" if place and not facts.anonymous else ""


def addressed_to(explanation: Explanation) -> Wrong | None:
    """Tell whose author the issue is for; None: it is PyTorch's."""
    lie, values = explanation.liar, explanation.values
    if lie is not None and lie.is_of_values:
        does, so = OF_VALUES[lie.what], _SO.get(lie.what, _NO_MEASURE)
        return Wrong(lie.operator, "kernel", does, lie=lie, so=so)
    if lie is not None and lie.operator.is_custom:
        promises = "promises another result than the operator returns"
        return Wrong(lie.operator, "fake kernel", promises, lie=lie)
    if values is not None and values.overwrites and len(explanation.guilty) == 1:
        (guilty,) = explanation.guilty
        value = values.value
        writes = f"does not declare that the operator writes to {value}"
        wrong = Wrong(guilty, "schema", writes, writes=value)
        return wrong if guilty.is_custom else None
    return None


_NO_MEASURE = "eager, which compiled code is held against, is no measure then"

_SO = {What.LAYOUT: "compiled code has changed them, or may"}

_HOW = {
    What.STRAYS: "Call it in eager under AddressSanitizer, or with arguments that end "
    "where a page does, whose values are those of the script below.",
    What.UNFILLED: "Call it in eager with the arguments of the script below after "
    "`torch.use_deterministic_algorithms(True, warn_only=True)`: PyTorch fills the "
    "memory that it hands out with NaN then.",
    What.UNSTEADY: "Call it in eager twice, with the arguments of the script below and "
    "the same seed, and compare what it gives.",
    What.LAYOUT: "Call it in eager with the arguments of the script below, and with "
    "the same values in tensors of other strides: of a contiguous one that is "
    "`x.transpose(0, -1).contiguous().transpose(0, -1)`, say, and of any other "
    "`x.contiguous()`.",
}
"""How it is seen of what is no part of ``opcheck``."""


def address(facts: IssueFacts, wrong: Wrong) -> str:
    """Say who is to read it, and what is wrong."""
    return (
        f"> **For whoever wrote `{wrong.name}`: do not file this with PyTorch.** The "
        f"{wrong.what} of `{wrong.name}`{wrong.place(facts)} {wrong.does}, and "
        f"{wrong.so}."
    )


def address_of_own(facts: IssueFacts) -> str:
    """Say whose code the compiler is made of as well, and how that shows."""
    known, anonymous = facts.in_compiler, facts.anonymous
    whom = whose(known, anonymous=anonymous, mark="`")
    does = begun(told(known, anonymous=anonymous, mark="`"))
    shown = [
        f"{does}, so that code which is none of PyTorch's is a part of the compiler, "
        "and the script does not fail without that."
    ] * facts.needs_own
    if facts.inside:
        file = facts.inside.partition(":")[0]
        whom = whom if anonymous else f"`{file}`"
        asked = facts.kind, facts.inside
        shown.append(sentence_inside(*asked, anonymous=anonymous, mark="`"))
    return (
        f"> **For whoever wrote {whom}: do not file this with PyTorch as it is.** "
        f"{' '.join(shown)} See whether that code is right: only if it is, what fails "
        "is PyTorch's."
    )


def contradiction(facts: IssueFacts, wrong: Wrong) -> str:
    """Set what is declared against what is given."""
    lie = wrong.lie
    if lie is None:
        return (
            "- declared: its schema names no argument that it writes to\n"
            f"- done: it writes to `{wrong.writes}`"
        )
    if lie.declared is None or lie.made is None:
        return f"- {lie.said}"
    result = f" (result {lie.result})" if lie.result else ""
    # What is said may begin with these, and goes on with what the call was given.
    given = lie.said.partition(", given ")[2]
    rows = [
        f"- declared by the fake kernel{wrong.place(facts)}: `{lie.declared}`{result}",
        f"- returned by the operator: `{lie.made}`{result}",
    ]
    if lie.declared.device != lie.made.device:
        rows.append(f"- on: `{lie.made.device}`, declared `{lie.declared.device}`")
    rows += [f"- called with: `{given}`"] * bool(given)
    rows += ["- seen in the program before it was reduced"] * lie.in_original
    return "\n".join(rows)


def seeing(wrong: Wrong, script: str) -> Iterator[str]:
    """Say how the contradiction is seen without a compiler: lines to be pasted."""
    if wrong.lie is not None and wrong.lie.is_of_values:
        yield _HOW[wrong.lie.what]
        return
    operator = wrong.operator.operator
    pasted = opcheck_of(operator, wrong.test, script)
    if pasted is None:
        yield (
            f"Run `torch.library.opcheck(torch.ops.{operator}, args, kwargs, "
            f'test_utils="{wrong.test}")` with the arguments of its call in the '
            "script below, as a tuple and a dict (not the script's own `args`)."
        )
        return
    yield (
        f"Put this into the script below, under its assignment to `{pasted.below}`. "
        f"Nothing is compiled: it stops there for as long as the {wrong.what} is wrong."
    )
    yield f"```python\n{pasted.text}\n```"
    if wrong.lie is not None and (wrong.lie.in_original or not _shows(wrong.lie)):
        yield (
            "It was seen at other sizes than the script's, so this may pass: then call "
            "the operator at those."
        )

    if wrong.lie is not None and _is_of_strides(wrong.lie):
        yield "Of strides torch 2.13 says so; `opcheck` of torch 2.11 lets them pass."


def _is_of_strides(lie: Lie) -> bool:
    if lie.declared is None or lie.made is None:
        return False
    return differing(lie.declared, lie.made) == ("strides",)


def _shows(lie: Lie) -> bool:
    """Tell whether one run shows it: a size that is fixed is right at that size."""
    return " fixes dim " not in lie.said

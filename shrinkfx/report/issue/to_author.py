"""An issue for others than PyTorch: for whoever wrote what is at fault, or may be.

That is an operator that does not do what it declares, or code in the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.in_compiler import told, whose
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.plain import short


@dataclass(frozen=True)
class Wrong:
    """A custom operator that is at fault.

    Attributes:
        what: of it is wrong: its ``fake kernel``, or its ``schema``.
        place: file and line of that, or ''.
        does: what it does that is wrong.
    """

    operator: Operator
    what: str
    place: str
    does: str

    @property
    def name(self) -> str:
        return short(self.operator.operator)


def addressed_to(explanation: Explanation) -> Wrong | None:
    """Tell whose author the issue is for; None: it is PyTorch's."""
    lie, values = explanation.liar, explanation.values
    if lie is not None and lie.operator.is_custom:
        promises = "promises another result than the operator returns"
        return Wrong(lie.operator, "fake kernel", lie.place, promises)
    if values is not None and values.overwrites and len(explanation.guilty) == 1:
        writes = f"does not declare that the operator writes to {values.value}"
        (guilty,) = explanation.guilty
        return Wrong(guilty, "schema", "", writes) if guilty.is_custom else None
    return None


def address(facts: IssueFacts, wrong: Wrong) -> str:
    """Say who is to read it, what is wrong, and how that is seen without a compiler."""
    place = f" (`{wrong.place}`)" if wrong.place and not facts.anonymous else ""
    return (
        f"> **For whoever wrote `{wrong.name}`: do not file this with PyTorch.** The "
        f"{wrong.what} of `{wrong.name}`{place} {wrong.does}, and compiled code "
        "believes it. To see that without a compiler, run "
        f"`torch.library.opcheck(torch.ops.{wrong.operator.operator}, args)` with the "
        "arguments of its call in the repro, as a tuple (not the repro's own `args`); "
        f"then mend the {wrong.what}."
    )


def address_of_own(facts: IssueFacts) -> str:
    """Say whose code the compiler is made of as well, and that the failure takes it."""
    known, anonymous = facts.in_compiler, facts.anonymous
    whom = whose(known, anonymous=anonymous, mark="`")
    does = told(known, anonymous=anonymous, mark="`")
    return (
        f"> **For whoever wrote {whom}: do not file this with PyTorch as it is.** "
        f"{does[:1].upper()}{does[1:]}, so that code which is none of PyTorch's is a "
        "part of the compiler, and the script does not fail without that. See whether "
        "that code is right: only if it is, what fails is PyTorch's."
    )

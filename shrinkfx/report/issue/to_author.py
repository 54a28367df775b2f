"""An issue for whoever wrote an operator whose fake kernel is wrong."""

from __future__ import annotations

from shrinkfx.report.explanation.lies import Lie
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.plain import short


def addressed_to(explanation: Explanation) -> Lie | None:
    """Tell whose author the issue is for; None: it is PyTorch's."""
    lie = explanation.liar
    return lie if lie is not None and lie.custom else None


def address(facts: IssueFacts, lie: Lie) -> str:
    """Say who is to read it, what is wrong, and how that is seen without a compiler."""
    name = short(lie.operator.operator)
    place = f" (`{lie.place}`)" if lie.place and not facts.anonymous else ""
    return (
        f"> **For whoever wrote `{name}`: do not file this with PyTorch.** The fake "
        f"kernel of `{name}`{place} promises another result than the operator returns, "
        "and compiled code believes it. To see that without a compiler, run "
        f"`torch.library.opcheck(torch.ops.{lie.operator.operator}, args)` with "
        "arguments like those below; then mend the fake kernel."
    )


def about_it(warning: str, lie: Lie) -> bool:
    """Tell whether a warning says of the original what the lie is of the result."""
    is_of_operator = warning.startswith(("lying operator: ", "custom operator: "))
    return is_of_operator and f"({lie.operator.operator})" in warning

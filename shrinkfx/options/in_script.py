"""The failure of a captured program in its script, compared with its failure here.

A failure here is refused only if it cannot be that of the script: a program that
compiles here cannot show the error of its compilation, and wrong values are not an
exception. Other differences of the stage are accepted, because the same failure can
show in another stage: for example, a kernel may run during compilation, to be timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from shrinkfx.errors import FailsDifferently
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.protocol.record import Message
from shrinkfx.wording import Flag, MessagePart, MessageText


class FailedStep(StrEnum):
    """The step of a script with a program that failed."""

    COMPILE = "compile"
    LOAD = "load"
    CALL = "call"
    NOTHING = "nothing"
    """No step failed, but the script rejected the values."""


_IMPOSSIBLE_STAGES: Mapping[FailedStep, tuple[Stage, ...]] = {
    FailedStep.COMPILE: (Stage.COMPARE,),
    FailedStep.LOAD: (Stage.COMPILE, Stage.COMPARE),
    FailedStep.CALL: (Stage.COMPILE, Stage.COMPARE),
    FailedStep.NOTHING: (Stage.COMPILE, Stage.LOAD),
}
"""Stages whose failures cannot be those of a script, by the step that failed there."""

_SILENT_ERROR_ADVICE = MessageText(
    "a memory error that kills one process may go unnoticed in another; to check each "
    "access: ",
    Flag("--until", "ima"),
)


@dataclass(frozen=True)
class ScriptFailure(Message):
    """A failure of a program in a script.

    Attributes:
        failed: the step that failed.
        message: a description of the failure, as a sentence without a full stop.
        died: whether the process of the script died during that step.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"said": "message"}

    failed: FailedStep
    message: str
    died: bool = False

    def require(self, seen: Signature, lacking: tuple[MessagePart, ...] = ()) -> None:
        """Refuse a failure of the program that cannot be the script's.

        Args:
            seen: the failure of the program in this run.
            lacking: sentences about state that only the process of the script had.

        Raises:
            FailsOtherwise: the failure cannot be that of the script.
        """
        if seen.stage not in _IMPOSSIBLE_STAGES[self.failed]:
            return
        advice = [*lacking]
        if self.died and self.failed is FailedStep.CALL:
            advice.append(_SILENT_ERROR_ADVICE)
        until = Flag("--until", seen.kind.value)
        advice.append(MessageText("to reduce the failure seen here: ", until))
        raise FailsDifferently(self.message, str(seen), MessageText.lines(advice))

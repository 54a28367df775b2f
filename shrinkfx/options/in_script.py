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

from shrinkfx.errors import FailsOtherwise
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.protocol.record import Message
from shrinkfx.wording import Flag, Said, Words


class Failed(StrEnum):
    """The step of a script with a program that failed."""

    COMPILE = "compile"
    LOAD = "load"
    CALL = "call"
    NOTHING = "nothing"
    """No step failed, but the script rejected the values."""


_ELSEWHERE: Mapping[Failed, tuple[Stage, ...]] = {
    Failed.COMPILE: (Stage.COMPARE,),
    Failed.LOAD: (Stage.COMPILE, Stage.COMPARE),
    Failed.CALL: (Stage.COMPILE, Stage.COMPARE),
    Failed.NOTHING: (Stage.COMPILE, Stage.LOAD),
}
"""Stages whose failures cannot be those of a script, by the step that failed there."""

_SILENT = Words(
    "a memory error that kills one process may go unnoticed in another; to check each "
    "access: ",
    Flag("--until", "ima"),
)


@dataclass(frozen=True)
class ScriptFailure(Message):
    """A failure of a program in a script.

    Attributes:
        failed: the step that failed.
        said: a description of the failure, as a sentence without a full stop.
        died: whether the process of the script died during that step.
    """

    failed: Failed
    said: str
    died: bool = False

    def require(self, seen: Signature, lacking: tuple[Said, ...] = ()) -> None:
        """Refuse a failure of the program that cannot be the script's.

        Args:
            seen: the failure of the program in this run.
            lacking: sentences about state that only the process of the script had.

        Raises:
            FailsOtherwise: the failure cannot be that of the script.
        """
        if seen.stage not in _ELSEWHERE[self.failed]:
            return
        silent = [_SILENT] if self.died and self.failed is Failed.CALL else []
        so = Words(
            "to reduce the failure seen here: ", Flag("--until", seen.kind.value)
        )
        advice = Words.lines([*lacking, *silent, so])
        raise FailsOtherwise(self.said, str(seen), advice)

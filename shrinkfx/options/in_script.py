"""How a script failed that a program comes from, and whether it fails so here.

Only what cannot be the same failure is told: what compiles here is not what died while
it was compiled, and wrong values are no exception. Between compiling, loading and
running things shift: a kernel may run as it is compiled, to be timed.
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
    """What of a script's dealings with a program has failed."""

    COMPILE = "compile"
    LOAD = "load"
    CALL = "call"
    NOTHING = "nothing"
    """All has ended well, and the script was not content with the values."""


_ELSEWHERE: Mapping[Failed, tuple[Stage, ...]] = {
    Failed.COMPILE: (Stage.COMPARE,),
    Failed.LOAD: (Stage.COMPILE, Stage.COMPARE),
    Failed.CALL: (Stage.COMPILE, Stage.COMPARE),
    Failed.NOTHING: (Stage.COMPILE, Stage.LOAD),
}
"""Stages in which a program fails otherwise than in its script."""

_SILENT = Words(
    "a memory error that kills one process may go unnoticed in another; to check each "
    "access: ",
    Flag("--until", "ima"),
)


@dataclass(frozen=True)
class ScriptFailure(Message):
    """What has failed in a script.

    Attributes:
        said: how, in a sentence without an end.
        died: the process did, in the middle of it.
    """

    failed: Failed
    said: str
    died: bool = False

    def require(self, seen: Signature, lacking: tuple[Said, ...] = ()) -> None:
        """Refuse a failure of the program that cannot be the script's.

        Args:
            lacking: sentences on what the script had, and no other process has.

        Raises:
            FailsOtherwise: it cannot be.
        """
        if seen.stage not in _ELSEWHERE[self.failed]:
            return
        silent = [_SILENT] if self.died and self.failed is Failed.CALL else []
        so = Words(
            "to reduce the failure seen here: ", Flag("--until", seen.kind.value)
        )
        advice = Words.lines([*lacking, *silent, so])
        raise FailsOtherwise(self.said, str(seen), advice)

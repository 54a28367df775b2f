"""A form of the program that has been tried, before one is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.failure.verdict import Verdict
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.run.subject import Subject


@dataclass(frozen=True)
class Attempt:
    """What came of a form of the program.

    Attributes:
        subject: the program in this form and in the build that fails, with what is
            said of this form; None if it fails in no build.
        seen: what each build that was asked about did, in turn.
    """

    form: GraphForm
    subject: Subject | None
    seen: tuple[Verdict, ...]

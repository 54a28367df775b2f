"""The record of an attempt to reproduce the failure in one graph form."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.failure.verdict import Verdict
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.run.subject import Subject


@dataclass(frozen=True)
class Attempt:
    """The result of testing the program in one graph form.

    Attributes:
        subject: the program in this form and in the build that fails, with the facts
            about this form; None if it fails in no build.
        seen: the verdicts of the builds that were tested, in their order.
    """

    form: GraphForm
    subject: Subject | None
    seen: tuple[Verdict, ...]

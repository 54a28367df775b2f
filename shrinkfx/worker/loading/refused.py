"""What a file may not hold."""

from __future__ import annotations

from shrinkfx.wording import Flag, Said, Words

REGISTERS_IT = Words(Flag("--preload"), " the module, .py or .so that registers it")
"""What to do where something is not registered."""


class Refused(Exception):
    """A file holds what is not read: says what that is, and what to do."""

    def __init__(self, what: str, advice: Said) -> None:
        self.advice = Words(advice)
        super().__init__(what)

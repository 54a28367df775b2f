"""The exception for a file with content that must not be loaded."""

from __future__ import annotations

from shrinkfx.wording import Flag, MessagePart, MessageText

PRELOAD_ADVICE = MessageText(
    Flag("--preload"), " the module, .py or .so that registers it"
)
"""Advice for content that is not registered."""


class Refused(Exception):
    """A file holds something that must not be loaded; says what, with advice."""

    def __init__(self, what: str, advice: MessagePart) -> None:
        self.advice = MessageText(advice)
        super().__init__(what)

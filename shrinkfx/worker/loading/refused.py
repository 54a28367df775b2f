"""What a file may not hold."""

from __future__ import annotations


class Refused(Exception):
    """A file holds what is not read: says what that is, and what to do."""

    def __init__(self, what: str, advice: str) -> None:
        self.advice = advice
        super().__init__(what)

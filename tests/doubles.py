"""What several folders of tests put in the place of the real thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shrinkfx.program.messages import Ending, Request

Arguments = Mapping[str, Any]


class FakeServer:
    """Answers as it is told; keeps what it was asked."""

    def __init__(self, answer: Callable[[Arguments], Ending]) -> None:
        self._answer = answer
        self.asked: list[Arguments] = []

    def ask(self, request: Request) -> Ending:
        self.asked.append(request.arguments)
        return self._answer(request.arguments)

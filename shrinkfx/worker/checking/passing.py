"""The run on passing inputs, which precedes the run on the failing inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Answer, Checked
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.rebuild import RebuiltCandidate


class PassingRun:
    """The run on the inputs on which a program must pass, before the failing run."""

    def __init__(self, run: RebuiltCandidate, options: CheckOptions) -> None:
        passing = run.at_passing
        self._reference = Reference(passing, options) if passing else None

    @property
    def has_inputs(self) -> bool:
        """Return whether the program has passing inputs."""
        return self._reference is not None

    def run_eager(self) -> None:
        if self._reference:
            self._reference.run_eager()

    def find_failure(self, compiled: Callable[..., Any], note: Note) -> Answer | None:
        """Run the compiled program on the passing inputs; return a failure or None."""
        if self._reference is None:
            return None
        note(Stage.PASSING)
        answer = self._reference.judge(compiled, lambda _: None)
        return answer if is_failure(answer) else None


def is_failure(answer: Answer) -> bool:
    """Return whether a run has not ended with the results of eager."""
    return not isinstance(answer, Checked) or answer.difference is not None

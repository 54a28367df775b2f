"""Observe in a worker what a way of registering operators changes in PyTorch.

Eager alone runs neither a lowering nor a fake kernel, so the worker also compares the
state of PyTorch with the state before.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.check.oracle import Limits, Meter, RequestHandler
from shrinkfx.errors import BudgetExhausted
from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.protocol.answers import Answer
from shrinkfx.protocol.descriptions import Registered
from shrinkfx.protocol.requests import Request
from shrinkfx.protocol.tasks import RunPreload
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro import write_registrations
from shrinkfx.system import scratch

MAX_QUERIES, MAX_SECONDS = 40, 240.0
"""Maximum number and time of queries about preloads; one takes 1 to 2 CPU-seconds."""


_BUILDS = re.compile(
    r"torch\.utils\.cpp_extension |torch(\.utils)? "
    r"(_appdirs|_cpp_extension_versioner|cpp_extension|file_baton)\Z"
)
"""State of PyTorch that changes with the import of ``torch.utils.cpp_extension``, which
compiles libraries and takes no part in a program.
"""


@dataclass(frozen=True)
class Effect:
    """The effect of a preload on this program and its compiler."""

    outcome: str
    exported: str
    changes: Mapping[str, str]
    registered: frozenset[str]
    modules: frozenset[str]
    files: frozenset[str]
    elsewhere: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    @classmethod
    def of(cls, answer: Answer | None) -> Effect | None:
        """Convert a worker's answer; return None if it reports no registration."""
        if not isinstance(answer, Registered):
            return None
        return cls(
            outcome=answer.outcome,
            exported=answer.exported,
            changes={p: v for p, v in answer.changes.items() if not _BUILDS.match(p)},
            registered=frozenset(answer.registered),
            modules=frozenset(answer.modules),
            files=frozenset(answer.files),
            elsewhere=frozenset(answer.elsewhere),
            own=frozenset(answer.own),
        )

    def without(self, places: Set[str]) -> Effect:
        """Return this effect without the changes at some places."""
        rest = {k: v for k, v in self.changes.items() if k not in places}
        return replace(self, changes=rest, own=self.own - places)

    def is_kept_by(self, other: Effect | None, operators: Sequence[str]) -> bool:
        """Return whether another effect is the same, as far as ``operators`` matter."""
        if other is None:
            return False
        same = (other.outcome, other.exported) == (self.outcome, self.exported)
        unused = {name.partition(".")[0] for name in self.registered} - set(operators)
        patterns = [re.escape(name).replace("::", r"\W+") for name in sorted(unused)]
        allowed = re.compile(rf"\b({'|'.join(patterns) or '(?!)'})\b")
        before, after = self.changes.items(), other.changes.items()
        return same and all(allowed.search(place) for place, _ in before ^ after)


@dataclass
class PreloadOracle:
    """Queries a worker for the effect of registering operators in some way.

    Attributes:
        note: receives a line at the first query.
        questions: number of queries.
    """

    server: RequestHandler
    limits: Limits
    meter: Meter
    program: Path
    operators: Sequence[str]
    record: RunRecord
    note: Callable[[str], None] = lambda _: None
    deadline: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)
    questions: int = 0

    @property
    def is_tired(self) -> bool:
        return self.questions >= MAX_QUERIES or self._seconds_left <= 1

    @property
    def _seconds_left(self) -> float:
        return max(1.0, self.deadline - time.monotonic())

    def effect(self, carried: PreloadBundle) -> Effect | None:
        """Register operators in an empty folder, then run the program.

        Returns:
            The effect; None if the run did not end, or if the time is up.
        """
        if not self.questions:
            self.note("collecting the needed parts of the preloaded modules")
        self.questions += 1
        text = write_registrations(self.record, carried.definitions, carried.unpacking)
        with scratch.make_scratch_folder("preload") as folder:
            script = Path(folder) / "repro.py"
            script.write_text(text, encoding="utf-8")
            for name, file in carried.files.items():
                shutil.copy(file, Path(folder) / name)
            request = Request(
                RunPreload(
                    str(script), str(self.program.resolve()), tuple(self.operators)
                ),
                timeout_s=self.limits.timeout_s,
                max_rss_bytes=self.limits.max_rss_bytes,
                clock_s=self._seconds_left,
            )
            try:
                ending = self.server.ask(request)
            except BudgetExhausted:  # the repro has yet to be written
                self.deadline = time.monotonic()
                return None
            return Effect.of(self.meter.add(ending).answer)

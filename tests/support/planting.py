"""Reduce a program with planted failures: all is real but the compiler."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from shrinkfx.check.client.server import Server
from shrinkfx.events import ignore_event
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.observe import reproduce_failure
from shrinkfx.run.reduction import SearchResult, check_rest, reduce

PRELOAD = Path(__file__).with_name("fake_backend.py")


@dataclass(frozen=True)
class Plant:
    """A failure, and the rule by which it shows.

    Attributes:
        at: the operator that fails, without ``aten.`` and ``.default``.
        how: a word of ``fake_backend.HOW``, or ``refuse`` to compile.
        text: what it says; a signal says nothing.
        needs: operators without which it does not.
        unless: operators beside which it does not.
        cut: only where an operand is an input of the program.
        rate: the part of the runs that show it.
    """

    at: str
    how: str
    text: str = ""
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    cut: bool = False
    rate: float = 1.0

    def to_json(self) -> dict[str, object]:
        names = {"at": target(self.at)}
        lists = {n: list(map(target, getattr(self, n))) for n in ("needs", "unless")}
        return {**asdict(self), **names, **lists}


def write_plants(path: Path, plants: Sequence[Plant]) -> Path:
    path.write_text(json.dumps([plant.to_json() for plant in plants]))
    return path


def target(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


@dataclass(frozen=True)
class Reduced:
    """What a search came to, and all that it saw on the way."""

    subject: Subject
    found: SearchResult

    @property
    def operators(self) -> set[str]:
        return kept(self.found.reducer.best)

    @property
    def minimal(self) -> bool:
        return self.found.reducer.minimal

    @property
    def accepted(self) -> list[set[str]]:
        """The operators of each step."""
        return [kept(candidate) for candidate in self.found.reducer.history]

    @property
    def verdicts(self) -> list[Verdict]:
        return self.found.search.verdicts()

    @property
    def by_catch(self) -> set[str]:
        """The texts of the other failures."""
        return {
            v.observation.signature.text
            for v in self.verdicts
            if v.outcome is Outcome.DIFFERENT and v.observation.signature
        }


def kept(candidate: Candidate) -> set[str]:
    """Name the operators of a candidate as a ``Plant`` does."""
    targets = map(candidate.target, candidate.keep)
    return {t.removeprefix("aten.").removesuffix(".default") for t in targets}


class Field:
    """A server with a program, where one set of plants follows another."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._plants = write_plants(model.with_suffix(".plants.json"), [])
        # One thread: on a busy machine a second one mostly waits.
        settings = {"SHRINKFX_PLANTS": str(self._plants), "OMP_NUM_THREADS": "1"}
        self._server = Server(
            model=model, preloads=[str(PRELOAD)], environment=settings
        )

    def close(self) -> None:
        self._server.close()

    def reduce(self, *plants: Plant, until: str | None = None) -> Reduced:
        """Plant, find the failure and reduce it."""
        with tempfile.TemporaryDirectory(prefix="shrinkfx-planted-") as folder:
            job = self._job(plants, until, folder)
            # Suspects would lead past what else the search may come upon.
            subject = replace(reproduce_failure(job), suspects=())
            found = reduce(subject)
            check_rest(subject, found)
        return Reduced(subject, found)

    def see(self, *plants: Plant, until: str | None = None) -> Subject:
        """Plant, and find the failure."""
        with tempfile.TemporaryDirectory(prefix="shrinkfx-planted-") as folder:
            return reproduce_failure(self._job(plants, until, folder))

    def _job(
        self, plants: Sequence[Plant], until: str | None, folder: str
    ) -> RunContext:
        write_plants(self._plants, plants)
        options = Options(model=self._model, until=until)
        context = RunContext(options, Path(folder), ignore_event)
        context.worker = self._server
        return context

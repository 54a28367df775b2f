"""Reduce a program with planted failures: all is real but the compiler."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from shrinkfx.check.baseline import Baseline, baseline
from shrinkfx.check.oracle import Compiler, Limits, make_oracle
from shrinkfx.check.server import Server
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Ending, Request, Task
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.search.forms import FormSearch
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose

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

    base: Baseline
    best: Candidate
    minimal: bool
    accepted: list[Candidate]
    verdicts: list[Verdict]
    children: int
    runs: int

    @property
    def operators(self) -> set[str]:
        return kept(self.best)

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
    targets = [candidate.skeleton.node(name).target for name in candidate.keep]
    return {t.removeprefix("aten.").removesuffix(".default") for t in targets}


@dataclass
class Field:
    """A server with a program, where one set of plants follows another."""

    model: Path
    asked: int = 0
    _server: Server = field(init=False)

    def __enter__(self) -> Self:
        self._plants = self.model.with_suffix(".plants.json")
        write_plants(self._plants, [])
        # One thread: on a busy machine a second one mostly waits.
        settings = {"SHRINKFX_PLANTS": str(self._plants), "OMP_NUM_THREADS": "1"}
        self._server = Server(
            model=self.model, preloads=[str(PRELOAD)], environment=settings
        )
        ending = self.ask(Request(Task.DESCRIBE))
        text = Path(ending.answer["skeleton"]).read_text()
        self._whole = Candidate.whole(Skeleton.from_json(json.loads(text)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    def ask(self, request: Request) -> Ending:
        self.asked += 1
        return self._server.ask(request)

    def find(self, *plants: Plant, until: str | None = None) -> Baseline:
        """Plant, and look what fails."""
        write_plants(self._plants, plants)
        return baseline(self._compiler(), until, "", 100, lambda text: None)

    def reduce(self, *plants: Plant, until: str | None = None) -> Reduced:
        """Plant, find the failure and reduce it, as ``run.py`` does."""
        asked = self.asked
        base = self.find(*plants, until=until)
        compiler = self._compiler()
        program = make_oracle(compiler, base.target, base.rate)
        in_source = compiler.with_options(form="source")
        source = make_oracle(in_source, base.target, base.rate)
        assert program.check(self._whole).reproduced
        search = FormSearch(self._whole, program, source, self._reducer)
        search.run()
        verdicts = search.verdicts()
        return Reduced(
            base=base,
            best=search.reducer.best,
            minimal=search.reducer.minimal,
            accepted=search.reducer.history,
            verdicts=verdicts,
            children=self.asked - asked,
            runs=sum(v.observation.runs for v in verdicts),
        )

    def _compiler(self) -> Compiler:
        return Compiler(self, Limits(timeout_s=60.0, max_rss_bytes=4 << 30))

    def _reducer(self, start: Candidate, oracle: Oracle, form: str) -> Reducer:
        return Reducer(start, oracle, choose(None), form=form)

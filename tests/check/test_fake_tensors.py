"""What fits is asked about ahead, too: what is learnt stays, and no trouble does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.listings import floats, given, listed, listing

from shrinkfx.check.listing import FakeTensors
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import SpeculationError, WorkerError
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import MAIN
from shrinkfx.protocol.answers import Ending, Fitted
from shrinkfx.protocol.requests import FitRewrites, Request

START = listed(
    listing("a = aten.add.Tensor(x, x, alpha=7)\nreturn (a,)", given("x", floats(2, 2)))
)
ZERO = Rewrite((Write(MAIN, "a", 2, "0"),))


@dataclass
class Worker:
    """Says that all fits, or whatever else it is told to.

    Attributes:
        asked: how many rewrites it was asked about, each time.
    """

    says: list[Ending | Exception] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def ask(self, request: Request) -> Ending:
        task = request.task
        assert isinstance(task, FitRewrites)
        self.asked.append(len(task.rewrites))
        if not self.says:
            return Ending("exit", answer=Fitted(task.rewrites, (), "no kernel"))
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


def over(worker: Worker) -> FakeTensors:
    return FakeTensors(CheckClient(worker, Limits(10.0, 1 << 30)))


def test_speculative_query_is_not_repeated() -> None:
    worker = Worker()
    fitter = over(worker)
    assert fitter.ahead().fit(START, [ZERO]) == [ZERO]
    assert fitter.unseen == ""  # the search may never come to that listing
    assert fitter.fit(START, [ZERO]) == [ZERO]
    assert fitter.types(START) == {}
    assert worker.asked == [1]
    assert fitter.unseen == "no kernel"


@pytest.mark.parametrize(
    "trouble", [Ending("signal", 9), WorkerError("it died"), OSError("no memory")]
)
def test_failed_speculative_query_is_repeated(trouble: Ending | Exception) -> None:
    worker = Worker([trouble])
    fitter = over(worker)
    with pytest.raises(SpeculationError):
        fitter.ahead().fit(START, [ZERO])
    assert fitter.refused == ""
    assert fitter.fit(START, [ZERO]) == [ZERO]
    assert fitter.refused == ""


def test_failed_query_is_reported() -> None:
    fitter = over(Worker([Ending("signal", 9)]))
    assert fitter.fit(START, [ZERO]) == [None]
    assert "signal 9" in fitter.refused
    with pytest.raises(WorkerError):
        over(Worker([WorkerError("it died")])).types(START)

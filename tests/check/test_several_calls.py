"""The interpreter, asked how many calls of a run a failure needs."""

from __future__ import annotations

import pytest
from support.doubles import Minutes

from shrinkfx.check.baseline.attempt import BaselineRequest
from shrinkfx.check.baseline.on_interpreter import probe_baseline
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import NotReproducible
from shrinkfx.protocol.answers import Ending, Raised
from shrinkfx.protocol.choices import Probe
from shrinkfx.protocol.requests import Request

STRAYS = (
    "interpreter: illegal memory access: out-of-bounds load of 4 bytes in k "
    "(aten.index) through in_ptr0 (input 0): index 9, past the end of its 9 elements "
    "[program (0, 0, 0), 1 lane] at `x = y`"
)


class FailsAtCall:
    """Strays at one call of a run, and at those that follow."""

    def __init__(self, call: int) -> None:
        self.call = call
        self.asked: list[int] = []

    def ask(self, request: Request) -> Ending:
        options = request.options
        if options.probe is not Probe.REAL:
            return Ending("exit", stage="done")
        self.asked.append(options.calls)
        if options.calls < self.call:
            return Ending("exit", stage="done")
        return Ending("exit", stage="run", answer=Raised("Report", STRAYS))


def run(server: FailsAtCall, max_calls: int) -> int:
    client = CheckClient(server, Limits(600.0, 1 << 30))
    request = BaselineRequest("ima", max_calls=max_calls, budget=Minutes())
    return probe_baseline(client, request, list(Probe)).calls


@pytest.mark.parametrize("call", [2, 3, 7, 10])
def test_minimal_number_of_calls_is_bisected_and_confirmed(call: int) -> None:
    server = FailsAtCall(call)
    assert run(server, 10) == call
    assert server.asked[:2] == [1, 10]
    assert server.asked[-1] == call
    assert len(server.asked) <= 2 + 4 + 2


def test_failure_in_the_first_call_needs_no_bisection() -> None:
    server = FailsAtCall(1)
    assert run(server, 10) == 1
    assert set(server.asked) == {1}


def test_stateless_program_is_called_once() -> None:
    server = FailsAtCall(2)
    with pytest.raises(NotReproducible):
        run(server, 1)
    assert server.asked == [1]


def test_passing_program_takes_one_additional_check() -> None:
    server = FailsAtCall(11)
    with pytest.raises(NotReproducible):
        run(server, 10)
    assert server.asked == [1, 10]

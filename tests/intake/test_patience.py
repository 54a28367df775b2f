"""When a step of a captured script hangs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from shrinkfx.intake.capture.running import ASLEEP_S, BUSY_CALL_S, HangDetector
from shrinkfx.protocol.captured import Step
from shrinkfx.system.processes import Sample


def step(what: str = "call", at: int = 1) -> Step:
    return Step(what, 1, pid=7, at=at, count=1, where="serve.py:1")


@dataclass
class Machine:
    """A clock, and what the one process does, second by second."""

    now: float = 0.0
    busy: bool = False
    moves: bool = False

    def look(self, _: int) -> Sample:
        return Sample(3.0 + self.now * self.busy, runnable=int(self.busy))

    def moved(self, _: int) -> int:
        return int(self.now) if self.moves else 100


def hangs_after(
    machine: Machine, step: Step, timeout_s: float | None = None
) -> float | None:
    """Wait for half an hour at most."""
    patience = HangDetector(
        timeout_s,
        clock=lambda: machine.now,
        look=machine.look,
        moved=machine.moved,
    )
    while machine.now < 1800:
        if patience.find_hanging_step([step]):
            return machine.now
        machine.now += 1.0
    return None


@pytest.mark.parametrize("what", ["call", "load", "compile"])
def test_sleeping_step_hangs_after_a_minute_or_two(what: str) -> None:
    came = hangs_after(Machine(), step(what))
    assert came is not None
    assert ASLEEP_S <= came <= 2 * ASLEEP_S + 2


def test_busy_call_hangs_after_ten_minutes_and_busy_compile_never() -> None:
    came = hangs_after(Machine(busy=True), step())
    assert came is not None
    assert BUSY_CALL_S <= came <= BUSY_CALL_S + 10
    assert hangs_after(Machine(busy=True), step("compile")) is None


def test_explicit_timeout_applies_to_any_step() -> None:
    for machine in (Machine(), Machine(busy=True)):
        came = hangs_after(machine, step("compile"), timeout_s=5.0)
        assert came is not None
        assert 5.0 <= came <= 8.0


def test_sleeping_step_with_io_does_not_hang() -> None:
    came = hangs_after(Machine(moves=True), step("compile"))
    assert came is None


def test_durations_of_finished_steps_are_not_added_up() -> None:
    machine = Machine()
    patience = HangDetector(
        2.0, clock=lambda: machine.now, look=machine.look, moved=machine.moved
    )
    for at in range(100):
        assert patience.find_hanging_step([step(at=at)]) is None
        machine.now += 1.0
    assert patience.find_hanging_step([]) is None

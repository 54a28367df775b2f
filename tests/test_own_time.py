"""What counts as time of a check, on machines that are only told of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shrinkfx.system.own_time import OwnTime
from shrinkfx.system.processes import Sample

LOOK_S = 0.5
"""How often processes are looked at here; every call at a look is due."""


class Machine:
    """Lets time pass in which a check does as a script says."""

    def __init__(self, cores: int = 2, crowd: int = 20) -> None:
        self.now = 100.0
        self.seen = Sample()
        self.looks = 0
        self.own = OwnTime(
            self._look, clock=lambda: self.now, cores=cores, crowd=lambda: crowd
        )

    def _look(self) -> Sample:
        self.looks += 1
        return self.seen

    def passes(
        self,
        seconds: float,
        cpu: float = 0.0,
        runnable: int = 0,
        on_disk: int = 0,
        step_s: float = LOOK_S,
        limit_s: float = 60.0,
    ) -> bool:
        """Let time pass; True once the check has exceeded its limit.

        Args:
            cpu: seconds of CPU that its processes get in a second.
        """
        for _ in range(round(seconds / step_s)):
            self.now += step_s
            used = self.seen.cpu_seconds + cpu * step_s
            self.seen = Sample(used, runnable, on_disk)
            if self.own.exceeds(limit_s):
                return True
        return False


def endless_loop(machine: Machine, seconds: float) -> bool:
    return machine.passes(seconds, cpu=1.0, runnable=1)


def deadlock(machine: Machine, seconds: float) -> bool:
    return machine.passes(seconds)


def threads_that_spin(machine: Machine, seconds: float) -> bool:
    return machine.passes(seconds, cpu=2.0, runnable=16)


def sleep_loop(machine: Machine, seconds: float) -> bool:
    """It wakes for a moment, and now and then is met in it."""
    for _ in range(round(seconds / 10)):
        if machine.passes(9.5, cpu=0.001) or machine.passes(0.5, 0.001, runnable=1):
            return True
    return False


@pytest.mark.parametrize(
    ("hang", "after_s"),
    [(endless_loop, 60), (deadlock, 60), (threads_that_spin, 60), (sleep_loop, 70)],
)
def test_hang_exceeds_the_limit_on_an_idle_machine(
    hang: Callable[[Machine, float], bool], after_s: float
) -> None:
    assert not hang(Machine(), 60)
    assert hang(Machine(), after_s + 10)


@pytest.mark.parametrize(
    ("cpu", "runnable", "cores"),
    [
        (0.1, 1, 2),
        (0.2, 2, 2),
        (0.2, 16, 2),
        (1.6, 16, 16),
        (0.0, 1, 2),
    ],
)
def test_waiting_for_a_core_does_not_count_as_check_time(
    cpu: float, runnable: int, cores: int
) -> None:
    machine = Machine(cores)
    assert not machine.passes(599, cpu, runnable)
    assert machine.own.seconds == pytest.approx(599 * cpu / min(runnable, cores))
    assert machine.own.waited_s == pytest.approx(599 - machine.own.seconds)
    assert machine.own.runnable == 20


def test_endless_loop_on_a_busy_machine_exceeds_the_limit_in_cpu_seconds() -> None:
    assert not Machine().passes(590, cpu=0.1, runnable=1)
    assert Machine().passes(610, cpu=0.1, runnable=1)


def test_deadlock_on_a_busy_machine_exceeds_the_limit_by_wall_clock() -> None:
    machine = Machine()
    machine.passes(100, cpu=0.1, runnable=1)
    assert machine.own.seconds == pytest.approx(10)
    assert not machine.passes(50)
    assert machine.passes(1)


def test_waiting_for_a_disk_does_not_count_as_check_time() -> None:
    machine = Machine()
    assert not machine.passes(500, cpu=0.02, on_disk=1)
    assert machine.own.seconds == pytest.approx(10)


def test_process_seen_asleep_once_may_have_waited_for_a_core_before() -> None:
    machine = Machine()
    for _ in range(100):
        machine.passes(LOOK_S, cpu=0.1, runnable=1)
        machine.passes(LOOK_S, cpu=0.1)
    assert machine.own.seconds == pytest.approx(10)


def test_process_on_an_idle_machine_has_no_waiting_time() -> None:
    machine = Machine()
    for _ in range(20):
        machine.passes(1, cpu=1.0, runnable=1)
        machine.passes(1, cpu=2.0, runnable=2)
    assert machine.own.seconds == pytest.approx(40)
    assert machine.own.runnable == 0


def test_process_asleep_in_a_long_gap_between_samples_may_have_waited() -> None:
    machine = Machine()
    machine.passes(LOOK_S)
    assert not machine.passes(3600, step_s=3600)
    assert machine.own.seconds == pytest.approx(2)
    assert machine.passes(60)


def test_ended_process_does_not_reduce_the_measured_cpu_time() -> None:
    machine = Machine()
    machine.passes(10, cpu=1.0, runnable=1)
    machine.seen = Sample(0.0, 1)  # a compiler that nobody has waited for yet
    machine.passes(10, cpu=1.0, runnable=1)
    machine.seen = Sample(20.0, 1)  # now its parent has
    machine.passes(10, cpu=1.0, runnable=1)
    assert machine.own.seconds == pytest.approx(30, abs=LOOK_S)


def test_processes_are_sampled_twice_a_second_and_before_the_limit() -> None:
    machine = Machine()
    assert not machine.passes(9.7, cpu=1.0, runnable=1, step_s=0.01)
    looks = machine.looks
    assert looks == pytest.approx(19, abs=1)
    assert not machine.passes(0.2, step_s=0.01, runnable=1, limit_s=9.8)
    assert machine.looks == looks + 1  # sooner than was due, and it sees that it waits

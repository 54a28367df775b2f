"""Which guard pages are chosen, from what the program does under each."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.doubles import Arguments, FakeServer, Minutes, TimedServer

from shrinkfx.check.baseline.attempt import BaselineRequest, Packages
from shrinkfx.check.baseline.with_guard_pages import (
    ON_GPU,
    Guarding,
    find_guarding,
    runs_without_guard_pages,
)
from shrinkfx.check.baseline.with_guard_pages import sanitizer_settings as under_tool
from shrinkfx.check.oracle import ENOUGH, CheckClient, Limits
from shrinkfx.errors import BudgetExhausted
from shrinkfx.protocol.answers import Checked, Difference, Ending, Raised
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.testing import chain, whole

PASSES = Ending("exit", stage="done")
WRONG = Ending("exit", stage="done", answer=Checked(Difference("nan", "wrong")))
FAULT = Ending(
    "signal",
    signal.SIGSEGV,
    "run",
    log="guard pages: illegal memory access: read just past the end of a tensor of 64 "
    "bytes\n",
)
EAGER_FAULTS = Ending("signal", signal.SIGSEGV, "eager")


def found(server: FakeServer, until: str = "ima") -> tuple[Guarding, list[str]]:
    notes: list[str] = []
    compiler = CheckClient(server, Limits(10.0, 1 << 30))
    request = BaselineRequest(until, "", notes.append)
    return find_guarding(compiler, request), notes


def under(side: str, *, reused: bool) -> Callable[[Arguments], Ending]:
    """Fault under some guard pages only, else end well with wrong values."""

    def answer(arguments: Arguments) -> Ending:
        at = arguments.get("guard_pages") == side
        return FAULT if at and ("inductor" not in arguments) == reused else WRONG

    return answer


def test_silent_out_of_bounds_access_is_found_without_other_settings() -> None:
    server = FakeServer(under(Guard.AFTER, reused=True))
    guarding, notes = found(server)
    assert (guarding.pages, guarding.inductor) == (Guard.AFTER, {})
    assert guarding.without_guards == "nan in compare: wrong (3 of 3 runs)"
    assert len(server.asked) == 4
    assert "read just past the end of a tensor of 64 bytes" in notes[-1]


@pytest.mark.parametrize(
    ("side", "reused"),
    [(Guard.AFTER, False), (Guard.BEFORE, True), (Guard.BEFORE, False)],
)
def test_guard_page_settings_are_tried_in_turn(side: Guard, reused: bool) -> None:
    guarding, _ = found(FakeServer(under(side, reused=reused)))
    assert guarding.pages == side
    no_reuse = guarding.inductor
    assert no_reuse.get("allow_buffer_reuse", True) == reused


def test_code_is_compiled_once_per_buffer_reuse_setting() -> None:
    server = FakeServer(lambda _: PASSES)
    guarding, notes = found(server)
    assert guarding == Guarding(without_guards=guarding.without_guards)
    assert guarding.without_guards.startswith("passes")
    assert "do not show the failure: continuing without guard pages" in notes[-1]
    packages = {("inductor" in asked): asked["package"] for asked in server.arguments}
    assert len(set(packages.values())) == 2
    assert all(a["package"] == packages["inductor" in a] for a in server.arguments)


def test_program_that_fails_without_guard_pages_keeps_buffer_reuse() -> None:
    """What changes that is for failures which are silent with it."""
    always = FakeServer(lambda _: FAULT)
    guarding, _ = found(always)
    assert guarding.steady
    assert (guarding.pages, guarding.inductor) == (Guard.AFTER, {})
    plainly = FakeServer(lambda asked: WRONG if "guard_pages" in asked else FAULT)
    guarding, notes = found(plainly)
    assert guarding == Guarding(without_guards=guarding.without_guards)
    assert not any("inductor" in asked for asked in plainly.arguments)
    assert "do not show the failure: continuing without guard pages" in notes[-1]


def test_flaky_failure_with_guard_pages_is_not_steady() -> None:
    endings = iter([FAULT, WRONG, FAULT, FAULT])
    assert not found(FakeServer(lambda _: next(endings)))[0].steady


def test_out_of_bounds_access_of_eager_rejects_guard_pages() -> None:
    def answer(arguments: Arguments) -> Ending:
        return EAGER_FAULTS if "guard_pages" in arguments else WRONG

    guarding, _ = found(FakeServer(answer))
    assert guarding.pages is Guard.OFF


SPOILED = Ending(
    "exit",
    stage="run",
    answer=Raised(
        "ZoneOverwritten",
        "red zones: illegal memory access: write 4 bytes past the end of a tensor of "
        "64 bytes, in triton_poi_fused_0",
    ),
    log="red zones: tensors lie between zones only: this driver cannot map pages\n",
)


def test_note_names_the_red_zones_used_on_a_gpu() -> None:
    """And weights are PyTorch's where its allocator is to have them."""

    def answer(asked: Arguments) -> Ending:
        ours = "aot_inductor.weight_use_caching_allocator" in asked.get("inductor", {})
        return SPOILED if ours else replace(SPOILED, answer=PASSES.answer)

    notes: list[str] = []
    client = CheckClient(FakeServer(answer), Limits(10.0, 1 << 30))
    guarding = find_guarding(client, BaselineRequest("ima", "", notes.append), ON_GPU)
    assert guarding.name == "after each tensor, buffers not reused"
    kinds = [note for note in notes if "tensors lie between" in note]
    zones = "tensors lie between zones only: this driver cannot map pages"
    assert kinds == [f"guard pages: {zones}"]
    assert (
        "write 4 bytes past the end of a tensor of 64 bytes, in triton_poi_fused_0"
        in notes[-1]
    )


def test_guarded_gpu_runs_have_a_separate_package() -> None:
    """Kernels are timed during compilation, and so a search's candidates are."""
    server = FakeServer(lambda asked: FAULT if "guard_pages" in asked else WRONG)
    client = CheckClient(server, Limits(10.0, 1 << 30))
    packages = Packages("/folder", on_gpu=True)
    find_guarding(client, BaselineRequest("ima"), ON_GPU, packages)
    *without, guarded = [each.options.package for each in server.asked]
    assert len(set(without)) == 1
    assert guarded not in without


REPORTED = Ending(
    "exit",
    stage="run",
    log="========= Invalid __global__ read of size 4 bytes\n"
    "=========     at triton_poi_fused_add_0+0x1b0 in c7x2.py:33\n",
)
NO_DEVICE = Ending("exit", 1, "start", log="========= Error: Device not supported.\n")


@pytest.mark.parametrize(
    ("seen", "shows"),
    [
        (REPORTED, "triton_poi_fused_add_0, line 33"),
        (NO_DEVICE, "Device not supported"),
    ],
)
def test_compute_sanitizer_is_used_in_every_check_if_supported(
    seen: Ending, shows: str
) -> None:
    """If it can: else the run goes on without, and it is said why."""
    tool = Guard.MEMCHECK
    server = FakeServer(lambda asked: seen if asked.get("guard_pages") else PASSES)
    notes: list[str] = []
    client = CheckClient(server, Limits(10.0, 1 << 30))
    guarding = find_guarding(
        client, BaselineRequest("ima", "", notes.append), under_tool(tool)
    )
    assert guarding.pages is (tool if seen is REPORTED else Guard.OFF)
    assert any(shows in note for note in notes)
    assert guarding.apply_to(CheckOptions()).guard_pages is guarding.pages


def test_different_failure_with_guard_pages_is_not_the_requested_failure() -> None:
    assert found(FakeServer(lambda _: WRONG), "ima")[0].pages is Guard.OFF
    assert found(FakeServer(lambda _: WRONG), "nan")[0].pages is Guard.AFTER


def test_unguarded_runs_share_one_compilation() -> None:
    server = FakeServer(lambda _: WRONG)
    compiler = CheckClient(
        server, Limits(10.0, 1 << 30), CheckOptions(guard_pages=Guard.AFTER)
    )
    candidate = whole(chain("x", "relu", "tanh"))
    seen = list(
        runs_without_guard_pages(compiler.with_options(inductor={"a": 1}), candidate)
    )
    assert len(seen) == len(server.asked) == ENOUGH
    assert len({asked["package"] for asked in server.arguments}) == 1
    assert not any("guard_pages" in asked for asked in server.arguments)
    assert all(asked["inductor"] == {"a": 1} for asked in server.arguments)


def timed(
    minutes: Minutes,
    until: str = "ima",
    guarded_s: float | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[Guarding, TimedServer]:
    server = TimedServer(WRONG, compile_s=40.0, run_s=2.0, minutes=minutes)
    server.guarded_s = guarded_s
    compiler = CheckClient(server, Limits(600.0, 1 << 30))
    found = find_guarding(compiler, BaselineRequest(until, "", note, budget=minutes))
    return found, server


def test_short_time_limit_skips_builds_without_buffer_reuse() -> None:
    guarding, server = timed(Minutes(180.0))
    assert not any(request.options.inductor for request in server.asked)
    assert guarding.without_guards == "nan in compare: wrong (1 of 1 runs)"
    sides = [request.options.guard_pages for request in server.asked]
    assert sides == [Guard.OFF, Guard.AFTER, Guard.BEFORE]
    _, server = timed(Minutes(1800.0))
    assert len(server.asked) == 7


def test_single_unguarded_run_does_not_count_as_steady() -> None:
    guarding, _ = timed(Minutes(100.0), "nan")
    assert guarding.name == "after each tensor"
    assert not guarding.steady
    assert timed(Minutes(), "nan")[0].steady


def test_guard_page_setting_that_exceeds_its_time_share_is_skipped() -> None:
    notes: list[str] = []
    minutes = Minutes(600.0)
    guarding, server = timed(minutes, guarded_s=590.0, note=notes.append)
    assert guarding == Guarding(without_guards=guarding.without_guards)
    given = [r.clock_s for r in server.asked if r.options.guard_pages is not Guard.OFF]
    assert given == [556 / 4, 417 / 4, 312.75 / 4, 234.5625 / 4]
    assert minutes.left == pytest.approx(556 * 0.75**4)
    cut_short = [
        note
        for note in notes
        if ("not enough time left: stopped trying guard pages") in note
    ]
    assert len(cut_short) == 4
    assert cut_short[0] == (
        "not enough time left: stopped trying guard pages after each tensor"
    )
    assert notes[-1].startswith("the guard pages tried so far do not show the failure")


def test_guard_page_failure_within_the_time_share_is_found() -> None:
    guarding, _ = timed(Minutes(600.0), "nan", guarded_s=100.0)
    assert guarding.name == "after each tensor"


def test_time_limit_during_guard_pages_keeps_the_unguarded_outcome() -> None:
    """By then the server may take no further question at all."""

    class Spent(FakeServer):
        def ask(self, request: Request) -> Ending:
            if request.options.guard_pages is not Guard.OFF:
                raise BudgetExhausted("time limit reached")
            return super().ask(request)

    guarding, _ = found(Spent(lambda _: WRONG))
    assert guarding == Guarding(without_guards="nan in compare: wrong (3 of 3 runs)")


def test_unguarded_run_that_exceeds_its_time_share_is_not_counted() -> None:
    minutes = Minutes(400.0)
    server = TimedServer(WRONG, compile_s=40.0, run_s=350.0, minutes=minutes)
    server.guarded_s = 2.0
    compiler = CheckClient(server, Limits(600.0, 1 << 30))
    guarding = find_guarding(compiler, BaselineRequest("nan", budget=minutes))
    assert guarding.without_guards == "nan in compare: wrong (1 of 1 runs)"
    assert (guarding.name, guarding.steady) == ("after each tensor", False)


def test_time_limit_in_the_first_run_ends_the_baseline() -> None:
    with pytest.raises(BudgetExhausted):
        timed(Minutes(30.0))

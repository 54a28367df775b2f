"""What is counted of the builds, and when fast ones are given up."""

from __future__ import annotations

from support.doubles import FakeServer

from shrinkfx.check.oracle import (
    MAX_FALLBACKS_IN_A_ROW,
    Builds,
    CheckClient,
    LaterBuilds,
    Limits,
)
from shrinkfx.protocol.answers import Built, Ending, Stopped
from shrinkfx.protocol.choices import Build, Step
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal
from shrinkfx.testing import chain, whole

CANDIDATE = whole(chain("x", "relu"))
FAST = Ending("exit", stage="done", built=Built(Build.FAST, Step.LINK))
DIED = Ending("signal", 11, "run", built=Built(Build.FAST, Step.LINK))
LOWERED = Ending("exit", stage="compile", built=Built(Build.FAST, Step.LOWERING))
STOPPED = Ending(
    "exit",
    stage="compile",
    answer=Stopped("lowering passes"),
    built=Built(Build.FAST, Step.WRAPPER),
)
STOCK = Ending("exit", stage="done")


def fell_back(reason: str) -> Ending:
    built = Built(Build.FAST, Step.LINK, reason)
    return Ending("exit", stage="done", built=built)


def count_builds(*endings: Ending) -> tuple[FakeServer, Builds]:
    server = FakeServer(*endings)
    options = CheckOptions(build=Build.FAST, only=Step.KERNEL)
    compiler = CheckClient(server, Limits(10.0, 1 << 30), options)
    for _ in endings:
        compiler.check_candidate(CANDIDATE)
    return server, compiler.builds


def test_builds_are_counted_by_outcome() -> None:
    endings = [FAST, fell_back("a"), DIED, LOWERED, STOPPED, fell_back("b"), STOCK]
    _, builds = count_builds(*endings, fell_back("b"))
    assert builds.to_json() == {
        "fast": 2,
        "stopped": 1,
        "fallbacks": {"b": 2, "a": 1},
    }
    assert list(builds.to_json()["fallbacks"]) == ["b", "a"]


def test_derived_clients_share_one_build_count() -> None:
    server = FakeServer(FAST, FAST)
    compiler = CheckClient(server, Limits(10.0, 1 << 30))
    compiler.with_options(build=Build.FAST).ask(CheckOriginal())
    compiler.with_limits(Limits(1.0, 1), compiler.meter).ask(CheckOriginal())
    assert compiler.builds.fast == 2


def test_fast_builds_are_abandoned_after_consecutive_fallbacks() -> None:
    failures = [fell_back("x")] * (MAX_FALLBACKS_IN_A_ROW - 1)
    server, builds = count_builds(*failures, FAST, *failures, LOWERED, STOPPED)
    assert builds.pay
    assert {request.options.build for request in server.asked} == {Build.FAST}
    server, builds = count_builds(*failures, fell_back("x"), STOCK, STOCK)
    assert not builds.pay
    words = [request.options.build for request in server.asked]
    assert words == [Build.FAST] * MAX_FALLBACKS_IN_A_ROW + [Build.STOCK] * 2


def test_stock_build_is_never_limited_to_one_step() -> None:
    server = FakeServer(STOCK)
    options = CheckOptions(build=Build.FAST, only=Step.KERNEL, calls=2)
    compiler = CheckClient(server, Limits(10.0, 1 << 30), options)
    compiler.with_stock_build().check_candidate(CANDIDATE)
    asked = server.asked[0].options
    assert (asked.build, asked.calls, asked.only) == (Build.STOCK, 2, None)


def test_speculative_builds_count_when_their_verdicts_are_used() -> None:
    """Fast builds are given up by then, if it comes after those that were in vain."""
    builds = Builds()
    ahead = [LaterBuilds(builds) for _ in range(MAX_FALLBACKS_IN_A_ROW + 2)]
    for each in ahead:
        each.add(fell_back("x"))
    assert builds == Builds()
    for each in ahead:
        each.count()
        each.count()
    assert builds.fallbacks["x"] == MAX_FALLBACKS_IN_A_ROW
    assert not builds.pay

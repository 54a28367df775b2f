"""Which probes of the interpreter are asked, and whose failure is the target."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shrinkfx.check.oracle import Compiler, Limits
from shrinkfx.check.probing import probe_baseline
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.program.messages import Ending, Probe, Request

PASSES = Ending("exit", stage="done")
STRAYS = "illegal memory access: out-of-bounds load of 4 bytes in k (aten.add) through"
TEXTS = {
    Probe.REAL: f"interpreter: {STRAYS} x (input 0): element 3 of 3",
    Probe.HINTS: f"interpreter, compile-time benchmark: {STRAYS} x (made-up)",
    Probe.COMPILE: "at 1:2:\ndef k(x):\n      ^\nNameError('y')",
}


class FailingProbes:
    """Fails where it is told to, and keeps what it was asked."""

    def __init__(self, *failing: Probe) -> None:
        self.failing = failing
        self.asked: list[Probe] = []

    def ask(self, request: Request) -> Ending:
        probe = Probe(request.arguments["probe"])
        self.asked.append(probe)
        if probe not in self.failing:
            return PASSES
        stage = Stage.RUN if probe is Probe.REAL else Stage.COMPILE
        error = {"type": "Error", "message": TEXTS[probe], "frames": []}
        return Ending("exit", stage=stage, answer={"error": error})


def probe(
    server: FailingProbes, until: str | None, probes: tuple[Probe, ...] = tuple(Probe)
) -> tuple[str | None, Kind, Stage]:
    compiler = Compiler(server, Limits(60.0, 1 << 30))
    found = probe_baseline(compiler, until, "", probes, lambda _: None)
    return found.probe, found.target.kind, found.target.stage


@pytest.mark.parametrize("until", ["ima", "any", None])
def test_first_probe_that_shows_the_failure_is_asked_twice_more(
    until: str | None,
) -> None:
    server = FailingProbes(Probe.HINTS, Probe.COMPILE)
    assert probe(server, until) == (Probe.HINTS, Kind.IMA, Stage.COMPILE)
    assert server.asked[-2:] == [Probe.HINTS, Probe.HINTS]


def test_kernels_are_compiled_only_where_that_may_be_the_failure() -> None:
    asked: Mapping[str | None, bool] = {
        "ima": False,
        "assert": False,
        "compile-error": True,
        "any": True,
        None: True,
    }
    for until, compiles in asked.items():
        server = FailingProbes()
        with pytest.raises(NotReproducible):
            probe(server, until)
        assert (Probe.COMPILE in server.asked) is compiles


def test_compile_error_is_found_behind_probes_that_show_something_else() -> None:
    server = FailingProbes(Probe.REAL, Probe.COMPILE)
    seen = probe(server, "compile-error")
    assert seen == (Probe.COMPILE, Kind.COMPILE_ERROR, Stage.COMPILE)


def test_probe_that_was_chosen_is_asked_whatever_the_kind() -> None:
    server = FailingProbes()
    with pytest.raises(NotReproducible):
        probe(server, "ima", (Probe.COMPILE,))
    assert server.asked == [Probe.COMPILE]

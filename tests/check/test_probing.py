"""The baseline on the interpreter: which probe shows the failure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from support.doubles import Minutes

from shrinkfx.check.baseline.attempt import BaselineRequest
from shrinkfx.check.baseline.on_interpreter import probe_baseline
from shrinkfx.check.baseline.stock import Baseline
from shrinkfx.check.oracle import CheckClient, Limits, RequestHandler
from shrinkfx.errors import BudgetExhausted, NotReproducible
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.protocol.answers import Checked, Ending, Raised, Unresolved
from shrinkfx.protocol.choices import Probe
from shrinkfx.protocol.requests import Request

STRAYS = (
    "interpreter{}: illegal memory access: out-of-bounds load of 4 bytes in "
    "triton_poi_fused_index_0 (aten.index) through in_ptr0 (input 0): index 9, "
    "past the end of its 9 elements [program (0, 0, 0), 1 lane] at `tl.load(in_ptr0)`"
)
ASSERTS = (
    "interpreter: device-side assert in triton_poi_fused_index_0 (aten.index): index "
    "out of bounds: 0 <= tmp4 < 9 [program (0, 0, 0), 1 lane] at `tl.device_assert()`"
)


def raises(text: str, stage: str = "run") -> Ending:
    return Ending("exit", stage=stage, answer=Raised("Report", text))


PASSES = Ending("exit", stage="done")
UNSEEN = Ending("exit", stage="done", answer=Checked(unseen=("k: 40 of 99999",)))
ABROAD = raises(STRAYS.format(""))
ABROAD_IN_BENCHMARK = raises(STRAYS.format(", compile-time benchmark"), "compile")
UNSUPPORTED = Ending("exit", stage="run", answer=Unresolved("inline assembly"))


class ByProbe:
    """Answers as the probe that is asked for does, in turn if there are several."""

    def __init__(self, answers: Mapping[str, Sequence[Ending]]) -> None:
        self._answers = {probe: list(endings) for probe, endings in answers.items()}
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        endings = self._answers.get(str(request.options.probe), [PASSES])
        return endings.pop(0) if len(endings) > 1 else endings[0]


def run(
    server: RequestHandler,
    until: str | None = None,
    match: str = "",
    *,
    ask_all: bool = False,
    max_calls: int = 1,
    minutes: Minutes | None = None,
) -> Baseline:
    compiler = CheckClient(server, Limits(600.0, 1 << 30))
    budget = minutes or Minutes()
    request = BaselineRequest(
        until, match, said.append, max_calls=max_calls, budget=budget
    )
    return probe_baseline(compiler, request, list(Probe), ask_all=ask_all)


said: list[str] = []


def test_first_probe_that_shows_the_failure_is_used() -> None:
    server = ByProbe({"hints": [ABROAD_IN_BENCHMARK]})
    base = run(server)
    assert base.probe == Probe.HINTS
    assert (base.target.kind, base.target.stage) == (Kind.IMA, Stage.COMPILE)
    assert base.rate == 1.0
    probes = [r.options.probe for r in server.asked]
    assert probes == ["real", "hints", "hints", "hints"]
    assert not any(r.fresh for r in server.asked)
    assert any("hints" in line and "compile-time benchmark" in line for line in said)


def test_crash_of_a_probe_is_confirmed_in_a_fresh_process() -> None:
    died = Ending("signal", signal.SIGSEGV, "compile")
    server = ByProbe({"hints": [died]})
    base = run(server)
    assert (base.probe, base.target.kind) == (Probe.HINTS, Kind.CRASH)
    assert [r.fresh for r in server.asked] == [False, False, True, False]


def test_all_probes_are_run_with_ask_all() -> None:
    said.clear()
    server = ByProbe({"real": [raises(ASSERTS)], "hints": [ABROAD_IN_BENCHMARK]})
    base = run(server, ask_all=True)
    assert base.probe == Probe.REAL
    probes = [r.options.probe for r in server.asked]
    assert probes == [*Probe, "real", "real"]
    assert any("hints" in line and "out-of-bounds load" in line for line in said)


@pytest.mark.parametrize("until", ["compile-error", "hang"])
def test_most_informative_probe_for_the_kind_is_run_first(until: str) -> None:
    server = ByProbe({})
    with pytest.raises(NotReproducible):
        run(server, until)
    first, *others = [r.options.probe for r in server.asked]
    assert first == Probe.COMPILE
    assert len(others) == len(Probe) - 1


def test_baseline_warns_about_unchecked_accesses() -> None:
    assert ABROAD.raised is not None
    error = replace(ABROAD.raised, notes=("k: 40 of 99999",))
    sampled = replace(ABROAD, answer=error)
    base = run(ByProbe({"real": [sampled], "contract": [UNSEEN]}))
    assert base.warning == "not checked: k: 40 of 99999"
    assert run(ByProbe({"real": [ABROAD], "contract": [UNSEEN]})).warning == ""


def test_probe_is_chosen_by_the_requested_kind() -> None:
    server = ByProbe({"real": [raises(ASSERTS)], "hints": [ABROAD_IN_BENCHMARK]})
    assert run(server, "ima").probe == Probe.HINTS
    assert run(server, "assert").probe == Probe.REAL
    assert run(server, None, "compile-time").probe == Probe.HINTS


def test_error_lists_the_outcome_of_each_probe() -> None:
    server = ByProbe({"real": [UNSUPPORTED], "hints": [ABROAD_IN_BENCHMARK]})
    with pytest.raises(NotReproducible) as caught:
        run(server, "mismatch")
    assert "real: inline assembly" in str(caught.value)
    assert "--until ima" in str(caught.value)


def test_passing_probe_reports_unchecked_accesses() -> None:
    said.clear()
    with pytest.raises(NotReproducible) as caught:
        run(ByProbe({"real": [UNSEEN]}), "ima")
    assert any("k: 40 of 99999" in line for line in said)
    assert "real: finds nothing; not checked: k: 40 of 99999" in str(caught.value)
    assert str(caught.value).count("finds nothing") == 3
    assert "the same result as eager" not in str(caught.value)
    assert "reduce it on a GPU" in str(caught.value)


def test_only_a_complete_probe_is_compared_with_eager() -> None:
    with pytest.raises(NotReproducible) as caught:
        run(ByProbe({"real": [PASSES]}), "ima")
    assert str(caught.value).count("the same result as eager") == 1
    assert str(caught.value).count("finds nothing") == 2


def test_interpreter_timeout_is_not_a_hang_of_the_program() -> None:
    slow = Ending("timeout", stage="run")
    with pytest.raises(NotReproducible, match="timeout in run"):
        run(ByProbe({"real": [slow], "hints": [slow]}))
    assert run(ByProbe({"compile": [slow]}), "hang").target.kind is Kind.HANG


def test_python_code_generation_error_is_inconclusive() -> None:
    raised = raises("AssertionError: expected sympy.Symbol", "compile")
    with pytest.raises(NotReproducible, match="inconclusive: Inductor for Python"):
        run(ByProbe({"real": [raised], "contract": [raised]}))
    base = run(ByProbe({"real": [raised], "hints": [raised]}))
    assert (base.probe, base.target.stage) == (Probe.HINTS, Stage.COMPILE)


def test_unsupported_program_does_not_pass() -> None:
    with pytest.raises(NotReproducible, match="reduce it on a GPU"):
        run(ByProbe({"real": [UNSUPPORTED]}))


def test_unrepeatable_finding_is_not_a_baseline() -> None:
    with pytest.raises(NotReproducible, match="report this"):
        run(ByProbe({"real": [ABROAD, PASSES]}))


@pytest.mark.parametrize(
    ("until", "compiles"),
    [("ima", False), ("assert", False), ("compile-error", True), (None, True)],
)
def test_compile_probe_is_run_only_for_kinds_with_compile_errors(
    until: str | None, compiles: bool
) -> None:
    server = ByProbe({})
    with pytest.raises(NotReproducible):
        run(server, until)
    asked = [r.options.probe for r in server.asked]
    assert (Probe.COMPILE in asked) is compiles


class Slow(ByProbe):
    """Each probe takes its time, but no longer than it is given."""

    def __init__(
        self,
        answers: Mapping[str, Sequence[Ending]],
        seconds: Mapping[str, float],
        minutes: Minutes,
    ) -> None:
        super().__init__(answers)
        self.seconds, self.minutes = seconds, minutes

    def ask(self, request: Request) -> Ending:
        ending = super().ask(request)
        needed = self.seconds[str(request.options.probe)]
        took = min(needed, request.wall_clock_limit_s)
        if took > self.minutes.left:
            raise BudgetExhausted("time limit reached")
        self.minutes.left -= took
        if took < needed:
            return Ending("late", stage="run", seconds=took)
        return replace(ending, seconds=took)


def test_slow_probe_leaves_time_for_the_next_probe() -> None:
    minutes = Minutes(1080.0)
    seconds = {"real": 9000.0, "hints": 9000.0, "contract": 40.0, "compile": 1.0}
    base = run(Slow({"contract": [ABROAD]}, seconds, minutes), minutes=minutes)
    assert base.probe == Probe.CONTRACT
    assert minutes.left > 2 * 40.0
    assert minutes.kept == 40.0


def test_probe_cut_off_by_the_time_limit_is_not_a_hang() -> None:
    """It is not said to pass either: the minutes were too few to tell."""
    minutes = Minutes(60.0)
    server = Slow({}, dict.fromkeys(Probe, 500.0), minutes)
    with pytest.raises(BudgetExhausted):
        run(server, minutes=minutes)
    minutes = Minutes(60.0)
    quick = {"real": 500.0, "hints": 1.0, "contract": 1.0, "compile": 1.0}
    with pytest.raises(
        BudgetExhausted, match="real: inconclusive: this probe takes more than"
    ):
        run(Slow({}, quick, minutes), minutes=minutes)
    minutes = Minutes(60.0)
    with pytest.raises(BudgetExhausted):
        run(Slow({}, dict.fromkeys(Probe, 50.0), minutes), "hang", minutes=minutes)


def test_finding_is_not_confirmed_if_time_is_short() -> None:
    minutes = Minutes(180.0)
    server = Slow({"real": [ABROAD]}, dict.fromkeys(Probe, 70.0), minutes)
    base = run(server, minutes=minutes)
    assert (
        "not enough time was left: the probe showed the failure once and "
        "was not repeated"
    ) in base.warning
    assert len(server.asked) == 1
    minutes = Minutes(180.0)
    server = Slow({"real": [ABROAD]}, dict.fromkeys(Probe, 70.0), minutes)
    run(server, ask_all=True, minutes=minutes)
    assert len(server.asked) == 1


def test_time_limit_during_confirmation_keeps_the_finding() -> None:
    class Slower(Slow):
        def ask(self, request: Request) -> Ending:
            self.seconds = dict.fromkeys(Probe, 500.0 if self.asked else 40.0)
            return super().ask(request)

    minutes = Minutes(400.0)
    server = Slower({"real": [ABROAD] * 3}, {}, minutes)
    base = run(server, minutes=minutes)
    assert base.target.kind == "ima"
    assert (
        "not enough time was left: the probe showed the failure once and "
        "was not repeated"
    ) in base.warning
    assert len(server.asked) == 3

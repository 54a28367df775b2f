"""Which decisions of the compiler a failure needs, asked of a compiler that is none."""

from __future__ import annotations

import json
import random
import signal
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.cause import KnownFacts, explain
from shrinkfx.explain.decisions import (
    MOST,
    SWITCHES,
    find_decisions,
    list_switches,
    needed_applications,
    needed_switches,
)
from shrinkfx.explain.reduced_program import ReducedProgram, Variants
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.decisions import (
    Decisions,
    OptionSearch,
    Setting,
    SkippedPart,
    UnneededSubsystem,
    by_hand,
    format_avoiding,
    format_decisions,
    mark_only_shows,
)
from shrinkfx.findings.operators import Operator
from shrinkfx.protocol.answers import Checked, Difference, Ending, Raised, Settings
from shrinkfx.protocol.choices import (
    Build,
    CandidateForm,
    InductorOptions,
    Probe,
    Subsystem,
)
from shrinkfx.protocol.files import Application
from shrinkfx.protocol.kernel_values import KernelValues, Wrong
from shrinkfx.protocol.requests import CheckOptions, LeaveOut, ReadSettings, Request
from shrinkfx.testing import chain, whole

TARGET = Signature(Kind.MISMATCH, Stage.COMPARE, "")
FAILS = Ending("exit", stage="compare", answer=Checked(Difference("values", "off")))
PASSES = Ending("exit", stage="done", answer=Checked())
DIES = Ending("signal", signal.SIGSEGV, "run")
REFUSES = Ending("exit", stage="compile", answer=Raised("LoweringException", "no"))
HANGS = Ending("timeout", stage="run")

USUAL = set(
    """
cpp.enable_loop_tail_vec cpp.simdlen cpp.threads cpp.weight_prepack epilogue_fusion
prologue_fusion cpp.max_horizontal_fusion_size loop_ordering_after_fusion
loop_reindexing_after_fusion loop_index_inversion_in_fusion max_fusion_size
max_pointwise_cat_inputs inplace_padding inplace_buffers allow_buffer_reuse
online_softmax apply_gumbel_max_trick optimize_scatter_upon_const_tensor pattern_matcher
joint_graph_constant_folding use_dce reorder_for_locality
reorder_for_peak_memory layout_optimization shape_padding comprehensive_padding
assume_unaligned_fallback_output unroll_reductions_threshold split_reductions
emulate_precision_casts fallback_random aot_inductor.compile_wrapper_opt_level
triton.max_tiles
""".split()  # noqa: SIM905 - thirty lines else
)
"""What PyTorch 2.15 decides if nobody says otherwise; the last one for CUDA."""

ON_CPU = [s for s in list_switches(for_cuda=False) if s.option in USUAL]
OF_THE_USER: InductorOptions = {"max_autotune": True, "size_asserts": False}
COUNTS = {Subsystem.JOINT: 4, Subsystem.POST_GRAD: 9, Subsystem.LOWERINGS: 6}

Compiles = Callable[[InductorOptions], Ending]


def unlike(switch: Setting) -> bool | int | str:
    """Make up a value with which the compiler decides, if it usually does."""
    if switch.option not in USUAL:
        return switch.value
    if isinstance(switch.value, bool):
        return not switch.value
    return 7 if isinstance(switch.value, int) else "O1"


@dataclass
class Compiler:
    """Fails, or not, by its settings and by what it leaves out.

    Attributes:
        does: what it does with settings that are other than usual.
        lacks: settings that this version does not have.
        asked: each compilation, in order.
    """

    does: Compiles = lambda _: FAILS
    does_without: Callable[[LeaveOut], Ending] = lambda _: FAILS
    lacks: frozenset[str] = frozenset()
    fixed: tuple[str, ...] = ()
    cuda: bool = False
    asked: list[CheckOptions] = field(default_factory=list)

    def ask(self, request: Request) -> Ending:
        if isinstance(request.task, ReadSettings):
            names = {
                s.option: unlike(s) for s in SWITCHES if s.option not in self.lacks
            }
            there = {name: names[name] for name in request.task.wanted if name in names}
            return Ending(
                "exit", stage="done", answer=Settings(there, self.fixed, self.cuda)
            )
        options = request.options
        self.asked.append(options)
        if options.leave_out is None:
            return self.does(options.inductor)
        told = [
            Application(part, n, f"pass_{n}")
            for part, count in COUNTS.items()
            for n in range(count)
        ]
        path = Path(options.leave_out.applications)
        path.write_text("".join(one.to_line() for one in told))
        return self.does_without(options.leave_out)


def minimum(compiler: Compiler, target: Signature = TARGET) -> ReducedProgram:
    limits = Limits(timeout_s=60.0, max_rss_bytes=1 << 30)
    client = CheckClient(compiler, limits, CheckOptions(inductor=OF_THE_USER))
    return ReducedProgram(client, whole(chain("x", "relu", "tanh", "erfc")), target)


def passes_with(*needed: str, otherwise: Ending = FAILS) -> Compiles:
    """Pass where all these are careful."""
    careful = {s.option: s.value for s in SWITCHES}

    def does(inductor: InductorOptions) -> Ending:
        right = all(inductor.get(name) == careful[name] for name in needed)
        return PASSES if right else otherwise

    return does


@pytest.mark.parametrize(
    ("needed", "median", "most"), [(1, 10, 13), (2, 19, 21), (3, 24, 30)]
)
def test_needed_switches_are_found_within_a_compilation_limit(
    needed: int, median: int, most: int
) -> None:
    draw, counts = random.Random(1), []
    for _ in range(40):
        names = [s.option for s in draw.sample(ON_CPU, needed)]
        compiler = Compiler(passes_with(*names))
        found = needed_switches(Variants(minimum(compiler)))
        assert {setting.option for setting in found.passes_with} == {*names}
        assert found.minimal
        assert found.compilations == len(compiler.asked)
        counts.append(found.compilations)
    assert statistics.median(counts) <= median
    assert max(counts) <= most <= MOST


def test_failure_independent_of_switches_takes_one_compilation() -> None:
    compiler = Compiler()
    found = needed_switches(Variants(minimum(compiler)))
    assert (found.passes_with, found.compilations, found.unknown) == ((), 1, "")
    assert found.tried == len(ON_CPU)
    assert [setting.option for setting in found.settings] == [s.option for s in ON_CPU]
    assert format_avoiding(Decisions(found), TARGET) == []
    (asked,) = compiler.asked
    assert asked.inductor == {
        **OF_THE_USER,
        **{s.option: s.value for s in ON_CPU},
    }


@pytest.mark.parametrize("other", [DIES, REFUSES, HANGS])
def test_different_failure_does_not_count_as_a_pass(other: Ending) -> None:
    """Nor does it stand in the way, where switches make it that are not needed."""
    compiler = Compiler(passes_with("cpp.simdlen", otherwise=other))
    found = needed_switches(Variants(minimum(compiler)))
    assert [s.option for s in found.passes_with] == ["cpp.simdlen"]

    def does(inductor: InductorOptions) -> Ending:
        if inductor.get("use_dce") is False:
            return other
        return passes_with("cpp.threads")(inductor)

    found = needed_switches(Variants(minimum(Compiler(does))))
    assert [s.option for s in found.passes_with] == ["cpp.threads"]
    found = needed_switches(Variants(minimum(Compiler(lambda _: other))))
    assert not found.passes_with
    assert "fails differently" in found.unknown
    assert format_decisions(Decisions(found), TARGET) == []


@pytest.mark.parametrize(
    ("coarse", "fine"),
    [
        ("cpp.simdlen", "cpp.enable_loop_tail_vec"),
        ("max_fusion_size", "epilogue_fusion"),
        ("max_fusion_size", "loop_ordering_after_fusion"),
        ("pattern_matcher", "online_softmax"),
    ],
)
def test_finer_switch_is_preferred_to_a_coarser_one(coarse: str, fine: str) -> None:
    does = [passes_with(coarse), passes_with(fine)]

    def either(inductor: InductorOptions) -> Ending:
        return PASSES if PASSES in [one(inductor) for one in does] else FAILS

    found = needed_switches(Variants(minimum(Compiler(either))))
    assert [s.option for s in found.passes_with] == [fine]


def test_switch_that_passes_by_chance_is_not_reported() -> None:
    draw = random.Random(3)
    told: list[Setting] = []
    for _ in range(30):
        compiler = Compiler(lambda _: draw.choice([PASSES, FAILS]))
        found = needed_switches(Variants(replace(minimum(compiler), rate=0.5)))
        told += found.passes_with
    assert told == []


def test_missing_and_fixed_switches_are_skipped() -> None:
    compiler = Compiler(lacks=frozenset({"cpp.simdlen"}), fixed=("allow_buffer_reuse",))
    found = needed_switches(Variants(minimum(compiler)))
    assert found.missing == ("cpp.simdlen",)
    assert found.fixed == ("allow_buffer_reuse",)
    assert found.tried == len(ON_CPU) - 2
    assert not {"cpp.simdlen", "allow_buffer_reuse"} & {*compiler.asked[0].inductor}


def test_interpreter_kernels_have_their_own_switches() -> None:
    compiler = Compiler(passes_with("triton.max_tiles"), cuda=True)
    made = minimum(compiler)
    made = made.with_client(made.client.with_options(probe=Probe.REAL))
    found = find_decisions(made)
    assert found.switching is not None
    assert [s.option for s in found.switching.passes_with] == ["triton.max_tiles"]
    assert all(asked.build is Build.STOCK for asked in compiler.asked)


CAREFUL = {s.option: s for s in SWITCHES}
IN_MEMORY = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)
COMPILING = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "no")
GUILTY, READER, OTHER, MINE = (
    Operator(name, name)
    for name in ("aten.a.default", "aten.b.default", "aten.c.default", "mine.d.default")
)


def passing(*options: str, minimal: bool = True) -> Decisions:
    settings = tuple(CAREFUL[option] for option in options)
    return Decisions(OptionSearch(3, settings, minimal=minimal))


def skipped(number: int, of: int = 6, **facts: Any) -> Decisions:
    part = facts.pop("part", Subsystem.LOWERINGS)
    name = facts.pop("name", f"aten.x{number}")
    return Decisions(left_out=(SkippedPart(part, number, of, name, **facts),))


def blaming(found: Decisions, *culprits: Operator) -> Decisions:
    return mark_only_shows(found, culprits, (GUILTY, READER, OTHER, MINE))


FAILING_IN_VAIN = Decisions(
    OptionSearch(tried=3),
    not_needed=(
        UnneededSubsystem(Subsystem.JOINT, 4),
        UnneededSubsystem(Subsystem.POST_GRAD, 1),
    ),
)
DESCRIBED: dict[str, tuple[Decisions, Signature]] = {
    "one option": (passing("cpp.simdlen"), TARGET),
    "an option in the plural": (passing("cpp.threads"), TARGET),
    "an option of something": (passing("allow_buffer_reuse"), TARGET),
    "an option left out": (passing("emulate_precision_casts"), TARGET),
    "two options": (passing("cpp.simdlen", "max_fusion_size"), TARGET),
    "not minimal": (passing("cpp.simdlen", "use_dce", minimal=False), TARGET),
    "an option hides a crash": (passing("inplace_buffers"), IN_MEMORY),
    "an option avoids an error": (passing("joint_graph_constant_folding"), COMPILING),
    "nothing matters": (FAILING_IN_VAIN, TARGET),
    "a lowering": (skipped(2, alone=True, onwards=True), TARGET),
    "the only lowering": (skipped(0, 1, alone=True, onwards=True), TARGET),
    "the first lowering": (skipped(0, 3, onwards=True), TARGET),
    "the last lowering": (skipped(2, 3, onwards=True), TARGET),
    "lowerings together": (skipped(2, onwards=True), TARGET),
    "a decomposed operator": (
        skipped(2, alone=True, name="prims.x", origin="aten.x"),
        TARGET,
    ),
    "a pass": (skipped(7, 9, part=Subsystem.POST_GRAD, alone=True), TARGET),
    "the lowering of a culprit": (
        blaming(skipped(0, name="prims.x", origin=GUILTY.name, alone=True), GUILTY),
        TARGET,
    ),
    "the lowering of a reader": (
        blaming(skipped(1, name=READER.name, alone=True), GUILTY),
        TARGET,
    ),
    "a lowering, the culprit is unknown": (
        blaming(skipped(1, name=READER.name, alone=True)),
        TARGET,
    ),
    "a pass, the culprit is a custom operator": (
        blaming(skipped(7, 9, part=Subsystem.POST_GRAD, alone=True), MINE),
        TARGET,
    ),
    "an option, the culprit is a custom operator": (
        blaming(passing("inplace_buffers"), MINE),
        TARGET,
    ),
}


def all_texts() -> str:
    texts = []
    for name, (found, target) in DESCRIBED.items():
        avoiding = format_avoiding(found, target)
        lines = [
            f"{'cause' if text in avoiding else 'more'}: {text}"
            for text in format_decisions(found, target)
        ]
        by = [f"by hand: {command}" for command in by_hand(found)]
        texts.append("\n".join([f"# {name}", *lines, *by]))
    return "\n\n".join(texts) + "\n"


def test_decisions_match_the_golden_file() -> None:
    """Read it in one go, and record it again where it is to change."""
    golden = Path(__file__).parents[1] / "golden" / "decisions.txt"
    assert all_texts() == golden.read_text()


# --- by number


def leaves_out(asked: LeaveOut, part: Subsystem, number: int) -> bool:
    last = COUNTS[part] if asked.last is None else asked.last
    return part in asked.subsystems and asked.first <= number <= last


def needs(part: Subsystem, *numbers: int) -> Callable[[LeaveOut], Ending]:
    """Pass without any one of these."""
    return lambda asked: (
        PASSES if any(leaves_out(asked, part, n) for n in numbers) else FAILS
    )


@pytest.mark.parametrize("part", COUNTS)
def test_needed_application_is_found_by_number(part: Subsystem) -> None:
    for number in range(COUNTS[part]):
        compiler = Compiler(does_without=needs(part, number))
        found = needed_applications(Variants(minimum(compiler)))
        (one,) = found.left_out
        assert (one.subsystem, one.number, one.of, found.unknown) == (
            part,
            number,
            COUNTS[part],
            (),
        )
        assert one.alone
        assert one.onwards
        others = {(other, COUNTS[other]) for other in COUNTS if other != part}
        assert {(each.subsystem, each.of) for each in found.not_needed} == others
        assert len(compiler.asked) <= 13 + number


def test_numbers_refer_to_program_form_if_source_form_does_not_fail() -> None:
    """A repro holds the program itself then."""

    @dataclass
    class FailsAsProgram(Compiler):
        def ask(self, request: Request) -> Ending:
            ending = super().ask(request)
            return PASSES if request.options.form is CandidateForm.SOURCE else ending

    compiler = FailsAsProgram(does_without=needs(Subsystem.LOWERINGS, 2))
    found = find_decisions(minimum(compiler))
    assert [one.number for one in found.left_out] == [2]
    assert found.unknown == ()


@pytest.mark.parametrize("part", COUNTS)
def test_last_application_is_not_tested_with_later_ones(part: Subsystem) -> None:
    def compilations(number: int) -> int:
        compiler = Compiler(does_without=needs(part, number))
        needed_applications(Variants(minimum(compiler)))
        return len(compiler.asked)

    last = COUNTS[part] - 1
    assert compilations(last) <= compilations(last - 1)


def test_needed_applications_are_listed_last_first() -> None:
    compiler = Compiler(does_without=needs(Subsystem.LOWERINGS, 1, 4))
    found = needed_applications(Variants(minimum(compiler))).left_out
    told = [(one.number, one.alone, one.onwards) for one in found]
    assert told == [(4, True, True), (1, True, False)]
    assert len(by_hand(Decisions(left_out=found))) == 2


def test_decisions_count_compilations_and_have_no_commands_if_interpreted() -> None:
    compiler = Compiler(does_without=needs(Subsystem.LOWERINGS, 2))
    found = find_decisions(minimum(compiler))
    assert [one.number for one in found.left_out] == [2]
    assert by_hand(found)
    assert by_hand(replace(found, interpreted=True)) == []
    assert Decisions.from_json(json.loads(found.to_line())) == found
    assert found.compilations == len(compiler.asked)


def test_only_passes_are_tried_if_the_graph_was_changed() -> None:
    compiler = Rewrites(does_without=needs(Subsystem.POST_GRAD, 7))
    found = explain(minimum(compiler), KnownFacts())
    assert found.cause == (
        "The graph that Inductor lowers gives a different result for "
        "aten.tanh.default than the program, although both run in eager: the result "
        "has another dtype. No kernel is at fault.",
        "The failure disappears when post-grad pass 7 (pass_7) is skipped: the "
        "failure needs the change that this pass makes to the graph.",
    )
    assert {one.inductor == OF_THE_USER for one in compiler.asked} == {True}
    left_out = [one.leave_out for one in compiler.asked if one.leave_out]
    assert Subsystem.LOWERINGS not in {p for one in left_out for p in one.subsystems}


class Rewrites(Compiler):
    """Has a pass that changes what the graph computes."""

    def ask(self, request: Request) -> Ending:
        wrong = Wrong(metadata="the result has another dtype")
        table = KernelValues(rewritten="tanh", rewritten_wrong=wrong)
        if request.options.values:
            Path(request.options.values).write_text(table.to_line())
        return super().ask(request)


def test_lowering_needed_only_together_with_later_ones_is_found() -> None:
    def without(asked: LeaveOut) -> Ending:
        both = [leaves_out(asked, Subsystem.LOWERINGS, n) for n in (2, 4)]
        return PASSES if all(both) else FAILS

    compiler = Compiler(does_without=without)
    (one,) = needed_applications(Variants(minimum(compiler))).left_out
    assert (one.number, one.alone, one.onwards) == (2, False, True)


def test_applications_are_tried_alone_if_skipping_all_fails_differently() -> None:
    def without(asked: LeaveOut) -> Ending:
        if asked.subsystems and asked.last is None:
            return REFUSES
        return needs(Subsystem.LOWERINGS, 3)(asked)

    compiler = Compiler(does_without=without)
    (one,) = needed_applications(Variants(minimum(compiler))).left_out
    assert (one.subsystem, one.number) == (Subsystem.LOWERINGS, 3)
    assert (one.alone, one.onwards) == (True, False)
    assert by_hand(Decisions(left_out=(one,))) == []


@pytest.mark.parametrize("alone", [REFUSES, DIES])
def test_pass_required_to_compile_is_not_reported(alone: Ending) -> None:
    """It fails with each other one left out, so that none of them is needed."""

    def without(asked: LeaveOut) -> Ending:
        return alone if leaves_out(asked, Subsystem.POST_GRAD, 2) else FAILS

    found = needed_applications(Variants(minimum(Compiler(does_without=without))))
    assert found.left_out == ()
    assert found.unknown == ()


def test_unrepeatable_result_is_not_reported() -> None:
    answers = {Build.FAST: PASSES, Build.STOCK: FAILS}

    class Moody(Compiler):
        def ask(self, request: Request) -> Ending:
            ending = super().ask(request)
            asked = request.options.leave_out
            if asked and leaves_out(asked, Subsystem.JOINT, 1):
                return answers[request.options.build]
            return ending

    fast = Variants(minimum(Moody())).with_fast_build()
    found = needed_applications(fast)
    assert found.left_out == ()
    assert found.unknown == (
        "without any of the 4 joint passes it passes, and without one of them it does "
        "not pass each time (2 tried)",
    )
    passes = Compiler(lambda _: PASSES, lambda _: PASSES)
    found = needed_applications(Variants(minimum(passes)))
    assert found.left_out == ()
    assert found.unknown == ("the source form does not fail in every run",)


@dataclass
class Short:
    """Minutes that are over after so many questions."""

    left: int

    def has(self, seconds: float) -> bool:
        return self.left > 0

    def share(self) -> float:
        self.left -= 1
        return 1.0 if self.left >= 0 else 0.0

    def keep(self, check_s: float) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("questions", [0, 1, 5, 12])
def test_short_time_budget_is_reported(questions: int) -> None:
    compiler = Compiler(passes_with("max_fusion_size"))
    made = replace(minimum(compiler), budget=Short(questions), seconds=0.5)
    found = find_decisions(made)
    assert len(compiler.asked) <= questions
    assert found.unknown
    assert all("not enough time left" in why for why in found.unknown)


def test_switch_table_has_no_duplicates() -> None:
    options = [switch.option for switch in SWITCHES]
    assert len(options) == len({*options})
    table: Mapping[str, Any] = {s.option: s.what for s in SWITCHES}
    assert all(table.values())

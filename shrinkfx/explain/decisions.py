"""Reduce the compiler's decisions to those that the failure needs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from shrinkfx.errors import BudgetExhausted
from shrinkfx.explain.reduced_program import ReducedProgram, Variants
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.decisions import (
    PARTS,
    Decisions,
    OptionSearch,
    Setting,
    SkippedPart,
    UnneededSubsystem,
    counted,
)
from shrinkfx.protocol.choices import CandidateForm, Subsystem
from shrinkfx.protocol.files import Application
from shrinkfx.protocol.requests import LeaveOut
from shrinkfx.search.bundles import Key, Probabilities, Subset
from shrinkfx.system import scratch

# Inductor options that disable a decision of the compiler, with conservative values.
#
# They are of PyTorch 2.11 to 2.15. An option that a version does not have, or that
# has its conservative value already, is skipped. If either of two options is
# sufficient, the search drops the first one. So an option that disables much comes
# before one that disables a part of it.


class SwitchDevice(Enum):
    """The device whose code a decision affects."""

    CPU = "CPU"
    CUDA = "CUDA"


@dataclass(frozen=True)
class Switch:
    """A decision of the compiler that an option disables.

    Attributes:
        conservative: the conservative value of the option, which disables the decision.
        what: a description of the decision.
        on: the only device whose code the decision affects; None for both.
    """

    option: str
    conservative: bool | int | str
    what: str
    on: SwitchDevice | None = None


_CPU, _CUDA = SwitchDevice

SWITCHES = (
    # Code for the CPU.
    Switch("cpp.simdlen", 1, "vectorised code", _CPU),
    Switch("cpp.enable_loop_tail_vec", False, "vectorised loop tails", _CPU),
    Switch("cpp.threads", 1, "parallel loops", _CPU),
    Switch("cpp.enable_unsafe_math_opt_flag", False, "unsafe math of g++", _CPU),
    Switch("cpp.enable_floating_point_contract_flag", "off", "fused a*b+c", _CPU),
    Switch("cpp.use_decompose_tanh", False, "a decomposed tanh", _CPU),
    Switch("cpp.fallback_scatter_reduce_sum", True, "Inductor's own scatter", _CPU),
    Switch("cpp.weight_prepack", False, "prepacked weights", _CPU),
    # Fusion.
    Switch("max_fusion_size", 1, "fusion of kernels"),
    Switch("epilogue_fusion", False, "fused epilogues"),
    Switch("prologue_fusion", False, "fused prologues"),
    Switch("cpp.max_horizontal_fusion_size", 1, "horizontal fusion", _CPU),
    Switch("aggressive_fusion", False, "aggressive fusion"),
    Switch("combo_kernels", False, "combined kernels"),
    Switch("loop_ordering_after_fusion", False, "reordered loops of fused kernels"),
    Switch("loop_reindexing_after_fusion", False, "reindexed loops of fused kernels"),
    Switch("loop_index_inversion_in_fusion", False, "inverted indices in fusion"),
    Switch("max_pointwise_cat_inputs", 0, "concatenation as a pointwise operator"),
    Switch("force_pointwise_cat", False, "concatenation as a pointwise operator"),
    # Shared memory.
    Switch("inplace_padding", False, "padding in place"),
    Switch("inplace_buffers", False, "results written over operands"),
    Switch("allow_buffer_reuse", False, "reuse of buffers"),
    Switch("memory_planning", False, "planned memory"),
    Switch("aot_inductor.allow_stack_allocation", False, "buffers on the stack", _CPU),
    Switch(
        "aot_inductor.use_minimal_arrayref_interface",
        False,
        "the minimal arrayref interface",
        _CPU,
    ),
    # Graph passes. Two options are missing because correct programs do not compile
    # with them: constant_and_index_propagation=False (2.11: "NotImplementedError:
    # argument of type"), selective_decompose=True ("both a fallback and a decomp").
    Switch("pattern_matcher", False, "replaced patterns"),
    Switch("online_softmax", False, "online softmax"),
    Switch("apply_gumbel_max_trick", False, "the Gumbel-max trick"),
    Switch("optimize_scatter_upon_const_tensor", False, "scatter into constants"),
    Switch("efficient_conv_bn_eval_fx_passes", False, "folded batch normalisation"),
    Switch("permute_fusion", False, "fused permutations"),
    Switch("b2b_gemm_pass", False, "back-to-back matrix products"),
    Switch("decompose_mem_bound_mm", False, "decomposed matrix products"),
    Switch("conv_1x1_as_mm", False, "convolutions as matrix products"),
    Switch("joint_graph_constant_folding", False, "folded constants"),
    Switch("use_dce", False, "removal of dead code"),
    Switch("reorder_for_locality", False, "reordering for locality"),
    Switch("reorder_for_peak_memory", False, "reordering for memory"),
    Switch("freezing", False, "freezing"),
    Switch(
        "aot_inductor.use_runtime_constant_folding", False, "load-time constant folding"
    ),
    # Tensor layouts.
    Switch("layout_optimization", False, "layout optimisation"),
    Switch("shape_padding", False, "padded shapes"),
    Switch("force_shape_pad", False, "padded shapes"),
    Switch("pad_dynamic_shapes", False, "padded dynamic shapes"),
    Switch("pad_channels_last", False, "padded channels"),
    Switch("pad_outputs", False, "padded outputs"),
    Switch("comprehensive_padding", False, "padded strides"),
    Switch("keep_output_stride", True, "Inductor's own output strides"),
    Switch(
        "triton.divisible_by_16", False, "arguments known to be divisible by 16", _CUDA
    ),
    Switch("assume_aligned_inputs", False, "inputs taken for aligned"),
    Switch("assume_unaligned_fallback_output", True, "results taken for aligned"),
    Switch("assume_32bit_indexing", False, "32-bit indices"),
    # Reductions.
    Switch("unroll_reductions_threshold", 1, "unrolled reductions"),
    Switch("split_reductions", False, "split reductions"),
    Switch("triton.persistent_reductions", False, "persistent reductions", _CUDA),
    Switch("triton.cooperative_reductions", False, "cooperative reductions", _CUDA),
    Switch(
        "triton.force_cooperative_reductions", False, "cooperative reductions", _CUDA
    ),
    Switch("triton.mix_order_reduction", False, "mixed-order reductions", _CUDA),
    Switch("triton.nested_reduction", False, "nested reductions", _CUDA),
    Switch("triton.tile_reductions", False, "tiled reductions", _CUDA),
    Switch("triton.scalar_accumulators", False, "accumulators by row", _CUDA),
    # Triton.
    Switch("triton.emit_pointer_range_32", False, "32-bit pointers", _CUDA),
    Switch("triton.coalesce_tiling_analysis", False, "tiling that coalesces", _CUDA),
    Switch("triton.prefer_nd_tiling", False, "tiling in several dimensions", _CUDA),
    Switch("triton.max_tiles", 1, "tiling", _CUDA),
    Switch("triton.use_block_ptr", False, "block pointers", _CUDA),
    Switch("triton.use_tensor_descriptor", False, "tensor descriptors", _CUDA),
    Switch("triton.multi_kernel", 0, "a run-time choice of kernels", _CUDA),
    # Autotuning.
    Switch("max_autotune", False, "autotuning"),
    Switch("max_autotune_gemm", False, "autotuned matrix products"),
    Switch("max_autotune_pointwise", False, "autotuned pointwise kernels"),
    Switch("coordinate_descent_tuning", False, "tuning by coordinate descent"),
    # Numerics.
    Switch("emulate_precision_casts", True, "roundings left out between operators"),
    Switch("eager_numerics.division_rounding", True, "approximate division", _CUDA),
    Switch("use_fast_math", False, "fast math", _CUDA),
    Switch("fallback_random", True, "Inductor's own random numbers"),
    # The library.
    Switch(
        "aot_inductor.compile_wrapper_opt_level", "O0", "an optimised wrapper", _CPU
    ),
    Switch("aot_inductor.enable_lto", False, "link-time optimisation", _CPU),
    Switch("aot_inductor.weight_use_caching_allocator", False, "cached weights", _CUDA),
)

_SHORT = "the compiler decisions that the failure needs: {}"


def find_decisions(
    reduced: ReducedProgram, parts: Collection[Subsystem] = tuple(Subsystem)
) -> Decisions:
    """Find the compiler decisions without which the reduced program passes.

    Args:
        parts: the parts of the compiler to test; options are tested only if all are
            given.
    """
    try:
        variants = Variants(reduced).with_fast_build()
    except BudgetExhausted as error:
        return Decisions(unknown=(_SHORT.format(error),))
    decisions = _by_number(variants, parts)
    if set(parts) == set(Subsystem):
        decisions = _by_switches(variants, decisions)
    return replace(decisions, compilations=len(variants.answers))


def _by_number(variants: Variants, parts: Collection[Subsystem]) -> Decisions:
    variants.reduced.note("explain: skipping passes and lowerings by number")
    # The source form is what the repro compiles, so the numbers hold for the user's
    # own commands. If it does not fail, the program itself is used.
    source = variants.with_options(form=CandidateForm.SOURCE)
    found = needed_applications(source, variants, parts=parts)
    reasons = (f"passes and lowerings by number: {why}" for why in found.unknown)
    return replace(found, interpreted=variants.interpreted, unknown=tuple(reasons))


def _by_switches(variants: Variants, decisions: Decisions) -> Decisions:
    variants.reduced.note("explain: setting Inductor options to conservative values")
    why = ""
    try:
        switching = needed_switches(variants)
        decisions, why = replace(decisions, switching=switching), switching.unknown
    except BudgetExhausted as error:
        why = str(error)
    reasons = [f"Inductor options: {why}"] if why else []
    return replace(decisions, unknown=(*decisions.unknown, *reasons))


MOST = 30
"""Maximum number of compilations in the search."""

_PARTS = 10
"""Maximum number of subsets to try if all options cause another failure."""


class SwitchProbabilities(Probabilities[Switch]):
    """Probability that a switch is needed; few are, and there is no prior evidence."""

    def __init__(self, count: int) -> None:
        super().__init__({}, count, guess=2)

    def about(self, item: Switch) -> Iterable[Key]:
        """Return the option's name as its only feature."""
        return [(Switch, item.option)]


def needed_switches(variants: Variants) -> OptionSearch:
    """Find a 1-minimal set of switches with which the program passes.

    Raises:
        BudgetExhausted: there is too little time.
    """
    known = variants.settings({s.option: s.conservative for s in SWITCHES})
    if known is None:
        return OptionSearch(
            unknown="the worker did not report the settings of Inductor"
        )
    device = _CUDA if known.for_cuda else _CPU
    table = [s for s in SWITCHES if s.on in (device, None)]
    switches = [
        s
        for s in table
        if s.option not in known.fixed
        and known.values.get(s.option, s.conservative) != s.conservative
    ]
    previous = len(variants.answers)
    needed, minimal, why = _search(variants, switches)
    return OptionSearch(
        tried=len(switches),
        passes_with=_settings(needed),
        minimal=minimal,
        compilations=len(variants.answers) - previous,
        missing=tuple(s.option for s in table if s.option not in known.values),
        fixed=tuple(s.option for s in table if s.option in known.fixed),
        unknown=why,
        settings=_settings(switches),
    )


def _search(
    variants: Variants, switches: list[Switch]
) -> tuple[Sequence[Switch], bool, str]:
    """Test all switches together, and then smaller and smaller subsets.

    Returns:
        Switches with which the program passes, whether all of them are needed, and why
        there are none, or ''.
    """
    most = len(variants.answers) + MOST - 1

    def passes(part: Sequence[Switch]) -> bool:
        if len(variants.answers) >= most:
            raise _LimitReached
        return _set(variants, part) is Outcome.PASSED

    start, why = _part_that_passes(variants, switches)
    if not start:
        return [], False, why
    subset = Subset(start, SwitchProbabilities(len(start)), passes)
    try:
        needed, minimal = subset.run(), True
    except _LimitReached:
        needed, minimal = subset.kept, False
    # Confirm it with the stock build, which also rules out a coincidence.
    if _set(variants.with_stock_build(), needed) is Outcome.PASSED:
        return needed, minimal, ""
    return [], False, "the program does not pass with the found options in every run"


def _settings(switches: Iterable[Switch]) -> tuple[Setting, ...]:
    return tuple(Setting(s.option, s.conservative, s.what) for s in switches)


class _LimitReached(Exception):
    """The maximum number of compilations is reached."""


def _set(variants: Variants, switches: Iterable[Switch]) -> Outcome:
    """Compile and run the program with switches set to their conservative values."""
    return variants.with_settings({s.option: s.conservative for s in switches})


def _part_that_passes(
    variants: Variants, switches: list[Switch]
) -> tuple[list[Switch], str]:
    """Return switches with which the program passes: all of them, or a subset.

    If it fails differently with all of them, some switches cause another failure, and a
    subset without those may pass.

    Returns:
        No switches if the failure stays the same with all of them, and the reason if no
        subset was found.
    """
    parts, tested = deque([switches]), 0
    while parts and tested < _PARTS:
        part, tested = parts.popleft(), tested + 1
        outcome = _set(variants, part)
        if outcome is Outcome.PASSED:
            return part, ""
        if outcome is Outcome.REPRODUCED:
            if part is switches:
                return [], ""
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[:half], part[half:]]
    return [], (
        "with all of them the program fails differently, and with no tested subset it "
        "passes"
    )


# Find the pass or lowering that the failure needs, by bisecting over their numbers.
#
# This follows PyTorch's ``CompilerBisector``, but with checks as its runs.

PASSES = (Subsystem.PRE_GRAD, Subsystem.JOINT, Subsystem.POST_GRAD)

_FEW = 8
"""Number of applications before the last needed one that are skipped one at a time."""

_MANY = 32
"""The same number if the program fails differently without all applications."""


def needed_applications(
    *variants: Variants, parts: Collection[Subsystem] = tuple(Subsystem)
) -> Decisions:
    """Find the passes and lowerings without which the program passes.

    Args:
        variants: variants of the compilation; the first one that fails is used.
        parts: the parts of the compiler to test.
    """
    skipped: list[SkippedPart] = []
    not_needed: list[UnneededSubsystem] = []
    unknown: list[str] = []
    with scratch.make_scratch_folder("applications") as folder:
        path = Path(folder) / "applications.jsonl"
        try:
            tests = [_ApplicationTests(w, path, unknown, not_needed) for w in variants]
            for one in _all(tests, parts):
                skipped.append(one)  # stays valid if time runs out later
        except BudgetExhausted as error:
            unknown.append(str(error))
    return Decisions(
        left_out=tuple(skipped), unknown=tuple(unknown), not_needed=tuple(not_needed)
    )


def _all(
    variants: Sequence[_ApplicationTests], parts: Collection[Subsystem]
) -> Iterator[SkippedPart]:
    fails = (variant for variant in variants if variant.ask(()) is Outcome.REPRODUCED)
    tests = next(fails, None)
    if tests is None:
        variants[0].unknown.append("the source form does not fail in every run")
        return
    applications = tests.applications()
    for subsystem in tests.that_may_matter(applications):
        if subsystem in parts:
            yield from _bisect_subsystem(tests, subsystem, applications[subsystem])


@dataclass
class _ApplicationTests:
    """Tests the reduced program without some applications, once or twice.

    Attributes:
        path: the file that lists the applications.
        unknown: questions without an answer.
        not_needed: parts of the compiler that the failure does not need at all.
    """

    variants: Variants
    path: Path
    unknown: list[str]
    not_needed: list[UnneededSubsystem]
    _known: dict[LeaveOut, list[Outcome]] = field(default_factory=dict)
    _required: set[LeaveOut] = field(default_factory=set)

    def ask(
        self,
        subsystems: tuple[Subsystem, ...],
        first: int = 0,
        last: int | None = None,
        *,
        times: int = 1,
    ) -> Outcome:
        """Test a variant until it has ``times`` outcomes; UNRESOLVED if they differ."""
        query = LeaveOut(str(self.path), subsystems, first, last)
        answers = self._known.setdefault(query, [])
        while len(answers) < times:
            variants = self.variants.with_stock_build() if answers else self.variants
            answers.append(variants.ask(leave_out=query))
            if variants.stopped[-1] and answers[-1] is Outcome.DIFFERENT:
                self._required.add(query)
        return answers[0] if len(set(answers)) == 1 else Outcome.UNRESOLVED

    def is_not_needed(self, subsystem: tuple[Subsystem, ...], number: int) -> bool:
        """Return whether it fails without one, or cannot be compiled without it."""
        query = LeaveOut(str(self.path), subsystem, number, number)
        return query in self._required or set(self._known.get(query, [])) == {
            Outcome.REPRODUCED
        }

    def known_to(
        self, outcome: Outcome, subsystems: tuple[Subsystem, ...], first: int
    ) -> bool:
        """Return whether a variant was tested, with this outcome."""
        query = LeaveOut(str(self.path), subsystems, first)
        return self._known.get(query, [])[:1] == [outcome]

    def applications(self) -> dict[Subsystem, list[Application]]:
        """Return the applications in the last compilation, by subsystem."""
        found: dict[Subsystem, list[Application]] = defaultdict(list)
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                application = Application.from_line(line)
                found[application.subsystem].append(application)
        return found

    def that_may_matter(
        self, applications: dict[Subsystem, list[Application]]
    ) -> list[Subsystem]:
        """Return the subsystems to test; without passes if the failure needs none."""
        present = [part for part in Subsystem if applications[part]]
        passes = tuple(part for part in present if part in PASSES)
        if len(passes) > 1 and self.ask(passes) is Outcome.REPRODUCED:
            self.not_needed += [
                UnneededSubsystem(part, len(applications[part])) for part in passes
            ]
            return [part for part in present if part not in passes]
        return present


def _bisect_subsystem(
    tests: _ApplicationTests,
    subsystem: Subsystem,
    applications: Sequence[Application],
) -> Iterator[SkippedPart]:
    """Yield the applications in one subsystem that the failure needs."""
    outcome = tests.ask((subsystem,))
    match outcome:
        case Outcome.REPRODUCED:
            tests.not_needed.append(UnneededSubsystem(subsystem, len(applications)))
            return
        case Outcome.PASSED:
            last = _last_needed(tests, subsystem, len(applications))
            # Later applications are not needed; some earlier ones may be.
            to_try = range(last, max(-1, last - _FEW), -1)
        case _:
            to_try = range(min(len(applications), _MANY))
    skipped = [_test_application(tests, applications, number) for number in to_try]
    yield from filter(None, skipped)
    none_is_needed = len(to_try) == len(applications) and all(
        tests.is_not_needed((subsystem,), number) for number in to_try
    )
    if not any(skipped) and not none_is_needed:
        count, part = len(applications), PARTS[subsystem]
        effect = "passes" if outcome is Outcome.PASSED else "does not fail so"
        alone = f"without one of them it does not pass each time ({len(to_try)} tried)"
        tests.unknown.append(
            f"without any of the {counted(count, part)} it {effect}, and {alone}"
            if count > 1
            else f"without the one {part} it {effect}, and does not pass each time"
        )


def _last_needed(tests: _ApplicationTests, subsystem: Subsystem, count: int) -> int:
    """Return the last application that the failure needs, by bisection."""
    passes, fails = -1, count - 1
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if tests.ask((subsystem,), middle + 1) is Outcome.REPRODUCED:
            fails = middle
        else:
            passes = middle
    return fails


def _test_application(
    tests: _ApplicationTests, applications: Sequence[Application], number: int
) -> SkippedPart | None:
    """Return the facts about an application that hold in two tests, or None."""
    one = applications[number]
    subsystem = (one.subsystem,)
    alone = tests.ask(subsystem, number, number) is Outcome.PASSED
    alone = alone and tests.ask(subsystem, number, number, times=2) is Outcome.PASSED
    onwards = _is_boundary(tests, subsystem, number, len(applications))
    if not alone and not onwards:
        return None
    place = one.subsystem, number, len(applications)
    about = one.name, one.node, one.origin
    return SkippedPart(*place, *about, alone=alone, onwards=onwards)


def _is_boundary(
    tests: _ApplicationTests,
    subsystem: tuple[Subsystem, ...],
    number: int,
    count: int,
) -> bool:
    """Return whether it fails with the applications up to this one, not before it."""
    is_last = number == count - 1  # no later applications to skip
    after = ((), 0) if is_last else (subsystem, number + 1)
    return (
        tests.known_to(Outcome.REPRODUCED, *after)
        and tests.known_to(Outcome.PASSED, subsystem, number)
        and tests.ask(subsystem, number, times=2) is Outcome.PASSED
        and tests.ask(*after, times=2) is Outcome.REPRODUCED
    )

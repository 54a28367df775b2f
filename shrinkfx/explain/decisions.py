"""Reduce the compiler's decisions to those that the failure needs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
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

SWITCHES = (
    # Code for the CPU.
    Setting("cpp.simdlen", 1, "vectorized code"),
    Setting("cpp.enable_loop_tail_vec", False, "vectorized loop tails"),
    Setting("cpp.threads", 1, "parallel loops"),
    Setting("cpp.weight_prepack", False, "prepacked weights"),
    # Fusion.
    Setting("max_fusion_size", 1, "fusion of kernels"),
    Setting("epilogue_fusion", False, "fused epilogues"),
    Setting("prologue_fusion", False, "fused prologues"),
    Setting("cpp.max_horizontal_fusion_size", 1, "horizontal fusion"),
    Setting("aggressive_fusion", False, "aggressive fusion"),
    Setting("combo_kernels", False, "combined kernels"),
    Setting("loop_ordering_after_fusion", False, "reordered loops of fused kernels"),
    Setting("loop_reindexing_after_fusion", False, "reindexed loops of fused kernels"),
    Setting("loop_index_inversion_in_fusion", False, "inverted indices in fusion"),
    Setting("max_pointwise_cat_inputs", 0, "concatenation as a pointwise operator"),
    # Shared memory.
    Setting("inplace_padding", False, "padding in place"),
    Setting("inplace_buffers", False, "results that overwrite operands"),
    Setting("allow_buffer_reuse", False, "reuse of buffers"),
    Setting("memory_planning", False, "planned memory"),
    Setting("aot_inductor.allow_stack_allocation", False, "buffers on the stack"),
    Setting(
        "aot_inductor.use_minimal_arrayref_interface",
        False,
        "the minimal arrayref interface",
    ),
    # Graph passes. Two options are missing because correct programs do not compile
    # with them: constant_and_index_propagation=False (2.11: "NotImplementedError:
    # argument of type"), selective_decompose=True ("both a fallback and a decomp").
    Setting("pattern_matcher", False, "replaced patterns"),
    Setting("online_softmax", False, "online softmax"),
    Setting("apply_gumbel_max_trick", False, "the Gumbel-max trick"),
    Setting("optimize_scatter_upon_const_tensor", False, "scatter into constants"),
    Setting("joint_graph_constant_folding", False, "folded constants"),
    Setting("use_dce", False, "removal of dead code"),
    Setting("reorder_for_locality", False, "reordering for locality"),
    Setting("reorder_for_peak_memory", False, "reordering for memory"),
    Setting("freezing", False, "freezing"),
    Setting(
        "aot_inductor.use_runtime_constant_folding", False, "load-time constant folding"
    ),
    # Tensor layouts.
    Setting("layout_optimization", False, "layout optimization"),
    Setting("shape_padding", False, "padded shapes"),
    Setting("comprehensive_padding", False, "padded strides"),
    Setting("triton.divisible_by_16", False, "arguments known to be divisible by 16"),
    Setting("assume_unaligned_fallback_output", True, "results taken for aligned"),
    # Reductions.
    Setting("unroll_reductions_threshold", 1, "unrolled reductions"),
    Setting("split_reductions", False, "split reductions"),
    Setting("triton.persistent_reductions", False, "persistent reductions"),
    Setting("triton.mix_order_reduction", False, "mixed-order reductions"),
    Setting("triton.nested_reduction", False, "nested reductions"),
    Setting("triton.scalar_accumulators", False, "accumulators by row"),
    # Triton.
    Setting("triton.emit_pointer_range_32", False, "32-bit pointers"),
    Setting("triton.coalesce_tiling_analysis", False, "tiling that coalesces"),
    Setting("triton.max_tiles", 1, "tiling"),
    # Autotuning.
    Setting("max_autotune", False, "autotuning"),
    Setting("max_autotune_gemm", False, "autotuned matrix products"),
    Setting("coordinate_descent_tuning", False, "tuning by coordinate descent"),
    # Numerics.
    Setting("emulate_precision_casts", True, "omitted rounding between operators"),
    Setting("eager_numerics.division_rounding", True, "approximate division"),
    Setting("use_fast_math", False, "fast math"),
    Setting("fallback_random", True, "Inductor's own random numbers"),
    # The library.
    Setting("aot_inductor.compile_wrapper_opt_level", "O0", "an optimized wrapper"),
)

_FOR_CPU = (
    "cpp.",
    "aot_inductor.allow_stack_allocation",
    "aot_inductor.use_minimal_arrayref_interface",
    "aot_inductor.compile_wrapper_opt_level",
)
_FOR_CUDA = ("triton.", "eager_numerics.", "use_fast_math")
"""Beginnings of options that affect code for one device only."""


def list_switches(*, for_cuda: bool) -> list[Setting]:
    """List the options that affect code for a device."""
    others = _FOR_CPU if for_cuda else _FOR_CUDA
    return [one for one in SWITCHES if not one.option.startswith(others)]


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
        why = f"the compiler decisions that the failure needs: {error}"
        return Decisions(unknown=(why,))
    reduced.note("explain: finding the pass and the lowering that the failure needs")
    # The source form is what the repro compiles, so the numbers hold for the user's
    # own commands. If it does not fail, the program itself is used.
    source = variants.with_options(form=CandidateForm.SOURCE)
    found = needed_applications(source, variants, parts=parts)
    unknown = [f"passes and lowerings by number: {why}" for why in found.unknown]
    if set(parts) == set(Subsystem):
        reduced.note("explain: setting Inductor options to conservative values")
        try:
            found = replace(found, switching=(options := needed_switches(variants)))
            why = options.unknown
        except BudgetExhausted as error:
            why = str(error)
        unknown += [f"Inductor options: {why}"] if why else []
    return replace(
        found,
        interpreted=variants.interpreted,
        unknown=tuple(unknown),
        compilations=len(variants.answers),
    )


MOST = 30
"""Maximum number of compilations in the search."""

_PARTS = 10
"""Maximum number of subsets to try if all options cause another failure."""


class SwitchProbabilities(Probabilities[Setting]):
    """Probability that a switch is needed; few are, and there is no prior evidence."""

    def __init__(self, count: int) -> None:
        super().__init__({}, count, guess=2)

    def about(self, item: Setting) -> Iterable[Key]:
        """Return the option's name as its only feature."""
        return [(Setting, item.option)]


def needed_switches(variants: Variants) -> OptionSearch:
    """Find a 1-minimal set of switches with which the program passes.

    Raises:
        BudgetExhausted: there is too little time.
    """
    known = variants.settings({s.option: s.value for s in SWITCHES})
    if known is None:
        why = "the worker did not report the settings of Inductor"
        return OptionSearch(unknown=why)
    table = list_switches(for_cuda=known.for_cuda)
    switches = [
        s
        for s in table
        if s.option not in known.fixed
        and known.values.get(s.option, s.value) != s.value
    ]
    previous = len(variants.answers)
    needed, minimal, why = _search(variants, switches)
    return OptionSearch(
        tried=len(switches),
        passes_with=tuple(needed),
        minimal=minimal,
        compilations=len(variants.answers) - previous,
        missing=tuple(s.option for s in table if s.option not in known.values),
        fixed=tuple(s.option for s in table if s.option in known.fixed),
        unknown=why,
        settings=tuple(switches),
    )


def _search(
    variants: Variants, switches: list[Setting]
) -> tuple[Sequence[Setting], bool, str]:
    """Test all switches together, and then smaller and smaller subsets.

    Returns:
        Switches with which the program passes, whether all of them are needed, and why
        there are none, or ''.
    """
    most = len(variants.answers) + MOST - 1

    def passes(part: Sequence[Setting]) -> bool:
        if len(variants.answers) >= most:
            return False
        return variants.with_settings(part) is Outcome.PASSED

    start, why = _part_that_passes(variants, switches)
    if not start:
        return [], False, why
    needed = Subset(start, SwitchProbabilities(len(start)), passes).run()
    minimal = len(variants.answers) < most
    # Confirm it with the stock build, which also rules out a coincidence.
    if variants.with_stock_build().with_settings(needed) is Outcome.PASSED:
        return needed, minimal, ""
    return [], False, "the program does not pass with the found options in every run"


def _part_that_passes(
    variants: Variants, switches: list[Setting]
) -> tuple[list[Setting], str]:
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
        outcome = variants.with_settings(part)
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
    with scratch.make_scratch_folder("applications") as folder:
        path = Path(folder) / "applications.jsonl"
        tests = [_ApplicationTests(one, path) for one in variants]
        fails = (one for one in tests if one.ask(()) is Outcome.REPRODUCED)
        found = tests[0]
        try:
            if (failing := next(fails, None)) is not None:
                found = failing
                found.bisect(parts)
            else:
                found.unknown.append("the source form does not fail in every run")
        except BudgetExhausted as error:
            found.unknown.append(str(error))  # the findings stay valid
    return Decisions(
        left_out=tuple(found.skipped),
        unknown=tuple(found.unknown),
        not_needed=tuple(found.not_needed),
    )


@dataclass
class _ApplicationTests:
    """Tests the reduced program without some applications, once or twice.

    Attributes:
        path: the file that lists the applications.
        skipped: applications without which it passes.
        not_needed: parts of the compiler that the failure does not need at all.
        unknown: questions without an answer.
    """

    variants: Variants
    path: Path
    skipped: list[SkippedPart] = field(default_factory=list)
    not_needed: list[UnneededSubsystem] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    _known: dict[tuple[LeaveOut, bool], Outcome] = field(default_factory=dict)

    def ask(
        self,
        subsystems: tuple[Subsystem, ...],
        first: int = 0,
        last: int | None = None,
        *,
        again: bool = False,
    ) -> Outcome:
        """Test it without some applications; ``again`` is a test in the stock build."""
        query = LeaveOut(str(self.path), subsystems, first, last)
        if (query, again) not in self._known:
            variants = self.variants.with_stock_build() if again else self.variants
            self._known[query, again] = variants.ask(leave_out=query)
        return self._known[query, again]

    def _is_sure(
        self,
        outcome: Outcome,
        subsystems: tuple[Subsystem, ...],
        first: int,
        last: int | None = None,
    ) -> bool:
        """Return whether two tests without some applications have an outcome."""
        return all(
            self.ask(subsystems, first, last, again=again) is outcome
            for again in (False, True)
        )

    def bisect(self, parts: Collection[Subsystem]) -> None:
        """Find the needed applications, in some parts of the compiler."""
        applications = self._read_applications()
        present = [part for part in Subsystem if applications[part]]
        passes = tuple(part for part in present if part in PASSES)
        no_pass = len(passes) > 1 and self.ask(passes) is Outcome.REPRODUCED
        unneeded = passes if no_pass else ()
        for part in present:
            if part in unneeded or (
                part in parts and self.ask((part,)) is Outcome.REPRODUCED
            ):
                of = len(applications[part])
                self.not_needed.append(UnneededSubsystem(part, of))
            elif part in parts:
                self._bisect_part(applications[part])

    def _read_applications(self) -> dict[Subsystem, list[Application]]:
        """Return the applications in the last compilation."""
        found: dict[Subsystem, list[Application]] = defaultdict(list)
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                application = Application.from_line(line)
                found[application.subsystem].append(application)
        return found

    def _bisect_part(self, applications: Sequence[Application]) -> None:
        """Find the needed applications in one part of the compiler."""
        part, count, last = applications[0].subsystem, len(applications), -1
        passes_without_all = self.ask((part,)) is Outcome.PASSED
        if passes_without_all:
            last = self._find_last_needed(part, count)
            # Later applications are not needed; some earlier ones may be.
            to_try = range(last, max(-1, last - _FEW), -1)
        else:
            to_try = range(min(count, _MANY))
        previously = len(self.skipped)
        for number in to_try:
            alone = self._is_sure(Outcome.PASSED, (part,), number, number)
            onwards = alone  # the last one alone is also all from it onwards
            if number < count - 1:
                onwards = number == last and self._is_boundary(part, number)
            if alone or onwards:
                one = applications[number]
                about = one.name, one.node, one.origin
                self.skipped.append(
                    SkippedPart(
                        part, number, count, *about, alone=alone, onwards=onwards
                    )
                )
        if passes_without_all and len(self.skipped) == previously:
            name, tried = PARTS[part], f"({len(to_try)} tried)"
            each = f"without one of them it does not pass each time {tried}"
            self.unknown.append(
                f"without any of the {counted(count, name)} it passes, and {each}"
                if count > 1
                else f"without the one {name} it passes, and does not pass each time"
            )

    def _find_last_needed(self, part: Subsystem, count: int) -> int:
        """Return the last application that the failure needs, by bisection."""
        passes, fails = -1, count - 1
        while fails - passes > 1:
            middle = (passes + fails) // 2
            if self.ask((part,), middle + 1) is Outcome.REPRODUCED:
                fails = middle
            else:
                passes = middle
        return fails

    def _is_boundary(self, part: Subsystem, number: int) -> bool:
        """Return whether it fails without all after this one, and passes without it."""
        return self._is_sure(Outcome.PASSED, (part,), number) and self._is_sure(
            Outcome.REPRODUCED, (part,), number + 1
        )

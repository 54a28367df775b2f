"""Explain the failure of the reduced program: all analyses, in order."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from shrinkfx.errors import BudgetExhausted, InvalidEdit, WorkerError
from shrinkfx.explain.chain import chain
from shrinkfx.explain.compiled_view import renumber_quotes
from shrinkfx.explain.compiling import explain_stop
from shrinkfx.explain.decisions import PASSES, find_decisions
from shrinkfx.explain.guide import read_sources, run_guide
from shrinkfx.explain.reduced_program import (
    ReducedProgram,
    find_dependencies,
    find_last_operators,
    list_operators,
    select_operators,
)
from shrinkfx.explain.values import values
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.decisions import format_avoiding, mark_only_shows
from shrinkfx.findings.operators import (
    Operator,
    OperatorMismatch,
    format_fails_alone,
)
from shrinkfx.findings.record import EAGER_FAILS, Explanation, Outcome
from shrinkfx.findings.values import WrongValue, join_operators
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.listing.printed_program import (
    InputOrWeight,
    Run,
    cut_before,
)
from shrinkfx.program.listing.tensor_specs import TensorSpec, row_major
from shrinkfx.protocol.choices import Backend, CandidateForm, Probe, Subsystem
from shrinkfx.protocol.operators import (
    UNDECLARED_EFFECTS,
    VALUE_DEPENDENCIES,
    FakeMismatch,
    Misbehavior,
    OperatorFinding,
)
from shrinkfx.protocol.requests import ExamineCandidate
from shrinkfx.system import scratch

logger = logging.getLogger(__name__)

Part = TypeVar("Part")

SENTENCES = 3
"""Maximum number of sentences in a cause."""


@dataclass(frozen=True)
class KnownFacts:
    """Facts about the reduced program from before the analysis.

    Attributes:
        fails: whether its repro failed in every run.
        compared: whether its repro runs in eager before it fails.
        memory: the report of AddressSanitizer, or None.
        mismatches: fake-kernel mismatches in the input program, by operator node.
        own: a sentence about the user's code in the compiler that the failure needs; or
            ''.
        inside: a sentence about the user's function in which the compiler hangs or
            dies; or ''.
    """

    fails: bool = True
    compared: bool = False
    memory: MemoryReport | None = None
    mismatches: Mapping[str, FakeMismatch] = field(default_factory=dict)
    own: str = ""
    inside: str = ""


@dataclass
class _Asking:
    """Runs each analysis; an error in one does not stop the others."""

    unknown: list[str] = field(default_factory=list)

    def __call__(self, what: str, ask: Callable[[], Part]) -> Part | None:
        try:
            return ask()
        except (BudgetExhausted, WorkerError) as reason:
            self.unknown.append(f"{what}: {reason}")
        except Exception as error:
            logger.exception("%s", what)
            self.unknown.append(f"{what}: internal error: {error!r}")
        return None


_LIMIT = re.compile(r"Expected (u\d+ [<>=!]+ -?\d+) but received (-?\d+)")
"""The message of ``AOTI_TORCH_CHECK`` in the wrapper, for a check of the program."""


def describe_violated_limit(failure: str, *, compared: bool) -> str:
    """Describe a limit on a size that the exported program itself checks, or ''.

    Args:
        compared: the source of the program runs in eager.
    """
    found = _LIMIT.search(failure)
    why = _WRONG_LIMIT if compared else _DOUBTFUL_LIMIT
    return found.expand(_VIOLATED) + why if found else ""


_VIOLATED = r"The exported program checks that \1, but the value is \2."
_WRONG_LIMIT = (
    " The same code runs in eager without an error, so the limit comes from a fake "
    "kernel that disagrees with the real kernel."
)
_DOUBTFUL_LIMIT = (
    " torch.export takes such a limit from the fake kernel of an operator or from "
    "torch._check: the limit or the inputs may be wrong."
)


def explain(
    reduced: ReducedProgram, facts: KnownFacts, folder: Path | None = None
) -> Explanation:
    """Find the cause of the reduced program's failure.

    Args:
        folder: a folder for files; if set, the compiler's decisions and the flags of
            the debugging guide are tested too.
    """
    attempt = _Asking()
    found = Explanation(operators=list_operators(reduced.candidate))
    rejected = attempt(
        "whether the inputs fit", lambda: describe_rejected_input(reduced)
    )
    if rejected:
        # No operator is at fault if the input does not fit.
        found = replace(found, cause=(rejected,), inputs=rejected)
    else:
        found = _with_findings(reduced, facts, found, attempt)
    if not reduced.client.options.reference:
        compared = facts.compared and not found.inputs
        first = describe_violated_limit(reduced.target.text, compared=compared)
        first = first or ("" if facts.compared else EAGER_FAILS)
        cause = tuple(filter(None, (first, *found.cause)))[:SENTENCES]
        found = replace(found, cause=cause)
    found = _with_other_runs(reduced, found, attempt, folder)
    if notes := [text for text in (facts.own, facts.inside) if text]:
        found = replace(found, cause=(*notes, *_explained(found.cause))[:SENTENCES])
    unknown = list(attempt.unknown)
    unknown += [text for part in found.parts for text in part.unknown]
    if found.decisions is not None:
        unknown += found.decisions.unknown
    return replace(found, unknown=tuple(dict.fromkeys(unknown)))


def _with_findings(
    reduced: ReducedProgram, facts: KnownFacts, found: Explanation, attempt: _Asking
) -> Explanation:
    """Look for the culprit operator: by kernel, values, or where the program stops."""
    found = replace(
        found,
        mismatches=attempt(
            "which fake kernels are wrong",
            lambda: find_reduced_mismatches(reduced, facts.mismatches),
        )
        or (),
        chain=attempt("which kernel fails", lambda: chain(reduced, facts.memory)),
        values=attempt("which kernel is wrong", lambda: values(reduced)),
    )
    if found.chain is None or not found.chain.cause:
        stop = attempt("where the program stops", lambda: explain_stop(reduced))
        found = replace(found, compile_error=stop)
    found = _blame_mismatch(_adopt_cause(found, facts, reduced), reduced)
    if not _is_settled(found):
        failing = _list_failing(found)
        wrong = attempt(
            "who computed the failing input", lambda: find_wrong_input(reduced, failing)
        )
        found = _blame_mismatch(_blame_input_producer(found, wrong), reduced)
    if not (found.culprits or _list_failing(found)) and found.mismatches:
        found = _add_mismatch(found, found.mismatches[0])  # nothing else is known
    is_recorded = any(part and part.cause for part in (found.chain, found.values))
    if is_recorded and reduced.ready.backend == Backend.INDUCTOR:
        first = next(filter(_KERNEL.search, found.cause), "")
        parts = (f"{text}{_RECORDED * (text == first)}" for text in found.cause)
        found = replace(found, cause=tuple(parts))
    return found


_KERNEL = re.compile(r"(?<!fake )kernel \w", re.IGNORECASE)


def _adopt_cause(
    found: Explanation, facts: KnownFacts, reduced: ReducedProgram
) -> Explanation:
    """Take the cause from a finding, or else blame a write, or the only operator."""
    part = next((part for part in found.parts if part.cause), None)
    if part is not None:
        return replace(found, cause=tuple(part.cause), culprits=tuple(part.culprits))
    calls, candidate = reduced.client.options.calls, reduced.candidate
    written = select_operators(candidate, candidate.writes)
    if written and calls > 1 and reduced.rate == 1.0:
        cause = (
            f"All calls have the same inputs, and call {calls} "
            "is the first that fails, so the failure depends on what a call writes "
            f"to a buffer: the result of {join_operators(written)}.",
        )
        return replace(found, cause=cause)
    if facts.fails and len(found.operators) == 1:
        cause = (f"{format_fails_alone(found.operators[0])[:-1]}{_UNEXPLAINED}.",)
        return replace(found, cause=cause, culprits=found.operators)
    return found


def _is_settled(found: Explanation) -> bool:
    """Return whether the failure cannot depend on data that the failing operator reads.

    That holds if a fake-kernel mismatch is known, or if the index is computed only from
    positions and sizes.
    """
    if found.culprit_mismatch is not None:
        return True
    chain = found.chain
    loads = [step for step in chain.steps if step.reads] if chain else []
    return chain is not None and bool(chain.index and chain.cause) and not loads


def _list_failing(found: Explanation) -> set[str]:
    """Return the names of the failing operators, culprits or not; empty if unknown."""
    if found.chain is not None and found.chain.dies:
        return {one.name for one in found.chain.dies}
    stop = found.compile_error
    return {one.name for one in stop.culprits} if stop else set()


def _blame_input_producer(found: Explanation, wrong: WrongValue | None) -> Explanation:
    """Blame the operator that computed a wrong input of the failing operator."""
    if wrong is None:
        return found
    stop = found.compile_error
    states_failure = stop is not None and stop.names_no_place
    effect = () if states_failure else _explained(found.cause[:1])
    cause = (*wrong.cause[: SENTENCES - 1], *effect)
    return replace(found, values=wrong, culprits=wrong.culprits, cause=cause)


def _blame_mismatch(found: Explanation, reduced: ReducedProgram) -> Explanation:
    """Blame a fake-kernel mismatch if the failing operators use its result.

    Compiled code reads a result as the fake kernel declares it. A consumer may
    therefore compute wrong values or crash without being at fault.
    """
    failing = found.chain.dies if found.chain is not None else ()
    names = {one.name for one in (*found.culprits, *failing)}
    used = names | find_dependencies(reduced.candidate, names)
    values = reduced.target.stage is Stage.COMPARE
    mismatches = (
        one
        for one in found.mismatches
        # No edge of the graph shows which operators read memory that it writes to.
        if one.operator.name in used or (values and one.what in UNDECLARED_EFFECTS)
    )
    mismatch = next(mismatches, None)
    if mismatch is None or mismatch.sentence in found.cause:
        return found
    return _add_mismatch(found, mismatch)


def _add_mismatch(found: Explanation, mismatch: OperatorMismatch) -> Explanation:
    effect = _explained(_describe_effect(found, mismatch))
    cause = (mismatch.sentence, *effect[: SENTENCES - 1])
    return replace(found, cause=cause, culprits=(mismatch.operator,))


_RECORDED = (
    " For this analysis, the program was compiled with AOTInductor, with which it also "
    "fails."
)
"""Said after a sentence about a kernel, if torch.compile compiled the program."""

_UNEXPLAINED = "; why is not known"


def _explained(cause: tuple[str, ...]) -> tuple[str, ...]:
    """Remove from sentences that why is not known, because another one says it."""
    return tuple(sentence.replace(_UNEXPLAINED, "") for sentence in cause)


def _describe_effect(found: Explanation, mismatch: OperatorMismatch) -> tuple[str, ...]:
    """Return sentences about where the mismatch shows, if that is known."""
    if mismatch.wrong_part != "fake kernel":
        return found.cause if found.culprits else ()
    if not any(part.cause for part in found.parts):
        return (f"{_reads(mismatch)}.",)
    others = [one for one in found.culprits if one != mismatch.operator]
    if found.values is None or not others:
        return found.cause
    names = join_operators(found.culprits)
    wrong = f"the first wrong values are in the result of {names}"
    return (f"{_reads(mismatch)}; {wrong}.",)


def _reads(mismatch: OperatorMismatch) -> str:
    name = mismatch.operator.operator
    return f"Compiled code assumes that {name} returns what its fake kernel declares"


def _with_other_runs(
    reduced: ReducedProgram, found: Explanation, attempt: _Asking, folder: Path | None
) -> Explanation:
    """Test torch.compile, the compiler's decisions, and the guide's flags in a folder.

    Without a folder, only passes are tested, and only if the graph was changed. The
    earlier results are kept if this is interrupted.
    """
    parts: Collection[Subsystem] = ()
    if folder is not None and not found.inputs:
        parts = tuple(Subsystem)
    elif found.values is not None and found.values.rewritten:
        parts = PASSES
    try:
        if _is_to_run_with_torch_compile(reduced, found):
            what = "whether torch.compile fails"
            outcome = attempt(what, lambda: _run_with_torch_compile(reduced))
            found = replace(found, torch_compile=outcome or Outcome.NOT_TESTED)
        if parts:
            what = "compiler decisions"
            decisions = attempt(what, lambda: find_decisions(reduced, parts))
            if decisions is not None:
                operators = found.culprits, found.operators
                decisions = mark_only_shows(decisions, *operators)
            found = replace(found, decisions=decisions)
        if folder is not None:
            found = _with_guide(reduced, found, attempt, folder)
    except KeyboardInterrupt:
        attempt.unknown.append("the last analysis step: interrupted")
    texts = format_avoiding(found.decisions, reduced.target) if found.decisions else []
    if not texts or not reduced.client.options.reference:
        return found
    first, *others = found.cause or texts
    cause = (first, *others[-(SENTENCES - 2) :], *(texts[:1] if found.cause else ()))
    return replace(found, cause=cause)


def _with_guide(
    reduced: ReducedProgram, found: Explanation, attempt: _Asking, folder: Path
) -> Explanation:
    # Values that were found without the failing operator have other kernels.
    wrong_value = None if found.values and found.values.without else found.values
    parts = found.chain, wrong_value, found.compile_error
    kernels = tuple(part.kernel for part in parts if part is not None and part.kernel)
    what = "the debugging guide's flags"
    guide = attempt(what, lambda: run_guide(reduced, kernels, folder))
    sources = read_sources(guide, folder) if guide else {}
    return renumber_quotes(replace(found, guide=guide), sources)


def _is_to_run_with_torch_compile(reduced: ReducedProgram, found: Explanation) -> bool:
    """Return whether to test the program with torch.compile."""
    if reduced.ready.backend != Backend.AOTI or found.inputs or found.culprit_mismatch:
        return False
    not_tested = Kind.CHECK_INPUTS, Kind.LOAD_ERROR, Kind.HANG, Kind.OOM
    return reduced.target.kind not in not_tested


def _run_with_torch_compile(reduced: ReducedProgram) -> Outcome:
    reduced.note("explain: compiling with torch.compile")
    ending = reduced.run_until_failing(torch_compile=True)
    if ending is None:
        return Outcome.NOT_TESTED
    result, target = classify_ending(ending), reduced.target
    if result.unresolved or result.invalid:
        return Outcome.OPEN
    if result.signature is None:
        return Outcome.PASSES if reduced.rate == 1.0 else Outcome.OPEN
    same = target.require_same_difference(target).admits(result.signature)
    return Outcome.SAME if same else Outcome.OTHER


# Check whether the inputs of a failing operator are already wrong.
#
#     floor -> matmul -> embedding       floor -> matmul
#                        fails                    is wrong
#
# The failing operator is removed, and its inputs are returned instead. The program
# then completes, and the kernel at fault is found as for any wrong result.

_KINDS = {Kind.ASSERT, Kind.IMA, Kind.CRASH, Kind.EXCEPTION}

_WRONG = Signature(Kind.MISMATCH, Stage.COMPARE)


def find_wrong_input(
    reduced: ReducedProgram, failed: Collection[str]
) -> WrongValue | None:
    """Look for a wrong value among the inputs of operators that fail.

    This compiles the program before them, and once more if a value is wrong.

    Args:
        failed: names of the failing operators, or of a failing kernel's operators. The
            last of them are removed; if it is empty, the last operators of the program.

    Returns:
        None if no wrong value was found, or if the failure is of another kind.
    """
    target, options = reduced.target, reduced.client.options
    if target.stage is not Stage.RUN or target.kind not in _KINDS:
        return None
    if not options.reference or options.probe not in (None, Probe.REAL):
        return None
    last = find_last_operators(reduced.candidate, failed or reduced.candidate.operators)
    before = _before(reduced.candidate, [one.name for one in last])
    if before is None:
        return None
    # It usually passes, and a second run of the source form would not add to that.
    client = reduced.client.with_options(form=CandidateForm.PROGRAM)
    query = replace(reduced, client=client, candidate=before, target=_WRONG)
    found = values(query)
    if found is None or found.wrong is None or found.tiny:
        return None
    # The graph of the program without them is not that of the repro.
    code = () if found.rewritten else found.code
    return replace(found, without=last, code=code)


def _before(candidate: Candidate, failed: Collection[str]) -> Candidate | None:
    """Return the program before some operators; None if it has no operators."""
    try:
        if candidate.listing is not None:
            return candidate.with_listing(cut_before(candidate.listing, failed))
        needed = find_dependencies(candidate, failed).difference(failed)
        cut = replace(candidate, keep=frozenset(needed))
        return cut.returning(Outputs.SINKS)
    except InvalidEdit:
        return None


# Check whether a program was compiled for the inputs on which it fails.
#
# AOTInductor assumes the sizes and strides of its inputs, and checks them only if
# ``AOTI_RUNTIME_CHECK_INPUTS`` is set.

_REJECTED = re.compile(r"input_handles\[(\d+)\]")


def describe_rejected_input(reduced: ReducedProgram) -> str:
    """Describe an input that the program was not compiled for, if it is the cause.

    This runs the program once with input checks. If an input is rejected, a second run
    uses that input as it was exported: with its strides, or all of it if its shape
    differs.

    Returns:
        A sentence; '' if the program accepts its inputs, still fails with the exported
        input, or fails only in some runs.
    """
    listing, target = reduced.candidate.listing, reduced.target
    if listing is None or target.stage not in (Stage.RUN, Stage.COMPARE):
        return ""
    if reduced.rate < 1.0 or target.kind is Kind.CHECK_INPUTS:
        return ""
    if not any(_difference(each) for each in listing.inputs):
        return ""
    checked = reduced.ask(sanity=True)
    found = classify_ending(checked).signature if checked is not None else None
    if found is None or found.kind is not Kind.CHECK_INPUTS:
        return ""
    number = _REJECTED.search(found.text)
    at = int(number[1]) if number else len(listing.inputs)
    for rejected in listing.inputs[at : at + 1]:
        if not (what := _difference(rejected)):
            continue
        accepted, exported = _as_exported(rejected)
        candidate = reduced.candidate.with_listing(listing.with_given(accepted))
        ending = replace(reduced, candidate=candidate).ask()
        if ending is not None and classify_ending(ending).passed:
            return (
                f"Input {rejected.name} has {what}. With AOTI_RUNTIME_CHECK_INPUTS=1, "
                f"the compiled program rejects the input ({found.text}); with "
                f"{exported}, it passes."
            )
    return ""


def _as_exported(entry: InputOrWeight) -> tuple[InputOrWeight, str]:
    """Return an input with its exported strides, or else all of the exported input."""
    example, failing = entry.recipe(), entry.recipe(Run.FAILING)
    if failing.shape != example.shape:
        return entry.with_recipe(Run.FAILING, example), "the exported input"
    example = replace(failing, stride=example.stride).filled(failing.fill)
    return entry.with_recipe(Run.FAILING, example), "the exported strides"


def _difference(entry: InputOrWeight) -> str:
    """Describe how an input differs from the input of the export."""
    example, failing = entry.recipe(), entry.recipe(Run.FAILING)
    if failing.shape != example.shape:
        change = "shape", failing.shape, example.shape
    elif _strides(failing) != _strides(example):
        change = "strides", _strides(failing), _strides(example)
    else:
        return ""
    return f"{change[0]} {[*change[1]]}, but was exported with {[*change[2]]}"


def _strides(recipe: TensorSpec) -> tuple[int, ...]:
    return recipe.stride or tuple(row_major(recipe.shape))


# Find fake-kernel mismatches in the reduced program.
#
# One eager run checks its custom operators at the sizes of the reduced program, without
# compiling. Findings of the input program are used for operators that this run does not
# report.

SECONDS = 10.0
"""Time limit of the eager run."""

_BLAMED = {
    *(Misbehavior.FAKE, Misbehavior.FIXES),
    *VALUE_DEPENDENCIES,
    *UNDECLARED_EFFECTS,
}


def find_reduced_mismatches(
    reduced: ReducedProgram, in_original: Mapping[str, FakeMismatch]
) -> tuple[OperatorMismatch, ...]:
    """Return the fake-kernel mismatches of the reduced program, in operator order.

    Args:
        in_original: mismatches in the input program, by operator node.

    Returns:
        Nothing for a failure in compilation, because no result exists then.
    """
    if reduced.target.stage is Stage.COMPILE:
        return ()
    operators = list_operators(reduced.candidate)
    findings = _examined(reduced) if any(one.is_custom for one in operators) else ()
    return tuple(_find_in_operators(operators, findings, in_original))


def _find_in_operators(
    operators: tuple[Operator, ...],
    findings: tuple[OperatorFinding, ...],
    in_original: Mapping[str, FakeMismatch],
) -> Iterator[OperatorMismatch]:
    for operator in operators:
        matching = [one for one in findings if one.operator == operator.operator]
        # Nodes of a re-exported program may have other names.
        by_node = [one for one in matching if one.node == operator.name] or matching
        if by_node:
            # A wrong fake kernel explains more than an undeclared effect.
            one = min(by_node, key=lambda one: one.what in UNDECLARED_EFFECTS)
            place = "" if one.place is None else f"[{one.place}]"
            was = one.declared, one.made
            facts = one.behavior_text, one.fake_kernel, False, place, *was
            yield OperatorMismatch(operator, *facts, what=one.what)
        elif operator.name in in_original:
            mismatch = in_original[operator.name]
            result = f" (result {mismatch.place})" if mismatch.place else ""
            text = f"{mismatch.difference_text}{result}"
            was = mismatch.declared, mismatch.made
            yield OperatorMismatch(operator, text, "", True, mismatch.place, *was)


def _examined(reduced: ReducedProgram) -> tuple[OperatorFinding, ...]:
    share = reduced.budget.share()
    if share < SECONDS:
        return ()
    client = reduced.client.with_clock_limit(share)
    with scratch.make_scratch_folder("operators") as folder:
        path = Path(folder) / "findings"
        candidate = reduced.candidate.to_json()
        with contextlib.suppress(BudgetExhausted):
            client.ask(ExamineCandidate(candidate, str(path.resolve()), SECONDS))
        rows = path.read_text().splitlines() if path.exists() else []
    found = [OperatorFinding.from_line(row) for row in rows if row.endswith("}")]
    return tuple(one for one in found if one.what in _BLAMED)

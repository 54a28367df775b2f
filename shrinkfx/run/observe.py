"""First phase: reproduce the failure, then find a graph form and build to cut.

Restore the baseline of an earlier session, without reproducing the failure again.

Choose the build that shows the failure, and the build step that suffices for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.baseline.whole_candidate import WholeCandidate
from shrinkfx.check.baseline.with_guard_pages import Guarding
from shrinkfx.check.client.server import Server
from shrinkfx.check.command import Command
from shrinkfx.check.fast_builds import Builds
from shrinkfx.check.localise import collect_evidence
from shrinkfx.check.oracle import CheckClient
from shrinkfx.check.time_limit import AdaptiveTimeLimit, time_limit
from shrinkfx.errors import BudgetExhausted, LoadError, NotCuttable, UsageError
from shrinkfx.failure.blame import Evidence, Suspect, group_ties, rank_suspects
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import short_kernels
from shrinkfx.program.skeleton import FEEDS, Role, Skeleton
from shrinkfx.protocol.choices import (
    MANY_BYTES,
    Backend,
    Build,
    GraphForm,
    Guard,
    Step,
    Weights,
)
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.operators import OperatorFinding
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.caveats import OtherCauses
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import (
    Described,
    describe_program,
    examine_operators,
    is_eager_warning,
)
from shrinkfx.run.folder import PROGRAM
from shrinkfx.run.input_failure import (
    SCHEMA,
    InputFailure,
    InputProgram,
    find_input_failure,
    require_same_versions,
)
from shrinkfx.run.oracles import oracle_for
from shrinkfx.run.subject import Subject
from shrinkfx.system import scratch
from shrinkfx.wording import Flag

_FACT = "baseline"


def load_or_find_subject(context: RunContext, server: Server) -> Subject:
    """Return the failing program: from the journal, or by reproducing the failure.

    Eager runs once in both cases, because cut values come from its run.

    Raises:
        LoadError: eager cannot run the program.
        NotReproducible: the program does not fail as asked.
        UsageError: the earlier session used another machine or another torch.
    """
    known = context.journal.fact(_FACT)
    if known is None:
        program = reproduce_failure(context, server)
        if not program.not_tested:  # else a session with more time tests the forms
            context.journal.note(_FACT, _to_json(context, server, program))
    else:
        require_same_versions(context, server, known)
        context.note(f"baseline: {known['target']['text']} (from the journal)")
        context.budget.keep(known["check_s"])
        program = _from_json(context, server, known)
    # If a session could not test all forms, the last form that was found is cut.
    context.journal.note(PROGRAM, program.whole.skeleton.to_json())
    return _with_adaptive_limit(context, program)


def _with_adaptive_limit(context: RunContext, program: Subject) -> Subject:
    """Let the time limit adapt to the checks, unless the user has set one."""
    if context.options.timeout_s is not None:
        return program
    patience = AdaptiveTimeLimit(program.client.limits.timeout_s)
    return replace(program, client=replace(program.client, patience=patience))


def _to_json(context: RunContext, server: Server, program: Subject) -> dict[str, Any]:
    client = program.client
    return {
        "schema": SCHEMA,
        "versions": dict(server.ready.versions),
        "options": asdict(client.options),
        "timeout_s": client.limits.timeout_s,
        "builds": client.builds.to_json(),
        "before": asdict(program.before),
        "target": asdict(program.target),
        "rate": program.rate,
        "guarding": asdict(program.guarding),
        "suspects": [asdict(suspect) for suspect in program.suspects],
        "warnings": program.other_causes.warnings,
        "examined": [asdict(each) for each in program.other_causes.examined],
        "by_what_is_behind": program.short_results,
        "check_s": context.budget.check_s,
        "peak_rss_bytes": context.meters["baseline"].peak_rss_bytes,
    }


def _from_json(
    context: RunContext, server: Server, known: Mapping[str, Any]
) -> Subject:
    meter = context.meters["baseline"]
    meter.peak_rss_bytes = known.get("peak_rss_bytes", 0)  # unknown to older versions
    builds = dict(known["builds"])
    builds["fallbacks"] = Counter(builds["fallbacks"])
    limits = context.limits(known["timeout_s"])
    options = CheckOptions.from_json(known["options"])
    client = CheckClient(server, limits, options, meter, Builds(**builds))
    client, described = describe_program(context, client)
    causes = OtherCauses(
        mismatches=described.description.mismatches,
        examined=tuple(map(OperatorFinding.from_json, known["examined"])),
        warnings=tuple(known["warnings"]),
    )
    command, cwd = context.options.check, context.options.cwd
    return Subject(
        whole=Candidate.from_skeleton(described.skeleton),
        before=ProgramSize.from_json(known["before"]),
        client=client.with_limits(limits, context.meters["search"]),
        target=Signature.from_json(known["target"]),
        rate=known["rate"],
        command=Command.parse(command, cwd) if command else None,
        guarding=Guarding.from_json(known["guarding"]),
        suspects=tuple(Suspect(**suspect) for suspect in known["suspects"]),
        other_causes=causes,
        short_results=tuple(known["by_what_is_behind"]),
    )


BASELINE_TIMEOUT_S = 600.0
"""Default time limit for a run of the input program, in seconds."""


def reproduce_failure(context: RunContext, server: Server) -> Subject:
    """Reproduce the failure, and find a graph form that fails and can be cut.

    Raises:
        LoadError: eager cannot run the program.
        NotReproducible: the program does not fail as asked.
    """
    if server.ready.backend != Backend.INTERPRETER:
        _refuse_probes(context.options)
    if server.ready.gpu:
        context.note(f"running on {server.ready.gpu}")
    with _note_missing_failure():
        original, causes = _describe_original(context, server)
        unchanged = find_input_failure(original)
    program = _subject(original, unchanged, causes)
    program = _in_a_form_that_fails(context, program, original)
    if original.described.description.operators not in (
        0,
        cut := program.before.operators,
    ):
        message = _OTHER_COUNT.format(original.described.description.operators, cut)
        context.note(message)
    if server.ready.backend != Backend.INTERPRETER:  # it checks each access
        program = require_any_adjacent_memory(context, program)
    client = program.client
    client = client.with_limits(client.limits, context.meters["search"])
    return replace(program, client=client)


def _describe_original(
    context: RunContext, server: Server
) -> tuple[InputProgram, OtherCauses]:
    """Run the input program in eager, and collect causes other than the compiler."""
    limits = context.limits(BASELINE_TIMEOUT_S)
    client = CheckClient(server, limits, meter=context.meters["baseline"])
    check, cwd = context.options.check, context.options.cwd
    command = Command.parse(check, cwd) if check else None
    build = Build.FAST if can_build_fast(context, server) else Build.STOCK
    client, described = describe_program(context, client)
    examined = examine_operators(context, client, described)
    causes = replace(described.other_causes, examined=examined)
    weights = place_of_weights(build, described.skeleton)
    client = client.with_options(weights=weights)
    for name, reason in server.ready.missing_features.items():
        context.note(f"{name}: {reason}")
    if ignored := server.ready.ignored_options:
        causes = causes.with_warning(_IGNORED.format(", ".join(ignored)))
        context.note(causes.warnings[-1])
    in_one = _choose_whole_candidate(context.options, described, build)
    return InputProgram(
        context, server, client, described, command, build, in_one
    ), causes


def _choose_whole_candidate(
    options: Options, described: Described, build: Build
) -> WholeCandidate | None:
    """Return the whole candidate, if it should be tested before the file's program.

    That needs a functional program and the fast build. If only one run is allowed, it
    is one of the file's program in a fresh process.
    """
    alone = options.baseline_runs == 1 or options.until == Kind.HANG
    if alone or build is Build.STOCK or not described.description.functional:
        return None
    return WholeCandidate(Candidate.from_skeleton(described.skeleton))


def _subject(
    original: InputProgram, unchanged: InputFailure, causes: OtherCauses
) -> Subject:
    """Combine the program, options that show its failure, and other causes."""
    context, base, described = original.context, unchanged.base, original.described
    limits = context.limits(time_limit(base.seconds))
    shown = context.options.compared(
        unchanged.with_failure_shown(original.client.options)
    )
    client = replace(original.client, options=shown)
    if original.build is Build.FAST:
        client = client.with_options(build=original.build)
    skeleton = described.skeleton
    candidate = Candidate.from_skeleton(skeleton)
    return Subject(
        whole=candidate,
        before=ProgramSize(
            operators=candidate.cost[0],
            nodes=skeleton.original_nodes,
            inputs=described.description.inputs,
            dynamic_dims=described.description.dynamic_dims,
        ),
        client=client.with_limits(limits, context.meters["baseline"]),
        target=base.target,
        rate=base.rate,
        command=original.command,
        guarding=unchanged.guarding,
        other_causes=causes.with_warning(base.warning),
    )


def _in_a_form_that_fails(
    context: RunContext, program: Subject, original: InputProgram
) -> Subject:
    """Find a graph form that can be cut, if there is time for that."""
    if context.budget.has(context.budget.check_s * _FAST):
        with contextlib.suppress(BudgetExhausted):
            arguments = context, program, original.described
            return choose_graph_form(*arguments, original.in_one)
    return replace(program, not_tested=_NO_SEARCH.format(context.budget.seconds / 60))


_FAST = 0.5
"""Least time of the fast build, as a fraction of the first check's."""

_OTHER_COUNT = (
    "the file has {} operators; converted to the form in which shrinkfx reduces it, "
    "the program has {}"
)
_NO_SEARCH = "the baseline took {:.1f} minutes and left no time for a search"


@contextlib.contextmanager
def _note_missing_failure() -> Iterator[None]:
    """Add to a BudgetExhausted error that the failure was not reproduced yet."""
    try:
        yield
    except BudgetExhausted as spent:
        raise BudgetExhausted(
            f"{spent}\nthe program had not failed by then, so there is no result"
        ) from spent


def _refuse_probes(options: Options) -> None:
    """Refuse options that only the interpreter supports.

    Raises:
        UsageError: such an option is set.
    """
    probes = {"--probe": options.probe, "--all-probes": options.all_probes}
    for name in filter(probes.get, probes):
        where = Flag("--device", "cuda")
        raise UsageError(Flag(name), " only works for CUDA without a GPU: add ", where)


_IGNORED = (
    "the interpreter overrides the settings {}: a failure that needs your values does "
    "not show"
)


# Test whether a failure depends on the memory after a storage that is too small.
#
# An operator may return a storage that is smaller than its fake kernel declares.
# Compiled code reads up to the declared end, so it reads adjacent memory, whose
# content differs between processes. A failure that does not depend on that memory
# must not be reduced to one that does, because its repro would pass where the memory
# happens to hold zeros. So checks fill the adjacent memory with known values
# (``checking/tails.py`` of the worker). Programs without such operators are not
# tested.


def require_any_adjacent_memory(context: RunContext, program: Subject) -> Subject:
    """Require candidates to fail for any adjacent memory, if the input program does.

    Returns:
        The subject with that option; if the input program fails only by chance, the
        subject with the names of the operators.
    """
    short = program.other_causes.short
    if not short or not _may_read_adjacent_memory(program):
        return program
    named = ", ".join(short)
    if context.budget.check_s > context.budget.share():
        context.note(
            "not enough time left: not testing whether the failure depends "
            f"on the memory after the results of {named}"
        )
        return program
    with_tails = program.with_options(tails=short)
    try:
        verdict = oracle_for(with_tails).check(program.whole)
    except BudgetExhausted:
        return program
    if verdict.reproduced:
        context.note(_ANY_MEMORY.format(named))
        return with_tails
    if verdict.outcome is Outcome.UNRESOLVED:
        return program
    context.note(_CHANCE.format(named, verdict.observation.in_words))
    return replace(program, short_results=short)


def _may_read_adjacent_memory(program: Subject) -> bool:
    """Return whether the failure may depend on adjacent memory, and checks can tell.

    With guard pages, an access there would end the process.
    """
    options = program.client.options
    ran = program.target.stage in (Stage.RUN, Stage.COMPARE)
    ours = program.command is None and not program.not_tested
    return ran and ours and options.guard_pages is Guard.OFF


_ANY_MEMORY = (
    "{}: the result's storage is smaller than declared. The failure does not depend "
    "on the adjacent memory, so candidates must fail with any content of that memory"
)
_CHANCE = (
    "{}: the result's storage is smaller than declared. The failure depends on the "
    "adjacent memory; with known content of that memory: {}"
)


logger = logging.getLogger(__name__)


def choose_graph_form(
    context: RunContext,
    program: Subject,
    described: Described,
    in_one: WholeCandidate | None = None,
) -> Subject:
    """Choose the functional form if it fails, else the form with in-place operators.

    The form with inlined ``cond`` comes first, because a ``cond`` counts as one
    operator, whatever its branches hold. Suspects are computed in the chosen form, and
    facts about the other forms are dropped.

    Args:
        in_one: the failure of the whole candidate in the functional form, if it is
            known.

    Raises:
        NotCuttable: the program fails in no form.
    """
    runs = []
    for tried in _attempts(context, program, described, in_one):
        if tried.subject is not None:
            return tried.subject
        if tried.form is not GraphForm.INLINED_COND:  # that form may pass
            runs += [verdict.observation.in_words for verdict in tried.seen]
    fails = f"the program fails ({program.target})"
    raise NotCuttable(program.target.kind, fails, runs)


def _attempts(
    context: RunContext,
    program: Subject,
    described: Described,
    in_one: WholeCandidate | None,
) -> Iterator[Attempt]:
    """Try one form after the other, the form that is best to cut first."""
    yield from _attempt_inlined_cond(context, program, described)
    yield attempt(context, program, described, in_one)
    context.note("the program does not fail without in-place operators: keeping them")
    yield attempt(context, *_convert_to_form(context, program, GraphForm.IN_PLACE))


def _attempt_inlined_cond(
    context: RunContext, program: Subject, described: Described
) -> Iterator[Attempt]:
    """Try the program with each ``cond`` replaced by the branch that it takes."""
    skeleton = described.skeleton
    if all(skeleton.node(name).target != "cond" for name in skeleton.operators):
        return
    if context.budget.check_s > context.budget.share():
        return  # this form is better to cut, but the others work, too
    try:
        program, inlined = _convert_to_form(context, program, GraphForm.INLINED_COND)
    except LoadError as error:
        # A program that cannot be written without cond can still be cut with it.
        logger.debug("no form without cond: %s", error)
        return
    if inlined.skeleton.operators == skeleton.operators:
        return  # no cond was inlined, because its branch differs between runs
    tried = attempt(context, program, inlined)
    if tried.subject is not None:
        context.note(
            "the program also fails without cond: continuing with the branches that "
            "it takes"
        )
    yield tried


def _convert_to_form(
    context: RunContext, program: Subject, form: GraphForm
) -> tuple[Subject, Described]:
    """Return the program in another graph form, and the description of that form."""
    known = program.other_causes
    client = program.client.with_options(graph=form)
    client, described = describe_program(context, client, known.mismatches)
    here = described.other_causes
    retained = [text for text in known.warnings if not is_eager_warning(text)]
    warnings = [*here.warnings, *retained]
    causes = replace(here, examined=known.examined, warnings=tuple(warnings))
    candidate = Candidate.from_skeleton(described.skeleton)
    before = replace(program.before, operators=candidate.cost[0])  # counts of one form
    converted = replace(
        program, client=client, whole=candidate, before=before, other_causes=causes
    )
    return converted, described


_SHOWN = 3
"""Number of suspects, or groups of equally likely ones, that are noted."""


def attempt(
    context: RunContext,
    program: Subject,
    described: Described,
    in_one: WholeCandidate | None = None,
) -> Attempt:
    """Choose the build in which a graph form fails, and rank its suspects.

    Args:
        described: the description of this form.
        in_one: the known failure of the whole candidate in this form, or None.
    """
    checks = program.client.options
    known = in_one.verdict(program.target, checks) if in_one else None
    with scratch.make_scratch_folder("evidence") as folder:
        path = Path(folder) / "evidence.json"
        tried = choose_build(context, program, evidence=str(path), known=known)
        if tried.subject is None:
            return tried
        traces = Traces.from_line(path.read_text()) if path.exists() else Traces()
    if in_one and known:
        traces = in_one.traces
    evidence = Evidence.from_traces(traces)
    suspects = _suspects(context, tried.subject, described, evidence, tried.seen[-1])
    shown = (short_kernels(str(tie)) for tie in group_ties(suspects)[:_SHOWN])
    for line in dict.fromkeys(shown):  # calls in one line of the model read alike
        context.note(line)
    return replace(tried, subject=replace(tried.subject, suspects=suspects))


def _suspects(
    context: RunContext,
    program: Subject,
    described: Described,
    known: Evidence,
    seen: Verdict,
) -> tuple[Suspect, ...]:
    """Rank operators; run further checks if the evidence does not suffice.

    Args:
        known: the evidence that the failing run has left.
        seen: the verdict of that run.
    """
    input_program, target, failed = program.whole, program.target, seen.observation
    mismatches = described.description.mismatches
    known = replace(
        known,
        text=known.text or failed.log,
        mismatched=tuple(dict.fromkeys(mismatch.within for mismatch in mismatches)),
        stopped=described.description.stopped,
    )
    if program.command is None:
        seconds = failed.seconds / failed.runs
        arguments = program.client, input_program, target, known, context.note
        known = collect_evidence(*arguments, seconds, context.budget)
    return rank_suspects(known, input_program.skeleton, target)


def can_build_fast(context: RunContext, server: Server) -> bool:
    """Return whether the options and the device allow the fast build, for CPUs only."""
    ready, options = server.ready, context.options
    on_cpu = ready.backend == Backend.AOTI and not ready.for_cuda
    return on_cpu and options.build == Build.FAST and options.check is None


def place_of_weights(build: Build, program: Skeleton) -> Weights:
    """Return where a compiled program stores its weights.

    Large weights are stored next to the fast build, which would write them for each
    candidate. The stock build confirms each result with its weights inside.
    """
    nodes = map(program.node, program.graph)
    many = sum(n.nbytes for n in nodes if n.role in FEEDS - {Role.INPUT}) >= MANY_BYTES
    return Weights.BESIDE if many and build is Build.FAST else Weights.INSIDE


def choose_build(
    context: RunContext,
    program: Subject,
    evidence: str | None = None,
    known: Verdict | None = None,
) -> Attempt:
    """Choose the fast build if it fails, else the stock build if that fails.

    Args:
        evidence: a file for evidence about the culprit operators, or None.
        known: the verdict of the subject's build if it is known; None to run a check.
    """
    form = program.client.options.graph
    with_evidence = program.with_options(evidence=evidence)
    first = known or oracle_for(with_evidence).check(program.whole)
    if first.reproduced:
        chosen = _limit_to_failing_step(context, program, first)
        return Attempt(form, chosen, (first,))
    if form is GraphForm.INLINED_COND or program.build is Build.STOCK:
        return Attempt(form, None, (first,))  # the inlined form is tried only once
    stock = program.built_stock()
    second = oracle_for(stock.with_options(evidence=evidence)).check(stock.whole)
    if not second.reproduced:
        return Attempt(form, None, (first, second))
    context.note(
        "the program does not fail in the fast build: continuing with --build stock"
    )
    return Attempt(form, stock, (first, second))


def _limit_to_failing_step(
    context: RunContext, program: Subject, verdict: Verdict
) -> Subject:
    """Build candidates only up to the step that fails, if that step fails alone.

    A failure before the compiler call does not need the compiler. If the compiler
    rejects one file, candidates compile that file alone, provided this shows the
    failure of the input program.
    """
    step = verdict.observation.step
    alone = (Step.LOWERING, Step.WRAPPER, Step.KERNEL)
    if program.build is Build.STOCK or step not in alone:
        return program
    if program.target.kind is not Kind.COMPILE_ERROR:
        return program  # a timeout or a signal may occur at another step
    only = program.with_options(only=step)
    if step == Step.LOWERING:
        return only
    if verdict.observation.seconds > context.budget.share():
        return program  # the test may take more time than it saves
    return only if oracle_for(only).check(program.whole).reproduced else program


@dataclass(frozen=True)
class Attempt:
    """The result of testing the program in one graph form.

    Attributes:
        subject: the program in this form and in the build that fails, with the facts
            about this form; None if it fails in no build.
        seen: the verdicts of the builds that were tested, in their order.
    """

    form: GraphForm
    subject: Subject | None
    seen: tuple[Verdict, ...]

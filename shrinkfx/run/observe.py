"""First phase: reproduce the failure, then find a graph form and build to cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from shrinkfx.check.baseline.whole_candidate import WholeCandidate
from shrinkfx.check.client.server import Server
from shrinkfx.check.command import Command
from shrinkfx.check.oracle import CheckClient
from shrinkfx.check.time_limit import time_limit
from shrinkfx.errors import BudgetExhausted, UsageError
from shrinkfx.failure.signature import Kind
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Backend, Build
from shrinkfx.report.caveats import OtherCauses
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.adjacent_memory import require_any_adjacent_memory
from shrinkfx.run.build import can_build_fast, place_of_weights
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import Described, describe_program
from shrinkfx.run.examining import examine_operators
from shrinkfx.run.form import choose_graph_form
from shrinkfx.run.input_failure import InputFailure, InputProgram, find_input_failure
from shrinkfx.run.subject import Subject
from shrinkfx.wording import Flag

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
    "the file has {} operators; after conversion the program has {}, and the search "
    "starts there"
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

"""First phase: see the failure, in the file's program and in a form to cut."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from shrinkfx.check.baseline import Baseline, baseline, describe
from shrinkfx.check.command import RUNS, Command, CommandOracle, see_it_fail
from shrinkfx.check.guarding import Guarding
from shrinkfx.check.oracle import Compiler, RepeatedOracle, make_oracle
from shrinkfx.check.patience import time_limit
from shrinkfx.check.probing import probe_baseline
from shrinkfx.check.server import Server
from shrinkfx.errors import NotCuttable, UsageError
from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Oracle
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Backend, Build, Probe, Task
from shrinkfx.report.summary import Sizes
from shrinkfx.run.building import can_build_fast
from shrinkfx.run.cutting import in_a_form_that_fails
from shrinkfx.run.describing import Described, describe_program
from shrinkfx.run.examining import examine_operators
from shrinkfx.run.job import Job
from shrinkfx.run.memory import guard

BASELINE_TIMEOUT_S = 600.0
"""Seconds that a run of the unchanged program may take without ``timeout_s``."""

MAX_CALLS = 10
"""Calls in one run of a program that changes its buffers, before it passes."""


@dataclass(frozen=True)
class Subject:
    """The program under reduction, once its failure has been seen.

    Attributes:
        whole: the candidate that holds all of it.
        before: its size.
        compiler: set up so that the failure shows.
        rate: the part of the original's runs that failed so.
        command: the user's own test, or None.
        guarding: the guard pages that its failure needs.
        suspects: operators that the failure may come from, the surest first.
    """

    whole: Candidate
    before: Sizes
    compiler: Compiler
    target: Signature
    rate: float
    command: Command | None = None
    guarding: Guarding = field(default_factory=Guarding)
    suspects: tuple[Suspect, ...] = ()

    @property
    def calls(self) -> int:
        """How often a run must call the program before it fails."""
        return int(self.compiler.options.get("calls", 1))

    @property
    def build(self) -> Build:
        """How its candidates are built."""
        return Build(self.compiler.options.get("build", Build.STOCK))

    def built_stock(self) -> Subject:
        """Build candidates as AOTInductor does."""
        return replace(self, compiler=self.compiler.built_stock())

    def with_options(self, **options: object) -> Subject:
        """Set further options of the worker."""
        return replace(self, compiler=self.compiler.with_options(**options))

    def oracle(self, **options: object) -> Oracle:
        """Make what answers questions, with further options for the worker."""
        compiler = self.compiler.with_options(**options)
        if self.command:
            return CommandOracle(compiler, self.command)
        return make_oracle(compiler, self.target, self.rate)

    def rate_of(self, candidate: Candidate) -> float:
        """Measure in which part of the runs a candidate fails."""
        if self.rate == 1.0:
            return 1.0
        oracle = RepeatedOracle(self.compiler, self.target, self.rate)
        return oracle.measure(candidate)


def find_subject(job: Job, server: Server) -> Subject:
    """See the program fail, and find the form of it that fails and can be cut.

    Raises:
        LoadError: eager cannot run it.
        NotReproducible: it does not fail as asked.
    """
    meter = job.meters["baseline"]
    meter.cpu_seconds += server.ready.cpu_seconds
    compiler = Compiler(server, job.limits(BASELINE_TIMEOUT_S), meter=meter)
    if job.options.probe and server.ready.backend != Backend.INTERPRETER:
        raise UsageError("--probe is for CUDA without a GPU: add --device cuda")
    compiler, described = describe_program(job, compiler)
    examine_operators(job, compiler, described)
    if ignored := server.ready.ignored_options:
        job.warnings.append(_IGNORED.format(", ".join(ignored)))
        job.note(job.warnings[-1])
    check, cwd = job.options.check, job.options.cwd
    command = Command.parse(check, cwd) if check else None
    guarding = Guarding() if command else guard(job, server, compiler)
    compiler = compiler.with_options(**guarding.options, sought=job.options.until or "")
    compiler = compiler.with_options(**job.options.closeness)
    backend = Backend(server.ready.backend)
    build = Build.FAST if can_build_fast(job, server) else Build.STOCK
    base = _run_unchanged(job, backend, compiler, described, command, build)
    job.warnings += [base.warning] if base.warning else []
    limits = job.limits(time_limit(base.seconds))
    compiler = compiler.with_limits(limits, meter).with_options(
        fallback_random=base.fallback_random, calls=base.calls
    )
    if base.probe:
        compiler = compiler.with_options(probe=base.probe)
    # As outputs come and go, another one that differs may be the first.
    compiler = compiler.with_options(sought=base.target.kind)
    skeleton = described.skeleton
    before = Sizes(
        operators=skeleton.original_operators,
        nodes=skeleton.original_nodes,
        inputs=described.inputs,
        dynamic_dims=described.dynamic_dims,
    )
    if build is Build.FAST:
        compiler = compiler.with_options(build=build)
    whole = Candidate.whole(skeleton)
    asked = (base.target, base.rate, command, guarding)
    subject = Subject(whole, before, compiler, *asked)
    subject = in_a_form_that_fails(job, subject, described)
    compiler = subject.compiler.with_limits(limits, job.meters["search"])
    return replace(subject, compiler=compiler)


_INTERPRETED = (
    "no CUDA here: Inductor's kernels for {} run on Triton's interpreter, and each of "
    "their accesses is checked"
)


_IGNORED = (
    "the interpreter has settings of its own for {}: a failure that needs the chosen "
    "ones does not show"
)


def _run_unchanged(
    job: Job,
    backend: Backend,
    compiler: Compiler,
    described: Described,
    command: Command | None,
    build: Build,
) -> Baseline:
    """See the failure of the program as the file holds it."""
    options = job.options
    if command is None and backend is Backend.INTERPRETER:
        job.note(_INTERPRETED.format(options.arch))
        probes = [Probe(options.probe)] if options.probe else list(Probe)
        until, match = options.until, options.match
        return probe_baseline(compiler, until, match, probes, job.note)
    if command is None:
        max_calls = MAX_CALLS if described.keeps_state else 1
        asked = options.until, options.match, options.baseline_runs
        return baseline(compiler, *asked, job.note, max_calls, build)
    job.note(f"baseline: running --check on the program as it is, {RUNS} times")
    if command.takes_inputs:
        seconds = _see_it_fail_flat(job, compiler, command)
    else:
        seconds = see_it_fail(command, compiler, options.model.resolve(), None)
    return Baseline(command.target, 1.0, False, seconds)


def _see_it_fail_flat(job: Job, compiler: Compiler, command: Command) -> float:
    """Run the command on the program with its inputs flat, as candidates take them.

    The user's file may hold them otherwise. Where it does not fail, what it was run
    on is left behind.
    """
    compiler, described = describe_program(job, compiler.with_options(in_place=True))
    folder = job.out.resolve()
    program, inputs = folder / "original.pt2", folder / "original_inputs.pt"
    whole = Candidate.whole(described.skeleton)
    saved = observe(
        compiler.ask(
            Task.SAVE,
            candidate=whole.to_json(),
            path=str(program),
            inputs=str(inputs),
        )
    )
    if not inputs.exists():
        known = "the program may fail (--check has not been run)"
        raise NotCuttable(command.target.kind, known, [describe(saved)])
    seconds = see_it_fail(command, compiler, program, inputs)
    program.unlink()
    inputs.unlink()
    return seconds

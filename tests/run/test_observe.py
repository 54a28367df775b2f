"""The first phase: description, reproduction, form, build and memory."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import DESCRIPTION, Arguments, FakeServer, context_with
from support.lies import lie, strided, tensor

from shrinkfx.api import require_valid_options
from shrinkfx.check.baseline.with_caching import NO_CACHING
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import LoadError, NotReproducible, UsageError
from shrinkfx.events import Event, Listener, NoteAdded, ignore_event
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Verdict
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Node, Role, Skeleton
from shrinkfx.protocol.answers import (
    Built,
    Checked,
    Description,
    Difference,
    Ending,
    Examined,
    Invalid,
    Raised,
    Ready,
)
from shrinkfx.protocol.choices import (
    MANY_BYTES,
    Backend,
    Build,
    GraphForm,
    Guard,
    Step,
    Weights,
)
from shrinkfx.protocol.operators import Misbehavior, OperatorFinding
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    CheckOriginal,
    Describe,
    Examine,
    Request,
)
from shrinkfx.report.record import OtherCauses, ProgramSize, format_finding
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.observe import (
    Described,
    choose_build,
    choose_graph_form,
    describe_program,
    examine_operators,
    place_of_weights,
    reproduce_failure,
    require_any_adjacent_memory,
)
from shrinkfx.run.verification import Result, make_record
from shrinkfx.testing import FLOATS, chain, operator, skeleton, whole

# What the baseline and the search are told of what a user has asked for.


DIFFERS = Checked(Difference("values", "wrong"))


class Worker(FakeServer):
    """Describes a program that gives wrong results."""

    ready = Ready(backend=Backend.AOTI)

    def __init__(self, folder: Path, operators: int = 0) -> None:
        skeleton = folder / "skeleton.json"
        skeleton.write_text(json.dumps(chain("x", "relu", "tanh").to_json()))
        described = replace(DESCRIPTION, skeleton=str(skeleton), operators=operators)
        super().__init__(lambda asked: self._ending(asked, described))

    def _ending(self, asked: Arguments, described: Description) -> Ending:
        is_asked = "package" in asked or "candidate" in asked or "sanity" in asked
        return Ending("exit", stage="done", answer=DIFFERS if is_asked else described)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(Path("m.pt2")), {}),
        (Options(Path("m.pt2"), rtol=0.1), {"rtol": 0.1}),
        (
            Options(Path("m.pt2"), atol=0.0, strict=True),
            {"atol": 0.0, "strict": True},
        ),
    ],
)
def test_each_comparison_uses_the_requested_tolerance(
    tmp_path: Path, options: Options, told: dict[str, object]
) -> None:
    worker = Worker(tmp_path)
    subject = reproduce_failure(context_with(worker, options, tmp_path))
    names = ("rtol", "atol", "strict")
    _, *compared = worker.arguments  # the first only describes
    assert len(compared) > 10
    for asked in (*compared, asdict(subject.client.options)):
        said = {name: asked.get(name) for name in names}
        assert {
            k: v for k, v in said.items() if v is not None and v is not False
        } == told


def test_probes_are_refused_without_the_interpreter(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    for options in (
        Options(Path("m.pt2"), probe="real"),
        Options(Path("m.pt2"), all_probes=True),
    ):
        with pytest.raises(UsageError, match="only works for CUDA without a GPU: add"):
            reproduce_failure(context_with(worker, options, tmp_path))
    with pytest.raises(UsageError, match="only one of them"):
        require_valid_options(Options(Path("m.pt2"), probe="real", all_probes=True))


def test_torch_compile_loads_no_package(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.ready = Ready(backend=Backend.INDUCTOR)
    options = Options(Path("m.pt2"), until="load-error")
    with pytest.raises(UsageError, match="makes no package"):
        reproduce_failure(context_with(worker, options, tmp_path))


class Passing(Worker):
    """Describes a program that passes."""

    def _reply(self, request: Request) -> Ending:
        if isinstance(request.task, Describe):
            return super()._reply(request)
        return Ending("exit", stage="done", answer=Checked())


LACKING = "Inductor's x is lacking: it is a lambda; --preload a module that sets it"


def seen(worker: Worker, folder: Path, **options: Any) -> NotReproducible:
    asked = Options(Path("m.pt2"), lacking=(LACKING,), **options)
    with pytest.raises(NotReproducible) as raised:
        reproduce_failure(context_with(worker, asked, folder))
    return raised.value


def test_program_that_passes_for_lack_of_a_setting_runs_once(tmp_path: Path) -> None:
    worker = Passing(tmp_path)
    error = seen(worker, tmp_path)
    compiled = [each for each in worker.asked if not isinstance(each.task, Describe)]
    assert len(compiled) == 1
    assert error.exit_code == 3
    assert "the program does not fail; outcome of 1 run:" in str(error)
    assert LACKING in str(error)
    assert "possible differences from the failing run:" not in str(error)


def test_program_that_fails_despite_a_missing_setting_is_reduced(
    tmp_path: Path,
) -> None:
    options = Options(Path("m.pt2"), lacking=(LACKING,))

    class Failing(Worker):
        def _reply(self, request: Request) -> Ending:
            if isinstance(request.task, Describe):
                return super()._reply(request)
            return Ending("exit", stage="done", answer=DIFFERS)

    subject = reproduce_failure(context_with(Failing(tmp_path), options, tmp_path))
    assert subject.target.kind is Kind.MISMATCH


class Raising(Worker):
    """Describes a program that raises when it is loaded, or else now and then."""

    def __init__(self, folder: Path, *stages: str) -> None:
        super().__init__(folder)
        self.stages = itertools.cycle(stages)

    def _reply(self, request: Request) -> Ending:
        if isinstance(request.task, Describe):
            return super()._reply(request)
        raised = Raised("RuntimeError", "undefined symbol: u0")
        return Ending("exit", stage=next(self.stages), answer=raised)


def test_exception_kind_covers_a_load_error(tmp_path: Path) -> None:
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, NoteAdded):
            notes.append(event.text)

    options = Options(Path("m.pt2"), until="exception")
    context = context_with(Raising(tmp_path, "load"), options, tmp_path, listen)
    subject = reproduce_failure(context)
    assert subject.target.kind is Kind.LOAD_ERROR
    assert (
        "every run of the program fails with kind load-error, not exception: reducing "
        "that failure (--strict-kind refuses it)"
    ) in notes


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        ({"until": "exception", "strict_kind": True}, ["load"]),
        ({"until": "exception", "match": "another text"}, ["load"]),
        ({"until": "ima"}, ["load"]),
        ({"until": "mismatch"}, ["load"]),
    ],
)
def test_failure_other_than_requested_is_refused(
    tmp_path: Path, options: dict[str, Any], stages: list[str]
) -> None:
    asked = Options(Path("m.pt2"), guard_pages="off", baseline_runs=3, **options)
    context = context_with(Raising(tmp_path, *stages), asked, tmp_path)
    with pytest.raises(NotReproducible, match="--until load-error"):
        reproduce_failure(context)


# A program that eager itself does not survive is told, with what to do.


LOG = """\
Current thread 0x1 (most recent call first):
  File "/home/me/ops.py", line 7 in settle
  File "/env/site-packages/shrinkfx/worker/tasks.py", line 93 in perform
"""


@pytest.mark.parametrize(
    ("ending", "did", "advice"),
    [
        (
            Ending("timeout", log=LOG, operator="my.settle (settle)"),
            "eager did not end in 20 s in my.settle (settle), before anything",
            "the program hangs without AOTInductor, too, so there is nothing to "
            "reduce: fix my.settle (settle) or its inputs; if it is only slow: "
            "--timeout SECONDS",
        ),
        (
            Ending("signal", signal.SIGSEGV, log=LOG, operator="my.settle (settle)"),
            "eager died of SIGSEGV in my.settle (settle), before anything",
            "the program dies without AOTInductor, too, so there is nothing to reduce",
        ),
        (
            Ending("signal", signal.SIGABRT),
            "eager died of SIGABRT, before anything",
            "fix the program or its inputs",
        ),
        (Ending("memory", log="Killed"), "eager ended with memory 0", "Killed"),
    ],
)
def test_hang_or_crash_in_eager_mode_is_reported_as_a_load_error(
    tmp_path: Path, ending: Ending, did: str, advice: str
) -> None:
    context = RunContext(Options(Path("model.pt2")), tmp_path, ignore_event)
    client = CheckClient(FakeServer(lambda _: ending), Limits(20.0, 1 << 30))
    with pytest.raises(LoadError) as caught:
        describe_program(context, client)
    said = str(caught.value)
    assert said.startswith(f"model.pt2: {did}")
    assert advice in said
    if ending.log == LOG:
        assert '\n  File "/home/me/ops.py", line 7 in settle\n' in said
        assert "shrinkfx/worker" not in said


# What a run makes of what is seen of custom operators.


MIX = "my.mix.default"
FILL = "my.fill.default"
FOUND = [
    OperatorFinding("my.mix.default", Misbehavior.WRITES, "mix", argument="x"),
    OperatorFinding(
        "my.mix.default",
        Misbehavior.FAKE,
        "mix",
        error="TypeError: \x1b[31mless",
    ),
    OperatorFinding("my.roll.default", Misbehavior.FAKE, "roll", error="more"),
    OperatorFinding("my.fill.default", Misbehavior.FAKE, "fill", error="4"),
    OperatorFinding("my.fill.default", Misbehavior.UNFILLED, "fill"),
    OperatorFinding("my.fill.default", Misbehavior.UNSTEADY, "fill_1"),
    OperatorFinding(
        *("my.fill.default", Misbehavior.FIXES, "fill"),
        declared=tensor("float32", 4, 6),
        made=tensor("float32", 5, 6),
    ),
]


class Server(FakeServer):
    """Keeps what each question might take by the clock, too."""

    def __init__(self, answer: Callable[[Arguments], Ending]) -> None:
        super().__init__(answer)
        self.limits: list[tuple[float, float]] = []

    def ask(self, request: Request) -> Ending:
        self.limits.append((request.timeout_s, request.wall_clock_limit_s))
        return super().ask(request)


def examined(
    folder: Path,
    ending: Ending,
    custom: tuple[str, ...] = ("my.mix.default",),
    stopped: str = "",
    minutes: float | None = None,
) -> tuple[list[str], list[str], Server]:
    """Examine a program of which one operator is known to lie."""

    def answer(arguments: Any) -> Ending:
        lines = "".join(finding.to_line() for finding in FOUND)
        Path(arguments["findings"]).write_text(lines + '{"what": "wri')
        return ending

    server, said = Server(answer), []
    options = Options(Path("model.pt2"), max_minutes=minutes)
    context = RunContext(options, folder, lambda event: said.append(event))
    context.budget.clock = lambda: context.budget.started
    known = (strided("roll", (1,), (2,), "my.roll.default"),)
    about = replace(DESCRIPTION, stopped=stopped, custom=custom, mismatches=known)
    described = Described(chain("x", "relu"), about)
    client = CheckClient(server, Limits(600.0, 1 << 30))
    warnings = [*map(format_finding, examine_operators(context, client, described))]
    return warnings, [e.text for e in said if isinstance(e, NoteAdded)], server


WARNINGS = [
    f"custom operator: {MIX} writes to its argument x, but its schema does not "
    "declare that",
    f"custom operator: {MIX} has a fake kernel that raises TypeError: less",
    f"custom operator: {FILL} returns values computed from uninitialized memory",
    f"custom operator: {FILL} has a fake kernel that declares size 4 for dim 0 of its "
    "result, whatever the input sizes, but the size is 5",
]


def test_findings_are_warnings_unless_the_mismatch_is_known(tmp_path: Path) -> None:
    warnings, said, _ = examined(tmp_path, Ending("exit", answer=Examined((), False)))
    assert said == WARNINGS
    assert warnings == WARNINGS


def test_fault_of_an_operator_is_advice_if_the_program_passes(tmp_path: Path) -> None:
    class Undeclared(Passing):
        def _reply(self, request: Request) -> Ending:
            ending = super()._reply(request)
            if isinstance(request.task, Examine):
                Path(request.task.findings).write_text(FOUND[0].to_line())
                return Ending("exit", answer=Examined((), False))
            if isinstance(ending.answer, Description):
                answer = replace(ending.answer, custom=(MIX,))
                return replace(ending, answer=answer)
            return ending

    error = seen(Undeclared(tmp_path), tmp_path)
    fault = f"correct this first, because it may be the cause: {WARNINGS[0]}"
    assert fault in str(error)


def test_findings_before_a_crash_are_reported_with_the_crash(tmp_path: Path) -> None:
    at = "my.mix.default (mix) when called with x=float32[5, 3]"
    dead = Ending("signal", signal.SIGSEGV, operator=at)
    _, said, _ = examined(tmp_path, dead)
    assert said == [
        *WARNINGS,
        f"custom operator: {MIX} crashes with SIGSEGV in eager at sizes that the "
        "program declares, when called with x=float32[5, 3]",
    ]


RAISED = Raised("ValueError", "no such size\nat all")


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (Ending("timeout"), "for 10 s"),
        (Ending("exit", answer=Examined((), True)), "for 10 s"),
        (Ending("late"), "for 10 s"),
        (Ending("memory"), "up to the memory limit"),
        (Ending("signal", signal.SIGBUS), "up to SIGBUS in another operator"),
        (Ending("exit", answer=RAISED), "up to ValueError: no such size"),
    ],
)
def test_examination_that_was_cut_short_is_reported(
    tmp_path: Path, ending: Ending, why: str
) -> None:
    _, said, _ = examined(tmp_path, ending)
    assert said == [*WARNINGS, f"custom operators: only partly tested, {why}"]


# Which form of a program is cut.


RAISED_FORM = Raised("ValueError", "no such thing")
RAISES = Signature(Kind.EXCEPTION, Stage.RUN, "ValueError: no such thing")
FAILS = Ending("exit", stage="run", answer=RAISED_FORM)
PASSES = Ending("exit", stage="done")


WITH_COND = skeleton(
    {"x": "", "relu": "x", "cond": operator("relu", target="cond"), "tanh": "cond"}
)
FORMS = {
    "functional": WITH_COND,
    "inlined-cond": chain("x", "relu", "sin", "tanh"),
    "in-place": chain("x", "relu_", "tanh"),
}
Fails = Callable[[str, str], bool]
"""Whether a form fails in a build."""


def chosen(
    folder: Path,
    fails: Fails,
    forms: dict[str, Skeleton] = FORMS,
    check_s: float = 0.0,
    eager: str = "",
) -> tuple[Subject, list[tuple[str, str]]]:
    """Choose a form; list which were asked about, and in which builds.

    Args:
        eager: the error that it raises, in each form.
    """
    asked: list[tuple[str, str]] = []

    def answer(arguments: Any) -> Ending:
        form = str(arguments.get("graph", GraphForm.FUNCTIONAL))
        if "candidate" in arguments:
            build = str(arguments.get("build", Build.STOCK))
            asked.append((form, build))
            return FAILS if fails(form, build) else PASSES
        if form not in forms:
            error = Raised("SpecViolationError", "no such graph")
            return Ending("exit", answer=error)
        path = folder / f"{form}.json"
        path.write_text(json.dumps(forms[form].to_json()))
        lies = (strided(form, (1,), (2,)),)
        said = replace(DESCRIPTION, skeleton=str(path), mismatches=lies, stopped="relu")
        said = replace(said, eager_error=eager)
        return Ending("exit", answer=said)

    client = CheckClient(
        FakeServer(answer), Limits(10.0, 1 << 30), CheckOptions(build=Build.FAST)
    )
    options = Options(Path("model.pt2"), max_minutes=3.0)
    context = RunContext(options, folder, lambda _: None)
    context.budget.keep(check_s)
    client, described = describe_program(context, client)
    whole = Candidate.from_skeleton(described.skeleton)
    causes = described.other_causes.with_warning("from the baseline")
    subject = Subject(
        context,
        whole,
        ProgramSize(3, 5, 1, 0),
        client,
        RAISES,
        1.0,
        other_causes=causes,
    )
    found = choose_graph_form(subject, described)
    (lie,) = found.other_causes.mismatches
    assert lie.node == found.client.options.graph
    return found, asked


def operators(subject: Subject) -> Sequence[str]:
    return subject.whole.operators


def test_cond_is_inlined_if_the_program_still_fails(tmp_path: Path) -> None:
    subject, asked = chosen(tmp_path, lambda form, build: True)
    assert operators(subject) == ("relu", "sin", "tanh")
    assert subject.client.options.graph is GraphForm.INLINED_COND
    assert asked == [("inlined-cond", "fast")]


def test_cond_is_kept_if_the_failure_needs_cond(tmp_path: Path) -> None:
    """To be without it is worth one question, not one in each build."""
    subject, asked = chosen(tmp_path, lambda form, build: form == "functional")
    assert operators(subject) == ("relu", "cond", "tanh")
    assert subject.client.options.graph is GraphForm.FUNCTIONAL
    assert asked == [("inlined-cond", "fast"), ("functional", "fast")]


def test_program_is_cut_with_cond_if_inlining_is_impossible(
    tmp_path: Path,
) -> None:
    forms = {name: form for name, form in FORMS.items() if name != "inlined-cond"}
    subject, asked = chosen(tmp_path, lambda form, build: True, forms)
    assert operators(subject) == ("relu", "cond", "tanh")
    assert asked == [("functional", "fast")]


def test_in_place_form_is_the_last_resort(tmp_path: Path) -> None:
    subject, asked = chosen(tmp_path, lambda form, build: form == "in-place")
    assert operators(subject) == ("relu_", "tanh")
    assert ("functional", "stock") in asked


@pytest.mark.parametrize("form", ["functional", "inlined-cond", "in-place"])
@pytest.mark.parametrize("error", ["", "no such\nthing"])
def test_warnings_of_the_baseline_are_kept_for_each_form(
    tmp_path: Path, form: str, error: str
) -> None:
    """What eager does is the same in each form, and told once."""
    subject, _ = chosen(tmp_path, lambda asked, _: asked == form, eager=error)
    said = ("eager also fails on the input program: no such",) if error else ()
    assert subject.other_causes.warnings == (*said, "from the baseline")


# Which build a run searches with, and how far it builds.


WHOLE = whole(chain("x", "relu", "tanh"))
ERROR = Raised("InductorError", "no such thing")
TARGET = Signature(
    Kind.COMPILE_ERROR, Stage.COMPILE, "InductorError | no such thing", "no such thing"
)
HANG = Signature(Kind.HANG, Stage.COMPILE)
PASSES_BUILD = Ending("exit", stage="done", built=Built(Build.FAST, Step.LINK))


def raised_in(step: Step) -> Ending:
    built = Built(Build.FAST, step)
    return Ending("exit", stage="compile", answer=ERROR, built=built)


def chosen_build(
    worker: FakeServer,
    target: Signature = TARGET,
    build: Build = Build.FAST,
    minutes: float | None = None,
) -> tuple[Subject | None, Sequence[Verdict], list[str]]:
    events: list[Event] = []
    options = Options(Path("model.pt2"), max_minutes=minutes)
    context = RunContext(options, Path("out"), events.append)
    client = CheckClient(worker, Limits(10.0, 1 << 30), CheckOptions(build=build))
    subject = Subject(context, WHOLE, ProgramSize(2, 4, 1, 0), client, target, 1.0)
    tried = choose_build(subject)
    assert tried.form is GraphForm.FUNCTIONAL
    notes = [event.text for event in events if isinstance(event, NoteAdded)]
    return tried.subject, tried.seen, notes


def test_failure_before_compilation_is_searched_without_the_compiler() -> None:
    worker = FakeServer(lambda _: raised_in(Step.LOWERING))
    subject, _, _ = chosen_build(worker)
    assert subject is not None
    assert subject.client.options.only == Step.LOWERING
    assert len(worker.asked) == 1


@pytest.mark.parametrize("step", [Step.WRAPPER, Step.KERNEL])
def test_failing_file_is_tested_alone(step: Step) -> None:
    worker = FakeServer(lambda _: raised_in(step))
    subject, _, _ = chosen_build(worker)
    assert subject is not None
    assert subject.client.options.only == step
    assert [asked.get("only") for asked in worker.arguments] == [None, step]


@pytest.mark.parametrize(
    ("ending", "target"),
    [
        (raised_in(Step.LINK), TARGET),
        (
            Ending("timeout", stage="compile", built=raised_in(Step.LOWERING).built),
            HANG,
        ),
    ],
)
def test_other_build_failures_need_the_whole_build(
    ending: Ending, target: Signature
) -> None:
    subject, _, _ = chosen_build(FakeServer(lambda _: ending), target)
    assert subject is not None
    assert subject.build is Build.FAST
    assert subject.client.options.only is None


def test_failure_in_the_stock_build_only_is_reduced_with_the_stock_build() -> None:
    worker = FakeServer(
        lambda a: raised_in(Step.KERNEL) if "build" not in a else PASSES_BUILD
    )
    subject, seen, (note,) = chosen_build(worker)
    assert subject is not None
    assert subject.build is Build.STOCK
    assert [verdict.reproduced for verdict in seen] == [False, True]
    assert "--build stock" in note


def test_weights_are_external_only_if_large_and_in_the_fast_build() -> None:
    def program(nbytes: int, role: Role) -> Skeleton:
        held = Node("w", role, value=FLOATS, nbytes=nbytes)
        relu = Node("relu", Role.OPERATOR, "aten.relu.default", ("w",), FLOATS, 1)
        return Skeleton([held, relu], ["relu"])

    large, small = (program(n, Role.PARAMETER) for n in (MANY_BYTES, MANY_BYTES - 1))
    assert place_of_weights(Build.FAST, large) is Weights.BESIDE
    assert place_of_weights(Build.STOCK, large) is Weights.INSIDE
    assert place_of_weights(Build.FAST, small) is Weights.INSIDE
    inputs = program(MANY_BYTES, Role.INPUT)
    assert place_of_weights(Build.FAST, inputs) is Weights.INSIDE


# Whether a failure needs what lies behind a short result is asked once, of it all.


SHORT = ("my.narrow.default",)
WRONG = Ending("exit", stage="done", answer=Checked(Difference("values", "wrong")))
PASSES_BEHIND = Ending("exit", stage="done", answer=Checked())
OTHERWISE = Ending("exit", stage="done", answer=Invalid("it depends"))
TARGET_BEHIND = Signature(Kind.MISMATCH, Stage.COMPARE, "", "values")


def subject_of(
    server: FakeServer, folder: Path, listener: Listener = ignore_event
) -> Subject:
    whole = Candidate.from_skeleton(chain("x", "relu", "tanh"))
    client = CheckClient(server, Limits(9.0, 1 << 30))
    size = ProgramSize(2, 3, 1, 0)
    narrow = tensor("int32", 8), tensor("int64", 8)
    causes = OtherCauses(tuple(lie("m", *narrow, operator=name) for name in SHORT))
    context = context_with(server, Options(Path("m.pt2")), folder, listener)
    return Subject(
        context, whole, size, client, TARGET_BEHIND, 1.0, other_causes=causes
    )


def subject_and_server(
    ending: Ending, tmp_path: Path, listener: Listener = ignore_event, **changes: object
) -> tuple[Subject, FakeServer]:
    server = FakeServer(lambda _: ending)
    subject = replace(subject_of(server, tmp_path, listener), **changes)  # type: ignore[arg-type]
    return require_any_adjacent_memory(subject), server


def test_adjacent_memory_is_defined_if_irrelevant_to_the_failure(
    tmp_path: Path,
) -> None:
    subject, server = subject_and_server(WRONG, tmp_path)
    assert subject.client.options.tails == SHORT
    assert subject.short_results == ()
    (told,) = server.arguments
    assert told["tails"] == SHORT


@pytest.mark.parametrize("ending", [PASSES_BEHIND, OTHERWISE])
def test_dependence_on_adjacent_memory_is_reported_and_memory_left_as_is(
    tmp_path: Path, ending: Ending
) -> None:
    said: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, NoteAdded):
            said.append(event.text)

    subject, _ = subject_and_server(ending, tmp_path, listen)
    assert subject.client.options.tails == ()
    assert subject.short_results == SHORT
    assert (
        ": the result's storage is smaller than declared. The failure "
        "depends on the adjacent memory. The result of a run with known values in "
    ) in said[-1]


def test_no_query_is_made_with_guard_pages_or_for_compile_errors(
    tmp_path: Path,
) -> None:
    compiling = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "", "boom")
    assert not subject_and_server(WRONG, tmp_path, target=compiling)[1].arguments
    server = FakeServer(lambda _: WRONG)
    subject = subject_of(server, tmp_path).with_options(guard_pages=Guard.AFTER)
    assert require_any_adjacent_memory(subject) is subject
    assert not server.arguments


# A run on a GPU that is made up: its allocator, and what is told of it.


DIES = Raised("RuntimeError", "CUDA error: an illegal memory access was encountered")
BLOCKING = "CUDA_LAUNCH_BLOCKING"
VERSIONS = {"torch": "2.11.0", "GPU": "NVIDIA H100", "driver": "580.95.05"}


class Gpu(FakeServer):
    """Describes a program that dies with one of the allocators, with both or none."""

    def __init__(self, folder: Path, dies: Callable[[bool], bool]) -> None:
        skeleton = folder / "skeleton.json"
        skeleton.write_text(json.dumps(chain("x", "relu", "tanh").to_json()))
        self._described = replace(DESCRIPTION, skeleton=str(skeleton))
        self._dies = dies
        self.ready = Ready(
            backend=Backend.AOTI,
            for_cuda=True,
            gpu="NVIDIA H100 as cuda:0, with CUDA_VISIBLE_DEVICES=3",
            environment={NO_CACHING: "1", BLOCKING: "1"},
            versions=VERSIONS,
        )
        super().__init__()

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        if not isinstance(request.task, (CheckOriginal, CheckCandidate)):
            return Ending("exit", stage="done", answer=self._described)
        if self._dies(request.options.environment.get(NO_CACHING) == ""):
            return Ending("exit", stage="run", answer=DIES)
        return Ending("exit", stage="done", answer=Checked())


def note_texts(listener: list[Event]) -> list[str]:
    return [event.text for event in listener if isinstance(event, NoteAdded)]


@pytest.fixture(autouse=True)
def _default_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NO_CACHING, raising=False)


@pytest.mark.parametrize("with_it", [True, False])
def test_search_and_repro_use_the_allocator_that_shows_the_failure(
    tmp_path: Path, with_it: bool
) -> None:
    gpu, events = Gpu(tmp_path, lambda cached: cached is with_it), list[Event]()
    options = Options(Path("m.pt2"), environment={"TORCH_SOMETHING": ""})
    subject = reproduce_failure(context_with(gpu, options, tmp_path, events.append))
    assert (subject.target.kind, subject.target.detail) == (Kind.IMA, MEMORY_FAULT)
    asked = {"environment": {NO_CACHING: ""}} if with_it else {}
    assert dict(subject.client.options.environment) == asked.get("environment", {})
    result = Result(subject, subject.whole, "program", None)
    set_there = make_record(result).conditions.environment
    assert set_there[BLOCKING] == "1"
    assert set_there.get(NO_CACHING) == (None if with_it else "1")
    assert "TORCH_SOMETHING" not in set_there
    said = note_texts(events)
    assert said[0] == "running on NVIDIA H100 as cuda:0, with CUDA_VISIBLE_DEVICES=3"
    only = (
        "the program fails only with the caching allocator: the search and "
        "the repro use the allocator ("
    )
    assert any(line.startswith(only) for line in said) is with_it


def test_allocator_chosen_by_the_user_is_the_only_one_tried(tmp_path: Path) -> None:
    gpu = Gpu(tmp_path, lambda cached: cached)
    options = Options(Path("m.pt2"), environment={NO_CACHING: "1"}, baseline_runs=2)
    context = context_with(gpu, options, tmp_path)
    with pytest.raises(NotReproducible):
        reproduce_failure(context)
    environments = [asked.get("environment", {}) for asked in gpu.arguments]
    assert all(NO_CACHING not in each for each in environments)

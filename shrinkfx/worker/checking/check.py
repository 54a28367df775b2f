"""The check of a program with either back end, and the files that it writes.

Each stage is noted before it begins, so that the parent knows where a child has died.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.failure.signature import Kind, Stage, normalise
from shrinkfx.program.display_text import first_line
from shrinkfx.program.pytorch_names import PYTORCH_NAMESPACES
from shrinkfx.protocol.answers import (
    Answer,
    Checked,
    Difference,
    Invalid,
    Stopped,
    Unresolved,
)
from shrinkfx.protocol.choices import Backend, InductorOptions, Probe, Weights
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.operators import Misbehavior
from shrinkfx.protocol.requests import CheckOptions, Request, Setup
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.fast_build import StepPassed
from shrinkfx.worker.aoti.torch_compile import (
    COMPLETE_S,
    KERNELS,
    WITH_CACHE,
    CompiledProgram,
    find_dynamic_dims,
    share_kernels,
)
from shrinkfx.worker.checking import evidence
from shrinkfx.worker.checking.reference import (
    Closeness,
    PassingRun,
    Reference,
    is_failure,
)
from shrinkfx.worker.cpu_memory import asan
from shrinkfx.worker.cuda_memory import red_zones
from shrinkfx.worker.disk_space import require_space_for_recording
from shrinkfx.worker.eager.fake_mismatch import MismatchRecorder, Watcher
from shrinkfx.worker.eager.intermediates import (
    FILLINGS,
    call,
    copy_to_filled_memory,
    has_own_memory,
    run_graph,
)
from shrinkfx.worker.explaining import compiled_view, values
from shrinkfx.worker.explaining.compiler_decisions import disable_applications
from shrinkfx.worker.explaining.debug_files import save_debug_files
from shrinkfx.worker.explaining.origins import find_origins
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.explaining.values import ComparedRun
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.interpreter.backend import VARIABLE
from shrinkfx.worker.model import Inputs, Program, flat_inputs
from shrinkfx.worker.operators.examine import find_hidden_dependencies
from shrinkfx.worker.origin import graphs_of
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.private_api.graph_api import TorchDispatchMode, pytree
from shrinkfx.worker.sizes.bindings import bind_symbols, declared_bytes

_RERUN_S = 5.0
"""Seconds after which a child does not run a passing program again."""

Compiled = Callable[..., Any]


@dataclass(frozen=True)
class Check:
    """One check of a program.

    Attributes:
        setup: how the server was started.
        run: the program, and the inputs to run it on.
        options: how the request wants it checked.
        note: notes each stage before it begins.
        folder: the child's own folder.
        recording: records the results of kernels, or None.
    """

    setup: Setup
    run: RebuiltCandidate
    options: CheckOptions
    note: Note
    folder: Path
    recording: Recording | None = None

    def perform(self) -> Answer:
        """Check the program with the back end of the server.

        The check writes its evidence, the compiled-program view, the values of the
        kernels, or code and logs for a reader, if the options name files or folders for
        these.

        Returns:
            ``Checked`` if the program has run, otherwise another answer.
        """
        options, note, setup = self.options, self.note, self.setup
        reads_kernels = options.compiled_view or options.values
        needs_api = reads_kernels or options.leave or options.leave_out
        if needs_api and (reason := codegen_api.FEATURE.missing):
            return Unresolved(reason)
        if options.torch_compile:
            setup = replace(setup, backend=Backend.INDUCTOR)
        if reads_kernels and setup.backend == Backend.INDUCTOR:
            # Only AOTInductor's kernels are recorded; most of them are the same.
            setup = replace(setup, backend=Backend.AOTI)
        # Inductor finds a compiled graph by its options: all runs have the same.
        caches_graph = options.package and setup.backend == Backend.INDUCTOR
        if reads_kernels or options.evidence or caches_graph:
            inductor = {**setup.inductor, **evidence.PROVENANCE}
            setup = replace(setup, inductor=inductor)
        with contextlib.ExitStack() as stack:
            enter = stack.enter_context
            if options.leave is not None:
                note = enter(save_debug_files(Path(options.leave), note, self.folder))
            if options.leave_out is not None:
                enter(disable_applications(options.leave_out))
            if options.evidence is not None:
                note = enter(evidence.collect_evidence(Path(options.evidence), note))
            if options.compiled_view is not None:
                view = Path(options.compiled_view)
                note = enter(
                    compiled_view.record_compiled_view(
                        view, self.run, note, self.folder, options
                    )
                )
            check = replace(self, setup=setup, note=note)
            return check.answer() if options.values is None else check.record_values()

    def record_values(self) -> Answer:
        """Check the program, and compare the results of each kernel with eager."""
        path = Path(self.options.values or "")
        try:
            require_space_for_recording(self.run.exported, self.folder)
        except LoadError as error:
            path.write_text(KernelValues(unknown=error.reason).to_line())
            return self.answer()
        recording = Recording(self.folder / "values")
        with recording.record_codegen():
            answer = replace(self, recording=recording).answer()
            if isinstance(answer, Checked) and answer.difference:
                compared = ComparedRun(
                    self.run.exported,
                    self.run.failing,
                    self.options.calls,
                    Closeness.of(self.options).tolerance,
                    find_origins,
                    metadata=not answer.difference.is_of_values,
                )
                report = values.judge_values(recording, compared)
                path.write_text(report.to_line())
        return answer

    def answer(self) -> Answer:
        """Check the program itself, without a report."""
        for names, find in (
            (self.options.mismatches, find_unexpected_mismatches),
            (self.options.bounded, find_out_of_bounds_operator),
        ):
            if names:
                self.note(Stage.EAGER)
                if why := find(self.run, names):
                    return Stopped(why)
        if self.setup.backend == Backend.INTERPRETER:
            return _check_on_interpreter(self)
        return check_compiled(self)

    def references(self) -> tuple[PassingRun, Reference]:
        """Return the eager runs that the compiled program is compared with."""
        return PassingRun(self.run, self.options), Reference(self.run, self.options)


# Check that fake-kernel mismatches of a candidate are those of the input program.
#
# An operator with wrong strides may also have a wrong shape if a dim is 1. A
# candidate that fails because of that has another bug than the one that is searched
# for.


def find_unexpected_mismatches(run: RebuiltCandidate, expected: Collection[str]) -> str:
    """Run a program in eager; return how its fake-kernel mismatches are unexpected.

    Args:
        expected: ``FakeMismatch.about`` of the allowed mismatches. One must occur.

    Returns:
        A message; '' if they are as expected, or if eager raises, because the check
        itself reports that.
    """
    recorder = MismatchRecorder()
    recorder.sizes = bind_symbols(run.exported, flat_inputs(run.exported, run.failing))
    try:
        watcher = Watcher(run.exported.graph_module, recorder)
        run_graph(watcher, run.exported, run.failing)
    except Exception:  # noqa: BLE001 - whatever the user's program raises
        return ""
    mismatches = dict.fromkeys(mismatch.about for mismatch in recorder.found)
    if not mismatches:
        return f"no operator is wrong about its result; sought: {'; '.join(expected)}"
    if unexpected := [about for about in mismatches if about not in expected]:
        text = "; ".join(unexpected)
        return f"an operator disagrees with its fake kernel in another way: {text}"
    return ""


# Find custom operators that read outside their arguments in a candidate.
#
# A smaller program may pass an operator less memory than it reads, such as a weight
# of one row for an input of two. Then it fails like the input program, but because of
# values outside the program's memory.


def find_out_of_bounds_operator(
    run: RebuiltCandidate, operators: Collection[str]
) -> str:
    """Run a program in eager; return one of the operators that reads out of bounds.

    Returns:
        A message; '' if no operator does so, or if eager raises, because the check
        itself reports that.
    """
    watcher = _Watcher(run.exported.graph_module, operators)
    with contextlib.suppress(Exception):  # whatever the user's program raises
        run_graph(watcher, run.exported, run.failing)
    if not watcher.culprit:
        return ""
    return f"{watcher.culprit} reads outside its arguments, unlike in the input program"


class _Watcher(fx.Interpreter):
    """Runs a graph and watches some operators, except those in its subgraphs."""

    def __init__(self, module: fx.GraphModule, operators: Collection[str]) -> None:
        super().__init__(module)
        self._operators = operators
        self.culprit = ""

    def run_node(self, n: fx.Node) -> Any:
        if str(n.target) in self._operators:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            if Misbehavior.STRAYS in find_hidden_dependencies(n.target, args, kwargs):
                self.culprit = str(n.target)
        return super().run_node(n)


# Find custom operators that get an index that no correct kernel could use.
#
# A kernel of the user's checks no index, so a smaller program in which the index is out
# of range would fail like the input program, whatever is wrong there.


def find_invalid_index(run: RebuiltCandidate, program: Program) -> str:
    """Return a message if a custom operator gets an invalid index, or ''."""
    before = _compare_indices(program.graph, program.failing)
    for argument, fits in _compare_indices(run.exported, run.failing).items():
        if not fits and before.get(argument):
            operator = argument[0]
            return f"{operator} gets an index out of range, unlike in the input program"
    return ""


def _compare_indices(
    exported: ExportedProgram, inputs: Inputs
) -> dict[tuple[str, int], bool]:
    """Compare integer inputs of custom operators with the sizes of other arguments.

    Returns:
        For each operator and position: whether all values are smaller than a size.
    """
    placeholders = exported.graph.find_nodes(op="placeholder")
    known = dict(zip(placeholders, flat_inputs(exported, inputs), strict=True))
    found: dict[tuple[str, int], bool] = {}
    for node in exported.graph.nodes:
        if getattr(node.target, "namespace", "aten") in PYTORCH_NAMESPACES:
            continue
        operands = [each for each in node.args if isinstance(each, fx.Node)]
        for place, operand in enumerate(operands):
            value = known.get(operand)
            if type(value) is not torch.Tensor or value.dtype not in _INDICES:
                continue
            others = [known.get(n, n.meta.get("val")) for n in {*operands} - {operand}]
            shapes: list[Any] = [getattr(other, "shape", [None]) for other in others]
            sizes = [size for shape in shapes for size in shape]
            if value.numel() and all(isinstance(size, int) for size in sizes):
                fits = int(value.max()) < max(sizes, default=0)
                key = str(node.target), place
                found[key] = found.get(key, True) and fits
    return found


_INDICES = torch.int32, torch.int64


# The interpreter.


def _check_on_interpreter(check: Check) -> Answer:
    """Check a program on the interpreter.

    The code is generated before eager runs, because eager needs a setting for a user's
    kernels that makes generating code impossible.
    """
    options, setup = check.options, check.setup
    probe = options.probe or Probe.REAL
    if options.sanity:
        os.environ[VARIABLE] = "1"
    runs = check.references()
    check.note(Stage.COMPILE)
    code, failure = None, None
    try:
        code = interpreter.generate(
            check.run.exported,
            {probe},
            folder=check.folder,
            arch=setup.arch,
            options={**setup.inductor, **options.inductor},
        )
    except Exception as error:  # noqa: BLE001 - told as soon as eager has run
        failure = error
    try:
        interpreter.switch_on(setup.arch)
        check.note(Stage.EAGER)
        with interpreter.check_user_kernels(probe):
            unseen = _run_eager(*reversed(runs))
        check.note(Stage.COMPILE)
        if failure:
            raise failure
        assert code is not None
        answer = _run_probe(check, probe, code, runs)
    except interpreter.Unsupported as error:
        return Unresolved(str(error))
    check.note(Stage.DONE)
    if isinstance(answer, Checked):
        return replace(answer, unseen=(*answer.unseen, *unseen))
    return answer


def _run_eager(*runs: PassingRun | Reference) -> tuple[str, ...]:
    """Run eager; return why the interpreter cannot run it, or ()."""
    try:
        for run in runs:
            run.run_eager()
    except interpreter.Unsupported as error:
        return (f"eager: {error.reason}",)
    return ()


def _run_probe(
    check: Check,
    probe: Probe,
    code: interpreter.GeneratedCode,
    runs: tuple[PassingRun, Reference],
) -> Answer:
    if probe is Probe.COMPILE:
        return Checked()  # otherwise generating the code would have raised
    if probe is Probe.HINTS:
        return Checked(unseen=code.benchmark().unseen)
    check.note(Stage.LOAD)
    before, reference = runs
    recording, compiled = check.recording, interpreter.load_code(code, probe)
    diverted = recording.divert_results(compiled) if recording else compiled
    if failure := before.find_failure(diverted, check.note):
        return failure
    if before.has_inputs and mutates(code.exported):
        # With the initial values of its buffers.
        compiled = interpreter.load_code(code, probe)
    recorded = recording.keep_results(compiled) if recording else compiled
    return reference.judge(recorded, check.note)


# AOTInductor and torch.compile.


def check_compiled(check: Check) -> Answer:
    """Check a program with a compiler: compile it, load it, run it and compare."""
    run, options = check.run, check.options
    note, recording = check.note, check.recording
    if options.guard_pages.has_pages:
        # The inputs were loaded before guard pages were on, so they have none.
        failing, passing = copy.deepcopy((run.failing, run.passing))
        run = replace(run, failing=failing, passing=passing)
        check = replace(check, run=run)
    before, reference = check.references()
    note(Stage.EAGER)
    # If the package is stored, eager passed in an earlier run of this program.
    if not (reference.may_wait and options.package and Path(options.package).exists()):
        reference.run_eager()
        before.run_eager()
    red_zones.log_zone_protection()
    red_zones.check_zones(" in eager")
    note(Stage.COMPILE)
    is_jit = check.setup.backend == Backend.INDUCTOR
    try:
        load = _compile_like_torch_compile(check) if is_jit else _build_package(check)
        compiled = load(run.passing or run.failing)
    except StepPassed:
        return Stopped(f"{options.only} passes, nothing else was tried")
    except aoti.CannotHandOver as error:
        print(f"shrinkfx: its weights go into the package: {error}", flush=True)
        # AOTInductor then places the weights itself, so any failure is its own.
        inlined = replace(options, package=None, weights=Weights.INSIDE)
        return check_compiled(replace(check, options=inlined))
    with_tails = add_tails(compiled, run, options)[0]
    diverted = recording.divert_results(with_tails) if recording else with_tails
    if failure := before.find_failure(diverted, note):
        return failure
    if run.passing and mutates(run.exported):
        # With the initial values of its buffers.
        compiled = load(run.failing)
    if recording is not None:
        compiled = recording.keep_results(compiled)
    answer = _judge_runs(check, compiled, reference)
    # A corrupt heap may only show when the program's memory is freed.
    del compiled
    gc.collect()
    note(Stage.DONE)
    return answer


def _build_package(check: Check) -> Callable[[Inputs], Compiled]:
    """Build a package with AOTInductor; return what loads it."""
    inductor = _inductor_options(check.setup, check.options)
    package = aoti.build_once(check.run.exported, check.folder, inductor, check.options)
    red_zones.check_zones(" of a kernel that was timed")
    check.note(Stage.LOAD)
    return lambda _: red_zones.check_zones_after_calls(aoti.load(package))


def _compile_like_torch_compile(check: Check) -> Callable[[Inputs], Compiled]:
    """Return what compiles the program for some inputs."""
    run, options = check.run, check.options
    inductor = _inductor_options(check.setup, options)
    cache = shared = Path(check.setup.directory, KERNELS)
    if options.package:  # later runs of this program take its code from there
        inductor, cache = {**inductor, **WITH_CACHE}, Path(f"{options.package}.cache")
        share_kernels(shared, cache, age_s=COMPLETE_S)
    # Dynamic dims are compiled for the sizes of the example, as AOTInductor does.
    example = run.example if find_dynamic_dims(run.exported, run.example) else None

    def compile_for(inputs: Inputs) -> Compiled:
        program = run.exported, cache, inductor, check.note
        compiled = CompiledProgram(*program, example or inputs)
        if cache != shared:
            share_kernels(cache, shared)
        red_zones.check_zones(" of a kernel that was timed")
        return red_zones.check_zones_after_calls(compiled)

    return compile_for


def _judge_runs(check: Check, compiled: Any, reference: Reference) -> Answer:
    """Run a compiled program on the failing inputs, and judge the results."""
    run, options = check.run, check.options
    if mutates(run.exported):
        options = replace(options, runs=1, failing_runs=1)
    attempts = (
        partial(_run_repeatedly, reference, filled, options, check.note)
        for filled in add_tails(compiled, run, options)
    )
    return require_same_failure(attempts, options.sought)


def _inductor_options(setup: Setup, options: CheckOptions) -> InductorOptions:
    inductor = {**setup.inductor, **options.inductor}
    if options.sanity:
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    if options.fallback_random:
        inductor["fallback_random"] = True
    if options.sanitize:
        inductor = {**asan.OPTIONS, **inductor}
    return inductor


def _run_repeatedly(
    reference: Reference, compiled: Compiled, options: CheckOptions, note: Note
) -> Answer:
    """Repeat a run until its answer changes, as often as the options allow.

    A passing program is run for ``_RERUN_S`` seconds at most.

    Returns:
        The answer of the last run.
    """
    stop = time.monotonic() + _RERUN_S
    first = answer = reference.judge(compiled, note)
    fails = is_failure(first)
    for _ in range((options.failing_runs if fails else options.runs) - 1):
        if answer != first or (not fails and time.monotonic() > stop):
            break
        answer = reference.judge(compiled, note)
    return answer


def compile_for_sanitizer(
    setup: Setup,
    build: Callable[[], RebuiltCandidate],
    request: Request,
    note: Note,
    folder: Path,
) -> Request:
    """Compile a program for an interpreter that runs it under a sanitizer.

    For AddressSanitizer, the kernels are instrumented. Under compute-sanitizer, to time
    kernels would take minutes.

    Args:
        build: returns the program.

    Returns:
        The request, with the compiled package. If compiling fails, the request is
        unchanged: the interpreter compiles the program and reports the failure. With
        torch.compile there are no packages.
    """
    options, package = request.options, str(folder / "sanitized.pt2")
    if options.torch_compile or setup.backend == Backend.INDUCTOR:
        return request
    if options.package and not options.sanitize:
        package = options.package  # which needs no instrumentation
    build_options = replace(options, package=package, sanitize=False)
    try:
        exported = build().exported
        note(Stage.COMPILE)
        with aoti.instrument_kernels(asan.FLAGS if options.sanitize else ""):
            inductor = _inductor_options(setup, build_options)
            aoti.build_once(exported, folder, inductor, build_options)
    except Exception:  # noqa: BLE001 - it is tried again, and told then
        traceback.print_exc()
        return request
    return replace(request, options=replace(options, package=package))


def check_undeclared_sizes(check: Check) -> Answer:
    """Run a compiled package at sizes that its program does not declare.

    The package must refuse these sizes, or return what eager returns. If eager raises,
    the package must raise, too.

    Returns:
        ``Checked``, with the message in ``refused`` if the package raises.
    """
    os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    run, note, raised = check.run, check.note, ""
    reference = Reference(run, check.options)
    note(Stage.EAGER)
    try:
        reference.run_eager()
    except Exception as error:  # noqa: BLE001 - what the compiled program must do, too
        raised = f"{type(error).__name__}: {first_line(str(error))}"
    note(Stage.LOAD)
    package = aoti.build_once(
        run.exported, check.folder, check.setup.inductor, check.options
    )
    compiled = aoti.load(package)
    try:
        answer = Checked() if raised else reference.judge(compiled, note)
        if raised:
            note(Stage.RUN)
            call(compiled, run.failing)
            text = f"the compiled program returns a result, and eager raises {raised}"
            answer = Checked(Difference("values", text))
    except Exception as error:  # noqa: BLE001 - loud enough
        answer = Checked(refused=str(error))
    note(Stage.DONE)
    return answer


# Tails: known memory after the end of results that are smaller than declared.
#
#     the operator's result | zeros, or 0x5a, up to its declared end and some bytes more
#
# Compiled code reads a result up to its declared end. Beyond the real end it reads
# adjacent memory, which differs by process and machine: on another machine, a failure
# that depends on it would seem fixed. So the program runs twice, with a different
# fill byte each, and fails only if both runs fail in the same way.
#
# A program that crashes does so with the first fill byte.


def add_tails(
    compiled: Compiled, run: RebuiltCandidate, options: CheckOptions
) -> list[Compiled]:
    """Return the compiled program once for each fill byte, or as it is without tails.

    Only the first fill byte is used if the run is recorded, because a record describes
    one run, and if the program mutates buffers, because the second run would start with
    the mutated values.
    """
    if not options.tails:
        return [compiled]
    once = options.compiled_view or options.values or mutates(run.exported)
    declared = _largest_declared_bytes(run, options.tails)

    def run_filled(byte: int, *args: Any, **kwargs: Any) -> Any:
        with _Tails(options.tails, declared, byte):
            return compiled(*args, **kwargs)

    fillings = FILLINGS[:1] if once else FILLINGS
    return [partial(run_filled, byte) for byte in fillings]


def require_same_failure(runs: Iterable[Callable[[], Answer]], sought: str) -> Answer:
    """Return the answer of the last run, or the first that does not fail as sought.

    If, for instance, a run that should crash has a wrong result, the next run is not
    made: a crash there would be a failure with that fill byte only.

    Args:
        runs: the runs with each fill byte.
        sought: the kind of failure.

    Returns:
        ``Invalid`` if the runs fail in different ways.

    Raises:
        Exception: the exception of the last run.
    """
    failures: set[str] = set()
    differs = sought in (Kind.MISMATCH, Kind.NAN)
    *first, last = runs
    for run in first:
        try:
            answer = run()
        except Exception as error:
            if differs or sought in (Kind.CRASH, Kind.IMA):
                raise
            failures.add(_exception_key(error))
            continue
        if not (is_failure(answer) and differs):
            return answer
        failures.add(_answer_key(answer))
    try:
        answer = last()
    except Exception as error:
        if failures - {_exception_key(error)}:
            return Invalid(_DIFFERENT_FAILURES)
        raise
    otherwise = is_failure(answer) and failures - {_answer_key(answer)}
    return Invalid(_DIFFERENT_FAILURES) if otherwise else answer


_DIFFERENT_FAILURES = "how it fails depends on the memory after the end of a result"


def _exception_key(error: Exception) -> str:
    return f"{type(error).__name__}: {normalise(first_line(str(error)))}"


def _answer_key(answer: Answer) -> str:
    difference = answer.difference if isinstance(answer, Checked) else None
    return difference.what if difference else type(answer).__name__


class _Tails(TorchDispatchMode):
    """Adds a tail to results of operators, which compiled code calls by the dispatcher.

    Args:
        operators: the names of the operators.
        declared: the declared size of the largest result, in bytes.
        byte: the fill byte.
    """

    def __init__(self, operators: Sequence[str], declared: int, byte: int) -> None:
        super().__init__()
        self._operators, self._declared = frozenset(operators), declared
        self._byte = byte

    is_infra_mode = classmethod(lambda cls: True)  # Dynamo compiles under this mode

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) not in self._operators:
            return result
        leaves = filter(has_own_memory, pytree.tree_leaves((args, kwargs)))
        inputs = set(map(_memory, leaves))
        return pytree.tree_map(lambda value: self._move_result(value, inputs), result)

    def _move_result(self, value: Any, inputs: set[int]) -> Any:
        """Copy a result to memory with a tail; views of arguments stay unchanged."""
        if not has_own_memory(value) or (value.numel() and _memory(value) in inputs):
            return value
        declared = self._declared
        return copy_to_filled_memory(value, self._byte, before=0, declared=declared)


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _largest_declared_bytes(run: RebuiltCandidate, operators: Sequence[str]) -> int:
    """Return the largest declared size of the operators' results, in bytes."""
    sizes = bind_symbols(run.exported, flat_inputs(run.exported, run.failing))
    declared = (
        declared_bytes(fake, sizes) or 0
        for graph in graphs_of(run.exported.graph_module).values()
        for node in graph.nodes
        if str(node.target) in operators
        for fake in pytree.tree_leaves(node.meta.get("val"))
        if isinstance(fake, torch.Tensor)
    )
    return max(declared, default=0)

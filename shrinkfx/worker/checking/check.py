"""The check of a program with either back end, and the files that it writes.

Each stage is noted before it begins, so that the parent knows where a child has died.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from shrinkfx.errors import LoadError
from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Answer, Checked, Difference, Stopped, Unresolved
from shrinkfx.protocol.choices import Backend, Probe
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.operators import Misbehavior
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.checking import evidence
from shrinkfx.worker.checking.reference import Closeness, PassingRun, Reference
from shrinkfx.worker.checking.with_aoti import check_with_aoti
from shrinkfx.worker.disk_space import require_space_for_recording
from shrinkfx.worker.eager.fake_mismatch import MismatchRecorder, Watcher
from shrinkfx.worker.eager.intermediates import SEED, copy_run_inputs
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
from shrinkfx.worker.interpreter.checked_module import VARIABLE
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.operators.repeated_call import find_hidden_dependencies
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.sizes.bindings import bind_symbols


def check(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
) -> Answer:
    """Check a program as the options of a request require.

    The check writes its evidence, the compiled-program view, the values of the kernels,
    or code and logs for a reader, if the options name files or folders for these.

    Returns:
        ``Checked`` if the program has run, otherwise another answer.
    """
    reports = options.leave, options.leave_out, options.compiled_view, options.values
    if any(reports) and (reason := codegen_api.FEATURE.missing):
        return Unresolved(reason)
    if options.leave is not None:
        home, rest = Path(options.leave), replace(options, leave=None)
        with save_debug_files(home, note, folder) as noted:
            return check(setup, run, rest, noted, folder)
    if options.leave_out is not None:
        with disable_applications(options.leave_out):
            rest = replace(options, leave_out=None)
            return check(setup, run, rest, note, folder)
    if not (options.evidence or options.compiled_view or options.values):
        return _check_with_backend(setup, run, options, note, folder)
    setup = replace(setup, inductor={**setup.inductor, **evidence.PROVENANCE})
    with contextlib.ExitStack() as stack:
        if options.evidence is not None:
            collector = evidence.collect_evidence(Path(options.evidence), note)
            note = stack.enter_context(collector)
        if options.compiled_view is not None:
            view_folder = Path(options.compiled_view)
            recorder = compiled_view.record_compiled_view(
                view_folder, run, note, folder, options
            )
            note = stack.enter_context(recorder)
        if options.values is None:
            return _check_with_backend(setup, run, options, note, folder)
        return _check_recorded(setup, run, options, note, folder, Path(options.values))


def _check_recorded(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
    path: Path,
) -> Answer:
    """Check the program, and compare the results of each kernel with eager."""
    try:
        require_space_for_recording(run.exported, folder)
    except LoadError as error:
        path.write_text(KernelValues(unknown=error.reason).to_line())
        return _check_with_backend(setup, run, options, note, folder)
    recording = Recording(folder / "values")
    with recording.record_codegen():
        answer = _check_with_backend(setup, run, options, note, folder, recording)
        if isinstance(answer, Checked) and answer.difference:
            report = values.judge_values(
                recording, _describe_run(run, options, answer.difference)
            )
            path.write_text(report.to_line())
    return answer


def _describe_run(
    run: RebuiltCandidate, options: CheckOptions, difference: Difference
) -> ComparedRun:
    return ComparedRun(
        run.exported,
        run.failing,
        options.calls,
        Closeness.of(options).tolerance,
        find_origins,
        metadata=not difference.is_of_values,
    )


def _check_with_backend(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None = None,
) -> Answer:
    if options.mismatches:
        note(Stage.EAGER)
        if why := find_unexpected_mismatches(run, options.mismatches):
            return Stopped(why)
    if options.bounded:
        note(Stage.EAGER)
        if why := find_out_of_bounds_operator(run, options.bounded):
            return Stopped(why)
    check = (
        check_on_interpreter
        if setup.backend == Backend.INTERPRETER
        else check_with_aoti
    )
    return check(setup, run, options, note, folder, recording)


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
    flat = flat_inputs(run.exported, run.failing)
    recorder = MismatchRecorder()
    recorder.sizes = bind_symbols(run.exported, flat)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            inputs = copy_run_inputs(run.exported, flat)
            Watcher(run.exported.graph_module, recorder).run(*inputs)
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
    flat = flat_inputs(run.exported, run.failing)
    watcher = _Watcher(run.exported.graph_module, operators)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            watcher.run(*copy_run_inputs(run.exported, flat))
    except Exception:  # noqa: BLE001 - whatever the user's program raises
        pass
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


def check_on_interpreter(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None,
) -> Answer:
    """Check a program on the interpreter.

    The code is generated before eager runs, because eager needs a setting for a user's
    kernels that makes generating code impossible.
    """
    probe = options.probe or Probe.REAL
    if options.sanity:
        os.environ[VARIABLE] = "1"
    reference, before = Reference(run, options), PassingRun(run, options)
    note(Stage.COMPILE)
    code, failure = None, None
    try:
        code = interpreter.generate(
            run.exported,
            {probe},
            folder=folder,
            arch=setup.arch,
            options={**setup.inductor, **options.inductor},
        )
    except Exception as error:  # noqa: BLE001 - told as soon as eager has run
        failure = error
    try:
        interpreter.switch_on()
        note(Stage.EAGER)
        unseen = _run_eager(reference, before)
        note(Stage.COMPILE)
        if failure:
            raise failure
        assert code is not None
        answer = _run_probe(probe, code, (before, reference), note, recording)
    except interpreter.Unsupported as error:
        return Unresolved(str(error))
    note(Stage.DONE)
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
    probe: Probe,
    code: interpreter.GeneratedCode,
    runs: tuple[PassingRun, Reference],
    note: Note,
    recording: Recording | None,
) -> Answer:
    if probe is Probe.COMPILE:
        return Checked()  # otherwise generating the code would have raised
    if probe is Probe.HINTS:
        return Checked(unseen=code.benchmark().unseen)
    note(Stage.LOAD)
    before, reference = runs
    compiled = interpreter.load_code(code, probe)
    diverted = recording.divert_results(compiled) if recording else compiled
    if failure := before.find_failure(diverted, note):
        return failure
    if before.has_inputs and mutates(code.exported):
        compiled = interpreter.load_code(
            code, probe
        )  # with the initial values of its buffers
    recorded = recording.keep_results(compiled) if recording else compiled
    return reference.judge(recorded, note)

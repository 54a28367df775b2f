"""The check of a program with either back end, and the files that it writes.

Each stage is noted before it begins, so that the parent knows where a child has died.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from shrinkfx.errors import LoadError
from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Answer, Checked, Difference, Stopped, Unresolved
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.checking import evidence
from shrinkfx.worker.checking.bounds import find_out_of_bounds_operator
from shrinkfx.worker.checking.compare import Closeness
from shrinkfx.worker.checking.expected_mismatches import find_unexpected_mismatches
from shrinkfx.worker.checking.on_interpreter import check_on_interpreter
from shrinkfx.worker.checking.with_aoti import check_with_aoti
from shrinkfx.worker.disk_space import require_space_for_recording
from shrinkfx.worker.explaining import compiled_view, values
from shrinkfx.worker.explaining.debug_files import save_debug_files
from shrinkfx.worker.explaining.disabled_passes import disable_applications
from shrinkfx.worker.explaining.lowered import ComparedRun
from shrinkfx.worker.explaining.origins import find_origins
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.private_api import codegen_api


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
        home, rest = Path(options.leave), replace(options, leave=None, kernels=())
        with save_debug_files(home, setup, options.kernels, note, folder) as noted:
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

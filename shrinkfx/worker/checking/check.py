"""Compile a program, run it, compare: the check itself, with either back end.

Each stage is noted before it begins, so that its death tells where it was.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx.errors import LoadError
from shrinkfx.failure.classify import first_line
from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import (
    Answer,
    Checked,
    Difference,
    Stopped,
    Unresolved,
)
from shrinkfx.protocol.choices import Backend, Guard, InductorOptions, Probe, Weights
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.fast_build import StepPassed
from shrinkfx.worker.checking import evidence
from shrinkfx.worker.checking.compare import Closeness
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.cpu_memory import asan
from shrinkfx.worker.disk_space import require_space_for_recording
from shrinkfx.worker.eager.intermediates import call
from shrinkfx.worker.explaining import anatomy, values
from shrinkfx.worker.explaining.leaving import leaving
from shrinkfx.worker.explaining.leaving_out import left_out
from shrinkfx.worker.explaining.lowered import Ran
from shrinkfx.worker.explaining.origins import origins
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import Rebuilt
from shrinkfx.worker.interpreter import backend as interpreter

_AGAIN_S = 5.0
"""Seconds after which a child runs a program that passes no further time."""


def check(
    setup: Setup,
    run: Rebuilt,
    options: CheckOptions,
    note: Note,
    folder: Path,
) -> Answer:
    """Check a program as a request's options say.

    With a file for evidence, it leaves there what the failure may come from; with a
    folder for its anatomy, what it is made of; with one for a reader, code and logs.

    Returns:
        ``Checked``, or what there is instead.
    """
    if options.leave is not None:
        home, rest = Path(options.leave), replace(options, leave=None, kernels=())
        with leaving(home, setup, options.kernels, note, folder) as noted:
            return check(setup, run, rest, noted, folder)
    if options.leave_out is not None:
        with left_out(options.leave_out):
            rest = replace(options, leave_out=None)
            return check(setup, run, rest, note, folder)
    if not (options.evidence or options.anatomy or options.values):
        return _checked(setup, run, options, note, folder)
    setup = replace(setup, inductor={**setup.inductor, **evidence.PROVENANCE})
    with contextlib.ExitStack() as stack:
        if options.evidence is not None:
            gathered = evidence.gathered(Path(options.evidence), note)
            note = stack.enter_context(gathered)
        if options.anatomy is not None:
            left = Path(options.anatomy)
            gathering = anatomy.gathered(left, run, note, folder, options)
            note = stack.enter_context(gathering)
        if options.values is None:
            return _checked(setup, run, options, note, folder)
        try:
            require_space_for_recording(run.exported, folder)
        except LoadError as error:
            untold = KernelValues(unknown=error.reason)
            Path(options.values).write_text(untold.to_line())
            return _checked(setup, run, options, note, folder)
        recording = Recording(folder / "values")
        with recording.generating():
            answer = _checked(setup, run, options, note, folder, recording)
            if isinstance(answer, Checked) and answer.difference:
                told = values.judge(recording, _ran(run, options, answer.difference))
                Path(options.values).write_text(told.to_line())
        return answer


def _ran(run: Rebuilt, options: CheckOptions, found: Difference) -> Ran:
    return Ran(
        run.exported,
        run.failing,
        options.calls,
        Closeness.of(options).tolerance,
        origins,
        metadata=found.what == "metadata",
    )


def _checked(
    setup: Setup,
    run: Rebuilt,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None = None,
) -> Answer:
    check = _on_interpreter if setup.backend == Backend.INTERPRETER else _with_aoti
    return check(setup, run, options, note, folder, recording)


def _with_aoti(
    setup: Setup,
    run: Rebuilt,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None = None,
) -> Answer:
    if options.guard_pages is not Guard.OFF:
        # What was loaded before lies elsewhere.
        moved = copy.deepcopy((run.failing, run.passing))
        run = replace(run, failing=moved[0], passing=moved[1])
    reference, before = Reference(run, options), _Before(run, options)
    note(Stage.EAGER)
    reference.run_eager()
    before.run_eager()
    note(Stage.COMPILE)
    inductor = _inductor_options(setup, options)
    try:
        package = aoti.build_once(run.exported, folder, inductor, options)
    except StepPassed:
        return Stopped(f"{options.only} passes, nothing else was tried")
    note(Stage.LOAD)
    try:
        compiled = aoti.load(package)
    except aoti.CannotHandOver as error:
        print(f"shrinkfx: its weights go into the package: {error}", flush=True)
        inside = _with_weights_inside(options)
        return _with_aoti(setup, run, inside, note, folder, recording)
    if failure := before.fails(compiled, note):
        return failure
    if run.passing and mutates(run.exported):
        compiled = aoti.load(package)  # with the buffers that it had at first
    runs = 1 if mutates(run.exported) else options.runs
    if recording is not None:
        compiled = recording.keeping(compiled)
    answer = _run_until_it_fails(reference, compiled, runs, note)
    # A corrupt heap may only show when what was allocated is freed.
    del compiled
    gc.collect()
    note(Stage.DONE)
    return answer


def _with_weights_inside(options: CheckOptions) -> CheckOptions:
    """Have AOTInductor place the weights, so that whatever fails is its own failure."""
    return replace(options, package=None, weights=Weights.INSIDE)


def _inductor_options(setup: Setup, options: CheckOptions) -> InductorOptions:
    inductor = {**setup.inductor, **options.inductor}
    if options.sanity:
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    if options.fallback_random:
        inductor["fallback_random"] = True
    if options.sanitize:
        inductor = {**asan.OPTIONS, **inductor}
    return inductor


def _run_until_it_fails(
    reference: Reference, compiled: Callable[..., Any], runs: int, note: Note
) -> Answer:
    """Run again what passes, ``runs`` times at most and for ``_AGAIN_S``."""
    stop = time.monotonic() + _AGAIN_S
    for left in reversed(range(runs)):
        answer = reference.judge(compiled, note)
        if _fails(answer) or not left or time.monotonic() > stop:
            break
    return answer


def _fails(answer: Answer) -> bool:
    return not isinstance(answer, Checked) or answer.difference is not None


class _Before:
    """The run on inputs on which the original passes, before that which fails."""

    def __init__(self, run: Rebuilt, options: CheckOptions) -> None:
        near = run.at_passing
        self._reference = Reference(near, options) if near else None

    def run_eager(self) -> None:
        if self._reference:
            self._reference.run_eager()

    def fails(self, compiled: Callable[..., Any], note: Note) -> Answer | None:
        """Answer how the compiled program fails there already; None if it passes."""
        if self._reference is None:
            return None
        note(Stage.PASSING)
        answer = self._reference.judge(compiled, lambda _: None)
        return answer if _fails(answer) else None


def check_outside(
    setup: Setup,
    run: Rebuilt,
    options: CheckOptions,
    note: Note,
    folder: Path,
) -> Answer:
    """Run a compiled package at sizes that its program does not declare.

    It must refuse them, or do what eager does; where eager raises, it must, too.

    Returns:
        ``Checked``, with ``refused`` if it says why it does not.
    """
    os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    reference, raised = Reference(run, options), ""
    note(Stage.EAGER)
    try:
        reference.run_eager()
    except Exception as error:  # noqa: BLE001 - what the compiled program must do, too
        raised = f"{type(error).__name__}: {first_line(str(error))}"
    note(Stage.LOAD)
    package = aoti.build_once(run.exported, folder, setup.inductor, options)
    compiled = aoti.load(package)
    try:
        answer = Checked() if raised else reference.judge(compiled, note)
        if raised:
            note(Stage.RUN)
            call(compiled, run.failing)
            text = f"it gives a result, and eager raises {raised}"
            answer = Checked(Difference("values", text))
    except Exception as error:  # noqa: BLE001 - loud enough
        answer = Checked(refused=str(error))
    note(Stage.DONE)
    return answer


def _on_interpreter(
    setup: Setup,
    run: Rebuilt,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None,
) -> Answer:
    """Generate first: eager of a user's kernel takes what code generation excludes."""
    probe = options.probe or Probe.REAL
    reference, before = Reference(run, options), _Before(run, options)
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
        reference.run_eager()
        before.run_eager()
        note(Stage.COMPILE)
        if failure:
            raise failure
        assert code is not None
        answer = _ask(probe, code, (before, reference), note, recording)
    except interpreter.Unsupported as error:
        return Unresolved(str(error))
    note(Stage.DONE)
    return answer


def _ask(
    probe: Probe,
    code: interpreter.Code,
    runs: tuple[_Before, Reference],
    note: Note,
    recording: Recording | None,
) -> Answer:
    if probe is Probe.COMPILE:
        return Checked()  # else it would have raised
    if probe is Probe.HINTS:
        code.benchmark()
        return Checked()
    note(Stage.LOAD)
    before, reference = runs
    compiled = interpreter.load(code, probe)
    if failure := before.fails(compiled, note):
        return failure
    kept = recording.keeping(compiled) if recording else compiled
    return reference.judge(kept, note)

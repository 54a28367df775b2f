"""Check a program with AOTInductor: compile it, load it, run it and compare."""

from __future__ import annotations

import copy
import gc
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shrinkfx.failure.signature import Stage
from shrinkfx.program.display_text import first_line
from shrinkfx.protocol.answers import Answer, Checked, Difference, Stopped
from shrinkfx.protocol.choices import Guard, InductorOptions, Weights
from shrinkfx.protocol.requests import CheckOptions, Request, Setup
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.fast_build import StepPassed
from shrinkfx.worker.aoti.instrumented import build_instrumented
from shrinkfx.worker.checking.passing import PassingRun, is_failure
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.checking.tails import add_tails, require_same_failure
from shrinkfx.worker.cpu_memory import asan
from shrinkfx.worker.cuda_memory import red_zones
from shrinkfx.worker.eager.intermediates import call
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate

_RERUN_S = 5.0
"""Seconds after which a child does not run a passing program again."""


def check_with_aoti(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None = None,
) -> Answer:
    if options.guard_pages in (Guard.AFTER, Guard.BEFORE):
        # The inputs were loaded before guard pages were on, so they have none.
        moved = copy.deepcopy((run.failing, run.passing))
        run = replace(run, failing=moved[0], passing=moved[1])
    reference, before = Reference(run, options), PassingRun(run, options)
    note(Stage.EAGER)
    reference.run_eager()
    before.run_eager()
    red_zones.log_zone_protection()
    red_zones.check_zones(" in eager")
    note(Stage.COMPILE)
    inductor = _inductor_options(setup, options)
    try:
        package = aoti.build_once(run.exported, folder, inductor, options)
    except StepPassed:
        return Stopped(f"{options.only} passes, nothing else was tried")
    red_zones.check_zones(" of a kernel that was timed")
    note(Stage.LOAD)
    try:
        compiled = red_zones.check_zones_after_calls(aoti.load(package))
    except aoti.CannotHandOver as error:
        print(f"shrinkfx: its weights go into the package: {error}", flush=True)
        inlined = _with_weights_inside(options)
        return check_with_aoti(setup, run, inlined, note, folder, recording)
    with_tails = add_tails(compiled, run, options)[0]
    if failure := before.find_failure(
        recording.divert_results(with_tails) if recording else with_tails, note
    ):
        return failure
    if run.passing and mutates(run.exported):
        # With the initial values of its buffers.
        compiled = red_zones.check_zones_after_calls(aoti.load(package))
    runs = 1 if mutates(run.exported) else options.runs
    if recording is not None:
        compiled = recording.keep_results(compiled)
    attempts = (
        partial(_run_until_it_fails, reference, filled, runs, note)
        for filled in add_tails(compiled, run, options)
    )
    answer = require_same_failure(attempts, options.sought)
    # A corrupt heap may only show when the program's memory is freed.
    del compiled
    gc.collect()
    note(Stage.DONE)
    return answer


def _with_weights_inside(options: CheckOptions) -> CheckOptions:
    """Return options that keep the weights in the package.

    AOTInductor then places the weights itself, so any failure is its own.
    """
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
    """Repeat a run that passes, at most ``runs`` times and for ``_RERUN_S`` seconds."""
    stop = time.monotonic() + _RERUN_S
    for remaining in reversed(range(runs)):
        answer = reference.judge(compiled, note)
        if is_failure(answer) or not remaining or time.monotonic() > stop:
            break
    return answer


def compile_instrumented(
    setup: Setup,
    build: Callable[[], RebuiltCandidate],
    request: Request,
    note: Note,
    folder: Path,
) -> Request:
    """Compile a program for an interpreter that runs it under AddressSanitizer.

    Args:
        build: returns the program.

    Returns:
        The request, with the compiled package. If compiling fails, the request is
        unchanged: the interpreter compiles the program and reports the failure.
    """
    options, package = request.options, folder / "instrumented.pt2"
    build_options = replace(options, package=str(package), sanitize=False)
    try:
        exported = build().exported
        note(Stage.COMPILE)
        inductor = _inductor_options(setup, build_options)
        build_instrumented(exported, folder, inductor, build_options)
    except Exception:  # noqa: BLE001 - it is tried again, and told then
        traceback.print_exc()
        return request
    return replace(request, options=replace(options, package=str(package)))


def check_undeclared_sizes(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
) -> Answer:
    """Run a compiled package at sizes that its program does not declare.

    The package must refuse these sizes, or return what eager returns. If eager raises,
    the package must raise, too.

    Returns:
        ``Checked``, with the message in ``refused`` if the package raises.
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
            text = f"the compiled program returns a result, and eager raises {raised}"
            answer = Checked(Difference("values", text))
    except Exception as error:  # noqa: BLE001 - loud enough
        answer = Checked(refused=str(error))
    note(Stage.DONE)
    return answer

"""Check a program on the interpreter: generate GPU code, and run it on the CPU."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Answer, Checked, Unresolved
from shrinkfx.protocol.choices import Probe
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.checking.passing import PassingRun
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.interpreter.input_checks import VARIABLE


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

"""A check on the interpreter: generate code for a GPU, and run it without one."""

from __future__ import annotations

from pathlib import Path

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Answer, Checked, Unresolved
from shrinkfx.protocol.choices import Probe
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.checking.passing import PassingRun
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.rebuild import Rebuilt
from shrinkfx.worker.interpreter import backend as interpreter


def on_interpreter(
    setup: Setup,
    run: Rebuilt,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None,
) -> Answer:
    """Generate first: eager of a user's kernel takes what code generation excludes."""
    probe = options.probe or Probe.REAL
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
    runs: tuple[PassingRun, Reference],
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

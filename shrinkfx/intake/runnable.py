"""A graph that torch.compile has left as code: exported by running that, in a worker.

The user's word is needed for it (``--run-code``). The code is copied into the folder of
the run first; that copy is what runs, and what there is to read afterwards.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.errors import LoadError, UsageError, WorkerError
from shrinkfx.intake.found import PROGRAM, Found
from shrinkfx.intake.minifier import locate
from shrinkfx.intake.script import Script
from shrinkfx.intake.worker import bare_worker, settings_that_differ
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Unresolved
from shrinkfx.protocol.descriptions import Exported
from shrinkfx.protocol.tasks import ExportRunnable, RunRunnable
from shrinkfx.wording import Flag, Words

CODE = "fx_graph_runnable.py"
_WORDS = 300


def require_word(script: Script, options: Options) -> None:
    """See that the user has said that code may be run.

    Raises:
        UsageError: what would be run, and what to type.
    """
    if options.run_code:
        return
    lines = len(script.text.splitlines())
    raise UsageError(
        f"{script.path} holds a graph that torch.compile has left as code: to export "
        f"it, its {lines} lines of Python must be run, which may do whatever Python "
        "can; they get a process of their own, under the limits of a check. If you "
        "trust whoever made them, add ",
        Flag("--run-code", True),
    )


def export(script: Script, options: Options, folder: Path) -> Found:
    """Run the code, and have what it makes exported into the folder of a run.

    Raises:
        LoadError: it cannot be run or exported, or dies.
    """
    code, program = folder / CODE, folder / PROGRAM
    there = locate(script.save_dir, script.path)
    save_dir = str(there.resolve()) if there else ""
    text = script.text
    if script.save_dir:  # the copy shall find what the script, which was moved, does
        text = text.replace(repr(script.save_dir), repr(save_dir or None))
    code.write_text(text, encoding="utf-8")
    task = ExportRunnable(str(code.resolve()), save_dir, str(program.resolve()))
    with bare_worker(options, script.environment, options.preload) as ask:
        ending = ask(task)
        inductor, of_settings = settings_that_differ(ask, script)
    if not isinstance(ending.answer, Exported):
        raise LoadError(
            str(script.path), f"could not be exported: {_how(ending)}", _ADVICE
        )
    return Found(
        program=program,
        inductor=inductor,
        environment=script.environment,
        said=(*script.said, *of_settings, *_said(ending.answer, script, there)),
    )


_ADVICE = Words(
    "does it run by itself? Operators of your own: ",
    Flag("--preload", stands="MODULE"),
    ". What torch.export does not take, AOTInductor cannot compile",
)


def _said(made: Exported, script: Script, there: Path | None) -> Iterator[str]:
    if made.made_up:
        why = "the script names no folder of the failing run's"
        if script.save_dir:
            where = there or f"{script.save_dir}, nor beside the script"
            why = f"the failing run's are not in {where}"
        number = f"{made.made_up} of {made.inputs}"
        yield f"{number} inputs have values of a generator: {why}"
    if made.fixed:
        yield f"numbers that are kept as they were: {', '.join(made.fixed)}"
    if made.left_out:
        yield f"{made.left_out} of its results are no tensors: left out"


def as_torch_compile_does(code: Path, save_dir: str, options: Options) -> str:
    """Run a graph as its own main would, and say how that went."""
    try:
        with bare_worker(options, {}, options.preload) as ask:
            ending = ask(RunRunnable(str(code.resolve()), save_dir))
    except (LoadError, WorkerError) as error:
        return f"nobody can tell: {error}"
    if isinstance(ending.answer, Unresolved):
        return f"nobody can tell: {ending.answer.why}"
    if (ending.how, ending.code, ending.raised) == _PASSES:
        return "it does not fail either"
    return f"it does: {_how(ending)}"


_PASSES = ("exit", 0, None)


def _how(ending: Ending) -> str:
    """Say in a line how a child ended."""
    if raised := ending.raised:
        text = " ".join(raised.message.split())
        return f"{raised.type}: {text:.{_WORDS}}"
    if ending.how == "signal":
        return f"it dies of {signal.Signals(ending.code).name}"
    if ending.how == "timeout":
        return f"it has not ended after {ending.seconds:.0f} s (--timeout)"
    if ending.how == "memory":
        return "it wants more memory than is free"
    return f"it ends with {ending.how} {ending.code}"

"""Export a graph that torch.compile dumped as code, by running the code in a worker.

This needs the user's consent (``--run-code``). The code is first copied into the folder
of the run. The copy is what runs, so the user can read it afterwards.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.errors import LoadError, UsageError, WorkerError
from shrinkfx.intake.found import PROGRAM, ResolvedProgram
from shrinkfx.intake.minifier import locate
from shrinkfx.intake.script import Script
from shrinkfx.intake.worker import bare_worker, find_changed_settings
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Exported, Unresolved
from shrinkfx.protocol.requests import ExportRunnable, RunRunnable
from shrinkfx.wording import Flag, MessageText

CODE = "fx_graph_runnable.py"
_WORDS = 300


def require_consent(script: Script, options: Options) -> None:
    """Raise unless the user has allowed the code to run.

    Raises:
        UsageError: names the code that would run, and the flag that allows it.
    """
    if options.run_code:
        return
    lines = len(script.text.splitlines())
    raise UsageError(
        f"{script.path} contains a graph that torch.compile dumped as code: exporting "
        f"it runs these {lines} lines of Python, which can do anything Python can; "
        "they run in their own process, under the limits of a check. If you trust the "
        "author of the file, add ",
        Flag("--run-code", True),
    )


def export(script: Script, options: Options, folder: Path) -> ResolvedProgram:
    """Run the code in a worker, and export its graph into the folder of the run.

    Raises:
        LoadError: the code cannot be run or exported, or its process dies.
    """
    code, program = folder / CODE, folder / PROGRAM
    data = locate(script.save_dir, script.path)
    save_dir = str(data.resolve()) if data else ""
    text = script.text
    if script.save_dir:  # the copy must find the data although the script was moved
        text = text.replace(repr(script.save_dir), repr(save_dir or None))
    code.write_text(text, encoding="utf-8")
    task = ExportRunnable(str(code.resolve()), save_dir, str(program.resolve()))
    places: dict[str, list[Path]] = {
        "writable": [folder],
        "readable": [data] if data else [],
    }
    with bare_worker(options, script.environment, options.preload, **places) as ask:
        ending = ask(task)
        inductor, notes = find_changed_settings(ask, script)
    if not isinstance(ending.answer, Exported):
        raise LoadError(
            str(script.path),
            f"could not be exported: {_describe_child_end(ending)}",
            _ADVICE,
        )
    return ResolvedProgram(
        program=program,
        inductor=inductor,
        environment=script.environment,
        notes=(
            *script.notes,
            *notes,
            *_describe_export(ending.answer, script, data),
        ),
    )


_ADVICE = MessageText(
    "check that the script runs by itself. If it uses custom operators: ",
    Flag("--preload", stands="MODULE"),
    ". AOTInductor cannot compile a program that torch.export rejects",
)


def _describe_export(
    result: Exported, script: Script, folder: Path | None
) -> Iterator[str]:
    if result.made_up:
        why = "the script names no folder with the inputs of the failing run"
        if script.save_dir:
            where = folder or f"{script.save_dir}, nor next to the script"
            why = f"the inputs of the failing run are not in {where}"
        number = f"{result.made_up} of {result.inputs}"
        yield f"{number} inputs have generated values: {why}"
    if result.fixed:
        yield f"numbers kept as constants: {', '.join(result.fixed)}"
    if result.left_out:
        yield f"omitted {result.left_out} of its results, because they are not tensors"


def run_as_torch_compile(code: Path, save_dir: str, options: Options) -> str:
    """Run a graph as the dump's own ``__main__`` would, and describe the outcome."""
    try:
        read = [code, Path(save_dir)] if save_dir else [code]
        with bare_worker(options, {}, options.preload, readable=read) as ask:
            ending = ask(RunRunnable(str(code.resolve()), save_dir))
    except (LoadError, WorkerError) as error:
        return f"the outcome is unknown: {error}"
    if isinstance(ending.answer, Unresolved):
        return f"the outcome is unknown: {ending.answer.why}"
    if (ending.how, ending.code, ending.raised) == _PASSES:
        return "it does not fail either"
    return f"it fails: {_describe_child_end(ending)}"


_PASSES = ("exit", 0, None)


def _describe_child_end(ending: Ending) -> str:
    """Describe in one line how a child process ended."""
    if raised := ending.raised:
        text = " ".join(raised.message.split())
        return f"{raised.type}: {text:.{_WORDS}}"
    if ending.how == "signal":
        return f"it died of {signal.Signals(ending.code).name}"
    if ending.how == "timeout":
        return f"it did not end within {ending.seconds:.0f} s (--timeout)"
    if ending.how == "memory":
        return "it needs more memory than is free"
    return f"it ended with {ending.how} {ending.code}"

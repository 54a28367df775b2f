"""Do one task of the command line, and print its result."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

from shrinkfx import api
from shrinkfx.cli import task_output
from shrinkfx.cli.captured_program import (
    find_captured_program,
    is_run_to_explain,
    is_run_to_resume,
    refuse_with_capture,
    uses_capture,
)
from shrinkfx.cli.from_arguments import (
    read_options,
    read_record,
    refuse_empty_values,
    refuse_with_candidate,
    refuse_with_explain,
    refuse_with_list,
    refuse_with_report,
    refuse_with_resume,
)
from shrinkfx.cli.interrupts import treat_sigterm_as_ctrl_c
from shrinkfx.cli.json_lines import Json
from shrinkfx.errors import (
    REPORT_BUG,
    Finished,
    ShrinkfxError,
    UsageError,
    WorkerError,
)
from shrinkfx.events import Event, Listener, NoteAdded, RunEnded
from shrinkfx.options.running import BudgetOptions
from shrinkfx.progress.terminal import Plain, Quiet, Verbose, make_display


def do_task(options: argparse.Namespace, command: str, stdout: TextIO) -> int:
    """Do the task that the arguments select, and return the exit code.

    Args:
        command: the typed command, for the header of the repro.
        stdout: receives the lines of ``--json``.
    """
    if not options.json:
        return _run_task(options, command, Quiet()).exit_code
    json_lines = Json(stdout)
    with contextlib.redirect_stdout(sys.stderr):
        ended = _run_task(options, command, json_lines)
    json_lines(ended)
    return ended.exit_code


def _run_task(arguments: argparse.Namespace, command: str, emit: Listener) -> RunEnded:
    """Do the task, and print its result or its error."""
    shown = _choose_listener(arguments)

    def listener(event: Event) -> None:
        shown(event)
        emit(event)

    try:
        with contextlib.closing(shown), treat_sigterm_as_ctrl_c():
            finish = _start_task(arguments, command, listener, shown)
        return finish()
    except Finished as error:
        print(f"shrinkfx: {error.words}", file=sys.stderr)
        return task_output.print_finished_run(error)
    except ShrinkfxError as error:
        if arguments.verbose:
            traceback.print_exc()
        message = str(error.words)
        _print_error(message, error)
        return RunEnded("error", error.exit_code, message)
    except KeyboardInterrupt as error:
        message = "interrupted before a repro was verified"
        _print_error(message, error)
        return RunEnded("interrupted", 4, message)
    except BaseException as error:
        emit(RunEnded("error", 1, repr(error)))
        if isinstance(error, Exception):
            error.add_note(f"internal error in shrinkfx: {REPORT_BUG}")
        raise


def _print_error(message: str, error: BaseException) -> None:
    print(f"shrinkfx: {message}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):  # for example, how to resume
        print(note, file=sys.stderr)
    if isinstance(error, WorkerError) and not error.killed:
        print(f"if this error happens again: {REPORT_BUG}", file=sys.stderr)


def _start_task(
    arguments: argparse.Namespace,
    command: str,
    listener: Listener,
    shown: Quiet,
) -> Callable[[], RunEnded]:
    """Do the task, and return a function that prints its result.

    The caller prints the result after it has removed the live line.
    """
    refuse_empty_values(arguments)
    show_sweep = partial(_print_sweep_first, shown)
    if arguments.list_runs:
        refuse_with_list(arguments)
        return partial(task_output.print_runs, Path(arguments.list_runs))
    refuse_with_capture(arguments)
    if arguments.resume:
        return _resume(arguments, listener, show_sweep)
    if arguments.candidate:
        return _retrieve(arguments, command, listener)
    if arguments.report:
        refuse_with_report(arguments)
        return partial(task_output.print_report, api.report(arguments.report, listener))
    if arguments.explain and is_run_to_explain(arguments):
        refuse_with_explain(arguments)
        explained = api.explain(arguments.model, listener, title=arguments.title)
        return partial(task_output.print_explanation, explained)
    options = read_options(arguments, command)
    if arguments.verify:
        return _verify(arguments, options, listener, shown)
    for option in ("across", "torch", "yes"):
        if getattr(arguments, option):
            advice = "use shrinkfx verify repro.py"
            raise UsageError(f"--{option} works only with a repro: {advice}")
    if is_run_to_resume(arguments):
        return _resume(arguments, listener, show_sweep)
    if uses_capture(arguments):
        with find_captured_program(arguments, options, listener) as options:
            return _start_run(arguments, options, listener, show_sweep)
    return _start_run(arguments, options, listener, show_sweep)


def _start_run(
    arguments: argparse.Namespace,
    options: api.Options,
    listener: Listener,
    show_sweep: Callable[[api.Swept], None],
) -> Callable[[], RunEnded]:
    everything = arguments.verbose or arguments.explain
    show = partial(
        task_output.print_reduction, everything=everything, until=arguments.until
    )
    if not options.sweeping:
        return partial(show, api.reduce(options, listener))
    with api.taken_in(options, listener) as options:
        swept = api.sweep(options, listener)
        if not swept.goes_on:
            return partial(task_output.print_sweep, swept)
        show_sweep(swept)
        return partial(show, api.reduce_found(options, swept, listener))


def _verify(
    arguments: argparse.Namespace,
    options: api.Options,
    listener: Listener,
    shown: Quiet,
) -> Callable[[], RunEnded]:
    if arguments.yes and not arguments.torch:
        raise UsageError("--yes needs --torch: add --torch, or omit --yes")

    def agree(words: str) -> bool:
        shown.close()
        if arguments.yes:
            listener(NoteAdded(words))
            return True
        if not sys.stdin.isatty():
            return api.refuse(words)
        print(f"{words}\ninstall? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    across, torch = arguments.across, arguments.torch or ""
    confirmed = api.verify(options, listener, across=across, torch=torch, agree=agree)
    return partial(task_output.print_verification, confirmed)


def _retrieve(
    arguments: argparse.Namespace, command: str, listener: Listener
) -> Callable[[], RunEnded]:
    """Write a candidate of a run, whose folder is ``--out`` or the only argument."""
    refuse_with_candidate(arguments)
    digest, folder, model = arguments.candidate, arguments.out, arguments.model
    if folder is None and model is not None and not os.path.isfile(model):
        folder, model = model, None
    if folder is None:
        raise UsageError(
            f"--candidate {digest} needs the folder of the run that tested this "
            f"candidate: shrinkfx --candidate {digest} --out DIR"
        )
    return partial(
        task_output.print_candidate,
        api.retrieve(folder, digest, listener, model=model, command=command),
    )


def _resume(
    arguments: argparse.Namespace,
    listener: Listener,
    show_sweep: Callable[[api.Swept], None],
) -> Callable[[], RunEnded]:
    folder = arguments.resume or arguments.model
    refuse_with_resume(arguments, folder)
    result = api.resume(
        folder,
        model=arguments.model if arguments.resume else None,
        **vars(read_record(BudgetOptions, arguments)),
        swept=show_sweep,
        listener=listener,
    )
    if isinstance(result, api.Swept):
        return partial(task_output.print_sweep, result)
    return partial(task_output.print_reduction, result, everything=arguments.verbose)


def _print_sweep_first(shown: Quiet, swept: api.Swept) -> None:
    """Print the result of a sweep before a reduction follows it."""
    shown.close()
    task_output.print_sweep(swept)


def _choose_listener(options: argparse.Namespace) -> Quiet:
    if options.quiet:
        return Quiet()
    if options.verbose:
        return Verbose(sys.stderr)
    return Plain(sys.stderr) if options.no_progress else make_display(sys.stderr)

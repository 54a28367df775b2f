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
from shrinkfx.cli import printed
from shrinkfx.cli.captured import (
    captured,
    is_capture,
    is_run,
    names_run,
    refuse_beside_capture,
)
from shrinkfx.cli.from_arguments import (
    options_of,
    read,
    refuse_beside_candidate,
    refuse_beside_explain,
    refuse_beside_list,
    refuse_beside_report,
    refuse_beside_resume,
    refuse_empty,
)
from shrinkfx.cli.interrupts import ended_as_by_ctrl_c
from shrinkfx.cli.json_lines import Json
from shrinkfx.errors import (
    REPORT_BUG,
    Finished,
    ShrinkfxError,
    UsageError,
    WorkerError,
)
from shrinkfx.events import Ended, Event, Listener, Noted
from shrinkfx.options.running import BudgetOptions
from shrinkfx.progress.terminal import Plain, Quiet, Verbose, on_stream


def do(options: argparse.Namespace, command: str, stdout: TextIO) -> int:
    """Do the task that the arguments select, and return the exit code.

    Args:
        command: the typed command, for the header of the repro.
        stdout: receives the lines of ``--json``.
    """
    if not options.json:
        return _run(options, command, Quiet()).exit_code
    told = Json(stdout)
    with contextlib.redirect_stdout(sys.stderr):
        ended = _run(options, command, told)
    told(ended)
    return ended.exit_code


def _run(arguments: argparse.Namespace, command: str, told: Listener) -> Ended:
    """Do the task, and print its result or its error."""
    shown = _listener(arguments)

    def listener(event: Event) -> None:
        shown(event)
        told(event)

    try:
        with contextlib.closing(shown), ended_as_by_ctrl_c():
            finish = _do(arguments, command, listener, shown)
        return finish()
    except Finished as error:
        print(f"shrinkfx: {error.words}", file=sys.stderr)
        return printed.finished(error)
    except ShrinkfxError as error:
        if arguments.verbose:
            traceback.print_exc()
        said = str(error.words)
        _print_error(said, error)
        return Ended("error", error.exit_code, said)
    except KeyboardInterrupt as error:
        said = "interrupted before a repro was verified"
        _print_error(said, error)
        return Ended("interrupted", 4, said)
    except BaseException as error:
        told(Ended("error", 1, repr(error)))
        if isinstance(error, Exception):
            error.add_note(f"internal error in shrinkfx: {REPORT_BUG}")
        raise


def _print_error(said: str, error: BaseException) -> None:
    print(f"shrinkfx: {said}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):  # for example, how to resume
        print(note, file=sys.stderr)
    if isinstance(error, WorkerError) and not error.killed:
        print(f"if this error happens again: {REPORT_BUG}", file=sys.stderr)


def _do(
    arguments: argparse.Namespace,
    command: str,
    listener: Listener,
    shown: Quiet,
) -> Callable[[], Ended]:
    """Do the task, and return a function that prints its result.

    The caller prints the result after it has removed the live line.
    """
    refuse_empty(arguments)
    sum_up = partial(_sum_up, shown)
    if arguments.list_runs:
        refuse_beside_list(arguments)
        return partial(printed.runs, Path(arguments.list_runs))
    refuse_beside_capture(arguments)
    if arguments.resume:
        return _resume(arguments, listener, sum_up)
    if arguments.candidate:
        return _retrieve(arguments, command, listener)
    if arguments.report:
        refuse_beside_report(arguments)
        return partial(printed.report, api.report(arguments.report, listener))
    if arguments.explain and is_run(arguments):
        refuse_beside_explain(arguments)
        explained = api.explain(arguments.model, listener, title=arguments.title)
        return partial(printed.explained, explained)
    options = options_of(arguments, command)
    if arguments.verify:
        return _verify(arguments, options, listener, shown)
    for option in ("across", "torch", "yes"):
        if getattr(arguments, option):
            advice = "use shrinkfx verify repro.py"
            raise UsageError(f"--{option} works only with a repro: {advice}")
    if names_run(arguments):
        return _resume(arguments, listener, sum_up)
    if is_capture(arguments):
        with captured(arguments, options, listener) as options:
            return _run_anew(arguments, options, listener, sum_up)
    return _run_anew(arguments, options, listener, sum_up)


def _run_anew(
    arguments: argparse.Namespace,
    options: api.Options,
    listener: Listener,
    sum_up: Callable[[api.Swept], None],
) -> Callable[[], Ended]:
    everything = arguments.verbose or arguments.explain
    show = partial(printed.result, everything=everything, until=arguments.until)
    if not options.sweeping:
        return partial(show, api.reduce(options, listener))
    with api.taken_in(options, listener) as options:
        swept = api.sweep(options, listener)
        if not swept.goes_on:
            return partial(printed.swept, swept)
        sum_up(swept)
        return partial(show, api.reduce_found(options, swept, listener))


def _verify(
    arguments: argparse.Namespace,
    options: api.Options,
    listener: Listener,
    shown: Quiet,
) -> Callable[[], Ended]:
    if arguments.yes and not arguments.torch:
        raise UsageError("--yes needs --torch: add --torch, or omit --yes")

    def agree(words: str) -> bool:
        shown.close()
        if arguments.yes:
            listener(Noted(words))
            return True
        if not sys.stdin.isatty():
            return api.refuse(words)
        print(f"{words}\ninstall? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    across, torch = arguments.across, arguments.torch or ""
    confirmed = api.verify(options, listener, across=across, torch=torch, agree=agree)
    return partial(printed.confirmed, confirmed)


def _retrieve(
    arguments: argparse.Namespace, command: str, listener: Listener
) -> Callable[[], Ended]:
    """Write a candidate of a run, whose folder is ``--out`` or the only argument."""
    refuse_beside_candidate(arguments)
    digest, folder, model = arguments.candidate, arguments.out, arguments.model
    if folder is None and model is not None and not os.path.isfile(model):
        folder, model = model, None
    if folder is None:
        raise UsageError(
            f"--candidate {digest} needs the folder of the run that tested this "
            f"candidate: shrinkfx --candidate {digest} --out DIR"
        )
    return partial(
        printed.candidate,
        api.retrieve(folder, digest, listener, model=model, command=command),
    )


def _resume(
    arguments: argparse.Namespace,
    listener: Listener,
    sum_up: Callable[[api.Swept], None],
) -> Callable[[], Ended]:
    folder = arguments.resume or arguments.model
    refuse_beside_resume(arguments, folder)
    came = api.resume(
        folder,
        model=arguments.model if arguments.resume else None,
        **vars(read(BudgetOptions, arguments)),
        swept=sum_up,
        listener=listener,
    )
    if isinstance(came, api.Swept):
        return partial(printed.swept, came)
    return partial(printed.result, came, everything=arguments.verbose)


def _sum_up(shown: Quiet, swept: api.Swept) -> None:
    """Print the result of a sweep before a reduction follows it."""
    shown.close()
    printed.swept(swept)


def _listener(options: argparse.Namespace) -> Quiet:
    if options.quiet:
        return Quiet()
    if options.verbose:
        return Verbose(sys.stderr)
    return Plain(sys.stderr) if options.no_progress else on_stream(sys.stderr)

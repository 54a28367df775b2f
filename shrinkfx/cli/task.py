"""Do one task of the command line, and print its result."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO, TypeVar

from shrinkfx import api
from shrinkfx.campaign.report import name_bugs
from shrinkfx.cli import parser, task_output
from shrinkfx.cli.known_bugs import verify_known_bugs
from shrinkfx.cli.parser import CaptureOptions, PrintOptions, list_options, make_parser
from shrinkfx.cli.streams import treat_sigterm_as_ctrl_c
from shrinkfx.cli.task_output import Json
from shrinkfx.errors import (
    REPORT_BUG,
    Finished,
    NothingToReduce,
    ShrinkfxError,
    StorageError,
    UsageError,
    WorkerError,
)
from shrinkfx.events import (
    Event,
    Listener,
    NoteAdded,
    RunEnded,
)
from shrinkfx.events.terminal import Plain, Quiet, Verbose, make_display
from shrinkfx.options.options import BudgetOptions, Options, Sweeping
from shrinkfx.protocol.flags import Option, list_record_options, require_valid_values


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
            finish = _Task(arguments, command, listener, shown).start()
        return finish()
    except Finished as error:
        print(f"shrinkfx: {error}", file=sys.stderr)
        return task_output.print_finished_run(error)
    except ShrinkfxError as error:
        if arguments.verbose:
            traceback.print_exc()
        message = str(error)
        _print_error(message, error)
        details = task_output.describe_error(error)
        return RunEnded(error.status, error.exit_code, message, details)
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


Finish = Callable[[], RunEnded]
"""Prints the result of a task, and returns its final event."""


@dataclass(frozen=True)
class _Task:
    """The task that the arguments select.

    Each method does a task, and returns a function that prints its result. The caller
    prints the result after it has removed the live line.
    """

    arguments: argparse.Namespace
    command: str
    listener: Listener
    shown: Quiet

    def start(self) -> Finish:
        arguments, listener = self.arguments, self.listener
        refuse_empty_values(arguments)
        if arguments.list_runs:
            refuse_with_task("list_runs", arguments)
            return partial(task_output.print_runs, Path(arguments.list_runs))
        refuse_with_capture(arguments)
        if arguments.resume:
            return self._resume()
        if arguments.candidate:
            return self._retrieve()
        if arguments.report:
            refuse_with_task("report", arguments)
            page = api.report(arguments.report, listener)
            return partial(task_output.print_report, page)
        if arguments.explain and is_run_to_explain(arguments):
            refuse_with_task("explain", arguments)
            explained = api.explain(arguments.model, listener, title=arguments.title)
            return partial(task_output.print_explanation, explained)
        options = read_options(arguments, self.command)
        if arguments.verify:
            return self._verify(options)
        for option in ("across", "torch", "yes"):
            if getattr(arguments, option):
                advice = "use shrinkfx verify repro.py"
                raise UsageError(f"--{option} works only with a repro: {advice}")
        if is_run_to_resume(arguments):
            return self._resume()
        if uses_capture(arguments):
            with find_captured_program(arguments, options, listener) as options:
                return self._start_run(options)
        return self._start_run(options)

    def _start_run(self, options: api.Options) -> Finish:
        show = partial(
            task_output.print_reduction,
            everything=self.arguments.verbose or self.arguments.explain,
            until=self.arguments.until,
        )
        if not options.sweeping:
            return partial(show, api.reduce(options, self.listener))
        with api.taken_in(options, self.listener) as options:
            swept = api.sweep(options, self.listener)
            if not swept.goes_on:
                return partial(task_output.print_sweep, swept)
            self._print_sweep_first(swept)
            return partial(show, api.reduce_found(options, swept, self.listener))

    def _verify(self, options: api.Options) -> Finish:
        arguments, listener = self.arguments, self.listener
        if arguments.yes and not arguments.torch:
            raise UsageError("--yes needs --torch: add --torch, or omit --yes")

        def agree(words: str) -> bool:
            self.shown.close()
            if arguments.yes:
                listener(NoteAdded(words))
                return True
            if not sys.stdin.isatty():
                return api.refuse(words)
            print(f"{words}\ninstall? [y/N] ", end="", file=sys.stderr, flush=True)
            return sys.stdin.readline().strip().lower() in ("y", "yes")

        across, torch = arguments.across, arguments.torch or ""

        def verify(repro: Path) -> api.Confirmed:
            return api.verify(
                replace(options, model=repro),
                listener,
                across=across,
                torch=torch,
                agree=agree,
            )

        path = options.model
        is_single = path.is_file() or (path / "repro.py").exists()
        if not is_single and (bugs := name_bugs(path)):
            return verify_known_bugs(bugs, verify, listener)
        return partial(task_output.print_verification, verify(path))

    def _retrieve(self) -> Finish:
        """Write a candidate; the run is in ``--out`` or in the only argument."""
        refuse_with_task("candidate", self.arguments)
        digest, model = self.arguments.candidate, self.arguments.model
        folder = self.arguments.out
        if folder is None and model is not None and not os.path.isfile(model):
            folder, model = model, None
        if folder is None:
            raise UsageError(
                f"--candidate {digest} needs the folder of the run that tested this "
                f"candidate: shrinkfx --candidate {digest} --out DIR"
            )
        retrieved = api.retrieve(
            folder, digest, self.listener, model=model, command=self.command
        )
        return partial(task_output.print_candidate, retrieved)

    def _resume(self) -> Finish:
        arguments = self.arguments
        folder = arguments.resume or arguments.model
        refuse_with_resume(arguments, folder)
        result = api.resume(
            folder,
            model=arguments.model if arguments.resume else None,
            **vars(read_record(BudgetOptions, arguments)),
            swept=self._print_sweep_first,
            listener=self.listener,
        )
        if isinstance(result, api.Swept):
            return partial(task_output.print_sweep, result)
        everything = arguments.verbose
        return partial(task_output.print_reduction, result, everything=everything)

    def _print_sweep_first(self, swept: api.Swept) -> None:
        """Print the result of a sweep before a reduction follows it."""
        self.shown.close()
        task_output.print_sweep(swept)


def _choose_listener(options: argparse.Namespace) -> Quiet:
    if options.quiet:
        return Quiet()
    if options.verbose:
        return Verbose(sys.stderr)
    return Plain(sys.stderr) if options.no_progress else make_display(sys.stderr)


def refuse_with_capture(arguments: argparse.Namespace) -> None:
    """Refuse ``--capture`` together with a program or another task.

    Raises:
        UsageError: a program or another task is given as well.
    """
    require_valid_values(read_record(CaptureOptions, arguments))
    if not arguments.capture:
        return
    for name in ("resume", "candidate", "verify", "across"):
        if getattr(arguments, name):
            raise UsageError(f"--capture runs a script: omit --{name}")
    if arguments.model is not None:
        raise UsageError(
            "--capture finds the program in the command that follows it: omit "
            f"{arguments.model}"
        )


def uses_capture(arguments: argparse.Namespace) -> bool:
    """Tell whether the program must be found by, or in, a capture.

    Raises:
        UsageError: ``--program`` is given, but no capture.
    """
    if arguments.capture or api.is_capture(arguments.model):
        return True
    if arguments.program is not None:
        raise UsageError(
            f"--program needs the folder of a --capture run, and {arguments.model} is "
            "not such a folder"
        )
    return False


def is_run_to_explain(arguments: argparse.Namespace) -> bool:
    """Tell whether MODEL is the folder of a run, not a program to reduce.

    A capture folder is a program to reduce if no reduction was started in it, or if
    ``--program`` selects one of its programs.
    """
    path = Path(arguments.model or "-")
    if arguments.model and not path.exists():
        return not path.suffix  # the task that opens it reports that it does not exist
    if not path.is_dir() or api.is_dump(path):
        return False
    if not api.is_capture(path):
        return True
    runs = [run for run in api.runs(path) if run.folder == path]
    has_begun = any(run.status != api.State.CAPTURED for run in runs)
    return has_begun and arguments.program is None


def is_run_to_resume(arguments: argparse.Namespace) -> bool:
    """Tell whether MODEL is the folder of a run to resume or to show.

    The run may be finished or unfinished. With ``--program``, or with the path of the
    folder ``capture`` inside it, the user means a captured program for a new run.
    """
    if arguments.capture or arguments.program is not None:
        return False
    return arguments.model is not None and api.is_run(arguments.model)


@contextlib.contextmanager
def find_captured_program(
    arguments: argparse.Namespace, options: api.Options, listener: Listener
) -> Iterator[api.Options]:
    """Find the program, and yield the options of the run that reduces it.

    With ``--json``, the output of the script goes to stderr, because stdout holds the
    events. This process keeps the folder of the run locked until the end of the block.
    """
    if not arguments.capture:
        yield api.recaptured(options, listener, program=arguments.program)
        return
    with contextlib.ExitStack() as stack:
        try:
            captured = stack.enter_context(
                api.capture(
                    options,
                    arguments.command,
                    listener,
                    program=arguments.program,
                    stdout=sys.stderr if arguments.json else None,
                )
            )
        except (KeyboardInterrupt, StorageError) as error:
            error.add_note(f"to repeat this run: {arguments.typed}")
            raise
        except NothingToReduce as error:
            if misplaced := _list_misplaced_options(arguments.command):
                error.add_note(
                    f"the script received {', '.join(misplaced)}: options of shrinkfx "
                    "belong between --capture and the command"
                )
            raise
        yield captured


def _list_misplaced_options(command: Sequence[str]) -> list[str]:
    """List the options of shrinkfx among the arguments of the script."""
    flags = {flag for option in parser.list_options() for flag in option.flags}
    return [word for word in command[1:] if word.partition("=")[0] in flags]


def refuse_empty_values(arguments: argparse.Namespace) -> None:
    """Refuse options with an empty value, such as ``--resume "$UNSET"``.

    An empty value would otherwise count as an omitted option and start another task.

    Raises:
        UsageError: the path of the program or the value of an option is empty.
    """
    if arguments.model == "":
        raise UsageError(
            "the path of the program is empty: check for an unset variable"
        )
    for option in list_options():
        value = getattr(arguments, option.name)
        is_empty = value == "" or (isinstance(value, list) and "" in value)
        if option.never_empty and is_empty:
            raise UsageError(
                f"{option.flag} has an empty value: check for an unset variable"
            )


def refuse_with_resume(arguments: argparse.Namespace, folder: str) -> None:
    """Refuse options that cannot change when a run is resumed.

    Args:
        folder: the folder of the run.

    Raises:
        UsageError: such an option is given.
    """
    for option in _list_given_options(arguments):
        if option.works_with_resume:
            continue
        if arguments.resume:
            raise UsageError(
                "--resume continues a run with its original options: omit "
                f"{option.flag}"
            )
        capture = Path(folder, "capture")
        program = shlex.quote(str(capture)) if capture.is_dir() else "MODEL.pt2"
        raise UsageError(
            f"{folder} is the folder of a run, which continues with its original "
            f"options: omit {option.flag}, or start a new run: shrinkfx {program} "
            f"{option.flag}"
        )


_TASKS = {
    "explain": ("uses the options of that run", "title"),
    "report": ("reads only the folder of a run",),
    "candidate": ("uses the options of that run", "out"),
    "list_runs": ("lists the runs in a folder and exits",),
}
"""For each task: its effect, for error messages, and the options that it uses."""


def refuse_with_task(task: str, arguments: argparse.Namespace) -> None:
    """Refuse a program, a command, and options that a task does not use.

    Args:
        task: the name of the task's option.

    Raises:
        UsageError: a program, a command or such an option is given.
    """
    effect, *others = _TASKS[task]
    (flag,) = (option.flag for option in list_options() if option.name == task)
    if task == "report" and arguments.model is not None:
        raise UsageError("--report DIR reads the folder of a run: omit MODEL.pt2")
    if task == "list_runs" and arguments.model is not None:
        raise UsageError(f"{flag} {effect}: omit {arguments.model}")
    if task == "list_runs" and arguments.command:
        raise UsageError(f"{flag} {effect}: omit the command")
    printing = [option.name for option in list_record_options(PrintOptions)]
    usable = {task, *others, *printing}
    for option in _list_given_options(arguments):
        if option.name not in usable:
            raise UsageError(f"{flag} {effect}: omit {option.flag}")


def _list_given_options(arguments: argparse.Namespace) -> list[Option]:
    """List the options whose values differ from their defaults."""
    defaults = make_parser().parse_args([])
    return [
        option
        for option in list_options()
        if getattr(arguments, option.name) != getattr(defaults, option.name)
    ]


def read_options(arguments: argparse.Namespace, command: str) -> Options:
    return read_record(
        Options,
        arguments,
        model=Path(arguments.model or ""),
        command=command,
        sweeping=_read_sweep_options(arguments),
    )


Record = TypeVar("Record")


def read_record(
    record: type[Record], arguments: argparse.Namespace, **extra: object
) -> Record:
    """Make a record from the arguments of its options.

    Args:
        extra: values of the fields that are not options.
    """
    options = list_record_options(record)
    values = {o.name: o.convert_value(getattr(arguments, o.name)) for o in options}
    return record(**values, **extra)


def _read_sweep_options(arguments: argparse.Namespace) -> Sweeping | None:
    """Return the options of the sweep, or None without ``--dynamic-sweep``.

    Raises:
        UsageError: an option of a sweep is given without ``--dynamic-sweep``.
    """
    if arguments.dynamic_sweep:
        return read_record(Sweeping, arguments)
    for option in list_record_options(Sweeping):
        if getattr(arguments, option.name) != option.default:
            raise UsageError(
                f"{option.flag} only applies to a sweep: add --dynamic-sweep"
            )
    return None

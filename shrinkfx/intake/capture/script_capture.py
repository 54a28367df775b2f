"""Capture a command that fails, and resolve it to the program to reduce."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import IO

from shrinkfx.errors import LoadError, NothingToReduce, UsageError
from shrinkfx.intake.capture import counts
from shrinkfx.intake.capture.choosing import Choice, choose, render_program_table
from shrinkfx.intake.capture.patience import HangDetector
from shrinkfx.intake.capture.preloads import choose_captured_preloads
from shrinkfx.intake.capture.records import (
    STARTED,
    Capture,
    ScriptEnd,
    Step,
    open_steps,
)
from shrinkfx.intake.capture.running import CapturedCommand
from shrinkfx.intake.carried import is_setting, is_user_variable, is_variable
from shrinkfx.intake.found import ResolvedProgram
from shrinkfx.options.options import Options
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.system.atomic_files import write_json
from shrinkfx.system.output_folder import CAPTURE, moved_file_finder
from shrinkfx.wording import Flag

END = "end.json"
"""How the script ended; once this file exists, a captured program can be reduced."""

_REQUEST, _WANTED = "asked.json", "wanted.json"
"""The options of the run; and the options that the user passed, before the capture."""

_HANG_S = 60.0
"""Time limit in seconds of a check if a step hung and the user set no --timeout."""


@dataclass(frozen=True)
class Reporter:
    """Callbacks for messages: ``say`` prints a line, ``doing`` shows progress."""

    say: Callable[[str], None]
    doing: Callable[[str], None]


def name_run(command: tuple[str, ...]) -> Path:
    """Return the name of a run, from that of the script."""
    return find_script(command).with_suffix("")


def find_script(command: tuple[str, ...]) -> Path:
    """Return the script of a command, or else the module or the executable.

    Raises:
        UsageError: there is no command.
    """
    if not command:
        example = " needs a command: shrinkfx --capture python serve.py --batch 4"
        raise UsageError(Flag("--capture"), example)
    arguments = [word.partition("::")[0] for word in command]
    scripts = [word for word in arguments if word.endswith(".py")]
    modules = [after for word, after in pairwise(arguments) if word == "-m"]
    first = (*scripts, *(name.replace(".", "-") for name in modules), arguments[0])[0]
    return Path(first)


def capture(
    options: Options,
    command: tuple[str, ...],
    program: int | None,
    folder: Path,
    reporter: Reporter,
    stdout: IO[str] | None = None,
) -> Options:
    """Run a command, and return the options for reducing the program that failed.

    Args:
        options: ``timeout_s`` also limits each step of the script.
        program: the number of the program to reduce, even if it did not fail.
        folder: the folder of the run.
        stdout: a file for the command's output; None to inherit this process's stdout.

    Raises:
        UsageError: the command or the program does not exist.
        NothingToReduce: no captured program failed.
    """
    place = _empty(folder / CAPTURE)
    try:
        write_json(place / _WANTED, options.to_json())
        script = CapturedCommand(command, place.resolve(), stdout, reporter.doing)
        try:
            end = script.run(HangDetector(options.timeout_s))
        except KeyboardInterrupt as error:
            _write_end(place, ScriptEnd(command, -signal.SIGINT))
            if any(place.glob("program-*.json")):
                error.add_note(f"the captured programs are in {place}: shrinkfx --list")
            for step in open_steps(place)[:1]:
                error.add_note(
                    f"the script was in {step.name}; if that step hangs: shrinkfx "
                    f"{place} --until hang --timeout SECONDS"
                )
            raise
        _write_end(place, end)
        request = _resolve_options(options, place, end, program, reporter)
        write_json(place / _REQUEST, request.to_json())
        return request
    finally:
        _clear(place)


def _empty(place: Path) -> Path:
    """Create the capture folder; remove what an earlier, killed session left there.

    Raises:
        UsageError: the folder contains files that shrinkfx did not write.
    """
    existing = {path.name for path in place.iterdir()} if place.is_dir() else set()
    if existing and not existing & {counts.FILE, STARTED}:
        raise UsageError(
            f"{place} exists and is not a capture: choose another ",
            Flag("--out", stands="DIR"),
        )
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _write_end(place: Path, end: ScriptEnd) -> None:
    write_json(place / END, asdict(end))


def resolve_earlier_capture(
    options: Options, folder: Path, program: int | None, reporter: Reporter
) -> Options:
    """Return the options for reducing a program that was captured earlier.

    Raises:
        UsageError: the folder has no capture or a damaged one, or no program with that
            number.
        NothingToReduce: the script did not fail, and no program is named.
    """
    place = find_capture_folder(folder)
    if place is None:
        raise UsageError(f"{folder}: this folder contains no capture")
    try:
        end = ScriptEnd.from_json(json.loads((place / END).read_text()))
        return _resolve_options(options, place, end, program, reporter)
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{place}: damaged, or from another version: {error!r}"
        raise UsageError(f"{reason}; run the capture again") from error


def find_capture_folder(folder: Path) -> Path | None:
    """Return the capture folder in or at ``folder``, or None."""
    places = (folder, folder / CAPTURE)
    return next((place for place in places if os.path.isfile(place / END)), None)


def read_pending_options(folder: Path, reporter: Reporter) -> Options | None:
    """Read the options of a reduction that was requested, but has not begun.

    Raises:
        NothingToReduce: no program had been chosen, and the script did not fail.
    """
    place = folder / CAPTURE
    request, wanted = place / _REQUEST, place / _WANTED
    if os.path.isfile(request):
        options = Options.from_json(json.loads(request.read_text()))
        options = options.with_files(moved_file_finder(folder))
    elif os.path.isfile(wanted) and os.path.isfile(place / END):
        options = Options.from_json(json.loads(wanted.read_text()))
        options = resolve_earlier_capture(options, place, None, reporter)
    else:
        return None
    return replace(options, out=folder)


def _resolve_options(
    options: Options,
    place: Path,
    end: ScriptEnd,
    program: int | None,
    reporter: Reporter,
) -> Options:
    """Choose a program, report all of them, and return the options of its run."""
    options = replace(options, name=find_script(end.command).name)
    captured = Capture.read(place)
    if options.sweeping and program is None and len(captured.programs) == 1:
        program = captured.programs[0].number  # a sweep finds failures itself
    try:
        choice = choose(captured, end, program)
    except (NothingToReduce, UsageError):
        _report_programs(captured, end, 0, reporter)
        raise
    _report_programs(captured, end, choice.program.number, reporter)
    resolved = resolve_captured_program(choice, place, options.preload)
    for sentence in (choice.reason, *_versions(captured), *resolved.notes):
        reporter.say(f"captured: {sentence}")
    if choice.hangs and options.timeout_s is None:
        options = replace(options, timeout_s=_HANG_S)
    return resolved.to_options(options)


def _report_programs(
    capture: Capture, end: ScriptEnd, chosen: int, reporter: Reporter
) -> None:
    if len(capture.programs) > 1:
        for line in render_program_table(capture, end, chosen).splitlines():
            reporter.say(line)
        if chosen:
            reporter.say(
                "*: being reduced; to reduce another program: shrinkfx "
                f"{capture.folder} --program N"
            )


def resolve_captured_program(
    choice: Choice, place: Path, named: Sequence[str] = ()
) -> ResolvedProgram:
    """Return a captured program with its compile settings and its inputs.

    Args:
        named: the user's preloads.
    """
    program, notes = choice.program, []
    if program.file is None:
        raise LoadError(str(place), f"program {program.number} was not saved", "")
    environment, unset = _environment(program.environment, os.environ)
    if unset:
        notes.append(f"the script unset {', '.join(unset)}: unset it here as well")
    inductor = {k: v for k, v in program.inductor.items() if is_setting(k)}
    preloads = choose_captured_preloads(program, place, Path.cwd(), named)
    inputs, why = _inputs(choice.step)
    if why:
        notes.append(
            f"cannot save the inputs of the call: {why}: using the exported inputs"
        )
    return ResolvedProgram(
        program=program.file,
        inputs=inputs,
        inductor=inductor,
        environment=environment,
        preload=preloads.names,
        notes=(
            *_carried({**inductor, **environment}),
            *notes,
            *preloads.notes,
            *preloads.lacking,
        ),
        lacking=preloads.lacking,
        in_script=choice.failure,
    )


def _inputs(step: Step | None) -> tuple[Path | None, str]:
    return (step.inputs, step.unsaved) if step else (None, "")


def _carried(set_here: InductorOptions) -> list[str]:
    values = ", ".join(f"{name}={value}" for name, value in set_here.items())
    return [f"with {values}"] if values else []


def _environment(
    in_script: Mapping[str, str], current: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the variables that the script set, and the names of those it unset."""
    changed = {
        name: value
        for name, value in in_script.items()
        if current.get(name) != value and is_user_variable(name, value)
    }
    unset = [n for n, v in current.items() if n not in in_script and is_variable(n, v)]
    return changed, sorted(unset)


def _versions(capture: Capture) -> list[str]:
    try:
        here = version("torch")
    except PackageNotFoundError:
        return []
    # The metadata of PyPI's builds lack the local part, such as +cu132.
    different = [v for v in capture.torch if here not in (v, v.partition("+")[0])]
    if not different:
        return []
    return [
        f"the script ran with torch {different[0]}, and the reduction uses torch {here}"
    ]


def _clear(place: Path) -> None:
    """Remove drafts, and the whole folder if no program was captured."""
    for drafts in ("draft-*", "claimed-*", "call-*.pt.*"):
        for path in place.glob(drafts):
            path.unlink(missing_ok=True)
    if not any(place.glob("program-*.json")):
        shutil.rmtree(place, ignore_errors=True)

"""Capture a command that fails, and resolve it to the program to reduce."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import IO

from shrinkfx.errors import Flag, LoadError, NothingToReduce, UsageError
from shrinkfx.intake.capture.choosing import Choice, choose, render_program_table
from shrinkfx.intake.capture.records import (
    COUNTS,
    STARTED,
    Capture,
    CapturedProgram,
    Origin,
    ScriptEnd,
    Step,
    open_steps,
)
from shrinkfx.intake.capture.running import CapturedCommand, HangDetector
from shrinkfx.intake.found import (
    DOES_NOT_FAIL,
    ResolvedProgram,
    is_setting,
    is_user_variable,
    is_variable,
)
from shrinkfx.intake.modules import (
    FILE,
    RestoredValue,
    choose_preloads,
    file_sets_attribute,
    find_preload_files,
    render_settings,
    render_settings_module,
    text_sets_attribute,
    write_preload_module,
)
from shrinkfx.options.options import Options
from shrinkfx.preloads.compiling_calls import COMPILES
from shrinkfx.preloads.custom_code_sources import describe_copy, mark_as_generated
from shrinkfx.preloads.preload_bundle import PreloadCut
from shrinkfx.preloads.slicing import Slicer
from shrinkfx.preloads.statements import (
    REGISTRAR,
    at_import,
    last_name,
    read_source,
    statements_of,
    text_of,
)
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.system.atomic_files import write_json
from shrinkfx.system.output_folder import CAPTURE, INTAKE, moved_file_finder

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
    if existing and not existing & {COUNTS, STARTED}:
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


_MAIN = "__main__"


@dataclass(frozen=True)
class Preloads:
    """Values for ``--preload``, in order, and sentences about them.

    Attributes:
        lacking: sentences about settings of Inductor that no preload sets.
    """

    names: tuple[str, ...]
    notes: tuple[str, ...]
    lacking: tuple[str, ...] = ()


def choose_captured_preloads(
    program: CapturedProgram, folder: Path, cwd: Path, named: Sequence[str] = ()
) -> Preloads:
    """Return the preloads of a captured program.

    Args:
        folder: a folder for generated preloads.
        cwd: the folder in which the run's processes start.
        named: the user's preloads.
    """
    others = {k: v for k, v in program.others.items() if is_setting(k)}
    named_files = find_preload_files(named, cwd)
    others = _unset(others, named_files)
    modules = {o.module: o.file for o in program.origins if _is_own_module(o)}
    chosen = dict(zip(modules, choose_preloads([*modules.items()], cwd), strict=True))
    names: dict[str, None] = {}
    notes: list[str] = []
    files: list[str] = []
    for origin in program.origins:
        remark = _called(origin) if origin.called else ""
        if _is_own_module(origin):
            name = chosen[origin.module].write_to(folder)
            files.append(origin.file)
            remark = remark or f"preloading {origin.module}: {origin.why}"
        elif origin.module == _MAIN:
            name, remark = _copy_definitions(origin, program, folder, remark, others)
            files += [name] if name else []
        else:
            name = origin.library or origin.module
        if name:
            names[name] = None
        if remark:
            notes.append(remark)
    others = _unset(others, files)
    copied = {k: v for k, v in others.items() if v.is_imported}
    if copied:
        names[write_preload_module(folder, FILE, render_settings_module(copied))] = None
        notes += [
            f"a generated preload sets Inductor's {key}: {v.short_text}"
            for key, v in copied.items()
        ]
    lacking = [_lacking(k, v) for k, v in others.items() if k not in copied]
    return Preloads(tuple(names), tuple(dict.fromkeys(notes)), tuple(lacking))


def _unset(
    settings: Mapping[str, RestoredValue], files: Sequence[str]
) -> dict[str, RestoredValue]:
    """Return the settings that none of the files sets at import time."""
    return {
        k: v
        for k, v in settings.items()
        if not any(file_sets_attribute(f, k) for f in files)
    }


def _lacking(setting: str, value: RestoredValue) -> str:
    why = value.why_not or f"{value.name} is created only in the script itself"
    return (
        f"Inductor's {setting} is missing: {why}, so no other process has it; write a "
        "module that sets it at import time, and --preload that module"
    )


def _is_own_module(origin: Origin) -> bool:
    """Return whether a module is local; installed modules are imported by name."""
    return origin.module != _MAIN and not origin.library and origin.is_local


def _called(origin: Origin) -> str:
    return (
        f"{origin.why}: a function in {origin.module} registers this, not the import "
        "of the module: if it is missing, --preload a module that calls the function"
    )


def _copy_definitions(
    origin: Origin,
    program: CapturedProgram,
    folder: Path,
    called: str,
    settings: Mapping[str, RestoredValue],
) -> tuple[str, str]:
    """Copy the definitions out of a script, because importing it would run all of it.

    Args:
        settings: settings of Inductor, some of which the script may define.
    """
    file = Path(origin.file)
    if not file.is_file():  # <stdin>, or code passed with -c
        return "", f"{origin.why}: {_NO_FILE}"
    try:
        defined = _settable(file, settings)
        restored = render_settings(defined) if defined else ""
        text = _defining(read_source(file), str(file), restored)
    except (OSError, SyntaxError) as error:
        advice = "move the definition into its own module, and --preload that module"
        return "", f"{origin.why}: cannot read the script: {error}; {advice}"
    if not text.strip():
        return "", called
    name = f"{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}_definitions"
    text = mark_as_generated(text, describe_copy(file.name))
    written = write_preload_module(folder, name, text)
    where = f"defined in {file.name}; the definition was copied to {written}"
    return written, called or f"{origin.why}: {where}"


_NO_FILE = (
    "the script is not a file, so its code cannot be read again: save it to a file, "
    "and capture that: shrinkfx --capture -- python FILE.py"
)


def _settable(
    file: Path, settings: Mapping[str, RestoredValue]
) -> dict[str, RestoredValue]:
    """Return the settings whose values the script defines, but does not set itself."""
    parts = [s for s in statements_of(read_source(file), str(file)) if not s.is_main]
    bound, text = {name for each in parts for name in each.binds}, text_of(parts)
    defined = {k: v for k, v in settings.items() if v.is_of_script and v.bound in bound}
    return {k: v for k, v in defined.items() if not text_sets_attribute(text, k)}


def _defining(text: str, name: str, restored: str) -> str:
    """Slice a script to the code that registers operators or changes the compiler.

    Statements for the script's own purposes are omitted, such as those that parse
    arguments or run the model.

    Args:
        restored: statements to keep, with the definitions that they need.
    """
    length = text.count("\n") + 1
    statements = statements_of(f"{text}\n{restored}", name)
    others = (s for s in statements if s.lines[0] <= length and not _defines(s.node))
    cut = PreloadCut(dropped=frozenset((name, *each.place) for each in others))
    compiling = [(name, s.lines[0]) for s in statements if _compiles(s.node)]
    slicer = Slicer({_MAIN: Path(name)}, {}, (), compiling, cut, lambda _: statements)
    return slicer.slices()[_MAIN].definitions.text


def _compiles(node: ast.stmt) -> bool:
    """Return whether a statement compiles C++, with or without using the result."""
    value = getattr(node, "value", None)
    return isinstance(node, (ast.Expr, ast.Assign)) and last_name(value) == COMPILES


def _defines(node: ast.stmt) -> bool:
    """Return whether a statement is a definition, a patch or a registration."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) or _compiles(node):
        return True
    places = (ast.Attribute, ast.Subscript)
    if any(isinstance(target, places) for target in getattr(node, "targets", ())):
        return isinstance(node, ast.Assign)
    return any(map(_registers, at_import(node)))


def _registers(node: ast.stmt) -> bool:
    called = [*getattr(node, "decorator_list", ())]
    if isinstance(node, (ast.Expr, ast.Assign)):
        called.append(node.value)
    return any(REGISTRAR.fullmatch(last_name(each)) for each in called)


# Find captures whose programs have not been reduced.


@dataclass(frozen=True)
class UnreducedCapture:
    """A capture whose programs have not been reduced.

    Attributes:
        folder: the folder of the run that did not begin.
        script: the script's name, ``serve.py``; '' if it was not recorded.
        programs: the number of captured programs.
        at: the last modification, in seconds since 1970.
        has_ended: whether the end of the script was recorded.
        does_not_fail: it is the program of a dump, and its run found no failure.
    """

    folder: Path
    script: str
    programs: int
    at: float
    has_ended: bool
    does_not_fail: bool = False


def find_unreduced_capture(folder: Path) -> UnreducedCapture | None:
    """Return the capture in the folder of a run, or None."""
    place = folder / CAPTURE
    programs = len([*place.glob("program-*.json")])
    if not programs:
        return None
    script, end = "", place / END
    has_ended = os.path.isfile(end)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        ended = ScriptEnd.from_json(json.loads(end.read_text()))
        script = find_script(ended.command).name
    return UnreducedCapture(folder, script, programs, place.stat().st_mtime, has_ended)


# Find what the folder of a run without a journal contains.


def find_unreduced(folder: Path) -> UnreducedCapture | None:
    """Return a capture, or a program that does not fail; None if there is neither."""
    return find_unreduced_capture(folder) or _no_failure(folder)


def _no_failure(folder: Path) -> UnreducedCapture | None:
    note = folder / INTAKE / DOES_NOT_FAIL
    try:
        program, at = json.loads(note.read_text())["program"], note.stat().st_mtime
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return UnreducedCapture(
        folder, str(program), 1, at, has_ended=True, does_not_fail=True
    )

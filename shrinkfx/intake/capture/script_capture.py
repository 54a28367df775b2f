"""Capture a command that fails, and resolve it to the program to reduce."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO

from shrinkfx.errors import (
    REPORT_BUG,
    SEE_DOCTOR,
    FailsDifferently,
    LoadError,
    NothingToReduce,
    NotReproducible,
    UsageError,
)
from shrinkfx.intake.capture.records import Capture, ScriptEnd, open_steps
from shrinkfx.intake.capture.running import (
    CapturedCommand,
    HangDetector,
    advise_own_python,
    shorten_command,
)
from shrinkfx.intake.dump import describe_other_torch
from shrinkfx.intake.found import (
    DOES_NOT_FAIL,
    ResolvedProgram,
    is_setting,
    is_user_variable,
    is_variable,
)
from shrinkfx.intake.preload_choice import choose_preloads
from shrinkfx.options.options import FailedStep, Options, ScriptFailure
from shrinkfx.protocol.captured import (
    BEGUN,
    CALL,
    COMPILE,
    EXPORT,
    FAILED_EARLY,
    LOAD,
    SAVE,
    STARTED,
    UNDECOMPOSED,
    CapturedProgram,
    Step,
)
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.system.folders import (
    CAPTURE,
    CAPTURE_END,
    INTAKE,
    moved_file_finder,
    write_json,
)

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
        raise UsageError("--capture", example)
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
        end = _run_script(options, command, place, reporter, stdout)
        try:
            request = _resolve_options(options, place, end, program, reporter)
        except NothingToReduce:
            is_early = (place / FAILED_EARLY).exists() and end.code
            why = "torch.compile failed before it called Inductor"
            if not is_early or not _run_again(options, command, folder, reporter, why):
                raise
            return _resolve_second_run(options, folder, reporter)
        write_json(place / _REQUEST, request.to_json())
        return request
    finally:
        _clear(place)


def _run_script(
    options: Options,
    command: tuple[str, ...],
    place: Path,
    reporter: Reporter,
    stdout: IO[str] | None,
) -> ScriptEnd:
    """Run a command with its capture in the folder ``place``."""
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
    return end


@contextlib.contextmanager
def capture_session(options: Options, folder: Path) -> Iterator[Path]:
    """Yield the folder for the programs of a block in this process.

    It is complete from the start, because a crash may end this process in the block.
    """
    place = _empty(folder / CAPTURE)
    write_json(place / _WANTED, options.to_json())
    _write_end(place, ScriptEnd((options.model.name,), 1, is_session=True))
    try:
        yield place.resolve()
    finally:
        _clear(place)


def _empty(place: Path) -> Path:
    """Create the capture folder; remove what an earlier, killed session left there.

    Raises:
        UsageError: the folder contains files that shrinkfx did not write.
    """
    existing = {path.name for path in place.iterdir()} if place.is_dir() else set()
    if existing and not existing & {_WANTED, STARTED}:
        raise UsageError(
            f"{place} exists and is not a capture: choose another ",
            "--out DIR",
        )
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _write_end(place: Path, end: ScriptEnd) -> None:
    write_json(place / CAPTURE_END, asdict(end))


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
        end = _read_end(place)
        return _resolve_options(options, place, end, program, reporter)
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{place}: damaged, or from another version: {error!r}"
        raise UsageError(f"{reason}; run the capture again") from error


def list_programs(place: Path) -> tuple[Path, ...]:
    """Return the files of the programs in a capture folder, by number."""
    return tuple(each.file for each in Capture.read(place).programs if each.file)


def find_capture_folder(folder: Path) -> Path | None:
    """Return the capture folder in or at ``folder``, or None."""
    places = (folder, folder / CAPTURE)
    return next(
        (place for place in places if os.path.isfile(place / CAPTURE_END)), None
    )


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
    elif os.path.isfile(wanted) and os.path.isfile(place / CAPTURE_END):
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
    _report_programs(captured, end, choice.program.number, reporter, choice.others)
    if choice.hangs and options.timeout_s is None:
        options = replace(options, timeout_s=_HANG_S)
    others = () if options.inputs else choice.others
    chosen = _options_for(choice, options, captured, reporter)
    return replace(chosen, others=others)


def _options_for(
    choice: Choice, options: Options, captured: Capture, reporter: Reporter
) -> Options:
    resolved = resolve_captured_program(choice, captured.folder, options.preload)
    other_torch = describe_other_torch(captured.torch)
    for sentence in dict.fromkeys((choice.reason, *other_torch, *resolved.notes)):
        reporter.say(f"captured: {sentence}")
    return resolved.to_options(options)


def resolve_next_program(
    options: Options, reporter: Reporter, error: LoadError | NotReproducible
) -> Options | None:
    """Return the options for the next program to try.

    Args:
        options: the options for the program that does not fail, or cannot be loaded.
        error: why that program is not reduced.

    Returns:
        None if no captured program is left, or the program is not a captured one.
    """
    if not options.others:
        return None
    number, *others = options.others
    captured = Capture.read(options.model.parent)
    step = (_calls_of(captured, number) or captured.steps_of(number))[-1]
    fails_to_load = isinstance(error, LoadError)
    why = str(error) if fails_to_load else "that program does not fail"
    first = why.partition("\n")[0]
    reason = f"{first}; trying the next: {step.name_and_line}"
    choice = Choice(captured.by_number[number], step, reason)
    options = replace(options, inputs=None, lacking=())
    resolved = _options_for(choice, options, captured, reporter)
    return replace(resolved, others=tuple(others))


def capture_again(
    options: Options, reporter: Reporter, error: LoadError | NotReproducible
) -> Options | None:
    """Run a script again, to save its graphs before PyTorch decomposes them.

    Inductor gets graphs in which operators are decomposed already. A wrong
    decomposition is a part of them, so they do not fail.

    Args:
        options: those for the last of the graphs.
        error: why that graph is not reduced.

    Returns:
        The options for the first program to try; None if another run would not help,
        or the user chose the program or its inputs.
    """
    folder, place, failure = options.out, options.model.parent, options.in_script
    if folder is None or place != folder / CAPTURE or options.model.suffix != ".py":
        return None
    if isinstance(error, (FailsDifferently, LoadError)):
        return None
    end = _read_end(place)
    wanted = Options.from_json(json.loads((place / _WANTED).read_text()))
    if wanted.inputs or failure is None or failure.failed is not FailedStep.NOTHING:
        return None
    if end.is_session:  # its code cannot run again
        return None
    wanted, why = replace(wanted, out=folder), "no graph fails as Inductor gets it"
    if _run_again(wanted, end.command, folder, reporter, why):
        return _resolve_second_run(wanted, folder, reporter)
    return None


def _run_again(
    options: Options,
    command: tuple[str, ...],
    folder: Path,
    reporter: Reporter,
    why: str,
) -> bool:
    """Replace the capture of a script by that of a run in eager, if it saves graphs."""
    reporter.say(
        f"captured: {why}. Running the script again, with its graphs in eager, to save "
        "them before PyTorch decomposes their operators"
    )
    place, draft = folder / CAPTURE, _empty(folder / _SECOND_RUN)
    try:
        (draft / UNDECOMPOSED).touch()
        with open(os.devnull, "w") as nowhere:
            end = _run_script(options, command, draft, reporter, nowhere)
        if end.code:
            reporter.say(
                "captured: the script failed without Inductor, too (exit code "
                f"{end.code}): {_OTHERS}"
            )
        if not any(each.file for each in Capture.read(draft).programs):
            reporter.say("captured: no graph could be saved in this run")
            return False
        shutil.rmtree(place)
        draft.rename(place)
        return True
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # its notes name the draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


_SECOND_RUN = "second-run"


def _resolve_second_run(options: Options, folder: Path, reporter: Reporter) -> Options:
    request = resolve_earlier_capture(options, folder, None, reporter)
    write_json(folder / CAPTURE / _REQUEST, request.to_json())
    _clear(folder / CAPTURE)
    return request


def _report_programs(
    capture: Capture,
    end: ScriptEnd,
    chosen: int,
    reporter: Reporter,
    others: Sequence[int] = (),
) -> None:
    if len(capture.programs) > 1:
        for line in render_program_table(capture, end, chosen).splitlines():
            reporter.say(line)
        if chosen:
            doing = "tried first" if others else "being reduced"
            reporter.say(
                f"*: {doing}; to reduce another program: shrinkfx "
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
    preloads = choose_preloads(program, place, Path.cwd(), named)
    inputs, why = _inputs(choice.step)
    if why:
        others = "those of an earlier call" if inputs else "the exported inputs"
        notes.append(f"cannot save the inputs of the call: {why}: using {others}")
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
        lacking=(*preloads.lacking, *_describe_failure_in_eager(place)),
        in_script=choice.failure,
    )


def _read_end(place: Path) -> ScriptEnd:
    return ScriptEnd.from_json(json.loads((place / CAPTURE_END).read_text()))


def _describe_failure_in_eager(place: Path) -> tuple[str, ...]:
    """Return advice if the second run of a script, without Inductor, failed too."""
    if not (place / UNDECOMPOSED).exists():
        return ()
    return (_IN_EAGER,) if _read_end(place).code else ()


_OTHERS = "the script itself, Dynamo or AOTAutograd may be wrong"
_IN_EAGER = (
    f"the script also failed with its graphs in eager, without Inductor: {_OTHERS}"
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


def _clear(place: Path) -> None:
    """Remove drafts, and the whole folder if no program was captured."""
    for drafts in ("draft-*", "claimed-*", "call-*.pt.*"):
        for path in place.glob(drafts):
            path.unlink(missing_ok=True)
    if not any(place.glob("program-*.json")):
        shutil.rmtree(place, ignore_errors=True)


# Choose which of the captured programs to reduce, and describe all of them.


@dataclass(frozen=True)
class Choice:
    """The program to reduce, and the step of it that failed.

    Attributes:
        step: None if no step is known to have failed.
        reason: why the program was chosen, in a sentence.
        hangs: whether the step did not end.
        failure: the failure in the script; None if it is not known.
        others: the programs to try in turn if the program does not fail.
    """

    program: CapturedProgram
    step: Step | None
    reason: str
    hangs: bool = False
    failure: ScriptFailure | None = None
    others: tuple[int, ...] = ()


def choose(capture: Capture, end: ScriptEnd, number: int | None) -> Choice:
    """Choose the program that the user asks for, or the one that failed.

    Raises:
        NothingToReduce: no program failed, or the failing program was not saved.
        UsageError: there is no program with that number, or it was not saved.
    """
    failed = find_failed_step(capture, end)
    if number is not None:
        return _choose_by_number(capture, end, failed, number)
    if (capture.folder / UNDECOMPOSED).exists():
        return _choose_undecomposed(capture)
    if failed is None:
        raise NothingToReduce(_why_none(capture, end))
    program = capture.by_number.get(failed.program)
    if program is None or program.file is None:
        raise NothingToReduce(_why_not(failed, program, end))
    choice = _chosen(program, failed, end)
    if failed.has_failed:
        return choice
    used = dict.fromkeys(step.program for step in _used_steps(capture))
    saved = [n for n in used if n in capture.by_number and capture.by_number[n].file]
    return replace(choice, others=tuple(n for n in saved if n != program.number))


def _choose_undecomposed(capture: Capture) -> Choice:
    """Choose the first of the saved graphs; how the script ended does not matter."""
    first, *others = [each for each in capture.programs if each.file]
    step = (_calls_of(capture, first.number) or capture.steps_of(first.number))[-1]
    failure = ScriptFailure(
        FailedStep.UNKNOWN, "it failed, but no graph that Inductor got"
    )
    reason = f"testing {step.name_and_line}"
    numbers = tuple(each.number for each in others)
    return Choice(first, step, reason, failure=failure, others=numbers)


def _choose_by_number(
    capture: Capture, end: ScriptEnd, failed: Step | None, number: int
) -> Choice:
    program = capture.by_number.get(number)
    if program is None:
        known = ", ".join(map(str, capture.by_number)) or "none"
        raise UsageError(
            f"--program {number}",
            f": no such program; captured: program {known}\nto reduce another program "
            f"without running the script again: shrinkfx {capture.folder} --program N",
        )
    if program.file is None:
        flag = f"--program {number}"
        raise UsageError(flag, f": the program could not be saved: {program.unsaved}")
    failures = [step for step in capture.steps_of(number) if step.has_failed]
    if failed is not None and failed.program == number and failed.has_failed:
        failures.append(failed)
    if failures:
        return _chosen(program, failures[-1], end)
    calls = _calls_of(capture, number)
    reason = f"program {number}, as requested; no failure of it was seen in the script"
    return Choice(program, calls[-1] if calls else None, reason)


def _calls_of(capture: Capture, number: int) -> list[Step]:
    return [step for step in capture.steps_of(number) if step.what == CALL]


_FAILED = {COMPILE: FailedStep.COMPILE, LOAD: FailedStep.LOAD, CALL: FailedStep.CALL}


def _chosen(program: CapturedProgram, step: Step, end: ScriptEnd) -> Choice:
    reason, hangs = describe_step_end(step, end), _hangs(step, end)
    what = _FAILED.get(step.what) if step.has_failed else FailedStep.NOTHING
    died = step.state == BEGUN and not hangs
    failure = ScriptFailure(what, reason, died) if what else None
    return Choice(program, step, reason, hangs, failure)


def find_failed_step(capture: Capture, end: ScriptEnd) -> Step | None:
    """Return the step that made the script fail, or None.

    A process that died in a step takes precedence over an exception. An exception takes
    precedence over a script that failed after all its steps succeeded, perhaps because
    of a wrong value. A failed export counts only if it is the last step, because many
    scripts try another way after it. In a script that failed for another reason, it is
    the first program that was called.
    """
    steps = [step for step in capture.steps if step.what != SAVE or step.state == BEGUN]
    for pid in filter(None, (end.hung, end.died)):
        open_ones = [s for s in steps if s.pid == pid and s.state == BEGUN]
        if open_ones:
            return open_ones[-1]
    unfinished = [step for step in steps if step.state == BEGUN]
    raised = [step for step in steps if step.has_failed and step.what != EXPORT]
    if unfinished or raised:
        return (unfinished or raised)[-1]
    if end.code and steps and steps[-1].has_failed:
        return steps[-1]
    return next(iter(_used_steps(capture)), None) if end.code else None


def _used_steps(capture: Capture) -> list[Step]:
    """Return the calls of programs, or the compilations if there was no call."""
    used = [s for s in capture.steps if s.what in (CALL, COMPILE) and s.program]
    return [step for step in used if step.what == CALL] or used


def describe_step_end(step: Step, end: ScriptEnd) -> str:
    """Describe in a sentence how a step ended."""
    if _hangs(step, end):
        slow = (
            "" if step.what == CALL else "; if it is only slow, use a longer --timeout"
        )
        return f"{step.name_and_line} did not end in {end.hung_s:.0f} s{slow}"
    if step.state == BEGUN:
        return f"the process died in {step.name_and_line}: {_how_ended(end)}"
    if step.error:
        error = step.error.partition("\n")[0]
        caught = "" if end.code else "; the script continued"
        return f"{step.name_and_line} raised {error:.300}{caught}"
    if end.is_session:
        why = "; its result may be wrong"
        return f"{_NO_ERROR}: testing {step.name_and_line}{why}"
    return (
        f"{_how_ended(end)}, but {_NO_ERROR}. Perhaps a result is wrong: "
        f"testing {step.name_and_line}"
    )


_NO_ERROR = "no export, compilation or call of a compiled program raised an error"


def _hangs(step: Step, end: ScriptEnd) -> bool:
    return step.state == BEGUN and step.pid == end.hung


def _how_ended(end: ScriptEnd) -> str:
    if end.is_session:
        return "the block did not end"
    if end.code < 0:
        return f"the script was killed by {_signal(-end.code)}"
    return f"the script ended with exit code {end.code}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _why_not(step: Step, program: CapturedProgram | None, end: ScriptEnd) -> str:
    """Explain why the program that failed cannot be reduced."""
    ended = describe_step_end(step, end)
    if step.what == EXPORT:
        return f"{ended}\nno program was exported, so there is nothing to reduce"
    if step.what == SAVE:
        return f"{ended}\nshrinkfx failed to save the program: {REPORT_BUG}"
    if program is None:
        return (
            f"{ended}\nthe program was compiled outside the watched processes: capture "
            "the script that compiles it, or pass the .pt2 that it was compiled from"
        )
    return (
        f"{ended}\nthe program cannot be saved: {program.unsaved}\nchange the script "
        "so that it can be saved, or export it in another form, and pass that .pt2"
    )


def _why_none(capture: Capture, end: ScriptEnd) -> str:
    command = shorten_command(end.command)
    if not capture.started:
        return (
            f"could not watch any Python process of this command: {command}\ncheck "
            "whether it uses -I, -E or -S, a container, or another PYTHONPATH"
        )
    failed = _how_ended(end) if end.code else "the script did not fail"
    importing = [python for what, python in capture.started if what == "importing"]
    if importing and not capture.torch and end.code:
        python = importing[0]
        advice = f"try: {python} -c 'import torch.export'"
        doctor = f"\n{SEE_DOCTOR}" if python == sys.executable else ""
        return f"{command} could not import PyTorch; {failed}\n{advice}{doctor}"
    if not capture.torch:
        why = "it failed before the import" if end.code else "it contains no program"
        advice = ""
        if pythons := capture.pythons_without_torch:
            why = f"its Python has no PyTorch ({', '.join(pythons)})"
            advice = advise_own_python(end.command)
        return f"{command} did not import PyTorch: {why}; {failed}{advice}"
    if not capture.programs:
        return (
            f"{command} compiled nothing with Inductor; {failed}\nshrinkfx watches "
            "torch.compile, torch.export.export, torch._inductor."
            "aoti_compile_and_package and aoti_load_package, and calls of what they "
            "return\nif Dynamo fails, or torch.compile calls another backend, shrinkfx "
            "cannot reduce the failure"
        )
    return (
        f"{command} did not fail: there is nothing to reduce\ncaptured: "
        f"{capture.folder}\nto reduce a captured program anyway, for example one with "
        f"wrong values: shrinkfx {capture.folder} --program {min(capture.by_number)}"
    )


def render_program_table(capture: Capture, end: ScriptEnd, chosen: int) -> str:
    """Return a table of the programs: where they were compiled, and their failures."""
    rows = [("program", "operators", "compiled at", "calls", "")]
    for program in capture.programs:
        steps = capture.steps_of(program.number)
        calls = _calls(steps)
        remarks = "; ".join(_remarks(program, steps, end))
        mark = "*" if program.number == chosen else ""
        number = f"{program.number}{mark}"
        operators = str(program.operators)
        rows.append((number, operators, program.where, str(calls), remarks))
    widths = [*(max(len(row[i]) for row in rows) for i in range(4)), 0]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _calls(steps: list[Step]) -> int:
    counts: dict[int, int] = {}
    for step in steps:
        if step.what == CALL:
            counts[step.pid] = max(step.count, counts.get(step.pid, 0))
    return sum(counts.values())


def _remarks(
    program: CapturedProgram, steps: list[Step], end: ScriptEnd
) -> Iterator[str]:
    if program.file is None:
        yield f"not saved: {program.unsaved}"
    for step in steps:
        if _hangs(step, end):
            yield f"{step.what}: did not end"
        elif step.state == BEGUN:
            yield f"{step.what}: the process died"
        elif step.has_failed:
            yield f"{step.what}: {step.error.partition(chr(10))[0]:.80}"


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
    script, has_ended = "", os.path.isfile(place / CAPTURE_END)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        script = find_script(_read_end(place).command).name
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

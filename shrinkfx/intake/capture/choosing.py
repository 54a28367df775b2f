"""Choose which of the captured programs to reduce, and describe all of them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from shrinkfx.errors import REPORT_BUG, SEE_DOCTOR, Flag, NothingToReduce, UsageError
from shrinkfx.intake.capture.records import (
    BEGUN,
    CALL,
    COMPILE,
    EXPORT,
    LOAD,
    SAVE,
    Capture,
    CapturedProgram,
    ScriptEnd,
    Step,
)
from shrinkfx.intake.capture.running import advise_own_python, shorten_command
from shrinkfx.options.options import FailedStep, ScriptFailure


@dataclass(frozen=True)
class Choice:
    """The program to reduce, and the step of it that failed.

    Attributes:
        step: None if no step is known to have failed.
        reason: why the program was chosen, in a sentence.
        hangs: whether the step did not end.
        failure: the failure in the script; None if it is not known.
    """

    program: CapturedProgram
    step: Step | None
    reason: str
    hangs: bool = False
    failure: ScriptFailure | None = None


def choose(capture: Capture, end: ScriptEnd, number: int | None) -> Choice:
    """Choose the program that the user asks for, or the one that failed.

    Raises:
        NothingToReduce: no program failed, or the failing program was not saved.
        UsageError: there is no program with that number, or it was not saved.
    """
    failed = find_failed_step(capture, end)
    if number is not None:
        return _choose_by_number(capture, end, failed, number)
    if failed is None:
        raise NothingToReduce(_why_none(capture, end))
    program = capture.by_number.get(failed.program)
    if program is None or program.file is None:
        raise NothingToReduce(_why_not(failed, program, end))
    return _chosen(program, failed, end)


def _choose_by_number(
    capture: Capture, end: ScriptEnd, failed: Step | None, number: int
) -> Choice:
    program = capture.by_number.get(number)
    if program is None:
        known = ", ".join(map(str, capture.by_number)) or "none"
        raise UsageError(
            Flag("--program", number),
            f": no such program; captured: program {known}\nto reduce another program "
            f"without running the script again: shrinkfx {capture.folder} --program N",
        )
    if program.file is None:
        flag = Flag("--program", number)
        raise UsageError(flag, f": the program could not be saved: {program.unsaved}")
    failures = [step for step in capture.steps_of(number) if step.has_failed]
    if failed is not None and failed.program == number:
        failures.append(failed)
    if failures:
        return _chosen(program, failures[-1], end)
    calls = [step for step in capture.steps_of(number) if step.what == CALL]
    reason = f"program {number}, as requested; no failure of it was seen in the script"
    return Choice(program, calls[-1] if calls else None, reason)


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
    scripts try another way after it.
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
    used = [step for step in steps if step.what in (CALL, COMPILE) and step.program]
    return used[-1] if end.code and used else None


def describe_step_end(step: Step, end: ScriptEnd) -> str:
    """Describe in a sentence how a step ended."""
    where = f" ({step.where})" if step.where else ""
    if _hangs(step, end):
        slow = (
            "" if step.what == CALL else "; if it is only slow, use a longer --timeout"
        )
        return f"{step.name}{where} did not end in {end.hung_s:.0f} s{slow}"
    if step.state == BEGUN:
        return f"the process died in {step.name}{where}: {_how_ended(end)}"
    if step.error:
        error = step.error.partition("\n")[0]
        caught = "" if end.code else "; the script continued"
        return f"{step.name}{where} raised {error:.300}{caught}"
    return (
        "all steps in PyTorch succeeded, and the script ended with exit code "
        f"{end.code}: choosing the last step, {step.name}{where}"
    )


def _hangs(step: Step, end: ScriptEnd) -> bool:
    return step.state == BEGUN and step.pid == end.hung


def _how_ended(end: ScriptEnd) -> str:
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
        f"{ended}\nthe program cannot be saved: {program.unsaved}\nexport it in a form "
        "that can be saved, and pass that .pt2"
    )


def _why_none(capture: Capture, end: ScriptEnd) -> str:
    command = shorten_command(end.command)
    if not capture.was_watched:
        return (
            f"could not watch any Python process of this command: {command}\ncheck "
            "whether it uses -I, -E or -S, a container, or another PYTHONPATH"
        )
    failed = _how_ended(end) if end.code else "the script did not fail"
    if capture.importing and not capture.torch and end.code:
        python = capture.importing[0]
        advice = f"try: {python} -c 'import torch.export'"
        doctor = f"\n{SEE_DOCTOR}" if python == sys.executable else ""
        return f"{command} could not import PyTorch; {failed}\n{advice}{doctor}"
    if not capture.torch:
        why = "it failed before the import" if end.code else "it contains no program"
        if capture.without_torch:
            pythons = ", ".join(capture.without_torch)
            why = f"its Python has no PyTorch ({pythons})"
        prefix = f"{command} did not import PyTorch: {why}; {failed}"
        return (
            f"{prefix}{advise_own_python(end.command) if capture.without_torch else ''}"
        )
    if not capture.programs:
        return (
            f"{command} compiled nothing with AOTInductor; {failed}\nshrinkfx watches "
            "torch.export.export, torch._inductor.aoti_compile_and_package and "
            "aoti_load_package, calls of loaded packages, and the deprecated "
            "torch._export.aot_compile and aot_load"
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

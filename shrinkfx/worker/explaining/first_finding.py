"""Describe the interpreter's finding in numbers and with the kernel's text."""

from __future__ import annotations

import linecache
import re

from shrinkfx.protocol.compiled_program_view import StrayAccess
from shrinkfx.worker.interpreter.findings import KernelFinding, Probe, Report
from shrinkfx.worker.interpreter.memory_checks.bounds import CHECKER, place_of_launch


def describe_first_finding(error: BaseException) -> StrayAccess | None:
    """Describe the first finding; return None if another error ended the run."""
    if not isinstance(error, Report):
        return None
    found = error.findings[0]
    text, line = _kernel_text(found)
    launched = CHECKER.launched[-1] if CHECKER.launched else None
    given = launched.layouts.get(found.argument) if launched else None
    return StrayAccess(
        fault=str(found.fault),
        kernel=found.kernel,
        user=any(name.startswith("user kernel ") for name in found.operators),
        line=line,
        text=text,
        argument=found.argument,
        role=found.role,
        offset=found.offset,
        elements=found.elements,
        item_bytes=found.item_bytes,
        lanes=found.lanes,
        program=found.program,
        grid=launched.grid if launched else (),
        launch=place_of_launch(found),
        message=found.message,
        values=tuple(f"{name}={value}" for name, value in found.values),
        shape=given.shape if given else (),
        stride=given.stride if given else (),
        made_up=found.probe is Probe.HINTS,
    )


def _kernel_text(found: KernelFinding) -> tuple[str, int]:
    """Return the text of the function around a finding's line, and the line's index.

    Returns:
        '' and -1 if the file is not readable.
    """
    lines = [line.rstrip("\n") for line in linecache.getlines(found.file)]
    if not 0 < found.line <= len(lines):
        return "", -1
    begin = found.line - 1
    while begin > 0 and not re.match(r"\s*def \w+\(", lines[begin]):
        begin -= 1
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    end = found.line
    while end < len(lines) and (
        not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
    ):
        end += 1
    return "\n".join(lines[begin:end]).rstrip(), found.line - 1 - begin

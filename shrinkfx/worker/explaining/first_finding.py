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
    finding = error.findings[0]
    text, line = _kernel_text(finding)
    launched = CHECKER.launched[-1] if CHECKER.launched else None
    layout = launched.layouts.get(finding.argument) if launched else None
    return StrayAccess(
        fault=str(finding.fault),
        kernel=finding.kernel,
        user=any(name.startswith("user kernel ") for name in finding.operators),
        line=line,
        text=text,
        argument=finding.argument,
        role=finding.role,
        offset=finding.offset,
        elements=finding.elements,
        item_bytes=finding.item_bytes,
        lanes=finding.lanes,
        program=finding.program,
        grid=launched.grid if launched else (),
        launch=place_of_launch(finding),
        message=finding.message,
        values=tuple(f"{name}={value}" for name, value in finding.values),
        shape=layout.shape if layout else (),
        stride=layout.stride if layout else (),
        made_up=finding.probe is Probe.HINTS,
    )


def _kernel_text(finding: KernelFinding) -> tuple[str, int]:
    """Return the text of the function around a finding's line, and the line's index.

    Returns:
        '' and -1 if the file is not readable.
    """
    lines = [line.rstrip("\n") for line in linecache.getlines(finding.file)]
    if not 0 < finding.line <= len(lines):
        return "", -1
    begin = finding.line - 1
    while begin > 0 and not re.match(r"\s*def \w+\(", lines[begin]):
        begin -= 1
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    end = finding.line
    while end < len(lines) and (
        not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
    ):
        end += 1
    return "\n".join(lines[begin:end]).rstrip(), finding.line - 1 - begin

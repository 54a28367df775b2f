"""The guilty kernel's source, with the line at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shrinkfx.report.explanation.code import CodeLine
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.page.record import Source


def guilty_source(explanation: Explanation, files: Mapping[str, str]) -> Source | None:
    """Find the file that the quoted lines are of; these alone where none was kept.

    Args:
        files: text of generated code, by the name of its file.
    """
    parts = explanation.chain, explanation.halted
    quoted = next((part.code for part in parts if part is not None and part.code), ())
    if not quoted:
        return _named(explanation, files)
    at = next((i for i, line in enumerate(quoted) if line.at_fault), -1)
    for name, text in files.items():
        lines = text.splitlines()
        start = _place(lines, quoted)
        if start >= 0:
            marked = start + at + 1 if at >= 0 else 0
            return Source(name, tuple(lines), marked=marked)
    texts = tuple(line.text for line in quoted)
    marked = quoted[at].number if at >= 0 else 0
    return Source("", texts, quoted[0].number, marked)


def _place(lines: Sequence[str], quoted: Sequence[CodeLine]) -> int:
    """Find where quoted lines stand, however far they are indented; -1 for nowhere."""
    wanted = [line.text.strip() for line in quoted]
    there = [line.strip() for line in lines]
    for start in range(len(there) - len(wanted) + 1):
        if there[start : start + len(wanted)] == wanted:
            return start
    return -1


def _named(explanation: Explanation, files: Mapping[str, str]) -> Source | None:
    """Find the file of a kernel of which no line is known to be at fault."""
    parts = explanation.values, explanation.chain, explanation.halted
    kernel = next((part.kernel for part in parts if part and part.kernel), "")
    if not kernel:
        return None
    for name, text in sorted(files.items(), key=lambda file: "wrapper" in file[0]):
        lines = text.splitlines()
        heads = (i for i, line in enumerate(lines, 1) if f"{kernel}(" in line)
        if head := next(heads, 0):
            return Source(name, tuple(lines), marked=head)
    return None

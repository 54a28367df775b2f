"""The source of the failing kernel, with the failing line marked."""

from __future__ import annotations

from collections.abc import Mapping

from shrinkfx.findings.code import find_quoted_lines, likeliest_first, text_of
from shrinkfx.findings.record import Explanation
from shrinkfx.report.page.record import Source


def find_failing_source(
    explanation: Explanation, files: Mapping[str, str]
) -> Source | None:
    """Return the file with the quoted lines, or only these if no file was kept.

    Args:
        files: texts of generated code, by file name.
    """
    parts = explanation.chain, explanation.compile_error
    part = next((part for part in parts if part is not None and part.code), None)
    if part is None:
        return _named(explanation, files)
    found = find_quoted_lines(part.code, part.kernel, files)
    name, quoted = found or ("", part.code)
    marked = next((line.number for line in quoted if line.at_fault), 0)
    if found:
        return Source(name, tuple(files[name].splitlines()), marked=marked)
    texts = tuple(line.text for line in quoted)
    counted_in = text_of(part.file)
    return Source("", texts, quoted[0].number, marked, counted_in)


def _named(explanation: Explanation, files: Mapping[str, str]) -> Source | None:
    """Return the file of a kernel without a known failing line."""
    parts = explanation.values, explanation.chain, explanation.compile_error
    kernel = next((part.kernel for part in parts if part and part.kernel), "")
    if not kernel:
        return None
    for name in likeliest_first(files, kernel):
        lines = files[name].splitlines()
        heads = (i for i, line in enumerate(lines, 1) if f"{kernel}(" in line)
        if head := next(heads, 0):
            return Source(name, tuple(lines), marked=head)
    return None

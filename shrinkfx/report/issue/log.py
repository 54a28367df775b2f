"""The error log of a repro, as its issue quotes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shrinkfx.report.issue.plain import strip_paths

_OPENS = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "([^"]+)", line \d+,? in ')
_DEATH = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_WARNING = re.compile(
    r"^\S+:\d+: \w*Warning: |^\[?W\d{4} |^\[W\d+ |^\S+:\d+:\d+: (?:warning|note): "
)
"""The first line of a warning of Python, of PyTorch's C++ or of a C++ compiler."""
_QUOTED = re.compile(r"^  | *\d* \|")
"""A line of code that Python or a C++ compiler quotes below a warning."""
_GENERATED = re.compile(r"\bc[a-z2-7]{51}\.(?=\w)")
"""The hash in the name of a generated file, which differs on other machines."""
_LEADS_TO = re.compile(
    r"^In file included from |^ +from \S+:\d+[:,]|^\S+: (?:In|At) .*:$"
    r"|^\S+:\d+:\d+:   required from "
)
"""Lines of a C++ compiler before a warning or error that say where it is."""


def error_log(log: str, script: str, above: int = 0, lines: int = 60) -> str:
    """Return the part of a script's output that describes its failure.

    Frames of callers of the script, frames of the interpreter, and warnings are
    removed. Generated files are called ``generated``. For a crash without a traceback,
    the log is faulthandler's stack of the crashed thread.

    Args:
        script: the name of the script.
        above: the number of lines to subtract from the script's line numbers; negative
            if the reader's copy has more lines.
        lines: the maximum length; the first and last lines are kept.
    """
    death = _DEATH.search(log)
    before = log[: death.start()] if death else log
    rows = without_warnings(before.rstrip()).splitlines()
    opened = [i for i, row in enumerate(rows) if row == _OPENS]
    if opened:
        # The first one is the traceback of the exception that caused the last one.
        known, last = rows[opened[0] : opened[-1] + 1], rows[opened[-1] + 1 :]
        rows = [*known, *_drop_shrinkfx_frames(_from_script(last, script))]
    elif death:
        rows = [*rows, *_crash_stack(log[death.start() :].splitlines(), script)]
    rows = [_GENERATED.sub("generated.", strip_paths(row)) for row in rows]
    rows = [_renumber_line(row, script, above) for row in rows]
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"... ({len(rows) - 2 * half} lines)", *rows[-half:]]
    return "\n".join(rows).strip()


def without_warnings(log: str) -> str:
    """Remove warnings, with their location lines and the code quoted below them."""
    return "\n".join(_rows_without_warnings(log.splitlines()))


def _rows_without_warnings(rows: list[str]) -> Iterator[str]:
    quotes, leading = False, list[str]()
    for row in rows:
        is_warning = bool(_WARNING.match(row))
        if _LEADS_TO.match(row):
            leading.append(row)
        elif is_warning:
            leading.clear()
        elif not (quotes and _QUOTED.match(row)):
            yield from (*leading, row)
            leading.clear()
        quotes = is_warning or (quotes and bool(_QUOTED.match(row)))
    yield from leading


def _crash_stack(rows: list[str], script: str) -> list[str]:
    """Keep the fatal error and the frames of its thread, down to the script's frame."""
    opened = [i for i, row in enumerate(rows) if row.startswith("Current thread ")]
    if not opened:
        return rows[:1]
    frames = rows[opened[0] + 1 :]
    end = next((i for i, row in enumerate(frames) if not _FRAME.match(row)), None)
    frames = frames[:end]
    hits = [i for i, row in enumerate(frames) if _FRAME.match(row)[1].endswith(script)]  # type: ignore[index]
    frames = frames[: hits[-1] + 1] if hits else frames
    return [rows[0], "", "Current thread (most recent call first):", *frames]


def _renumber_line(row: str, script: str, above: int) -> str:
    """Convert a line number of the script to the number in the quoted code."""
    match = re.match(rf'(\s*File "{re.escape(script)}", line )(\d+)(.*)', row)
    return f"{match[1]}{int(match[2]) - above}{match[3]}" if match else row


def _from_script(rows: list[str], script: str) -> list[str]:
    """Remove the frames of the script's callers."""
    frames = [i for i, row in enumerate(rows) if _FRAME.match(row)]
    hits = [i for i in frames if _FRAME.match(rows[i])[1].endswith(script)]  # type: ignore[index]
    return rows[hits[0] :] if hits else rows


_OURS = re.compile(r"/shrinkfx/worker/\w")
_REPORT = re.compile(r"^shrinkfx\.[\w.]+: ")


def _drop_shrinkfx_frames(rows: list[str]) -> list[str]:
    """Remove the frames of the code that runs kernels without a GPU."""
    remaining, is_ours = list[str](), False
    for row in rows:
        if frame := _FRAME.match(row):
            is_ours = bool(_OURS.search(frame[1]))
        elif not row.startswith(" "):
            is_ours = False
        if not is_ours:
            remaining.append(_REPORT.sub("", row))
    return remaining

"""What a script has printed that failed, as its issue quotes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shrinkfx.report.issue.plain import without_paths

_OPENS = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "([^"]+)", line \d+,? in ')
_DEATH = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_WARNING = re.compile(
    r"^\S+:\d+: \w*Warning: |^\[?W\d{4} |^\[W\d+ |^\S+:\d+:\d+: (?:warning|note): "
)
"""How a warning begins, of Python's, of PyTorch's C++ or of a C++ compiler."""
_QUOTED = re.compile(r"^  | *\d* \|")
"""A line of code below a warning, as Python quotes it, or a C++ compiler."""
_GENERATED = re.compile(r"\bc[a-z2-7]{51}\.(?=\w)")
"""How Inductor names a file of generated code: a hash, which nobody else has."""
_LEADS_TO = re.compile(
    r"^In file included from |^ +from \S+:\d+[:,]|^\S+: (?:In|At) .*:$"
    r"|^\S+:\d+:\d+:   required from "
)
"""What a C++ compiler says before a warning or an error, of where it is."""


def error_log(log: str, script: str, above: int = 0, lines: int = 60) -> str:
    """Take from what a script printed what its failure says, as anybody would see it.

    Frames above the script's own go, those of the interpreter, and warnings, which are
    not why it fails. Generated files are called ``generated``. Of a death without a
    traceback it is what faulthandler has said of the thread that died.

    Args:
        script: its name.
        above: lines of it that a reader does not count, less than none if those are
            more.
        lines: how many there may be; both ends are kept.
    """
    death = _DEATH.search(log)
    before = log[: death.start()] if death else log
    rows = without_warnings(before.rstrip()).splitlines()
    last = max((i for i, row in enumerate(rows) if row == _OPENS), default=None)
    if last is not None:
        rows = [
            *_before(rows[:last]),
            rows[last],
            *_without_ours(_from_script(rows[last + 1 :], script)),
        ]
    elif death:
        rows = [*rows, *_of_the_dead(log[death.start() :].splitlines(), script)]
    rows = [_GENERATED.sub("generated.", without_paths(row)) for row in rows]
    rows = [_counted_from(row, script, above) for row in rows]
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"... ({len(rows) - 2 * half} lines)", *rows[-half:]]
    return "\n".join(rows).strip()


def without_warnings(log: str) -> str:
    """Leave out warnings, with where they are and the code that is quoted below."""
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


def _of_the_dead(rows: list[str], script: str) -> list[str]:
    """Keep what died and its own frames, the innermost first, down to the script's."""
    opened = [i for i, row in enumerate(rows) if row.startswith("Current thread ")]
    if not opened:
        return rows[:1]
    frames = rows[opened[0] + 1 :]
    end = next((i for i, row in enumerate(frames) if not _FRAME.match(row)), None)
    frames = frames[:end]
    own = [i for i, row in enumerate(frames) if _FRAME.match(row)[1].endswith(script)]  # type: ignore[index]
    frames = frames[: own[-1] + 1] if own else frames
    return [rows[0], "", "Current thread (most recent call first):", *frames]


def _counted_from(row: str, script: str, above: int) -> str:
    """Count lines of the script as they are quoted."""
    own = re.match(rf'(\s*File "{re.escape(script)}", line )(\d+)(.*)', row)
    return f"{own[1]}{int(own[2]) - above}{own[3]}" if own else row


def _before(rows: list[str]) -> list[str]:
    """Keep an exception that another one was raised from."""
    opened = [i for i, row in enumerate(rows) if row == _OPENS]
    return rows[opened[0] :] if opened else []


def _from_script(rows: list[str], script: str) -> list[str]:
    """Leave out who has called a script."""
    frames = [i for i, row in enumerate(rows) if _FRAME.match(row)]
    own = [i for i in frames if _FRAME.match(rows[i])[1].endswith(script)]  # type: ignore[index]
    return rows[own[0] :] if own else rows


_OURS = re.compile(r"/shrinkfx/worker/\w")
_REPORT = re.compile(r"^shrinkfx\.[\w.]+: ")


def _without_ours(rows: list[str]) -> list[str]:
    """Leave out the frames of what runs kernels where there is no GPU."""
    kept, is_ours = list[str](), False
    for row in rows:
        if frame := _FRAME.match(row):
            is_ours = bool(_OURS.search(frame[1]))
        elif not row.startswith(" "):
            is_ours = False
        if not is_ours:
            kept.append(_REPORT.sub("", row))
    return kept

"""Texts made fit for strangers: no path, host or line of the user's model in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation

_BEGINS = r"(?:(?<![\w.])|(?<=-[IL]))"
"""What stands before a path: nothing of a name, or an option of a compiler."""

_INSTALLED = re.compile(_BEGINS + r"/[^\s\"':,;()]*?(?:site|dist)-packages/")
_PYTHONS = re.compile(_BEGINS + r"/[^\s\"':,;()]*?/lib(?:64)?/python[\d.]+/")
_FOLDERS = re.compile(r"(?:file:/+|(?:(?<![\w./])|(?<=-[IL]))~?/)(?:[^\s/\"':,;()]+/)+")
_ORIGIN = re.compile(r", dim \d+ of \S+ in the whole program")


def without_paths(text: str, hosts: Iterable[str] = ()) -> str:
    """Keep of a path its file's name, below ``site-packages`` its place there.

    Args:
        hosts: names of this machine, which go.
    """
    for folders in (_INSTALLED, _PYTHONS, _FOLDERS):
        text = folders.sub("", text)
    for name in sorted({host for host in hosts if len(host) > 1}, key=len)[::-1]:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "HOST", text)
    return text


def without_origins(text: str, explanation: Explanation) -> str:
    """Leave out of a sentence where operators stand in the user's model."""
    for operator in _operators(explanation):
        text = text.replace(str(operator), operator.operator)
    return _ORIGIN.sub("", text)


def _operators(explanation: Explanation) -> list[Operator]:
    found = [*explanation.operators, *explanation.guilty]
    if explanation.chain is not None:
        chain = explanation.chain
        found += [*chain.fused, *chain.guilty, *chain.dies]
        found += [o for each in chain.inputs for o in each.made_by]
        if chain.access and chain.access.argument:
            found += chain.access.argument.made_by
    if explanation.values is not None:
        values = explanation.values
        found += [*values.guilty, *values.shown_in, *values.without]
    if explanation.halted is not None:
        found += explanation.halted.guilty
    # The longest first: of two one may begin as the other does.
    return sorted(dict.fromkeys(found), key=lambda each: -len(str(each)))


def short(operator: str) -> str:
    """Name an operator as people do: the default overload has no name of its own."""
    return operator.removesuffix(".default")


_CODE = re.compile(
    r"`[^`]*`"  # is code already
    r"|\b(?:aten|prims|quantized)\.\w+(?:\.\w+)?|\b\w+\.\w+\.default\b"
    r"|\b(?:cpp|triton)_\w*fused\w+"
)


def with_code(text: str) -> str:
    """Mark operators and kernels in a sentence as code; default overloads go."""
    return _CODE.sub(lambda found: f"`{short(found[0].strip('`'))}`", text)


_OPENS = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "([^"]+)", line \d+,? in ')
_DEATH = "Fatal Python error"


def error_log(log: str, script: str, above: int = 0, lines: int = 60) -> str:
    """Take from what a script printed what its failure says, as anybody would see it.

    Frames above the script's own go, those of the interpreter, and dumps of threads.

    Args:
        script: its name.
        above: lines of it that are not quoted.
        lines: how many there may be; both ends are kept.
    """
    rows = log.partition(_DEATH)[0].rstrip().splitlines()
    last = max((i for i, row in enumerate(rows) if row == _OPENS), default=None)
    if last is not None:
        rows = [
            *_before(rows[:last]),
            rows[last],
            *_without_ours(_from_script(rows[last + 1 :], script)),
        ]
    rows = [_counted_from(without_paths(row), script, above) for row in rows]
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"... ({len(rows) - 2 * half} lines)", *rows[-half:]]
    return "\n".join(rows).strip()


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

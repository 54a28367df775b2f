"""The comment at the top of a repro."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import takewhile

from shrinkfx.failure.readers.script import CANNOT_TELL
from shrinkfx.failure.signature import (
    Kind,
    Signature,
    Stage,
    describe_changed_difference,
)
from shrinkfx.program.display_text import short_kernels
from shrinkfx.protocol.choices import Backend, Guard
from shrinkfx.report.record import RunRecord, is_about_mismatch, strip_advice
from shrinkfx.report.template import render


def is_of_interpreter(script: str) -> bool:
    """Return whether a repro's failure was seen only on Triton's interpreter."""
    line = "^# Verified on Triton's interpreter only"
    return re.search(line, script, re.MULTILINE) is not None


COMPILERS = {
    Backend.AOTI: "AOTInductor",
    Backend.INTERPRETER: "AOTInductor",
    Backend.INDUCTOR: "torch.compile",
}
"""The name of the compiler, for readers of a repro."""


def name_non_finite(*messages: str) -> str:
    """Return what the first message shows that has one of them: ``NaN`` or ``inf``."""
    values = re.findall(r"\]: (\S+), eager gives", "\n".join(messages))
    names = [n for value in values for n in ("NaN", "inf") if n.lower() in value]
    return names[0] if names else "NaN or inf"


def format_header(record: RunRecord, *remarks: str) -> str:
    """Return the header comment of a repro, with ``remarks`` as further lines."""
    signature, failure, memory = record.signature, record.failure, record.memory
    before, after = record.operators
    # The warnings state sizes of the input program, which the repro may not have.
    warnings = [strip_advice(text) for text in record.warnings]
    stopped = record.search.stopped.partition("\n")[0]
    names = signature.operators
    values = {
        **vars(record.conditions),
        "compiler": COMPILERS[record.conditions.backend],
        "kind": signature.kind,
        "stage": signature.stage,
        "message": _without_folders(signature.text or signature.detail),
        "non_finite": name_non_finite(signature.text or signature.detail),
        "failure_line": _failure_line(record),
        "calls": failure.calls,
        "percent": f"{failure.rate_after:.0%}",
        "changed": _without_folders(
            describe_changed_difference(failure.target, failure.seen)
        ),
        "kernels": [name for name in names if name.startswith("user kernel ")],
        "before": before,
        "after": after,
        "stopped": _without_folders(stopped),
        "warnings": [_without_folders(text) for text in warnings],
        "memory": memory,
        "guarded": record.guarded,
        "without_guards": _without_folders(memory.without_guards),
        "is_unsure": record.is_unsure,
        "needs_asan": record.needs_asan,
        "need_not_show": record.need_not_show,
        "by_chance": record.by_chance,
        "cannot_tell": CANNOT_TELL,
        "versions": [f"{name} {version}" for name, version in record.versions.items()],
        "made_by": record.command,
        "remarks": remarks,
    }
    rows = render("header.txt.jinja", values).strip("\n").splitlines()
    return "\n".join(f"# {row}".rstrip() for row in rows)


def remove_header(script: str) -> str:
    """Return a repro without its header."""
    return re.sub(r"\A(?:#.*\n)+", "", script).lstrip("\n")


_SCREEN = 24
"""Lines that fit on a screen."""

_GUARDED, _UNDER = " | guard pages ", " | under compute-sanitizer's "
_ANY_GUARD = f"{re.escape(_GUARDED)}|{re.escape(_UNDER)}"
_CAUSE = "Cause:   "
_CAUSE_ROWS = re.compile(rf"^# {_CAUSE}.*\n(?:# {{{len(_CAUSE)},}}.*\n)*", re.MULTILINE)


def set_cause(script: str, cause: Sequence[str], culprit: str = "") -> str:
    """Set the cause of the failure in a repro's header, replacing an existing one.

    Only that comment changes. The first sentence is always included, further ones as
    long as the header fits on a screen.

    Args:
        culprit: the operator whose fake-kernel mismatch the cause states; warnings
            about the same mismatch are removed.
    """
    script = _CAUSE_ROWS.sub("", script, count=1)
    script = _drop_mismatch_warnings(script, culprit) if culprit else script
    indent = " " * len(_CAUSE)
    rows: list[str] = []
    comments = takewhile(lambda row: row.startswith("#"), script.splitlines())
    limit = _SCREEN - len(list(comments)) - 1  # one line refers to explain.json
    for sentence in cause:
        text = short_kernels(_without_folders(sentence))
        first = indent if rows else _CAUSE
        more = textwrap.wrap(
            *(text, 84),
            initial_indent=first,
            subsequent_indent=indent,
            break_long_words=False,  # a reader must be able to search for a file name
        )
        if rows and len(rows) + len(more) > limit:
            rows.append(f"{indent}explain.json has more.")
            break
        rows += more
    block = "".join(f"# {row}\n" for row in rows)
    return re.sub(r"^# Seen on:", lambda m: block + m[0], script, count=1, flags=re.M)


_PLAINLY = "Observed without guard pages"
_RATE = re.compile(rf"^# {_PLAINLY}.*\n(?:# {{9,}}.*\n)*", re.MULTILINE)


def set_failure_rate(script: str, failed: int, runs: int) -> str:
    """Set in a repro's header how many independent runs failed.

    The line replaces the one that counts forks of one process.
    """
    text = f"# Fails:   in {failed} of {runs} runs, each in a new process.\n"
    script = _RATE.sub("", script, count=1)
    return re.sub(r"^# Seen on:", lambda m: text + m[0], script, count=1, flags=re.M)


def _drop_mismatch_warnings(script: str, name: str) -> str:
    """Remove warnings about an operator's mismatch, and the line after the last."""

    def less(found: re.Match[str]) -> str:
        warnings = _WARNING.findall(found[0])
        others = [w for w in warnings if not is_about_mismatch(_unwrapped(w), name)]
        return "".join([*others, "#\n"]) if others else ""

    return re.sub(rf"^(?:{_WARNED})+#\n", less, script, count=1, flags=re.MULTILINE)


_BEFORE = "Warning (input program): "
_WARNED = r"# Warning.*\n(?:# {10,}.*\n)*"
_WARNING = re.compile(_WARNED)


def _unwrapped(warning: str) -> str:
    rows = [row.removeprefix("#").strip() for row in warning.splitlines()]
    return " ".join(rows).removeprefix(_BEFORE)


_FAILURE = re.compile(
    rf"^# Failure: (\S+) \| (\S+)(?: \| ?(.*?))??(?:(?:{_ANY_GUARD})(\w+))?$",
    re.MULTILINE,
)


def _failure_line(record: RunRecord) -> str:
    """Return the line of the failure, the only one that ``--verify`` reads."""
    failure = record.signature
    side = record.memory.guard
    how = _UNDER if side.is_sanitizer else _GUARDED
    guarded = f"{how}{side}" if record.guarded else ""
    parts = filter(None, (failure.kind, failure.stage, failure.detail))
    return f"{' | '.join(parts)}{guarded}"


def read_failure(script: str) -> tuple[Signature | None, Guard]:
    """Read the failure and the guard pages from the header of a repro.

    Returns:
        The failure, or None if the header does not state it, and the guard mode.
    """
    found = _FAILURE.search(script)
    if found is None:
        return None, Guard.OFF
    try:
        detail = found[3] or ""
        failure = Signature(Kind(found[1]), Stage(found[2]), detail, detail)
        return failure, Guard(found[4] or Guard.OFF)
    except ValueError:
        return None, Guard.OFF


def read_torch(script: str) -> str:
    """Return the PyTorch version from the header of a repro, or ''."""
    found = re.search(r"^# Seen on: torch ([^\s,]+)", script, re.MULTILINE)
    return found[1] if found else ""


_NEEDS = re.compile(r"^# Needs: +(.*(?:\n# {10}.*)*)", re.MULTILINE)


def read_needs(script: str) -> str:
    """Return the text of the ``Needs:`` line in the header of a repro, or ''."""
    found = _NEEDS.search(script)
    return " ".join(found[1].replace("\n#", "").split()) if found else ""


def _without_folders(text: str) -> str:
    """Reduce paths to file names, because a repro names no path of the machine."""
    return re.sub(r"(?:(?<![\w.])|(?<=-[IL]))/(?:[\w.+-]+/)+", "", text)

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
from shrinkfx.findings.decisions import counted
from shrinkfx.program.display_text import short_kernels
from shrinkfx.protocol.choices import Guard
from shrinkfx.report.caveats import is_about_mismatch, strip_advice
from shrinkfx.report.record import RunRecord

_INTERPRETED = (
    "Verified on Triton's interpreter only, with kernels for {} and no GPU:\n"
    "the interpreter observed the failure above; no GPU has confirmed it."
)
_COMPILED = "Verified by compiling for {} with no GPU; no kernel ran."


def is_of_interpreter(script: str) -> bool:
    """Return whether a repro's failure was seen only on Triton's interpreter."""
    line = "^# Verified on Triton's interpreter only"
    return re.search(line, script, re.MULTILINE) is not None


def _without_gpu(record: RunRecord) -> list[str]:
    arch = record.conditions.interpreted_for
    if not arch:
        return []
    compiled = record.signature.kind is Kind.COMPILE_ERROR
    return [(_COMPILED if compiled else _INTERPRETED).format(arch)]


def format_header(record: RunRecord, *remarks: str) -> str:
    """Return the header comment of a repro, with ``remarks`` as further lines."""
    signature = record.signature
    before, after = record.operators
    versions = ", ".join(f"{k} {v}" for k, v in record.versions.items())
    by_command = signature.kind is Kind.CHECK
    name = "Program" if by_command else f"{signature.kind} {_place(record)}"
    stage = "--check" if by_command else signature.stage
    lines = [
        f"{name} ({stage}): reduced from {counted(before, 'operator')} to {after}.",
        *_stopped(record),
        "",
        *textwrap.wrap(_without_folders(signature.text or signature.detail), 84),
        "",
        *_format_caveats(record),
        *_memory(record),
        "Run:     " + _how_to_run(record),
        "Expect:  " + f"\n{' ' * 9}".join(_expectation(record)),
        f"Failure: {_failure_line(record)}",
        *_plain_run_lines(record),
        *textwrap.wrap(f"Seen on: {versions}", 84, subsequent_indent=" " * 9),
        f"Made by: {record.command}",
        *remarks,
        *_without_gpu(record),
    ]
    if not record.conditions.reference:
        lines.append("Eager fails on the input program too; results are not compared.")
    rows = "\n".join(lines).splitlines()
    return "\n".join(f"# {row}".rstrip() for row in rows)


def _stopped(record: RunRecord) -> list[str]:
    """State that the search stopped early, so a smaller program may fail too."""
    if not record.search.stopped:
        return []
    why = record.search.stopped.partition("\n")[0]
    text = f"The search stopped early ({why}): a smaller program may fail too."
    return textwrap.wrap(_without_folders(text), 84)


ABOUT_ITSELF = ("Run", "Expect", "Fails", "Seen on", "Made by", "Within", "Beside")
"""Header fields in shrinkfx's own words, which quote no failure."""

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


_PLAINLY = "Without guard pages"
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


_UNDER_SANITIZER = r"""under AddressSanitizer, in a writable folder:
  printf '#!/bin/sh\nLD_PRELOAD= exec g++ "$@" -fsanitize=address\n' > asan-g++
  chmod +x asan-g++; export CXX=$PWD/asan-g++ TORCHINDUCTOR_CACHE_DIR=$PWD/cache
  TORCHINDUCTOR_VEC_ISA_OK=1 ASAN_OPTIONS=detect_leaks=0:redzone=512:handle_segv=2 \
  LD_PRELOAD=$(g++ -print-file-name=libasan.so) python repro.py"""
"""Commands that show an illegal access which has no visible effect."""


def _place(record: RunRecord) -> str:
    """Return whose code fails, because a custom kernel's bug is not AOTInductor's."""
    if kernels := _user_kernels(record):
        return f"in {kernels[0]}, under AOTInductor"
    return "under AOTInductor" if record.warnings else "in AOTInductor"


def _user_kernels(record: RunRecord) -> list[str]:
    operators = record.signature.operators
    return [name for name in operators if name.startswith("user kernel ")]


def _format_caveats(record: RunRecord) -> list[str]:
    """Return warnings about other possible causes, outside the compiler."""
    lines = []
    # The warnings state sizes of the input program, which the repro may not have.
    warnings = [f"{_BEFORE}{strip_advice(text)}" for text in record.warnings]
    if _user_kernels(record):
        warnings.append(f"Warning: {_EAGER_LAUNCHES}")
    failure = record.failure
    if changed := describe_changed_difference(failure.target, failure.seen):
        warnings.append(f"Warning: {changed}")
    for warning in warnings:
        text = _without_folders(warning)
        lines += textwrap.wrap(text, 84, subsequent_indent=" " * 9)
    return [*lines, ""] if lines else []


_EAGER_LAUNCHES = "eager launches this kernel too, so the kernel itself may be wrong"


def _how_to_run(record: RunRecord) -> str:
    if record.needs_asan:
        return _UNDER_SANITIZER
    if not record.need_not_show:
        return "python repro.py"
    if record.signature.kind is Kind.IMA:
        return "compute-sanitizer python repro.py, or shrinkfx --verify repro.py"
    return "shrinkfx --verify repro.py (AOTInductor does not check layouts)"


def _memory(record: RunRecord) -> list[str]:
    """Quote the report of AddressSanitizer or compute-sanitizer."""
    if record.memory.report is None:
        return []
    quoted = f"{record.memory.sanitizer}: {record.memory.report}"
    return [*textwrap.wrap(quoted, 84, subsequent_indent="  "), ""]


def _plain_run_lines(record: RunRecord) -> list[str]:
    """State what the script does without guard pages."""
    result = record.memory.without_guards
    if not result:
        return []
    text = f"{_PLAINLY} (inaccessible memory next to each tensor): {result}."
    if record.guarded:
        text += (
            " Verified with guard pages. Without them or "
            f"{record.memory.sanitizer}, the failure is not guaranteed."
        )
    return textwrap.wrap(_without_folders(text), 84, subsequent_indent=" " * 9)


def _without_folders(text: str) -> str:
    """Reduce paths to file names, because a repro names no path of the machine."""
    return re.sub(r"(?:(?<![\w.])|(?<=-[IL]))/(?:[\w.+-]+/)+", "", text)


def _expectation(record: RunRecord) -> list[str]:
    conditions, failure = record.conditions, record.failure
    if record.signature.kind is Kind.CHECK:
        inputs = conditions.inputs
        notes = [f"{{inputs}} is {inputs}."] if inputs else []
        text = "the script writes repro.pt2; the command above exits with 0 for it."
        return [text, *notes]
    flaky = f", in about {failure.rate_after:.0%} of the {conditions.runs} runs"
    often = flaky if conditions.runs > 1 else ""
    when = f", in call {failure.calls}" if failure.calls > 1 else ""
    where = []
    if conditions.at_passing:
        where = ["only at the sizes that must pass (the input program passes there):"]
    elif conditions.passes:
        at_failing = "at the sizes of `failing`:"
        where = [f"the script passes at the sizes of `passing`; {at_failing}"]
    text = f"{_failure(record.signature)}{when}{often};"
    return [*where, text, *_otherwise(record)]


def _otherwise(record: RunRecord) -> list[str]:
    """Describe what the script does when it does not fail."""
    fixed = 'once the bug is fixed it prints "no longer fails" and exits with 0.'
    if not record.conditions.reference:
        fixed = "eager rejects these inputs too, so the inputs may be at fault."
    if record.by_chance and not record.need_not_show:
        chance = f"this can also happen before: it depends on {record.by_chance}."
        return [f"{fixed[:-1]};", *textwrap.wrap(chance, 75)]
    if not record.need_not_show:
        return [fixed]
    plainly = (
        f"a plain run may not show the failure, and then exits with {CANNOT_TELL}."
    )
    sure = record.is_unsure or not record.conditions.reference
    return [f"{fixed[:-1]};", plainly] if sure else [plainly]


def _failure(signature: Signature) -> str:
    match signature.kind:
        case Kind.CRASH | Kind.IMA:
            return "the process crashes or raises with the failure above"
        case Kind.HANG:
            return "the script does not finish"
        case Kind.OOM:
            return "the script runs out of memory"
        case Kind.MISMATCH | Kind.NAN:
            return "an AssertionError: the compiled result differs from eager"
        case Kind.ASSERT:
            return "the assertion above, as an exception or an abort"
    return "the error above"

"""The root cause in ``ISSUE.md``, for readers who know the compiler, not shrinkfx."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from shrinkfx.findings.code import CodeLine, Quoted
from shrinkfx.findings.decisions import (
    FALL_BACK,
    FALLS_BACK,
    PARTS,
    Decisions,
    OptionSearch,
    SkippedPart,
    counted,
)
from shrinkfx.findings.decisions import format_decisions as decided
from shrinkfx.findings.operators import format_fails_alone
from shrinkfx.findings.record import Explanation
from shrinkfx.program.display_text import cut_text
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.report.in_compiler import (
    format_disappears_without,
    format_stops_in_function,
)
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.plain import (
    mark_code,
    strip_default_overload,
    strip_origins,
    strip_paths,
)
from shrinkfx.report.issue.to_author import find_incorrect_operator


def issue_cause_sentences(facts: IssueFacts, explanation: Explanation) -> list[str]:
    """Return the sentences on the cause that the issue does not state elsewhere."""
    known = explanation.decisions
    stated = decided(known, facts.failure) if known is not None else []
    stated += map(format_fails_alone, explanation.operators)
    for name in (True, False):
        stated.append(format_disappears_without(facts.in_compiler, anonymous=name))
        if facts.inside:
            args = facts.kind, facts.inside
            stated.append(format_stops_in_function(*args, anonymous=name))
    wrong = find_incorrect_operator(explanation)
    # The issue states the mismatch at the top.
    if wrong is not None and wrong.mismatch is not None:
        stated.append(wrong.mismatch.sentence)
    sentences = [text for text in explanation.cause if text not in stated]
    shortened = [_drop_repeated_parts(text, facts, explanation) for text in sentences]
    rewritten = [
        rewrite_for_issue(text, explanation, anonymous=facts.anonymous)
        for text in shortened
        if text
    ]
    return [*rewritten, *(_of_decisions(known) if known is not None else ())]


def rewrite_for_issue(text: str, explanation: Explanation, *, anonymous: bool) -> str:
    """Rewrite a sentence on the cause for a reader without the model and its files."""
    text = strip_origins(text, explanation, anonymous=anonymous)
    return strip_paths(mark_code(text))


def _drop_repeated_parts(text: str, facts: IssueFacts, explanation: Explanation) -> str:
    """Remove from a sentence on the cause what the issue states elsewhere."""
    lines = [line for code in _quotations(explanation) for line in code]
    if any(line.at_fault and f"`{line.text.strip()}`" in text for line in lines):
        return ""  # the line is quoted below with its context
    first = facts.message.strip().partition("\n")[0].rstrip(".")
    doing, fails, _ = text.partition(" fails: ")
    if not (fails and first and first in text):
        return text
    stop = explanation.compile_error
    is_more = stop is not None and (stop.kernel or stop.doing != "the run")
    return f"{doing} fails." if is_more else ""


def _quotations(explanation: Explanation) -> list[Quoted]:
    """List the quotations of generated code in an explanation."""
    parts = explanation.chain, explanation.compile_error
    return [part.code for part in parts if part is not None]


def _of_decisions(known: Decisions) -> Iterator[str]:
    found = [one for one in known.left_out if not one.only_shows]
    yield from map(_of_left_out, found)
    if known.switching is not None and not known.switching.unknown:
        yield _of_switching(known.switching)


def _of_left_out(one: SkippedPart) -> str:
    onwards = "" if one.alone else " and every later one"
    if one.subsystem is Subsystem.LOWERINGS:
        what = f"the lowering of `{strip_default_overload(one.name)}`{onwards}"
        does = FALLS_BACK if one.alone else FALL_BACK
        return f"The failure disappears if {what} {does}."
    part = f"{PARTS[one.subsystem]} `{one.name}`"
    return f"The failure disappears without the {part}{onwards}."


def _of_switching(found: OptionSearch) -> str:
    if not found.passes_with:
        options = counted(found.tried, "Inductor option")
        return (
            f"The failure is the same with {options} at conservative values, all set "
            "at once."
        )
    names = " and ".join(f"`{setting}`" for setting in found.passes_with)
    less = "" if found.minimal else " (some of these may not be needed)"
    return f"The failure disappears with {names}{less}."


def quote_failing_code(explanation: Explanation) -> str:
    """Quote the generated code around the failing line, or return ''."""
    for code in _quotations(explanation):
        if any(line.at_fault for line in code):
            comment = "#" if is_triton(explanation) else "//"
            return "\n".join(_marked(code, comment))
    return ""


def is_triton(explanation: Explanation) -> bool:
    """Return whether the failing code is Triton's, which is Python."""
    quotations = _quotations(explanation)
    return contains_triton(line.text for code in quotations for line in code)


def contains_triton(lines: Iterable[str]) -> bool:
    """Return whether lines of code use Triton's language."""
    return any(re.search(r"\btl\.\w", line) for line in lines)


def _marked(lines: Sequence[CodeLine], comment: str) -> Iterator[str]:
    indents = [len(c.text) - len(c.text.lstrip()) for c in lines if c.text.strip()]
    margin = min(indents, default=0)
    for line in lines:
        mark = f"  {comment} <-- here" if line.at_fault else ""
        yield cut_text(strip_paths(line.text[margin:].rstrip()), 200) + mark

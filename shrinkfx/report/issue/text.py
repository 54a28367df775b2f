"""``ISSUE.md``: PyTorch's form for a bug report, or one for an operator's author."""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.failure.signature import Kind
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.issue.cause import cause, code, is_triton
from shrinkfx.report.issue.code import lines_left_out, quoted, traits_of
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.log import error_log
from shrinkfx.report.issue.plain import (
    with_code,
    without_origins,
    without_paths,
)
from shrinkfx.report.issue.sentences import (
    actual,
    circumstances,
    expected,
    on_versions,
    sentence,
    title_of,
)
from shrinkfx.report.issue.to_author import (
    Wrong,
    address,
    address_of_own,
    addressed_to,
    contradiction,
    seeing,
)
from shrinkfx.report.issue.unknown import not_known

ISSUE = "ISSUE.md"
"""Lies beside the repro."""

_QUOTED = 20_000
"""Characters of a script that an issue quotes; GitHub takes 65,536 in all."""

_VERSIONS = 3
"""That whoever wrote an operator is told: of PyTorch, Python and a compiler."""


def issue_text(
    facts: IssueFacts,
    explanation: Explanation,
    script: str,
    environment: str,
    title: str = "",
) -> str:
    """Fill in the form.

    Args:
        script: the repro's text.
        environment: what is known of versions.
        title: '' makes one.
    """
    title = title or title_of(
        facts, explanation, traits_of(script, dynamic=facts.dynamic)
    )
    wrong = addressed_to(explanation)
    parts = [
        f"# {title}",
        *_unverified(facts),
        *(
            _for_pytorch(facts, explanation, script, environment)
            if wrong is None
            else _for_its_author(facts, explanation, wrong, script)
        ),
        _made_by(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _for_pytorch(
    facts: IssueFacts, explanation: Explanation, script: str, environment: str
) -> Iterator[str]:
    if facts.is_of_own:
        yield address_of_own(facts)
    if explanation.inputs:
        yield (
            "> **Check your call first: do not file this as it is.** "
            f"{without_origins(explanation.inputs, explanation)}"
        )
    yield "### 🐛 Describe the bug"
    yield from _description(facts, explanation, script)
    yield "### Error logs"
    yield _fenced(_log(facts, script))
    yield "### Versions"
    yield _fenced(environment)


def _for_its_author(
    facts: IssueFacts, explanation: Explanation, wrong: Wrong, script: str
) -> Iterator[str]:
    """Say what is declared and what is given: of a compiler there is little to know."""
    yield address(facts, wrong)
    yield "### What is declared, and what is so"
    yield contradiction(facts, wrong)
    yield "### How to see it"
    yield from seeing(wrong, script)
    yield "### What comes of it"
    yield from _description(facts, explanation, script)
    yield "### Versions"
    yield _fenced("\n".join(facts.versions[:_VERSIONS]))


def _log(facts: IssueFacts, script: str) -> str:
    log = error_log(facts.log, "repro.py", _uncounted(facts, script))
    said = without_paths(facts.said)
    if facts.kind is Kind.CRASH and said not in log:
        log = f"{log}\n\nThe process died of {said}."  # which it cannot print
    return log.strip() or said


def _uncounted(facts: IssueFacts, script: str) -> int:
    """Count the lines by which those of the log are above those that a reader has.

    That is the code that is quoted, or else ``repro.py`` as it lies there now.
    """
    now = lines_left_out(script)
    ran = now if facts.above is None else facts.above
    return ran if _is_quoted(quoted(script)) else ran - now


def _is_quoted(text: str) -> bool:
    return len(text) <= _QUOTED


def _unverified(facts: IssueFacts) -> Iterator[str]:
    if facts.is_verified:
        return
    did = "has not been run"
    if facts.runs:
        did = f"failed in {facts.failed} of {facts.runs} runs"
    yield (
        f"> **Not verified: do not file this as it is.** The script below {did} in an "
        "empty folder: see it fail first."
    )


def _description(
    facts: IssueFacts, explanation: Explanation, script: str
) -> Iterator[str]:
    traits = traits_of(script, dynamic=facts.dynamic)
    first = sentence(facts, explanation, traits)
    yield " ".join([first, *circumstances(facts, traits)])
    yield from _of_the_original(facts, explanation)
    yield from _repro(facts, script)
    yield f"**Expected:** {expected(facts)}\n\n**Actual:** {actual(facts)}"
    if facts.tested:
        yield on_versions(facts.tested)
    yield from _cause(facts, explanation)
    if unknown := "\n".join(f"- {text}" for text in not_known(facts, explanation)):
        yield f"**Not known:**\n{unknown}"


def _of_the_original(facts: IssueFacts, explanation: Explanation) -> Iterator[str]:
    """Tell what else may be the cause, with the sizes that the original had."""
    wrong = addressed_to(explanation)
    careful = facts.careful
    if wrong is not None:  # what the result shows of it is told
        careful = careful.less(wrong.operator.operator)
    if told := careful.all():
        rows = "\n".join(f"- {_sentence(text)}" for text in told)
        yield f"Seen of the original program, at sizes of its own:\n{rows}"


def _repro(facts: IssueFacts, script: str) -> Iterator[str]:
    text = quoted(script)
    beside = ", ".join(f"`{name}`" for name in facts.beside)
    if not _is_quoted(text):
        what = f"`repro.py`, {beside}" if beside else "`repro.py`"
        yield f"The script is attached, too long to be quoted here: {what}."
        return
    yield _fenced(text.rstrip(), "python")
    if beside:
        yield f"It reads {beside}, attached, from the folder that it is run in."
    if facts.guarded:
        yield _ON_GPU if facts.on_gpu else _SANITIZED


_SANITIZED = (
    "It accesses memory beyond a tensor, which need not show by itself. Under "
    "AddressSanitizer (a `CXX` that adds `-fsanitize=address` and `LD_PRELOAD` of "
    "`libasan.so`) it is sure to."
)
_ON_GPU = (
    "It accesses memory beyond a tensor, which need not show by itself. It was seen "
    "with poison or inaccessible pages beside each tensor; compute-sanitizer tells of "
    "it where no other tensor lies there."
)


def _cause(facts: IssueFacts, explanation: Explanation) -> Iterator[str]:
    if said := cause(facts, explanation):
        yield f"**Cause**, as far as it is known: {' '.join(said)}"
    if lines := code(explanation):
        yield _fenced(lines, "python" if is_triton(explanation) else "cpp")


def _sentence(text: str) -> str:
    """Make a warning a sentence, without what whoever ran the tool could do."""
    parts = [part for part in text.split(". ") if " --" not in f" {part}"]
    text = without_paths(with_code(". ".join(parts))).rstrip(" .")
    for ours, plain in _OURS.items():
        text = text.replace(ours, plain)
    return f"{text[:1].upper()}{text[1:]}."


_OURS = {
    "lying operator: ": "the fake kernel of an operator is wrong: ",
    "custom operator: ": "of a custom operator: ",
    "; the failure may be theirs": ", which may be what is wrong",
}
"""What warnings say, and what that is to somebody else."""


def _fenced(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _made_by(facts: IssueFacts) -> str:
    how = "Found" if facts.before == facts.after else "Reduced"
    return (
        f"({how} with shrinkfx {facts.tool}, in a model of {facts.before} operators.)"
    )

"""``ISSUE.md``: PyTorch's bug report form, or a form for the author of an operator."""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.failure.signature import Kind
from shrinkfx.findings.decisions import counted
from shrinkfx.findings.record import Explanation
from shrinkfx.program.listing.printed_program import join_words
from shrinkfx.report.issue.cause import (
    is_triton,
    issue_cause_sentences,
    quote_failing_code,
    rewrite_for_issue,
)
from shrinkfx.report.issue.code import lines_left_out, quote_script, traits_of
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.log import error_log
from shrinkfx.report.issue.plain import mark_code, strip_origins, strip_paths
from shrinkfx.report.issue.sentences import (
    circumstances,
    format_actual,
    format_expected,
    format_failure_sentence,
    on_versions,
    title_of,
)
from shrinkfx.report.issue.to_author import (
    IncorrectOperator,
    find_incorrect_operator,
    format_contradiction,
    format_custom_code_note,
    format_recipient_note,
    format_reproduction,
)

ISSUE = "ISSUE.md"
"""Name of the file, next to the repro."""

_QUOTED = 20_000
"""Maximum characters of a quoted script; GitHub accepts 65,536 in all."""

_VERSIONS = 3
"""Number of versions for an operator's author: PyTorch, Python and a compiler."""


def issue_text(
    facts: IssueFacts,
    explanation: Explanation,
    script: str,
    environment: str,
    title: str = "",
) -> str:
    """Return the text of the issue.

    Args:
        script: the text of the repro.
        environment: the text of the section on versions.
        title: the title; '' derives one.
    """
    title = title or title_of(
        facts, explanation, traits_of(script, dynamic=facts.dynamic)
    )
    wrong = find_incorrect_operator(explanation)
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
    if facts.may_be_custom_code:
        yield format_custom_code_note(facts)
    if explanation.inputs:
        yield (
            "> **Check the inputs first: do not file this as it is.** "
            f"{strip_origins(explanation.inputs, explanation)}"
        )
    elif facts.kind is Kind.CHECK_INPUTS:
        yield _format_rejection(explanation)
    yield "### 🐛 Describe the bug"
    yield from _description(facts, explanation, script)
    yield "### Error logs"
    yield _fenced(_log(facts, script))
    yield "### Versions"
    yield _fenced(environment)


_REJECTED = (
    "> **Check the inputs first.** The compiled program rejects an input. This is a "
    "bug in PyTorch only if the exported program accepts that input."
)


def _format_rejection(explanation: Explanation) -> str:
    """Return the note on a rejected input, which says whether the input is at fault."""
    refusal = explanation.chain.refusal if explanation.chain else None
    symbols = refusal.symbols if refusal else ()
    wrong = [symbol for symbol in symbols if symbol.is_out_of_range]
    if not wrong:
        return _REJECTED
    declared = "; ".join(symbol.declaration for symbol in wrong)
    return (
        "> **Do not file this with PyTorch.** The compiled program is right to reject "
        f"the input: the exported program declares {declared}. Pass an input within "
        "the range, or export the program with a wider range."
    )


def _for_its_author(
    facts: IssueFacts, explanation: Explanation, wrong: IncorrectOperator, script: str
) -> Iterator[str]:
    """Yield the sections for an operator's author: declared and actual result first."""
    yield format_recipient_note(facts, wrong)
    yield "### Declared vs. actual"
    yield format_contradiction(facts, wrong)
    yield "### How to reproduce"
    yield from format_reproduction(wrong, script)
    yield "### Impact"
    yield from _description(facts, explanation, script)
    yield "### Versions"
    yield _fenced("\n".join(facts.versions[:_VERSIONS]))


def _log(facts: IssueFacts, script: str) -> str:
    log = error_log(facts.log, "repro.py", _line_offset(facts, script))
    message = strip_paths(facts.message)
    if facts.kind is Kind.CRASH and message not in log:
        log = f"{log}\n\nThe process was killed by {message}."  # not in the log
    return log.strip() or message


def _line_offset(facts: IssueFacts, script: str) -> int:
    """Return how far line numbers of the log exceed those of the reader's copy.

    The copy is the quoted code if it is short enough, otherwise the current
    ``repro.py``.
    """
    now = lines_left_out(script)
    ran = now if facts.above is None else facts.above
    return ran if _is_quoted(quote_script(script)) else ran - now


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
        "empty folder. Run it and see it fail before you file the issue."
    )


def _description(
    facts: IssueFacts, explanation: Explanation, script: str
) -> Iterator[str]:
    traits = traits_of(script, dynamic=facts.dynamic)
    first = format_failure_sentence(facts, explanation, traits)
    yield " ".join([first, *circumstances(facts, traits)])
    yield from _input_program_caveats(facts, explanation)
    yield from _repro(facts, script)
    wrong = find_incorrect_operator(explanation)
    expected = format_expected(facts) if wrong is None else wrong.expected
    actual = format_actual(facts)
    yield f"**Expected:** {expected}\n\n**Actual:** {actual}"
    if facts.tested:
        yield on_versions(facts.tested)
    yield from _cause(facts, explanation)
    if unknown := "\n".join(f"- {text}" for text in list_unknowns(facts, explanation)):
        yield f"**Not tested or not determined:**\n{unknown}"


def _input_program_caveats(
    facts: IssueFacts, explanation: Explanation
) -> Iterator[str]:
    """Yield other possible causes, with the sizes of the input program."""
    wrong = find_incorrect_operator(explanation)
    caveats = facts.caveats
    if wrong is not None:  # the issue states this mismatch already
        caveats = caveats.without_operator(wrong.operator.operator)
    if texts := caveats.all():
        rows = "\n".join(f"- {_sentence(text)}" for text in texts)
        yield f"In the input program (before the reduction, at its sizes):\n{rows}"


def _repro(facts: IssueFacts, script: str) -> Iterator[str]:
    text = quote_script(script)
    files = ", ".join(f"`{name}`" for name in facts.needed_files)
    if not _is_quoted(text):
        what = f"`repro.py`, {files}" if files else "`repro.py`"
        yield f"The script is too long to quote and is attached: {what}."
        return
    yield _fenced(text.rstrip(), "python")
    if files:
        yield f"Put the attached {files} in the folder in which you run the script."
    if facts.guarded:
        yield _ON_GPU if facts.on_gpu else _SANITIZED


_SANITIZED = (
    "The script accesses memory outside a tensor, which is not guaranteed to fail. "
    "AddressSanitizer, a compiler tool that reports out-of-bounds accesses, detects "
    "the access in every run: set `CXX` to a compiler that adds `-fsanitize=address`, "
    "and `LD_PRELOAD` to `libasan.so`."
)
_ON_GPU = (
    "The script accesses memory outside a tensor, which is not guaranteed to fail. The "
    "access was observed with poison values or inaccessible pages next to each tensor. "
    "compute-sanitizer reports it if no other tensor is located there."
)


def _cause(facts: IssueFacts, explanation: Explanation) -> Iterator[str]:
    if sentences := issue_cause_sentences(facts, explanation):
        is_known = find_incorrect_operator(explanation) is not None
        label = "Where it fails" if is_known else "Root cause"
        yield f"**{label}:** {' '.join(sentences)}"
    if lines := quote_failing_code(explanation):
        yield _fenced(lines, "python" if is_triton(explanation) else "cpp")


def _sentence(text: str) -> str:
    """Convert a warning to a sentence, without advice for users of shrinkfx."""
    parts = [part for part in text.split(". ") if " --" not in f" {part}"]
    text = strip_paths(mark_code(". ".join(parts))).rstrip(" .")
    return f"{text[:1].upper()}{text[1:]}."


def _fenced(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _made_by(facts: IssueFacts) -> str:
    is_same = facts.before == facts.after
    how, origin = ("Found", "in") if is_same else ("Reduced", "from")
    model = f"a program with {counted(facts.before, 'operator')}"
    return f"({how} with shrinkfx {facts.tool} {origin} {model}.)"


def list_unknowns(facts: IssueFacts, explanation: Explanation) -> list[str]:
    """List what was not tested or could not be determined."""
    unknowns = [*_of_the_failure(facts), *_open_questions(facts, explanation)]
    if find_incorrect_operator(explanation) is not None:
        return unknowns
    if facts.may_be_custom_code:
        return [*unknowns, _WHOSE_FAULT]
    if not issue_cause_sentences(facts, explanation):
        unknowns.append("The root cause.")
    if explanation.decisions is None:
        unknowns.append(
            "Whether an Inductor option or pass makes the failure disappear."
        )
    return [*unknowns, *_elsewhere(facts)]


def _of_the_failure(facts: IssueFacts) -> Iterator[str]:
    if facts.rate < 1:
        often = f"the script fails in about {facts.rate:.0%} of the runs"
        yield f"Why the failure is intermittent: {often}."
    if facts.guarded:
        sanitizer = "compute-sanitizer" if facts.on_gpu else "AddressSanitizer"
        yield f"Whether the script fails without {sanitizer}."
    if facts.stopped:
        yield "Whether a smaller program fails: the search stopped early."
    elif not facts.minimal:
        yield "Whether every operator of the script is needed."
    elif facts.not_tested:
        kinds = join_words(facts.not_tested)
        yield f"Whether it fails with smaller or simpler {kinds}."
    if not facts.compared:
        yield "The correct result: eager rejects these inputs as well."
    if facts.in_compiler.places and not facts.needs_own:
        yield "Whether the script fails without the custom Inductor code."


def _open_questions(facts: IssueFacts, explanation: Explanation) -> Iterator[str]:
    """Yield the open questions on the cause, as the terminal and the page list them."""
    stands = " (the root cause does not depend on this)"
    stands = stands if explanation.is_settled else ""
    for text in explanation.unknown:
        known = rewrite_for_issue(text, explanation, anonymous=facts.anonymous)
        sentence = known.rstrip(".")
        yield f"{sentence[:1].upper()}{sentence[1:]}{stands}."


_WHOSE_FAULT = "Whether the bug is in the custom Inductor code or in PyTorch."
_WHICH_OPTION = "Whether an Inductor option or pass makes the failure disappear."


def _elsewhere(facts: IssueFacts) -> Iterator[str]:
    torch = next((known for known in facts.versions if known.startswith("torch ")), "")
    other = f"PyTorch versions other than {torch.removeprefix('torch ')}"
    if facts.interpreted:
        yield (
            f"A real GPU: the kernels were compiled for {facts.interpreted} and ran on "
            "Triton's interpreter."
        )
        if not facts.tested:
            yield f"{other}."
    else:
        yield "Other devices." if facts.tested else f"{other}, and other devices."

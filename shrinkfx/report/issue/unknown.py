"""The list in an issue of what was not tested or not determined."""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.listing.claims import join_words
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.issue.cause import issue_cause_sentences, rewrite_for_issue
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.to_author import find_incorrect_operator


def list_unknowns(facts: IssueFacts, explanation: Explanation) -> list[str]:
    """List what was not tested or could not be determined."""
    is_known = bool(issue_cause_sentences(facts, explanation))
    unknowns = [*_of_the_failure(facts), *_open_questions(facts, explanation)]
    if find_incorrect_operator(explanation) is not None:
        return unknowns
    if facts.may_be_custom_code:
        return [*unknowns, _WHOSE_FAULT]
    of_cause = _of_the_cause(explanation, is_known=is_known)
    return [*unknowns, *of_cause, *_elsewhere(facts)]


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
        sentence = rewrite_for_issue(
            text, explanation, anonymous=facts.anonymous
        ).rstrip(".")
        yield f"{sentence[:1].upper()}{sentence[1:]}{stands}."


_WHOSE_FAULT = "Whether the bug is in the custom Inductor code or in PyTorch."


def _of_the_cause(explanation: Explanation, *, is_known: bool) -> Iterator[str]:
    if not is_known:
        yield "The root cause."
    if explanation.decisions is None:
        yield "Whether an Inductor option or pass makes the failure disappear."


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
        tested = "Other devices."
        yield tested if facts.tested else f"{other}, and other devices."

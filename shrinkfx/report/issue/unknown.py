"""What a reader of an issue may take for known, and is not."""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.listing.claims import listed
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.issue.cause import cause, in_plain_words
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.to_author import addressed_to


def not_known(facts: IssueFacts, explanation: Explanation) -> list[str]:
    """List what nobody has looked at, or could find out."""
    is_known = bool(cause(facts, explanation))
    told = [*_of_the_failure(facts), *_could_not_be_told(facts, explanation)]
    if addressed_to(explanation) is not None:
        return told
    if facts.is_of_own:
        return [*told, _WHOSE_FAULT]
    of_cause = _of_the_cause(explanation, is_known=is_known)
    return [*told, *of_cause, *_elsewhere(facts)]


def _of_the_failure(facts: IssueFacts) -> Iterator[str]:
    if facts.rate < 1:
        often = f"it does in some {facts.rate:.0%} of runs"
        yield f"What decides whether it fails: {often}."
    if facts.guarded:
        sanitizer = "compute-sanitizer" if facts.on_gpu else "AddressSanitizer"
        yield f"Whether it shows without {sanitizer}."
    if facts.stopped:
        yield "Whether a smaller program fails as well: the search was stopped early."
    elif not facts.minimal:
        yield "Whether each of these operators is needed."
    elif facts.unasked:
        yield f"Whether it fails with smaller or plainer {listed(facts.unasked)}."
    if not facts.compared:
        yield "What is right: eager refuses these inputs, too."
    if facts.in_compiler.places and not facts.needs_own:
        yield "Whether it fails without the code in the compiler that is not PyTorch's."


def _could_not_be_told(facts: IssueFacts, explanation: Explanation) -> Iterator[str]:
    """Give what was asked of the cause in vain, as terminal and page list it."""
    stands = "; the cause stands without that" if explanation.is_settled else ""
    for text in explanation.unknown:
        told = in_plain_words(text, explanation, anonymous=facts.anonymous).rstrip(".")
        yield f"{told[:1].upper()}{told[1:]}{stands}."


_WHOSE_FAULT = "Whether the code that is not PyTorch's is wrong, or what is made of it."


def _of_the_cause(explanation: Explanation, *, is_known: bool) -> Iterator[str]:
    if not is_known:
        yield "What it comes from."
    if explanation.decisions is None:
        yield "Whether an option or a pass of Inductor makes it go away."


def _elsewhere(facts: IssueFacts) -> Iterator[str]:
    torch = next((known for known in facts.versions if known.startswith("torch ")), "")
    other = f"other versions of PyTorch than {torch.removeprefix('torch ')}"
    if facts.interpreted:
        yield (
            f"What a GPU does: the kernels were made for {facts.interpreted}, and ran "
            "on Triton's interpreter."
        )
        if not facts.tested:
            yield f"What {other} do."
    else:
        tested = "What other devices do."
        yield tested if facts.tested else f"What {other} do, and other devices."

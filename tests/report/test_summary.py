"""What a run says of the failures that it met beside its own."""

from __future__ import annotations

from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Drop
from shrinkfx.report.summary import gather, ranked
from shrinkfx.testing import chain, whole

THREE = whole(chain("x", "relu", "tanh", "cos"))
TWO = apply(THREE, [Drop(frozenset({"relu"}))])


def different(detail: str, text: str) -> Verdict:
    seen = Signature(Kind.EXCEPTION, Stage.RUN, detail, text)
    return Verdict(Outcome.DIFFERENT, Observation(seen))


def test_by_catch_is_named_once_with_its_smallest_candidate() -> None:
    louder, other = different("a", "a of 3"), different("b", "b")
    caught = gather([(THREE, other), (THREE, louder), (TWO, different("a", "a of 2"))])
    assert [c.checks for c in caught] == [2, 1]
    assert caught[0].operators == 2
    assert TWO.digest.startswith(caught[0].candidate)
    assert caught[0].text == "a of 2"
    assert (caught[1].kind, caught[1].stage, caught[1].text) == (
        "exception",
        "run",
        "b",
    )


def test_suspects_of_one_weight_have_one_rank() -> None:
    found = [Suspect(f"add_{i}", w, "") for i, w in enumerate([0.9, 0.9, 0.5, 0.2])]
    told = ranked(found)
    assert [each["rank"] for each in told] == [1, 1, 3, 4]
    assert [each["node"] for each in told] == ["add_0", "add_1", "add_2", "add_3"]

"""What an answer costs, and where it is from: no reducer needed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from shrinkfx.errors import PhaseLimitReached
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.search.asker import Asker, Budget, Confirmation
from shrinkfx.testing import FakeOracle, chain, needs, whole

WHOLE = whole(chain("x", "a", "b", "c"))
WITHOUT_A, WITHOUT_B, WITHOUT_C = (
    apply(WHOLE, [Drop(frozenset({name}))]) for name in "abc"
)


def test_verdict_is_cached_and_charged_to_the_budget_once() -> None:
    oracle, budget = FakeOracle(needs("b")), Budget()
    asker = Asker(oracle, budget=budget)
    for _ in range(3):
        assert asker.ask("drop_nodes", WITHOUT_A).reproduced
    assert not asker.ask("drop_nodes", WITHOUT_B).reproduced
    assert oracle.asked == [WITHOUT_A, WITHOUT_B]
    assert (budget.checks, asker.cached, asker.query_count) == (2, 2, 2)
    assert [v.outcome for v in asker.verdicts()] == ["reproduced", "passed"]


def test_mismatch_in_another_property_is_an_other_failure_also_on_resume(
    tmp_path: Path,
) -> None:
    values, shape = (
        Signature(Kind.MISMATCH, Stage.COMPARE, differs=each)
        for each in ("values", "shape")
    )

    class WrongShapes:
        def check(self, candidate: Candidate) -> Verdict:
            return Verdict(Outcome.REPRODUCED, Observation(shape))

    for _ in range(2):  # the second one is answered by the journal
        with closing(Journal(tmp_path / "journal.sqlite")) as journal:
            asker = Asker(WrongShapes(), journal=journal)
            asker.record_failure(WHOLE, values)
            assert asker.find_signature(WHOLE) == values
            asker.ask("merge_inputs", WITHOUT_A, shown=asker.find_signature(WHOLE))
            assert [c for c, _ in asker.by_catch] == [WITHOUT_A]
            assert not asker.has_reproduced(WITHOUT_A)
            assert asker.ask("drop_nodes", WITHOUT_B).reproduced


def test_journaled_verdict_replaces_the_oracle_query_and_counts_as_check(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.sqlite"
    for asked in ([WITHOUT_A], []):
        oracle, budget = FakeOracle(needs("b")), Budget(max_checks=1)
        with closing(Journal(path)) as journal:
            asker = Asker(oracle, budget=budget, journal=journal, form="source")
            assert asker.ask("drop_nodes", WITHOUT_A).reproduced
        assert (oracle.asked, budget.checks, asker.cached) == (asked, 1, 0)


class Killed(BaseException):
    """Nobody survives this."""


@pytest.mark.parametrize("again", [False, True])
def test_query_killed_twice_is_repeated_only_on_demand(
    tmp_path: Path, again: bool
) -> None:
    path = tmp_path / "journal.sqlite"

    def dies(candidate: Candidate) -> bool:
        raise Killed

    for _ in range(2):
        with closing(Journal(path)) as journal, pytest.raises(Killed):
            Asker(FakeOracle(dies), journal=journal).ask("drop_nodes", WITHOUT_A)
    oracle = FakeOracle(needs("b"))
    with closing(Journal(path)) as journal:
        asker = Asker(oracle, journal=journal, again=again)
        verdict = asker.ask("drop_nodes", WITHOUT_A)
    assert verdict.outcome is (Outcome.REPRODUCED if again else Outcome.UNRESOLVED)
    assert oracle.asked == [WITHOUT_A] * again


def test_confirmation_overrules_a_reproduced_verdict() -> None:
    asker, strict = Asker(FakeOracle(needs("b"))), FakeOracle(needs("a", "b"))
    assert asker.ask("drop_nodes", WITHOUT_A).reproduced
    asker.add_confirmation(Confirmation("repro", Asker(strict), "its repro passes"))
    verdict = asker.ask("drop_nodes", WITHOUT_A)
    assert (verdict.outcome, verdict.observation.stopped) == (
        Outcome.PASSED,
        "its repro passes",
    )
    assert asker.ask("drop_nodes", WITHOUT_C).reproduced
    assert not asker.ask("drop_nodes", WITHOUT_B).reproduced
    assert strict.asked == [WITHOUT_A, WITHOUT_C]  # WITHOUT_B passes as it is
    assert asker.ask("ablation", WITHOUT_A, judged=False).reproduced
    assert not asker.has_reproduced(WITHOUT_A)


def test_phase_limit_counts_oracle_and_journaled_verdicts(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal")) as journal:
        for oracle in (FakeOracle(needs("b")), FakeOracle(needs("b"))):
            asker = Asker(oracle, journal=journal, most=2)
            asker.ask("drop_nodes", WITHOUT_A)
            asker.ask("drop_nodes", WITHOUT_B)
            with pytest.raises(PhaseLimitReached, match="limit of 2 checks reached"):
                asker.ask("drop_nodes", WITHOUT_C)
            assert asker.ask("drop_nodes", WITHOUT_A).reproduced  # known

"""``summary.json``: all that a run has found out, as other programs read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.lies import strided

from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.operators import Misbehavior, OperatorFinding
from shrinkfx.report.record import (
    BuildCounts,
    Failure,
    GuardPages,
    Memory,
    ModelRemains,
    OtherCauses,
    OtherFailure,
    Programs,
    ProgramSize,
    ReproFiles,
    RunRecord,
    Search,
    Spent,
    VerifiedRepro,
)
from shrinkfx.report.summary import group_other_failures, rank_suspects, summarise
from shrinkfx.testing import chain, whole
from shrinkfx.versions import __version__, why_untested

THREE = whole(chain("x", "relu", "tanh", "cos"))
TWO = apply(THREE, [Drop(frozenset({"relu"}))])

TARGET = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT, "SIGSEGV of 40")
ASAN = MemoryReport("heap-buffer-overflow", "read", 4, "kernel", 7, "0 bytes after")
CAUSES = OtherCauses(
    (strided("mix", (1,), (2,), "my.mix.default"),),
    (OperatorFinding("my.fill.default", Misbehavior.WRITES, "fill", argument="x"),),
    ("minutes were short",),
)
CAUGHT = OtherFailure("nan", "compare", "output 0", 2, 3, "1a2b")
BUILDS = BuildCounts(2, 1, {"-O1": 3})
REPRO = ReproFiles((Path("out/repro.py"), Path("out/repro_inputs.pt")), "source, exact")
KINDS = {"operators": "1-minimal", "sizes": "kept"}
RECORD = RunRecord(
    Failure(TARGET, replace(TARGET, text="SIGSEGV of 1"), "ima", 0.5, 0.12345, 2),
    Programs(
        ProgramSize(40, 45, 2, 1), ProgramSize(1, 3, 1, 0), 38, ("my.mix.default",)
    ),
    versions={"torch": "2"},
    other_causes=CAUSES,
    suspects=(Suspect("mix", 0.9, "was running", "my.mix.default", "a.py:1"),),
    guard_pages=GuardPages("after each tensor", "passes (3 of 3 runs)"),
    memory=Memory(Guard.AFTER, "passes (1 of 1 runs)", ASAN),
    search=Search("", True, "passed", (CAUGHT,), KINDS),
    spent=Spent(
        ["passed", "reproduced", "passed"], 4, 9.87, {"search": 1.26}, BUILDS, 2
    ),
    verified=VerifiedRepro(REPRO, 3, 3),
    cause=("my.mix.default, a.py:1: it fails alone.",),
    remains=ModelRemains(operators=("my.mix",)),
)

GOLDEN = Path(__file__).parents[1] / "golden" / "summary.json"
WRITTEN: Mapping[str, Any] = json.loads(
    GOLDEN.read_text().replace("VERSION", __version__)
)


def test_summary_has_the_keys_and_values_of_its_schema() -> None:
    """Scripts read it: a key that goes or changes its meaning needs a new schema."""
    read = json.loads(json.dumps(summarise(RECORD)))
    assert read == WRITTEN
    assert read["by_catch"] == read["other_failures"]  # the key of older versions


def test_summary_without_repro_or_guard_pages_has_the_same_keys() -> None:
    bare = RunRecord(
        Failure(TARGET, TARGET), Programs(ProgramSize(2), ProgramSize(1), cut=2)
    )
    told = summarise(bare)
    assert told.keys() == WRITTEN.keys()
    assert (told["guard_pages"], told["memory_report"]) == (None, None)
    assert (told["repro"], told["files"]) == (None, [])
    assert told["nodes"] == {"before": None, "after": None}


@pytest.mark.parametrize(
    ("runs", "failed", "stopped", "status"),
    [
        (3, 3, "", "reduced"),
        (3, 3, "interrupted", "stopped"),
        (3, 2, "", "unverified"),
        (3, 2, "interrupted", "unverified"),
        (0, 0, "", "unverified"),
        (0, 0, "interrupted", "stopped"),
    ],
)
def test_status_is_reduced_only_if_every_run_fails(
    runs: int, failed: int, stopped: str, status: str
) -> None:
    verified, search = VerifiedRepro(REPRO, runs, failed), Search(stopped)
    assert replace(RECORD, verified=verified, search=search).status == status


def test_repro_does_not_warn_of_removed_operators() -> None:
    """Of what is about none it does."""
    mix, fill, other = CAUSES.all()
    assert RECORD.warnings == (mix, other)
    for targets, left in (
        ((), (other,)),
        (("my.fill.default", "my.mix.default"), (mix, fill, other)),
        (("my.mix.out", "mix"), (other,)),
    ):
        assert CAUSES.restricted_to(targets).all() == left


def test_match_text_is_not_required_of_a_comparing_script() -> None:
    target = replace(TARGET, match="SIGSEGV")
    assert Failure(target, TARGET).of_a_script.match == "SIGSEGV"
    wrong = Signature(Kind.MISMATCH, Stage.COMPARE, match="output 0")
    assert Failure(wrong, wrong).of_a_script.match == ""


def different(detail: str, text: str) -> Verdict:
    seen = Signature(Kind.EXCEPTION, Stage.RUN, detail, text)
    return Verdict(Outcome.DIFFERENT, Observation(seen))


def test_other_failure_is_listed_once_with_its_smallest_candidate() -> None:
    louder, other = different("a", "a of 3"), different("b", "b")
    caught = group_other_failures(
        [(THREE, other), (THREE, louder), (TWO, different("a", "a of 2"))]
    )
    assert [c.checks for c in caught] == [2, 1]
    assert caught[0].operators == 2
    assert TWO.digest.startswith(caught[0].candidate)
    assert caught[0].text == "a of 2"
    assert (caught[1].kind, caught[1].stage, caught[1].text) == (
        "exception",
        "run",
        "b",
    )


def test_suspects_of_equal_weight_share_a_rank() -> None:
    found = [Suspect(f"add_{i}", w, "") for i, w in enumerate([0.9, 0.9, 0.5, 0.2])]
    told = rank_suspects(found)
    assert [each["rank"] for each in told] == [1, 1, 3, 4]
    assert [each["node"] for each in told] == ["add_0", "add_1", "add_2", "add_3"]


def test_warning_about_an_untested_torch_is_only_in_the_summary() -> None:
    newer = replace(RECORD, versions={"torch": "2.99.0"})
    before, after = summarise(RECORD)["warnings"], summarise(newer)["warnings"]
    assert after == [*before, why_untested("2.99.0")]
    assert newer.warnings == RECORD.warnings  # neither the repro nor the issue has it

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

WRITTEN: Mapping[str, Any] = {
    "schema": 1,
    "status": "reduced",
    "stopped": "",
    "until": "ima",
    "kind": "ima",
    "signature": {
        "kind": "ima",
        "stage": "run",
        "detail": MEMORY_FAULT,
        "text": "SIGSEGV of 40",
        "match": "",
        "operators": [],
        "beside_nan": False,
        "differs": "",
        "only": "",
    },
    "failure": "ima in run: SIGSEGV of 1",
    "rate": {"before": 0.5, "after": 0.123},
    "operators": {"before": 40, "after": 1},
    "nodes": {"before": 45, "after": 3},
    "inputs": {"before": 2, "after": 1},
    "dynamic_dims": {"before": 1, "after": 0},
    "checks": {
        "total": 3,
        "by_verdict": {"passed": 2, "reproduced": 1},
        "cached": 4,
    },
    "seconds": 9.9,
    "cpu_seconds": {"search": 1.3},
    "other_failures": [
        {
            "kind": "nan",
            "stage": "compare",
            "text": "output 0",
            "checks": 2,
            "operators": 3,
            "candidate": "1a2b",
        }
    ],
    "minimal": True,
    "minimal_by_kind": KINDS,
    "without_it": "passed",
    "calls": 2,
    "builds": {"fast": 2, "stopped": 1, "fallbacks": {"-O1": 3}},
    "jobs": 2,
    "guard_pages": {
        "are": "after each tensor",
        "original_without_them": "passes (3 of 3 runs)",
        "result_without_them": "passes (1 of 1 runs)",
        "repro_needs_them": True,
    },
    "memory_report": {
        "kind": "heap-buffer-overflow",
        "access": "read",
        "bytes": 4,
        "kernel": "kernel",
        "line": 7,
        "where": "0 bytes after",
        "address": "",
        "block": "",
        "thread": "",
    },
    "warnings": [
        "fake-kernel mismatch: mix (my.mix.default) has strides [1], but its "
        "fake kernel declares [2]",
        "custom operator: fill (my.fill.default) writes to its argument x, which its "
        "schema does not declare",
        "minutes were short",
    ],
    "suspects": [
        {
            "rank": 1,
            "node": "mix",
            "weight": 0.9,
            "why": "was running",
            "operator": "my.mix.default",
            "source": "a.py:1",
        }
    ],
    "interpreted_for": "",
    "left_of_model": {
        "names": [],
        "operators": ["my.mix"],
        "constants": [],
        "values": [],
        "sources": [],
        "places": [],
        "header": [],
    },
    "cause": ["my.mix.default, a.py:1: it fails alone."],
    "verified": {"runs": 3, "failed": 3},
    "repro": "repro.py",
    "repro_form": "source, exact",
    "files": ["repro.py", "repro_inputs.pt"],
    "preloads": {},
    "modules": [],
    "in_compiler": {
        "places": [],
        "sources": [],
        "only_defined": False,
        "fails_without": None,
    },
    "environment": {"set": {}, "not_needed": []},
    "versions": {"shrinkfx": __version__, "torch": "2"},
    "missing_features": {},
    "operators_cut": 38,
}


def test_summary_has_the_keys_and_values_of_its_schema() -> None:
    """One of these that goes, or means something else, makes another schema."""
    read = json.loads(json.dumps(summarise(RECORD)))
    assert read.pop("by_catch") == read["other_failures"]  # the name that scripts know
    assert read == WRITTEN


def test_summary_without_repro_or_guard_pages_has_the_same_keys() -> None:
    bare = RunRecord(
        Failure(TARGET, TARGET), Programs(ProgramSize(2), ProgramSize(1), cut=2)
    )
    told = summarise(bare)
    assert told.keys() == {*WRITTEN, "by_catch"}
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

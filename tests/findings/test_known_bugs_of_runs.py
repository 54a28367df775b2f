"""Known bugs, from the folders of runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.bugs import COS, WRONG, write_run

from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.findings.known_bugs import KnownBug, find_bug_folders


def test_run_with_a_verified_repro_is_a_known_bug(tmp_path: Path) -> None:
    bug = KnownBug.read(write_run(tmp_path / "run"))
    assert (bug.pattern, bug.signature, bug.issue) == (COS, WRONG, "")
    assert bug.title == "mismatch in compare: 3 of 4 elements differ"
    assert str(bug) == f"{bug.title} ({tmp_path / 'run'})"


def test_title_is_that_of_the_issue_unless_the_user_gives_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "ISSUE.md").write_text("# [Inductor] wrong values in aten.cos\n\nmore\n")
    assert KnownBug.read(folder).title == "[Inductor] wrong values in aten.cos"
    own = {"title": "cos is off", "issue": "https://example.org/1"}
    (folder / "bug.json").write_text(json.dumps(own))
    assert str(KnownBug.read(folder)) == "cos is off (https://example.org/1)"


def test_run_without_a_verified_repro_is_no_known_bug(tmp_path: Path) -> None:
    for verified in [(0, 0), (3, 2)]:
        folder = write_run(tmp_path / str(verified), verified=verified)
        with pytest.raises(ValueError, match="does not fail in every run"):
            KnownBug.read(folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"verified": {}}', '{"verified": 3}'])
def test_damaged_summary_is_an_error_that_callers_expect(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(ValueError, match=r"\w"):
        KnownBug.read(tmp_path)


def test_runs_are_found_in_the_folder_and_directly_inside(tmp_path: Path) -> None:
    one, other = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    (tmp_path / "empty").mkdir()
    assert [*find_bug_folders([tmp_path])] == [one, other]
    assert [*find_bug_folders([other, one])] == [other, one]
    of_triage = write_run(tmp_path / "triage/runs/c")
    assert [*find_bug_folders([tmp_path / "triage"])] == [of_triage]


def test_failure_of_another_identity_is_not_the_bug(tmp_path: Path) -> None:
    bug = KnownBug.read(write_run(tmp_path / "run"))
    assert bug.may_be(replace(WRONG, text="1 of 9 elements differ"))
    assert not bug.may_be(replace(WRONG, kind=Kind.ASSERT, stage=Stage.RUN))


def test_options_of_the_earlier_run_are_no_part_of_the_identity(tmp_path: Path) -> None:
    matched = replace(WRONG, match="3 of 4")
    bug = KnownBug.read(write_run(tmp_path / "run", signature=matched))
    assert bug.may_be(replace(WRONG, text="1 of 9 elements differ"))

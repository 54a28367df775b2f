"""Recorded failures, in families: one failure under several surface texts each.

``record.py`` made the recordings. What is in another folder is a near miss: no
member of one family may be taken for one of another.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path

import pytest
from recordings import read_ending

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.script import convert_script_ending
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.protocol.answers import Ending

RECORDED = Path(__file__).parent / "recorded"
FAMILIES = {
    "arithmetic_trap": (Kind.CRASH, Stage.RUN),
    "bounds": (Kind.ASSERT, Stage.RUN),
    "cpp_no_match": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "cpp_missing": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "cpp_missing_another": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "crash_compiling": (Kind.CRASH, Stage.COMPILE),
    "devices": (Kind.EXCEPTION, Stage.RUN),
    "exception_in_kernel": (Kind.EXCEPTION, Stage.RUN),
    "exception_in_kernel_another": (Kind.EXCEPTION, Stage.RUN),
    "exception_in_operator": (Kind.EXCEPTION, Stage.RUN),
    "exception_in_operator_another": (Kind.EXCEPTION, Stage.RUN),
    "exception_without_words": (Kind.EXCEPTION, Stage.RUN),
    "exception_without_words_another": (Kind.EXCEPTION, Stage.RUN),
    "hang": (Kind.HANG, Stage.RUN),
    "hang_compiling": (Kind.HANG, Stage.COMPILE),
    "illegal_instruction": (Kind.CRASH, Stage.RUN),
    "inputs_dim": (Kind.CHECK_INPUTS, Stage.RUN),
    "inputs_dim_too_large": (Kind.CHECK_INPUTS, Stage.RUN),
    "inputs_dim_too_small": (Kind.CHECK_INPUTS, Stage.RUN),
    "inputs_dtype": (Kind.CHECK_INPUTS, Stage.RUN),
    "inputs_inf": (Kind.CHECK_INPUTS, Stage.RUN),
    "inputs_nan": (Kind.CHECK_INPUTS, Stage.RUN),
    "inputs_stride": (Kind.CHECK_INPUTS, Stage.RUN),
    "layout_of_another_operator": (Kind.ASSERT, Stage.RUN),
    "layout_of_operator": (Kind.ASSERT, Stage.RUN),
    "linker": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "linker_another": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "load_truncated": (Kind.LOAD_ERROR, Stage.LOAD),
    "load_undefined": (Kind.LOAD_ERROR, Stage.LOAD),
    "load_undefined_another": (Kind.LOAD_ERROR, Stage.LOAD),
    "lowering": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "lowering_of_another": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "memory": (Kind.CRASH, Stage.RUN),
    "mismatch": (Kind.MISMATCH, Stage.COMPARE),
    "nan": (Kind.NAN, Stage.COMPARE),
    "no_lowering": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "no_lowering_of_another": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "oom": (Kind.OOM, Stage.RUN),
    "oom_compiling": (Kind.OOM, Stage.COMPILE),
    "runtime_assertion": (Kind.ASSERT, Stage.RUN),
    "runtime_assertion_at_most": (Kind.ASSERT, Stage.RUN),
    "silent_assertion": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "silent_assertion_elsewhere": (Kind.COMPILE_ERROR, Stage.COMPILE),
    "silent_assertion_in_lowering": (Kind.COMPILE_ERROR, Stage.COMPILE),
}
MEMORY_FAULTS = {Kind.CRASH, Kind.IMA}
SAME_WORDS = {
    "arithmetic_trap",
    "cpp_missing",
    "cpp_missing_another",
    "devices",
    "exception_without_words",
    "exception_without_words_another",
    "illegal_instruction",
    "linker",
    "linker_another",
    "load_truncated",
    "no_lowering",
    "no_lowering_of_another",
    "silent_assertion",
    "silent_assertion_elsewhere",
    "silent_assertion_in_lowering",
}
"""The line that tells their cause holds nothing that drifts, or there is none: only
the programs differ, and what is printed around it."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """One recording, and what is made of it."""

    name: str
    ending: Ending
    signature: Signature


def _read(path: Path) -> Seen:
    data = json.loads(path.read_text())
    ending = read_ending(data["ending"])
    if script := data.get("script"):
        ending = convert_script_ending(ending, script)
    signature = classify_ending(ending).signature
    assert signature is not None, path
    return Seen(path.stem, ending, signature)


MEMBERS = {
    family: [_read(path) for path in sorted((RECORDED / family).glob("*.json"))]
    for family in FAMILIES
}
RECORDINGS = [
    pytest.param(family, seen, id=f"{family}-{seen.name}")
    for family, members in MEMBERS.items()
    for seen in members
]


def test_every_recording_is_in_a_family() -> None:
    folders = {path.name for path in RECORDED.iterdir() if path.is_dir()}
    assert folders == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_family_members_have_distinct_texts(family: str) -> None:
    checks = [seen for seen in MEMBERS[family] if not seen.name.endswith(".script")]
    causes = {(seen.ending.how, seen.signature.text) for seen in checks}
    assert len(checks) > 1
    assert (len(causes) == 1) is (family in SAME_WORDS)


@pytest.mark.parametrize(("family", "seen"), RECORDINGS)
def test_recording_has_its_kind_and_stage(family: str, seen: Seen) -> None:
    kind, stage = FAMILIES[family]
    found = seen.signature
    assert found.stage is stage
    assert found.kind is kind or {found.kind, kind} <= MEMORY_FAULTS


@pytest.mark.parametrize("family", FAMILIES)
def test_members_of_a_family_admit_each_other(family: str) -> None:
    for one, other in itertools.product(MEMBERS[family], repeat=2):
        said = f"{one.name}: {one.signature!r}\n{other.name}: {other.signature!r}"
        assert one.signature.admits(other.signature), said


@pytest.mark.parametrize("family", FAMILIES)
def test_members_of_other_families_are_not_admitted(family: str) -> None:
    for other in FAMILIES.keys() - {family}:
        if (family, other) == ("mismatch", "nan"):
            continue
        for one, miss in itertools.product(MEMBERS[family], MEMBERS[other]):
            said = f"{one.signature!r}\n{other}: {miss.signature!r}"
            assert not one.signature.admits(miss.signature), said


def test_mismatch_admits_nan() -> None:
    for wrong, nan in itertools.product(MEMBERS["mismatch"], MEMBERS["nan"]):
        assert wrong.signature.admits(nan.signature)


@pytest.mark.parametrize(("family", "seen"), RECORDINGS)
def test_signature_detail_is_independent_of_machine_and_program(
    family: str, seen: Seen
) -> None:
    detail = seen.signature.detail
    innermost = r"at torch/[\w/]+\.py:\w+"
    assert not re.search(r"\d|/|\.(py|so|cpp)\b", re.sub(innermost, "", detail)), detail


@pytest.mark.parametrize(("family", "seen"), RECORDINGS)
def test_match_pattern_narrows_admitted_failures(family: str, seen: Seen) -> None:
    target = seen.signature
    words = dataclasses.replace(target, match=re.escape(target.text.splitlines()[0]))
    assert words.admits(target)
    narrower = dataclasses.replace(target, match="no such words")
    assert not narrower.admits(target)


@pytest.mark.parametrize("family", FAMILIES)
def test_script_failure_text_equals_that_of_the_check(family: str) -> None:
    """What ``--match`` has found in a check, it finds in a run of the repro."""
    named = {seen.name: seen.signature for seen in MEMBERS[family]}
    for name, signature in named.items():
        check = named.get(name.removesuffix(".script"))
        if check and signature.stage is not Stage.COMPARE:
            assert _wordings(signature) == _wordings(check)


def _wordings(signature: Signature) -> str:
    """Take out of a text the names of files, which are those of one run."""
    return re.sub(r"/[\w./+-]+", "", signature.text)

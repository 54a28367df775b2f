"""A cause in words, and in the header of a repro."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.chain import Chain
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.decisions import Decisions, SkippedPart
from shrinkfx.findings.operators import Operator, OperatorMismatch
from shrinkfx.findings.record import (
    LINES,
    Explanation,
    Guide,
    LeftFile,
    Outcome,
    Row,
    explanation_lines,
)
from shrinkfx.findings.values import WrongValue
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.record import read_older
from shrinkfx.report.header import read_failure, set_cause
from shrinkfx.report.page.page import render_page
from shrinkfx.report.page.record import Run

FAILURE = Signature(Kind.MISMATCH, Stage.COMPARE, "")

SCRIPT = """\
# mismatch in AOTInductor (compare): reduced from 5 operators to 1.
#
# Failure: mismatch | compare |
# Seen on: torch 2.13.0
# Made by: shrinkfx

import torch

# Seen on: no header
"""


def test_cause_is_in_the_header_once_and_replaceable() -> None:
    first = set_cause(SCRIPT, ["A roll.", "Index 15 of size 12, " * 8])
    assert first.count("# Cause:   A roll.\n#          Index 15") == 1
    assert first.replace("\n", "").count("# Seen on: torch") == 1
    assert read_failure(first) == read_failure(SCRIPT)
    again = set_cause(first, ["Something else."])
    assert again.count("Cause:") == 1
    assert "roll" not in again
    assert "Index" not in again
    assert set_cause(again, []) == SCRIPT


def test_mismatch_in_the_cause_is_not_repeated_as_a_warning() -> None:
    head, _, rest = SCRIPT.partition("\n")
    lie = "# Warning (input program): fake-kernel mismatch: mix (my.mix.default)\n"
    lie += "#          has strides [192, 1, 12], but its fake kernel declares\n"
    lie += "#          [192, 16, 1]\n"
    guards = "# Warning (input program): with CHECK=1 it fails otherwise: Error in\n"
    guards += "#          op: torch.ops.my.mix.default; that may be the cause\n"
    other = "# Warning (input program): with nan_asserts it fails otherwise\n"
    plain = f"{head}\n#\n{rest}"
    warned = f"{head}\n{lie}{guards}#\n#\n{rest}"
    told = set_cause(warned, ["It lies."], "my.mix.default")
    assert told == set_cause(plain, ["It lies."])
    assert "declares" in set_cause(warned, ["It lies."], "my.mix")
    assert "declares" in set_cause(warned, ["A roll."])
    both = f"{head}\n{lie}{other}{guards}#\n#\n{rest}"
    told = set_cause(both, ["It lies."], "my.mix.default")
    assert told == set_cause(f"{head}\n{other}#\n#\n{rest}", ["It lies."])


def test_header_with_a_long_cause_fits_on_a_screen() -> None:
    told = set_cause(SCRIPT, [f"Sentence {n} of some length, " * 5 for n in range(12)])
    header = [*takewhile(lambda row: row.startswith("#"), told.splitlines())]
    assert len(header) <= 24
    assert "Sentence 5" in told
    assert header[-3] == "#          explain.json has more."
    long = "# a row\n" * 30 + SCRIPT
    assert "# Cause:   A roll.\n#          explain.json has" in set_cause(
        long, ["A roll.", "B."]
    )


def test_long_kernel_name_is_shortened_only_in_displayed_text() -> None:
    name = f"cpp_fused_{'add_mul_' * 20}7"
    said = f"aten.add.Tensor in kernel {name} is wrong."
    known = Explanation(cause=(said,), values=WrongValue(kernel=name))
    short = "cpp_fused_add_mul_add_mul_add_mul_add_mul_a..._7"
    told = (f"cause:    aten.add.Tensor in kernel {short} is wrong.",)
    assert explanation_lines(known, FAILURE) == told
    header = set_cause(SCRIPT, known.cause)
    assert f"kernel {short} is wrong." in header.replace("\n#         ", "")
    shown = render_page(Run("m.pt2", explanation=known))
    assert f"kernel {short} is wrong." in shown
    assert known.cause == (said,)  # explain.json has it whole, to be searched for


def test_file_name_is_not_wrapped_in_the_header() -> None:
    file = f"explain/sources/{'abcd' * 15}.kernel.cpp"
    assert f" {file}:" in set_cause(SCRIPT, (f"Line 7 of {file}: `x`.",))


def test_cause_names_no_folder() -> None:
    assert "/home" not in set_cause(SCRIPT, ["line 3 of /home/me/model.py"])


def test_explanation_is_limited_in_lines() -> None:
    left = tuple(Operator(f"n{i}", "aten.relu.default", f"m.py:{i}") for i in range(40))
    unknown = tuple(f"why {i}" for i in range(40))
    known = Explanation(cause=("It is so.",) * 8, operators=left, unknown=unknown)
    lines = explanation_lines(known, FAILURE)
    assert len(lines) <= LINES
    assert lines[0].endswith("It is so.")
    assert any("more in explain.json" in line for line in lines)


def test_unknown_line_is_kept_in_a_full_explanation() -> None:
    left = tuple(Operator(f"n{i}", "aten.relu.default", f"m.py:{i}") for i in range(40))
    decided = Decisions(
        left_out=tuple(
            SkippedPart(
                Subsystem.LOWERINGS, n, 9, f"aten.{n}", alone=True, onwards=True
            )
            for n in range(3)
        )
    )
    known = Explanation(
        cause=("It is so.",) * 3,
        operators=left,
        unknown=("why",),
        chain=Chain(code=(CodeLine(1, "x", at_fault=True),)),
        decisions=decided,
        guide=Guide((Row("A=1", "", Outcome.SAME),), files=(LeftFile("a", 1, "b"),)),
    )
    lines = explanation_lines(known, FAILURE)
    assert (len(lines), lines[-1]) == (LINES, "unknown:  why")


def test_failed_probe_does_not_make_a_settled_cause_look_unknown() -> None:
    mix = Operator("mix", "my.mix.default")
    crashed = "which kernel is wrong: crash in run: SIGSEGV"
    lie = OperatorMismatch(mix, "it has a fake kernel that promises less")
    open_yet = Explanation(cause=("It fails alone.",), unknown=(crashed,))
    assert explanation_lines(open_yet, FAILURE)[-1] == f"unknown:  {crashed}"
    settled = replace(open_yet, culprits=(mix,), mismatches=(lie,))
    last = explanation_lines(settled, FAILURE)[-1]
    assert last == f"unknown:  {crashed}; the cause does not depend on it"
    told = render_page(Run("m.pt2", explanation=settled))
    assert "Not determined" not in told
    assert "The cause does not depend on this." in told
    assert "Not determined" in render_page(Run("m.pt2", explanation=open_yet))


def test_cause_is_settled_if_one_culprit_has_a_known_reason() -> None:
    mix, add = Operator("mix", "my.mix.default"), Operator("add", "aten.add.Tensor")
    chain = Chain(cause=("An index.",))
    assert Explanation(culprits=(mix,), chain=chain).is_settled
    assert not Explanation(culprits=(mix, add), chain=chain).is_settled
    assert not Explanation(culprits=(mix,), chain=Chain()).is_settled
    assert not Explanation(culprits=(mix,)).is_settled
    assert Explanation(inputs="Input x has shape [2].").is_settled


def test_keys_of_other_versions_are_ignored() -> None:
    told = {"schema": 1, "values": {"kernel": "k", "missized": "s0 * 2"}}
    assert read_older(Explanation, told) == Explanation(values=WrongValue(kernel="k"))


def test_chain_sentences_omitted_from_the_cause_are_listed_as_more() -> None:
    chain = Chain(cause=("An index.", "The size is dim 0 of ids.", "It is roll's."))
    cause = ("An index.", "It is roll's.", "Goes away.")
    lines = explanation_lines(Explanation(cause=cause, chain=chain), FAILURE)
    assert lines[2:] == ("cause:    Goes away.", "more:     The size is dim 0 of ids.")
    blamed = Explanation(cause=("Another lies.",), chain=chain)
    assert explanation_lines(blamed, FAILURE) == ("cause:    Another lies.",)


def test_line_at_fault_is_printed_once() -> None:
    chain = Chain(code=(CodeLine(7, "  x = no(y);", at_fault=True),))
    assert explanation_lines(
        Explanation(cause=("It dies.",), chain=chain), FAILURE
    ) == (
        "cause:    It dies.",
        "code:     line 7 of the kernel source: x = no(y);",
    )
    kept = replace(chain, file="explain/sources/k.py")
    told = explanation_lines(Explanation(chain=kept), FAILURE)
    assert told == ("code:     line 7 of explain/sources/k.py: x = no(y);",)
    known = Explanation(cause=("Line 7: `x = no(y);`.",), chain=chain)
    assert len(explanation_lines(known, FAILURE)) == 1


def test_flags_are_listed_by_outcome() -> None:
    rows = (
        Row("", "", Outcome.SAME),
        Row("A=1", "", Outcome.SAME),
        Row("B=1", "", Outcome.OTHER, failure="assert in run: no"),
        Row("C=2 ONLY=kernel", "", Outcome.PASSES),
        Row("D=1", "", Outcome.OPEN, why="not enough time left"),
        Row("E=1", "", Outcome.SAME),
        Row("F=1", "", Outcome.NOT_TESTED, why="it is for CUDA"),
    )
    assert explanation_lines(Explanation(guide=Guide(rows)), FAILURE) == (
        "flags:    passes: C=2",
        "flags:    another failure: B=1 (assert in run: no)",
        "flags:    no answer: D=1 (not enough time left)",
        "flags:    same failure: A=1, E=1",
        "flags:    not tested: F=1 (it is for CUDA)",
    )
    more = Guide((*rows[-1:], Row("G=1", "", Outcome.NOT_TESTED, why="minutes")))
    (told,) = explanation_lines(Explanation(guide=more), FAILURE)
    assert told == "flags:    not tested: F=1, G=1 (for the reasons, see explain.json)"
    assert explanation_lines(Explanation(guide=Guide(rows[:1])), FAILURE) == ()


def test_calls_from_one_source_line_are_printed_once() -> None:
    left = [Operator(name, "aten.relu.default", "m.py:1") for name in ("n", "n_1")]
    left.insert(1, Operator("t", "aten.tanh.default", "m.py:2"))
    assert explanation_lines(Explanation(operators=tuple(left)), FAILURE) == (
        "location: aten.relu.default (m.py:1): 2 calls",
        "location: aten.tanh.default (m.py:2)",
    )


def test_operator_without_a_source_location_has_a_line_if_it_is_the_culprit() -> None:
    unknown = Operator("n", "aten.relu.default")
    found = Explanation(
        operators=(unknown, Operator("t", "aten.tanh.default", "m.py:2"))
    )
    place = "location: aten.tanh.default (m.py:2)"
    assert explanation_lines(found, FAILURE) == (place,)
    found = replace(found, culprits=(unknown,))
    assert explanation_lines(found, FAILURE) == ("location: aten.relu.default", place)

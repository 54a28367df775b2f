"""What else may be the cause of a failure: told once, whoever asks."""

from __future__ import annotations

from dataclasses import replace

from support.lies import lie, strided, tensor

from shrinkfx.report.record import OtherCauses, merge_mismatch_lines, strip_advice

MIX = "my.mix.default"
LIE = strided("mix", (1, 5), (5, 1), MIX)
HAS = f"has strides [1, 5], but its fake kernel declares {[5, 1]}"
SAID = f"fake-kernel mismatch: {MIX} {HAS}"


def test_equal_mismatches_of_several_calls_are_one_line() -> None:
    six = [LIE, *(replace(LIE, node=f"mix_{n}") for n in range(1, 6))]
    assert merge_mismatch_lines(six) == [f"{SAID} (6 calls)"]
    assert merge_mismatch_lines(six[:1]) == [SAID]
    assert merge_mismatch_lines([]) == []


def test_mismatches_at_other_sizes_are_one_line_that_notes_it() -> None:
    other = strided("mix_1", (1, 7), (7, 1), MIX)
    assert merge_mismatch_lines([LIE, other]) == [
        f"{SAID} (2 calls, some at other sizes)"
    ]


def test_different_mismatches_have_separate_lines() -> None:
    dtype = lie("mix_1", tensor("int64", 4, 6), operator=MIX)
    second = replace(LIE, place="[1]")
    other = replace(LIE, operator="my.fill.default")
    assert merge_mismatch_lines([LIE, dtype, second, other]) == [
        SAID,
        f"fake-kernel mismatch: {MIX} is torch.int64[4, 6] on cpu, but its "
        "fake kernel declares torch.float32[4, 6] on cpu",
        SAID.replace(MIX, f"{MIX}[1]"),
        SAID.replace(MIX, "my.fill.default"),
    ]


def test_merged_mismatch_is_found_by_its_operator() -> None:
    twice = OtherCauses((LIE, replace(LIE, node="mix_1")))
    told = (f"{SAID} (2 calls)",)
    assert twice.all() == told
    assert twice.restricted_to([MIX]).all() == told
    assert (
        twice.restricted_to(["aten.add.Tensor"]).all()
        == twice.without_operator(MIX).all()
        == ()
    )


def test_advice_is_stripped_from_a_warning() -> None:
    told = "with X=1 it fails otherwise: assert in run: my.op: 1==2; that may be why"
    more = f"{told}. To reduce that instead: --until assert --env X=1"
    assert strip_advice(more) == strip_advice(told) == told
    refused = "it refuses its inputs (3 <= 2); it may be theirs"
    other = (
        f"{refused}. Other inputs: --inputs FILE; to reduce that: --until check-inputs"
    )
    assert strip_advice(other) == refused

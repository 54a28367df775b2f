"""What else may be the cause of a failure: told once, whoever asks."""

from __future__ import annotations

from shrinkfx.report.warned import OtherCauses, in_one, without_advice

MIX = "(my.mix.default)"
LIE = f"mix {MIX} has strides [1, 5], its metadata says [5, 1]"


def test_calls_that_lie_alike_are_one_line() -> None:
    six = [LIE, *(LIE.replace("mix ", f"mix_{n} ", 1) for n in range(1, 6))]
    assert in_one(six) == [f"{LIE} (6 calls)"]
    assert in_one(six[:1]) == [LIE]
    assert in_one([]) == []


def test_calls_at_other_sizes_are_one_line_that_says_so() -> None:
    other = f"mix_1 {MIX} has strides [1, 7], its metadata says [7, 1]"
    assert in_one([LIE, other]) == [f"{LIE} (2 calls, at other sizes in some)"]


def test_other_lies_results_and_operators_have_lines_of_their_own() -> None:
    dtype = f"mix_1 {MIX} is torch.int64[2] on cpu, its metadata says torch.float32[2]"
    second = LIE.replace(MIX, f"{MIX}[1]")
    other = LIE.replace("mix", "fill")
    assert in_one([LIE, dtype, second, other]) == [LIE, dtype, second, other]


def test_a_lie_is_still_found_by_its_operator() -> None:
    twice = OtherCauses((LIE, LIE.replace("mix ", "mix_1 ", 1)))
    told = (f"lying operator: {LIE} (2 calls)",)
    assert twice.of_operators() == told
    assert twice.left_in(["my.mix.default"]) == told
    assert twice.left_in(["aten.add.Tensor"]) == ()


def test_what_to_type_next_is_left_out_of_a_warning() -> None:
    told = "with X=1 it fails otherwise: assert in run: my.op: 1==2; that may be why"
    more = f"{told}. To reduce that instead: --until assert --env X=1"
    assert without_advice(more) == without_advice(told) == told
    refused = "it refuses its inputs (3 <= 2); it may be theirs"
    other = (
        f"{refused}. Other inputs: --inputs FILE; to reduce that: --until check-inputs"
    )
    assert without_advice(other) == refused

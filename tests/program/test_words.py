"""What texts of others may still do where they are shown: nothing."""

from __future__ import annotations

import re
import signal
import unicodedata
from dataclasses import asdict

from hypothesis import example, given
from hypothesis import strategies as st

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.display_text import (
    LINE,
    cut_distinctly,
    cut_middle,
    cut_text,
    line_of,
    printable,
    short_kernels,
)
from shrinkfx.protocol.answers import Ending, Raised, Ready


@given(st.text())
@example("\x1b[2J\x1b[1;31mred\x1b]8;;http://x\x1b\\\\ \x1bc \u202e \x85 \u2028 \r\n\r")
@example("\x1b\x1b[31m[31m")
def test_printable_text_contains_no_control_character(text: str) -> None:
    shown = printable(text)
    kinds = {c: unicodedata.category(c) for c in shown if c not in "\n\t"}
    assert not {c for c, kind in kinds.items() if kind in ("Cc", "Zl", "Zp")}
    assert not set(shown) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )
    assert printable(shown) == shown


def test_text_without_control_characters_is_unchanged() -> None:
    text = "g++: error: \u2018tmp\u2019 was not declared\n\tin this scope: 漢字 é"
    assert printable(text) == text


@given(st.text(max_size=50), st.integers(30, 40))
def test_cut_text_fits_limit_and_is_not_cut_again(text: str, most: int) -> None:
    for shorten in (cut_text, cut_distinctly):
        short = shorten(text, most)
        assert len(short) <= most
        assert shorten(short, most) == short


def test_texts_that_differ_after_the_cut_stay_distinct() -> None:
    one, other = (cut_distinctly("x" * LINE + end) for end in ("one", "other"))
    assert one != other
    assert len(one) == len(other) == LINE


def test_cut_middle_keeps_both_ends_of_long_text() -> None:
    assert cut_middle("a" * 100 + "b" * 100, 20) == (
        "a" * 10 + "\n... (180 characters)\n" + "b" * 10
    )
    assert cut_middle("short", 20) == "short"


def test_classification_of_very_long_message_is_fast() -> None:
    """Not for hours: no expression may take the square of a message's length."""
    text = "x" * 500_000
    for stage in (Stage.COMPILE, Stage.LOAD, Stage.RUN):
        told = Ending("exit", 0, stage, answer=Raised("E", text))
        for ending in (told, Ending("signal", signal.SIGABRT, stage, log=text)):
            seen = classify_ending(ending).signature
            assert seen is not None
            assert len(seen.text) <= 2 * LINE


def test_worker_answer_is_made_printable_when_read() -> None:
    said = Raised("E", "\x1b[1mbold", ("\x07",))
    ending = Ending("exit", answer=said, log="\x1b[K50 %\r100 %")
    read = Ending.from_line(ending.to_line())
    assert read.answer == Raised("E", "bold", ("\\x07",))
    assert read.log == "50 %\n100 %"
    assert Ready.from_line(Ready("\x1b[31mno").to_line()).error == "no"


def test_signature_of_very_long_failure_round_trips_through_json() -> None:
    megabyte = "y" * (1 << 20)
    failure = Signature(Kind.EXCEPTION, Stage.RUN, f"E: {megabyte}", f"E: {megabyte}")
    assert len(failure.text) <= 2 * LINE
    assert Signature.from_json(asdict(failure)) == failure
    other = Signature(Kind.EXCEPTION, Stage.RUN, f"E: {megabyte}z")
    assert not failure.admits(other)
    assert str(Signature(Kind.EXCEPTION, Stage.RUN, "", "\udcff")).encode()


LONG = "triton_per_fused__to_copy_add_embedding_mean_mul_native_layer_norm_pow_12"


def test_kernel_names_are_shortened_in_sentences_but_not_in_code() -> None:
    told = short_kernels(f"In {LONG}, launched after cpp_fused_add_11, and `{LONG}`.")
    short = "triton_per_fused__to_copy_add_embedding_me..._12"
    assert told == f"In {short}, launched after cpp_fused_add_11, and `{short}`."
    code = f"at `tmp1 = {LONG}(x)`, and at `y = {LONG}`"
    assert short_kernels(code) == code
    assert short_kernels(told) == told


def test_shortened_kernel_names_with_equal_prefix_stay_distinct() -> None:
    names = [LONG, LONG.replace("_12", "_2"), LONG.replace("_12", "_abc")]
    assert len({short_kernels(name) for name in names}) == 3


def test_line_of_a_check_has_no_path_of_generated_code() -> None:
    text = "what():  kernel, /tmp/run/yh/cyh6.main.cpp:33, index out of bounds: 0 <= x"
    found = re.search("out of bounds", text)
    assert found is not None
    assert line_of(text, found) == "index out of bounds: 0 <= x"

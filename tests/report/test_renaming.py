"""A cause is told with the names of the repro, where a user's are left out of that."""

from __future__ import annotations

import json
from dataclasses import replace

from shrinkfx.findings.chain import Chain, Layout, Limit, SizeSymbol
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation
from shrinkfx.report.anonymous import (
    strip_input_program,
    strip_origins,
    use_repro_names,
)

IDS = Layout("token_ids", "input", ("s77",), ("1",), "int64")
TABLE = Layout("encoder.0.table", "weight", ("8",), ("1",), "float32")
MASK = Layout("x", "input", ("8",), ("1",), "bool")
MUL = Operator("mul_8", "aten.mul.Tensor", "model.py:3", "mlp")
VALUE = Layout("mul_8", "value", ("8",), ("1",), "float32", made_by=(MUL,))
BUFFER = Layout("buf0", "buffer", ("8",), ("1",), "float32")
SAID = (
    "input token_ids is declared [s77] and is [5].",
    "weight encoder.0.table of input x, where x is no name and input token_ids_2 is "
    "another's, as the token_ids here and input buf0.",
)
KNOWN = Explanation(
    cause=SAID,
    chain=Chain(
        inputs=(IDS, TABLE, MASK, BUFFER),
        code=(CodeLine(1, "float encoder_0_table = table[token_ids];"),),
    ),
)
RENAMED = {"token_ids": "x", "x": "y", "encoder_0_table": "weight"}


def test_cause_uses_the_repro_names_of_inputs_and_weights() -> None:
    told = use_repro_names(KNOWN, RENAMED, anonymous=True)
    assert told.cause == (
        "input x is declared [s77] and is [5].",
        "weight weight of input y, where x is no name and input token_ids_2 is "
        "another's, as the token_ids here and input buf0.",
    )
    assert told.chain is not None
    names = [layout.name for layout in told.chain.inputs]
    assert names == ["x", "weight", "y", "buf0"]
    assert told.chain.code[0].text == "float weight = table[token_ids];"


def test_value_that_was_cut_off_is_named_as_the_input_that_replaces_it() -> None:
    text = f"in_ptr0 is {VALUE}."
    known = Explanation(cause=(text,), chain=Chain(inputs=(VALUE,), cause=(text,)))
    told = use_repro_names(known, {"mul_8": "x"}, models_too=True)
    assert told.cause == (
        "in_ptr0 is input x float32[8], which is the result of aten.mul.Tensor "
        "(model.py:3, module mlp) in the input program.",
    )
    assert strip_origins(told.cause[0], told) == "in_ptr0 is input x float32[8]."
    reader = (
        f"Kernel k, which computes {MUL}, loads in_ptr0, which is the result of {MUL}"
    )
    bare = strip_input_program(f"{reader} in the input program.")
    assert bare == f"Kernel k, which computes {MUL}, loads in_ptr0."
    of_old_run = f"Kernel k, which computes {MUL}, fails.".replace("module ", "")
    assert strip_origins(of_old_run, told) == strip_origins(
        f"Kernel k, which computes {MUL}, fails.", told
    )
    nameless = use_repro_names(known, {}, anonymous=True)
    assert strip_origins(nameless.cause[0], nameless) == "in_ptr0 is input float32[8]."


def test_inputs_missing_from_the_repro_are_unnamed() -> None:
    told = use_repro_names(KNOWN, {}, anonymous=True)
    assert told.cause[0] == "input is declared [s77] and is [5]."
    assert "encoder" not in json.dumps(json.loads(told.to_line()))


def test_name_without_a_layout_is_renamed_too() -> None:
    alone = replace(KNOWN, chain=None)
    assert (
        use_repro_names(alone, RENAMED, anonymous=True)
        .cause[0]
        .startswith("input x is declared")
    )


SIZE = SizeSymbol("s7", 5, "1", "8", "token_ids", 0, "s7", (), "tokens", 1)
OF_A_SIZE = replace(
    KNOWN,
    cause=(
        "input token_ids is read, of dim 0 of token_ids (s7 = 5); it is dim 1 of "
        "token_ids in the input program.",
        "weight encoder.0.table and input ids are not input token_ids_2.",
    ),
    chain=Chain(inputs=(IDS, TABLE), limit=Limit("ks0", "s7", 5, (SIZE,))),
)


def test_model_name_is_given_once_after_the_repro_name() -> None:
    told = use_repro_names(OF_A_SIZE, RENAMED, models_too=True)
    assert told.cause == (
        "input x (`token_ids` in the input program) is read, of dim 0 of x "
        "(s7 = 5); it is dim 1 of token_ids in the input program.",
        "weight weight (`encoder.0.table` in the input program) and input ids are "
        "not input token_ids_2.",
    )
    assert told.chain is not None
    assert told.chain.limit is not None
    assert [each.name for each in told.chain.inputs] == ["x", "weight"]
    size = str(told.chain.limit.symbols[0])
    assert size.startswith("dim 0 of x (s7 = 5)")
    assert "; it is dim 1 of tokens in the input program" in size
    assert strip_input_program(size) == "dim 0 of x (s7 = 5), declared as 1..8"


def test_model_names_are_omitted_unless_requested() -> None:
    told = use_repro_names(OF_A_SIZE, RENAMED, models_too=False)
    assert told.cause[1].startswith("weight weight and input ids are")
    assert "encoder" not in told.cause[1]


def test_chain_and_cause_are_renamed_alike() -> None:
    part = replace(Chain(), cause=SAID[:1])
    known = Explanation(cause=SAID[:1], chain=part)
    told = use_repro_names(known, RENAMED, models_too=True)
    assert told.chain is not None
    assert told.cause == told.chain.cause != SAID[:1]


def test_explanation_is_unchanged_if_names_are_equal() -> None:
    for same in ({}, {"token_ids": "token_ids"}):
        assert use_repro_names(KNOWN, same, models_too=True) == KNOWN


def test_input_size_is_described_without_user_names() -> None:
    told = use_repro_names(OF_A_SIZE, RENAMED, anonymous=True)
    text = "of dim 0 of x (s7 = 5); it is dim 1 of token_ids in the input program"
    assert text in told.cause[0]
    assert "token_ids" not in strip_origins(told.cause[0], told, anonymous=True)
    assert told.chain is not None
    assert told.chain.limit is not None
    assert str(told.chain.limit.symbols[0]) == "dim 0 of x (s7 = 5), declared as 1..8"
    assert (
        "dim 0 of an input (s7"
        in use_repro_names(OF_A_SIZE, {}, anonymous=True).cause[0]
    )

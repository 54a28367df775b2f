"""A cause is told with the names of the repro, where a user's are left out of that."""

from __future__ import annotations

import json
from dataclasses import replace

from shrinkfx.report.explanation.chain import Chain, Layout
from shrinkfx.report.explanation.code import CodeLine
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.issue.renaming import with_new_names

IDS = Layout("token_ids", "input", ("s77",), ("1",), "int64")
TABLE = Layout("encoder.0.table", "weight", ("8",), ("1",), "float32")
MASK = Layout("x", "input", ("8",), ("1",), "bool")
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


def test_inputs_and_weights_of_a_cause_are_called_as_in_the_repro() -> None:
    told = with_new_names(KNOWN, RENAMED)
    assert told.cause == (
        "input x is declared [s77] and is [5].",
        "weight weight of input y, where x is no name and input token_ids_2 is "
        "another's, as the token_ids here and input buf0.",
    )
    assert told.chain is not None
    names = [layout.name for layout in told.chain.inputs]
    assert names == ["x", "weight", "y", "buf0"]
    assert told.chain.code[0].text == "float weight = table[token_ids];"


def test_what_is_not_in_the_repro_has_no_name() -> None:
    told = with_new_names(KNOWN, {})
    assert told.cause[0] == "input is declared [s77] and is [5]."
    assert "encoder" not in json.dumps(json.loads(told.to_line()))


def test_name_that_no_layout_has_is_changed_as_well() -> None:
    alone = replace(KNOWN, chain=None)
    assert with_new_names(alone, RENAMED).cause[0].startswith("input x is declared")

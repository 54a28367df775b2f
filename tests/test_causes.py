"""What statements of an explanation are worth beside the right answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.causes import Cause, Judged, Stated, judge

TABLE: dict[str, Any] = {
    "operators": ["aten.flip.default"],
    "kernel": ["aten.flip.default", "aten.abs.default | aten.conv2d.default"],
    "kernel_also": ["aten.view.default"],
    "line": "x.flip(0)",
    "decisions": ["lowering prims.rev.default", "switch cpp.simdlen"],
    "chain": {
        "value": [-4, -1],
        "size": 7,
        "symbol": "s23",
        "input": "ids | mul_8",
        "dim": 0,
    },
}
CAUSE = Cause.read(TABLE)
TRUTH = Stated(
    operator="aten.flip.default",
    kernel=["aten.flip.default", "aten.conv2d.default"],
    line="    return 0.9 * x + x.flip(0)",
    decision="switch cpp.simdlen",
    value=-1,
    size=7,
    symbol="s23",
    input="mul_8",
    dim=0,
)
NOTHING = Cause.read({"operators": [], "kernel": [], "line": "", "decision": "none"})


def test_matching_statement_is_right() -> None:
    assert set(judge(CAUSE, TRUTH).values()) == {Judged.RIGHT}


def test_absent_statement_is_missing() -> None:
    judged = judge(CAUSE, Stated())
    assert set(judged) == {
        *("operator", "kernel", "line", "decision"),
        *("value", "size", "symbol", "input", "dim"),
    }
    assert set(judged.values()) == {Judged.MISSING}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("operator", "aten.embedding.default"),
        ("kernel", ["aten.flip.default", "aten.abs.default", "aten.add.Tensor"]),
        ("kernel", ["aten.add.Tensor"]),
        ("line", "return self.table(ids)"),
        ("decision", "none"),
        ("decision", "lowering aten.abs.default"),
        ("value", 0),
        ("value", -5),
        ("size", 3),
        ("input", "hidden"),
        ("dim", 1),
    ],
)
def test_differing_statement_is_wrong(what: str, said: object) -> None:
    judged = judge(CAUSE, replace(TRUTH, **{what: said}))  # type: ignore[arg-type]
    assert judged.pop(what) is Judged.WRONG
    assert set(judged.values()) == {Judged.RIGHT}


@pytest.mark.parametrize(
    ("named", "worth"),
    [
        (["aten.flip.default", "aten.abs.default"], Judged.RIGHT),
        (
            ["aten.flip.default", "aten.abs.default", "aten.conv2d.default"],
            Judged.RIGHT,
        ),
        ([*TRUTH.kernel, "aten.view.default"], Judged.RIGHT),
        (["aten.flip.default"], Judged.MISSING),
        (["aten.view.default"], Judged.MISSING),
    ],
)
def test_kernel_is_right_if_all_required_names_are_given(
    named: list[str], worth: Judged
) -> None:
    assert judge(CAUSE, replace(TRUTH, kernel=named))["kernel"] is worth


def test_symbol_name_may_differ_if_input_and_dim_are_right() -> None:
    assert judge(CAUSE, replace(TRUTH, symbol="s0"))["symbol"] is Judged.RIGHT
    for other in ({"symbol": "t"}, {"symbol": "s0", "dim": 1}):
        stated = replace(TRUTH, **other)
        assert judge(CAUSE, stated)["symbol"] is Judged.WRONG


def test_empty_statement_is_right_if_there_is_no_cause() -> None:
    assert set(judge(NOTHING, Stated(decision="none")).values()) == {Judged.RIGHT}
    # That no decision matters has been looked into, or has not.
    assert judge(NOTHING, Stated())["decision"] is Judged.MISSING


def test_any_statement_is_wrong_if_there_is_no_cause() -> None:
    stated = replace(TRUTH, decision="switch cpp.simdlen")
    assert set(judge(NOTHING, stated).values()) == {Judged.WRONG}


def test_numeric_bound_has_no_symbol() -> None:
    static = {"value": 40, "size": 40, "symbol": "", "input": ""}
    cause = Cause.read(TABLE | {"chain": static})
    found = replace(TRUTH, value=40, size=40)
    judged = judge(cause, found)
    assert judged["value"] is judged["size"] is Judged.RIGHT
    for name in ("symbol", "input", "dim"):
        assert judged[name] is Judged.WRONG
    found = replace(found, symbol="", input="", dim=None)
    assert set(judge(cause, found).values()) == {Judged.RIGHT}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"operators": ["flip"]}, "'flip' is no operator"),
        ({"kernel": ["aten.add.Tensor | add"]}, "'add' is no operator"),
        ({"kernel_also": ["add"]}, "'add' is no operator"),
        ({"decisions": ["cpp.simdlen"]}, "'cpp.simdlen' is no decision"),
        ({"decision": "none"}, "either decision or decisions"),
        ({"lines": []}, "either line or lines"),
        ({"note": ""}, "expected operators and kernel"),
        ({"chain": {"value": 1, "size": 1}}, "a chain has"),
        ({"chain": TABLE["chain"] | {"symbol": ""}}, "a symbol, an input and a dim"),
    ],
)
def test_malformed_table_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Cause.read(TABLE | change)

"""Why a known failure fails, as whoever made it has written down beforehand.

A table ``[cause]`` (in ``repros/*/expected.toml``, and in ``benchmarks/two_suspects``)
holds the right answers, and ``judge`` what an explanation is worth beside them. Where
more than one answer is right, the table lists all of them.

    operators    any one of these is the operator at fault; none: no operator is
    kernel       operators of the minimum that are computed in the kernel that dies, or
                 that makes the first wrong value: all of them are to be named.
                 "a | b" is any of the two, as the search leaves it; []: no kernel
    kernel_also  may be named besides, and need not
    line         a piece of the line that calls the operator, or ``lines``, any of which
                 is right; '' where none does. ``source`` is the file of an installed
                 package that has it, where the case's own have not
    decision     of the compiler, without which nothing fails, or ``decisions``, any of
                 which is right: "lowering OPERATOR", "decomposition OPERATOR",
                 "pass NAME", "switch OPTION"; "none" where none matters
    chain        of an index out of bounds: its ``value``, or the first and last that it
                 may have, and the ``size`` that it is held against; where that is a
                 dynamic dim, the ``symbol`` in the original, and the ``input`` and
                 ``dim`` that carry it ("a | b": in the original, in the minimum)

Operators are named as in ``aten.add.Tensor``, as the exported program has them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

OPERATOR = re.compile(r"[a-z_]\w*\.\w+\.\w+|cond")
DECISION = re.compile(r"none|(lowering|decomposition|pass|switch) [\w.]+")


class Judged(Enum):
    """What one statement of an explanation is worth."""

    RIGHT = "right"
    MISSING = "missing"
    WRONG = "wrong"


@dataclass(frozen=True)
class Chain:
    """An index out of bounds, as it is at run time.

    Attributes:
        values: the first and the last that the index may have.
        inputs: any of these carries the bound, where it is a dynamic dim.
    """

    values: tuple[int, int]
    size: int
    symbol: str = ""
    inputs: tuple[str, ...] = ()
    dim: int | None = None

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Self:
        value = table["value"]
        first, last = value if isinstance(value, list) else (value, value)
        bound = table["symbol"], _any_of(table["input"]), table.get("dim")
        return cls((first, last), table["size"], *bound)


@dataclass(frozen=True)
class Cause:
    """All the right answers to why something fails; the module says what they mean."""

    operators: tuple[str, ...]
    kernel: tuple[tuple[str, ...], ...]
    kernel_also: tuple[str, ...]
    lines: tuple[str, ...]
    decisions: tuple[str, ...]
    source: str = ""
    chain: Chain | None = None

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Self:
        """Read a table ``[cause]``; one that is not well-formed is a ValueError."""
        _check(table)
        return cls(
            tuple(table["operators"]),
            tuple(_any_of(name) for name in table["kernel"]),
            tuple(table.get("kernel_also", ())),
            tuple(filter(None, _one_or_more(table, "line"))),
            _one_or_more(table, "decision"),
            table.get("source", ""),
            Chain.read(table["chain"]) if "chain" in table else None,
        )


@dataclass(frozen=True)
class Stated:
    """What an explanation says, in plain values; nothing is '', () or None.

    Attributes:
        kernel: the operators that it says are computed in the kernel.
        line: the text of the line of the model.
        decision: ``none`` says that none matters; '' says nothing.
    """

    operator: str = ""
    kernel: Collection[str] = ()
    line: str = ""
    decision: str = ""
    value: int | None = None
    size: int | None = None
    symbol: str = ""
    input: str = ""
    dim: int | None = None


def judge(cause: Cause, stated: Stated) -> dict[str, Judged]:
    """Say of each statement whether it is right; those about a chain only of one."""
    judged = {
        "operator": _judge(stated.operator, stated.operator in cause.operators)
        if cause.operators
        else _nothing(stated.operator),
        "kernel": _judge_kernel(cause, frozenset(stated.kernel)),
        "line": _judge(stated.line, any(x in stated.line for x in cause.lines))
        if cause.lines
        else _nothing(stated.line),
        "decision": _judge(stated.decision, stated.decision in cause.decisions),
    }
    return judged | (_judge_chain(cause.chain, stated) if cause.chain else {})


def _judge_kernel(cause: Cause, named: frozenset[str]) -> Judged:
    """Take what is named for right if all of it may be, and all that must be is."""
    known = {name for names in cause.kernel for name in names} | {*cause.kernel_also}
    if named - known:
        return Judged.WRONG
    told = all(named.intersection(names) for names in cause.kernel)
    return Judged.RIGHT if told else Judged.MISSING


def _judge_chain(chain: Chain, stated: Stated) -> dict[str, Judged]:
    first, last = chain.values
    value, size = stated.value, stated.size
    judged = {
        "value": _judge(value, value is not None and first <= value <= last),
        "size": _judge(size, size == chain.size),
    }
    if not chain.inputs:
        said = {"symbol": stated.symbol, "input": stated.input, "dim": stated.dim}
        return judged | {name: _nothing(said[name]) for name in said}
    judged["input"] = _judge(stated.input, stated.input in chain.inputs)
    judged["dim"] = _judge(stated.dim, stated.dim == chain.dim)
    # A program that is exported again has other names for its symbols.
    known = {judged["input"], judged["dim"]} == {Judged.RIGHT}
    another = known and bool(re.fullmatch(r"s\d+", stated.symbol))
    judged["symbol"] = _judge(stated.symbol, another or stated.symbol == chain.symbol)
    return judged


def _judge(said: str | int | None, right: bool) -> Judged:
    if said in ("", None):
        return Judged.MISSING
    return Judged.RIGHT if right else Judged.WRONG


def _nothing(said: str | int | None) -> Judged:
    """Judge what is said where there is nothing to say."""
    return Judged.RIGHT if said in ("", None) else Judged.WRONG


def _any_of(names: str) -> tuple[str, ...]:
    return tuple(filter(None, names.split(" | ")))


def _one_or_more(table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return (table[name],) if name in table else tuple(table[f"{name}s"])


def _check(table: Mapping[str, Any]) -> None:
    """Refuse a table that misses something, has something else, or names no operator.

    Raises:
        ValueError: which says what is wrong.
    """
    keys = set(table) - {"kernel_also", "source", "chain"}
    for name in ("line", "decision"):
        if len(keys & {name, f"{name}s"}) != 1:
            raise ValueError(f"expected either {name} or {name}s")
        keys -= {name, f"{name}s"}
    if keys != {"operators", "kernel"}:
        raise ValueError(f"expected operators and kernel, found {sorted(keys)}")
    alternatives = [name for item in table["kernel"] for name in _any_of(item)]
    for name in [*table["operators"], *alternatives, *table.get("kernel_also", ())]:
        if not OPERATOR.fullmatch(name):
            raise ValueError(f"{name!r} is no operator")
    for decision in _one_or_more(table, "decision"):
        if not DECISION.fullmatch(decision):
            raise ValueError(f"{decision!r} is no decision")
    _check_chain(table.get("chain"))


def _check_chain(chain: Mapping[str, Any] | None) -> None:
    if chain is None:
        return
    keys = {"value", "size", "symbol", "input"}
    if set(chain) - {"dim"} != keys:
        raise ValueError(f"a chain has {sorted(keys)}, and a dim where there is one")
    told = bool(chain["symbol"]), bool(chain["input"]), "dim" in chain
    if len(set(told)) != 1:
        raise ValueError("a dynamic bound has a symbol, an input and a dim")
    Chain.read(chain)

"""What a child leaves in files as it goes: it need not live to answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.record import Message, Reported


class What(StrEnum):
    """What an operator does that it does not declare."""

    WRITES = "writes"
    SHARES = "shares"
    FAKE = "fake"
    FIXES = "fixes"


@dataclass(frozen=True)
class OperatorFinding(Reported):
    """One such thing, at the first sizes where it shows: a line of its file each."""

    operator: str
    what: What
    text: str


@dataclass(frozen=True)
class Launch(Message):
    """A launch of a kernel, and the nodes that it computes."""

    kernel: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Traces(Message):
    """What points at the nodes that a failure comes from.

    Attributes:
        launches: in the order of the compiled program's.
        message: of the exception that ended it, or ''.
        raised_at: nodes that the compiler was at work on, the innermost call's first.
        kernel: the one that it was at work on, or ''.
    """

    launches: tuple[Launch, ...] = ()
    message: str = ""
    raised_at: tuple[tuple[str, ...], ...] = ()
    kernel: str = ""


@dataclass(frozen=True)
class Application(Message):
    """A pass that Inductor has come to, or an operator that it has come to lower.

    Attributes:
        number: from 0, among those of its subsystem, as ``TORCH_BISECT_MAX`` counts.
        name: of the pass; or what the operator calls, ``aten.roll.default``.
        node: the operator's in Inductor's graph, or ''.
        origin: what that was before it was decomposed: ``aten.gelu.default``; or ''.
    """

    subsystem: Subsystem
    number: int
    name: str
    node: str = ""
    origin: str = ""

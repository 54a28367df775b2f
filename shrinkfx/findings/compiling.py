"""The point at which a compilation or a run stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shrinkfx.findings.code import CodeLine, text_of
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.values import join_operators, name_kernel
from shrinkfx.protocol.record import Message

ENDLESS = "did not finish"


@dataclass(frozen=True)
class StopPoint(Message):
    """The point at which the compiler, or the compiled program, stopped.

    Attributes:
        culprits: the culprit operators; several if nothing distinguishes them.
        doing: the activity: ``lowering``, ``a post-grad pass``; '' if unknown.
        place: the function that raised, as ``torch/_inductor/lowering.py:cumsum``; or
            ''.
        message: the first line of the error.
        calls: the target of the node in Inductor's graph: ``aten.lerp.Tensor``; '' if
            it is no single node.
        comes_of: operators of the program that the node originates from.
        kernel: the kernel that was compiled or run, or ''; ``launch`` is the number of
            the launch, from 1, of ``launches``.
        before: the failure came before that launch.
        code: generated lines around the failing one.
        file: the file that the line numbers refer to, as ``text_of`` takes it.
        eager_fails: eager fails on the input program as well.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"guilty": "culprits", "said": "message"}

    culprits: tuple[Operator, ...]
    doing: str
    place: str = ""
    message: str = ""
    kernel: str = ""
    launch: int = 0
    launches: int = 0
    before: bool = False
    code: tuple[CodeLine, ...] = ()
    file: str = ""
    eager_fails: bool = False
    unknown: tuple[str, ...] = ()
    calls: str = ""
    comes_of: tuple[Operator, ...] = ()

    @property
    def names_no_place(self) -> bool:
        """Whether the cause is only that the run fails, with the failure's message."""
        return not self.kernel and self.doing == "the run"

    @property
    def cause(self) -> tuple[str, ...]:
        """The cause in at most three sentences; empty if not known."""
        if not self.doing:
            return ()
        return tuple(filter(None, [self._what(), self._where()]))

    def _what(self) -> str:
        what = join_operators(self.culprits)
        of = f" of {self._of(what)}" if what or self.calls else ""
        if self.kernel:
            kernel = name_kernel(self.kernel, self.launch, self.launches)
            computed = f", which computes {what}," if what else ""
            if what and kernel == "the kernel":
                computed = f" that computes {what}"
            of = f"{of} before {kernel}" if self.before else f" of {kernel}{computed}"
        message = self.message.rstrip(".")
        doing = f"{self.doing[:1].upper()}{self.doing[1:]}{of}"
        if message.startswith(f"it {ENDLESS}"):
            return f"{doing} {message.removeprefix('it ')}."
        message = f": {message}" if message else ""
        message += "" if message.endswith(("!", "?")) else "."
        return f"{doing} fails{message}"

    def _of(self, what: str) -> str:
        """Name the node, and the operator that it originates from if that differs."""
        same = [one for one in self.comes_of if one.operator == self.calls]
        if not self.calls or (same and same == [*self.culprits]):
            return f"one of {what}" if len(self.culprits) > 1 else what
        if same or not self.comes_of:
            return str(same[0]) if len(same) == 1 else self.calls
        return f"{self.calls} (from {join_operators(self.comes_of)})"

    def _where(self) -> str:
        at = next((line for line in self.code if line.at_fault), None)
        if at is not None:
            where = f"line {at.number} of {text_of(self.file)}"
            return f"The error is at {where}: `{at.text.strip()}`."
        return f"The error comes from {self.place}." if self.place else ""

"""The results of the flags of PyTorch's debugging guide on a reduced program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from shrinkfx.protocol.record import Message


class Outcome(StrEnum):
    """What a program does under a flag."""

    SAME = "same failure"
    OTHER = "another failure"
    PASSES = "passes"
    OPEN = "no answer"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Row(Message):
    """A flag and its result.

    Attributes:
        flag: with its value, as in a shell; '' for none.
        command: the command that a user types.
        failure: the failure in one line; '' for none.
        output: the relevant lines of the output.
        why: why there is no result, or the flag was not tested; otherwise ''.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"said": "output"}

    flag: str
    command: str
    outcome: Outcome
    failure: str = ""
    output: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class LeftFile(Message):
    """A file that was written for further analysis.

    Attributes:
        name: relative to the folder of these files.
        what: a description of the file.
    """

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class Guide(Message):
    """The results of the flags of PyTorch's debugging guide on a reduced program.

    Attributes:
        last_launch: the last kernel that was launched before the failure, or ''.
        files: the files that were written, if requested.
        left_out: files that were not written or not found, and why.
    """

    rows: tuple[Row, ...] = ()
    last_launch: str = ""
    files: tuple[LeftFile, ...] = ()
    left_out: tuple[str, ...] = ()

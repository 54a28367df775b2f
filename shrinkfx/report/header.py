"""What a repro says of itself, in the comment at its top."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shrinkfx.failure.signature import Kind, Signature


@dataclass(frozen=True)
class About:
    """What the header says.

    Attributes:
        signature: the failure of the result.
        command: the command line that made it, without paths of this machine.
        random: an operator draws random numbers, so both runs need the seed.
        runs: how often the compiled program is run; above 1 for a flaky failure.
        own_error: eager's largest distance from a float64 run of the result.
        copies: the program changes its inputs, so each run gets copies.
    """

    signature: Signature
    command: str
    versions: Mapping[str, str]
    operators: tuple[int, int]
    environment: Mapping[str, str]
    inductor: Mapping[str, Any]
    reference: bool
    random: bool
    runs: int = 1
    own_error: float = 0.0
    copies: bool = False


def header(about: About, *remarks: str) -> str:
    signature = about.signature
    before, after = about.operators
    versions = ", ".join(f"{k} {v}" for k, v in about.versions.items())
    lines = [
        f"{signature.kind} in AOTInductor ({signature.stage}): reduced from "
        f"{before} operators to {after}.",
        "",
        *textwrap.wrap(_without_folders(signature.text or signature.detail), 84),
        "",
        "Run:     python repro.py",
        f"Expect:  {_expectation(signature)};",
        '         once the bug is fixed it prints "no longer fails" and exits with 0.',
        f"Seen on: {versions}",
        f"Made by: {about.command}",
        *remarks,
        *(
            []
            if about.reference
            else ["Eager fails on the original too; results are not compared."]
        ),
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _without_folders(text: str) -> str:
    """Keep the names of files only: a repro names no path of its maker's machine."""
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)


def _expectation(signature: Signature) -> str:
    match signature.kind:
        case Kind.CRASH | Kind.IMA:
            return "the process dies, or raises, with the failure above"
        case Kind.HANG:
            return "it does not end"
        case Kind.OOM:
            return "memory runs out"
        case Kind.MISMATCH | Kind.NAN:
            return "an AssertionError: the compiled result differs from eager's"
        case Kind.ASSERT:
            return "the assertion above, as an exception or an abort"
    return "the error above"

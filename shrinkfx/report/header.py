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
        rate: the part of its runs that fail.
        runs: how often the compiled program is run; above 1 for a flaky failure.
        limits: relative and absolute tolerance by output; empty for the usual ones.
        keeps_state: the program changes its buffers or inputs, so it must be
            compiled before eager runs, and each run gets copies of the inputs.
        calls: how often it must be called before it fails.
        inputs: the file that a user's command takes beside the program, or ''.
    """

    signature: Signature
    command: str
    versions: Mapping[str, str]
    operators: tuple[int, int]
    environment: Mapping[str, str]
    inductor: Mapping[str, Any]
    reference: bool
    random: bool
    rate: float = 1.0
    runs: int = 1
    limits: tuple[tuple[float, float], ...] = ()
    keeps_state: bool = False
    calls: int = 1
    inputs: str = ""


def header(about: About, *remarks: str) -> str:
    signature = about.signature
    before, after = about.operators
    versions = ", ".join(f"{k} {v}" for k, v in about.versions.items())
    by_command = signature.kind is Kind.CHECK
    name = "Program" if by_command else f"{signature.kind} in AOTInductor"
    stage = "--check" if by_command else signature.stage
    lines = [
        f"{name} ({stage}): reduced from {before} operators to {after}.",
        "",
        *textwrap.wrap(_without_folders(signature.text or signature.detail), 84),
        "",
        "Run:     python repro.py",
        "Expect:  " + f"\n{' ' * 9}".join(_expectation(about)),
        f"Seen on: {versions}",
        f"Made by: {about.command}",
        *remarks,
        *(
            []
            if about.reference
            else ["Eager fails on the original too; results are not compared."]
        ),
    ]
    rows = "\n".join(lines).splitlines()
    return "\n".join(f"# {row}".rstrip() for row in rows)


def _without_folders(text: str) -> str:
    """Keep the names of files only: a repro names no path of its maker's machine."""
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)


def _expectation(about: About) -> list[str]:
    if about.signature.kind is Kind.CHECK:
        beside = [f"{{inputs}} is {about.inputs}."] if about.inputs else []
        said = "it writes repro.pt2, for which the command above exits with 0."
        return [said, *beside]
    fixed = 'once the bug is fixed it prints "no longer fails" and exits with 0.'
    flaky = f", in about {about.rate:.2g} of its {about.runs} runs"
    often = flaky if about.runs > 1 else ""
    return [f"{_failure(about.signature)}{often};", fixed]


def _failure(signature: Signature) -> str:
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

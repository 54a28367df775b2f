"""Classify a finding of the interpreter by its one line of text.

The worker prints this line (see ``worker/interpreter/findings.py`` for its forms), and
a repro prints it as well. There is no other record of a finding.
"""

from __future__ import annotations

import re

from shrinkfx.failure.normalise import normalise
from shrinkfx.failure.signature import Kind, Signature, Stage

_LINE = re.compile(r"interpreter(, compile-time benchmark)?: ([^\n]+)")
_ACCESS = re.compile(r"illegal memory access: out-of-bounds (load|store|atomic)")
_KERNEL = re.compile(r"in \w+ \(([^)]*)\)")
_ASSERTION = re.compile(r"device-side assert in \w+ \([^)]*\): (.*?)(?: \[program|$)")
_MISALIGNED = "misaligned"
_VERBS = {"load": "read", "store": "write", "atomic": "write"}


def name_error_unchecked_on_gpu(failure: Signature) -> str:
    """Name the kind of error in a finding that a GPU may let pass, or ''.

    A GPU checks none of these errors. An assertion, a wrong value and a compile error
    do show on a GPU. A misaligned access faults only if Triton reads more than one
    element at a time.
    """
    if failure.kind is Kind.IMA:
        misaligned = failure.detail == _MISALIGNED
        return "a misaligned address" if misaligned else "an out-of-bounds access"
    return "a wrong layout" if failure.detail.startswith("layout of ") else ""


def classify_finding(text: str, stage: Stage) -> Signature | None:
    """Classify a finding; None if there is none, or if it is a check of AOTInductor.

    A finding of the hints probe belongs to the compile stage, because AOTInductor runs
    kernels to benchmark them during compilation.
    """
    if (line := _LINE.search(text)) is None:
        return None
    message = line[2]
    stage = Stage.COMPILE if line[1] else stage
    found = _KERNEL.search(message)
    operators = tuple(found[1].split(", ")) if found and found[1] else ()
    if access := _ACCESS.search(message):
        detail = f"out-of-bounds {_VERBS[access[1]]}"
        return Signature(Kind.IMA, stage, detail, line[0], operators=operators)
    if "misaligned address" in message:
        return Signature(Kind.IMA, stage, _MISALIGNED, line[0], operators=operators)
    if assertion := _ASSERTION.search(message):
        words = assertion[1]
        detail = "index out of bounds" if "out of bounds" in words else normalise(words)
        return Signature(Kind.ASSERT, stage, detail, line[0], operators=operators)
    return None

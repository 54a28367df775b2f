"""Classify compile errors by the messages of the C++ compiler, Triton or Inductor."""

from __future__ import annotations

import re

from shrinkfx.failure.normalise import normalise, normalise_cpp
from shrinkfx.failure.readers.memory import classify_memory_error
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.display_text import first_line, line_of
from shrinkfx.protocol.answers import Raised

_COMPILER_OUT_OF_MEMORY = re.compile(
    r"out of memory allocating|memory exhausted|Cannot allocate memory"
    r"|Killed signal terminated program"
)
_COMPILER = re.compile(r"^[^\n]*?(?:fatal )?error: ([^\n]+)", re.MULTILINE)
_LINKER = re.compile(r"(undefined (?:reference|symbol)[^\n]*|cannot find -l[^\n]*)")
_TRITON = re.compile(r"\bat \d+:\d+:\n.*?\n *\^\n(.+)", re.DOTALL)
_TARGET = re.compile(r"^\s*target: (\S+)", re.MULTILINE)


def classify_compile_error(error: Raised) -> Signature:
    """Classify a compile error by g++'s first ``error:``, else by Inductor's text."""
    message, stage = error.message, Stage.COMPILE
    if "CppCompileError" in message or error.type == "CppCompileError":
        output = message.partition("Output:")[2] or message
        if found := _COMPILER_OUT_OF_MEMORY.search(output):
            return Signature(Kind.OOM, stage, "", line_of(output, found))
        found = _LINKER.search(output) or _COMPILER.search(output)
        text = found[1] if found else first_line(message)
        detail = f"C++: {normalise_cpp(text)}"
        return Signature(Kind.COMPILE_ERROR, stage, detail, text.strip())
    if found := _TRITON.search(message):
        # The message contains the kernel's source before the error.
        line = _innermost_of_triton(found[1])
        text = f"Triton: {line}"
        return Signature(Kind.COMPILE_ERROR, stage, f"Triton: {normalise(line)}", text)
    line = first_line(message)
    if memory := classify_memory_error(line, stage):
        return memory
    # "AssertionError:" with nothing after it, or the dump of a graph, says nothing; the
    # place where it was raised does.
    says_nothing = not line or line.endswith((":", "(", "[", "{"))
    cause = normalise(line)
    if says_nothing:
        cause = f"{line.partition(':')[0]}: {innermost_torch_frame(error)}"
    target = _TARGET.search(message)
    parts = [error.type, cause.strip(), *([target[1]] if target else [])]
    text = f"{error.type}: {line}" + (f" ({target[1]})" if target else "")
    return Signature(Kind.COMPILE_ERROR, stage, " | ".join(parts), text)


def _innermost_of_triton(text: str) -> str:
    """Return the error in the innermost helper function that the kernel calls."""
    while inner := _TRITON.search(text):
        text = inner[1]
    return first_line(text)


def innermost_torch_frame(error: Raised) -> str:
    """Return the innermost frame inside torch, as the identity of an empty message.

    Files of the user are ignored, because they have other names in a repro.
    """
    frames = [f for f in error.frames if f.startswith("torch/")]
    return f"at {frames[-1]}" if frames else ""

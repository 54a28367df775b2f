"""From how a child ended to the identity of its failure.

The texts are those of PyTorch 2.11 to 2.13, g++ and glibc; numbers, names and
paths in them change from candidate to candidate and are taken out.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.messages import Ending

_ILLEGAL_ACCESS = re.compile(
    r"illegal memory access|cudaErrorIllegalAddress|misaligned address"
    r"|cudaErrorInvalidAddressSpace|an illegal instruction was encountered"
)
_HEAP = re.compile(
    r"double free or corruption|malloc\(\): |malloc_consolidate|free\(\): invalid"
    r"|corrupted (?:size|double-linked|unsorted)|munmap_chunk\(\): |invalid fastbin"
)
_BOUNDS = re.compile(
    r"index out of bounds|index \S+ is out of bounds|device-side assert"
)
_ASSERTION = re.compile(
    r"[^\n]*(?:AOTI_TORCH_CHECK|Runtime assertion|Assertion [`'\"]?[^\n]*failed"
    r"|Expression [^\n]* is False|Expected [^\n]* to be True)[^\n]*"
)
_BAD_INPUT = re.compile(
    r"input_handles\[\d+\]: ([\w ]+)|(At least one (?:NaN|INF)) in|dim value is too \w+"
)
_OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc"
    r"|Tried to allocate"
)
_WHAT = re.compile(r"what\(\):\s+([^\n]+)")
_COMPILER = re.compile(r"[^\n]*?(?:fatal )?error: ([^\n]+)")
_LINKER = re.compile(r"(undefined (?:reference|symbol)[^\n]*|cannot find -l[^\n]*)")
_TARGET = re.compile(r"^\s*target: (\S+)", re.MULTILINE)
# g++ quotes with U+2018 and U+2019, Python and Inductor with ' and ".
_QUOTED = re.compile("['\"`\u2018][^'\"`\u2018\u2019]*['\"`\u2019]")
_KEPT_CHARACTERS = 16_000
# The C++ runner may raise no more than "API call failed" and print why before.
_SAID = re.compile(r"^(?:Exception in aoti_torch|Error): ([^\n]+)", re.MULTILINE)
_EAGER_STAGES = frozenset({Stage.START, Stage.REBUILD, Stage.EAGER})
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS})


def normalise(text: str) -> str:
    """Take out of a message what drifts: paths, names in quotes, numbers.

    ``/tmp/x/cab.kernel.cpp:22: 'tmp12' was not`` -> ``: '_' was not``
    """
    text = re.sub(r"(?:/[\w.+-]+)+/?(?::\d+)*", "", text)
    text = _QUOTED.sub("'_'", text)
    text = re.sub(r"\b0x[0-9a-f]+\b", "#", text)
    text = re.sub(r"\b([A-Za-z_]+?)_?\d+\w*", r"\1#", text)
    text = re.sub(r"-?\b\d[\d.]*L?\b", "#", text)
    text = re.sub(r"(?:#, )+#", "#", text)
    return re.sub(r"\s+", " ", text).strip()


def observe(ending: Ending) -> Observation:
    """State what a child's end means, without judging it against a target."""
    stage = Stage(ending.stage)
    signature = _signature(ending, stage)
    invalid = str(ending.answer.get("invalid", ""))
    unresolved = ""
    if ending.how in ("timeout", "memory", "cancelled"):
        unresolved = f"{ending.how} in {stage}"
    elif ending.how == "signal" and ending.code == signal.SIGKILL:
        unresolved, signature = f"killed from outside in {stage}", None
    if not invalid and stage in _EAGER_STAGES and not unresolved:
        invalid = f"{stage}: {_last_words(ending)}"
    return Observation(
        signature=None if invalid else signature,
        invalid=invalid,
        unresolved=unresolved,
        runs=ending.runs,
        seconds=ending.seconds,
        cpu_seconds=ending.cpu_seconds,
        peak_rss_bytes=ending.peak_rss_bytes,
        log=ending.log[-_KEPT_CHARACTERS:],
    )


def _signature(ending: Ending, stage: Stage) -> Signature | None:
    answer = ending.answer
    if ending.how == "timeout":
        return Signature(Kind.HANG, stage, "", "did not end within the time limit")
    if ending.how == "memory":
        return Signature(Kind.OOM, stage, "", "grew beyond the memory limit")
    if ending.how == "signal":
        return _death(ending.code, ending.log, stage)
    if "error" in answer:
        return _raised(answer["error"], ending.log, stage)
    if "difference" in answer:
        return _difference(answer["difference"])
    if ending.code:
        text = f"exit status {ending.code}"
        return Signature(Kind.EXCEPTION, stage, text, text)
    return None


def _death(number: int, log: str, stage: Stage) -> Signature:
    """Name a death by a signal; what the process wrote before comes first."""
    name = signal.Signals(number).name
    # Freeing the result is still the run: that is where a corrupt heap shows.
    stage = Stage.RUN if stage in (Stage.COMPARE, Stage.DONE) else stage
    if known := _known_text(log, stage):
        return known
    if number in _FAULTS:
        kind = Kind.CRASH
        return Signature(kind, stage, MEMORY, name)
    what = _WHAT.search(log)
    text = what[1] if what else ""
    return Signature(
        Kind.CRASH, stage, f"{name} {normalise(text)}".strip(), text or name
    )


def _known_text(text: str, stage: Stage) -> Signature | None:
    """Recognise the run-time failures that say what they are."""
    if found := _BOUNDS.search(text):
        line = _line_of(text, found)
        return Signature(Kind.ASSERT, stage, "index out of bounds", line)
    if found := _ILLEGAL_ACCESS.search(text) or _HEAP.search(text):
        return Signature(Kind.IMA, stage, MEMORY, _line_of(text, found))
    if found := _BAD_INPUT.search(text):
        detail = normalise(found[1] or found[2] or found[0])
        return Signature(Kind.CHECK_INPUTS, stage, detail, _line_of(text, found))
    if found := _ASSERTION.search(text):
        line = _line_of(text, found)
        return Signature(Kind.ASSERT, stage, normalise(line), line)
    if found := _OUT_OF_MEMORY.search(text):
        return Signature(Kind.OOM, stage, "", _line_of(text, found))
    return None


def _raised(error: Mapping[str, Any], log: str, stage: Stage) -> Signature:
    if stage is Stage.COMPILE:
        return _compile_error(error)
    text = str(error["message"])
    if stage in (Stage.RUN, Stage.DONE):
        # The C++ runner's exception only says that a call failed; the reason
        # was printed before.
        known = _known_text(text, Stage.RUN) or _known_text(log, Stage.RUN)
        if known:
            return known
    kind = Kind.LOAD_ERROR if stage is Stage.LOAD else Kind.EXCEPTION
    line = first_line(text)
    if "API call failed" in line and (said := _SAID.findall(log)):
        line = said[-1].strip()
    detail = f"{error['type']}: {normalise(line) or _innermost(error)}"
    return Signature(kind, stage, detail, f"{error['type']}: {line}")


def _compile_error(error: Mapping[str, Any]) -> Signature:
    """Name a compile error: g++'s first ``error:``, else Inductor's own words."""
    message, stage = str(error["message"]), Stage.COMPILE
    if "CppCompileError" in message or error["type"] == "CppCompileError":
        output = message.partition("Output:")[2] or message
        found = _LINKER.search(output) or _COMPILER.search(output)
        text = found[1] if found else first_line(message)
        detail = f"C++: {normalise(text)}"
        return Signature(Kind.COMPILE_ERROR, stage, detail, text.strip())
    line = first_line(message)
    # "AssertionError:" and nothing behind it tells nothing: where it was raised does.
    says_nothing = not line or line.endswith(":")
    cause = f"{line} {_innermost(error)}" if says_nothing else normalise(line)
    target = _TARGET.search(message)
    parts = [error["type"], cause.strip(), *([target[1]] if target else [])]
    text = f"{error['type']}: {line}" + (f" ({target[1]})" if target else "")
    return Signature(Kind.COMPILE_ERROR, stage, " | ".join(parts), text)


def _difference(difference: Mapping[str, Any]) -> Signature:
    """Name a wrong result. A wrong dtype shows as wrong values further down, so
    only the kind is the identity."""
    kind = Kind.NAN if difference["what"] == "nan" else Kind.MISMATCH
    return Signature(kind, Stage.COMPARE, "", str(difference["text"]))


def first_line(message: str) -> str:
    """Pick the first line that says something."""
    return next((s.strip() for s in message.splitlines() if s.strip()), "")


def _innermost(error: Mapping[str, Any]) -> str:
    """Name the innermost frame inside torch: the identity of an empty message."""
    frames = list(error.get("frames", []))
    inside = [f for f in frames if f.startswith("torch/")]
    return f"at {(inside or frames or ['?'])[-1]}"


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[start : len(text) if end < 0 else end]
    return re.sub(r"^\s*what\(\):\s*", "", line).strip()


def _last_words(ending: Ending) -> str:
    error = ending.answer.get("error")
    if error:
        return f"{error['type']}: {first_line(str(error['message']))}"
    if ending.how == "signal":
        return f"died by {signal.Signals(ending.code).name}"
    return f"ended with status {ending.code}"

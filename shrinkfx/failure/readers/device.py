"""Parse messages about failed kernels: CUDA's, and the interpreter's."""

from __future__ import annotations

import re

from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage, normalise
from shrinkfx.program.display_text import line_of

# The patterns match the messages of ``cudaGetErrorString`` and the names of
# ``cudaGetErrorName`` in libcudart 13.0. PyTorch prefixes them with ``CUDA error: ``
# (``c10/cuda/CUDAException.cpp``), AOTInductor's runtime with ``CUDA driver error:
# ``, and Triton with ``Triton Error [CUDA]: ``. The driver writes lines to the log of
# the operating system's kernel.

_ILLEGAL_ACCESS = re.compile(
    r"illegal memory access|cudaErrorIllegalAddress"
    r"|misaligned address|cudaErrorMisalignedAddress"
    r"|operation not supported on global/shared address space"
    r"|cudaErrorInvalidAddressSpace"
    r"|unspecified launch failure|cudaErrorLaunchFailure"
)
"""Messages of an out-of-bounds access.

One wrong pointer can show as any of these: as unmapped memory, as another address
space, as a misaligned address or, in shared memory, as a launch failure (719).
"""

_ILLEGAL_EXECUTION = {
    "illegal instruction": r"an illegal instruction was encountered"
    r"|cudaErrorIllegalInstruction",
    "invalid program counter": r"invalid program counter|cudaErrorInvalidPc",
    "hardware stack error": r"hardware stack error|cudaErrorHardwareStackError",
}
"""Errors of the instruction stream, not of a memory access, like SIGILL on a CPU."""

_TOO_LONG = re.compile(
    r"the launch timed out and was terminated|cudaErrorLaunchTimeout"
)
_OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED"
    r"|(?:CUDA(?: driver)? error|Triton Error \[CUDA\]): out of memory"
)
_ERROR_HEAD = r"(?:CUDA(?: driver)? error|Triton Error \[CUDA\]): (?:"
_BROKEN = re.compile(
    _ERROR_HEAD + r"uncorrectable ECC error encountered"
    r"|uncorrectable NVLink error detected[^\n]*"
    r"|Invalid access of peer GPU memory over nvlink or a hardware error"
    r"|CUDA-capable device\(s\) is/are busy or unavailable"
    r"|no CUDA-capable device is detected|initialization error"
    r"|driver shutting down|system not yet initialized|unknown error)"
    r"|cudaErrorECCUncorrectable|cudaErrorNvlinkUncorrectable|cudaErrorContained"
    r"|cudaErrorDevicesUnavailable|cudaErrorNoDevice|cudaErrorUnknown"
    r"|GPU is lost|GPU has fallen off the bus"
)
_LOST = re.compile(
    _ERROR_HEAD + r"no CUDA-capable device is detected)"
    r"|cudaErrorNoDevice|GPU is lost|GPU has fallen off the bus"
)

_PRINTED = re.compile(r"block: \[[\d,]+\][^\n]*? Assertion [`'](.*?)[`'] failed")
TRIGGERED = "device-side assert triggered"
_BOUNDS = re.compile(r"out of bounds")


def find_printed_assertion(text: str) -> str:
    """Return the line that a kernel prints when its assertion fails, or ''."""
    found = _PRINTED.search(text)
    return line_of(text, found) if found else ""


def classify_kernel_death(text: str, stage: Stage) -> Signature | None:
    """Classify the error that killed a kernel; None if there is no such message.

    Device-side assertions are excluded, because their text is printed elsewhere; the
    next function classifies them.
    """
    if found := _ILLEGAL_ACCESS.search(text):
        return Signature(Kind.IMA, stage, MEMORY_FAULT, line_of(text, found))
    for detail, words in _ILLEGAL_EXECUTION.items():
        if found := re.search(words, text):
            return Signature(Kind.CRASH, stage, f"CUDA: {detail}", line_of(text, found))
    if found := _TOO_LONG.search(text):
        return Signature(Kind.HANG, stage, "", line_of(text, found))
    if found := _OUT_OF_MEMORY.search(text):
        return Signature(Kind.OOM, stage, "", line_of(text, found))
    return None


def classify_device_assertion(text: str, stage: Stage) -> Signature | None:
    """Classify the assertion that a device printed; None if it printed none.

    Threads, blocks and kernels print in any order. An index out of bounds takes
    precedence; of the other assertions, the alphabetically first one counts, so that
    the same run yields the same failure.
    """
    if TRIGGERED not in text:
        return None
    messages = sorted(set(_PRINTED.findall(text)), key=lambda words: normalise(words))
    bounds = [words for words in messages if _BOUNDS.search(words)]
    if bounds:
        return Signature(Kind.ASSERT, stage, "index out of bounds", bounds[0])
    if messages:
        return Signature(Kind.ASSERT, stage, normalise(messages[0]), messages[0])
    return None


def find_gpu_failure(text: str) -> str:
    """Return the line that shows a GPU failure which no program can cause, or ''."""
    found = _BROKEN.search(text)
    return line_of(text, found) if found else ""


def find_gpu_loss(text: str) -> str:
    """Return the line that shows that the GPU is no longer available, or ''."""
    found = _LOST.search(text)
    return line_of(text, found) if found else ""


# Classify a finding of the interpreter by its one line of text.
#
# The worker prints this line (see ``worker/interpreter/findings.py`` for its forms),
# and a repro prints it as well. There is no other record of a finding.

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

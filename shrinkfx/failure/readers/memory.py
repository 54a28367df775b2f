"""Classify memory corruption and exhaustion by messages of glibc, PyTorch and CUDA."""

from __future__ import annotations

import re

from shrinkfx.failure.readers import device
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.program.display_text import line_of

_HEAP = re.compile(
    r"double free or corruption|(?:malloc|calloc|realloc|free|malloc_consolidate"
    r"|munmap_chunk|mremap_chunk|unlink_chunk|tcache_\w+)\(\): "
    r"|corrupted (?:size|double-linked|unsorted)|invalid fastbin"
    r"|malloc: Assertion|Fatal glibc error: malloc"
    r"|\*\*\* (?:stack smashing|buffer overflow) detected"
)
_OUT_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc"
    r"|Tried to allocate|\bMemoryError\b"
)


def classify_memory_error(text: str, stage: Stage) -> Signature | None:
    """Classify memory errors, which can occur at any stage.

    Compilation runs kernels, too.
    """
    if died := device.classify_kernel_death(text, stage):
        return died
    if found := _HEAP.search(text):
        return Signature(Kind.IMA, stage, MEMORY_FAULT, line_of(text, found))
    if found := _OUT_OF_MEMORY.search(text):
        return Signature(Kind.OOM, stage, "", line_of(text, found))
    return None

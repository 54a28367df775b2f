"""Retry a check whose ending may hide the actual failure.

A crash in which several threads threw is repeated in one thread. Usually each
exception's message is saved where it is thrown (``worker/forkserver/last_words.cpp``).
It is not in a script that a bare Python runs, as another user would run it, nor where
that library could not be built.

A hang of a program that may have corrupted the heap is repeated too: usually the
allocator notices the corruption and aborts, but it may also wait forever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shrinkfx.failure.readers.threads import has_full_exception_text, may_vary_by_thread
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions, Request


def ask_with_retry(
    server: Callable[[Request], Ending],
    request: Request,
    is_in_doubt: Callable[[Ending], bool] = may_vary_by_thread,
) -> Ending:
    """Send a request, and repeat it in one thread if the message is in doubt.

    The second run counts only if it ends in the same way, at the same stage and with a
    message, because a loop in one thread throws what its first part throws. In any
    other case one thread tells nothing about several.

    Args:
        is_in_doubt: tells whether another thread's message may be the failure's.

    Returns:
        The ending that counts, with the time and memory of both runs.
    """
    ending = server(request)
    if request.one_thread or not is_in_doubt(ending):
        return ending
    alone = server(replace(request, one_thread=True))
    counts = has_full_exception_text(alone) and alone.stage == ending.stage
    return replace(
        alone if counts else ending,
        runs=ending.runs,
        seconds=ending.seconds + alone.seconds,
        waited_s=ending.waited_s + alone.waited_s,
        cpu_seconds=ending.cpu_seconds + alone.cpu_seconds,
        peak_rss_bytes=max(ending.peak_rss_bytes, alone.peak_rss_bytes),
    )


def may_crash_instead(
    seen: Observation, target: Signature, options: CheckOptions
) -> bool:
    """Tell whether a program that hangs may crash with the same error in the next run.

    Not with guard pages: there it crashes at the out-of-bounds access, before the heap
    is corrupted.
    """
    overruns = target.detail == MEMORY_FAULT and target.stage is Stage.RUN
    signature = seen.signature
    hangs = signature is not None and signature.kind is Kind.HANG
    ran = signature is not None and signature.stage in (Stage.RUN, Stage.COMPARE)
    return overruns and hangs and ran and options.guard_pages is Guard.OFF

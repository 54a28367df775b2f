"""Look again where what has ended a program may not be what ails it.

At a death of which several threads were to tell, in one thread. Mostly what threads
throw is kept where they throw it (``worker/forkserver/last_words.cpp``). Not by a
script that a bare Python runs, as a stranger would, and not where that library could
not be built.

At a hang of what may have overrun the heap: the allocator may wait for ever then, where
it mostly notices, and aborts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shrinkfx.failure.readers.threads import has_words, is_of_any_thread
from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions, Request


def ask(
    server: Callable[[Request], Ending],
    request: Request,
    is_in_doubt: Callable[[Ending], bool] = is_of_any_thread,
) -> Ending:
    """Ask, and once more in one thread where what was thrown is in doubt.

    The second run counts only if it ends in the same way, at the same stage, and says
    of what: in one thread a loop throws what its first part throws. Nothing else that
    one thread does tells what several have done.
    """
    ending = server(request)
    if request.one_thread or not is_in_doubt(ending):
        return ending
    alone = server(replace(request, one_thread=True))
    told = has_words(alone) and alone.stage == ending.stage
    return replace(
        alone if told else ending,
        runs=ending.runs,
        seconds=ending.seconds + alone.seconds,
        waited_s=ending.waited_s + alone.waited_s,
        cpu_seconds=ending.cpu_seconds + alone.cpu_seconds,
        peak_rss_bytes=max(ending.peak_rss_bytes, alone.peak_rss_bytes),
    )


def may_die_instead(
    seen: Observation, target: Signature, options: CheckOptions
) -> bool:
    """Tell whether what hangs may die of the same error the next time.

    With guard pages it dies where it strays, before the heap is overrun.
    """
    overruns = target.detail == MEMORY and target.stage is Stage.RUN
    found = seen.signature
    hangs = found is not None and found.kind is Kind.HANG
    ran = found is not None and found.stage in (Stage.RUN, Stage.COMPARE)
    return overruns and hangs and ran and options.guard_pages is Guard.OFF

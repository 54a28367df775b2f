"""What threads throw at once: in their order, and never more than one failure."""

from __future__ import annotations

import signal
import time

import pytest

from shrinkfx.failure.classify import NO_EXCEPTION_TEXT, classify_ending
from shrinkfx.failure.readers.threads import (
    keep_first_thread_exception,
    sort_thread_exceptions,
)
from shrinkfx.failure.signature import Kind, Signature
from shrinkfx.protocol.answers import Ending

BOUNDS = "index out of bounds: 0 <= tmp2 < 128L"
ANOTHER = "planted: element 3 is odd"
DUMP = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File x\n"


def kept(thread: int, what: str, frame: str = "kernel") -> str:
    """Write what a child does for one of its threads."""
    return (
        f"terminate called in thread {thread} of 16 after throwing an instance of "
        f"'c10::Error'\n  what():  {what}\nframe #0: {frame}\n"
        f"(that was thread {thread})\n"
    )


def libstdcxx(what: str) -> str:
    return (
        "terminate called after throwing an instance of 'c10::Error'\n"
        f"  what():  {what}\n"
    )


def aborted(log: str) -> Ending:
    return Ending("signal", signal.SIGABRT, "run", log=log)


def signature(log: str) -> Signature:
    found = classify_ending(aborted(log)).signature
    assert found is not None
    return found


def test_thread_exceptions_are_sorted_and_deduplicated() -> None:
    log = f"before\n{kept(9, BOUNDS)}{kept(0, BOUNDS, 'main')}{kept(2, BOUNDS)}{DUMP}"
    ordered = sort_thread_exceptions(log)
    assert ordered.count(BOUNDS) == 2
    first, second = ordered.index("in thread 0 of 16"), ordered.index("threads 2, 9 of")
    assert ordered.index("before") < first < ordered.index("frame #0: main") < second
    assert second < ordered.index("frame #0: kernel") < ordered.index(DUMP)
    assert classify_ending(aborted(log)).log == ordered


def test_long_stack_does_not_displace_other_threads() -> None:
    deep = "\n".join(f"frame #{n}: {'x' * 200}" for n in range(400))
    log = kept(1, BOUNDS, deep) + kept(0, ANOTHER, deep) + DUMP
    said = classify_ending(aborted(log)).log
    assert said.index(ANOTHER) < said.index(BOUNDS) < said.index(DUMP)


def test_unterminated_exception_texts_are_parsed_in_linear_time() -> None:
    log = "terminate called in thread 1 of 1 \n" * 14_000 + kept(0, BOUNDS)
    begun = time.process_time()
    assert signature(log).kind is Kind.ASSERT
    assert time.process_time() - begun < 5.0


@pytest.mark.parametrize("order", [(0, 9), (9, 0)])
def test_exception_of_the_first_thread_is_the_failure(
    order: tuple[int, int],
) -> None:
    what = {0: ANOTHER, 9: BOUNDS}
    log = "".join(kept(thread, what[thread]) for thread in order) + DUMP
    assert BOUNDS not in keep_first_thread_exception(log)
    found = signature(log)
    assert (found.kind, found.text) == (Kind.EXCEPTION, f"RuntimeError: {ANOTHER}")
    what = {9: ANOTHER, 0: BOUNDS}
    log = "".join(kept(thread, what[thread]) for thread in order) + DUMP
    assert signature(log).kind is Kind.ASSERT


def test_signature_is_independent_of_writer_and_thread_count() -> None:
    for what in (BOUNDS, ANOTHER):
        ways = [
            kept(0, what) + DUMP,
            kept(3, what) + kept(2, what) + DUMP,
            libstdcxx(what) + DUMP,
            libstdcxx(what) + "terminate called recursively\n" + DUMP,
        ]
        assert len({signature(way) for way in ways}) == 1


LOST = [
    "terminate called after throwing an instance of 'terminate called recursively\n",
    "terminate called after throwing an instance of 'c10::Error'\n"
    "  what():  terminate called recursively\n",
    "terminate called recursively\nterminate called recursively\n",
    "terminate called after throwing an instance of 'c10::Error'\n"
    "terminate called recursively\n  what():  ",
]


@pytest.mark.parametrize("lost", LOST)
def test_lost_exception_text_is_a_crash_without_text(lost: str) -> None:
    found = signature(lost + DUMP)
    assert (found.kind, found.detail) == (Kind.CRASH, NO_EXCEPTION_TEXT)


@pytest.mark.parametrize("lost", LOST)
def test_lost_exception_text_does_not_match_other_aborts(lost: str) -> None:
    found = signature(lost + DUMP)
    for other in (DUMP, libstdcxx(BOUNDS) + DUMP, libstdcxx(ANOTHER) + DUMP):
        assert not found.admits(signature(other))
        assert not signature(other).admits(found)

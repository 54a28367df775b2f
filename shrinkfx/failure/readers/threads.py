"""What several threads have thrown at once, as a log has it.

A check's child writes it thread by thread (``worker/forkserver/last_words.cpp``). A
bare Python has libstdc++ write it, which loses words where two threads throw: it says
"terminate called recursively", and no ``what()`` or the wrong half of one.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from shrinkfx.protocol.answers import Ending

# Line by line, up to the next one's words: whatever a program prints is read once.
_KEPT = re.compile(
    r"^terminate called in thread (\d+) of (\d+) (.*\n"
    r"(?:(?!terminate called in thread |\(that was thread ).*\n)*)"
    r"\(that was thread \1\)\n",
    re.MULTILINE,
)
_AT_ONCE = "terminate called recursively"
_NAMED = re.compile(
    r"^terminate called (?:in thread \d+ of \d+ )?after throwing an instance of "
    r"'[^'\n]+'$",
    re.MULTILINE,
)
_WHAT = re.compile(rf"what\(\):[ \t]+(?!{_AT_ONCE}|Fatal Python error: )(\S[^\n]*)")

_LINES = 20
"""What is shown of a thread: its words, and the frames where it threw."""


@dataclass(frozen=True)
class _Words:
    """What one thread has thrown.

    Attributes:
        thread: its number in its team, of ``team``; those of low number have the
            first parts of a loop.
    """

    thread: int
    team: int
    said: str

    @classmethod
    def read(cls, found: re.Match[str]) -> _Words:
        return cls(int(found[1]), int(found[2]), found[3])


def in_order(log: str) -> str:
    """Have the words of threads stand in the order of these, equal ones once."""
    words = _all_words(log)
    same: dict[str, list[int]] = {}
    for each in words:
        same.setdefault(_innermost(each.said), []).append(each.thread)
    texts = [
        f"terminate called in {_named(threads)} of {words[0].team} {said}"
        for said, threads in same.items()
    ]
    return _in_place_of_words(log, "".join(texts))


def of_the_first(log: str) -> str:
    """Leave out what other threads threw than the first part of the loop did.

    That is what the loop throws where it runs in one thread, so it is the failure, in
    whatever order they came to it.
    """
    words = _all_words(log)
    first = [f"terminate called {words[0].said}"] if words else []
    return _in_place_of_words(log, "".join(first))


def thrown(log: str) -> str:
    """Find the words of what was thrown and caught by nobody; '' if there are none."""
    found = _WHAT.search(log)
    return found[1].strip() if found else ""


def is_without_words(ending: Ending) -> bool:
    """Tell whether threads threw at once, so that none could say what."""
    return _threw(ending) and _AT_ONCE in ending.log and not thrown(ending.log)


def is_of_any_thread(ending: Ending) -> bool:
    """Tell whether it may be another thread's words that are there the next time."""
    return _threw(ending) and not _KEPT.search(ending.log)


def has_words(ending: Ending) -> bool:
    """Tell whether it died of what was thrown, and said all of it."""
    if not _threw(ending) or _AT_ONCE in ending.log:
        return False
    return _NAMED.search(ending.log) is not None


def _threw(ending: Ending) -> bool:
    aborted = (ending.how, ending.code) == ("signal", signal.SIGABRT)
    return aborted and "terminate called" in ending.log


def _all_words(log: str) -> list[_Words]:
    """Read what threads said, in their order."""
    words = map(_Words.read, _KEPT.finditer(log))
    return sorted(words, key=lambda each: each.thread)


def _in_place_of_words(log: str, text: str) -> str:
    """Put a text where the words of threads begin, and take those out."""
    first = _KEPT.search(log)
    if first is None:
        return log
    return log[: first.start()] + text + _KEPT.sub("", log[first.start() :])


def _innermost(said: str) -> str:
    """Leave out what is far from the throw: Python's own hundred frames, say."""
    lines = said.splitlines(keepends=True)
    return "".join([*lines[:_LINES], *(["...\n"] if len(lines) > _LINES else [])])


def _named(threads: list[int]) -> str:
    numbers = ", ".join(map(str, threads))
    return f"thread{'s' if len(threads) > 1 else ''} {numbers}"

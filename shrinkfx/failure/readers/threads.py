"""Parse the exceptions and the stacks of threads."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.protocol.answers import Ending

# The child of a check writes them thread by thread
# (``worker/forkserver/last_words.cpp``). In a bare Python, libstdc++ writes them and
# loses text if two threads throw: it prints "terminate called recursively", and no
# ``what()`` or the wrong half of one.

# The pattern goes line by line, up to the next thread's text, so that it reads the
# output of a program only once.
_EXCEPTION = re.compile(
    r"^terminate called in thread (\d+) of (\d+) (.*\n"
    r"(?:(?!terminate called in thread |\(that was thread ).*\n)*)"
    r"\(that was thread \1\)\n",
    re.MULTILINE,
)
_THREW_AT_ONCE = "terminate called recursively"
_NAMED = re.compile(
    r"^terminate called (?:in thread \d+ of \d+ )?after throwing an instance of "
    r"'[^'\n]+'$",
    re.MULTILINE,
)
_WHAT = re.compile(
    rf"what\(\):[ \t]+(?!{_THREW_AT_ONCE}|Fatal Python error: )(\S[^\n]*)"
)

_LINES = 20
"""The number of lines shown per thread: its exception, and the frames of the throw."""


@dataclass(frozen=True)
class _ThreadException:
    """The exception that one thread threw.

    Attributes:
        thread: the number of the thread in its team of ``team`` threads. Low numbers
            have the first parts of a loop.
    """

    thread: int
    team: int
    text: str

    @classmethod
    def read(cls, found: re.Match[str]) -> _ThreadException:
        return cls(int(found[1]), int(found[2]), found[3])


def sort_thread_exceptions(log: str) -> str:
    """Sort the exceptions in a log by thread number, and merge equal ones."""
    words = _parse_exceptions(log)
    same: dict[str, list[int]] = {}
    for each in words:
        same.setdefault(_innermost(each.text), []).append(each.thread)
    texts = [
        f"terminate called in {_thread_list(threads)} of {words[0].team} {message}"
        for message, threads in same.items()
    ]
    return _replace_exceptions(log, "".join(texts))


def keep_first_thread_exception(log: str) -> str:
    """Remove all exceptions from a log but that of the lowest-numbered thread.

    This thread has the first part of the loop, so a loop in a single thread would throw
    the same exception. Therefore it identifies the failure, whatever the order in time.
    """
    words = _parse_exceptions(log)
    first = [f"terminate called {words[0].text}"] if words else []
    return _replace_exceptions(log, "".join(first))


def find_uncaught_message(log: str) -> str:
    """Return the message of an uncaught exception; '' if there is none."""
    found = _WHAT.search(log)
    return found[1].strip() if found else ""


def lost_exception_text(ending: Ending) -> bool:
    """Return whether threads threw at once, so that no message was printed."""
    return (
        _has_uncaught_exception(ending)
        and _THREW_AT_ONCE in ending.log
        and not find_uncaught_message(ending.log)
    )


def may_vary_by_thread(ending: Ending) -> bool:
    """Return whether another run might print the exception of another thread."""
    return _has_uncaught_exception(ending) and not _EXCEPTION.search(ending.log)


def has_full_exception_text(ending: Ending) -> bool:
    """Return whether an uncaught exception ended the process and was fully printed."""
    if not _has_uncaught_exception(ending) or _THREW_AT_ONCE in ending.log:
        return False
    return _NAMED.search(ending.log) is not None


def _has_uncaught_exception(ending: Ending) -> bool:
    aborted = (ending.how, ending.code) == ("signal", signal.SIGABRT)
    return aborted and "terminate called" in ending.log


def _parse_exceptions(log: str) -> list[_ThreadException]:
    """Parse the exceptions of all threads, in order of the thread numbers."""
    words = map(_ThreadException.read, _EXCEPTION.finditer(log))
    return sorted(words, key=lambda each: each.thread)


def _replace_exceptions(log: str, text: str) -> str:
    """Replace the exceptions of all threads by a text, at the first one's place."""
    first = _EXCEPTION.search(log)
    if first is None:
        return log
    return log[: first.start()] + text + _EXCEPTION.sub("", log[first.start() :])


def _innermost(text: str) -> str:
    """Cut a stack far from the throw, such as Python's own hundred frames."""
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:_LINES], *(["...\n"] if len(lines) > _LINES else [])])


def _thread_list(threads: list[int]) -> str:
    numbers = ", ".join(map(str, threads))
    return f"thread{'s' if len(threads) > 1 else ''} {numbers}"


# Find the user's code in the stack that faulthandler dumps at a hang or a death.
#
# The dump contains only paths and names. Installed files, files of Python and
# generated files do not count as the user's.

_DUMP = re.compile(
    r"^(?:Current thread .*|Stack )\(most recent call first\):\n", re.MULTILINE
)
"""The line above the frames of the thread that died; for a hang, of the main thread."""

_FRAME = re.compile(r'  File "([^"]+)", line \d+ in (\S+)')

_NOT_USER_CODE = re.compile(
    r"<"  # no file: generated, or frozen
    r"|.*/(?:site|dist)-packages/"
    r"|.*/lib/python3[.\d]*/"
    r"|.*/torch/"  # built from source
    r"|.*/shrinkfx/worker/"
    r"|.*/c[a-z2-7]{51}\.py$"  # Inductor's, named by a hash
)

_REPRO = "repro.py"


def find_user_frame(log: str) -> str:
    """Return the innermost function of the user's code, as ``passes.py:settle``; or ''.

    A function that a repro embeds is named without the file.

    >>> find_user_frame('''Current thread 0x00007f17f1459b80 (most recent call first):
    ...   File "/env/site-packages/torch/fx/node.py", line 887 in __setattr__
    ...   File "/home/me/passes.py", line 15 in settle
    ...   File "/env/site-packages/torch/_inductor/compile_fx.py", line 582 in passes
    ...   File "/home/me/repro.py", line 68 in <module>
    ... ''')
    'passes.py:settle'
    """
    dumps = [*_DUMP.finditer(log)]
    if not dumps:
        return ""
    for line in log[dumps[-1].end() :].splitlines():
        frame = _FRAME.match(line)
        if frame is None:
            break
        path, function = frame.groups()
        if not _NOT_USER_CODE.match(path) and function != "<module>":
            file = Path(path).name
            return function if file == _REPRO else f"{file}:{function}"
    return ""

"""``shrinkfx verify DIR``: which of the known bugs in a folder still occur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shrinkfx import api
from shrinkfx.errors import ShrinkfxError, UsageError
from shrinkfx.events import Listener, NoteAdded, RunEnded

FAILS, PASSES, OTHERWISE, ERROR = "fails", "passes", "ends differently", "error"


@dataclass(frozen=True)
class KnownBugResult:
    """The outcome of the repro of a known bug.

    Attributes:
        bug: the title of the bug, with its issue or folder.
        status: whether the repro fails as its header states.
        detail: how it ends, if it ends differently; or the reason of an error; or ''.
        versions: on which other versions of PyTorch it fails, in a sentence; or ''.
    """

    folder: Path
    bug: str
    status: str
    detail: str = ""
    versions: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.status}: {self.bug}{detail}"


Verify = Callable[[Path], api.Confirmed]
"""Runs the repro in a folder."""


def verify_known_bugs(
    bugs: Mapping[Path, str], verify: Verify, listener: Listener
) -> Callable[[], RunEnded]:
    """Run the repro of each bug; return a function that prints the results.

    If a repro cannot be run, the others still run. After Ctrl-C, the results so far are
    printed.

    Args:
        bugs: the names of the bugs, by the folders of their runs.

    Raises:
        UsageError: the options do not fit, or the user does not agree to install a
            version of PyTorch.
    """
    results: list[KnownBugResult] = []
    is_interrupted = False
    with suppress(KeyboardInterrupt):
        for folder, bug in bugs.items():
            is_interrupted = True  # unless the next line ends
            result, is_interrupted = _verify_bug(folder, bug, verify)
            results.append(result)
            listener(NoteAdded(f"[{len(results)}/{len(bugs)}] {result}"))
            if is_interrupted:
                break
    return partial(_print, results, len(bugs), is_interrupted=is_interrupted)


def _verify_bug(folder: Path, bug: str, verify: Verify) -> tuple[KnownBugResult, bool]:
    """Return the result of a bug, and whether Ctrl-C has ended it early."""
    try:
        seen = verify(folder)
    except UsageError:
        raise
    except ShrinkfxError as error:
        reason = str(error).partition("\n")[0]
        return KnownBugResult(folder, bug, ERROR, reason), False
    status, detail = OTHERWISE, seen.seen
    if seen.fails or seen.seen == PASSES:
        status, detail = FAILS if seen.fails else PASSES, ""
    versions = seen.versions.sentence if seen.versions else ""
    return KnownBugResult(folder, bug, status, detail, versions), seen.interrupted


def _print(
    results: Sequence[KnownBugResult], count: int, *, is_interrupted: bool
) -> RunEnded:
    for line in _render_lines(results, count):
        print(line)
    by_bug = [{**vars(each), "folder": str(each.folder)} for each in results]
    statuses = {each.status for each in results}
    status, code = PASSES, 3
    if is_interrupted:
        status, code = "interrupted", 4
    elif ERROR in statuses:
        status, code = ERROR, 2
    elif statuses == {FAILS}:
        status, code = FAILS, 0
    return RunEnded(status, code, result={"bugs": by_bug})


def _render_lines(results: Sequence[KnownBugResult], count: int) -> Iterator[str]:
    for each in results:
        yield str(each)
        if each.versions:
            yield f"  {each.versions}"
    counts = Counter(each.status for each in results)
    parts = [f"{status}: {number}" for status, number in counts.items()]
    if missing := count - len(results):
        parts.append(f"not run: {missing}")
    yield f"known bugs: {count}; {', '.join(parts)}"

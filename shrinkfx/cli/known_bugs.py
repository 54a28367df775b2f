"""``shrinkfx verify DIR``: which of the known bugs in a folder still occur."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shrinkfx import api
from shrinkfx.errors import ShrinkfxError
from shrinkfx.events import Listener, NoteAdded, RunEnded

FAILS, PASSES, OTHERWISE, ERROR = "fails", "passes", "ends differently", "error"


@dataclass(frozen=True)
class KnownBugResult:
    """What the repro of a known bug does today.

    Attributes:
        bug: the title of the bug, with its issue or folder.
        status: whether the repro fails as its header states.
        detail: how it ends otherwise, or the reason of an error; or ''.
        versions: on which other versions of PyTorch it fails, in a sentence; or ''.
    """

    folder: Path
    bug: str
    status: str
    detail: str = ""
    versions: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.status + ':':10} {self.bug}{detail}"


Verify = Callable[[Path], api.Confirmed]
"""Runs the repro in a folder."""


def verify_known_bugs(
    bugs: Mapping[Path, str], verify: Verify, listener: Listener
) -> Callable[[], RunEnded]:
    """Run the repro of each bug; return a function that prints the results.

    An error costs only its own bug. After Ctrl-C, the results so far are printed.

    Args:
        bugs: the names of the bugs, by the folders of their runs.

    """
    results: list[KnownBugResult] = []
    with suppress(KeyboardInterrupt):
        for folder, bug in bugs.items():
            results.append(_verify_bug(folder, bug, verify))
            listener(NoteAdded(f"[{len(results)}/{len(bugs)}] {results[-1]}"))
    return partial(_print, results, len(bugs))


def _verify_bug(folder: Path, bug: str, verify: Verify) -> KnownBugResult:
    try:
        confirmed = verify(folder)
    except ShrinkfxError as error:
        return KnownBugResult(folder, bug, ERROR, str(error).partition("\n")[0])
    table = confirmed.versions
    versions = table.sentence if table else ""
    if confirmed.fails:
        return KnownBugResult(folder, bug, FAILS, versions=versions)
    if confirmed.seen == PASSES:
        return KnownBugResult(folder, bug, PASSES, versions=versions)
    return KnownBugResult(folder, bug, OTHERWISE, confirmed.seen, versions)


def _print(results: Sequence[KnownBugResult], count: int) -> RunEnded:
    for line in _render_lines(results, count):
        print(line)
    by_bug = [{**vars(each), "folder": str(each.folder)} for each in results]
    status, code = FAILS, 0
    if any(each.status != FAILS for each in results):
        status, code = PASSES, 3
    if len(results) < count:
        status, code = "interrupted", 4
    return RunEnded(status, code, result={"bugs": by_bug})


def _render_lines(results: Sequence[KnownBugResult], count: int) -> Iterator[str]:
    for each in results:
        yield str(each)
        if each.versions:
            yield f"{'':10} {each.versions}"
    counts = Counter(each.status for each in results)
    parts = [f"{number} {_COUNTED[status]}" for status, number in counts.items()]
    if missing := count - len(results):
        parts.append(f"{missing} not run")
    yield f"{count} known bugs: {', '.join(parts)}"


_COUNTED = {
    FAILS: "still fail",
    PASSES: "pass",
    OTHERWISE: "end differently",
    ERROR: "with an error",
}

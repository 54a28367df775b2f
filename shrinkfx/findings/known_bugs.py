"""Known bugs: folders with the results of earlier runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from shrinkfx.failure.signature import Kind, Signature
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.pattern import Pattern
from shrinkfx.program.display_text import printable
from shrinkfx.system.folders import ISSUE, SUMMARY

RUNS = "runs"
"""Subfolder of the output folder of a triage, with the folders of its runs."""

BUG = "bug.json"
"""Name of a file that a user may add to the folder of a run: a JSON object with the
address of the bug's ``issue``, and its ``title``.
"""


@dataclass(frozen=True)
class KnownBug:
    """A bug that an earlier run has reduced.

    Attributes:
        folder: the folder of that run, or a copy of it.
        title: one line that describes it.
        issue: the address of its issue, or ''.
        signature: the failure of the program that was reduced.
        pattern: the reduced program.
        rest: the outcome of the input program without the operators of the reduced
            program, such as ``passed``; or '' if it was not tested.
    """

    folder: Path
    title: str
    issue: str
    signature: Signature
    pattern: Pattern
    rest: str = ""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the bug in the folder of a run.

        Raises:
            OSError: a file cannot be read.
            ValueError: it is not a run with a verified repro, or a file is damaged.
        """
        try:
            summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
            verified = summary["verified"]
            if not 0 < verified["failed"] == verified["runs"]:
                raise ValueError("its repro does not fail in every run")
            added = folder / BUG
            named = json.loads(added.read_text("utf-8")) if added.is_file() else {}
            title = named.get("title") or _title(folder) or summary["failure"]
            return cls(
                folder,
                printable(str(title)),
                printable(str(named.get("issue") or "")),
                Signature.from_json(summary["signature"]),
                Pattern.from_json(summary["pattern"]),
                summary.get("without_it", ""),
            )
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"not a summary of this version: {error!r}") from error

    @property
    def may_hide_another(self) -> bool:
        """Whether the program may have another bug, which a run can find."""
        return self.rest != Outcome.PASSED and self.pattern.is_searchable

    def may_be(self, failure: Signature) -> bool:
        """Return whether a failure has the same signature as this bug's failure."""
        known = replace(self.signature, match="", only="")
        return known.admits(failure) or replace(failure, match="", only="").admits(
            known
        )

    def has_same_error_as(self, other: KnownBug) -> bool:
        """Return whether both are the same compile error, perhaps of two operators."""
        error = other.signature
        is_error = error.kind is Kind.COMPILE_ERROR and bool(error.detail)
        return is_error and self.may_be(error)

    def __str__(self) -> str:
        return f"{self.title} ({self.issue or self.folder})"


def _title(folder: Path) -> str:
    """Return the title of the issue in a folder, or ''."""
    path = folder / ISSUE
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8") as file:
        return file.readline().removeprefix("# ").strip()


def find_bug_folders(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the folders with the result of a run.

    These are the given folders, those directly inside, and the runs of a triage.
    """
    for folder in folders:
        inside = [*folder.glob(f"*/{SUMMARY}"), *folder.glob(f"{RUNS}/*/{SUMMARY}")]
        found = (folder / SUMMARY, *sorted(inside))
        yield from (path.parent for path in found if path.is_file())

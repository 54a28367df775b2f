"""The bugs behind the results of a triage: as JSON, as text and as an HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from shrinkfx.campaign.programs import short_name
from shrinkfx.campaign.runs import LOGS, Campaign, Result, Status
from shrinkfx.findings.decisions import counted
from shrinkfx.findings.known_bugs import KnownBug, find_bug_folders
from shrinkfx.program.display_text import first_line
from shrinkfx.program.record import Record
from shrinkfx.report.template import render
from shrinkfx.system.folders import ISSUE, draft_of, publish_draft

PAGE = "triage.html"
_FILES = "report.html", ISSUE, "repro.py"


@dataclass(frozen=True)
class Member(Record):
    """A program that fails because of a bug.

    Attributes:
        how: how shrinkfx has assigned it to the bug.
    """

    program: str
    how: str


@dataclass
class Bug:
    """A bug, and the programs that have it.

    Attributes:
        found: the reduced program of the bug.
        is_known: whether it was known before the triage.
    """

    found: KnownBug
    is_known: bool
    members: list[Member] = field(default_factory=list)

    def add(self, program: str, how: str) -> None:
        if all(member.program != program for member in self.members):
            self.members.append(Member(program, how))

    def to_json(self) -> dict[str, object]:
        found = self.found
        return {
            "title": found.title,
            "issue": found.issue,
            "known": self.is_known,
            "kind": found.signature.kind.value,
            "operators": list(found.pattern.operators),
            "folder": str(found.folder),
            "members": [member.to_json() for member in self.members],
        }


RECOGNIZED = "the bug's operators, cut out of this program, fail in the same way"
SAME_PROGRAM = "reduced to the operators of this bug"


def find_bugs(campaign: Campaign, out: Path) -> list[Bug]:
    """Group the results by bug, the bug of most programs first.

    Two programs that were reduced at the same time may have the same bug: it is the
    same if the reduced programs have the same operators and data flow, and fail alike.

    Args:
        out: the folder of the triage.
    """
    bugs: list[Bug] = []
    for folder in find_bug_folders(map(Path, campaign.known)):
        if found := _read(folder):
            _find_or_add(bugs, found, is_known=True)
    for result in campaign.results:
        if found := _read_own(result, out):
            bug = _find_or_add(bugs, found, is_known=False)
            is_first = not (bug.members or bug.is_known)
            bug.add(result.program.path, result.status if is_first else SAME_PROGRAM)
    for result in campaign.results:
        for name in result.known:
            if found := _read(Path(name)):
                bug = _find_or_add(bugs, found, is_known=False)
                bug.add(result.program.path, RECOGNIZED)
    with_programs = (bug for bug in bugs if bug.members)
    return sorted(with_programs, key=lambda bug: -len(bug.members))


def _find_or_add(bugs: list[Bug], found: KnownBug, *, is_known: bool) -> Bug:
    for bug in bugs:
        if _is_same(bug.found, found):
            return bug
    bugs.append(Bug(found, is_known))
    return bugs[-1]


def _read_own(result: Result, out: Path) -> KnownBug | None:
    return _read(out / result.folder) if result.folder else None


def _read(folder: Path) -> KnownBug | None:
    with suppress(OSError, ValueError):
        return KnownBug.read(folder)
    return None


def name_bugs(folder: Path) -> dict[Path, str]:
    """Return the names of the known bugs in a folder, by the folders of their runs.

    A run without a verified repro is no known bug.
    """
    found = map(_read, find_bug_folders([folder]))
    return {bug.folder: str(bug) for bug in found if bug}


def _is_same(one: KnownBug, other: KnownBug) -> bool:
    alike = one.may_be(other.signature) and one.pattern.is_same_as(other.pattern)
    return alike or one.folder.resolve() == other.folder.resolve()


def find_same_error(bugs: Sequence[Bug], number: int) -> int | None:
    """Return the first bug with the same compile error as the bug of this number.

    Several operators may cause one error of the compiler, and one change may fix all.

    Args:
        number: counted from 1, like the number that is returned; None if there is none.
    """
    found = bugs[number - 1].found
    for other, bug in enumerate(bugs[: number - 1], start=1):
        if found.has_same_error_as(bug.found):
            return other
    return None


def list_others(campaign: Campaign, out: Path) -> list[Result]:
    """Return the results of programs that pass, or whose own bug is not known."""
    return [
        result
        for result in campaign.results
        if result.status is not Status.KNOWN and _read_own(result, out) is None
    ]


def render_lines(campaign: Campaign, bugs: Sequence[Bug], out: Path) -> Iterator[str]:
    """Yield the result of a triage as text: a line for each bug, then the others."""
    yield summarise(campaign, bugs, out)
    for number, bug in enumerate(bugs, start=1):
        found = bug.found
        known = f"known before: {found.issue or found.folder}" if bug.is_known else ""
        yield f"{number}. {found.title}"
        if same := find_same_error(bugs, number):
            yield f"   the same compile error as bug {same}: the cause may be the same"
        yield f"   {counted(len(bug.members), 'program')}: {_list(bug.members)}"
        issue = found.folder / ISSUE
        yield f"   {known or (issue if issue.is_file() else found.folder / 'repro.py')}"
    for result in list_others(campaign, out):
        reason = describe_reason(result)
        if result.status is Status.PASSES:
            reason = f": possible reasons are in {LOGS}/{result.program.name}.txt"
        yield f"{result.status}: {result.program.path}{reason}"
    yield f"see also: {out / PAGE}"


def describe_reason(result: Result) -> str:
    """Return the reason of a result in a line that continues another one; or ''."""
    reason = first_line(result.reason)
    return f": {reason}" if reason else ""


_NAMED = 4
"""Maximum number of programs that a line names."""


def _list(members: Sequence[Member]) -> str:
    names = [short_name(Path(member.program)) for member in members[:_NAMED]]
    more = len(members) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def summarise(campaign: Campaign, bugs: Sequence[Bug], out: Path) -> str:
    """Return the counts of programs and bugs in one line."""
    known = sum(bug.is_known for bug in bugs)
    counts = Counter(each.status for each in list_others(campaign, out))
    programs = counted(len(campaign.programs), "program")
    parts = [f"{programs}: {counted(len(bugs), 'bug')}"]
    if known:
        parts.append(f"{known} of them known before")
    if same := sum(bool(find_same_error(bugs, n + 1)) for n in range(len(bugs))):
        parts.append(f"{same} with the same compile error as an earlier one")
    parts += [_WORDS[status].format(n) for status, n in counts.items()]
    if pending := len(campaign.pending):
        parts.append(f"{pending} not run yet")
    return "; ".join(parts)


_WORDS = {
    Status.REDUCED: "{} reduced, but the result cannot be read",
    Status.PASSES: "{} without a failure",
    Status.UNREDUCED: "{} with a failure that was not reduced",
    Status.UNVERIFIED: "{} without a verified repro",
    Status.STOPPED: "{} stopped before a verified repro",
    Status.ERROR: "{} with an error",
}


def write_page(campaign: Campaign, bugs: Sequence[Bug], out: Path) -> None:
    """Write ``triage.html``, which links to the files of each bug."""
    values = {
        "summary": summarise(campaign, bugs, out),
        "bugs": [
            (bug, _links(bug.found.folder, out), find_same_error(bugs, number))
            for number, bug in enumerate(bugs, start=1)
        ],
        "others": list_others(campaign, out),
    }
    text = render(PAGE, values)
    draft_of(out / PAGE).write_text(text, encoding="utf-8", errors="backslashreplace")
    publish_draft(out / PAGE)


def _links(folder: Path, out: Path) -> dict[str, str]:
    """Return the addresses of the files of a bug, by their names."""
    files = {name: (folder / name).resolve() for name in _FILES}
    return {name: _link(file, out) for name, file in files.items() if file.is_file()}


def _link(file: Path, out: Path) -> str:
    if file.is_relative_to(out.resolve()):
        return quote(str(file.relative_to(out.resolve())))
    return file.as_uri()

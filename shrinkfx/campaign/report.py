"""The bugs behind the outcomes of a triage: as JSON, as text and as an HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.campaign.runs import Campaign, Outcome, Status
from shrinkfx.findings.known_bugs import KnownBug
from shrinkfx.program.record import Record
from shrinkfx.report.template import render

PAGE = "triage.html"


@dataclass(frozen=True)
class Member(Record):
    """A program that fails because of a bug.

    Attributes:
        how: how this is known.
    """

    program: str
    how: str


@dataclass
class Bug:
    """A bug, and the programs that have it.

    Attributes:
        found: the smallest program of the bug.
        is_known: whether it was known before the triage.
    """

    found: KnownBug
    is_known: bool
    members: list[Member] = field(default_factory=list)

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


REDUCED = "reduced"
SAME_PROGRAM = "reduced to the same operators"
CONFIRMED = "its operators of this bug, cut out, fail in the same way"


def find_bugs(campaign: Campaign) -> list[Bug]:
    """Group the outcomes by bug, the bug of most programs first.

    Two programs that were reduced at the same time may have the same bug: it is the
    same if the reduced programs have the same operators and data flow, and fail alike.
    """
    bugs: list[Bug] = []
    for outcome in campaign.outcomes:
        if found := _read(outcome.bug):
            bug = _find_or_add(bugs, found, is_known=False)
            how = SAME_PROGRAM if bug.members else REDUCED
            bug.members.append(Member(outcome.program.path, how))
    for outcome in campaign.outcomes:
        for folder in outcome.known:
            if found := _read(folder):
                bug = _find_or_add(bugs, found, is_known=True)
                bug.members.append(Member(outcome.program.path, CONFIRMED))
    return sorted(bugs, key=lambda bug: -len(bug.members))


def _find_or_add(bugs: list[Bug], found: KnownBug, *, is_known: bool) -> Bug:
    for bug in bugs:
        if _is_same(bug.found, found):
            return bug
    bugs.append(Bug(found, is_known))
    return bugs[-1]


def _read(folder: str) -> KnownBug | None:
    with suppress(OSError, ValueError):
        return KnownBug.read(Path(folder)) if folder else None
    return None


def _is_same(one: KnownBug, other: KnownBug) -> bool:
    alike = one.may_be(other.signature)
    return alike and one.pattern.is_same_as(other.pattern)


def list_others(campaign: Campaign, bugs: Sequence[Bug]) -> list[Outcome]:
    """Return the outcomes of programs that have none of the bugs."""
    covered = {member.program for bug in bugs for member in bug.members}
    return [each for each in campaign.outcomes if each.program.path not in covered]


def render_lines(campaign: Campaign, bugs: Sequence[Bug], out: Path) -> Iterator[str]:
    """Yield the result of a triage as text: a line for each bug, then the others."""
    yield summarise(campaign, bugs)
    for number, bug in enumerate(bugs, start=1):
        found = bug.found
        known = f"known: {found.issue or found.folder}" if bug.is_known else ""
        yield f"{number}. {found.title}"
        yield f"   {_count(len(bug.members), 'program')}: {_list(bug.members)}"
        yield f"   {known or found.folder / 'repro.py'}"
    for outcome in list_others(campaign, bugs):
        name, (reason, *_) = outcome.program.path, outcome.reason.splitlines() or [""]
        yield f"{outcome.status}: {name}" + (f": {reason}" if reason else "")
    yield f"see also: {out / PAGE}"


_NAMED = 4
"""Maximum number of programs that a line names."""


def _list(members: Sequence[Member]) -> str:
    names = [Path(member.program).name for member in members[:_NAMED]]
    more = len(members) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def summarise(campaign: Campaign, bugs: Sequence[Bug]) -> str:
    """Return the counts of programs and bugs in one line."""
    total, known = len(campaign.programs), sum(bug.is_known for bug in bugs)
    counts = Counter(each.status for each in list_others(campaign, bugs))
    parts = [f"{_count(total, 'program')}: {_count(len(bugs), 'bug')}"]
    if known:
        parts.append(f"{known} known before")
    parts += [f"{n} {_WORDS.get(status, status)}" for status, n in counts.items()]
    if pending := len(campaign.pending):
        parts.append(f"{pending} not tried yet")
    return ", ".join(parts)


_WORDS = {
    Status.PASSES: "without a failure",
    Status.ERROR: "with an error",
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")


def write_page(campaign: Campaign, bugs: Sequence[Bug], out: Path) -> None:
    """Write ``triage.html``, which links to the page of each bug."""
    values = {
        "summary": summarise(campaign, bugs),
        "bugs": [(bug, _link(bug.found.folder, out)) for bug in bugs],
        "others": list_others(campaign, bugs),
    }
    (out / PAGE).write_text(render(PAGE, values), encoding="utf-8")


def _link(folder: Path, out: Path) -> str:
    """Return the address of the report of a bug, or of its folder."""
    page = folder / "report.html"
    target = page if page.is_file() else folder
    with suppress(ValueError):
        return str(target.resolve().relative_to(out.resolve()))
    return target.resolve().as_uri()

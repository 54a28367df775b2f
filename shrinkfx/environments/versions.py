"""Sort versions of PyTorch, and search for the versions where a failure begins or ends.

A verdict is True if the repro fails, False if it passes, and None if its result shows
neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

Fails = Callable[[str], bool | None]
"""Runs the repro on a version and returns the verdict."""


def public(version: str) -> str:
    """Remove the local part of a version.

    >>> public("2.13.0+cpu")
    '2.13.0'
    """
    return version.partition("+")[0]


def order(version: str) -> tuple[tuple[int, ...], bool, str]:
    """Return a sort key: pre-releases come before their release.

    >>> sorted(["2.13.0", "2.9.1", "2.13.0rc2+cpu"], key=order)
    ['2.9.1', '2.13.0rc2+cpu', '2.13.0']
    """
    text = public(version)
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    release = numbers[0] if numbers else ""
    rest = text[len(release) :]
    return tuple(map(int, filter(None, release.split(".")))), not rest, rest


def bisect(versions: Sequence[str], fails: Fails, seen_on: str = "") -> None:
    """Run the repro on few versions, such that the verdicts enclose each boundary.

    The search assumes that the versions on which the repro fails are consecutive.

    Args:
        versions: in order, the oldest first; the last one is this interpreter's.
        fails: runs the repro on a version.
        seen_on: a version on which the failure was seen. The search starts there if the
            repro passes with this interpreter.
    """
    today = versions[-1]
    starts = [today, seen_on] if seen_on in versions else [today]
    failing = next((version for version in starts if fails(version)), None)
    if failing is None:
        return
    at = versions.index(failing)
    _narrow(versions[:at], fails)
    if failing != today:
        _narrow(versions[-2:at:-1], fails)


def most_runs(versions: Sequence[str], seen_on: str = "") -> int:
    """Return the most versions that ``bisect`` runs if it skips none.

    The version of this interpreter is not counted.
    """
    others = len(versions) - 1
    if seen_on not in versions[:-1]:
        return others.bit_length()
    older = versions.index(seen_on)
    both = 1 + older.bit_length() + (others - 1 - older).bit_length()
    return min(others, max(both, others.bit_length()))


def _narrow(versions: Sequence[str], fails: Fails) -> None:
    """Search between a version that passes and a version that fails.

    A version without a verdict is skipped, as ``git bisect skip`` does.
    """
    between = [*versions]
    while between:
        middle = len(between) // 2
        match fails(between[middle]):
            case None:
                del between[middle]
            case True:
                del between[middle:]
            case False:
                del between[: middle + 1]


def summarize(
    verdicts: Mapping[str, bool | None], released: Sequence[str] | None = None
) -> str:
    """Write a sentence about the tested versions on which a repro fails.

    Args:
        verdicts: by tested version.
        released: all existing versions, the oldest first; None if they are not known.

    >>> summarize({"2.13.0": False, "2.14.0": True}, ["2.13.0", "2.14.0"])
    'fails since 2.14.0; passes on 2.13.0'
    >>> summarize({"2.13.0": True, "2.15.0": False}, ["2.13.0", "2.14.0", "2.15.0"])
    'last tested version that fails: 2.13.0; first that passes: 2.15.0; not tested \
between them: 2.14.0'
    """
    text = _sentence(verdicts, released)
    unknown = _with(verdicts, None)
    addition = f"cannot tell on {', '.join(unknown)}" if unknown else ""
    return "; ".join(filter(None, (text, addition)))


def _sentence(
    verdicts: Mapping[str, bool | None], released: Sequence[str] | None
) -> str:
    failing, passing = _with(verdicts, True), _with(verdicts, False)
    for older, newer, exact, tested in (
        (passing, failing, _BEGINS, _BEGINS_TESTED),
        (failing, passing, _ENDS, _ENDS_TESTED),
    ):
        if older and newer and order(older[-1]) < order(newer[0]):
            sides = older[-1], newer[0]
            low, high = map(order, sides)
            between = [v for v in released or () if low < order(v) < high]
            text = exact if released and not between else tested
            untested = [v for v in between if v not in map(public, verdicts)]
            gap = f"; not tested between them: {', '.join(untested)}"
            return text.format(*sides) + (gap if untested else "")
    on = "all tested versions: " if len(verdicts) == len(failing or passing) else ""
    rows = (("fails", failing), ("passes", passing))
    return "; ".join(f"{do} on {on}{', '.join(group)}" for do, group in rows if group)


_BEGINS = "fails since {1}; passes on {0}"
_BEGINS_TESTED = "first tested version that fails: {1}; last that passes: {0}"
_ENDS = "fails up to {0}; passes since {1}"
_ENDS_TESTED = "last tested version that fails: {0}; first that passes: {1}"
"""Sentences about an older and a newer version. The longer ones are used if another
version may exist between the two."""


def _with(verdicts: Mapping[str, bool | None], verdict: bool | None) -> list[str]:
    found = (version for version, each in verdicts.items() if each is verdict)
    return sorted(found, key=order)

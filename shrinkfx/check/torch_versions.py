"""Sort versions of PyTorch, and search for the versions where a failure begins or ends.

A verdict is True if the repro fails, False if it passes, and None if its result shows
neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from packaging.version import InvalidVersion, Version

Fails = Callable[[str], bool | None]
"""Runs the repro on a version and returns the verdict."""


def public(version: str) -> str:
    """Remove the local part of a version.

    >>> public("2.13.0+cpu")
    '2.13.0'
    """
    return version.partition("+")[0]


def order(version: str) -> Version:
    """Return a sort key. A version that PEP 440 does not know comes first.

    >>> sorted(["2.13.0", "2.9.1", "2.13.0rc2+cpu"], key=order)
    ['2.9.1', '2.13.0rc2+cpu', '2.13.0']
    """
    try:
        return Version(public(version))
    except InvalidVersion:
        return Version("0")


def bisect(versions: Sequence[str], fails: Fails, here: str, seen_on: str = "") -> None:
    """Run the repro on few versions, so that the verdicts enclose each boundary.

    The search assumes that the versions on which the repro fails are consecutive.

    Args:
        versions: the oldest first.
        fails: is called once for each version that is run.
        here: the version of this interpreter, which is run first.
        seen_on: the version that is run next if ``here`` passes.
    """
    starts = [here, seen_on] if seen_on in versions else [here]
    failing = next((version for version in starts if fails(version)), None)
    if failing is None:
        return
    index, start = versions.index(failing), versions.index(here)
    # This interpreter's version passes, unless it is the failing one.
    _narrow(versions[start + 1 if start < index else 0 : index], fails)
    if start > index:
        _narrow(versions[start - 1 : index : -1], fails)


def most_runs(versions: Sequence[str], here: str, seen_on: str = "") -> int:
    """Count the versions besides ``here`` that ``bisect`` runs at most.

    That holds if it skips none.
    """
    start = versions.index(here)
    older = start.bit_length()
    if seen_on not in versions or seen_on == here:
        return older
    seen = versions.index(seen_on)
    between = abs(start - seen) - 1
    from_seen = 1 + between.bit_length() + (seen.bit_length() if seen < start else 0)
    return max(older, min(len(versions) - 1, from_seen))


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
            pair = older[-1], newer[0]
            low, high = map(order, pair)
            between = [v for v in released or () if low < order(v) < high]
            is_exact = released and not between and not any(map(_is_nightly, pair))
            text = exact if is_exact else tested
            untested = [v for v in between if v not in map(public, verdicts)]
            gap = f"; not tested between them: {', '.join(untested)}"
            return text.format(*pair) + (gap if untested else "")
    on = "all tested versions: " if len(verdicts) == len(failing or passing) else ""
    rows = (("fails", failing), ("passes", passing))
    return "; ".join(f"{do} on {on}{', '.join(group)}" for do, group in rows if group)


_BEGINS = "fails since {1}; passes on {0}"
_BEGINS_TESTED = "first tested version that fails: {1}; last that passes: {0}"
_ENDS = "fails up to {0}; passes since {1}"
_ENDS_TESTED = "last tested version that fails: {0}; first that passes: {1}"
"""Sentences about an older and a newer version. The longer ones are used if another
version may exist between the two."""


def _is_nightly(version: str) -> bool:
    """Return whether a version is a pre-release; an index may lack other builds."""
    return order(version).is_prerelease


def _with(verdicts: Mapping[str, bool | None], verdict: bool | None) -> list[str]:
    matching = (version for version, each in verdicts.items() if each is verdict)
    return sorted(matching, key=order)

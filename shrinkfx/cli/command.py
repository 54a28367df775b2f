"""The command that ``--capture`` runs, of which nothing is an option of ours."""

from __future__ import annotations

from collections.abc import Collection, Sequence

CAPTURE = "--capture"


def apart(
    given: Sequence[str], with_values: Collection[str]
) -> tuple[list[str], list[str]]:
    """Tell what was typed for us from the command that ``--capture`` runs.

    That begins behind ``--``, or else with the first word behind ``--capture`` that is
    neither an option nor an option's value; all behind it is its own.

    Args:
        with_values: options that a value follows, as they are typed.
    """
    words = list(given)
    until_dashes = words[: words.index("--")] if "--" in words else words
    if CAPTURE not in until_dashes:
        return words, []
    at = words.index(CAPTURE) + 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return words[:at], words[at + 1 :]
        at += 2 if words[at] in with_values else 1
    return words[:at], words[at:]


def as_shown(command: Sequence[str]) -> list[str]:
    """Leave out what a script was told: a repro is made to be shared."""
    shown = [word for word in command[:2] if "=" not in word]
    words = ["--", *shown] if command else []
    return [*words, "..."] if command[len(shown) :] else words

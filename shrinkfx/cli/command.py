"""The command behind ``--``, of which nothing is an option of ours."""

from __future__ import annotations

from collections.abc import Sequence


def apart(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell what was typed for us from the command that ``--capture`` runs."""
    words = list(given)
    if "--" not in words or "--capture" not in words[: words.index("--")]:
        return words, []
    behind = words.index("--")
    return words[:behind], words[behind + 1 :]


def as_shown(command: Sequence[str]) -> list[str]:
    """Leave out what a script was told: a repro is made to be shared."""
    shown = [word for word in command[:2] if "=" not in word]
    words = ["--", *shown] if command else []
    return [*words, "..."] if command[len(shown) :] else words

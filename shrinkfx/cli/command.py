"""Separate the command that ``--capture`` runs from the options of shrinkfx."""

from __future__ import annotations

from collections.abc import Collection, Sequence

CAPTURE = "--capture"


def split_command_line(
    arguments: Sequence[str], with_values: Collection[str]
) -> tuple[list[str], list[str]]:
    """Split the command line into shrinkfx's words and the command to capture.

    The command begins after ``--``, or else with the first word after ``--capture``
    that is neither an option nor the value of an option. All words after that belong
    to the command.

    Args:
        with_values: flags that take a value, as typed.

    Returns:
        The words for shrinkfx, and the command; the command is empty without
        ``--capture``.
    """
    words = list(arguments)
    until_dashes = words[: words.index("--")] if "--" in words else words
    if CAPTURE not in until_dashes:
        return words, []
    index = words.index(CAPTURE) + 1
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "--":
            return words[:index], words[index + 1 :]
        index += 2 if words[index] in with_values else 1
    return words[:index], words[index:]


def abbreviate_command(command: Sequence[str]) -> list[str]:
    """Abbreviate the arguments of a command, because users share the repro."""
    shown = [word for word in command[:2] if "=" not in word]
    words = ["--", *shown] if command else []
    return [*words, "..."] if command[len(shown) :] else words

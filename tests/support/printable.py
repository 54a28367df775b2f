"""What the code can print: the texts in it, each with holes for what is filled in."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

HOLE = "\0"
"""Stands for any text, in a text of the code; ``...`` does in one of the documents."""

PACKAGE = Path(__file__).resolve().parents[2] / "shrinkfx"
_FIELD = re.compile(r"\{[^{}]*\}|%[sd]")


@lru_cache
def texts() -> frozenset[str]:
    """List each line of each text in the sources."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)):
                found |= {*_with_holes(node).split("\n")}
    return frozenset(text for text in found if _letters(text.replace(HOLE, "")) >= 5)


def _with_holes(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return _FIELD.sub(HOLE, text)
        case ast.JoinedStr(values=values):
            return "".join(map(_with_holes, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _with_holes(left) + _with_holes(right)
    return HOLE


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def is_printable(line: str) -> bool:
    """Tell whether some text of the code, filled in, is this line.

    Where a line is cut, the text must begin with words of its own: any hole could be
    filled with what there is of the line.
    """
    shown = line.replace("...", HOLE)
    begins = shown.partition(HOLE)[0]
    for text in texts():
        own = text.partition(HOLE)[0]
        if HOLE in shown and _letters(own) < LABEL:
            continue
        if begins.startswith(own[: len(begins)]) and _meet(shown, text):
            return True
    return False


LABEL = 5
"""Letters that tell a text by how it begins."""


def _meet(one: str, other: str) -> bool:
    """Tell whether two texts with holes have a filling in common."""
    seen, left = set(), [(0, 0)]
    while left:
        i, j = left.pop()
        if (i, j) in seen:
            continue
        seen.add((i, j))
        if (i, j) == (len(one), len(other)):
            return True
        hole = one[i : i + 1] == HOLE, other[j : j + 1] == HOLE
        if i < len(one) and (hole[0] or hole[1]):
            left.append((i + 1, j))
        if j < len(other) and (hole[0] or hole[1]):
            left.append((i, j + 1))
        if i < len(one) and j < len(other) and one[i] == other[j]:
            left.append((i + 1, j + 1))
    return False


ENOUGH = 0.75
"""Of the letters of a part of a line: what must be in the code, not in a hole."""


def is_part_of_a_printable(quoted: str) -> bool:
    """Tell whether a text of the code holds this, mostly in words of its own."""
    words = quoted.removesuffix("...").strip()
    needed = ENOUGH * _letters(words)
    return any(_most_letters(words, text) >= needed for text in texts())


def _most_letters(words: str, text: str) -> int:
    """Count the letters of ``words`` that ``text`` has itself, wherever it begins."""
    best = dict.fromkeys(range(len(text) + 1), 0)  # by how much of the text is used
    for character in words:
        best = _one_more(best, character, text)
        if not best:
            return -1
    return max(best.values())


def _one_more(best: dict[int, int], character: str, text: str) -> dict[int, int]:
    """Put one more character into a hole, or find it in the text."""
    after: dict[int, int] = {}
    for place, letters in best.items():
        while text[place : place + 1] == HOLE:
            after[place] = max(after.get(place, -1), letters)
            place += 1  # it may be left as it is
        if text[place : place + 1] == character:
            more = letters + character.isalpha()
            after[place + 1] = max(after.get(place + 1, -1), more)
    return after

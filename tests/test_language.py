"""What people read is written in plain standard English.

A short list of words and constructions that outsiders had to decode. It holds for the
messages of the program and for the pages that users read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PAGES = [
    *("README.md", "docs/capture.md", "docs/explain.md", "docs/glossary.md"),
    *("docs/trust.md", "docs/tutorial.md"),
]
"""Pages for users. Those for developers are not held to the list yet."""

INSTEAD = {
    r"by-catch": "other failures",
    r"lies|lying|liar": "fake-kernel mismatch",
    r"guilt|guilty|innocent": "culprit",
    r"plainer|plainest": "simpler",
    r"unasked|untold": "skipped, not tested",
    r"what (is|was) left": "the reduced program",
    r"(is|are|was|were|be) (told|asked)": "shrinkfx reports, tests",
    r"anew": "again",
    r"beside": "next to, see also",
    r"but for": "except",
    r"careful": "privacy, warning",
    r"say(?=[,.;)])": "for example",
    r"whoever": "the user, the author",
    r"comes to its end": "completes",
}


def wrong(text: str) -> Iterator[str]:
    """Yield each old word of a text with its context and what to write instead.

    Names in backticks, such as JSON keys, may stay.
    """
    text = re.sub(r"`[^`\n]+`", "``", text)
    for old, new in INSTEAD.items():
        for found in re.finditer(rf"\b({old})\b", text):
            context = " ".join(
                text[max(0, found.start() - 40) : found.end() + 40].split()
            )
            yield f"{context!r}: instead of {found[0]!r} write {new!r}"


def messages(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that are sentences, and no docstrings."""
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    blocks = [node.body for node in ast.walk(module) if isinstance(node, documented)]
    alone = {id(s.value) for block in blocks for s in block if isinstance(s, ast.Expr)}
    for node in ast.walk(module):
        if not isinstance(node, ast.Constant) or id(node) in alone:
            continue
        if isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def test_messages_have_no_old_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {each}"
        for path in sorted((ROOT / "shrinkfx").rglob("*.py"))
        for line, text in messages(ast.parse(path.read_text()))
        for each in wrong(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_page_has_no_old_words(page: str) -> None:
    assert list(wrong((ROOT / page).read_text())) == []


def test_old_words_are_found() -> None:
    module = ast.parse('def f():\n    """It lies."""\n    note("what is left fails")\n')
    ((line, text),) = messages(module)
    assert line == 3
    assert len(list(wrong(text))) == 1
    assert list(wrong("it belies nothing")) == []

"""What people read is written in plain standard English.

A short list of words and constructions that outsiders had to decode. It holds for the
messages of the program, its docstrings, and all pages but the log of changes. Names of
modules, classes and functions have a list of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "tests")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

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
    r"careful": "privacy, warning",
    r"but for": "except",
    r"say(?=[,.;)])": "for example",
    r"whoever": "the user, the author",
    r"comes to its end": "completes",
}


def wrong(text: str) -> Iterator[str]:
    """Yield each old word of a text with its context and what to write instead.

    Names in backticks, such as JSON keys, may stay, and so do those of arguments and
    attributes before their description.
    """
    text = re.sub(r"(?m)^ +\*{0,2}\w+(?:, \w+)*:(?= )", "", text)
    text = re.sub(r"`[^`\n]+`", "``", text)
    for old, new in INSTEAD.items():
        for found in re.finditer(rf"\b({old})\b", text):
            context = " ".join(
                text[max(0, found.start() - 40) : found.end() + 40].split()
            )
            yield f"{context!r}: instead of {found[0]!r} write {new!r}"


NOT_IN_NAMES = frozenset(
    {
        *("told", "untold", "asked", "unasked", "said", "anew", "beside", "whoever"),
        *("lie", "lies", "liar", "lying", "guilt", "guilty", "plainer", "careful"),
    }
)
"""Words that no module, class or function has in its name."""


def sentences(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that have several words, docstrings too."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value:
            yield node.lineno, node.value


def names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names of a module's classes and functions."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


def words_of(name: str) -> set[str]:
    """Split an identifier, such as ``GivenInput`` or ``_given_input``."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}


def test_names_of_tests_have_no_old_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in names(ast.parse(path.read_text()))
        if name.startswith("test_") and words_of(name) & NOT_IN_NAMES
    ]
    assert found == []


def test_names_have_no_old_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "shrinkfx").rglob("*.py"))
        for line, name in [(1, path.stem), *names(ast.parse(path.read_text()))]
        if words_of(name) & NOT_IN_NAMES
    ]
    assert found == []


def test_messages_and_docstrings_have_no_old_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {each}"
        for path in sorted((ROOT / "shrinkfx").rglob("*.py"))
        for line, text in sentences(ast.parse(path.read_text()))
        for each in wrong(text)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_has_no_old_words(page: Path) -> None:
    assert list(wrong(page.read_text())) == []


def test_old_words_are_found() -> None:
    module = ast.parse('def f():\n    """It lies."""\n    note("what is left fails")\n')
    assert [line for line, _ in sentences(module)] == [2, 3]
    assert all(list(wrong(text)) for _, text in sentences(module))
    assert list(wrong("it belies nothing")) == []

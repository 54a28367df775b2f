"""What the documentation says of options, codes and events is what there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from shrinkfx.arguments import EXIT_CODES, make_parser
from shrinkfx.failure.signature import MEANING, UNTIL
from shrinkfx.progress import NAMES
from shrinkfx.search.events import Event

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
REFERENCE = (ROOT / "docs" / "reference.md").read_text()


def rows(text: str) -> list[list[str]]:
    """Split the tables of a page into cells."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


def test_reference_has_every_option_and_no_other() -> None:
    options = {
        text
        for action in make_parser()._actions
        for text in action.option_strings
        if action.option_strings
    }
    told = {
        option
        for first, *_ in rows(REFERENCE)
        for option in re.findall(r"`(--?[a-z][a-z-]*)", first)
    }
    assert told == options


def test_reference_has_the_exit_codes_of_the_tool() -> None:
    told = {int(row[0]): row[1] for row in rows(REFERENCE) if row[0].isdigit()}
    assert told == EXIT_CODES


def test_reference_has_the_kinds_of_the_tool() -> None:
    first = {row[0].strip("`"): row[1].replace("`", "") for row in rows(REFERENCE)}
    assert {k: first[k] for k in MEANING} == {k.value: v for k, v in MEANING.items()}
    assert set(UNTIL) <= first.keys()


@pytest.mark.parametrize("event", NAMES, ids=lambda event: event.__name__)
def test_reference_has_the_fields_of_each_event(event: type[Event]) -> None:
    table = [row for row in rows(REFERENCE) if row[0] == f"`{NAMES[event]}`"]
    told = [set(re.findall(r"`([a-z_]+)`", fields_of)) for *_, fields_of in table]
    names = {field.name for field in fields(event)}
    assert any(names <= each for each in told), (names, told)


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]*)(?:#[^)]*)?\)", text):
        assert not target or (page.parent / target).exists(), target
    for anchor in re.findall(r"\]\(#([^)]*)\)", text):
        heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor in {head.lower().replace(" ", "-") for head in heads}


def test_readme_links_to_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [page.name for page in DOCS if f"(docs/{page.name})" not in readme]
    assert missing == []

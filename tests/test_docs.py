"""What the documentation says of options, codes and events is what there is."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.printable import is_part_of_a_printable, is_printable
from test_layers import ALLOWED, WORKER_LAYERS

from shrinkfx.cli.parser import EXIT_CODES, make_parser
from shrinkfx.cli.task_output import EVENT_NAMES
from shrinkfx.cli.triage import make_triage_parser
from shrinkfx.events import Event
from shrinkfx.failure.signature import MEANING, UNTIL
from shrinkfx.intake.capture.records import Capture, ScriptEnd
from shrinkfx.intake.capture.script_capture import render_program_table as programs
from shrinkfx.protocol.captured import CALL, COMPILE, LOAD
from shrinkfx.report.record import ProgramSize
from shrinkfx.report.sweep import format_sweep_table

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
REFERENCE = (ROOT / "docs" / "reference.md").read_text()


def rows(text: str) -> list[list[str]]:
    """Split the tables of a page into cells."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


def test_reference_lists_exactly_the_command_line_options() -> None:
    options = {
        text
        for action in (*make_parser()._actions, *make_triage_parser()._actions)
        for text in action.option_strings
        if action.option_strings
    }
    told = {
        option
        for first, *_ in rows(REFERENCE)
        for option in re.findall(r"`(--?[a-z][a-z-]*)", first)
    }
    assert told == options


def test_reference_lists_the_exit_codes() -> None:
    told = {int(row[0]): row[1] for row in rows(REFERENCE) if row[0].isdigit()}
    assert told == EXIT_CODES


def test_reference_lists_the_failure_kinds() -> None:
    first = {row[0].strip("`"): row[1].replace("`", "") for row in rows(REFERENCE)}
    assert {k: first[k] for k in MEANING} == {k.value: v for k, v in MEANING.items()}
    assert set(UNTIL) <= first.keys()


@pytest.mark.parametrize("event", EVENT_NAMES, ids=lambda event: event.__name__)
def test_reference_lists_the_fields_of_each_event(event: type[Event]) -> None:
    table = [row for row in rows(REFERENCE) if row[0] == f"`{EVENT_NAMES[event]}`"]
    told = [set(re.findall(r"`([a-z_]+)`", fields_of)) for *_, fields_of in table]
    names = {field.name for field in fields(event)}
    assert any(names <= each for each in told), (names, told)


CONTRIBUTORS = [
    ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "tests/README.md")
]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *DOCS, *CONTRIBUTORS], ids=lambda p: p.name
)
def test_links_between_pages_resolve(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """List what the heads of a page are called in links."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    ("start", "folder"), [("README.md", "docs"), ("docs/architecture.md", "packages")]
)
def test_every_page_is_linked_to(start: str, folder: str) -> None:
    linked = re.findall(rf"\(({folder}/[^/)#]*)", (ROOT / start).read_text())
    pages = ((ROOT / start).parent / folder).glob("*.md")
    assert {f"{folder}/{page.name}" for page in pages} - set(linked) == set()


@pytest.mark.parametrize("page", CONTRIBUTORS, ids=lambda p: p.name)
def test_files_named_in_contributor_pages_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+(?:\w+\.(?:py|md))?)`", page.read_text())
    places = page.parent, ROOT
    gone = [n for n in named if not any((place / n).exists() for place in places)]
    assert [name for name in gone if "my_idea" not in name] == []


# --- what is quoted of the tool's output

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = ("shrinkfx", "python", "make", "pip", "$ shrinkfx", "$ python")
NO_OUTPUT = {"strategies.md": "tests/"}
"""Pages with a drawing, and how that begins."""

FOREIGN = {"AssertionError: Tensor-likes are not close!"}
"""What torch prints; ``test_tutorial.py`` sees it do so."""


def pages() -> list[Path]:
    return [ROOT / "README.md", *DOCS]


def quoted_lines(page: Path) -> Iterator[str]:
    """Yield the lines of blocks that show what the tool prints."""
    for language, block in FENCE.findall(page.read_text()):
        drawing = NO_OUTPUT.get(page.name)
        if language not in ("", "console") or (drawing and block.startswith(drawing)):
            continue
        shows = True
        for line in filter(str.strip, block.splitlines()):
            if line.startswith("$ ") or (not language and line.startswith(COMMANDS)):
                shows = line.startswith(COMMANDS)  # and not what ``cat`` does
            elif shows and line != "...":
                yield line


def quoted_words(page: Path) -> Iterator[str]:
    """Yield what stands between backticks and is no code, command or option."""
    for found in re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text())):
        words = " ".join(found.split())
        is_code = re.search(r"[(){}=*\"]|(^|\s)-|\.py\b", words)
        if " " in words and not is_code and not words.startswith(COMMANDS):
            yield words


def test_quoted_output_is_extracted_from_the_pages() -> None:
    lines = [line for page in pages() for line in quoted_lines(page)]
    words = [words for page in pages() for words in quoted_words(page)]
    assert len(lines) > 25
    assert len(words) > 10
    assert "no longer fails" in lines
    assert "no longer fails" in words


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_quoted_output_lines_can_be_printed_by_the_code(page: Path) -> None:
    lines = [line for line in quoted_lines(page) if line not in FOREIGN]
    known = is_printable, is_row, is_row_of_programs
    assert [line for line in lines if not any(each(line) for each in known)] == []


def is_row(line: str) -> bool:
    """Tell whether a line is one of the table of a sweep, cell by cell."""
    cells = re.split(r" {2,}", line)
    if len(cells) != 4:
        return False
    if cells == re.split(r" {2,}", format_sweep_table([])):
        return True
    sizes, kind, failure, near = cells
    are_sizes = all(re.fullmatch(r"\w+=\d+(, \w+=\d+)*", s) for s in (sizes, near))
    return are_sizes and kind in MEANING and is_printable(failure)


def is_row_of_programs(line: str) -> bool:
    """Tell whether a line is one of the table of what was captured."""
    step = "|".join((CALL, COMPILE, LOAD))
    row = rf"\d+\*? +\d+ +\w+\.py:\d+ +\d+( {{2,}}({step}): .+)?"
    return line == programs(NOTHING, ENDED, 0) or bool(re.fullmatch(row, line))


NOTHING, ENDED = Capture(Path()), ScriptEnd(("python", "serve.py"), 1)


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_quoted_output_words_can_be_printed_by_the_code(page: Path) -> None:
    wrong = [w for w in quoted_words(page) if not is_part_of_a_printable(w)]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "printable"),
    [
        (
            "result:   reduced from 15 to 2 operators; no single operator can be "
            "removed; 11 checks, 142 s",
            True,
        ),
        ("by-catch: 2 more", False),
        ("baseline: assert in run: index out of bounds: 0 <= tmp6 < 12L", True),
        ("suspect: aten.flip.default in kernel ...", True),
        ("12 -> 3 operators  drop_nodes  check 3  78 s", True),
        ("12 -> 3 operators  drop_nodes  check 3", False),
        ("suspected: aten.flip.default in kernel ...", False),
    ],
)
def test_line_is_recognized_as_printable_by_the_code(
    line: str, *, printable: bool
) -> None:
    assert is_printable(line) is printable


@pytest.mark.parametrize(
    ("words", "printable"),
    [
        ("flaky: 10 of 26 runs fail", True),
        ("flaky: 38% of runs fail", False),
        ("dim 0 of x", True),
        ("dim 0 in x", False),
    ],
)
def test_words_are_recognized_as_printable_by_the_code(
    words: str, *, printable: bool
) -> None:
    assert is_part_of_a_printable(words) is printable


# --- names


def test_reference_lists_the_fields_of_the_summary() -> None:
    _, _, section = REFERENCE.partition("\n### summary.json\n")
    keys_of = [row[0] for row in rows(section.partition("\n## ")[0])]
    told = {key for cell in keys_of for key in re.findall(r"`([a-z_]+)`", cell)}
    assert len(told) > 20
    known = {field.name for field in fields(ProgramSize)}
    written = (ROOT / "shrinkfx" / "report" / "summary.py").read_text()
    for node in ast.walk(ast.parse(written)):
        keys = node.keys if isinstance(node, ast.Dict) else []
        known |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    assert told - known == set()


def test_architecture_lists_the_packages() -> None:
    table = rows((ROOT / "docs" / "architecture.md").read_text())
    top = ROOT / "shrinkfx"
    names = [name for name, *_ in table if name.startswith("`") and name.endswith("/`")]
    listed = {top / name.strip("`/") for name in names}
    packages = {path.parent for path in top.rglob("*.py")} - {top, top / "strategies"}
    assert listed == packages


PACKAGE_PAGES = [page for page in DOCS if page.parent.name == "packages"]

_ABOUT = ("architecture", "decisions", "glossary", "strategies", "trust")
INSIDE = [*PACKAGE_PAGES, *(ROOT / "docs" / f"{name}.md" for name in _ABOUT)]
"""Pages that are about the code."""

OTHERS = {"repro.py", "interface.cpp", "data/aotinductor/"}
"""Files that such pages name, and that are not ours."""


@pytest.mark.parametrize("page", INSIDE, ids=lambda p: p.name)
def test_paths_named_in_pages_exist(page: Path) -> None:
    told = re.findall(r"`([\w/]+\.(?:py|c|cpp)|\w[\w/]*/)[:`]", page.read_text())
    places = ROOT, ROOT / "shrinkfx"
    missing = [p for p in told if not any((place / p).exists() for place in places)]
    assert set(missing) - OTHERS == set()


@pytest.mark.parametrize("page", PACKAGE_PAGES, ids=lambda p: p.name)
def test_examples_on_package_pages_pass_as_doctests(page: Path) -> None:
    blocks = [block for _, block in FENCE.findall(page.read_text()) if ">>>" in block]
    examples = doctest.DocTestParser().get_doctest(
        "\n".join(blocks), {}, page.name, str(page), 0
    )
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_glossary_terms_refer_to_names_in_the_code() -> None:
    glossary = rows((ROOT / "docs" / "glossary.md").read_text())
    words = {word: where for word, _, where in glossary if word.startswith("**")}
    assert len(words) == 30
    for word, where in words.items():
        path, name = re.findall(r"`([^`]+)`", where)
        assert name in names_in(ROOT / "shrinkfx" / path), word


def names_in(module: Path) -> set[str]:
    """List what a module defines, and what its classes do: ``Class.method``."""
    found = set()
    for node in ast.parse(module.read_text()).body:
        found |= {*_defined(node)}
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{n}" for each in node.body for n in _defined(each)}
    return found


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    yield from (target.id for target in targets if isinstance(target, ast.Name))


# --- the drawing of the packages


def drawn() -> dict[str, list[str]]:
    """Read the words in each part of the drawing, by class; parts go by their ids."""
    svg = ElementTree.parse(ROOT / "docs" / "packages.svg").getroot()
    found: dict[str, list[str]] = {}
    for part in svg.iter("{http://www.w3.org/2000/svg}g"):
        for text in part.iter("{http://www.w3.org/2000/svg}text"):
            key = f"{part.get('id')} {text.get('class')}"
            found.setdefault(key, []).append(" ".join(text.itertext()))
    return found


def test_architecture_drawing_shows_the_allowed_imports() -> None:
    words = {key: set(" ".join(texts).split()) for key, texts in drawn().items()}
    ground = words["ground layer"]
    boxes = {key.removesuffix(" name") for key in words if key.endswith(" name")}
    names = [name for box in boxes for name in words[f"{box} name"]]
    assert sorted([*names, *ground]) == sorted(ALLOWED)
    for box in boxes:
        packages = words[f"{box} name"]
        allowed = set().union(*(ALLOWED[package] for package in packages))
        assert words[f"{box} imports"] == allowed - ground - packages, box


def test_architecture_drawing_shows_the_worker_layers() -> None:
    layers = [set(text.split()) for text in drawn()["package-worker layer"]]
    assert layers[::-1] == [layer - {"__init__"} for layer in WORKER_LAYERS]

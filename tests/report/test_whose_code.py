"""Whose statements put code into the compiler: files that somebody has written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from shrinkfx.intake.preload_choice import SETTINGS, render_settings
from shrinkfx.preloads.custom_code_sources import (
    describe_copy,
    find_custom_code,
    mark_as_generated,
    without_generated_lines,
)
from shrinkfx.preloads.preload_bundle import Unit
from shrinkfx.preloads.statements import statements_of, text_of
from shrinkfx.protocol.captured import ImportedValue

PLACE = "torch._inductor.config post_grad_custom_post_pass"
PASS = "import config\nconfig.post_grad_custom_post_pass = print\n"


def units(folder: Path, texts: Mapping[str, str]) -> list[Unit]:
    """Write files, and list all of their statements."""
    found: list[Unit] = []
    for name, text in texts.items():
        file = folder / name
        file.write_text(text)
        statements = statements_of(text, name)
        found += [(str(file), *each.place) for each in statements]
    return found


def acting(folder: Path, texts: Mapping[str, str], last: int = 1) -> list[Unit]:
    """List the last statements of each file."""
    return [
        u for name, text in texts.items() for u in units(folder, {name: text})[-last:]
    ]


@pytest.mark.parametrize(
    ("texts", "sources"),
    [
        ({"passes.py": PASS}, ("passes.py",)),
        ({"__init__.py": "from . import passes\n", "passes.py": PASS}, ("passes.py",)),
        ({"__init__.py": "import theirs\n"}, ("__init__.py",)),
        ({"a.py": PASS, "b.py": PASS}, ("a.py", "b.py")),
        (
            {
                "serve_definitions.py": mark_as_generated(
                    PASS, describe_copy("serve.py")
                )
            },
            ("serve.py",),
        ),
    ],
)
def test_only_files_with_acting_statements_are_named_as_sources(
    tmp_path: Path, texts: Mapping[str, str], sources: tuple[str, ...]
) -> None:
    found = find_custom_code({PLACE}, acting(tmp_path, texts))
    assert (found.places, found.sources) == ((PLACE,), sources)
    assert not found.only_defined


@pytest.mark.parametrize("state", [{}, {"by": "2.5"}])
def test_file_written_by_shrinkfx_is_not_named_as_source(
    tmp_path: Path, state: Mapping[str, str]
) -> None:
    """What it sets is named by where that is defined, if that is what acts."""
    drop, scale = (
        ImportedValue("my.drop", "Drop", "()"),
        ImportedValue("my.b", "B", "()", state),
    )
    text = mark_as_generated(
        render_settings({"first": drop, "second": scale}), SETTINGS
    )
    found = find_custom_code({PLACE}, acting(tmp_path, {"preload_settings.py": text}))
    assert found.sources == ("my.b",)
    assert found.only_defined
    last = 4 if state else 2
    both = find_custom_code(
        {PLACE}, acting(tmp_path, {"preload_settings.py": text}, last)
    )
    assert set(both.sources) == {"my.drop", "my.b"}
    place = "import sys\n\nsys.path.insert(0, '/home/me')\nimport my.b\n"
    leads_there = mark_as_generated(place, "imports my.b from its own folder")
    (last_one,) = acting(tmp_path, {"preload_my_b.py": leads_there})
    assert find_custom_code({PLACE}, [last_one]).sources == ("my.b",)


def test_missing_file_or_module_is_named_by_its_name() -> None:
    assert find_custom_code({PLACE}, [("/a/gone.py", 1, 0)]).sources == ("gone.py",)
    assert find_custom_code({PLACE}, [("my_ops", 0, 0)]).sources == ("my_ops",)


def test_local_paths_are_stripped_from_generated_files() -> None:
    def stripped(text: str) -> str:
        return text_of(without_generated_lines(statements_of(text, "ops.py")))

    text = "import sys\n\nsys.path.insert(0, '/home/me')\nimport my.b\n"
    ours = mark_as_generated(text, "imports my.b from its own folder")
    assert stripped(ours) == "import sys\nimport my.b\n"
    assert stripped(text) == text
    copied = mark_as_generated(text, describe_copy("serve.py"))
    assert stripped(copied) == copied

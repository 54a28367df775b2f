"""What the library raises names options as the command line does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shrinkfx
from shrinkfx.cli.parser import list_options as all_options
from shrinkfx.cli.triage import make_triage_parser
from shrinkfx.errors import UsageError

ROOT = Path(shrinkfx.__file__).parent


def test_minify_error_names_options_as_the_command_line_does() -> None:
    said = "--until hang needs --timeout, which defines how long a hang is"
    with pytest.raises(UsageError, match=re.escape(said)):
        shrinkfx.minify("model.pt2", until="hang")


def error_texts(text: str) -> Iterator[str]:
    """Yield the texts of the exceptions that a module raises."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def test_each_flag_named_in_an_error_is_an_option() -> None:
    """A mistyped name would send the reader to an option that does not exist."""
    known = {flag for option in all_options() for flag in option.flags}
    for action in make_triage_parser()._actions:
        known.update(action.option_strings)
    texts = (
        each for path in ROOT.rglob("*.py") for each in error_texts(path.read_text())
    )
    named = {
        flag for each in texts for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", each)
    }
    assert len(named) > 10
    assert named <= known

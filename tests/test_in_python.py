"""What the library raises names options as the command line does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import shrinkfx
from shrinkfx.cli.parser import list_options as all_options
from shrinkfx.errors import Flag, LoadError, MessageText, StorageError, UsageError
from shrinkfx.protocol.answers import Ready

ROOT = Path(shrinkfx.__file__).parent


@pytest.mark.parametrize(
    ("flag", "typed"),
    [
        (Flag("--until", "ima"), "--until ima"),
        (Flag("--preload", stands="FILE"), "--preload FILE"),
        (Flag("--baseline-runs", 1000), "--baseline-runs 1000"),
        (Flag("--timeout", 30.0), "--timeout 30.0"),
        (Flag("--max-minutes"), "--max-minutes"),
        (Flag("--run-code", True), "--run-code"),
        (Flag("--env", stands="KEY=VALUE"), "--env KEY=VALUE"),
        (
            Flag("--inductor-config", ("nan_asserts", True)),
            "--inductor-config nan_asserts=True",
        ),
    ],
)
def test_flag_is_formatted_as_typed(flag: Flag, typed: str) -> None:
    assert flag == typed


@pytest.mark.parametrize("kind", [LoadError, StorageError])
def test_error_with_advice_names_its_flags(
    kind: type[LoadError | StorageError],
) -> None:
    error = kind("model.pt2", "is odd", MessageText("omit ", Flag("--device")))
    assert str(error) == "model.pt2: is odd\nomit --device"
    assert error.advice == "omit --device"


def test_minify_error_names_options_as_the_command_line_does() -> None:
    said = "--until hang needs --timeout, which defines how long a hang is"
    with pytest.raises(UsageError, match=re.escape(said)):
        shrinkfx.minify("model.pt2", until="hang")


def test_message_with_flags_survives_serialization() -> None:
    advice = MessageText(
        "say ", Flag("--env", ("A", "1")), " or ", Flag("--run-code", True)
    )
    ready = Ready("is odd", MessageText("model.pt2"), advice)
    assert Ready.from_line(ready.to_line()) == ready


def test_each_flag_named_in_an_error_is_an_option() -> None:
    """A mistyped name would send the reader to an option that does not exist."""
    known = {flag for option in all_options() for flag in option.flags}
    text = "".join(path.read_text() for path in ROOT.rglob("*.py"))
    named = set(re.findall(r'\bFlag\(\s*"(--[a-z-]+)"', text))
    assert named
    assert named <= known


_IN_A_TEXT = re.compile(r"""f?["'][^"'\n]*(?<![\w-])--[a-z][a-z-]+""")


def test_error_text_contains_no_literal_option() -> None:
    """Options in errors are made with ``Flag``, so that they are checked above."""
    raised = re.compile(
        r"raise (?:Usage|Load|Storage)Error\((.*?)\n(?= {0,12}\S)", re.DOTALL
    )
    found = [
        (path.name, line)
        for path in sorted(ROOT.rglob("*.py"))
        if "cli" not in path.parts and "worker" not in path.parts
        for each in raised.findall(path.read_text())
        for line in each.splitlines()
        if _IN_A_TEXT.search(re.sub(r'Flag\([^)]*\)|shrinkfx [^"]*', "", line))
    ]
    assert found == []

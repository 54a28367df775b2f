"""What ``--help`` and ``--help-all`` show, word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.cli.main import main
from shrinkfx.cli.parser import list_options

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDED = {"--help": GOLDEN / "help.txt", "--help-all": GOLDEN / "help_all.txt"}
"""Write them again where they are to change: ``COLUMNS=80 shrinkfx --help-all``."""

LINES = 60
"""A screen, which ``--help`` is to stay below."""


@pytest.fixture(name="help_text", params=RECORDED)
def _help_text(
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[str, str]:
    """Ask for help, and hand back the option and the answer."""
    option: str = request.param
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        main([option])
    assert left.value.code == 0
    return option, capsys.readouterr().out


def test_help_matches_the_recorded_text(help_text: tuple[str, str]) -> None:
    """Lines may be broken elsewhere: Python's releases and terminals differ in that."""
    option, text = help_text
    assert text.split() == RECORDED[option].read_text().split()


def test_help_fits_into_80_columns_and_short_help_on_a_screen(
    help_text: tuple[str, str],
) -> None:
    option, text = help_text
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert option == "--help-all" or len(lines) < LINES


def test_help_lists_common_options_and_help_all_lists_every_option(
    help_text: tuple[str, str],
) -> None:
    """A new option is in ``--help-all`` without a word, and not in ``--help``."""
    option, text = help_text
    shown = {line.split()[0].strip(",") for line in text.splitlines() if line.strip()}
    expected = {each.flags[0]: each.common for each in list_options()}
    assert any(expected.values())
    if option == "--help-all":
        assert expected.keys() <= shown
    else:
        assert {
            f for f, common in expected.items() if common
        } == expected.keys() & shown
    assert "--help-all" in text


def test_only_common_options_have_brief_descriptions() -> None:
    assert [
        each.flag for each in list_options() if each.brief and not each.common
    ] == []


def test_unknown_option_error_names_both_help_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--no-such-option"])
    said = capsys.readouterr().err
    assert "common options: shrinkfx --help\n" in said
    assert "all options: shrinkfx --help-all\n" in said

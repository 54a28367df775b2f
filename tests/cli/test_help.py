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


@pytest.fixture(name="said", params=RECORDED)
def _said(
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


def test_help_says_what_it_said(said: tuple[str, str]) -> None:
    """Lines may be broken elsewhere: Python's releases and terminals differ in that."""
    option, text = said
    assert text.split() == RECORDED[option].read_text().split()


def test_help_fits_into_80_columns_and_the_common_one_on_a_screen(
    said: tuple[str, str],
) -> None:
    option, text = said
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert option == "--help-all" or len(lines) < LINES


def test_each_option_is_in_one_help_and_the_common_ones_in_both(
    said: tuple[str, str],
) -> None:
    """A new option is in ``--help-all`` without a word, and not in ``--help``."""
    option, text = said
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


def test_shorter_phrases_are_for_options_that_are_common() -> None:
    assert [
        each.flag for each in list_options() if each.brief and not each.common
    ] == []


def test_mistake_is_answered_with_the_names_of_both(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--no-such-option"])
    said = capsys.readouterr().err
    assert "common options: shrinkfx --help\n" in said
    assert "all options: shrinkfx --help-all\n" in said

"""What ``--help`` shows, word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.cli.main import main

HELP = Path(__file__).with_name("help.txt")
"""Write it again where it is to change: ``COLUMNS=80 shrinkfx --help``."""


def test_help_says_what_it_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines may be broken elsewhere: Python's releases and terminals differ in that."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out.split() == HELP.read_text().split()

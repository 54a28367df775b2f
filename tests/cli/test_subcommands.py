"""A subcommand stands for an option, and must be the first word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrinkfx.api import Confirmed, Options
from shrinkfx.cli.main import main


@pytest.fixture(name="verify_calls")
def _verify_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Record the calls of ``api.verify``."""
    verify_calls: list[Any] = []

    def verify(options: Options, _: object, **rest: Any) -> Confirmed:
        verify_calls.append(
            (options.model, options.timeout_s, rest["across"], rest["torch"])
        )
        return Confirmed(None, "passes", False)

    monkeypatch.setattr("shrinkfx.api.verify", verify)
    monkeypatch.chdir(tmp_path)
    return verify_calls


def test_verify_subcommand_equals_the_option(verify_calls: list[Any]) -> None:
    rest = ["--timeout", "9", "--across", "python", "--torch", "2.13.0"]
    for words in (["verify", "repro.py"], ["repro.py", "--verify"]):
        assert main([*words, *rest]) == 3
    first, second = verify_calls
    assert first == second == (Path("repro.py"), 9.0, ["python"], "2.13.0")


def test_only_the_first_word_is_a_subcommand(
    verify_calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--verify", "verify"]) == 3
    assert main(["verify", "verify"]) == 3
    assert [each[0] for each in verify_calls] == [Path("verify")] * 2
    assert main(["./verify"]) == 2  # a program of that name, which is not there
    assert "verify: no such file" in capsys.readouterr().err
    assert len(verify_calls) == 2

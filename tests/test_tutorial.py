"""The tutorial, followed to the letter: every command, and what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()


def code_blocks() -> list[tuple[str, str]]:
    """List each block with the text before it."""
    found = re.split(r"^```(python|console)\n(.*?)^```$", TEXT, flags=re.M | re.S)
    return [(found[i], found[i + 2]) for i in range(0, len(found) - 1, 3)]


def files() -> dict[str, str]:
    named = {}
    for before, code in code_blocks():
        if not code.startswith("$ "):
            (name,) = re.findall(r"`(\w+\.py)`:\s*$", before)
            named[name] = code
    return named


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command with the lines that it is said to show."""
    for _, code in code_blocks():
        for part in re.split(r"^\$ ", code, flags=re.M)[1:] if "$ " in code else []:
            command, *shown = part.splitlines()
            yield command, shown


def pattern(line: str) -> str:
    """Match a line as it is, but for numbers and what ``...`` leaves out."""
    parts = (re.escape(part) for part in re.split(r"\d[\d.]*|\.\.\.", line.rstrip()))
    gaps = re.findall(r"\d[\d.]*|\.\.\.", line.rstrip())
    held = [r"\d[\d.e+-]*" if gap != "..." else ".*" for gap in gaps]
    return "".join(a + b for a, b in zip(parts, [*held, ""], strict=True))


def missing(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """List what is said to be shown and is not, in that order."""
    left = iter(printed)
    return [
        line
        for line in shown
        if line != "..." and not any(re.fullmatch(pattern(line), p) for p in left)
    ]


def test_tutorial_lines_are_compared_with_the_printed_lines() -> None:
    printed = ["check 12  7.5 s", "failure: x differs by 3e-05", "done"]
    assert missing(["check 1  60 s", "...", "done"], printed) == []
    assert missing(["failure: x ..."], printed) == []
    assert missing(["done", "check 1  60 s"], printed) == ["check 1  60 s"]
    assert missing(["failure: y ..."], printed) == ["failure: y ..."]


def test_tutorial_has_files_and_commands() -> None:
    assert [*files()] == ["my_ops.py", "export_model.py"]
    run = [command for command, _ in commands()]
    assert run[:2] == [
        "python export_model.py",
        "shrinkfx model.pt2 --preload my_ops.py --out report",
    ]
    assert len(run) == TEXT.count("\n$ ")


@pytest.mark.aoti
@pytest.mark.every_run
def test_tutorial_commands_print_the_shown_lines(tmp_path: Path) -> None:
    """One test, since each command goes on from the one before."""
    for name, code in files().items():
        (tmp_path / name).write_text(code)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, words in {"python": "", "shrinkfx": "-W ignore -m shrinkfx"}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    status = 0
    for command, shown in commands():
        done = subprocess.run(
            ["bash", "-c", f"(exit {status}); {command}"],
            cwd=tmp_path,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=1200,
            check=False,
        )
        status = done.returncode
        assert missing(shown, done.stdout.splitlines()) == [], done.stdout
        assert status == 0 or "Error" in "".join(shown), done.stdout

"""What a sweep leaves behind."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from shrinkfx.report.sweep import (
    PICTURE,
    Point,
    SweepRow,
    draw,
    format_sweep_table,
)


def test_table_has_a_line_for_each_failure() -> None:
    rows = [
        SweepRow("n=33", "assert", "index out of bounds: 0 <= tmp8 < 32", "n=32"),
        SweepRow("n=1025, m=2", "crash", "SIGSEGV", "none seen"),
    ]
    assert format_sweep_table(rows).splitlines() == [
        "smallest sizes  kind    failure                              nearest pass",
        "n=33            assert  index out of bounds: 0 <= tmp8 < 32  n=32",
        "n=1025, m=2     crash   SIGSEGV                              none seen",
    ]


def test_long_failure_is_truncated() -> None:
    texts = ("x" * 500, "x" * 61, "x" * 60)
    rows = [SweepRow("n=3", "assert", text, "n=2") for text in texts]
    shown = [line.split()[2] for line in format_sweep_table(rows).splitlines()[1:]]
    assert shown == ["x" * 57 + "...", "x" * 57 + "...", "x" * 60]


def points(count: int) -> list[Point]:
    """Scatter sizes of which the last two tell by their sum who fails."""
    draws = random.Random(1)
    sizes = [tuple(draws.randrange(2, 99) for _ in range(count)) for _ in range(150)]
    most = 50 * min(2, count)
    return [Point(s, "fails" if sum(s[-2:]) > most else "passes") for s in sizes]


def test_missing_matplotlib_gives_an_installation_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'shrinkfx[plot]'" in draw(tmp_path, ["n"], points(1), [])
    assert not (tmp_path / PICTURE).exists()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_picture_shows_each_verdict_and_marks_the_smallest_sizes(
    tmp_path: Path, count: int
) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'shrinkfx[plot]'")
    names = [f"size{n}" for n in range(count)]
    shown = [*points(count), Point((50,) * count, "invalid")]
    assert draw(tmp_path, names, shown, [(60,) * count]) == ""
    first = (tmp_path / PICTURE).read_text()
    for word in ("passes", "fails", "invalid", *names[:2]):
        assert f"<!-- {word} -->" in first
    draw(tmp_path, names, shown, [])
    assert (tmp_path / PICTURE).read_text() != first

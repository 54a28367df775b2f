"""Walks by hand give what networkx does, on a program of the benchmark."""

from __future__ import annotations

import sys

import pytest
from walks import main


def test_graph_walks_are_measured_and_agree_with_networkx(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["walks.py", "--operators", "60", "--runs", "1"])
    main()
    walks = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert walks == ["nodes", "producers", "ancestors", "slices"]

"""On a real GPU: ``python -m pytest -m cuda``, from a bare checkout as well."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from on_gpu import PRELOAD, ROOT, export, export_haystack, holds_context, run

from shrinkfx.check.client.server import Server
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import CheckOriginal, Describe, Request

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.fixture(name="haystack")
def _haystack(tmp_path: Path) -> Path:
    return export_haystack(tmp_path / "model.pt2")


def test_illegal_access_is_classified_and_reduced(
    haystack: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--until", "ima", "--preload", str(PRELOAD), "--out", str(out)]
    done = run(str(haystack), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["kind"] == "ima"
    assert summary["operators"]["after"] <= 2
    assert summary["minimal"]
    assert summary["verified"] == {"runs": 3, "failed": 3}


def test_parent_holds_no_context(haystack: Path, tmp_path: Path) -> None:
    options = ["--preload", str(PRELOAD), "--max-checks", "2"]
    command = [sys.executable, "-m", "shrinkfx", str(haystack), *options]
    parent = subprocess.Popen([*command, "--out", str(tmp_path / "out")], cwd=ROOT)
    try:
        while parent.poll() is None:
            assert not holds_context(parent.pid)
            time.sleep(0.2)
    finally:
        parent.kill()
        parent.wait()
    assert parent.returncode == 4


def test_server_holds_no_context(haystack: Path) -> None:
    with Server(model=haystack, preloads=[str(PRELOAD)]) as server:
        for task in (Describe(), CheckOriginal()):
            ending = server.ask(Request(task))
        seen = classify_ending(ending).signature
        assert seen is not None
        assert (seen.kind, seen.stage) == (Kind.IMA, Stage.RUN)
        assert not holds_context(server.pid)


def test_interpreter_holds_no_context(haystack: Path) -> None:
    with Server(
        model=haystack, preloads=[str(PRELOAD)], backend=Backend.INTERPRETER
    ) as server:
        for task in (Describe(), CheckOriginal()):
            ending = server.ask(Request(task))
        seen = classify_ending(ending).signature
        assert seen is not None
        assert seen.kind is Kind.IMA
        assert not holds_context(server.pid)


def test_check_after_an_illegal_access_is_unaffected(haystack: Path) -> None:
    with Server(model=haystack, preloads=[str(PRELOAD)]) as server:
        server.ask(Request(Describe()))
        endings = [server.ask(Request(CheckOriginal())) for _ in range(2)]
    first, second = (classify_ending(ending).signature for ending in endings)
    assert first is not None
    assert first.admits(second)


def test_healthy_cpu_program_moved_to_cuda_does_not_fail(tmp_path: Path) -> None:
    model = export(torch.nn.Linear(32, 8), tmp_path / "healthy.pt2", "cpu")
    done = run(str(model), "--device", "cuda", "--out", str(tmp_path / "out"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "passes" in done.stderr

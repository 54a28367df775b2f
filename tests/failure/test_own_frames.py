"""Whose code a compiler was in that hung or died, by paths and names alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shrinkfx.failure.readers.threads import find_user_frame

TORCHS = "/env/lib/python3.11/site-packages/torch/_inductor/compile_fx.py"


def dump(*frames: tuple[str, str], above: str = "Current thread 0x7f17") -> str:
    rows = [f'  File "{path}", line 7 in {name}' for path, name in frames]
    return "\n".join([f"{above} (most recent call first):", *rows, "", "more"])


@pytest.mark.parametrize(
    "path",
    [
        TORCHS,
        "/env/lib/python3.11/site-packages/filelock/_api.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/root/.pyenv/versions/3.11.7/lib/python3.11/contextlib.py",
        "/home/me/pytorch/torch/fx/node.py",
        "/home/me/tool/shrinkfx/worker/explaining/origins.py",
        f"/tmp/torchinductor_me/ab/c{'ab2' * 17}.py",
        "<eval_with_key>.3",
    ],
)
def test_installed_and_generated_files_are_not_user_frames(path: str) -> None:
    assert find_user_frame(dump((path, "go"), (TORCHS, "compile_fx"))) == ""


@pytest.mark.parametrize(
    "path",
    ["/home/me/shrinkfx/passes.py", "/tmp/torchinductor_me/passes.py", "passes.py"],
)
def test_innermost_user_frame_is_found(path: str) -> None:
    outer = "/home/me/driver.py", "compile_all"
    log = dump((TORCHS, "go"), (path, "settle"), (TORCHS, "go"), outer)
    assert find_user_frame(log) == "passes.py:settle"


def test_top_level_frame_of_the_script_is_not_a_user_frame() -> None:
    assert find_user_frame(dump((TORCHS, "go"), ("/tmp/x/repro.py", "<module>"))) == ""
    assert find_user_frame(dump(("/tmp/x/repro.py", "settle"))) == "settle"


def test_frames_of_other_threads_are_ignored() -> None:
    other = dump(("/home/me/loader.py", "wait"), above="Thread 0x7f18")
    assert find_user_frame(other) == ""
    current = dump((TORCHS, "go"))
    assert find_user_frame(f"{other}\n{current}") == ""
    assert find_user_frame(f"{current}\n{other}") == ""


def test_log_without_frames_has_no_user_frame() -> None:
    assert find_user_frame("") == ""
    assert find_user_frame("settle: still at it\n") == ""


HANGS = """
import torch
import torch._inductor.config

import passes

torch._inductor.config.post_grad_custom_pre_pass = passes.settle
exported = torch.export.export(torch.nn.ReLU(), (torch.ones(3),))
torch._inductor.aoti_compile_and_package(exported)
"""
PASS = """
def settle(graph):
    node = next(node for node in graph.nodes if node.op == "call_function")
    print("at it", flush=True)
    while True:
        node.args = node.args
"""


@pytest.mark.aoti
def test_hanging_user_pass_is_found_in_a_real_dump(tmp_path: Path) -> None:
    (tmp_path / "repro.py").write_text(HANGS)
    (tmp_path / "passes.py").write_text(PASS)
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "repro.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        ended = threading.Timer(300.0, os.killpg, (process.pid, signal.SIGKILL))
        ended.start()
        try:
            assert process.stdout
            assert process.stdout.readline() == "at it\n"
            process.send_signal(signal.SIGABRT)
            log = process.communicate()[1]
        finally:
            ended.cancel()
            process.kill()
    assert "torch/_inductor/" in log
    assert find_user_frame(log) == "passes.py:settle"

"""No false alarm: models without a fault, all probes, static and dynamic.

Two in an ordinary run, all with ``-m slow``.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from healthy_models import MODELS, SIZES

HERE = Path(__file__).parent
ALL = list(itertools.product(MODELS, ("float32", "bfloat16"), ("static", "dynamic")))
USUAL = [("dlrm", "float32", "dynamic"), ("transformer", "bfloat16", "static")]


def check(name: str, precision: str, shapes: str) -> None:
    """Run all probes in a process of its own; each finding is an error there."""
    root = str(HERE.parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "interpreting.py")],
        input=f"healthy {name} {precision} {shapes}\n",
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert "error" not in answer, answer["error"][-2000:]
    assert answer["accesses"] >= 10  # of the benchmark and of the last size
    assert answer["sizes"] == (len(SIZES) if shapes == "dynamic" else 1)


@pytest.mark.parametrize(("name", "precision", "shapes"), USUAL)
def test_healthy_model_gives_no_alarm(name: str, precision: str, shapes: str) -> None:
    check(name, precision, shapes)


OTHERS = [case for case in ALL if case not in USUAL]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision", "shapes"), OTHERS)
def test_every_healthy_model_gives_no_alarm(
    name: str, precision: str, shapes: str
) -> None:
    check(name, precision, shapes)

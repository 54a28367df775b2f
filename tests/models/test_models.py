"""Real architectures: each loads, and any cut of it computes what it computed.

Two in an ordinary run, all with ``-m slow``. None needs a compiler.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from architectures import MODELS

CUTS = Path(__file__).with_name("cuts.py")
USUAL = [("gpt2", "dynamic"), ("convnext", "static")]
ALL = list(itertools.product(MODELS, ("static", "dynamic")))
FEW, MANY = 15, 50
NO_PROGRAMS = {"it would have no outputs"}
"""Why a cut may be refused: of assertions alone nothing comes."""


def answer(name: str, shapes: str, cuts: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(CUTS), name, shapes, str(cuts)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(name: str, shapes: str, cuts: int) -> None:
    tally = answer(name, shapes, cuts)
    if tally["missing"]:
        pytest.skip(tally["missing"])
    assert tally["operators"] > 10
    assert tally["printed"] > 0
    assert tally["refused"].keys() <= NO_PROGRAMS, tally["refused"]
    assert sum(tally["refused"].values()) <= cuts // 5


@pytest.mark.parametrize(("name", "shapes"), USUAL)
def test_cuts_of_a_model_compute_the_same_values(name: str, shapes: str) -> None:
    check(name, shapes, FEW)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shapes"), ALL)
def test_cuts_of_every_model_compute_the_same_values(name: str, shapes: str) -> None:
    check(name, shapes, MANY)

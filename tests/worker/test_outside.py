"""A compiled program at sizes that it does not declare."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from shrinkfx.protocol.answers import Checked
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.checking.check import Check, check_undeclared_sizes
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs


class Halves(nn.Module):
    """Add the halves of an input: eager fails where there are none."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[0] // 2
        total: Tensor = x[:half] + x[half:]
        return total


EXAMPLE = Inputs((torch.randn(4, 2),), {})
HALVES = export(Halves(), EXAMPLE.args, dynamic_shapes=({0: 2 * Dim("n", min=2)},))


SETUP = Setup(directory="", inductor={"max_autotune": True})


def build_once(
    exported: object, folder: Path, options: Mapping[str, object], arguments: object
) -> str:
    assert options == SETUP.inductor  # the package may have gone
    return "package"


def refuse(x: Tensor) -> Tensor:
    raise RuntimeError("input_handles[0]: dim value is too small at 0")


def be_wrong(x: Tensor) -> Tensor:
    return x[: len(x) // 2] + x[len(x) // 2 :] + 1


def give_anything(x: Tensor) -> Tensor:
    return x


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_RUNTIME_CHECK_INPUTS", "0")


@pytest.mark.parametrize(
    ("rows", "compiled", "answer"),
    [
        (2, Halves(), Checked()),
        (2, refuse, Checked(refused="input_handles[0]: dim value is too small at 0")),
        (5, refuse, Checked(refused="input_handles[0]: dim value is too small at 0")),
        (5, Halves(), Checked(refused="The size of tensor a (2) must match")),
    ],
)
def test_refusal_or_the_eager_result_passes_at_undeclared_sizes(
    rows: int, compiled: Callable[..., Any], answer: Checked, outside: Outside
) -> None:
    seen = outside(rows, compiled)
    assert replace(seen, refused=seen.refused[: len(answer.refused)]) == answer
    assert os.environ["AOTI_RUNTIME_CHECK_INPUTS"] == "1"


@pytest.mark.parametrize(
    ("rows", "compiled", "words"),
    [
        (2, be_wrong, "elements differ"),
        (2, give_anything, "shape"),
        (
            5,
            give_anything,
            "the compiled program returns a result, and eager raises RuntimeError",
        ),
    ],
)
def test_silent_wrong_result_at_undeclared_sizes_is_a_difference(
    rows: int, compiled: Callable[..., Any], words: str, outside: Outside
) -> None:
    difference = outside(rows, compiled).difference
    assert difference is not None
    assert words in difference.text


Outside = Callable[[int, Callable[..., Any]], Checked]


@pytest.fixture(name="outside")
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Outside:
    """Run what stands for a compiled program."""

    def run(rows: int, compiled: Callable[..., Any]) -> Checked:
        monkeypatch.setattr(aoti, "build_once", build_once)
        monkeypatch.setattr(aoti, "load", lambda package: compiled)
        made = RebuiltCandidate(HALVES, EXAMPLE, Inputs((torch.randn(rows, 2),), {}))
        options = CheckOptions(package="package")
        check = Check(SETUP, made, options, lambda stage: None, tmp_path)
        answer = check_undeclared_sizes(check)
        assert isinstance(answer, Checked)
        return answer

    return run

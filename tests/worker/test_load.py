"""What a worker says of programs and inputs that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from zoo import export

from shrinkfx.errors import LoadError
from shrinkfx.program.messages import Setup
from shrinkfx.worker.load import load


def setup(folder: Path, name: str = "weights", inputs: Any = None) -> Setup:
    torch.export.save(export(name), folder / "model.pt2")
    given = None
    if inputs is not None:
        torch.save(inputs, folder / "inputs.pt")
        given = str(folder / "inputs.pt")
    return Setup(str(folder), model=str(folder / "model.pt2"), inputs=given)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((torch.zeros(3, 4, device="meta"),), "on meta"),
        ((torch.zeros(3, 4, dtype=torch.int64),), "torch.int64 of shape (3, 4)"),
        ((torch.zeros(4),), "of shape (4,)"),
        ((3,), "input 0 is int"),
        ((torch.zeros(3, 4),) * 2, "the inputs are nested as"),
    ],
)
def test_inputs_that_do_not_fit_are_said_with_what_was_expected(
    tmp_path: Path, inputs: Any, words: str
) -> None:
    with pytest.raises(LoadError) as caught:
        load(setup(tmp_path, inputs=inputs))
    assert words in str(caught.value)
    assert "the program expects" in str(caught.value)
    assert "inputs.pt" in caught.value.subject


def test_inputs_may_come_with_near_ones_that_pass(tmp_path: Path) -> None:
    failing, passing = torch.zeros(3, 4), torch.ones(2, 4)
    given = {"args": (failing,), "kwargs": {}, "passing": {"args": (passing,)}}
    program = load(setup(tmp_path, inputs=given))
    assert program.passing is not None
    assert torch.equal(program.passing.args[0], passing)
    assert torch.equal(program.failing.args[0], failing)
    assert load(setup(tmp_path, inputs=(failing,))).passing is None


def test_near_inputs_must_fit_as_well(tmp_path: Path) -> None:
    given = {"args": (torch.zeros(3, 4),), "passing": {"args": (torch.zeros(4),)}}
    with pytest.raises(LoadError, match="of shape"):
        load(setup(tmp_path, inputs=given))

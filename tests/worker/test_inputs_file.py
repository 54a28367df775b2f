"""Inputs that no exported program takes: their file is blamed, not the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from shrinkfx.errors import LoadError
from shrinkfx.worker.loading.load import read_inputs

X = torch.ones(3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"args": (X,), "kwargs": {1: X}}, "'kwargs' has the key 1"),
        (
            (torch.nested.nested_tensor([X, X], layout=torch.jagged),),
            "holds a nested tensor",
        ),
        ((X.numpy(),), "holds an array or number of NumPy"),
        ((X.numpy()[0],), "holds an array or number of NumPy"),
    ],
)
def test_unsupported_inputs_are_reported_for_the_inputs_file(
    tmp_path: Path, data: Any, words: str
) -> None:
    path = tmp_path / "inputs.pt"
    torch.save(data, path)
    with pytest.raises(LoadError, match=words) as caught:
        read_inputs(str(path))
    assert str(caught.value.subject) == str(path)

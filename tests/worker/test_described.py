"""What is told of a program's inputs and symbols, as a file holds it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.eager.intermediates import EagerValues
from shrinkfx.worker.explaining.compiled_view import describe_program_inputs
from shrinkfx.worker.graph.describe import describe
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.printing.module import export_source


class Short(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._check(x.shape[0] <= 16)
        return x.relu() + 1


@pytest.fixture(name="built")
def _built(tmp_path: Path) -> RebuiltCandidate:
    """A program that was saved, loaded and cut from, of which all is left."""
    path, x = tmp_path / "model.pt2", torch.randn(6, 4)
    sizes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    torch.export.save(torch.export.export(Short(), (x,), dynamic_shapes=sizes), path)
    program = load(Setup(str(tmp_path), model=str(path)))
    values = EagerValues(tmp_path / "values", program)
    values.record(program)
    return rebuild(program, Candidate.from_skeleton(describe(program, "")), values)


def test_symbols_have_the_guards_of_the_input_program(
    built: RebuiltCandidate,
) -> None:
    known = describe_program_inputs(built)
    assert not known.guards_unknown
    rows, columns = known.symbols
    (guard,) = rows.guards
    assert guard.replace("(", "").replace(")", "") == f"{rows.name} <= 16"
    assert columns.guards == ()


def test_symbols_of_a_reexported_program_have_no_known_guards(
    built: RebuiltCandidate,
) -> None:
    known = describe_program_inputs(built.with_new_export(export_source(built)[0]))
    assert "exported again" in known.guards_unknown
    assert not any(symbol.guards for symbol in known.symbols)

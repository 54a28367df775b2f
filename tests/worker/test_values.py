"""What is kept of the original's eager runs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from shrinkfx.program.candidate import Candidate
from shrinkfx.worker.describe import describe
from shrinkfx.worker.load import Inputs, Program
from shrinkfx.worker.rebuild import rebuild
from shrinkfx.worker.values import Values


class Wave(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() + 1


def test_inputs_that_the_program_refuses_are_run_all_the_same(tmp_path: Path) -> None:
    exported = torch.export.export(Wave(), (torch.rand(4),))
    example, failing = Inputs((torch.rand(4),), {}), Inputs((torch.rand(5),), {})
    program = Program(exported, exported.run_decompositions({}), example, failing)
    values = Values(tmp_path, program)
    error, lies = values.record(program)
    assert "to be equal to 4, but got 5" in error
    assert lies == []  # the operators do what they said of the example
    assert values.failing("sin").shape == (5,)
    whole = Candidate.whole(describe(program, ""))
    assert rebuild(program, whole, values).failing.args[0].shape == (5,)


def test_inputs_that_the_program_takes_are_not_called_refused(tmp_path: Path) -> None:
    exported = torch.export.export(Wave(), (torch.rand(4),))
    example, failing = Inputs((torch.rand(4),), {}), Inputs((torch.ones(4),), {})
    program = Program(exported, exported.run_decompositions({}), example, failing)
    assert Values(tmp_path, program).record(program) == ("", [])

"""Programs that export has written are read as torch reads them.

A dozen in an ordinary run; ``pytest -m slow`` reads 500.
"""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import pytest
import sympy
import torch
from programs import make
from torch._export.verifier import SpecViolationError
from torch.export import Dim, ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.worker.loading.archive import read_program

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def seen(program: ExportedProgram) -> list[object]:
    """Gather what a reader makes of a file: graph, sizes, ranges, nesting, guards."""
    values = [str(n.meta.get("val")) for n in program.graph.nodes]
    guards = [ast.dump(ast.parse(text)) for text in program._guards_code]
    ranges = {sympy.srepr(k): str(v) for k, v in program.range_constraints.items()}
    return [str(program.graph), values, guards, ranges, str(program.call_spec)]


def read_both_ways(seeds: range, folder: Path) -> int:
    """Count the programs that were read; the others have no export."""
    done = 0
    for seed in seeds:
        try:
            exported = make(Random(seed)).export()
        except Exception:  # noqa: BLE001 - a size that only data tells, export's own bugs
            continue
        path = folder / "program.pt2"
        torch.export.save(exported, path)
        try:
            by_torch = torch.export.load(path)
        except SpecViolationError:  # torch does not read what torch has written
            with pytest.raises(LoadError, match="SpecViolationError"):
                read_program(str(path), str(path))
            continue
        assert seen(read_program(str(path), str(path))) == seen(by_torch), seed
        done += 1
    return done


class Wide(torch.nn.Module):
    """Adds up as many sizes as there are inputs."""

    def forward(self, x: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(x)


def test_long_sum_of_sizes_is_read(tmp_path: Path) -> None:
    given = [torch.ones(n + 2) for n in range(COUNT)]
    shapes = {"x": [{0: Dim.AUTO} for _ in given]}
    path = str(tmp_path / "program.pt2")
    exported = torch.export.export(Wide(), (given,), dynamic_shapes=shapes)
    torch.export.save(exported, path)
    read_program(path, path)


COUNT = 300
"""Sizes whose sum takes more than 10,000 characters to write."""


def test_a_dozen_programs_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    assert read_both_ways(range(13), tmp_path) >= 12


@pytest.mark.slow
def test_500_programs_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    assert read_both_ways(range(540), tmp_path) >= 500

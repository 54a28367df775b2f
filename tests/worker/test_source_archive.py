"""Programs come back from a source archive as they were."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from shrinkfx.check.preflight import require_program
from shrinkfx.errors import LoadError, UsageError
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.origin import origin_of
from shrinkfx.worker.printing.module import save_as_source
from shrinkfx.worker.private_api.graph_api import pytree

HERE = Path(__file__).name

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")


class Structured(nn.Module):
    """Takes containers, constants and keywords; writes a buffer and an input."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0))
        self.tied = self.weight
        self.register_buffer("count", torch.zeros(4))

    def forward(
        self,
        given: Mapping[str, Any],
        rows: Tensor,
        *,
        doubled: bool,
        scale: float = 2.0,
        absent: Tensor | None = None,
    ) -> dict[str, Any]:
        self.count.add_(1)
        given["pair"][0].add_(1)
        out = given["one"] * self.weight + given["pair"][0] + rows
        return {
            "out": out * scale if doubled else out,
            "more": [self.count + self.tied],
        }


class Sizes(nn.Module):
    """Takes a number."""

    def forward(self, x: Tensor, n: int) -> Tensor:
        return x[:, :2] * n + x.shape[0]


class Loops(nn.Module):
    """Carries a Python number, which torch.export.save of torch 2.15 refuses."""

    def forward(self, x: Tensor) -> Tensor:
        def more(i: Any, x: Tensor) -> Any:
            return i < 5

        def step(i: Any, x: Tensor) -> Any:
            return i + 1, x.sin() + 1

        carried: tuple[Any, Tensor]
        carried = torch.ops.higher_order.while_loop(more, step, (0, x), ())
        return carried[1].relu()


class Quantized(nn.Module):
    """Computes a tensor of quint8, which torch.export.save of torch 2.15 refuses."""

    def forward(self, x: Tensor) -> Tensor:
        quantized: Any = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
        done: Tensor = quantized.dequantize() + 1
        return done


def structured(rows: Tensor, shapes: Any = None) -> ExportedProgram:
    given = {"one": torch.ones(4), "pair": (torch.ones(1),)}
    kwargs = {"doubled": True, "absent": None}
    return torch.export.export(
        Structured(), (given, rows), kwargs, dynamic_shapes=shapes
    )


def many_rows() -> ExportedProgram:
    dims = {"one": None, "pair": (None,)}
    rows = {0: Dim("rows", min=3, max=64)}
    shapes = {"given": dims, "rows": rows, "doubled": None, "absent": None}
    return structured(torch.ones(7, 4), shapes)


def sized(number: Any) -> ExportedProgram:
    shapes = {"x": {0: Dim("b", max=64)}, "n": number}
    return torch.export.export(Sizes(), (torch.ones(6, 4), 3), dynamic_shapes=shapes)


def exported(module: nn.Module) -> ExportedProgram:
    return torch.export.export(module, (torch.arange(8.0),))


PROGRAMS: dict[str, Callable[[], ExportedProgram]] = {
    "containers": lambda: structured(torch.ones(4)),
    "a dynamic dim among containers": many_rows,
    "a constant": lambda: sized(None),
    "a number": lambda: sized(Dim.DYNAMIC),
    "a loop": lambda: exported(Loops()),
    "quint8": lambda: exported(Quantized()),
}
"""Attention, scans and conds are in tests/intake/test_higher_order.py."""


def results(program: ExportedProgram) -> list[Any]:
    args, kwargs = copy.deepcopy(program.example_inputs) or ((), {})
    leaves: list[Any] = pytree.tree_leaves(program.module()(*args, **kwargs))
    return leaves


@pytest.mark.parametrize("name", PROGRAMS)
def test_archived_program_keeps_results_signature_and_ranges(
    name: str, tmp_path: Path
) -> None:
    with torch.no_grad():
        before = PROGRAMS[name]()
        path = tmp_path / "program.zip"
        save_as_source(before, path)
        after = load(Setup(str(tmp_path), model=str(path))).original
        for mine, theirs in zip(results(after), results(before), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert pytree.tree_structure(after.example_inputs) == pytree.tree_structure(
        before.example_inputs
    )
    before_ranges = sorted(map(str, before.range_constraints.values()))
    assert sorted(map(str, after.range_constraints.values())) == before_ranges
    origins = [origin_of(node) for node in after.graph.nodes if origin_of(node)]
    assert origins
    assert all(origin.startswith(HERE) for origin in origins)


def test_same_program_gives_an_identical_archive(tmp_path: Path) -> None:
    path = tmp_path / "program.zip"
    archives = []
    for _ in range(2):
        save_as_source(exported(Quantized()), path)
        archives.append(path.read_bytes())
    assert archives[0] == archives[1]


def test_source_archive_requires_permission_to_run_code(tmp_path: Path) -> None:
    path = tmp_path / "program.zip"
    save_as_source(exported(Quantized()), path)
    with pytest.raises(UsageError, match=r"as Python code.*add --run-code"):
        require_program(path)
    require_program(path, run_code=True)


def test_source_archive_without_its_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "program.zip"
    save_as_source(exported(Quantized()), path)
    path.write_bytes(path.read_bytes().replace(b"tensors.pt", b"another.pt"))
    with pytest.raises(LoadError, match="capture the script again"):
        load(Setup(str(tmp_path), model=str(path)))

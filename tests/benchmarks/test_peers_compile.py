"""Failing scripts of torch.compile: written, and what two tools made of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from compile_scripts import SCRIPTS, Script
from peers_compile import NOT_RUN, Row, count_operators, summary
from tools import Result
from torch_side import Outcome

PRINTED = """
class Repro(torch.nn.Module):
    def forward(self, arg0_1, arg1_1):
        sym_size = torch.ops.aten.sym_size.int(arg1_1, 0)
        max_pool = torch.ops.aten.max_pool2d_with_indices.default(arg1_1, [2, 2])
        getitem = max_pool[0]
        sigmoid = torch.ops.aten.sigmoid.default(getitem);  getitem = None
        return (sigmoid,)
mod = Repro()
"""


def row(operators: int, theirs: Result = NOT_RUN, *, refails: bool = True) -> Row:
    ours = Result("", operators=operators, total=20.0, refails=refails)
    return Row("small", "mismatch", 2, ours, theirs)


def test_there_are_24_scripts_with_different_names() -> None:
    assert len({script.name for script in SCRIPTS}) == len(SCRIPTS) == 24


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_script_and_its_plant_are_python(script: Script, tmp_path: Path) -> None:
    source = script.write(tmp_path).read_text()
    names = {alias.name for n in ast.walk(ast.parse(source)) for alias in _names(n)}
    assert set(script.planted) <= names
    for name in script.planted:
        ast.parse((tmp_path / f"{name}.py").read_text())


def _names(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import) else []


def test_operators_are_counted_without_sizes_and_getitem() -> None:
    assert count_operators(PRINTED) == 2


def test_operators_of_invalid_python_are_not_counted() -> None:
    assert count_operators("def forward(self):\nmod = Repro()") is None


def test_row_misses_its_target() -> None:
    assert row(3).misses == ""
    assert row(4).misses == "too many operators"
    assert row(2, refails=False).misses == "no verified repro"


def test_costs_are_compared_where_both_reduce() -> None:
    reduced = Result("", total=100.0, outcome=Outcome.REDUCED)
    slipped = Result("", total=100.0, outcome=Outcome.SLIPPED)
    assert row(2, reduced).ratio == pytest.approx(0.2)
    assert row(2, slipped).ratio is None
    text = "\n".join(summary([row(2, reduced), row(2)]))
    assert "reduces 2 of 2 scripts, PyTorch's minifier 1 of 1" in text
    assert "geometric mean 0.20" in text
    assert "Not run with PyTorch's minifier: `small`" in text

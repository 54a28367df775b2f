"""AOTInductor's input checks in Python, for ``AOTI_RUNTIME_CHECK_INPUTS``.

Inductor's Python wrapper ignores the variable. The order and the messages of the checks
are those that ``torch/_inductor/codegen/cpp_wrapper_cpu.py`` writes into a package.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

VARIABLE = "AOTI_RUNTIME_CHECK_INPUTS"


def check_declared_inputs(exported: ExportedProgram, values: Sequence[Any]) -> None:
    """Compare inputs with the program's declarations, if the variable enables that.

    Args:
        values: all inputs of the graph in order, weights included.

    Raises:
        RuntimeError: an input has another dtype, size or stride than declared.
    """
    if os.environ.get(VARIABLE, "0")[:1] in ("", "0"):
        return
    specs = exported.graph_signature.input_specs
    placeholders = exported.graph.find_nodes(op="placeholder")
    inputs = [
        (node.meta.get("val"), value)
        for spec, node, value in zip(specs, placeholders, values, strict=True)
        if spec.kind is InputKind.USER_INPUT
    ]
    for number, (declared, value) in enumerate(inputs):
        if isinstance(declared, torch.Tensor) and isinstance(value, torch.Tensor):
            for mismatch in _wrong(declared, value):
                raise RuntimeError(f"input_handles[{number}]: {mismatch}")


def _wrong(declared: torch.Tensor, value: torch.Tensor) -> Iterator[str]:
    """Yield a message for each mismatch, in the order of AOTInductor's checks."""
    if value.dtype is not declared.dtype:
        yield f"unmatched dtype, expected: {declared.dtype}, but got: {value.dtype}"
    for dim, (size, got) in enumerate(zip(declared.shape, value.shape, strict=True)):
        low, high = _range(size)
        if low == high != got:
            yield f"unmatched dim value at {dim}, expected: {low}, but got: {got}"
        elif got < low:
            text = f"expected it to be >= {low}, but got: {got}"
            yield f"dim value is too small at {dim}, {text}"
        elif got > high:
            text = f"expected to be <= {high}, but got: {got}"
            yield f"dim value is too large at {dim}, {text}"
    strides = zip(declared.stride(), value.stride(), strict=True)
    for dim, (step, got) in enumerate(strides):
        if isinstance(step, int) and step != got:
            yield f"unmatched stride value at {dim}, expected: {step}, but got: {got}"


def _range(size: int | torch.SymInt) -> tuple[Any, Any]:
    """Return the bounds of a size; AOTInductor, too, knows only its range.

    Returns:
        SymPy numbers, which may be infinite, or twice the size itself if it is static.
    """
    from shrinkfx.worker.private_api.graph_api import bound_sympy

    if isinstance(size, int):
        return size, size
    node = size.node
    assert node.shape_env is not None
    bounds = bound_sympy(node.expr, node.shape_env.var_to_range)
    return bounds.lower, bounds.upper

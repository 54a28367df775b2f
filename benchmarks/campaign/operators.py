"""Which operators of PyTorch fail under AOTInductor, on PyTorch's own sample inputs?

``python benchmarks/campaign/operators.py DIR`` takes each operator of PyTorch's
operator database (``op_db``; it needs ``pip install expecttest``), and calls it on
sample inputs in one program. ``screen.py`` describes what is in ``DIR`` afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

import torch
from screen import Maker, NotTried, Trial, parser, screen
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
DRAWN = 60
"""Sample inputs of each dtype that are made; some of them are called."""

Call = tuple[Callable[..., Any], list[Any], Any]
"""An operator, the leaves of its arguments, and their structure."""


class Calls(nn.Module):
    """Call an operator on several samples; the tensors among them are the inputs.

    Args:
        chained: whether elementwise operators, which change no value, come before and
            after each call.
    """

    def __init__(self, calls: Sequence[Call], *, chained: bool) -> None:
        super().__init__()
        self.calls, self.chained = calls, chained

    def inputs(self) -> tuple[Tensor, ...]:
        leaves = (leaf for _, leaves, _ in self.calls for leaf in leaves)
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))

    def export(self, *, dynamic: bool) -> ExportedProgram:
        inputs = self.inputs()
        dims = tuple(dict.fromkeys(range(x.dim()), Dim.AUTO) for x in inputs)
        shapes = (dims,) if dynamic else None
        return torch.export.export(self, inputs, dynamic_shapes=shapes)

    def forward(self, *inputs: Tensor) -> list[Any]:
        tensors, results = iter(inputs), []
        for function, leaves, structure in self.calls:
            filled = [
                self.keep(torch.minimum, next(tensors)) if isinstance(x, Tensor) else x
                for x in leaves
            ]
            first, args, kwargs = pytree.tree_unflatten(filled, structure)
            result = function(first, *args, **kwargs)
            keep = functools.partial(self.keep, torch.maximum)
            results.append(pytree.tree_map_only(Tensor, keep, result))
        return results

    def keep(self, operator: Callable[..., Tensor], tensor: Tensor) -> Tensor:
        if not self.chained or tensor.is_complex() or tensor.layout != torch.strided:
            return tensor
        return operator(tensor, tensor)


def sample_calls(
    op: Any,
    samples: int,
    dtypes: Sequence[torch.dtype] = DTYPES,
    *,
    gradients: bool = False,
) -> list[Call]:
    """Return calls on at most ``samples`` sample inputs of each dtype.

    Args:
        gradients: whether the calls must have gradients.
    """
    calls = []
    supported = op.supported_backward_dtypes if gradients else op.supported_dtypes
    for dtype in dtypes:
        if dtype not in supported("cpu"):
            continue
        torch.manual_seed(0)
        inputs = op.reference_inputs("cpu", dtype, requires_grad=gradients)
        drawn = list(islice(inputs, DRAWN))
        for sample in drawn[:: -(-len(drawn) // samples) or 1]:
            arguments = sample.input, sample.args, sample.kwargs
            leaves, structure = pytree.tree_flatten(arguments)
            calls.append((op.op, leaves, structure))
    return calls


def can_be_compared(call: Call, *, dynamic: bool, chained: bool) -> bool:
    """Return whether a call can be exported, and gives the same values twice."""
    alone = Calls([call], chained=chained)
    try:
        one, two = (alone(*deepcopy(alone.inputs())) for _ in range(2))
        torch.testing.assert_close(one, two, equal_nan=True, rtol=0, atol=0)
        nodes = alone.export(dynamic=dynamic).graph.nodes
    except Exception:  # noqa: BLE001 - this operator is not for export
        return False
    tags = (tag for node in nodes for tag in getattr(node.target, "tags", ()))
    return torch.Tag.nondeterministic_seeded not in tags


def make(op: Any, *, samples: int, dynamic: bool, chained: bool) -> Trial:
    calls = [
        call
        for call in sample_calls(op, samples)
        if can_be_compared(call, dynamic=dynamic, chained=chained)
    ]
    if not calls:
        raise NotTried("no sample")
    module = Calls(calls, chained=chained)
    inputs = module.inputs()
    expected = module(*deepcopy(inputs))
    program = module.export(dynamic=dynamic)
    return Trial(program, expected, inputs, calls=len(calls))


def name_of(op: Any) -> str:
    return f"{op.name}-{op.variant_test_name}".rstrip("-").replace(".", "_")


def makers(**how: Any) -> Iterator[tuple[str, Maker]]:
    for op in op_db:
        yield name_of(op), functools.partial(make, op, **how)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--dynamic", action="store_true", help="all sizes may vary")
    options.add_argument(
        "--chained", action="store_true", help="between elementwise operators"
    )
    options.add_argument("--samples", type=int, default=4, help="of each dtype")
    arguments = options.parse_args()
    how = {name: getattr(arguments, name) for name in ("samples", "dynamic", "chained")}
    screen(arguments, makers(**how))


if __name__ == "__main__":
    main()

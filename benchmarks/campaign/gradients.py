"""Which operators have different gradients under torch.compile than in eager?

``python benchmarks/campaign/gradients.py DIR`` takes each operator of PyTorch's
operator database (it needs ``pip install expecttest``), and compares the loss and the
gradients of calls on its sample inputs, with dynamic sizes. ``DIR/tried.jsonl`` has a
line for each operator. ``shrinkfx --capture python gradients.py --call NAME N`` reduces
call N.
"""

from __future__ import annotations

import argparse
import functools
import json
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import operators
import torch
from screen import LOOSENESS, run_in_a_process, shorten
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

DTYPES = (torch.float32, torch.bfloat16)
SAMPLES = 2
"""Calls of each dtype."""

NO_GRAPH = "Unsupported", "DataDependent"
"""Parts of the names of errors that are no failure: there is no graph to compile."""


class Loss(nn.Module):
    """Call an operator, and return a weighted sum of its results."""

    def __init__(self, call: operators.Call) -> None:
        super().__init__()
        self.call = call

    def inputs(self) -> list[Tensor]:
        """Return new leaves with the values of the call's tensors."""
        leaves = (x for x in self.call[1] if isinstance(x, Tensor))
        return [x.detach().clone().requires_grad_(x.requires_grad) for x in leaves]

    def forward(self, *inputs: Tensor) -> Any:
        function, leaves, structure = self.call
        tensors = iter(inputs)
        filled = [next(tensors) if isinstance(x, Tensor) else x for x in leaves]
        filled = [x * 1 if has_gradient(x) else x for x in filled]  # may be written to
        first, args, kwargs = pytree.tree_unflatten(filled, structure)
        results = pytree.tree_leaves(function(first, *args, **kwargs))
        return sum(weighted_sum(x) for x in results if has_gradient(x))


def has_gradient(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and x.is_floating_point()


def weighted_sum(x: Tensor) -> Tensor:
    """Return a sum with another weight for each value."""
    weights = torch.linspace(-1, 2, max(x.numel(), 1), dtype=x.dtype, device=x.device)
    return (x * weights[: x.numel()].reshape(x.shape)).sum()


def run_step(function: Any, call: operators.Call) -> list[Tensor | None]:
    """Return the loss, and the gradient of each input."""
    inputs = Loss(call).inputs()
    loss = function(*inputs)
    loss.backward()
    return [loss.detach(), *(x.grad for x in inputs if x.requires_grad)]


def compile_step(call: operators.Call) -> Any:
    torch._dynamo.reset()
    return torch.compile(Loss(call), dynamic=True, fullgraph=True)


def calls_of(op: Any) -> Iterator[operators.Call]:
    """Yield calls with gradients that are the same twice in eager."""
    for call in operators.sample_calls(op, SAMPLES, DTYPES, gradients=True):
        try:
            one, two = (run_step(Loss(call), call) for _ in range(2))
            compare(one, two, looseness=0)
        except Exception:  # noqa: BLE001 - it has no gradient, or a random one
            continue
        yield call


def compare(
    seen: list[Tensor | None], wanted: list[Tensor | None], looseness: float
) -> None:
    """Compare results; no gradient is the same as a gradient of zeros."""
    for one, two in zip(seen, wanted, strict=True):
        if one is None or two is None:
            other = one if two is None else two
            assert other is None or not other.any(), f"no gradient, or {other}"
            continue
        limits = torch.testing._comparison.default_tolerances(two)
        rtol, atol = (looseness * limit for limit in limits)
        if two.numel() and two.isfinite().all():
            atol = max(atol, rtol * float(two.abs().max()))
        torch.testing.assert_close(one, two, equal_nan=True, rtol=rtol, atol=atol)


def try_call(call: operators.Call) -> str | None:
    """Return how a call fails, or ''; None if it has no graph."""
    wanted = run_step(Loss(call), call)
    try:
        seen = run_step(compile_step(call), call)
    except Exception as error:  # noqa: BLE001 - a compile error is a result
        is_failure = not any(word in type(error).__name__ for word in NO_GRAPH)
        return shorten(error) if is_failure else None
    try:
        compare(seen, wanted, LOOSENESS)
    except AssertionError as error:
        return shorten(error)
    return ""


def try_calls(op: Any) -> dict[str, Any]:
    found = [try_call(call) for call in calls_of(op)]
    failing = {number: text for number, text in enumerate(found) if text}
    outcome = "fails" if failing else "passes"
    counts = {"calls": len(found), "without_graph": found.count(None)}
    return {"outcome": outcome, **counts, "failing": failing}


def entries() -> dict[str, Any]:
    """Return the operators that have gradients, by their names."""
    return {operators.name_of(op): op for op in op_db if op.supports_autograd}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--call", nargs=2, metavar=("NAME", "N"))
    arguments = parser.parse_args()
    if not (arguments.folder or arguments.call):
        parser.error("DIR is missing")
    warnings.simplefilter("ignore")
    if arguments.call:
        name, number = arguments.call
        call = next(islice(calls_of(entries()[name]), int(number), None))
        wanted = run_step(Loss(call), call)
        compare(run_step(compile_step(call), call), wanted, LOOSENESS)
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    # No gradient: the threads of autograd do not survive a fork.
    torch.compile(torch.sin)(torch.ones(2))
    lines = arguments.folder / "tried.jsonl"
    tried = lines.read_text().splitlines() if lines.exists() else []
    done = {json.loads(line)["name"] for line in tried}
    for name, op in entries().items():
        if name not in done:
            attempt = functools.partial(try_calls, op)
            report = run_in_a_process(attempt, arguments.folder)
            with lines.open("a") as file:
                print(json.dumps({"name": name, **report}), file=file)


if __name__ == "__main__":
    main()

"""Is rounding taken for an error? ``python benchmarks/rounding.py [NAME ...]``.

Runs models of ``tests/models/`` in bfloat16 and in float16: in eager, in float64, and
in eager with each module's result rounded otherwise, by up to half a unit in the last
place either way, as another order of additions would. Nothing is wrong there, so
whatever is beyond ``rounding_bound`` is a false alarm; beside it, what ten times the
own error of each element would say. Then the float64 results, rounded, with all
elements off by a tenth, and with the middle one off by a third: those are to be found,
unless eager itself is off by as much. A model that refuses float64 is left out.
Nothing is compiled.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "models")]

from architectures import MODELS  # noqa: E402

from shrinkfx.worker.checking.reference import tolerance  # noqa: E402
from shrinkfx.worker.eager.intermediates import mark_beyond_rounding, widen  # noqa: E402

HALVES = (torch.bfloat16, torch.float16)

PLAIN = [
    name for name in MODELS if not name.startswith(("bf16_", "int8_", "detection"))
]
"""Those in float32, of which each result has as many elements as others."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=PLAIN, metavar="NAME")
    parser.add_argument("--runs", type=int, default=6, metavar="N", help="of each")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for name in options.names:
        for dtype in HALVES:
            try:
                counts = measure(name, dtype, options.runs)
            except (RuntimeError, NotImplementedError, ImportError) as refused:
                print(f"{name}, {dtype}: {str(refused).splitlines()[0]}", flush=True)
                continue
            total += counts
            print(show(f"{name}, {dtype}", counts), flush=True)
    print(show("all", total))


def show(name: str, counts: Mapping[str, int]) -> str:
    return (
        f"{name}: of {counts['elements']} healthy elements {counts['beyond']} beyond, "
        f"{counts['by own error']} by own error; of {counts['results']} results "
        f"{counts['tenth']} found a tenth off, {counts['third']} with one a third off"
    )


def measure(name: str, dtype: torch.dtype, runs: int) -> Counter[str]:
    """Count what is said of one model."""
    torch.manual_seed(0)
    made = MODELS[name]()
    model = made.module.to(dtype)
    given = in_dtype(made.arguments, dtype)
    expected = results(model, given)
    doubled = copy.deepcopy(model).double()
    exact = results(doubled, in_dtype(given, torch.float64))
    counts: Counter[str] = Counter()
    for seed in range(runs):
        for e, x, other in zip(
            expected, exact, rounded_otherwise(model, given, seed), strict=True
        ):
            counts["elements"] += e.numel()
            counts["results"] += 1
            counts["beyond"] += marked(other, e, x)
            counts["by own error"] += by_own_error(other, e, x)
            counts["tenth"] += marked((x * 1.1).to(dtype), e, x) > 0
            middle = x.abs().flatten().kthvalue((x.numel() + 1) // 2).indices
            off = x.flatten().clone()
            off[middle] *= 4 / 3
            counts["third"] += marked(off.view(x.shape).to(dtype), e, x) > 0
    return counts


def in_dtype(values: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    def cast(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if is_float else value

    return {name: pytree.tree_map(cast, value) for name, value in values.items()}


def results(model: nn.Module, given: Mapping[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(**given))
    return [v for v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point()]


def rounded_otherwise(
    model: nn.Module, given: Mapping[str, Any], seed: int
) -> list[torch.Tensor]:
    """Run a model with the result of each module that holds no other rounded anew."""
    draw = torch.Generator().manual_seed(seed)

    def round_anew(module: nn.Module, given: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        units = torch.rand(value.shape, generator=draw) - 0.5
        factor = 1 + torch.finfo(value.dtype).eps * units
        return (value.float() * factor).to(value.dtype)

    leaves = [m for m in model.modules() if not any(m.children())]
    hooks = [leaf.register_forward_hook(round_anew) for leaf in leaves]
    try:
        return results(model, given)
    finally:
        for hook in hooks:
            hook.remove()


def marked(actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> int:
    """Count the elements that are wrong."""
    usual = tolerance(expected.dtype)
    beyond = mark_beyond_rounding(actual, expected, exact, usual)
    return int((outside(actual, expected) & beyond).sum())


def by_own_error(
    actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor
) -> int:
    """Count those that are off by more than ten times eager's own error there."""
    own = (widen(expected) - exact).abs()
    far = (widen(actual) - widen(expected)).abs() > 10 * own
    return int((outside(actual, expected) & far).sum())


def outside(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    rtol, atol = tolerance(expected.dtype)
    return ~torch.isclose(widen(actual), widen(expected), rtol=rtol, atol=atol)


if __name__ == "__main__":
    main()

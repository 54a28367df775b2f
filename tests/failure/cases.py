"""Failing programs, in families: the members of one are the same failure.

What differs between the members is what drifts while a program shrinks: sizes,
neighbours, numbers of inputs, threads. ``record.py`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plants
import torch
from torch import Tensor, nn
from torch.export import Dim

aten = torch.ops.aten
recorded = torch.ops.recorded
check: Any = torch._check
CHECK = {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """A program and how to make it fail.

    Attributes:
        failing: inputs to fail on, where not those that it is exported with.
        reference: eager runs it without an error.
        script: record what a bare Python prints for it, too.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    failing: tuple[Any, ...] | None = None
    dynamic_shapes: Any = None
    inductor: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    reference: bool = True
    timeout_s: float = 400.0
    max_rss_bytes: int = 8 * GIB
    script: bool = False

    def exported(self) -> torch.export.ExportedProgram:
        # All the arguments are one to export: ``forward`` takes them as ``*args``.
        shapes = (self.dynamic_shapes,) if self.dynamic_shapes else None
        with torch.no_grad():
            return torch.export.export(
                _Module(self.function), self.args, dynamic_shapes=shapes
            )


class _Module(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def values(*sizes: int, seed: int = 0) -> Tensor:
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed)) / 2


def ids(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


def alone(operator: Callable[..., Any], *more: Any, **options: Any) -> Case:
    """Make the operator the whole program."""
    return Case(lambda x: operator(x, *more), (values(5),), **options)


def scalar(operator: Callable[..., Any]) -> Case:
    """Leave nothing to vectorise."""
    return Case(lambda x: operator(x), (values(1),))


def among_others(operator: Callable[..., Any], *more: Any, **options: Any) -> Case:
    """Give it neighbours that are fused with it, and work for several threads."""

    def function(x: Tensor, bias: Tensor) -> Any:
        y = torch.relu(x.mul(2).softmax(-1)) + bias
        return (operator(y, *more) * 3 + x).sigmoid()

    return Case(function, (values(512, 64), values(64, seed=1)), **options)


def both(operator: Callable[..., Any], *more: Any, **options: Any) -> dict[str, Case]:
    small = alone(operator, *more, **{"script": True, **options})
    return {"alone": small, "among_others": among_others(operator, *more, **options)}


def miss(operator: Callable[..., Any], *more: Any, **options: Any) -> dict[str, Case]:
    """Make a family that is there to be told apart from others."""
    return both(operator, *more, script=False, **options)


def refused(
    example: Sequence[Tensor],
    failing: Sequence[Tensor],
    dynamic_shapes: Any = None,
    **options: Any,
) -> Case:
    """Run on inputs that the compiled program is told to check."""
    return Case(
        lambda *inputs: tuple(x.sin() + 1 for x in inputs),
        tuple(example),
        tuple(failing),
        dynamic_shapes,
        environment=CHECK,
        reference=False,
        **options,
    )


def promised(*sizes: int, of: int) -> Case:
    """Write to what a custom operator has promised, far beyond what it returned."""
    return Case(lambda x: recorded.promises(x, sizes).relu() + 1, (values(of),))


def laid_out(*sizes: int, of: int, operator: Any = None) -> Case:
    """Have what a custom operator returns compared with what it promised."""
    operator = operator or recorded.promises
    return Case(
        lambda x: operator(x, sizes).relu() + 1,
        (values(of),),
        environment=CHECK,
        script=of == 2,
    )


def at_least(low: int, offset: int = 0) -> Callable[[Tensor, Tensor], Any]:
    def function(x: Tensor, number: Tensor) -> Any:
        n: Any = number.item() + offset
        check(n >= low)
        check(n < 100)
        return x.sin() + torch.zeros(n).sum()

    return function


def at_most(high: int) -> Callable[[Tensor, Tensor], Any]:
    def function(x: Tensor, number: Tensor) -> Any:
        n: Any = number.item()
        check(n >= 0)
        check(n <= high)
        return x.sin() + torch.zeros(n).sum()

    return function


BOUNDS: dict[str, Case] = {
    "embedding": Case(
        lambda x, i: torch.relu(aten.embedding(x, i)),
        (values(10, 4), ids(1, 2, 3)),
        (values(10, 4), ids(1, 12, 3)),
        reference=False,
        script=True,
    ),
    "index_of_another_length": Case(
        lambda x, i: x.exp()[i + 1] * 2,
        (values(7, 3), ids(1, 2)),
        (values(7, 3), ids(1, 6)),
        reference=False,
    ),
    "gather_by_threads": Case(
        lambda x, i: x.mul(2).gather(0, i).exp(),
        (values(128, 512), torch.zeros(128, 512, dtype=torch.long)),
        (values(128, 512), torch.full((128, 512), 128)),
        reference=False,
        script=True,
    ),
    "dynamic_index": Case(
        lambda x, i: x.exp()[i] + x.shape[0],
        (values(7, 3), ids(1, 2)),
        (values(5, 3), ids(1, 5)),
        ({0: Dim("rows", min=2, max=90)}, None),
        reference=False,
    ),
}

RUNTIME_ASSERTION = {
    "low": Case(at_least(3), (values(4), ids(5)), (values(4), ids(2)), reference=False),
    "lower": Case(
        at_least(17, 1), (values(9), ids(20)), (values(9), ids(1)), reference=False
    ),
}

CHECKS: dict[str, dict[str, Case]] = {
    "inputs_dim": {
        "first": refused([values(4, 3)], [values(5, 3)], script=True),
        "second_of_the_third": refused(
            [values(2), values(2), values(8, 16)],
            [values(2), values(2), values(8, 1)],
        ),
    },
    "inputs_dim_too_large": {
        "first": refused(
            [values(4)], [values(9)], ({0: Dim("n", min=2, max=8)},), script=True
        ),
        "second": refused(
            [values(3), values(6, 31)],
            [values(3), values(6, 65)],
            (None, {1: Dim("n", min=5, max=64)}),
        ),
    },
    "inputs_dim_too_small": {
        "first": refused([values(9)], [values(3)], ({0: Dim("n", min=5, max=64)},)),
        "second": refused(
            [values(3), values(6, 31)],
            [values(3), values(6, 12)],
            (None, {1: Dim("n", min=20, max=64)}),
        ),
    },
    "inputs_dtype": {
        "wider": refused([values(4)], [values(4).double()], script=True),
        "second": refused(
            [values(4), torch.arange(6)], [values(4), torch.arange(6).int()]
        ),
    },
    "inputs_stride": {
        "transposed": refused([values(4, 6)], [values(6, 4).t()], script=True),
        "second": refused(
            [values(4), values(7, 2, 2)], [values(4), values(7, 2, 3)[..., :2]]
        ),
    },
    "layout_of_operator": {
        "size": laid_out(64, of=2),
        "dims": laid_out(7, 3, of=21),
    },
    "layout_of_another_operator": {
        "size": laid_out(64, of=3, operator=recorded.promises_again),
        "dims": laid_out(7, 3, of=22, operator=recorded.promises_again),
    },
    "inputs_nan": {
        "first": Case(
            lambda x: x.sin() + 1,
            (values(4),),
            (values(4) * torch.nan,),
            inductor={"nan_asserts": True},
            script=True,
        ),
        "second": Case(
            lambda x, y: (x @ y).exp(),
            (values(4, 4), values(4, 4)),
            (values(4, 4), values(4, 4).log().log()),
            inductor={"nan_asserts": True},
        ),
    },
    "inputs_inf": {
        "first": Case(
            lambda x: x.sin() + 1,
            (values(4),),
            (values(4) * torch.inf,),
            inductor={"nan_asserts": True},
        ),
        "second": Case(
            lambda x, y: (x @ y).exp(),
            (values(4, 4), values(4, 4)),
            (values(4, 4), values(4, 4) / 0),
            inductor={"nan_asserts": True},
        ),
    },
}

COMPILE = {
    "lowering": both(aten.cumsum.default, 0),
    "lowering_of_another": miss(aten.cumprod.default, 0),
    "silent_assertion_in_lowering": both(aten.logcumsumexp.default, 0),
    "silent_assertion": both(torch.erfinv),
    "silent_assertion_elsewhere": miss(torch.digamma),
    "cpp_missing": both(lambda x: torch.hypot(x, x + 1)),
    "cpp_missing_another": miss(torch.log2),
    "cpp_no_match": {
        "scalar": scalar(torch.ceil),
        "vector": among_others(torch.ceil),
    },
    "linker": both(torch.floor),
    "linker_another": miss(torch.round),
    "no_lowering": both(
        lambda x: torch.ops.recorded.refuses(x), inductor={"implicit_fallbacks": False}
    ),
    "no_lowering_of_another": miss(
        lambda x: torch.ops.recorded.sleeps(x),
        inductor={"implicit_fallbacks": False},
    ),
    "crash_compiling": {
        "faults": alone(torch.special.modified_bessel_i1, script=True),
        "frees": among_others(torch.special.i1),
    },
    "hang_compiling": {
        "in_python": alone(torch.special.i1e, timeout_s=90.0, script=True),
        "in_the_assembler": among_others(torch.asin, timeout_s=150.0, script=True),
    },
    "oom_compiling": {
        "in_python": alone(torch.special.bessel_j0, script=True),
        "in_the_assembler": among_others(
            torch.exp2, max_rss_bytes=2 * GIB, script=True
        ),
    },
}

LOAD = {
    "load_undefined": {**both(torch.expm1), "scalar": scalar(torch.expm1)},
    "load_truncated": {
        "half": alone(torch.cos, environment={plants.TRUNCATE: "0.5"}, script=True),
        "tenth": among_others(torch.cos, environment={plants.TRUNCATE: "0.1"}),
    },
    "load_undefined_another": miss(torch.log1p),
}

RUN = {
    "bounds": BOUNDS,
    "runtime_assertion": RUNTIME_ASSERTION,
    "runtime_assertion_at_most": {
        "seven": Case(
            at_most(7), (values(4), ids(5)), (values(4), ids(9)), reference=False
        ),
        "thirty": Case(
            at_most(30), (values(2), ids(5)), (values(2), ids(31)), reference=False
        ),
    },
    "memory": {
        **{f"null_{k}": c for k, c in both(lambda x: torch.copysign(x, -x)).items()},
        **{f"bus_{k}": c for k, c in both(torch.atanh).items()},
        "promised_64": promised(64, of=2),
        "promised_1000": promised(1000, of=6),
        "promised_4096": promised(64, 64, of=16),
    },
    "arithmetic_trap": miss(torch.acosh),
    "illegal_instruction": miss(torch.asinh),
    "exception_in_kernel": both(torch.atan),
    "exception_in_kernel_another": miss(torch.acos),
    "exception_in_operator": both(lambda x: recorded.refuses(x)),
    "exception_in_operator_another": miss(lambda x: recorded.refuses_otherwise(x)),
    "exception_without_words": both(lambda x: recorded.says_nothing(x)),
    "exception_without_words_another": miss(lambda x: recorded.says_nothing_either(x)),
    "devices": both(lambda x: recorded.mixes_devices(x)),
    "nan": both(torch.tan),
    "mismatch": {
        **{f"values_{k}": c for k, c in both(torch.lgamma).items()},
        "dtype": alone(torch.special.bessel_y0, script=True),
        "dtype_then_values": among_others(torch.special.bessel_y0),
    },
    "hang": {
        "in_cpp": among_others(torch.sinh, timeout_s=200.0, script=True),
        "in_operator": alone(
            lambda x: recorded.is_asleep(x), timeout_s=150.0, script=True
        ),
    },
    "oom": {
        **{f"new_{k}": c for k, c in both(torch.cosh).items()},
        **{f"tensor_{k}": c for k, c in both(lambda x: recorded.hoards(x)).items()},
        "limit": alone(torch.log10, max_rss_bytes=2 * GIB, script=True),
    },
}

FAMILIES: dict[str, dict[str, Case]] = {**COMPILE, **LOAD, **CHECKS, **RUN}

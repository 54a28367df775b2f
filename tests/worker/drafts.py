"""A program in the making: a tape of steps that has already run in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Ref:
    """A place in nested inputs or outputs: the number of a value."""

    number: int


@dataclass(frozen=True)
class Step:
    """One line of ``forward``: what is called, and with which values."""

    function: Callable[..., Any]
    operands: tuple[int, ...]


class Tape(nn.Module):
    """Steps as a module: each appends its results to the values before it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.returns: Any = None

    def forward(self, a: Any, b: Any = None, *, c: Any = None) -> Any:
        values = leaves((a, b, c))
        for step in self.steps:
            values += results(step.function(*(values[n] for n in step.operands)))
        return put(self.returns, values)


def leaves(tree: Any) -> list[Any]:
    """Flatten nested values; None counts."""
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (tuple, list)):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def put(tree: Any, values: Sequence[Any]) -> Any:
    """Put values in the places of a nested structure."""
    if isinstance(tree, Ref):
        return values[tree.number]
    if isinstance(tree, dict):
        return {key: put(value, values) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(put(value, values) for value in tree)
    return tree


def results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


Test = Callable[[Any], bool]


@dataclass
class Draft:
    """What is there so far, and how more is drawn.

    Attributes:
        values: what each input and step gave in eager.
        inputs: how many of them were given.
        loose: numbers of values whose sizes depend on data; few operators can be
            exported with those.
    """

    random: Random
    tape: Tape
    values: list[Any]
    inputs: int
    loose: set[int] = field(default_factory=set)

    def pick(self, *tests: Test, loose: bool = False) -> int | None:
        """Draw a value of a kind, later ones rather; None if there is none."""
        fitting = [
            number
            for number, value in enumerate(self.values)
            if (loose or number not in self.loose) and all(t(value) for t in tests)
        ]
        if not fitting:
            return None
        return max(self.random.choice(fitting), self.random.choice(fitting))

    def weight(self, value: Tensor) -> Callable[[], Tensor]:
        """Hang a tensor on the module, in one of the ways that there are."""
        name = f"w{len(self.tape.steps)}_{self.random.randrange(10**6)}"
        match self.random.choice(["parameter", "buffer", "loose buffer", "constant"]):
            case "parameter" if value.is_floating_point():
                self.tape.register_parameter(name, nn.Parameter(value))
            case "buffer":
                self.tape.register_buffer(name, value)
            case "loose buffer":
                self.tape.register_buffer(name, value, persistent=False)
            case _:
                setattr(self.tape, name, value)
        return lambda: getattr(self.tape, name)

    def do(
        self, function: Callable[..., Any], *operands: int | None, loose: bool = False
    ) -> bool:
        """Add a step if eager can take it.

        Args:
            loose: the sizes of what it gives depend on data.
        """
        numbers = tuple(n for n in operands if n is not None)
        if len(numbers) < len(operands):
            return False
        try:
            found = results(function(*(self.values[n] for n in numbers)))
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return False
        self.tape.steps.append(Step(function, numbers))
        if loose or self.loose & set(numbers):
            first = len(self.values)
            self.loose |= {
                first + i for i, v in enumerate(found) if loose or is_sized(v)
            }
        self.values += found
        return True


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def is_sized(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64)


def is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)


def is_integer(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (
        *(torch.int8, torch.int32, torch.int64),
    )


def is_bool(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.bool


def is_complex(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_plain(value: Any) -> bool:
    """Tell whether arithmetic is defined: quarter types can only be cast."""
    return isinstance(value, Tensor) and value.dtype is not torch.float8_e4m3fn


def has_dims(low: int, high: int = 9) -> Test:
    return lambda value: isinstance(value, Tensor) and low <= value.dim() <= high


def alike(other: Any) -> Test:
    return lambda v: (
        isinstance(v, Tensor) and v.shape == other.shape and v.dtype == other.dtype
    )

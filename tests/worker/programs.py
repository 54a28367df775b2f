"""Small random programs with one culprit, as a user would export them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from drafts import (
    Draft,
    Ref,
    Tape,
    is_float,
    is_number,
    is_sized,
    is_tensor,
    put,
)
from kinds import KINDS, chosen
from torch import Tensor
from torch.export import Dim, ExportedProgram

MOST_OPERATORS = 16


def _copied(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


@torch.library.custom_op("planted::one", mutates_args=())
def _one(x: Tensor) -> Tensor:
    return _copied(x)


@torch.library.custom_op("planted::inner", mutates_args=())
def _inner(x: Tensor) -> Tensor:
    return _copied(x)


@torch.library.custom_op("planted::two", mutates_args=())
def _two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return _copied(x), _copied(y)


@torch.library.custom_op("planted::many", mutates_args=())
def _many(xs: list[Tensor], scale: float, size: int) -> Tensor:
    return torch.full((len(xs),), scale * size)


@torch.library.custom_op("planted::stir", mutates_args={"x"})
def _stir(x: Tensor) -> None:
    x.copy_(x.clone())


_one.register_fake(lambda x: x.new_empty(x.shape))
_inner.register_fake(lambda x: x.new_empty(x.shape))
_two.register_fake(lambda x, y: (x.new_empty(x.shape), y.new_empty(y.shape)))
_many.register_fake(lambda xs, scale, size: torch.empty(len(xs)))
_stir.register_fake(lambda x: None)

PLANTED = torch.ops.planted


@dataclass(frozen=True)
class Made:
    """A program, how it is exported, and the operator that is to be found.

    Attributes:
        graded: exported with gradients on, as who forgets ``no_grad`` does.
    """

    module: Tape
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: dict[str, Any]
    culprit: str
    graded: bool

    def export(self) -> ExportedProgram:
        """Export, with the dims that turn out not to be dynamic left fixed."""
        try:
            return self._export(self.dynamic_shapes)
        except (ValueError, torch._dynamo.exc.UserError):
            return self._export(_automatic(self.dynamic_shapes))

    def _export(self, shapes: dict[str, Any]) -> ExportedProgram:
        with torch.set_grad_enabled(self.graded):
            return torch.export.export(
                self.module, self.args, self.kwargs, dynamic_shapes=shapes
            )


def _automatic(tree: Any) -> Any:
    """Let export find out about each dim that was declared dynamic."""
    if isinstance(tree, dict):
        return {key: _automatic(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(_automatic(value) for value in tree)
    return Dim.AUTO if tree is not None else None


def make(random: Random) -> Made:
    """Draw a program of 4 to ``MOST_OPERATORS`` steps and one culprit."""
    torch.manual_seed(random.randrange(1000))
    plain = torch.randn(5, 3), {0: _T} if random.random() < 0.5 else None
    given = [plain, *(_input(random) for _ in range(3))]
    given = given[: random.randint(1, 4)]
    given += [(value, None) for value in random.sample([2, 1.5, None, True, "x"], 2)]
    random.shuffle(given)
    places = _nested(random, len(given))
    inputs = [value for value, _ in given]
    draft = Draft(random, Tape().eval(), [_copy(v) for v in inputs], len(inputs))
    steps = random.randint(3, MOST_OPERATORS - 1)
    planted_at = random.randrange(steps)
    culprit = ""
    while len(draft.tape.steps) < steps or not culprit:
        if not culprit and len(draft.tape.steps) >= planted_at:
            first = len(draft.values)
            culprit = _plant(draft)
            found = range(first, len(draft.values))
        else:
            random.choice(KINDS)(draft)
    draft.tape.returns = _returned(draft, found)
    shapes = put(places, [dims for _, dims in given])
    a, b, c = put(places, inputs)
    return Made(
        draft.tape,
        (a, b),
        {"c": c},
        dict(zip("abc", shapes, strict=True)),
        culprit,
        random.random() < 0.3,
    )


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


# --- inputs

_T = Dim("t", min=2, max=40)
_DYNAMIC: dict[int, Any] = {5: _T, 7: Dim("u", min=3), 11: 2 * _T + 1}
"""Sizes that no computation hits upon by chance, with the dims that they are."""

_SIZES = (1, 2, 3, 4, 5, 5, 7, 11)
_DTYPES = (
    *[torch.float32] * 8,
    *(torch.float64, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.int64, torch.int32, torch.int8, torch.bool, torch.float8_e4m3fn),
)


def _input(random: Random) -> tuple[Any, Any]:
    """Draw a tensor, or rarely a dynamic integer, with its dynamic dims."""
    if random.random() < 0.08:
        return 6, Dim.DYNAMIC
    shape = [random.choice(_SIZES) for _ in range(random.choice([0, 1, 2, 2, 3]))]
    if random.random() < 0.06 and shape:
        shape[-1] = 0
    dtype = random.choice(_DTYPES)
    value = _laid_out(random, torch.randn(shape) * 2).to(dtype)
    dynamic = {d: _DYNAMIC[s] for d, s in enumerate(shape) if s in _DYNAMIC}
    return value, dynamic if dynamic and random.random() < 0.8 else None


def _laid_out(random: Random, x: Tensor) -> Tensor:
    """Give a tensor one of the memory layouts that a caller may have."""
    if x.dim() == 0 or x.numel() == 0:
        return x
    match random.choice(["plain", "plain", "turned", "gaps", "expanded", "offset"]):
        case "turned":
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        case "gaps":
            wide = torch.stack([x, x], -1)
            return wide[..., 0]
        case "expanded":
            return x[:1].expand(x.shape)
        case "offset":
            return torch.cat([x[:1], x])[1:]
    return x


_NESTS: tuple[Callable[[list[Any]], Any], ...] = (
    tuple,
    list,
    lambda refs: {f"k{i}": ref for i, ref in enumerate(refs)},
    lambda refs: (refs[:1], {"rest": tuple(refs[1:])}),
)


def _nested(random: Random, count: int) -> list[Any]:
    """Distribute so many values over the three arguments, in order."""
    refs = [Ref(n) for n in range(count)]
    low, high = sorted(random.choices(range(count + 1), k=2))
    return [_nest(random, part) for part in (refs[:low], refs[low:high], refs[high:])]


def _nest(random: Random, refs: list[Ref]) -> Any:
    if len(refs) == 1 and random.random() < 0.6:
        return refs[0]
    return random.choice(_NESTS)(list(refs))


# --- the culprit and the outputs


def _plant(d: Draft) -> str:
    """Add the culprit; its name, or '' where the drawn one does not fit."""
    planted: dict[str, Callable[[], bool]] = {
        "planted.one.default": lambda: d.do(PLANTED.one, d.pick(is_tensor, loose=True)),
        "planted.two.default": lambda: d.do(
            PLANTED.two, d.pick(is_tensor), d.pick(is_tensor)
        ),
        "planted.many.default": lambda: _plant_many(d),
        "planted.stir.default": lambda: d.do(_stirred, d.pick(is_float)),
        "aten.erfinv.default": lambda: d.do(torch.erfinv, d.pick(is_float, loose=True)),
        "aten.logcumsumexp.default": lambda: d.do(
            lambda x: torch.logcumsumexp(x, 0), d.pick(is_float, is_sized)
        ),
        "planted.inner.default": lambda: d.do(_inside, d.pick(is_float)),
        "aten.frexp.Tensor": lambda: d.do(torch.frexp, d.pick(is_float)),
    }
    name = d.random.choice(list(planted))
    return name if planted[name]() else ""


def _plant_many(d: Draft) -> bool:
    if d.random.random() < 0.5:
        return d.do(
            lambda x, y: PLANTED.many([x, y], 0.5, x.shape[0]),
            d.pick(is_sized),
            d.pick(is_tensor),
        )
    return d.do(
        lambda x, n: PLANTED.many([x], 0.5, int(n) if isinstance(n, float) else n),
        d.pick(is_tensor),
        d.pick(lambda v: is_number(v) and isinstance(v, int)),
    )


def _stirred(x: Tensor) -> Tensor:
    y = x * 2
    PLANTED.stir(y)
    return y


def _inside(x: Tensor) -> Any:
    choose = torch.cond if torch.compiler.is_exporting() else chosen
    return choose(
        x.sum() > 0, lambda v: PLANTED.inner(v), lambda v: (v - 1).contiguous(), (x,)
    )


def _returned(d: Draft, found: range) -> Any:
    """Return what nobody uses, some more, and rarely an input or a value twice.

    The culprit's results are always among them: it may not be dead code.
    """
    used = {n for step in d.tape.steps for n in step.operands}
    numbers = [n for n in range(d.inputs, len(d.values)) if n not in used]
    numbers += [*found, *d.random.choices(range(d.inputs, len(d.values)), k=2)]
    if d.random.random() < 0.2:
        numbers += d.random.choices(range(d.inputs), k=1) + numbers[:1]
    # No file holds a text or a number with a point as an output.
    numbers = [n for n in numbers if is_tensor(d.values[n]) or type(d.values[n]) is int]
    refs: list[Any] = [Ref(n) for n in numbers]
    if d.random.random() < 0.2:
        refs += [None, 3]
    return _NESTS[d.random.randrange(len(_NESTS))](refs)

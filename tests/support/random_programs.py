"""Small random programs with one culprit, as a user would export them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F


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


# --- steps


Kind = Callable[[Draft], bool]
KINDS: list[Kind] = []


def kind(times: int) -> Callable[[Kind], Kind]:
    """List a kind, to be drawn so often as ``times`` says."""

    def listed(function: Kind) -> Kind:
        KINDS.extend([function] * times)
        return function

    return listed


def is_whole(value: Any) -> bool:
    """Tell whether a tensor holds elements; many operators refuse empty ones."""
    return isinstance(value, Tensor) and value.numel() > 0


@kind(6)
def unary(d: Draft) -> bool:
    names = "sin cos tanh relu sigmoid abs neg square silu exp2 isnan sign"
    name = d.random.choice(names.split())
    function = getattr(torch, name, None) or getattr(F, name)
    return d.do(function, d.pick(is_float, loose=True))


@kind(5)
def binary(d: Draft) -> bool:
    x = d.pick(is_plain, loose=True)
    if x is None:
        return False
    name = d.random.choice(["add", "sub", "mul", "maximum", "eq", "where"])
    y = d.pick(alike(d.values[x]), loose=x in d.loose)
    if name == "where":
        return d.do(lambda x, y: torch.where(x > y, x, y), x, y)
    return d.do(getattr(torch, name), x, y)


@kind(3)
def scaled(d: Draft) -> bool:
    factor = d.random.choice([2, 0.5, -1, math.inf, True, 1e-3])
    functions: list[Callable[[Tensor, float], Tensor]] = [
        *(torch.add, torch.mul, torch.div, torch.gt),
    ]
    function = d.random.choice(functions)
    return d.do(lambda x: function(x, factor), d.pick(is_plain, loose=True))


@kind(3)
def broadcast(d: Draft) -> bool:
    mean = d.random.choice(
        [
            lambda x: x + x.mean(),
            lambda x: x - x.mean(0),
            lambda x: x / (x.abs().amax(-1, keepdim=True) + 1),
            lambda x: x.softmax(-1),
            lambda x: F.layer_norm(x, [x.shape[-1]]),
        ]
    )
    return d.do(mean, d.pick(is_float, has_dims(1), is_whole))


@kind(5)
def cast(d: Draft) -> bool:
    kinds = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64]
    kinds += [torch.bool, torch.complex64, torch.float8_e4m3fn]
    target = d.random.choice(kinds)
    return d.do(lambda x: x.to(target), d.pick(is_plain, loose=True))


@kind(4)
def cast_back(d: Draft) -> bool:
    rare = d.pick(lambda v: is_tensor(v) and not is_float(v) and not is_complex(v))
    return d.do(lambda x: x.to(torch.float32), rare)


@kind(2)
def in_half(d: Draft) -> bool:
    names = ["relu", "neg", "abs", "sigmoid", "exp"]
    return d.do(getattr(torch, d.random.choice(names)), d.pick(is_half))


@kind(2)
def of_complex(d: Draft) -> bool:
    z = d.pick(is_complex)
    if z is None:
        return d.do(lambda x: torch.complex(x.float(), x.float()), d.pick(is_float))
    functions: list[Callable[[Tensor], Tensor]] = [
        *(torch.view_as_real, torch.abs, torch.real, torch.imag, torch.conj),
        lambda z: z.conj() * z,
        lambda z: z * 1j,
    ]
    return d.do(d.random.choice(functions), z)


@kind(2)
def integers(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.clamp(-3, 3),
        lambda x: x // 2,
        lambda x: x.sum(),
        lambda x: F.one_hot(x.long().abs() % 4, 4),
        lambda x: x.bitwise_and(3),
    ]
    return d.do(d.random.choice(functions), d.pick(is_integer))


@kind(3)
def reduction(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Any]] = [
        *(torch.sum, torch.numel, torch.mean, torch.amax),
        lambda x: x.sum(0),
        lambda x: x.argmax(-1),
        lambda x: (x > 0).any(),
        lambda x: x.cumsum(0),
        lambda x: x.sum(-1, keepdim=True, dtype=torch.float64),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_whole))


@kind(6)
def view(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: x.transpose(0, -1),
        lambda x: x.flatten(),
        lambda x: x.unsqueeze(0),
        lambda x: x[..., ::2],
        lambda x: x[1:],
        lambda x: x[0],
        lambda x: x[:0],
        lambda x: x.expand(2, *x.shape),
        lambda x: x.as_strided(tuple(x.shape), tuple(x.stride())),
        lambda x: x.squeeze(0),
        lambda x: x.reshape(x.shape[0], -1),
        lambda x: x.view(-1),
        lambda x: x.permute(*reversed(range(x.dim()))),
        lambda x: x.detach(),
        lambda x: x.view(torch.uint8) if x.dtype is torch.int8 else x.view_as(x),
    ]
    return d.do(d.random.choice(functions), d.pick(is_sized))


@kind(4)
def rearranged(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: torch.cat([x, x]),
        lambda x: torch.stack([x, x], -1),
        lambda x: x.flip(0),
        lambda x: x.repeat(2, *[1] * (x.dim() - 1)),
        lambda x: x.roll(1, 0),
        lambda x: x.contiguous(),
        lambda x: x.clone(memory_format=torch.contiguous_format),
        lambda x: x.tril() if x.dim() > 1 else x.diag(),
        lambda x: F.pad(x, (1, 1)),
    ]
    return d.do(d.random.choice(functions), d.pick(is_sized, is_plain, is_whole))


@kind(5)
def several(d: Draft) -> bool:
    """Several results, of which some will have no user."""
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: torch.split(x, 2, -1),
        lambda x: torch.chunk(x, 2, 0),
        lambda x: torch.topk(x, 1),
        lambda x: x.unbind(-1),
        lambda x: torch.var_mean(x, -1),
        lambda x: x.sort(-1),
        lambda x: x.max(0),
        lambda x: torch.aminmax(x),
        lambda x: torch.native_layer_norm(x, [x.shape[-1]], None, None, 1e-5),
        lambda x: x.tensor_split([1], -1),
    ]
    x = d.pick(is_float, has_dims(1), is_whole)
    if x is not None and d.values[x].shape[-1] > 4:
        return False  # as many results as a dynamic dim is long
    return d.do(d.random.choice(functions), x)


@kind(3)
def matrix(d: Draft) -> bool:
    x = d.pick(is_float, has_dims(2, 3), is_whole)
    if x is None or d.values[x].shape[-1] > 4:
        return False
    kind_of = {"dtype": d.values[x].dtype}
    weight = d.weight(torch.randn(3, d.values[x].shape[-1], **kind_of))
    if d.random.random() < 0.5:
        return d.do(lambda x: F.linear(x, weight()), x)
    bias = d.weight(torch.randn(3, **kind_of))
    return d.do(lambda x: F.linear(x, weight(), bias()), x)


@kind(2)
def from_weight(d: Draft) -> bool:
    weight = d.weight(torch.linspace(-1, 1, d.random.choice([1, 2, 3])))
    x = d.pick(is_float, has_dims(1))
    return d.do(lambda x: x * weight(), x) or d.do(lambda: weight().exp())


@kind(2)
def indexed(d: Draft) -> bool:
    functions: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, i: x[i.flatten() % x.shape[0]],
        lambda x, i: x.index_select(0, i.flatten() % x.shape[0]),
        lambda x, i: F.embedding(i % x.shape[0], x),
        lambda x, i: x.index_add(0, i.flatten()[:1] * 0, x[:1]),
    ]
    index = d.pick(lambda v: is_tensor(v) and v.dtype is torch.int64)
    if index is None:
        return d.do(lambda x: (x * 3).long().abs(), d.pick(is_float))
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized), index)


@kind(2)
def masked(d: Draft) -> bool:
    mask = d.pick(is_bool)
    if mask is None:
        return d.do(lambda x: x > 0, d.pick(is_float))
    return d.do(lambda m: torch.where(m, 1.5, -1.0), mask)


@kind(2)
def random(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: F.dropout(x, 0.5, training=True),
        torch.rand_like,
        lambda x: torch.randint(0, 5, (x.shape[0], 2)),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: x + torch.randn(x.shape[-1], dtype=x.dtype),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized))


@kind(5)
def in_place(d: Draft) -> bool:
    """Write into a copy, through a view or not."""
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: x.clone().add_(1),
        lambda x: _written(x, lambda y: y[0].mul_(3)),
        lambda x: _written(x, lambda y: y.transpose(0, -1).relu_()),
        lambda x: _written(x, lambda y: y[1:].copy_(y[:-1].clone())),
        lambda x: _written(x, lambda y: y.masked_fill_(y > 0, 0.5)),
        lambda x: _written(x, lambda y: y.index_fill_(0, torch.tensor([0]), 2.0)),
        lambda x: _written(x, lambda y: y.zero_()),
        lambda x: _written(x, lambda y: y.unbind(0)[0].add_(1)),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized, is_whole))


def _written(x: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    y = x.clone()
    write(y)
    return y + 1


@kind(2)
def buffer(d: Draft) -> bool:
    """Count in a buffer, and read it afterwards."""
    name = f"count{len(d.tape.steps)}"
    d.tape.register_buffer(name, torch.zeros(1), d.random.random() < 0.5)

    def counted(x: Tensor) -> Tensor:
        held: Tensor = getattr(d.tape, name)
        held.mul_(0.9).add_(x.mean().float())
        return x * held

    return d.do(counted, d.pick(is_float, is_whole))


@kind(2)
def sizes(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x * x.shape[0],
        lambda x: torch.arange(x.shape[0]),
        lambda x: torch.full((x.shape[0], 2), 0.5),
        lambda x: x[: x.shape[0] // 2],
        lambda x: x / x.shape[0] ** 0.5,
        lambda x: x.new_zeros(torch.sym_max(x.shape[0], 3), 2),
        lambda x: x.reshape(x.shape[0] * x.shape[-1], -1),
        lambda x: x.sum() / x.numel(),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized))


@kind(2)
def size_of_another(d: Draft) -> bool:
    """A value whose size comes from where its data does not."""
    functions: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, y: x.expand(y.shape[0] + 1, *x.shape).sum(0),
        lambda x, y: x * (y.shape[0] - 1),
        lambda x, y: torch.zeros(x.shape[0], y.shape[-1]),
    ]
    operands = d.pick(is_float, is_sized), d.pick(is_tensor, is_sized)
    return d.do(d.random.choice(functions), *operands)


@kind(2)
def number(d: Draft) -> bool:
    """Read a number off a tensor, or compute with one."""
    n = d.pick(is_number)
    if n is not None and d.random.random() < 0.7:
        return d.do(lambda x, n: x * n, d.pick(is_float, loose=True), n)
    if d.random.random() < 0.5:
        return d.do(lambda x: x.sum().item(), d.pick(is_float))
    return d.do(lambda x: x.shape[0] + 1, d.pick(is_sized))


@kind(2)
def data_dependent(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: torch.nonzero(x > 0),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x < 0.5),
        _counted,
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_whole), loose=True)


def _counted(x: Tensor) -> Tensor:
    n: Any = (x > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= 1000)
    return torch.ones(n, 2)


@kind(1)
def asserted(d: Draft) -> bool:
    def checked(x: Tensor) -> Tensor:
        torch._assert_async(x.isfinite().any() | True)
        return x.cos()

    return d.do(checked, d.pick(is_float))


@kind(1)
def branch(d: Draft) -> bool:
    """A higher-order operator; its branches use a value from outside."""
    x = d.pick(is_float, is_whole)
    if x is None:
        return False
    y = d.pick(alike(d.values[x]))

    def branched(x: Tensor, y: Tensor) -> Any:
        choose = torch.cond if torch.compiler.is_exporting() else chosen
        return choose(x.sum() > 0, lambda v: (v * y).sin(), lambda v: v - y, (x,))

    return d.do(branched, x, y)


def chosen(
    test: Tensor,
    yes: Callable[..., Tensor],
    no: Callable[..., Tensor],
    operands: tuple[Tensor, ...],
) -> Tensor:
    """Do what ``torch.cond`` does in eager without starting a compiler."""
    return (yes if test else no)(*operands)


@kind(1)
def loop(d: Draft) -> bool:
    def looped(x: Tensor) -> Any:
        # What goes around keeps its strides, and one dim has few to choose from.
        start = torch.zeros((), dtype=torch.int64), x.exp().reshape(-1)
        repeat = while_loop if torch.compiler.is_exporting() else _looped
        return repeat(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.5), start)[1]

    return d.do(looped, d.pick(is_float, is_whole))


def _looped(
    test: Callable[..., Tensor], step: Callable[..., Any], carried: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    while test(*carried):
        carried = step(*carried)
    return carried


@kind(1)
def without_grad(d: Draft) -> bool:
    def guarded(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x.tanh() * 2

    return d.do(guarded, d.pick(is_float))


@kind(1)
def under_autocast(d: Draft) -> bool:
    def lowered(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.transpose(-1, -2)

    return d.do(lowered, d.pick(is_float, has_dims(2, 3)))


@kind(1)
def input_written(d: Draft) -> bool:
    """Write into an input: whoever calls sees it."""
    x = d.pick(is_float, is_whole)
    if x is None or x >= d.inputs or not all(d.values[x].stride()):
        return False
    return d.do(lambda x: x.mul_(0.5), x)


# --- programs


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

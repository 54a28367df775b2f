"""A fitter without torch: it knows the types of a dozen operators.

Honest as fake tensors are: what it takes for a program is one, by dtypes and shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, apply_changes
from shrinkfx.program.listing.printed_program import (
    RETURN,
    Block,
    ListedType,
    PrintedProgram,
    Types,
)


class FakeFitter:
    """Fits rewrites by types alone; nothing follows from any.

    Attributes:
        asked: how many rewrites it was asked about.
    """

    def __init__(self) -> None:
        self.asked = 0

    def types(self, candidate: Candidate) -> Types:
        assert candidate.listing is not None
        return types_in(candidate.listing)

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> list[Rewrite | None]:
        assert candidate.listing is not None
        self.asked += len(rewrites)
        return [_fitted(candidate.listing, rewrite) for rewrite in rewrites]

    def ahead(self) -> FakeFitter:
        return self


def types_in(listing: PrintedProgram) -> dict[tuple[str, str], ListedType]:
    """Tell what the values of a listing are.

    Raises:
        TypeError: it is no program.
    """
    run = _Run(listing)
    held = {given.spelling: given.recipe() for given in listing.given}
    values = {n: _Fake(r.dtype, r.shape) for n, r in held.items()}
    run.block(listing.main, [values[name] for name in listing.main.arguments], values)
    return run.found


def is_program(listing: PrintedProgram, changes: Sequence[Change]) -> bool:
    """Tell whether what changes make of a listing is a program."""
    try:
        types_in(apply_changes(listing, changes))
    except (InvalidEdit, TypeError, ValueError, IndexError, AttributeError):
        return False
    return True


def _fitted(listing: PrintedProgram, rewrite: Rewrite) -> Rewrite | None:
    if not rewrite.partly:
        return rewrite if is_program(listing, rewrite.changes) else None
    kept: list[Change] = []
    for change in rewrite.changes:
        if is_program(listing, [*kept, change]):
            kept.append(change)
    return Rewrite(tuple(kept)) if kept else None


@dataclass(frozen=True)
class _Fake:
    """A tensor without elements."""

    dtype: str
    shape: tuple[int, ...]


class _Run:
    """Goes through the statements of a listing, and of the blocks that it calls."""

    def __init__(self, listing: PrintedProgram) -> None:
        self._listing = listing
        self.found: dict[tuple[str, str], ListedType] = {}

    def block(
        self, block: Block, given: Sequence[Any], weights: Mapping[str, Any]
    ) -> Any:
        if len(given) != len(block.arguments):
            raise TypeError(f"{block.name} takes {len(block.arguments)} arguments")
        values = dict(zip(block.arguments, given, strict=True))
        held = {n.removeprefix("self."): v for n, v in weights.items()}
        for attribute, kind in block.members:
            held[attribute] = self._callable(self._listing.block(kind))
        scope = {"torch": _TORCH, "self": SimpleNamespace(**held)}
        for line in block.statements:
            values[line.name] = eval(line.code, scope, values)
        for name, value in values.items():
            if isinstance(value, _Fake) and name != RETURN:
                self.found[block.name, name] = _typed(value)
        return values[RETURN]

    def _callable(self, block: Block) -> Any:
        def call(*given: Any) -> Any:
            return self.block(block, given, {})

        setattr(call, "forward", call)  # noqa: B010 - bodies of bodies are called so
        return call


def _typed(value: _Fake) -> ListedType:
    shape = value.shape
    steps = tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
    return ListedType(value.dtype, shape, steps)


def _require(condition: bool) -> None:
    if not condition:
        raise TypeError("no program")


def _tensor(value: object) -> _Fake:
    if not isinstance(value, _Fake):
        raise TypeError("no tensor")
    return value


def _unary(x: object) -> _Fake:
    return _tensor(x)


def _binary(x: object, y: object, *, alpha: float = 1) -> _Fake:
    _require(isinstance(alpha, int | float))
    x = _tensor(x)
    if isinstance(y, int | float):
        return x
    y = _tensor(y)
    _require(x.dtype == y.dtype)
    rank = max(len(x.shape), len(y.shape))
    pairs = zip(_padded(x, rank), _padded(y, rank), strict=True)
    return _Fake(x.dtype, tuple(_together(a, b) for a, b in pairs))


def _padded(x: _Fake, rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(x.shape)) + x.shape


def _together(a: int, b: int) -> int:
    _require(a == b or 1 in (a, b))
    return b if a == 1 else a


def _compared(x: object, y: float) -> _Fake:
    _require(isinstance(y, int | float))
    return _Fake("bool", _tensor(x).shape)


def _view(x: object, shape: Sequence[int]) -> _Fake:
    _require(math.prod(shape) == math.prod(_tensor(x).shape))
    return _Fake(_tensor(x).dtype, tuple(shape))


def _mm(x: object, y: object) -> _Fake:
    x, y = _tensor(x), _tensor(y)
    _require(len(x.shape) == len(y.shape) == 2 and x.dtype == y.dtype)
    _require(x.shape[1] == y.shape[0])
    return _Fake(x.dtype, (x.shape[0], y.shape[1]))


def _sum(x: object, dims: Sequence[int] = (), keepdim: bool = False) -> _Fake:
    shape = _tensor(x).shape
    _require(isinstance(keepdim, bool) and all(dim < len(shape) for dim in dims))
    gone = {dim % len(shape) for dim in dims} if dims else {*range(len(shape))}
    sizes = [
        (1 if d in gone else s) for d, s in enumerate(shape) if keepdim or d not in gone
    ]
    return _Fake(_tensor(x).dtype, tuple(sizes))


def _expand(x: object, shape: Sequence[int], *, implicit: bool = False) -> _Fake:
    padded = _padded(_tensor(x), len(shape))
    _require(len(padded) == len(shape))
    _require(all(a in (1, b) for a, b in zip(padded, shape, strict=True)))
    return _Fake(_tensor(x).dtype, tuple(shape))


def _transpose(x: object, first: int, second: int) -> _Fake:
    shape = list(_tensor(x).shape)
    shape[first], shape[second] = shape[second], shape[first]
    return _Fake(_tensor(x).dtype, tuple(shape))


def _cat(held: Sequence[object], dim: int = 0) -> _Fake:
    tensors = [_tensor(x) for x in held]
    rests = {(t.dtype, t.shape[:dim], t.shape[dim + 1 :]) for t in tensors}
    _require(len(rests) == 1)
    shape, size = tensors[0].shape, sum(t.shape[dim] for t in tensors)
    return _Fake(tensors[0].dtype, (*shape[:dim], size, *shape[dim + 1 :]))


def _arange(end: object) -> _Fake:
    _require(isinstance(end, int) and end > 0)
    return _Fake("int64", (int(str(end)),))


def _full(shape: Sequence[int], value: float) -> _Fake:
    _require(isinstance(value, int | float) and all(size > 0 for size in shape))
    return _Fake("int64", tuple(shape))


def _slice(x: object, dim: int, start: int, end: int) -> _Fake:
    shape = list(_tensor(x).shape)
    shape[dim] = min(end, shape[dim]) - start
    _require(shape[dim] > 0)
    return _Fake(_tensor(x).dtype, tuple(shape))


def _cond(taken: object, first: Any, second: Any, given: Sequence[Any]) -> Any:
    _require(_tensor(taken) == _Fake("bool", ()))
    result = first(*given)
    _require(result == second(*given))
    return result


def _while(test: Any, body: Any, carried: Sequence[Any], more: Sequence[Any]) -> Any:
    _require(bool(carried) and test(*carried, *more) == _Fake("bool", ()))
    _require(tuple(body(*carried, *more)) == tuple(carried))
    return tuple(carried)


def _scan(
    body: Any, first: Sequence[_Fake], rows: Sequence[_Fake], more: Sequence[_Fake]
) -> Any:
    _require(bool(first) and bool(rows))
    result = body(*first, *(_Fake(r.dtype, r.shape[1:]) for r in rows), *more)
    _require(tuple(result[: len(first)]) == tuple(first))
    count = rows[0].shape[0]
    return (*first, *(_Fake(r.dtype, (count, *r.shape)) for r in result[len(first) :]))


def _named(**overloads: Callable[..., Any]) -> SimpleNamespace:
    return SimpleNamespace(**overloads)


_ATEN = {
    **dict.fromkeys(("relu", "exp", "neg", "tanh", "cos"), _named(default=_unary)),
    **dict.fromkeys(("add", "mul", "sub"), _named(Tensor=_binary)),
    "add_": _named(Tensor=_binary),
    "check_": _named(default=_unary),
    **dict.fromkeys(("lt", "gt"), _named(Scalar=_compared)),
    "view": _named(default=_view),
    "mm": _named(default=_mm),
    "sum": _named(dim_IntList=_sum, default=_sum),
    "expand": _named(default=_expand),
    "transpose": _named(int=_transpose),
    "cat": _named(default=_cat),
    "arange": _named(default=_arange),
    "full": _named(default=_full),
    "slice": _named(Tensor=_slice),
}

_TORCH = SimpleNamespace(
    ops=SimpleNamespace(
        aten=SimpleNamespace(**_ATEN),
        higher_order=SimpleNamespace(while_loop=_while, scan=_scan),
    ),
    cond=_cond,
)

"""Runs of a printed program on stand-in tensors, statement by statement."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    PrintedProgram,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import Opaque, TensorSpec
from shrinkfx.worker.listing.describe import make_few_integers
from shrinkfx.worker.listing.eager_statement import (
    MOST_ELEMENTS,
    Misfit,
    Names,
    evaluate_expression,
    find_index_names,
    has_only_integers,
    is_integer_tensor,
    is_pure_aten,
    is_small,
    list_reads,
    run_statement_eager,
    tensors,
    yields_known_integers,
)
from shrinkfx.worker.private_api.graph_api import FakeTensor, FakeTensorMode

# To evaluate an operator on fake tensors takes a millisecond. If all operands are
# small, it is faster to run the operator itself, which also checks more.

Saved = Mapping[str, Tensor]
"""Saved values, by the keys of tensor specs."""


@dataclass(frozen=True)
class Value:
    """A tensor, a number, or several of these.

    Attributes:
        what: the value itself; unless it is exact, only the metadata of its tensors
            counts, not their elements.
        kind: a number for the metadata; equal for values that no operator
            distinguishes.
        exact: the value consists of whole numbers, and they are the real ones.
    """

    what: Any = field(compare=False, repr=False)
    kind: int
    exact: bool = False

    def tensors(self) -> list[Tensor]:
        """List the tensors in the value, in order."""
        return list(tensors(self.what))


class StandInRunner:
    """Runs statements, each once per combination of the kinds of its operands.

    Attributes:
        trusting: the statements that run now are known to be valid. If eager refuses
            one on stand-in operands, its operator does not run in eager any more.
    """

    def __init__(self) -> None:
        self._mode = FakeTensorMode()
        self._kinds: dict[Hashable, int] = {}
        self._yielded: dict[tuple[str, tuple[int, ...]], Value | str] = {}
        self._stand_ins: dict[Hashable, Value] = {}
        self._exact: dict[TensorSpec, Value | None] = {}
        self._faked: dict[int, FakeTensor] = {}
        self._not_eager: set[str] = set()
        self._ignorable: set[str] = set()
        self.trusting = False

    def value(self, what: object, *, exact: bool = False) -> Value:
        """Wrap a value, and number its kind."""
        numbers = tuple(_numbers_in(what)) if exact else None
        key = _kind_of(what), numbers
        return Value(what, self._kinds.setdefault(key, len(self._kinds)), exact)

    def given(self, recipe: TensorSpec, saved: Saved | None = None) -> Value:
        """Return the value that a tensor spec makes.

        Args:
            saved: saved values by key; if passed, whole numbers are the real ones,
                provided that they are few and not drawn from a seed.

        Raises:
            Misfit: no such tensor can be made.
        """
        if saved is not None and recipe not in self._exact:
            numbers = make_few_integers(recipe, saved)
            exact = None if numbers is None else self.value(numbers, exact=True)
            self._exact[recipe] = exact
        if saved is not None and (known := self._exact[recipe]) is not None:
            return known
        if isinstance(recipe.fill, Opaque):
            return self.value(_plain(recipe.fill.text))
        key = recipe.shape, recipe.stride, recipe.dtype, recipe.device
        if key not in self._stand_ins:
            self._stand_ins[key] = self.value(self._empty(recipe))
        return self._stand_ins[key]

    def _empty(self, recipe: TensorSpec) -> Tensor:
        dtype = getattr(torch, recipe.dtype)
        try:
            if recipe.device == "cpu" and recipe.span <= MOST_ELEMENTS:
                made = torch.zeros(recipe.span, dtype=dtype)
                stride = recipe.stride
                if stride is None:
                    return made.reshape(recipe.shape)
                return made.as_strided(recipe.shape, stride)
            with self._mode:
                if recipe.stride is None:
                    return torch.empty(recipe.shape, dtype=dtype, device=recipe.device)
                return torch.empty_strided(
                    recipe.shape, recipe.stride, dtype=dtype, device=recipe.device
                )
        except Exception as error:
            raise Misfit(str(error)) from error

    def run(self, statement: Statement, names: Mapping[str, Value]) -> Value:
        """Return the result of a statement.

        Raises:
            Misfit: the statement does not run.
        """
        reads = list_reads(statement)
        key = statement.code, tuple(names[n].kind for n in reads if n in names)
        if key not in self._yielded:
            read = {name: names[name] for name in reads if name in names}
            self._yielded[key] = self._run(statement, read)
        yielded = self._yielded[key]
        if isinstance(yielded, str):
            raise Misfit(yielded)
        return yielded

    def _run(self, statement: Statement, read: Mapping[str, Value]) -> Value | str:
        what = {name: value.what for name, value in read.items()}
        try:
            if self._is_tried(statement) and is_small(statement, what):
                try:
                    return self._try_eager(statement, read)
                except Misfit as misfit:
                    self._exclude_from_eager(statement, misfit)
            if not statement.callee or _is_plain(statement, what):
                return self._evaluate_numbers(statement, read)
            return self._run_fake(statement, read)
        except Misfit as misfit:
            if self._can_ignore_assertion(statement, read):
                return self.value(None)
            return str(misfit)

    def _try_eager(self, statement: Statement, read: Mapping[str, Value]) -> Value:
        """Run a statement in eager, with the whole numbers that are known.

        Indices that are out of bounds, or that eager does not check, count as unknown.

        Raises:
            Misfit: eager refuses the statement.
        """
        what = {name: value.what for name, value in read.items()}
        exact = frozenset(name for name, value in read.items() if value.exact)
        unknown = exact if "unsafe" in statement.code else frozenset[str]()
        try:
            made = self._eager(statement, what, exact, unknown)
        except Misfit:
            unknown |= exact & find_index_names(statement)
            if not unknown:
                raise
            made = self._eager(statement, what, exact, unknown)
        known = len(exact - unknown) == len(read)
        return self.value(made, exact=known and yields_known_integers(statement, made))

    def _eager(
        self,
        statement: Statement,
        what: Names,
        exact: frozenset[str],
        unknown: frozenset[str],
    ) -> object:
        """Run a statement with zeros for unknown indices: index 0 is in bounds."""
        known = exact - unknown
        which = (name for name in find_index_names(statement) - known if name in what)
        zeros = {*unknown, *(name for name in which if is_integer_tensor(what[name]))}
        operands = {**what, **{name: make_zeros(what[name]) for name in zeros}}
        return run_statement_eager(statement, operands, known | zeros)

    def _evaluate_numbers(
        self, statement: Statement, read: Mapping[str, Value]
    ) -> Value:
        """Evaluate arithmetic on numbers, or take a part of a value."""
        made = evaluate_expression(
            statement.code, {n: value.what for n, value in read.items()}
        )
        exact = all(value.exact for value in read.values())
        return self.value(made, exact=exact and has_only_integers(made))

    def _can_ignore_assertion(
        self, statement: Statement, read: Mapping[str, Value]
    ) -> bool:
        """Return whether a failed assertion on unknown numbers can be ignored.

        It can if it also failed in a program that is known to be valid.
        """
        guessed = any(not value.exact for value in read.values())
        if self.trusting and guessed and "assert" in statement.callee:
            self._ignorable.add(statement.name)
        return guessed and statement.name in self._ignorable

    def _is_tried(self, statement: Statement) -> bool:
        return is_pure_aten(statement) and statement.callee not in self._not_eager

    def _exclude_from_eager(self, statement: Statement, misfit: Misfit) -> None:
        """Exclude an operator from eager, because it refuses its stand-in operands.

        Raises:
            Misfit: the statement is not known to be valid.
        """
        if not self.trusting:
            raise misfit
        self._not_eager.add(statement.callee)

    def _run_fake(self, statement: Statement, read: Mapping[str, Value]) -> Value | str:
        what = {name: value.what for name, value in read.items()}
        fakes = {name: self.make_fake(each) for name, each in what.items()}
        before = [_kind_of(fake) for fake in fakes.values()]
        made = self.evaluate(statement.code, fakes)
        if before != [_kind_of(fake) for fake in fakes.values()]:
            self._yielded.clear()  # resized in place, so cached values are wrong
            self._stand_ins.clear()
            self._faked.clear()
            return "an operand is of another size after"
        if self._is_tried(statement) and is_small(statement, what, made):
            try:
                self._try_eager(statement, read)
            except Misfit as misfit:
                self._exclude_from_eager(statement, misfit)
        return self.value(made)

    def make_fake(self, what: Any) -> Any:
        """Replace all tensors in a value by fake tensors."""
        if isinstance(what, (tuple, list)):
            return type(what)([self.make_fake(item) for item in what])
        if not isinstance(what, Tensor) or isinstance(what, FakeTensor):
            return what
        kind = self.value(what).kind
        if kind not in self._faked:
            self._faked[kind] = self._mode.from_tensor(what)
        return self._faked[kind]

    def evaluate(self, code: str, names: Names) -> Any:
        """Evaluate an expression on fake tensors and other values.

        Raises:
            Misfit: the expression raises any exception.
        """
        with self._mode:
            return evaluate_expression(code, names)


def make_zeros(what: Any) -> Any:
    """Replace all tensors in a value by zeros, because their elements are unknown."""
    if isinstance(what, (tuple, list)):
        return type(what)([make_zeros(item) for item in what])
    return torch.zeros_like(what) if isinstance(what, Tensor) else what


def _numbers_in(what: object) -> Iterator[tuple[object, ...]]:
    for tensor in tensors(what):
        yield tuple(tensor.flatten().tolist())


def _is_plain(statement: Statement, what: Names) -> bool:
    """Return whether a statement reads only numbers: arithmetic, or an assertion."""
    makes = statement.callee.startswith("torch.ops.") and statement.yields
    return not makes and next(tensors(list(what.values())), None) is None


def _plain(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise Misfit(f"nothing is known of {text:.60}") from error


def _kind_of(what: object) -> Hashable:
    match what:
        case Tensor():
            if what.layout is not torch.strided:
                return what.dtype, tuple(what.shape), what.layout, what.device
            memory = what.storage_offset(), what.untyped_storage().nbytes()
            return what.dtype, tuple(what.shape), what.stride(), what.device, memory
        case tuple() | list():
            return type(what).__name__, *map(_kind_of, what)
        case dict():
            return "dict", *((key, _kind_of(item)) for key, item in what.items())
    return type(what).__name__, repr(what)


Place = tuple[str, str]
"""The names of a block, and of a value in it."""

Admit = Callable[[Place, Value], None]
"""A check of a value; it raises a Misfit if the value is not allowed."""


@dataclass
class Trace:
    """The record of a run.

    Attributes:
        values: the values of arguments and statements; in the main block also inputs
            and weights, as statements spell them.
        callers: the statement that called each block, by block.
        steps: the number of statements that ran.
        misfit: the exception that ended the run early, or None.
    """

    values: dict[Place, Value] = field(default_factory=dict)
    callers: dict[str, Place] = field(default_factory=dict)
    steps: int = 0
    misfit: Misfit | None = None

    def is_further_than(self, other: Trace) -> bool:
        if self.misfit is None:
            return other.misfit is not None
        return other.misfit is not None and self.steps > other.steps


def run(
    fakes: StandInRunner,
    listing: PrintedProgram,
    inputs: Mapping[str, Value],
    admit: Admit,
) -> Trace:
    """Run the main block.

    Args:
        inputs: inputs and weights, as statements spell them.
    """
    trace = Trace()
    trace.values |= {(MAIN, name): value for name, value in inputs.items()}
    runner = _Runner(fakes, listing, admit, trace)
    try:
        runner.block(listing.main, dict(inputs))
    except Misfit as misfit:
        trace.misfit = misfit
    return trace


@dataclass(frozen=True)
class Branch:
    """A block as an operand of a higher-order operator; a call runs it on fakes."""

    name: str
    call: Callable[..., Any] = field(compare=False)

    def __call__(self, *operands: object) -> Any:
        return self.call(*operands)

    @property
    def forward(self) -> Branch:
        return self

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class _Runner:
    fakes: StandInRunner
    listing: PrintedProgram
    admit: Admit
    trace: Trace

    def block(self, block: Block, names: dict[str, Value]) -> Value:
        """Run a block, and return the value that it returns."""
        for statement in block.statements:
            place = block.name, statement.name
            try:
                value = self._statement(block, statement, names)
                if statement.yields:
                    self.admit(place, value)
            except Misfit as misfit:
                misfit.frames.insert(0, place)
                raise
            self.trace.steps += 1
            if statement.yields:
                names[statement.name] = value
                self.trace.values.setdefault(place, value)
        return value

    def _statement(
        self, block: Block, statement: Statement, names: Mapping[str, Value]
    ) -> Value:
        branches = {
            f"self.{attribute}": kind
            for attribute, kind in block.members
            if f"self.{attribute}" in statement.reads
        }
        if not branches:
            return self.fakes.run(statement, names)
        called = block.name, statement.name
        inner = {
            name: Branch(kind, partial(self._call, kind, called))
            for name, kind in branches.items()
        }
        read = {
            name: make_zeros(names[name].what)
            if names[name].exact
            else names[name].what
            for name in statement.reads
            if name in names
        }
        if handler := HIGHER_ORDER.get(statement.callee):
            code = f"called_{statement.code.removeprefix(statement.callee)}"
            return self.fakes.value(
                evaluate_expression(code, {**read, **inner, "called_": handler})
            )
        fakes = {name: self.fakes.make_fake(what) for name, what in read.items()}
        made = self.fakes.evaluate(statement.code, {**fakes, **inner})
        return self.fakes.value(made)

    def _call(self, kind: str, called: Place, *operands: object) -> Any:
        block = self.listing.block(kind)
        if len(operands) != len(block.arguments):
            raise Misfit(f"{kind} takes {len(block.arguments)} arguments")
        self.trace.callers.setdefault(kind, called)
        values = [self.fakes.value(operand) for operand in operands]
        names = dict(zip(block.arguments, values, strict=True))
        for name, value in names.items():
            self.trace.values.setdefault((kind, name), value)
        made = self.block(block, names).what
        handler = HIGHER_ORDER.get(
            self.listing.block(called[0]).statement(called[1]).callee
        )
        return made if handler else self.fakes.make_fake(made)


def shapes_of(value: Value) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in value.tensors()]


def admit_all(place: Place, value: Value) -> None:
    """Accept every value."""


def admit_like(base: Mapping[Place, Value], *, cast: bool) -> Admit:
    """Return a check that values stay like those of a base trace.

    The device must stay the same, and the dtype unless ``cast`` is set. No value may
    become empty.
    """

    def admit(place: Place, value: Value) -> None:
        if place not in base:
            return
        pairs = zip(base[place].tensors(), value.tensors(), strict=False)
        for old, new in pairs:
            _require_like(old, new, cast=cast)

    return admit


def _require_like(old: torch.Tensor, new: torch.Tensor, *, cast: bool) -> None:
    if old.device != new.device:
        raise Misfit(f"it is on {new.device} and was on {old.device}")
    if old.dtype != new.dtype and not cast:
        raise Misfit(f"it is {new.dtype} and was {old.dtype}")
    if old.numel() and not new.numel():
        raise Misfit("it has no elements left")


# Higher-order operators on fake tensors: each runs every block once.
#
# A loop body must return values like those that it takes; branches must return alike.

BlockFunction = Callable[..., Any]


def _cond(
    taken: Any,
    yes: BlockFunction,
    no: BlockFunction,
    operands: Sequence[object] = (),
) -> Any:
    _require_truth(taken)
    returned = yes(*operands)
    _require_alike(returned, no(*operands), "its branches return")
    return returned


def _while_loop(
    goes_on: BlockFunction,
    body: BlockFunction,
    carried: Sequence[object],
    extra: Sequence[object] = (),
) -> Any:
    _require_truth(goes_on(*carried, *extra))
    returned = body(*carried, *extra)
    _require_alike(carried, returned, "its body takes and returns")
    return returned


def _scan(
    body: BlockFunction,
    carried: Sequence[object],
    rows: Sequence[Tensor],
    extra: Sequence[object] = (),
) -> list[Any]:
    returned = body(*carried, *_first(rows), *extra)
    count = len(carried)
    _require_alike(carried, returned[:count], "its body takes and returns")
    return [*returned[:count], *_stacked(returned[count:], len(rows[0]))]


def _map(
    body: BlockFunction, rows: Sequence[Tensor], extra: Sequence[object] = ()
) -> list[Any]:
    return _stacked(body(*_first(rows), *extra), len(rows[0]))


def _associative_scan(
    combine: BlockFunction, rows: Sequence[Tensor], extra: Sequence[object] = ()
) -> list[Any]:
    firsts = _first(rows)
    _require_alike(firsts, combine(*firsts, *firsts, *extra), "it combines and makes")
    return [row.clone() for row in rows]


def _subgraph(block: BlockFunction, _name: object, *operands: object) -> Any:
    return block(*operands)


def _with_grad(_enabled: object, block: BlockFunction, *operands: object) -> Any:
    return block(*operands)


HIGHER_ORDER: dict[str, Callable[..., Any]] = {
    "torch.cond": _cond,
    "torch.ops.higher_order.cond": _cond,
    "torch.ops.higher_order.while_loop": _while_loop,
    "torch.ops.higher_order.scan": _scan,
    "torch.ops.higher_order.map_impl": _map,
    "torch.ops.higher_order.associative_scan": _associative_scan,
    "torch.ops.higher_order.invoke_subgraph": _subgraph,
    "torch.ops.higher_order.wrap_with_set_grad_enabled": _with_grad,
}
"""Implementations by callee; torch itself calls the blocks of other operators."""


def _require_truth(value: object) -> None:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise Misfit(f"a condition of the shape {tuple(value.shape)}")
        if value.dtype is not torch.bool:
            raise Misfit(f"a condition of {value.dtype}")
    elif not isinstance(value, bool):
        raise Misfit(f"a condition that is a {type(value).__name__}")


def _require_alike(some: object, others: object, description: str) -> None:
    left, right = _items(some), _items(others)
    if len(left) != len(right):
        raise Misfit(f"{description} {len(left)} and {len(right)} values")
    for a, b in zip(left, right, strict=True):
        if _get_properties(a) != _get_properties(b):
            raise Misfit(f"{description} {_get_properties(a)} and {_get_properties(b)}")


def _items(values: object) -> list[object]:
    return list(values) if isinstance(values, (tuple, list)) else [values]


def _get_properties(value: object) -> tuple[object, ...]:
    """Return the properties in which two values must agree."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype, value.device
    return (type(value).__name__,)


def _first(rows: Sequence[Tensor]) -> list[Tensor]:
    """Return the first row of each tensor, as a body receives it."""
    counts = {len(row) if row.dim() else 0 for row in rows}
    if len(counts) != 1 or 0 in counts:
        raise Misfit(f"rows of the numbers {sorted(counts)}")
    return [row[0].clone() for row in rows]


def _stacked(values: Sequence[object], count: int) -> list[Any]:
    return [
        value.new_empty((count, *value.shape)) if isinstance(value, Tensor) else value
        for value in values
    ]

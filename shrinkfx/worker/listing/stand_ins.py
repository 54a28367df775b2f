"""Statements of a printed program, run on stand-in tensors one after another."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    Leaf,
    LeafKind,
    PrintedProgram,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import Opaque, TensorSpec
from shrinkfx.worker.eager.intermediates import span
from shrinkfx.worker.listing.describe import make_few_integers
from shrinkfx.worker.private_api import graph_api
from shrinkfx.worker.private_api.graph_api import FakeTensor, FakeTensorMode

# Kernels check more than fake tensors do: a fake ``mm`` takes a float and a bfloat16
# matrix, a fake ``index_put`` any values.

MOST_ELEMENTS = 4096
"""Maximal number of elements of all operands."""

_MOST_MADE = 1 << 22
"""Maximal number of result elements.

The estimate is the number of operand elements times all numbers in the statement.
"""

_MOST_KNOWN = 1 << 15
"""Maximal number of elements of operands and results, if results are known."""

_NEEDS_VALUES = re.compile(r"linalg|cholesky|inverse|triangular|assert|constrain|ctc")
"""Operators that refuse arbitrary elements, for example singular matrices."""

_DATA_DEPENDENT = {"dynamic_output_shape", "data_dependent_output"}
"""Tags of operators whose result sizes depend on elements.

They run on ones, so that a mask selects everything.
"""

Fill = Callable[..., Tensor]


@cache
def is_pure_aten(statement: Statement) -> bool:
    """Return whether a statement calls an aten operator that only yields a value.

    False for CUDA code, and for operators that refuse arbitrary elements.
    """
    operator = resolve_callee(statement.callee)
    if operator is None or not statement.callee.startswith("torch.ops.aten."):
        return False
    if operator._schema.is_mutable or _NEEDS_VALUES.search(statement.callee):
        return False
    return "cuda" not in statement.code


@cache
def mutates_operand(statement: Statement) -> bool:
    """Return whether a statement mutates an operand."""
    operator = resolve_callee(statement.callee)
    written = operator is not None and operator._schema.is_mutable
    return written or statement.callee.endswith(".copy_")


@cache
def _is_unforeseen(statement: Statement) -> bool:
    operator = resolve_callee(statement.callee)
    return operator is not None and any(
        t.name in _DATA_DEPENDENT for t in operator.tags
    )


def is_small(statement: Statement, read: Names, made: object = None) -> bool:
    """Return whether running a statement takes negligible time and memory.

    Args:
        made: the result, if it is known.
    """
    operands = list(tensors(list(read.values())))
    known = list(tensors(made))
    if any(t.device.type != "cpu" or t.layout is not torch.strided for t in operands):
        return False
    count = sum(map(span, operands))
    if known:
        return count + sum(map(span, known)) <= _MOST_KNOWN
    return count <= MOST_ELEMENTS and max(count, 1) * _numbers(statement) <= _MOST_MADE


@cache
def _numbers(statement: Statement) -> int:
    """Multiply all whole numbers in a statement; from 2**31 on they are no sizes."""
    texts = [x.text for x in statement.leaves if x.kind is LeafKind.NUMBER]
    numbers = [abs(int(text)) for text in texts if text.lstrip("-").isdigit()]
    return math.prod(max(1, number) for number in numbers if number < 1 << 31)


def yields_known_integers(statement: Statement, made: object) -> bool:
    """Return whether a statement yields whole numbers, deterministically."""
    operator = resolve_callee(statement.callee)
    if operator is None or "empty" in statement.callee:
        return False
    if any(tag.name == "nondeterministic_seeded" for tag in operator.tags):
        return False
    return has_only_integers(made)


def has_only_integers(made: object) -> bool:
    """Return whether a value consists of integers and bools only."""
    if isinstance(made, (tuple, list)):
        return all(has_only_integers(each) for each in made)
    if isinstance(made, Tensor):
        return not (made.is_floating_point() or made.is_complex())
    return isinstance(made, int)


def is_integer_tensor(made: object) -> bool:
    """Return whether a value is a tensor of integers, and not of bools."""
    is_tensor = isinstance(made, Tensor) and made.dtype is not torch.bool
    return is_tensor and has_only_integers(made)


def run_statement_eager(
    statement: Statement, read: Names, exact: Collection[str] = frozenset()
) -> object:
    """Run a statement in eager.

    Args:
        exact: operands that keep their values; of other operands only the metadata
            counts.

    Raises:
        Misfit: eager refuses the statement, even with ones for elements. Ones avoid the
            division of whole numbers by zero.
    """
    error = Misfit("")
    fills = (torch.ones,) if _is_unforeseen(statement) else (torch.zeros, torch.ones)
    for fill in fills:
        replace_all = fill is torch.ones
        real = {
            name: what if name in exact else _real(what, fill, replace_all)
            for name, what in read.items()
        }
        try:
            with torch.no_grad():
                return eval(compile_expression(statement.code), scope_of(real))
        except Exception as refused:  # noqa: BLE001 - whatever an operator raises
            misfit = Misfit(f"{type(refused).__name__}: {refused}")
            error = misfit if fill is fills[0] else error
    raise error


def _real(what: object, fill: Fill, replace_all: bool) -> object:
    """Replace fake tensors by real ones; ``replace_all``: replace real ones, too."""
    if isinstance(what, (tuple, list)):
        return type(what)([_real(item, fill, replace_all) for item in what])
    if not isinstance(what, Tensor) or (type(what) is Tensor and not replace_all):
        return what
    memory = fill((span(what),), dtype=what.dtype)
    return memory.as_strided(tuple(what.shape), what.stride())


Names = Mapping[str, object]
"""The values that statements read, by spelling."""


class Misfit(Exception):
    """A statement refuses its operands, or yields a value that is not allowed.

    Attributes:
        frames: block and statement, the innermost last.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.frames: list[tuple[str, str]] = []


def scope_of(names: Names) -> dict[str, Any]:
    """Build the scope of an expression, with attributes below ``self``."""
    attrs = {name[5:]: what for name, what in names.items() if name.startswith("self.")}
    free = {name: what for name, what in names.items() if not name.startswith("self.")}
    modules = {"torch": torch, "operator": operator, "math": math}
    return {**modules, **free, "self": SimpleNamespace(**attrs)}


def evaluate_expression(code: str, names: Names) -> Any:
    """Evaluate an expression.

    Raises:
        Misfit: the expression raises any exception.
    """
    try:
        with torch.no_grad():
            return eval(compile_expression(code), scope_of(names))
    except Misfit:
        raise
    except Exception as error:
        raise Misfit(f"{type(error).__name__}: {error}") from error


@cache
def compile_expression(code: str) -> CodeType:
    """Compile an expression, once."""
    return compile(code, "<listing>", "eval")


@cache
def list_reads(statement: Statement) -> tuple[str, ...]:
    """Return the sorted names that a statement reads."""
    return tuple(sorted(statement.reads))


def tensors(what: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, in order."""
    if isinstance(what, torch.Tensor):
        yield what
    elif isinstance(what, (tuple, list)):
        for item in what:
            yield from tensors(item)


FROM_THE_END = ("index", "_unsafe_index", "index_put", "_unsafe_index_put")
"""Operators that take a list of indices, which may be negative."""

ALONG = (
    *("index_select", "gather", "scatter", "scatter_add", "scatter_reduce"),
    *("index_add", "index_copy", "index_fill"),
)
"""Operators with an ``index`` along one dim."""
TABLES = ("embedding", "embedding_bag", "_embedding_bag")
"""Operators whose ``indices`` are rows of a table."""
LOSSES = ("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss_nd")
"""Operators whose ``target`` is a class."""

_INDEX_ARGUMENTS = {
    **dict.fromkeys((*FROM_THE_END, *TABLES), "indices"),
    **dict.fromkeys(ALONG, "index"),
    **dict.fromkeys(LOSSES, "target"),
}
"""The argument that holds indices, by operator."""


@cache
def find_index_names(statement: Statement) -> frozenset[str]:
    """Return the names of the values that a statement uses as indices."""
    argument = _INDEX_ARGUMENTS.get(get_operator_name(statement).removesuffix("_"))
    leaves = list_argument_leaves(statement, argument) if argument else []
    return frozenset(leaf.text for leaf in leaves if leaf.kind is LeafKind.VALUE)


@cache
def arguments_of(statement: Statement) -> Mapping[int, tuple[str, str]]:
    """Map the number of each leaf to the argument that it is, or is a part of.

    Returns:
        Name and schema type of the argument; empty if the callee has no schema.
    """
    operator = resolve_callee(statement.callee)
    if operator is None:
        return {}
    types = {each.name: str(each.type) for each in operator._schema.arguments}
    ordered = list(types)
    parents = {leaf.number: leaf for leaf in statement.leaves}
    positions = [
        x.number for x in statement.leaves if x.parent is None and not x.keyword
    ]
    found = {}
    for leaf in statement.leaves:
        top = _top(leaf, parents)
        name = top.keyword
        if name is None and (position := positions.index(top.number)) < len(ordered):
            name = ordered[position]
        if name is not None and name in types:
            found[leaf.number] = name, types[name]
    return found


def list_argument_leaves(statement: Statement, name: str) -> list[Leaf]:
    """List the leaves of an argument, including nested leaves, in order."""
    arguments = arguments_of(statement)
    return [x for x in statement.leaves if arguments.get(x.number, ("", ""))[0] == name]


def get_operator_name(statement: Statement) -> str:
    """Return the name of an aten operator without its overload, else ''."""
    parts = statement.callee.split(".")
    return parts[3] if parts[:3] == ["torch", "ops", "aten"] else ""


def _top(leaf: Leaf, parents: Mapping[int, Leaf]) -> Leaf:
    while leaf.parent is not None:
        leaf = parents[leaf.parent]
    return leaf


@cache
def resolve_callee(callee: str) -> graph_api.OpOverload | None:
    """Return the operator that a statement calls, or None if it calls none."""
    if not callee.startswith("torch.ops."):
        return None
    found: object = torch
    for part in callee.split(".")[1:]:
        found = getattr(found, part, None)
    return found if isinstance(found, graph_api.OpOverload) else None


def is_index(leaf: Leaf, statement: Statement) -> bool:
    """Return whether a number is an index: ``split[1]``, ``x.shape[0]``."""
    parents = [other for other in statement.leaves if other.number == leaf.parent]
    return any(a.kind is LeafKind.SIZE and a.text.endswith("]") for a in parents)


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


def run_program(
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


def _with_grad(_enabled: object, block: BlockFunction, *operands: object) -> Any:
    return block(*operands)


HIGHER_ORDER: dict[str, Callable[..., Any]] = {
    "torch.cond": _cond,
    "torch.ops.higher_order.cond": _cond,
    "torch.ops.higher_order.while_loop": _while_loop,
    "torch.ops.higher_order.scan": _scan,
    "torch.ops.higher_order.map_impl": _map,
    "torch.ops.higher_order.associative_scan": _associative_scan,
    "torch.ops.higher_order.invoke_subgraph": lambda block, name, *read: block(*read),
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

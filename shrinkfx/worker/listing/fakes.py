"""Results of statements on stand-in tensors: fake ones, or small real ones.

To evaluate an operator on fake tensors takes a millisecond. If all operands are small,
it is faster to run the operator itself, which also checks more.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shrinkfx.program.listing.statements import Statement
from shrinkfx.program.listing.tensor_specs import Opaque, TensorSpec
from shrinkfx.worker.listing.arguments import find_index_names
from shrinkfx.worker.listing.eager_statement import (
    MOST_ELEMENTS,
    has_only_integers,
    is_integer_tensor,
    is_pure_aten,
    is_small,
    run_statement_eager,
    yields_known_integers,
)
from shrinkfx.worker.listing.scope import (
    Misfit,
    Names,
    evaluate_expression,
    list_reads,
    tensors,
)
from shrinkfx.worker.listing.tensor_specs import make_few_integers
from shrinkfx.worker.private_api.graph_api import FakeTensor, FakeTensorMode

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

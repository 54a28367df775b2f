"""Runs of a printed program on fake tensors, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from shrinkfx.program.listing.printed_program import MAIN, Block, PrintedProgram
from shrinkfx.program.listing.statements import Statement
from shrinkfx.worker.listing.fakes import StandInRunner, Value, make_zeros
from shrinkfx.worker.listing.higher_order import HIGHER_ORDER
from shrinkfx.worker.listing.scope import Misfit, evaluate_expression

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

"""A candidate: the input program plus the kept operators and the changes to them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Specialisation
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import (
    FreeSize,
    Role,
    Skeleton,
    count_bypassed,
    reached,
    subgraph_nodes,
    values_in_subgraphs,
)


class Outputs(StrEnum):
    """Which values a candidate returns.

    There are two choices, because returning an inner value changes how the compiler
    fuses, and can hide the bug.
    """

    SINKS = "sinks"
    """Values that no kept operator uses; no state goes from call to call."""
    ORIGINAL = "original"
    """The sinks, the remaining original outputs, and the buffer mutations."""


@dataclass(frozen=True)
class Candidate:
    """A program as data, in normal form: equal programs have equal digests.

    Invariants:

    - ``keep`` is not empty.
    - ``bypass`` maps a needed value that is neither computed nor fed to the value that
      its users get.
    - ``replace`` maps a kept operator to the operand of the simple operator in its
      place, or to itself if the operand is the operator's own value, fed from outside.
    - ``outputs`` is ORIGINAL only if it returns more than the sinks or writes a buffer.
    - ``sizes`` contains only dynamic sizes that the candidate has.
    - ``listing`` is in normal form, and ``keep`` contains only operators that occur in
      it.

    Attributes:
        listing: the printed program, or None as long as the other fields define the
            candidate. Once it exists, it is the program; the other fields state what it
            was made from.
    """

    skeleton: Skeleton = field(repr=False, compare=False)
    keep: frozenset[str]
    bypass: Mapping[str, str]
    outputs: Outputs
    replace: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Specialisation] = field(default_factory=dict)
    listing: PrintedProgram | None = None

    @classmethod
    def from_skeleton(
        cls, skeleton: Skeleton, outputs: Outputs = Outputs.ORIGINAL
    ) -> Self:
        return cls(skeleton, frozenset(skeleton.operators), {}, outputs).normalised()

    def returning(self, outputs: Outputs) -> Self:
        """Return the candidate with other outputs; a printed program keeps its own."""
        if self.listing is not None:
            return self
        return dataclasses.replace(self, outputs=outputs).normalised()

    def with_listing(self, listing: PrintedProgram) -> Self:
        """Return the candidate with a printed program as its definition.

        Raises:
            InvalidEdit: no operator would remain.
        """
        listing = listing.normalised()
        names = {statement.name for _, statement in listing.operators()}
        # A printed program may call things that are not its operators, such as a method
        # of a script object.
        keep = (self.keep & names) or self.keep
        return dataclasses.replace(self, keep=keep, listing=listing)

    def normalised(self) -> Self:
        """Remove parts without effect: dead operators, unused sizes and edits."""
        live = frozenset(n for n in self.keep if not self._is_dead(n))
        if not live:
            raise InvalidEdit("nothing would be left")
        if live != self.keep:
            return dataclasses.replace(self, keep=live).normalised()
        simple = {n: self.operands(n)[0] for n in self.operators if n in self.replace}
        originals = [n for n in self.operators if n not in simple]
        wanted = {v for n in originals for v in self.skeleton.node(n).operands}
        wanted |= values_in_subgraphs(self.skeleton, self.keep, self.resolve)
        bypassed = {v: self.resolve(v) for v in wanted if self.resolve(v) != v}
        draft = dataclasses.replace(self, bypass=bypassed, replace=simple)
        if draft.sizes:
            sizes = draft.dynamic_sizes.in_effect()
            draft = dataclasses.replace(draft, sizes=sizes)
        differs = draft._returns_inner_values() or draft._stored
        if self.outputs is Outputs.ORIGINAL and not differs:
            return dataclasses.replace(draft, outputs=Outputs.SINKS)
        return draft

    @cached_property
    def subgraph_nodes(self) -> tuple[str, ...]:
        """The nodes inside kept operators that have an effect, in program order."""
        return subgraph_nodes(self.skeleton, self.keep, self.resolve)

    def _returns_inner_values(self) -> bool:
        """Return whether an output of the input program is still computed and read."""
        producers = {self.skeleton.producer(v) for v in self.skeleton.outputs}
        return any(p in self.keep and self.used_by_kept(p) for p in producers)

    @cached_property
    def _stored(self) -> dict[str, str]:
        """The remaining buffer mutations of the input program: value -> buffer.

        A buffer that no kept operator reads is left out, because writing it has no
        effect.
        """
        present = self.keep.union(self.feeds)
        return {
            value: buffer
            for value, buffer in self.skeleton.writes
            if buffer in self.feeds and {value, self.skeleton.producer(value)} & present
        }

    @property
    def writes(self) -> dict[str, str]:
        """Map values to the buffers that they are written into after a call."""
        return self._stored if self.outputs is Outputs.ORIGINAL else {}

    def _is_dead(self, name: str) -> bool:
        """Return whether an operator has no effect, no user and no value to return."""
        if self.skeleton.node(name).impure or self.skeleton.values(name):
            return False
        return not self.used_by_kept(name)

    def resolve(self, value: str) -> str:
        """Follow bypasses and merges to the value that the users of ``value`` get."""
        while value in self.bypass:
            value = self.bypass[value]
        return value

    def target(self, name: str) -> str:
        """Return the target of a kept operator: a simple one if it was replaced."""
        node = self.skeleton.node(name)
        if name in self.replace and node.value is not None:
            return simple_operator_for(node.value.dtype)
        return node.target

    def is_replaceable(self, name: str) -> bool:
        """Return whether a simple operator can replace a kept one."""
        has_value = self.skeleton.node(name).value is not None
        return has_value and is_expensive(self.target(name))

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """The kept operators in program order."""
        return tuple(self.skeleton.in_order(self.keep))

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        """The values that kept operators need and that none of them computes.

        Sizes are left out, because they are rebuilt from the tensors that carry them.
        """
        needed: set[str] = set()
        for name in self.operators:
            for operand in self.operands(name):
                is_self = operand == name  # of a replaced operator, fed from outside
                if is_self or self.skeleton.producer(operand) not in self.keep:
                    needed.add(operand)
        fed = (v for v in needed if self.skeleton.node(v).role not in _CARRIED)
        return tuple(self.skeleton.in_order(fed))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The feeds that are not weights: program inputs and cut values."""
        weights = {Role.PARAMETER, Role.BUFFER, Role.CONSTANT}
        return tuple(v for v in self.feeds if self.skeleton.node(v).role not in weights)

    @cached_property
    def dynamic_sizes(self) -> DynamicSizes:
        """The dynamic sizes, and how they were specialized."""
        operands = (v for name in self.operators for v in self.operands(name))
        return find_dynamic_sizes(self.skeleton, self.inputs, operands, self.sizes)

    def operands(self, name: str) -> list[str]:
        """Return the values that a kept operator reads, with all edits applied.

        A replaced operator may read its own value from the input program's eager run.
        """
        if name not in self.replace:
            return [self.resolve(v) for v in self.skeleton.node(name).operands]
        operand = self.replace[name]
        return [operand if operand == name else self.resolve(operand)]

    def producers(self, name: str) -> set[str]:
        """Return the kept operators that a kept operator reads, also through sizes."""
        # Written by hand, because it takes a quarter of the search's own time: 12 to 14
        # ms for 5,000 operators, where walks.reached takes 15 to 22
        # (benchmarks/walks.py).
        producers: set[str] = set()
        seen: set[str] = set()
        stack = [value for value in self.operands(name) if value != name]
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            producer = self.skeleton.producer(value)
            if producer in self.keep:
                producers.add(producer)
            elif self.skeleton.node(producer).role is Role.SIZE:
                stack += self.skeleton.node(producer).operands
        return producers

    @cached_property
    def _used(self) -> frozenset[str]:
        return frozenset().union(*(self.producers(name) for name in self.keep))

    def used_by_kept(self, operator: str) -> bool:
        """Return whether a kept operator reads a value of ``operator``."""
        return operator in self._used

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """The kept operators whose values are returned because nobody uses them."""
        return tuple(n for n in self.operators if not self.used_by_kept(n))

    @cached_property
    def cost(self) -> tuple[int, ...]:
        """The cost, compared lexicographically; every accepted step must lower it.

        It consists of the numbers of operators, expensive operators, inputs and open
        sizes; for a printed program, of operators, elements and complexity. Replacing
        an operator makes one expensive operator fewer, so replacements come to an end.
        """
        if self.listing is not None:
            return self.listing.cost
        nodes = (self.skeleton.node(n) for n in self.keep)
        operators = sum(1 if n.name in self.replace else n.operators for n in nodes)
        expensive = sum(is_expensive(self.target(n)) for n in self.keep)
        bypassed = count_bypassed(
            self.skeleton, self.keep, self.bypass.keys(), self.resolve
        )
        openness = self.dynamic_sizes.openness()
        return operators - bypassed, expensive, len(self.inputs), openness

    @cached_property
    def digest(self) -> str:
        text = json.dumps([self.skeleton.digest, self.to_json()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "keep": list(self.operators),
            "bypass": dict(sorted(self.bypass.items())),
            "outputs": self.outputs.value,
            "replace": dict(sorted(self.replace.items())),
            **({"sizes": dict(sorted(self.sizes.items()))} if self.sizes else {}),
            **({"listing": self.listing.to_json()} if self.listing else {}),
        }

    @classmethod
    def from_json(cls, skeleton: Skeleton, data: Mapping[str, Any]) -> Self:
        return cls(
            skeleton,
            frozenset(data["keep"]),
            dict(data["bypass"]),
            Outputs(data["outputs"]),
            dict(data["replace"]),
            {size: Specialisation(how) for size, how in data.get("sizes", {}).items()},
            PrintedProgram.from_json(data["listing"]) if "listing" in data else None,
        )


_CARRIED = frozenset({Role.SIZE, Role.SUBGRAPH})


# Simple operators, and the one that replaces an expensive operator.
#
# A simple operator is easy to understand, and a compiler prints it as one expression,
# a copy or nothing at all. All others are expensive: convolutions, matrix products,
# attention, reductions, sorting, indexing, random numbers, and custom operators.

_ARITHMETIC = (
    *("abs", "neg", "relu", "add", "sub", "rsub", "mul", "div", "reciprocal"),
    *("square", "sqrt", "rsqrt", "pow", "exp", "log", "sin", "cos", "tanh", "sigmoid"),
    *("clamp", "maximum", "minimum", "where", "eq", "ne", "lt", "le", "gt", "ge"),
    *("logical_not", "logical_and", "logical_or", "bitwise_not", "remainder"),
)
_VIEWS_AND_COPIES = (
    *("alias", "clone", "contiguous", "copy", "detach", "expand", "flatten"),
    *("permute", "reshape", "select", "slice", "squeeze", "t", "to", "_to_copy"),
    *("transpose", "unflatten", "unsqueeze", "_unsafe_view", "view"),
)
_FACTORIES = (
    *("arange", "empty", "full", "full_like", "ones", "ones_like"),
    *("scalar_tensor", "zeros", "zeros_like"),
)
_SIMPLE = frozenset([*_ARITHMETIC, *_VIEWS_AND_COPIES, *_FACTORIES])


def is_expensive(target: str) -> bool:
    """Return whether an operator is worth replacing.

    >>> [is_expensive(f"aten.{name}") for name in ("mm.default", "add.Tensor", "relu_")]
    [True, False, False]
    """
    return _aten_name(target) not in _SIMPLE


def is_view_or_copy(target: str) -> bool:
    """Return whether an operator only views or copies its argument.

    >>> [is_view_or_copy(f"aten.{name}.default") for name in ("t", "relu")]
    [True, False]
    """
    return _aten_name(target) in _VIEWS_AND_COPIES


def _aten_name(target: str) -> str:
    found = re.fullmatch(r"aten\.(\w+?)_?(\.\w+)?", target)
    return found[1] if found else ""


def simple_operator_for(dtype: str) -> str:
    """Return the simple operator for values of a dtype.

    It is ``abs`` where the dtype has it, because ``abs`` has a kernel, which a copy may
    not have, and keeps sizes, indices and probabilities valid.
    """
    if dtype == "bool":
        return "aten.logical_not.default"
    return f"aten.{'neg' if dtype.startswith('complex') else 'abs'}.default"


# The dynamic sizes of a candidate, and how they can still be specialized.
#
# The symbols of a candidate are those in the shapes of its inputs, and those that its
# operators read as numbers. A size such as ``2*s0 + 1`` of an input is dynamic as
# well: it may become a dim of its own, which does not need ``s0``.


@dataclass(frozen=True)
class DynamicSizes:
    """The dynamic sizes of a candidate, and the specializations so far.

    Attributes:
        known: what the program declares about each size, by its expression in shapes.
        of_inputs: the sizes in the shapes of inputs, each once.
        read: the sizes of the tensors that carry the numbers which operators read.
        specialised: the specializations so far.
    """

    known: Mapping[str, FreeSize]
    of_inputs: tuple[str, ...]
    read: tuple[str, ...]
    specialised: Mapping[str, Specialisation]

    def specialisations(self) -> dict[str, list[Specialisation]]:
        """List the open sizes with their possible specializations, the strictest first.

        A size that differs between the passing and the failing run stays dynamic.
        """
        modes: dict[str, list[Specialisation]] = {}
        for symbol in sorted(self._symbols() - self.specialised.keys()):
            agrees = self.known[symbol].passing == self.known[symbol].failing
            modes[symbol] = [Specialisation.STATIC if agrees else Specialisation.NARROW]
        for size in self._derived():
            known = self.known[size]
            if size not in self.specialised and known.passing != known.failing:
                modes[size] = [Specialisation.PLAIN]
        return modes

    def in_effect(self) -> dict[str, Specialisation]:
        """Return the specializations of sizes that still exist."""
        present = self._symbols() | set(self._derived())
        return {size: how for size, how in self.specialised.items() if size in present}

    def openness(self) -> int:
        """Return the openness of all sizes; each specialization lowers it."""
        sizes = [*self._symbols(), *self._derived()]
        return sum(_OPEN[self.specialised.get(size)] for size in sizes)

    def _symbols(self) -> set[str]:
        """Collect the symbols, including specialized ones."""
        computed = (
            s
            for s in self.of_inputs
            if self.specialised.get(s) is not Specialisation.PLAIN
        )
        sizes = (*computed, *self.read)
        return {symbol for size in sizes for symbol in self.known[size].symbols}

    def _derived(self) -> list[str]:
        """List the sizes of inputs that are computed from open symbols."""
        return [
            size
            for size in self.of_inputs
            if self.known[size].symbols != (size,)
            and any(
                self.specialised.get(symbol) is not Specialisation.STATIC
                for symbol in self.known[size].symbols
            )
        ]


_OPEN: Mapping[Specialisation | None, int] = {
    None: 2,
    Specialisation.NARROW: 1,
    Specialisation.PLAIN: 1,
    Specialisation.STATIC: 0,
}


def find_dynamic_sizes(
    skeleton: Skeleton,
    inputs: Iterable[str],
    operands: Iterable[str],
    specialised: Mapping[str, Specialisation],
) -> DynamicSizes:
    """Find the dynamic sizes in the inputs of a program and in its operands.

    Args:
        operands: the operands of all operators.
        specialised: the specializations so far.
    """
    read = _carriers(skeleton, operands) if skeleton.sizes else ()
    return DynamicSizes(
        skeleton.sizes,
        _sizes_of(skeleton, inputs),
        _sizes_of(skeleton, read),
        specialised,
    )


def _sizes_of(skeleton: Skeleton, values: Iterable[str]) -> tuple[str, ...]:
    """List the dynamic sizes in the shapes of values, each once."""
    nodes = (skeleton.node(name) for name in values)
    shapes = (node.value.shape for node in nodes if node.value is not None)
    sizes = dict.fromkeys(size for shape in shapes for size in shape)
    return tuple(size for size in sizes if size in skeleton.sizes)


def _carriers(skeleton: Skeleton, operands: Iterable[str]) -> list[str]:
    """List the tensors that carry the numbers among operands."""

    def above(name: str) -> tuple[str, ...]:
        node = skeleton.node(name)
        return node.operands if node.role is Role.SIZE else ()

    return [value for name in reached(operands, above) for value in above(name)]

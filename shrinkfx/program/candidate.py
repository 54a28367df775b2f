"""A candidate: the original program plus what is kept of it and changed in it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.dynamic_sizes import DynamicSizes, find_dynamic_sizes
from shrinkfx.program.edits import Specialisation
from shrinkfx.program.listing.listing import Listing
from shrinkfx.program.simple_operators import is_expensive, simple_operator_for
from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.program.subgraphs import (
    count_bypassed,
    subgraph_nodes,
    values_in_subgraphs,
)


class Outputs(StrEnum):
    """Which values a candidate returns.

    Returning an inner value changes how the compiler fuses, and can hide the
    bug; so there is more than one way.
    """

    SINKS = "sinks"
    """Values that no kept operator uses; nothing goes from call to call."""
    ORIGINAL = "original"
    """The sinks, and what the original returned and is still there; what it wrote
    into its buffers is written."""


@dataclass(frozen=True)
class Candidate:
    """A program as data, in normal form: one meaning, one digest.

    Invariant: ``keep`` is not empty; ``bypass`` goes from a wanted value that is
    neither computed nor fed to the one that its users really get; ``replace`` from
    a kept operator to the value that the plain one in its place really reads, or
    to itself where that is its own value from outside; ``outputs`` is ORIGINAL
    only where that returns more than the sinks, or writes into a buffer; ``sizes``
    settles only what the candidate has of the program's free sizes; ``listing`` is in
    its own normal form, and ``keep`` has only what it has operators of.

    Attributes:
        listing: what has become of it as statements, or None while it is what the
            other fields say. From then on the listing is the program, and they say
            what it was made of.
    """

    skeleton: Skeleton = field(repr=False, compare=False)
    keep: frozenset[str]
    bypass: Mapping[str, str]
    outputs: Outputs
    replace: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Specialisation] = field(default_factory=dict)
    listing: Listing | None = None

    @classmethod
    def whole(cls, skeleton: Skeleton, outputs: Outputs = Outputs.ORIGINAL) -> Self:
        return cls(skeleton, frozenset(skeleton.operators), {}, outputs).normalised()

    def returning(self, outputs: Outputs) -> Self:
        """Choose another way to pick the returned values; a listing says which."""
        if self.listing is not None:
            return self
        return dataclasses.replace(self, outputs=outputs).normalised()

    def listed(self, listing: Listing) -> Self:
        """Take what has become of it as statements for the program.

        Raises:
            InvalidEdit: nothing would be left.
        """
        listing = listing.normalised()
        names = {statement.name for _, statement in listing.operators()}
        # A listing may call what is no operator of its own: a script object's method.
        keep = (self.keep & names) or self.keep
        return dataclasses.replace(self, keep=keep, listing=listing)

    def normalised(self) -> Self:
        """Forget what has no effect: dead sizes, and edits that nobody notices."""
        live = frozenset(n for n in self.keep if not self._is_dead(n))
        if not live:
            raise InvalidEdit("nothing would be left")
        if live != self.keep:
            return dataclasses.replace(self, keep=live).normalised()
        plain = {n: self.operands(n)[0] for n in self.operators if n in self.replace}
        as_it_was = [n for n in self.operators if n not in plain]
        wanted = {v for n in as_it_was for v in self.skeleton.node(n).operands}
        wanted |= values_in_subgraphs(self.skeleton, self.keep, self.resolve)
        taken = {v: self.resolve(v) for v in wanted if self.resolve(v) != v}
        draft = dataclasses.replace(self, bypass=taken, replace=plain)
        if draft.sizes:
            in_effect = draft.dynamic_sizes.in_effect()
            draft = dataclasses.replace(draft, sizes=in_effect)
        differs = draft._returns_inner_values() or draft._stored
        if self.outputs is Outputs.ORIGINAL and not differs:
            return dataclasses.replace(draft, outputs=Outputs.SINKS)
        return draft

    @cached_property
    def subgraph_nodes(self) -> tuple[str, ...]:
        """The nodes inside of kept operators that have an effect, in program order."""
        return subgraph_nodes(self.skeleton, self.keep, self.resolve)

    def _returns_inner_values(self) -> bool:
        """Tell whether an original output is still there and used inside as well."""
        producers = {self.skeleton.producer(v) for v in self.skeleton.outputs}
        return any(p in self.keep and self.used_by_kept(p) for p in producers)

    @cached_property
    def _stored(self) -> dict[str, str]:
        """Map what is there of the original's writes: values to buffers.

        A buffer that no kept operator reads is none: what is written into it has no
        effect.
        """
        there = self.keep.union(self.feeds)
        return {
            value: buffer
            for value, buffer in self.skeleton.writes
            if buffer in self.feeds and {value, self.skeleton.producer(value)} & there
        }

    @property
    def writes(self) -> dict[str, str]:
        """Map values to the buffers that they are written into after a call."""
        return self._stored if self.outputs is Outputs.ORIGINAL else {}

    def _is_dead(self, name: str) -> bool:
        """Tell whether an operator has no effect, no user and nothing to return."""
        if self.skeleton.node(name).impure or self.skeleton.values(name):
            return False
        return not self.used_by_kept(name)

    def resolve(self, value: str) -> str:
        """Follow bypasses and merges to the value that the users of one get."""
        while value in self.bypass:
            value = self.bypass[value]
        return value

    def target(self, name: str) -> str:
        """Name what a kept operator calls: a simple one if it was replaced."""
        node = self.skeleton.node(name)
        if name in self.replace and node.value is not None:
            return simple_operator_for(node.value.dtype)
        return node.target

    def is_replaceable(self, name: str) -> bool:
        """Tell whether a simple operator could stand in a kept one's place."""
        has_value = self.skeleton.node(name).value is not None
        return has_value and is_expensive(self.target(name))

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """The kept operators in program order."""
        return tuple(self.skeleton.in_order(self.keep))

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        """The values that kept operators need and that none of them computes.

        Sizes are left out: they are rebuilt from the tensors that carry them.
        """
        needed: set[str] = set()
        for name in self.operators:
            for operand in self.operands(name):
                own = operand == name  # a replaced operator's, from outside
                if own or self.skeleton.producer(operand) not in self.keep:
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
        """The sizes that are not fixed, and what has been made of them."""
        operands = (v for name in self.operators for v in self.operands(name))
        return find_dynamic_sizes(self.skeleton, self.inputs, operands, self.sizes)

    def operands(self, name: str) -> list[str]:
        """The values that a kept operator really gets: all edits followed.

        A replaced operator may get its own, as it was in the original.
        """
        if name not in self.replace:
            return [self.resolve(v) for v in self.skeleton.node(name).operands]
        operand = self.replace[name]
        return [operand if operand == name else self.resolve(operand)]

    def producers(self, name: str) -> set[str]:
        """The kept operators that a kept operator reads, through sizes as well."""
        # A quarter of a search's own time, so by hand: for 5,000 operators 12 to 14 ms,
        # where walks.reached takes 15 to 22 (benchmarks/walks.py).
        found: set[str] = set()
        seen: set[str] = set()
        stack = [value for value in self.operands(name) if value != name]
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            producer = self.skeleton.producer(value)
            if producer in self.keep:
                found.add(producer)
            elif self.skeleton.node(producer).role is Role.SIZE:
                stack += self.skeleton.node(producer).operands
        return found

    @cached_property
    def _used(self) -> frozenset[str]:
        return frozenset().union(*(self.producers(name) for name in self.keep))

    def used_by_kept(self, operator: str) -> bool:
        """Tell whether a kept operator reads any value of ``operator``."""
        return operator in self._used

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """The kept operators whose values are returned because nobody uses them."""
        return tuple(n for n in self.operators if not self.used_by_kept(n))

    @cached_property
    def cost(self) -> tuple[int, ...]:
        """What an accepted step must strictly lower: operators, expensive ones, inputs,
        and what is open of sizes; of a listing operators, elements and plainness.

        Replacing makes one dear operator fewer, so nothing is replaced for ever.
        """
        if self.listing is not None:
            return self.listing.cost
        nodes = (self.skeleton.node(n) for n in self.keep)
        operators = sum(1 if n.name in self.replace else n.operators for n in nodes)
        dear = sum(is_expensive(self.target(n)) for n in self.keep)
        bypassed = count_bypassed(
            self.skeleton, self.keep, self.bypass.keys(), self.resolve
        )
        openness = self.dynamic_sizes.openness()
        return operators - bypassed, dear, len(self.inputs), openness

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
            Listing.from_json(data["listing"]) if "listing" in data else None,
        )


_CARRIED = frozenset({Role.SIZE, Role.SUBGRAPH})

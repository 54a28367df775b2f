"""A candidate: the original program plus what is kept of it and changed in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Bypass, Drop, Edit
from shrinkfx.program.fit import require_fit
from shrinkfx.program.skeleton import Role, Skeleton


class Outputs(StrEnum):
    """Which values a candidate returns.

    Returning an inner value changes how the compiler fuses, and can hide the
    bug; so there is more than one way.
    """

    SINKS = "sinks"
    """Values that no kept operator uses."""
    ORIGINAL = "original"
    """The sinks, and what the original returned and is still there."""


@dataclass(frozen=True)
class Candidate:
    """A program as data, in normal form: one meaning, one digest.

    Invariant: ``keep`` is not empty; each entry of ``bypass`` goes from a removed
    operator to the value that its users really get; ``outputs`` is ORIGINAL only
    where that returns more than the sinks.
    """

    skeleton: Skeleton = field(repr=False, compare=False)
    keep: frozenset[str]
    bypass: Mapping[str, str]
    outputs: Outputs

    @classmethod
    def whole(cls, skeleton: Skeleton, outputs: Outputs = Outputs.ORIGINAL) -> Self:
        keep = set(skeleton.operators)
        return cls(skeleton, frozenset(keep), {}, outputs)._normal(keep, {}, outputs)

    def edit(self, edits: Iterable[Edit]) -> Self:
        """Apply ``edits`` as one; their order has no meaning.

        Of several bypasses of one operator the value that comes first in the
        program is taken: it leaves the most behind.

        Raises:
            InvalidEdit: an edit names what is not there, hands on a value of
                another type, or nothing would be left.
        """
        keep = set(self.keep)
        handed: dict[str, str] = {}
        for edit in edits:
            require_fit(self, edit)
            match edit:
                case Drop(nodes):
                    keep -= nodes
                case Bypass(node, operand):
                    keep.discard(node)
                    rival = handed.get(node, operand)
                    handed[node] = min(rival, operand, key=self.skeleton.order)
        return self._normal(keep, {**self.bypass, **handed}, self.outputs)

    def returning(self, outputs: Outputs) -> Self:
        """Choose another way to pick the returned values."""
        return self._normal(set(self.keep), self.bypass, outputs)

    def _normal(
        self, keep: set[str], bypass: Mapping[str, str], outputs: Outputs
    ) -> Self:
        """Forget what has no effect: dead sizes and bypasses that nobody takes."""
        draft = replace(self, keep=frozenset(keep), bypass=bypass, outputs=outputs)
        live = frozenset(n for n in keep if not draft._is_dead(n))
        if not live:
            raise InvalidEdit("nothing would be left")
        draft = replace(draft, keep=live)
        if live != frozenset(keep):
            return draft._normal(set(live), bypass, outputs)
        taken: dict[str, str] = {}
        for name in draft.operators:
            for operand in self.skeleton.node(name).operands:
                producer = self.skeleton.producer(operand)
                if draft.resolve(operand) != operand:
                    taken[producer] = draft.resolve(operand)
        draft = replace(draft, bypass=taken)
        if outputs is Outputs.ORIGINAL and not draft._returns_inner_values():
            return replace(draft, outputs=Outputs.SINKS)
        return draft

    def _returns_inner_values(self) -> bool:
        """Tell whether an original output is still there and used inside as well."""
        producers = {self.skeleton.producer(v) for v in self.skeleton.outputs}
        return any(p in self.keep and self.used_by_kept(p) for p in producers)

    def _is_dead(self, name: str) -> bool:
        """Tell whether an operator has no effect, no user and nothing to return."""
        if self.skeleton.node(name).impure or self.skeleton.values(name):
            return False
        return not self.used_by_kept(name)

    def resolve(self, value: str) -> str:
        """Follow bypasses from ``value`` to the value that its users get."""
        seen = self.skeleton.node(value).value
        while True:
            producer = self.skeleton.producer(value)
            if producer in self.keep or producer not in self.bypass:
                return value
            handed = self.bypass[producer]
            if self.skeleton.node(handed).value != seen:
                return value
            value = handed

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
                if self.skeleton.producer(operand) not in self.keep:
                    needed.add(operand)
        fed = (v for v in needed if self.skeleton.node(v).role not in _CARRIED)
        return tuple(self.skeleton.in_order(fed))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The feeds that are not weights: program inputs and cut values."""
        weights = {Role.PARAMETER, Role.BUFFER, Role.CONSTANT}
        return tuple(v for v in self.feeds if self.skeleton.node(v).role not in weights)

    def operands(self, name: str) -> list[str]:
        """The values that a kept operator really gets: bypasses followed."""
        return [self.resolve(v) for v in self.skeleton.node(name).operands]

    def producers(self, name: str) -> set[str]:
        """The kept operators that a kept operator reads, through sizes as well."""
        found: set[str] = set()
        seen: set[str] = set()
        stack = self.operands(name)
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
    def cost(self) -> tuple[int, int]:
        """What an accepted step must strictly lower: operators, then inputs."""
        operators = sum(self.skeleton.node(n).operators for n in self.keep)
        return operators, len(self.inputs)

    @cached_property
    def digest(self) -> str:
        text = json.dumps([self.skeleton.digest, self.to_json()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "keep": list(self.operators),
            "bypass": dict(sorted(self.bypass.items())),
            "outputs": self.outputs.value,
        }

    @classmethod
    def from_json(cls, skeleton: Skeleton, data: Mapping[str, Any]) -> Self:
        keep, outputs = frozenset(data["keep"]), Outputs(data["outputs"])
        return cls(skeleton, keep, dict(data["bypass"]), outputs)


_CARRIED = frozenset({Role.SIZE, Role.SUBGRAPH})

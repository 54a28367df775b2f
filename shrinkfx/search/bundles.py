"""Remove items in bundles until each remaining item was rejected alone.

This is the part of delta debugging that does not depend on what the items are: edits to
a program, or elements of any other set. The probabilities choose a bundle,
and a query tells whether it may go.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Self

from shrinkfx.search.odds import Item, Probabilities


class Bundles(Generic[Item]):
    """The sequence of bundles of some items, as answers come in.

    Args:
        probabilities: the probabilities; they learn from the answers.
    """

    def __init__(
        self, items: Sequence[Item], probabilities: Probabilities[Item]
    ) -> None:
        self._items, self._probabilities = items, probabilities
        self._stuck: frozenset[Item] = frozenset()  # rejected alone in this round

    def copy(self, probabilities: Probabilities[Item]) -> Self:
        """Copy the state, to use other probabilities."""
        copied = copy.copy(self)
        copied._probabilities = probabilities
        return copied

    def next(self) -> list[Item]:
        """Choose the next bundle; empty once each item was rejected alone."""
        return self._probabilities.choose_bundle(
            [i for i in self._items if i not in self._stuck]
        )

    def record_accepted(
        self, bundle: Sequence[Item], remaining: Callable[[Sequence[Item]], list[Item]]
    ) -> None:
        """Record that a bundle was removed, and go on with the items that remain.

        Args:
            remaining: returns the items, of those given, that can still be removed.
        """
        self._probabilities.record_accepted(bundle)
        self._items = remaining(self._items)

    def record_rejected(self, bundle: Sequence[Item]) -> None:
        self._probabilities.record_rejected(bundle)
        if len(bundle) == 1:
            self._stuck |= {*bundle}


def in_bundles(
    items: Sequence[Item],
    probabilities: Probabilities[Item],
    accepts: Callable[[list[Item]], bool],
    remaining: Callable[[Sequence[Item]], list[Item]],
) -> Iterator[list[Item]]:
    """Remove items in bundles until each remaining item was rejected alone.

    Args:
        accepts: queries whether a bundle may go, and removes it if so.
        remaining: returns the items, of those given, that can still be removed.

    Yields:
        Each bundle that was removed.
    """
    bundles = Bundles(items, probabilities)
    while bundle := bundles.next():
        if accepts(bundle):
            yield bundle
            bundles.record_accepted(bundle, remaining)
        else:
            bundles.record_rejected(bundle)


class Subset(Generic[Item]):
    """A subset with a certain property, reduced until it is 1-minimal.

    Attributes:
        kept: the smallest subset so far with the property, in the order of the set.
    """

    def __init__(
        self,
        items: Sequence[Item],
        probabilities: Probabilities[Item],
        holds: Callable[[list[Item]], bool],
    ) -> None:
        """Begin with all items: these have the property, and the empty set has not.

        Args:
            holds: tests a subset for the property; it is called once for each subset.
        """
        self.kept = list(items)
        self._probabilities, self._holds = probabilities, holds
        self._known: dict[frozenset[Item], bool] = {frozenset(): False}

    def run(self) -> list[Item]:
        """Reduce the subset until no single item can be removed, and return it."""
        before: list[Item] = []
        while self.kept != before:
            before = self.kept
            self._probabilities.start_round(len(before))
            for _ in in_bundles(before, self._probabilities, self._accepts, self._left):
                pass
        return self.kept

    def _accepts(self, bundle: list[Item]) -> bool:
        rest = [item for item in self.kept if item not in bundle]
        part = frozenset(rest)
        if part not in self._known:
            self._known[part] = self._holds(rest)
        if self._known[part]:
            self.kept = rest
        return self._known[part]

    def _left(self, items: Sequence[Item]) -> list[Item]:
        return [item for item in items if item in self.kept]

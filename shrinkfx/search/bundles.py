"""Take away what is not needed, of edits to a program or of any other set.

The delta debugging that a reducer and whoever else reduces a set have in common: the
odds say what goes together, an answer says whether it may.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Self

from shrinkfx.search.odds import Beliefs, Item


class Bundles(Generic[Item]):
    """The bundles of some items, one after the other, as answers come.

    Args:
        odds: are told the answers.
    """

    def __init__(self, items: Sequence[Item], odds: Beliefs[Item]) -> None:
        self._items, self._odds = items, odds
        self._stuck: frozenset[Item] = frozenset()  # rejected alone; for another round

    def copy(self, odds: Beliefs[Item]) -> Self:
        """Copy them, to go by other odds."""
        twin = copy.copy(self)
        twin._odds = odds
        return twin

    def next(self) -> list[Item]:
        """Choose what is asked about next; nothing when each was rejected alone."""
        return self._odds.bundle([i for i in self._items if i not in self._stuck])

    def accepted(
        self, bundle: Sequence[Item], left: Callable[[Sequence[Item]], list[Item]]
    ) -> None:
        """Go on with what is still to go of the items, after a bundle that went."""
        self._odds.accepted(bundle)
        self._items = left(self._items)

    def rejected(self, bundle: Sequence[Item]) -> None:
        self._odds.rejected(bundle)
        if len(bundle) == 1:
            self._stuck |= {*bundle}


def in_bundles(
    items: Sequence[Item],
    odds: Beliefs[Item],
    accepts: Callable[[list[Item]], bool],
    left: Callable[[Sequence[Item]], list[Item]],
) -> Iterator[list[Item]]:
    """Take away what can go, in bundles, until each item was rejected alone.

    Args:
        accepts: asks whether a bundle may go, and has it gone if so.
        left: what is still to go of some items, after one that went.

    Yields:
        Each bundle that went.
    """
    bundles = Bundles(items, odds)
    while bundle := bundles.next():
        if accepts(bundle):
            yield bundle
            bundles.accepted(bundle, left)
        else:
            bundles.rejected(bundle)


class Subset(Generic[Item]):
    """A part of a set of which something holds, made smaller until it is 1-minimal.

    Attributes:
        kept: the smallest part so far of which it holds, in the order of the set.
    """

    def __init__(
        self,
        items: Sequence[Item],
        odds: Beliefs[Item],
        holds: Callable[[list[Item]], bool],
    ) -> None:
        """Begin with all items: it holds of those, and not of none.

        Args:
            holds: is asked once about each part.
        """
        self.kept = list(items)
        self._odds, self._holds = odds, holds
        self._known: dict[frozenset[Item], bool] = {frozenset(): False}

    def run(self) -> list[Item]:
        """Make it smaller until it does not hold without any one item."""
        before: list[Item] = []
        while self.kept != before:
            before = self.kept
            self._odds.begin(len(before))
            for _ in in_bundles(before, self._odds, self._accepts, self._left):
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

"""Items to change together: bundles by probability, or halves."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Self, TypeVar

from shrinkfx.program.apply import remaining_edit
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop, Edit, names_of

# The probability that the failure needs each item, which decides the next bundle.
#
# This is probabilistic delta debugging (Wang, Shen, Chen, Xiong and Zhang,
# "Probabilistic Delta Debugging", ESEC/FSE 2021), for edits of every kind. ``p`` of
# an operator, an input or a size is the probability that the failure needs it; each
# kind of edit has its own ``p``. Any other set works in the same way: each item is
# about some keys, and each key has a ``p``.
#
#     prior       p = min(1/4, 4/n) if a round begins with n operators; for a suspect at
#                 least 0.3 x weight; and, because one of the m remaining operators is
#                 needed, at least 1/m
#     bundle      the items of least p, at least one, while the product of (1 - p) is at
#                 least 1/e
#     rejected    p = p / (1 - min(1/e, product)) for each key in the bundle
#     accepted    p = 0.7 p for all keys that were never rejected. If part of a rejected
#                 bundle is removed, the rest is the cause of that rejection: if d, the
#                 sum of its -ln(1 - p), is below 1, p = 1 - (1 - p)^(1/d) makes it 1
#
# The paper takes the bundle of the greatest expected gain, size x product. If all p
# are equal, that bundle has the same size, -1/ln(1 - p); then each rejection
# multiplies p by 1/(1 - 1/e) = 1.58, so p only counts rejections. That is counter-
# based delta debugging (Zhang, Xu, Tian, Cheng and Sun, "Toward a Better
# Understanding of Probabilistic Delta Debugging", ICSE 2025, arXiv:2408.04735).
# Rejected items come last, in ever smaller bundles, and alone in the end.

_GUESS = 4
"""Prior: the number of operators that a failure needs, whatever the program's size."""

_MOST = 0.25
"""Prior: the highest p of an operator that is not a suspect."""

_BLAME = 0.3
"""Prior: p of the surest suspect, because most of a failing kernel is not the cause."""

_LUCK = 0.7
"""Factor on p of the keys that were never rejected, after a bundle is accepted."""

_DOUBT = 1.0
"""Target of a bundle: -ln of the probability that it is accepted, prod(1 - p)."""

_SURE = 0.99
"""The highest p in a logarithm, so that -ln(1 - p) is finite."""

Key = tuple[object, str]
"""The subject of a p: a kind of item, and a name."""

Item = TypeVar("Item")


class Probabilities(ABC, Generic[Item]):
    """The p of each key that the items are about.

    Args:
        suspects: how sure it is that a name is needed, by name.
        count: the number of items.
        guess: how many of them are needed, whatever their number.
    """

    def __init__(self, suspects: Mapping[str, float], count: int, guess: float) -> None:
        self._suspects, self._guess = suspects, guess
        self._raised: dict[Key, float] = {}
        self._least = 0.0  # lower bound of p: at least one remaining key is needed
        self.start_round(count)

    @abstractmethod
    def about(self, item: Item) -> Iterable[Key]:
        """List the keys of an item, in a deterministic order."""

    def start_round(self, count: int) -> None:
        """Start a round with ``count`` items: reset the prior and the rejections."""
        self._fresh = min(_MOST, self._guess / max(1, count))
        self._rejected: list[list[Key]] = []

    def copy(self) -> Self:
        """Copy the state that answers change."""
        copied = copy.copy(self)
        copied._raised, copied._rejected = dict(self._raised), list(self._rejected)
        return copied

    def acceptance_probability(self, items: Sequence[Item]) -> float:
        """Return the probability that the failure needs none of the items' keys."""
        return math.exp(-self._sum_negative_logs(map(self._p, self._keys(items))))

    def choose_bundle(self, items: Sequence[Item]) -> list[Item]:
        """Choose the next bundle; empty if there are no items."""
        self._least = 1 / max(1, len(self._keys(items)))
        ps = [[self._p(key) for key in self._keys([item])] for item in items]
        order = sorted(range(len(items)), key=lambda i: max(ps[i]))
        chosen: list[Item] = []
        total = 0.0
        for i in order:
            total += self._sum_negative_logs(ps[i])
            if chosen and total > _DOUBT:
                break
            chosen.append(items[i])
        return chosen

    def record_accepted(self, bundle: Sequence[Item]) -> None:
        """Lower p of the keys that were never rejected.

        If the bundle was part of a rejected one, raise p of that one's remaining keys.
        """
        self._fresh *= _LUCK
        accepted = set(self._keys(bundle))
        rest = [[k for k in keys if k not in accepted] for keys in self._rejected]
        for keys, before in zip(rest, self._rejected, strict=True):
            if len(keys) < len(before):
                self._blame(keys)
        self._rejected = [keys for keys in rest if len(keys) > 1]

    def record_rejected(self, bundle: Sequence[Item]) -> None:
        """Raise p of each key of the bundle."""
        keys = self._keys(bundle)
        ps = {key: max(self._p(key), self._least) for key in keys}
        chance = math.exp(-max(_DOUBT, self._sum_negative_logs(ps.values())))
        self._raised.update({key: p / (1 - chance) for key, p in ps.items()})
        self._rejected.append(keys)

    def _blame(self, keys: list[Key]) -> None:
        """Raise p of the keys until the sum of their -ln(1 - p) is ``_DOUBT``."""
        total = self._sum_negative_logs(map(self._p, keys))
        if keys and total < _DOUBT:
            for key in keys:
                share = self._sum_negative_logs([self._p(key)]) * _DOUBT / total
                self._raised[key] = -math.expm1(-share)

    def _p(self, key: Key) -> float:
        blame = _BLAME * self._suspects.get(key[1], 0.0)
        return max(self._raised.get(key, self._fresh), blame)

    def _sum_negative_logs(self, ps: Iterable[float]) -> float:
        """Sum -ln(1 - p) over the probabilities."""
        return -sum(math.log1p(-min(max(p, self._least), _SURE)) for p in ps)

    def _keys(self, items: Iterable[Item]) -> list[Key]:
        return list(dict.fromkeys(key for item in items for key in self.about(item)))


class EditProbabilities(Probabilities[Edit]):
    """The p of operators, inputs and sizes, separately for each kind of edit.

    They are separate because an operator that cannot be dropped may still be bypassed.
    """

    def __init__(self, suspects: Mapping[str, float], operators: int) -> None:
        super().__init__(suspects, operators, _GUESS)

    def about(self, item: Edit) -> Iterable[Key]:
        """List the names that an edit changes, with the kind of the edit."""
        return ((type(item), name) for name in sorted(names_of(item)))

    def estimate_queries(self, names: Iterable[str]) -> float:
        """Estimate how many queries it takes to find which operators are needed.

        2.5 bits + 3.5 sum(p), with the entropy of each p in bits: a query answers less
        than half a bit, and each needed operator is queried a few more times, by other
        strategies and alone. The factors were fitted to 64 searches through synthetic
        programs, of 20 to 200 queries: between one tenth and nine tenths of a search,
        the median estimate is right within a fifth, and two in three are within a
        factor of two.
        """
        ps = [min(self._p((Drop, name)), _SURE) for name in names]
        bits = sum(-p * math.log2(p) - (1 - p) * math.log2(1 - p) for p in ps)
        return 2.5 * bits + 3.5 * sum(ps)


# This is the part of delta debugging that does not depend on what the items are:
# edits to a program, or elements of any other set. The probabilities choose a bundle,
# and a query tells whether it may go.


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


# Adaptive group testing: make all changes to a printed program, then halves.
#
# Most changes can be made, and few places are needed. So the first group holds all
# changes (Hwang, "A Method for Detecting All Defective Members in a Population by
# Group Testing", JASA 67(339), 1972). The search halves a rejected group until one
# change is rejected alone; the changes that it did not test meanwhile are the next
# group.
#
#     of 30 changes, needed              0     1     2     3     5
#     queries, bundles by probability    1    11    18    22    32
#     queries, halves                    1     7    13    19    30
#
# These are medians of 40 random choices, each brought to the fixed point; the
# bundles, too, began with all changes at once. ``tests/search/test_bundles.py`` holds
# bounds. Groups sized by the density of rejections so far save two queries of 30 if
# five are needed, none if three are, and cost one if one is; a density that is known
# beforehand saves one if three are. The remaining queries test each rejected change
# alone.


class GroupTesting:
    """Rewrites that are tried in halves, until each was rejected alone.

    Args:
        refused: rewrites that were rejected alone in an earlier round; they come last,
            each alone.
    """

    def __init__(
        self, edits: Sequence[Edit], refused: Collection[Edit] = frozenset()
    ) -> None:
        edits = list(dict.fromkeys(edits))
        self._open = [edit for edit in edits if edit not in refused]
        self._last = [edit for edit in edits if edit in refused]
        self._culprits: list[Edit] = []  # at least one of these cannot be made

    def next(self) -> Sequence[Edit]:
        if not self._culprits:
            return self._open or self._last[:1]
        return self._culprits[: max(1, len(self._culprits) // 2)]

    def record_accepted(self, edits: Sequence[Edit], reduced: Candidate) -> None:
        self._open = _left(self._open, reduced)
        self._culprits = _left(self._culprits, reduced)
        self._last = _left(self._last, reduced)

    def record_rejected(self, edits: Sequence[Edit]) -> None:
        rest = [edit for edit in self._culprits + self._open if edit not in edits]
        # A rewrite that was rejected alone is not tried again in this round.
        self._culprits = list(edits) if len(edits) > 1 else []
        self._open = rest
        self._last = [edit for edit in self._last if edit not in edits]

    def copy(self, probabilities: EditProbabilities) -> GroupTesting:
        return copy.copy(self)


def _left(edits: Sequence[Edit], reduced: Candidate) -> list[Edit]:
    remaining = (remaining_edit(edit, reduced) for edit in edits)
    return list(dict.fromkeys(edit for edit in remaining if edit is not None))

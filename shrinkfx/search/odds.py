"""How likely each edit is to hide the failure, and so which ones are asked about next.

Probabilistic delta debugging (Wang, Shen, Chen, Xiong and Zhang, "Probabilistic Delta
Debugging", ESEC/FSE 2021), for edits of every kind. ``p`` of an operator, an input or a
size is the probability that the failure needs it, for each kind of edit apart. So it is
for whatever else can be taken away: an item of any set is about some keys.

    prior       p = min(1/4, 4/n) where a round begins with n operators; of a suspect at
                least 0.3 x weight; and as one is needed, at least 1/m of m still there
    bundle      least p first, one at least, while the product of (1 - p) is 1/e or more
    rejected    p = p / (1 - min(1/e, product)) of all in it
    accepted    p = 0.7 p of all that was never rejected; and where a part of a rejected
                bundle is gone, the rest is to blame: where d, the sum of -ln(1 - p), is
                below 1, p = 1 - (1 - p)^(1/d) makes that 1

The paper takes the bundle of the greatest expected gain, size x product. Where all p
are equal, that has the same size, -1/ln(1 - p); then each rejection multiplies p by
1/(1 - 1/e) = 1.58, and p only counts rejections. That is counter-based delta debugging
(Zhang, Xu, Tian, Cheng and Sun, "Toward a Better Understanding of Probabilistic Delta
Debugging", ICSE 2025, arXiv:2408.04735). What was rejected comes last, in ever smaller
bundles, alone in the end.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Self, TypeVar

from shrinkfx.program.edits import Drop, Edit, names_of

_GUESS = 4
"""Prior: operators that a failure needs, of however many."""

_MOST = 0.25
"""Prior: the highest p, where nothing points at an operator."""

_BLAME = 0.3
"""Prior: p of the surest suspect, since most of a failing kernel is innocent."""

_LUCK = 0.7
"""Factor on p of what was never rejected, after a bundle is accepted."""

_DOUBT = 1.0
"""Of a bundle: -ln of the probability that it is accepted, the product of (1 - p)."""

_SURE = 0.99
"""The highest p, so that -ln(1 - p) is finite."""

Key = tuple[object, str]
"""What p is of: a name, in the eyes of one kind of item."""

Item = TypeVar("Item")


class Beliefs(ABC, Generic[Item]):
    """p of whatever items are about.

    Args:
        suspects: by name, how sure it is that one is needed.
        guess: how many are, of however many there are.
    """

    def __init__(self, suspects: Mapping[str, float], count: int, guess: float) -> None:
        self._suspects, self._guess = suspects, guess
        self._raised: dict[Key, float] = {}
        self._least = 0.0  # at least one of all that is left is needed
        self.begin(count)

    @abstractmethod
    def about(self, item: Item) -> Iterable[Key]:
        """List what an item is about, in an order of its own."""

    def begin(self, count: int) -> None:
        """Start a round with so many: forget the last one's luck, and what its rejected
        bundles had in common."""
        self._fresh = min(_MOST, self._guess / max(1, count))
        self._rejected: list[list[Key]] = []

    def copy(self) -> Self:
        """Copy what answers change."""
        twin = copy.copy(self)
        twin._raised, twin._rejected = dict(self._raised), list(self._rejected)
        return twin

    def chance(self, items: Sequence[Item]) -> float:
        """Tell how likely it is that none of what these are about is needed."""
        return math.exp(-self._doubt(map(self._p, self._keys(items))))

    def bundle(self, items: Sequence[Item]) -> list[Item]:
        """Choose what to ask about next; nothing if there is nothing."""
        self._least = 1 / max(1, len(self._keys(items)))
        believed = [[self._p(key) for key in self._keys([item])] for item in items]
        order = sorted(range(len(items)), key=lambda i: max(believed[i]))
        chosen: list[Item] = []
        doubt = 0.0
        for i in order:
            doubt += self._doubt(believed[i])
            if chosen and doubt > _DOUBT:
                break
            chosen.append(items[i])
        return chosen

    def accepted(self, bundle: Sequence[Item]) -> None:
        """Lower p of what was never rejected; raise it of what was with the bundle."""
        self._fresh *= _LUCK
        gone = set(self._keys(bundle))
        rest = [[k for k in keys if k not in gone] for keys in self._rejected]
        for keys, before in zip(rest, self._rejected, strict=True):
            if len(keys) < len(before):
                self._blame(keys)
        self._rejected = [keys for keys in rest if len(keys) > 1]

    def rejected(self, bundle: Sequence[Item]) -> None:
        """Raise p of each key that the bundle is about."""
        keys = self._keys(bundle)
        believed = {key: max(self._p(key), self._least) for key in keys}
        hope = math.exp(-max(_DOUBT, self._doubt(believed.values())))
        self._raised.update({key: p / (1 - hope) for key, p in believed.items()})
        self._rejected.append(keys)

    def _blame(self, keys: list[Key]) -> None:
        """Raise p of these until their doubt is that of a bundle."""
        doubt = self._doubt(map(self._p, keys))
        if keys and doubt < _DOUBT:
            for key in keys:
                share = self._doubt([self._p(key)]) * _DOUBT / doubt
                self._raised[key] = -math.expm1(-share)

    def _p(self, key: Key) -> float:
        blame = _BLAME * self._suspects.get(key[1], 0.0)
        return max(self._raised.get(key, self._fresh), blame)

    def _doubt(self, believed: Iterable[float]) -> float:
        """Add up -ln of the probabilities that each is not needed."""
        return -sum(math.log1p(-min(max(p, self._least), _SURE)) for p in believed)

    def _keys(self, items: Iterable[Item]) -> list[Key]:
        return list(dict.fromkeys(key for item in items for key in self.about(item)))


class Odds(Beliefs[Edit]):
    """p of operators, inputs and sizes, for each kind of edit apart.

    What cannot be dropped may still be bypassed.
    """

    def __init__(self, suspects: Mapping[str, float], operators: int) -> None:
        super().__init__(suspects, operators, _GUESS)

    def about(self, item: Edit) -> Iterable[Key]:
        """Name what an edit changes."""
        return ((type(item), name) for name in sorted(names_of(item)))

    def outlook(self, names: Iterable[str]) -> float:
        """Estimate how many questions it takes to find which operators are needed.

        2.5 bits + 3.5 sum(p), with the entropy of each p in bits: a question answers
        less than half of one, and what is needed is asked about a few times more, by
        other strategies and alone. The factors are of 64 searches through synthetic
        programs, of 20 to 200 questions: from a tenth of them on to nine tenths, the
        median is right within a fifth, and two in three within a factor of two.
        """
        believed = [min(self._p((Drop, name)), _SURE) for name in names]
        bits = sum(-p * math.log2(p) - (1 - p) * math.log2(1 - p) for p in believed)
        return 2.5 * bits + 3.5 * sum(believed)

"""The probability that the failure needs each item, which decides the next bundle.

This is probabilistic delta debugging (Wang, Shen, Chen, Xiong and Zhang, "Probabilistic
Delta Debugging", ESEC/FSE 2021), for edits of every kind. ``p`` of an operator, an
input or a size is the probability that the failure needs it; each kind of edit has its
own ``p``. Any other set works in the same way: each item is about some keys, and each
key has a ``p``.

    prior       p = min(1/4, 4/n) if a round begins with n operators; for a suspect at
                least 0.3 x weight; and, because one of the m remaining operators is
                needed, at least 1/m
    bundle      the items of least p, at least one, while the product of (1 - p) is at
                least 1/e
    rejected    p = p / (1 - min(1/e, product)) for each key in the bundle
    accepted    p = 0.7 p for all keys that were never rejected. If part of a rejected
                bundle is removed, the rest is the cause of that rejection: if d, the
                sum of its -ln(1 - p), is below 1, p = 1 - (1 - p)^(1/d) makes it 1

The paper takes the bundle of the greatest expected gain, size x product. If all p are
equal, that bundle has the same size, -1/ln(1 - p); then each rejection multiplies p by
1/(1 - 1/e) = 1.58, so p only counts rejections. That is counter-based delta debugging
(Zhang, Xu, Tian, Cheng and Sun, "Toward a Better Understanding of Probabilistic Delta
Debugging", ICSE 2025, arXiv:2408.04735). Rejected items come last, in ever smaller
bundles, and alone in the end.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Self, TypeVar

from shrinkfx.program.edits import Drop, Edit, names_of

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

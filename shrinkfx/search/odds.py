"""How likely each edit is to hide the failure, and so which ones are asked about next.

Probabilistic delta debugging. At first every operator is needed with the same small
probability p, a suspect with a higher one. A bundle takes the edits of least p until
it would be accepted with 1/e: that removes the most for a question. If it is refused,
the p of all in it rise; by a constant factor, for a bundle of that size, so that among
equals this is counter-based delta debugging. What was refused comes last, in ever
smaller bundles, alone in the end. Where a part of a refused bundle can go, the rest is
to blame for the refusal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from shrinkfx.program.edits import Drop, Edit, names_of

_GUESS = 4
"""Operators that a failure is believed to need, of however many."""

_MOST = 0.25
"""The highest p to start with, where nothing points at an operator."""

_BLAME = 0.3
"""The p of the surest suspect: most of a failing kernel is innocent."""

_LUCK = 0.7
"""What an accepted bundle makes of the p of all that was never refused."""

_DOUBT = 1.0
"""A bundle's: -ln of the probability that it is accepted."""

_SURE = 0.99

_Key = tuple[type[Edit], str]


class Odds:
    """What is believed of operators and inputs, for each kind of edit apart.

    What cannot be dropped may still be bypassed.
    """

    def __init__(self, suspects: Mapping[str, float], operators: int) -> None:
        self._suspects = suspects
        self._raised: dict[_Key, float] = {}
        self._least = 0.0  # at least one of all that is left is needed
        self.begin(operators)

    def begin(self, operators: int) -> None:
        """Start a round in a program of so many operators: forget the last one's luck,
        and what its refused bundles had in common."""
        self._fresh = min(_MOST, _GUESS / max(1, operators))
        self._refused: list[list[_Key]] = []

    def bundle(self, edits: Sequence[Edit]) -> list[Edit]:
        """Choose what to ask about next; nothing if there is nothing."""
        self._least = 1 / max(1, len(_keys(edits)))
        believed = [[self._p(key) for key in _keys([edit])] for edit in edits]
        order = sorted(range(len(edits)), key=lambda i: max(believed[i]))
        chosen: list[Edit] = []
        doubt = 0.0
        for i in order:
            doubt += self._doubt(believed[i])
            if chosen and doubt > _DOUBT:
                break
            chosen.append(edits[i])
        return chosen

    def accepted(self, bundle: Sequence[Edit]) -> None:
        """Believe less of what was never refused, more of what was with the bundle."""
        self._fresh *= _LUCK
        gone = set(_keys(bundle))
        rest = [[k for k in keys if k not in gone] for keys in self._refused]
        for keys, before in zip(rest, self._refused, strict=True):
            if len(keys) < len(before):
                self._blame(keys)
        self._refused = [keys for keys in rest if len(keys) > 1]

    def refused(self, bundle: Sequence[Edit]) -> None:
        """Believe more of each operator that the bundle is about."""
        keys = _keys(bundle)
        believed = {key: max(self._p(key), self._least) for key in keys}
        hope = math.exp(-max(_DOUBT, self._doubt(believed.values())))
        self._raised.update({key: p / (1 - hope) for key, p in believed.items()})
        self._refused.append(keys)

    def outlook(self, names: Iterable[str]) -> float:
        """Estimate how many questions it takes to settle which operators are needed.

        What is not known of each, in bits, of which a question answers less than
        half; and those that are needed are each asked about a few times more, by
        other strategies and alone. The factors are of 64 searches through synthetic
        programs, of 20 to 200 questions: from a tenth of them on to nine tenths, the
        median is right within a fifth, and two in three within a factor of two.
        """
        believed = [min(self._p((Drop, name)), _SURE) for name in names]
        bits = sum(-p * math.log2(p) - (1 - p) * math.log2(1 - p) for p in believed)
        return 2.5 * bits + 3.5 * sum(believed)

    def _blame(self, keys: list[_Key]) -> None:
        """Raise the doubt about these to that of a bundle."""
        doubt = self._doubt(map(self._p, keys))
        if keys and doubt < _DOUBT:
            for key in keys:
                share = self._doubt([self._p(key)]) * _DOUBT / doubt
                self._raised[key] = -math.expm1(-share)

    def _p(self, key: _Key) -> float:
        blame = _BLAME * self._suspects.get(key[1], 0.0)
        return max(self._raised.get(key, self._fresh), blame)

    def _doubt(self, believed: Iterable[float]) -> float:
        """Add up -ln of the probabilities that each is not needed."""
        return -sum(math.log1p(-min(max(p, self._least), _SURE)) for p in believed)


def _keys(edits: Iterable[Edit]) -> list[_Key]:
    keys = ((type(edit), name) for edit in edits for name in sorted(names_of(edit)))
    return list(dict.fromkeys(keys))

"""Keep the suspects, and as little as possible around them.

    x -> a -> b -> c -> d -> e        becomes        b' -> c,  or  a' -> b -> c

The suspects are the operators of the failing kernel, or an operator with a fake-kernel
mismatch. If they are right, one or two queries replace the search among all operators.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.skeleton import ancestors, upstream, with_users
from shrinkfx.program.view import View

_HOPS = (0, 1, 2, 4, 8)
_SHARE = 2
"""A proposal must remove at least half of the operators to be worth a query."""


class KeepSuspects:
    """Propose to keep only the suspects, and operators around and above them.

    The smallest proposal comes first. There are no proposals if most operators are
    suspects, for example after one of them was accepted.
    """

    name = "keep_suspects"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        program, operators = view.skeleton, frozenset(view.operators)
        if not 0 < len(view.suspects) * _SHARE <= len(operators):
            return
        rungs = [upstream(program, view.suspects, hops) for hops in _HOPS]
        rungs += [with_users(program, rung) for rung in (rungs[1], rungs[-1])]
        rungs += [ancestors(program, view.suspects)]
        distinct = dict.fromkeys(operators & rung for rung in rungs)
        for rung in sorted(distinct, key=len):
            if len(rung) * _SHARE <= len(operators):
                yield Drop(operators - rung)

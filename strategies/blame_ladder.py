"""Keep what the failure points at, and as little as possible around it.

    x -> a -> b -> c -> d -> e        becomes        b' -> c,  or  a' -> b -> c

Blame names the operators of the failing kernel, or the one that lies about its
value. Where it is right, a question or two replace the search among all the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.queries import ancestors, upstream, with_users
from shrinkfx.program.view import View

_HOPS = (0, 1, 2, 4, 8)
_SHARE = 2
"""A rung that keeps a bigger part of the operators is not worth a question."""


class BlameLadder:
    """Propose to keep the suspects; their producers too; their users; what is above.

    The smallest comes first. Once it has worked, or others have left little but
    suspects, there is nothing to propose.
    """

    name = "blame_ladder"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        program, kept = view.skeleton, frozenset(view.operators)
        if not 0 < len(view.suspects) * _SHARE <= len(kept):
            return
        rungs = [upstream(program, view.suspects, hops) for hops in _HOPS]
        rungs += [with_users(program, rung) for rung in (rungs[1], rungs[-1])]
        rungs += [ancestors(program, view.suspects)]
        distinct = dict.fromkeys(kept & rung for rung in rungs)
        for rung in sorted(distinct, key=len):
            if len(rung) * _SHARE <= len(kept):
                yield Drop(kept - rung)

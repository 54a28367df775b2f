"""Programs, failures and blame for counting checks; nothing here compiles.

**Programs.** Two families: ``layered``, a transformer of equal layers of 17 operators
with module scopes, and ``tangled``, where each operator reads one or two of the six
values before it, and one in ten a value from anywhere.

**Failures.** A failure needs k operators. ``near`` ones are some dataflow steps from
each other, as in a kernel that fuses them: each is one or two steps away from another.
``scattered`` ones are anywhere; no order of questions helps there.

**Contexts.** What is kept beside the needed operators decides whether the failure
shows: three sets of kept operators in ten hide it, by a hash of the set, so the same
question has the same answer. The whole program and the needed operators alone always
fail. So a minimal result exists, and any set that fails can be reduced to one; but a
search may end in a bigger one, where every set smaller by one hides the failure. This
is harsher than real contexts: there, what goes far away from the failure seldom
changes whether it shows. And it bounds what any search can do: a question answers half
a bit at most.

**Blame.** It names the needed operators with weights between 0.5 and 1, and others near
them with weights between 0 and 1; in one program of five it does not know one of the
needed. ``good`` blame names two others for each needed one, ``rough`` blame three, and
``flat`` blame three with all weights 1.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from itertools import accumulate

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Node, Role, Skeleton
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle, feed, operator, skeleton, whole

HIDING = 0.3
"""The part of all contexts in which the failure does not show."""

FORGETFUL = 0.2
"""The part of the programs of which blame does not know one needed operator."""


class Needles(StrEnum):
    """Where the needed operators are."""

    NEAR = "near"
    SCATTERED = "scattered"


class Blame(StrEnum):
    """What is known beforehand."""

    NONE = "none"
    GOOD = "good"
    ROUGH = "rough"
    FLAT = "flat"


INNOCENT = {Blame.NONE: 0, Blame.GOOD: 2, Blame.ROUGH: 3, Blame.FLAT: 3}
"""Wrong suspects for each needed operator."""


@dataclass(frozen=True)
class Case:
    """A program with a failure in it.

    Attributes:
        needed: the operators without which it does not fail.
        suspects: what blame says, with weights.
        seed: what decides which contexts hide the failure.
    """

    program: Skeleton
    needed: frozenset[str]
    suspects: dict[str, float]
    seed: int

    def fails(self, kept: Iterable[str]) -> bool:
        """Tell whether the program fails with these operators alone."""
        names = frozenset(kept)
        if not self.needed <= names:
            return False
        seen = len(names) in (len(self.needed), len(self.program.operators))
        return seen or _dice(self.seed, names) >= HIDING

    def answer(self, candidate: Candidate) -> bool:
        """Do so for a ``FakeOracle``."""
        return self.fails(candidate.keep)


def make_case(
    number: int, operators: int, needed: int, needles: Needles, blame: Blame
) -> Case:
    """Make the same case for the same arguments; every other one is layered."""
    draw = random.Random(f"{number} {operators} {needed} {needles}")
    program = (layered if number % 2 else tangled)(operators, draw)
    if needles is Needles.NEAR:
        guilty = near(program, [draw.choice(program.operators)], needed, draw)
    else:
        guilty = draw.sample(program.operators, needed)
    suspects = _suspects(program, guilty, blame, draw)
    return Case(program, frozenset(guilty), suspects, number)


def layered(operators: int, draw: random.Random) -> Skeleton:
    """Build a transformer: as many equal layers as fit, then a head of relus."""
    nodes: dict[str, str | Node] = {"x": ""}
    last = "x"
    for number in range(operators // len(_LAYER)):
        made = {"h": last}
        for short, (operands, module) in _LAYER.items():
            if "w" in operands.split():
                made["w"] = f"w_{short}_{number}"
                nodes[made["w"]] = feed(Role.PARAMETER)
            made[short] = last = f"{short}_{number}"
            reads = " ".join(made[word] for word in operands.split())
            nodes[last] = operator(reads, scope=f"layers.{number}{module}")
    for number in range(operators % len(_LAYER)):
        nodes[f"relu_{number}"] = operator(last, scope="head")
        last = f"relu_{number}"
    return skeleton(nodes)


_LAYER = {
    "norm": ("h", ""),
    **{name: ("norm w", ".attention") for name in ("query", "key", "value")},
    "turn": ("key", ".attention"),
    "score": ("query turn", ".attention"),
    "softmax": ("score", ".attention"),
    "weigh": ("softmax value", ".attention"),
    "project": ("weigh w", ".attention"),
    "residual": ("h project", ""),
    "renorm": ("residual", ""),
    **{name: ("renorm w", ".perceptron") for name in ("up", "gate")},
    "silu": ("gate", ".perceptron"),
    "mul": ("up silu", ".perceptron"),
    "down": ("mul w", ".perceptron"),
    "add": ("residual down", ""),
}
"""Operators of a layer: what they read, ``h`` from before and ``w`` a weight of their
own, and the module that calls them."""


def tangled(operators: int, draw: random.Random) -> Skeleton:
    """Build a program of operators that mostly read what was computed just before."""
    nodes: dict[str, str | Node] = {"x": ""}
    names = ["x"]
    for number in range(operators):
        recent = names[-6:]
        reads = draw.sample(recent, min(len(recent), draw.choice((1, 2))))
        if draw.random() < _FAR:
            reads[0] = draw.choice(names)
        names.append(f"n{number}")
        nodes[names[-1]] = " ".join(dict.fromkeys(reads))
    return skeleton(nodes)


_FAR = 0.1


def near(
    program: Skeleton, chosen: list[str], count: int, draw: random.Random
) -> list[str]:
    """Add operators, each one or two dataflow steps from one that is there."""
    found = list(chosen)
    while len(found) < count:
        name = draw.choice(found)
        for _ in range(draw.choice((1, 2))):
            name = draw.choice(_neighbours(program, name))
        if name not in found:
            found.append(name)
    return found


def _neighbours(program: Skeleton, name: str) -> list[str]:
    beside = {*program.graph.predecessors(name), *program.graph.successors(name)}
    return program.in_order(beside.intersection(program.operators))


def _suspects(
    program: Skeleton, guilty: list[str], blame: Blame, draw: random.Random
) -> dict[str, float]:
    if blame is Blame.NONE:
        return {}
    count = min((1 + INNOCENT[blame]) * len(guilty), len(program.operators))
    innocent = near(program, guilty, count, draw)[len(guilty) :]
    known = {name: draw.uniform(0.5, 1) for name in guilty}
    if draw.random() < FORGETFUL and len(guilty) > 1:
        del known[draw.choice(guilty)]
    weights = known | {name: draw.uniform(0, 1) for name in innocent}
    return dict.fromkeys(weights, 1.0) if blame is Blame.FLAT else weights


def _dice(seed: int, names: Iterable[str]) -> float:
    """Throw a number between 0 and 1, the same one for the same set."""
    total = sum(_number(name) for name in names)
    return _number(f"{seed} {total}") / 2**64


@cache
def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


@dataclass(frozen=True)
class Run:
    """What a search did on one case.

    Attributes:
        repeated: checks of a program that was checked before.
        left: operators of the result.
        minimal: without any one of them it does not fail.
        cpu_ms: the search's own time for a check.
        sizes: the fewest operators found to fail, after each check.
    """

    checks: int
    repeated: int
    left: int
    minimal: bool
    cpu_ms: float
    sizes: list[int]


DELETING = [
    *("keep_suspects", "drop_outputs", "cut_suffix", "cut_prefix"),
    *("drop_modules", "drop_nodes"),
]
"""Strategies that drop operators and do nothing else."""


def search(case: Case, strategies: Sequence[str] | None = DELETING) -> Run:
    """Reduce a case as shrinkfx does. The oracle refuses to be asked twice.

    Args:
        strategies: their names; None means all there are.
    """
    oracle = FakeOracle(case.answer)
    start = whole(case.program)
    began = time.process_time()
    chosen = choose(strategies)
    reducer = Reducer(start, Asker(oracle), chosen, suspects=case.suspects)
    best = reducer.run()
    spent = time.process_time() - began
    failing = (len(c.keep) if case.answer(c) else len(start.keep) for c in oracle.asked)
    return Run(
        checks=len(oracle.asked),
        repeated=len(oracle.asked) - len(set(oracle.digests)),
        left=len(best.keep),
        minimal=reducer.minimal,
        cpu_ms=1e3 * spent / len(oracle.asked),
        sizes=list(accumulate(failing, min)),
    )

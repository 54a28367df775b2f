"""Test your strategy without a compiler: programs, an oracle, and the laws.

Nothing here imports torch, so a test takes microseconds::

    from shrinkfx.testing import chain, check_strategy, whole

    def test_my_strategy_proposes_the_last_operator_first():
        view = View(whole(chain("x", "relu", "tanh")))
        assert next(MyStrategy().propose(view)) == Drop(frozenset({"tanh"}))

    @given(candidates())
    def test_my_strategy_keeps_the_laws(candidate):
        check_strategy(MyStrategy(), candidate)

To see what the search makes of it, hand ``Asker(FakeOracle(...))`` to a
``Reducer`` and compare the result and ``len(oracle.asked)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import (
    Bypass,
    Drop,
    Edit,
    Merge,
    Replace,
    Specialisation,
    Specialise,
)
from shrinkfx.program.skeleton import FreeSize, Node, Role, Skeleton, TensorType
from shrinkfx.program.view import View
from shrinkfx.search.strategy import Strategy, broken, proposals

PLANTED = Signature(Kind.ASSERT, Stage.RUN, "planted")
"""The failure that a ``FakeOracle`` looks for."""

OTHER = Signature(Kind.ASSERT, Stage.RUN, "another one")
"""The failure that it answers DIFFERENT with."""

FLOATS = TensorType("float32", ("2", "3"))
"""The type of every value, unless you say otherwise."""

HALVES = TensorType("float16", ("2", "3"))
"""Another type, for what must not be mixed up with ``FLOATS``."""

ROW = TensorType("float32", ("1", "3"))
"""A type that an ``expand`` makes one of ``FLOATS``."""

DYNAMIC = TensorType("float32", ("s", "2*t + 1"))
"""A type whose sizes are not fixed: what they are is in ``FREE``."""

FREE: Mapping[str, FreeSize] = {
    "s": FreeSize(("s",), 4, 4),
    "t": FreeSize(("t",), 5, 6),
    "2*t + 1": FreeSize(("t",), 11, 13),
}
"""Sizes of a program that passes where ``t`` is 5 and fails where it is 6."""


# --- programs

Nodes = Mapping[str, str | Node]
"""What ``skeleton`` takes; annotate a variable of your own with it."""


def feed(role: Role = Role.INPUT, value: TensorType = FLOATS) -> Node:
    """Describe an input, a parameter, a buffer or a constant."""
    return Node("", role, value=value)


def operator(
    operands: str = "",
    *,
    target: str = "",
    value: TensorType | None = FLOATS,
    operators: int = 1,
    scope: str = "",
    storage: int | None = None,
    impure: bool = False,
    pointwise: bool = False,
) -> Node:
    """Describe an operator that reads ``operands``, names with blanks between.

    Args:
        target: ``aten.<name>.default`` if empty, without a number at the end.
        value: None if it returns several values (then add ``projection``s) or none.
        operators: what it counts for; more than 1 for a higher-order operator.
    """
    return Node(
        "",
        Role.OPERATOR,
        target,
        tuple(operands.split()),
        value,
        operators,
        scope=scope,
        storage=storage,
        impure=impure,
        pointwise=pointwise,
    )


def projection(of: str, value: TensorType | None = FLOATS) -> Node:
    """Describe one value of an operator that returns several."""
    return Node("", Role.PROJECTION, "operator.getitem", (of,), value)


def inner(operands: str = "", value: TensorType | None = FLOATS) -> Node:
    """Describe a node of a subgraph, an input of it if it reads nothing.

    It goes by the path to it, ``body.tanh``, and reads names of that form.
    """
    target = "aten.inner.default" if operands else ""
    read = tuple(operands.split())
    return Node("", Role.SUBGRAPH_NODE, target, read, value, int(bool(operands)))


def subgraph(returned: str) -> Node:
    """Describe a branch or a body; its nodes come before it."""
    return Node("", Role.SUBGRAPH, "", tuple(returned.split()))


def size(operands: str) -> Node:
    """Describe arithmetic on the sizes of ``operands``."""
    return Node("", Role.SIZE, "aten.sym_size.int", tuple(operands.split()))


def skeleton(
    nodes: Nodes,
    outputs: str = "",
    writes: Iterable[tuple[str, str]] = (),
    sizes: Mapping[str, FreeSize] = MappingProxyType({}),
) -> Skeleton:
    """Build a program from its nodes by name, in program order.

    A text is short for an operator with these operands, an empty one for an
    input::

        skeleton({"x": "", "w": feed(Role.PARAMETER), "mm": "x w", "relu": "mm"})

    Args:
        outputs: the returned values; those that nobody uses if empty.
        writes: values and the buffers that they are written into.
        sizes: those that are not fixed, where it is known at which the program passes.
    """
    named = [_named(name, node) for name, node in nodes.items()]
    used = {operand for node in named for operand in node.operands}
    unused = [n.name for n in named if n.name not in used and n.value is not None]
    returned = outputs.split() or unused
    return Skeleton(named, returned, writes=writes, sizes=sizes)


def _named(name: str, short: str | Node) -> Node:
    if isinstance(short, str):
        short = operator(short) if short else feed()
    target = short.target
    if short.role is Role.OPERATOR and not target:
        target = f"aten.{re.sub(r'_[0-9]+$', '', name)}.default"
    return replace(short, name=name, target=target)


def chain(first: str, *operators: str) -> Skeleton:
    """Build a program in which every operator reads the one before.

    ``chain("x", "relu", "tanh")`` returns ``tanh(relu(x))``.
    """
    names = (first, *operators)
    nodes = dict(zip(operators, names, strict=False))
    return skeleton({first: "", **nodes})


def whole(program: Skeleton) -> Candidate:
    """Make the candidate that a search starts from."""
    return Candidate.whole(program)


# --- the oracle

Answer = Callable[[Candidate], bool | Outcome]
"""Tells whether a candidate fails; an ``Outcome`` where yes and no are too few."""


def needs(*operators: str) -> Callable[[Candidate], bool]:
    """Fail as long as all these operators are kept as they are, by name."""
    return lambda candidate: candidate.keep - {*candidate.replace} >= {*operators}


def calls(target: str) -> Callable[[Candidate], bool]:
    """Fail as long as an operator with this target is kept."""
    return lambda candidate: target in map(candidate.target, candidate.keep)


class FakeOracle:
    """Answer from a function, and remember the questions.

    A reducer that asks twice about one digest gets an ``AssertionError``.

    Attributes:
        asked: every candidate it was asked about, in order.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[Candidate] = []

    def check(self, candidate: Candidate) -> Verdict:
        assert candidate.digest not in self.digests, f"asked twice: {candidate}"
        self.asked.append(candidate)
        answer = self._answer(candidate)
        if isinstance(answer, bool):
            answer = Outcome.REPRODUCED if answer else Outcome.PASSED
        return Verdict(answer, _SEEN[answer])

    @property
    def digests(self) -> list[str]:
        """List the questions in a form that compares well."""
        return [candidate.digest for candidate in self.asked]


_SEEN = {
    Outcome.REPRODUCED: Observation(PLANTED),
    Outcome.DIFFERENT: Observation(OTHER),
    Outcome.PASSED: Observation(),
    Outcome.UNRESOLVED: Observation(unresolved="no answer in time"),
    Outcome.INVALID: Observation(invalid="eager refuses it"),
}


# --- the laws


def check_strategy(strategy: Strategy, candidate: Candidate) -> None:
    """Check the laws of ``shrinkfx.search.strategy`` on one candidate.

    Whether the most promising edits come first is for you to judge.

    Raises:
        StrategyError: names the law that is broken, and says what was seen.
    """
    _check_form(strategy, candidate)
    edits = proposals(strategy, candidate)
    twin = Candidate.from_json(candidate.skeleton, candidate.to_json())
    for again in (candidate, twin):
        if (other := proposals(strategy, again)) != edits:
            raise broken(strategy, 1, f"it proposed {edits}, then {other}")
    for edit in edits:
        _check_edit(strategy, candidate, edit)


def _check_form(strategy: Strategy, candidate: Candidate) -> None:
    if not isinstance(strategy, Strategy) or not strategy.name.isidentifier():
        raise TypeError(f"{strategy!r} has no name, combines and propose(view)")
    if not isinstance(strategy.propose(View(candidate)), Iterator):
        raise broken(strategy, 4, "propose is no generator")


def _check_edit(strategy: Strategy, candidate: Candidate, edit: Edit) -> None:
    try:
        apply(candidate, [edit])
    except InvalidEdit:
        return
    except Exception as error:  # a plug-in may put anything into an edit
        raise broken(strategy, 3, f"{edit!r} raises {error!r}") from error


# --- random programs, for Hypothesis


@st.composite
def skeletons(draw: st.DrawFn, max_operators: int = 12) -> Skeleton:
    """Draw a program: inputs, weights, types, tuples, sizes, outputs, writes."""
    nodes: dict[str, str | Node] = {"x": "", "h": feed(value=HALVES)}
    nodes["d"] = feed(value=DYNAMIC)
    nodes |= {"w": feed(Role.PARAMETER), "held": feed(Role.BUFFER)}
    nodes["row"] = replace(feed(value=ROW), storage=0)
    count = draw(st.integers(1, max_operators))
    for number in range(count):
        values = [n for n in nodes if _is_value(nodes[n])]
        chosen = st.lists(st.sampled_from(values), max_size=3, unique=True)
        operands = " ".join(draw(chosen))
        nodes |= draw(st.sampled_from(_SHAPES))(f"n{number}", operands)
    tensors = [n for n in nodes if _is_tensor(nodes[n]) and n.startswith("n")]
    more = draw(st.lists(st.sampled_from(tensors), max_size=2, unique=True))
    program = skeleton(nodes)
    written = draw(st.sampled_from([None, "x", *tensors]))
    writes = [(written, "held")] if written else []
    outputs = [*program.outputs, *more, *(value for value, _ in writes)]
    sizes = draw(st.sampled_from([{}, FREE]))
    return skeleton(nodes, " ".join(dict.fromkeys(outputs)), writes, sizes)


def _single(name: str, operands: str) -> dict[str, Node]:
    return {name: operator(operands)}


def _halved(name: str, operands: str) -> dict[str, Node]:
    return {name: operator(operands, value=HALVES)}


def _pointwise(name: str, operands: str) -> dict[str, Node]:
    return {name: operator(operands, pointwise=True)}


def _repeated(name: str, operands: str) -> dict[str, Node]:
    return {name: operator("row", storage=0)}


def _grown(name: str, operands: str) -> dict[str, Node]:
    return {name: operator(operands, value=DYNAMIC)}


def _pair(name: str, operands: str) -> dict[str, Node]:
    both = operator(operands, value=None)
    return {name: both, f"{name}a": projection(name), f"{name}b": projection(name)}


def _sized(name: str, operands: str) -> dict[str, Node]:
    return {name: operator(operands), f"{name}size": size(name)}


def _looped(name: str, operands: str) -> dict[str, Node]:
    body = f"{name}body"
    names = [f"{body}.{letter}" for letter in "abcd"]
    nodes = dict(zip(names, (inner(), *map(inner, names)), strict=False))
    loop = operator(f"{operands} {body}", value=None, operators=4)
    return {
        **nodes,
        body: subgraph(names[-1]),
        name: loop,
        f"{name}a": projection(name),
    }


_SHAPES = (
    *(_single, _single, _halved, _grown, _pair, _sized, _looped),
    *(_pointwise, _repeated),
)


def _is_tensor(node: str | Node) -> bool:
    """Tell whether it is one that an operator may read."""
    if isinstance(node, str):
        return True
    return node.value is not None and node.role is not Role.SUBGRAPH_NODE


def _is_value(node: str | Node) -> bool:
    """Tell whether an operator may read it: a tensor or a size."""
    return _is_tensor(node) or (isinstance(node, Node) and node.role is Role.SIZE)


@st.composite
def candidates(draw: st.DrawFn, max_operators: int = 12) -> Candidate:
    """Draw a candidate: a program after some edits of every kind."""
    candidate = whole(draw(skeletons(max_operators)))
    candidate = candidate.returning(draw(st.sampled_from(Outputs)))
    for edit in draw(edits_of(candidate)):
        with suppress(InvalidEdit):
            candidate = apply(candidate, [edit])
    return candidate


def edits_of(candidate: Candidate) -> st.SearchStrategy[list[Edit]]:
    """Draw edits to a candidate; most of them apply."""
    nodes = st.sampled_from(candidate.operators)
    values = [n for n in candidate.skeleton.graph if candidate.skeleton.node(n).value]
    inputs = st.sampled_from([*candidate.inputs, "nowhere"])
    drop = st.frozensets(nodes, min_size=1, max_size=3).map(Drop)
    bypassed = st.sampled_from([*candidate.operators, *candidate.subgraph_nodes])
    bypass = st.builds(Bypass, bypassed, st.sampled_from(values))
    plain = st.builds(Replace, nodes, st.sampled_from(values))
    own = nodes.map(lambda node: Replace(node, node))
    merge = st.frozensets(inputs, max_size=3).map(Merge)
    settle = st.builds(
        Specialise, st.sampled_from([*FREE]), st.sampled_from(Specialisation)
    )
    return st.lists(drop | bypass | plain | own | merge | settle, max_size=4)

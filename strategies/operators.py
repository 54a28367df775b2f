"""Strategies for operators: each removes, bypasses or replaces some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from shrinkfx.program.edits import Bypass, Drop, Merge, Replace, Specialise
from shrinkfx.program.skeleton import (
    TensorType,
    ancestors,
    graph_of,
    upstream,
    with_users,
)
from shrinkfx.program.view import View

# Keep the suspects, and as little as possible around them.
#
#     x -> a -> b -> c -> d -> e        becomes        b' -> c,  or  a' -> b -> c
#
# The suspects are the operators of the failing kernel, or an operator with a fake-
# kernel mismatch. If they are right, one or two queries replace the search among all
# operators.


_HOPS = (0, 1, 2, 4, 8)
_SUSPECTS_SHARE = 2
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
        if not 0 < len(view.suspects) * _SUSPECTS_SHARE <= len(operators):
            return
        rungs = [upstream(program, view.suspects, hops) for hops in _HOPS]
        rungs += [with_users(program, rung) for rung in (rungs[1], rungs[-1])]
        rungs += [ancestors(program, view.suspects)]
        distinct = dict.fromkeys(operators & rung for rung in rungs)
        for rung in sorted(distinct, key=len):
            if len(rung) * _SUSPECTS_SHARE <= len(operators):
                yield Drop(operators - rung)


# Return fewer values: drop an output and the operators that only serve it.
#
#     x -> a -> out_1                     x -> a -> out_1
#      \-> b -> c -> out_2     becomes
#
# For a program with several results these queries are the cheapest; and they split a
# program whose middle has been cut.


_SLICE_SHARE = 16
"""Slices below this fraction (1/16) of all operators are left to ``drop_nodes``."""


class DropOutputs:
    """Propose to drop each returned value with the operators that only it needs.

    Big slices come first, because one query removes the most operators. Slices with a
    suspect come last.
    """

    name = "drop_outputs"
    combines = True

    def propose(self, view: View) -> Iterator[Drop]:
        if len(view.sinks) < 2:
            return
        least = len(view.operators) / _SLICE_SHARE
        slices = sorted(view.slices(), key=len, reverse=True)
        for nodes in sorted(slices, key=view.suspicion):
            if len(nodes) >= least:
                yield Drop(nodes)


# Return early: drop all operators after a point of the program.
#
#     x -> a -> b -> c -> d        becomes        x -> a -> b
#
# The operators after the culprit only pass its result on. Halving finds the place in
# few queries, and each success makes all later checks cheaper.


_LEAST_CUT = 8
"""Smaller parts are left to ``drop_nodes``."""


class CutSuffix:
    """Propose to drop the last half of the operators, repeated while it succeeds.

    Smaller parts are left to ``drop_nodes``, whose bundles begin at the end: quarters
    and eighths took more queries than they saved. A half with a suspect stays.
    """

    name = "cut_suffix"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        yield from _cut(view, view.operators[(len(view.operators) + 1) // 2 :])


# Start late: drop all operators before a point of the program.
#
#     x -> a -> b -> c -> d        becomes        b' -> c -> d
#
# Values that cross the cut become inputs with the values of the input program's eager
# run.


class CutPrefix:
    """Propose to drop the first half of the operators, repeated while it succeeds.

    Quarters and eighths took more queries than they saved. A half with a suspect stays.
    """

    name = "cut_prefix"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        yield from _cut(view, view.operators[: len(view.operators) // 2])


def _cut(view: View, half: Sequence[str]) -> Iterator[Drop]:
    if len(half) >= _LEAST_CUT and not view.suspicion(half):
        yield Drop(frozenset(half))


# Drop whole modules of the user's model.
#
#     blocks.0 -> blocks.1 -> head        becomes        blocks.0' -> blocks.1
#
# A person would remove modules first, and most modules work without their neighbours.
# Once one module is left, its own parts are next: coarse levels before fine ones, as in
# hierarchical delta debugging (Misherghi and Su, "HDD: Hierarchical Delta Debugging",
# ICSE 2006).


_LEAST_MODULE = 4
_MODULE_SHARE = 16
"""Modules below ``_LEAST_MODULE`` operators, or below this fraction (1/16) of all
operators, are left to ``drop_nodes``."""


class DropModules:
    """Propose to drop modules below the innermost one that holds all operators.

    Of equal modules, such as the layers of a transformer, propose to drop all but one;
    then halves of them, for a failure that needs the values of a certain one. Big parts
    come first, and the last module before its equals. Modules with suspects stay.
    """

    name = "drop_modules"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        total = len(view.operators)
        for nodes in sorted(_module_groups(view), key=len, reverse=True):
            if view.suspicion(nodes):
                continue
            if _LEAST_MODULE <= len(nodes) < total <= len(nodes) * _MODULE_SHARE:
                yield Drop(frozenset(nodes))


def _module_groups(view: View) -> Iterator[list[str]]:
    """Yield single modules, last first, and groups of equal modules."""
    kinds: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for nodes in reversed(_modules(view)):
        kinds[tuple(view.skeleton.node(n).target for n in nodes)].append(nodes)
    for modules in kinds.values():
        middle = len(modules) // 2
        likeliest = max(modules, key=view.suspicion)
        for part in (
            [nodes for nodes in modules if nodes is not likeliest],
            *(modules[:middle], modules[middle:]),
        ):
            yield [name for nodes in part for name in nodes]


def _modules(view: View) -> list[list[str]]:
    """Group operators by the first name at which their module paths differ."""
    paths = {n: view.skeleton.node(n).scope.split(".") for n in view.operators}
    shared = _count_shared(list(paths.values()))
    modules: dict[str, list[str]] = defaultdict(list)
    for name, path in paths.items():
        if len(path) > shared and path[shared]:
            modules[path[shared]].append(name)
    return list(modules.values())


def _count_shared(paths: list[list[str]]) -> int:
    """Count the leading names that all paths share."""
    return next(
        (i for i, names in enumerate(zip(*paths, strict=False)) if len({*names}) > 1),
        min(map(len, paths)),
    )


# Specialize dynamic sizes as far as the failure allows.
#
#     x: (batch, length)      becomes        x: (1, length), length from 32 to 33
#     x: (2*s0 + 1, 8)        becomes        x: (s1, 8)
#
# For programs that fail at some sizes and pass at others.


class SpecializeDims:
    """Propose for each dynamic size the specializations that it may have."""

    name = "specialize_dims"
    combines = False
    """There are few proposals; and of two dims that matter together, one may become
    static."""

    def propose(self, view: View) -> Iterator[Specialise]:
        for size, sizings in view.specialisations.items():
            for how in sizings:
                yield Specialise(size, how)


# Remove single operators; their users get inputs instead.
#
#     x -> a -> b -> c        becomes        x -> a,  b' -> c
#
# ``b'`` is a new input with the value that ``b`` had in the input program's eager run.
# The reducer bundles these edits, so it removes many operators at once.


class DropNodes:
    """Propose to drop each operator alone, last first.

    Last operators come first, because those after the culprit only return its result.
    Suspects come after all others.
    """

    name = "drop_nodes"
    combines = True

    def propose(self, view: View) -> Iterator[Drop]:
        for node in _suspects_last(view, view.operators):
            yield Drop(frozenset({node}))


def _suspects_last(view: View, names: Sequence[str]) -> list[str]:
    """Sort operators: the last one first, and suspects after all others."""
    return sorted(reversed(names), key=lambda name: view.suspicion([name]))


# Remove an operator by giving its users a value that it was computed from.
#
#     a -> relu -> b             becomes        a -> b
#     a -> to -> to -> b         becomes        a -> b
#     a -> expand -> add         becomes        a -> add
#
# Because the graph stays connected, this edit works where a cut hides the failure: a
# bug that needs a producer and a distant user stays, and no input is added.


class BypassOperators:
    """Propose to bypass each operator with an operand of the type of its value.

    If no operand has that type, the nearest values above with that type take its place:
    so a cast goes with the cast back, and a layer goes whole between two values of its
    width. If the operator only repeats a value and all users broadcast, that value
    works too. Last operators come first, because an early success shortens the longest
    chain. Suspects come after all others. If several bypasses of one operator are
    bundled, the earliest value is taken.
    """

    name = "bypass_operators"
    combines = True

    def propose(self, view: View) -> Iterator[Bypass]:
        for node in _suspects_last(view, view.operators):
            for value in _nearest(view, node):
                yield Bypass(node, value)


def _nearest(view: View, node: str) -> list[str]:
    """List the values fewest steps above an operator that its users could read."""
    operators, seen = frozenset(view.operators), frozenset[str]()
    values = dict.fromkeys(view.operands(node))
    while values:
        if readable := [v for v in values if view.can_bypass(node, v)]:
            return readable
        seen |= values.keys()
        above = (o for v in values if v in operators for o in view.operands(v))
        values = dict.fromkeys(v for v in above if v not in seen)
    return []


# Remove an operator of a branch or of a loop body.
#
#     while_loop(c, (h -> mm -> tanh), x)   becomes   while_loop(c, (h -> tanh), x)
#
# A ``cond`` or a loop counts as one operator, which stays or goes with everything
# inside. If it must stay, most of the operators inside may still go.


class BypassInBranches:
    """Propose to bypass an inner operator with an operand or value of its type.

    Last operators come first, as in the main graph. If no operand has the type, an
    earlier value may: most often an argument of the body.
    """

    name = "bypass_in_branches"
    combines = True

    def propose(self, view: View) -> Iterator[Bypass]:
        nodes = [
            name for name in view.subgraph_nodes if view.skeleton.node(name).operands
        ]
        for node in reversed(nodes):
            fitting = [v for v in view.operands(node) if view.same_value_type(node, v)]
            for value in dict.fromkeys(fitting) or _earlier(view, node):
                yield Bypass(node, value)


def _earlier(view: View, node: str) -> list[str]:
    """Find the first value of the same graph and type; it frees the most operators."""
    before = view.subgraph_nodes[: view.subgraph_nodes.index(node)]
    return [
        value
        for value in before
        if graph_of(value) == graph_of(node) and view.same_value_type(node, value)
    ][:1]


# Feed several inputs of one type with one value.
#
#     x, y -> add        becomes        x, x -> add
#
# Cuts give a program many inputs. Fewer inputs are easier to read, and often one is
# enough.


class MergeInputs:
    """Propose to merge each input with the next of its type, then with the second next.

    Bundled, these edits merge all inputs of one type; alone, they merge two. The second
    next is proposed too, because the input between two others may be the one that must
    stay.
    """

    name = "merge_inputs"
    combines = True

    def propose(self, view: View) -> Iterator[Merge]:
        groups: dict[TensorType, list[str]] = defaultdict(list)
        for name in view.inputs:
            if (value := view.skeleton.node(name).value) is not None:
                groups[value].append(name)
        for distance in (1, 2):
            for names in groups.values():
                for pair in zip(names, names[distance:], strict=False):
                    yield Merge(frozenset(pair))


# Replace an expensive operator by a simple one.
#
#     a -> attention -> b        becomes        a -> abs -> b
#     a -> mm -> b               becomes        mm' -> abs -> b
#
# For a bug that needs any operator there, but not that one. ``mm'`` is a new input with
# the value that ``mm`` had in the input program's eager run.


class ReplaceOperators:
    """Propose for each expensive operator a simple one on a value of the same type.

    That value is an operand if one has that type, else the operator's own value as an
    input. Suspects come last.
    """

    name = "replace_operators"
    combines = False
    """Bundles are possible, but at this point most operators are needed as they are, so
    a
    bundle would hide the one that is not."""

    def propose(self, view: View) -> Iterator[Replace]:
        for node in _suspects_last(view, view.replaceable):
            operands = view.operands(node)
            same = (v for v in operands if view.same_value_type(node, v))
            yield Replace(node, next(same, node))

"""Strategies for the statements of printed programs."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping
from itertools import permutations

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, DropArgument, DropResult, Write
from shrinkfx.program.listing.printed_program import (
    RETURN,
    Block,
    Call,
    Kind,
    Leaf,
    LeafKind,
    PrintedProgram,
    Statement,
    Types,
    all_calls,
    projections,
    returned_leaves,
)
from shrinkfx.program.view import View

# Simplify branches and loop bodies.
#
#     cond(c, (x -> exp -> mm), (x -> tanh))   becomes   cond(c, (x -> mm), (x))
#
# A ``cond`` or a loop counts as one operator, which stays or goes with everything
# inside. This strategy drops its unused results and unused arguments, lets a branch
# that is not taken return its arguments, and reduces a loop to one iteration.


class ShrinkBranches:
    """Propose the largest removals first: whole branches, then single statements.

    No proposal makes a loop test a value that never changes, because the loop would not
    end.
    """

    name = "shrink_branches"
    combines = True
    kind = Kind.BRANCHES

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        yield from drop_unread(listing)
        yield from one_branch(listing)
        inside = listing.blocks[:-1][::-1]
        known = {b.name: types_in_block(listing, view.types, b) for b in inside}
        tests = results_tested(listing)
        for block in inside:
            yield from return_arguments(
                block, known[block.name], tests.get(block.name, ())
            )
        for block in inside:
            for rewrite in propose_redirects(block, known[block.name]):
                if not is_endless(rewrite, block, tests.get(block.name, ())):
                    yield rewrite
        yield from merge_arguments(listing, known)
        yield from reduce_iterations(listing)


# Let operators read other values of the same type, so that some values become unused.
#
#     y -> exp -> add <- exp <- y        becomes        y -> exp -> add, twice
#
# Two operators that compute the same become one, an operator is bypassed, or an input
# or weight takes the place of another one. There are more equal types once sizes are
# small.


class RedirectOperands:
    """Propose for each value, the last one first, which value to read in its place.

    Then propose to omit an operand, from a list or where the operator accepts that, and
    to return an operand of a returned value, whatever its type. The second of two
    consecutive views may read the input of the first, which has another type. Proposals
    that the search for operators has answered are omitted.
    """

    name = "redirect_operands"
    combines = True
    kind = Kind.OPERANDS

    def propose(self, view: View) -> Iterator[Rewrite]:
        main = view.listing.main
        known = types_in_block(view.listing, view.types, main)
        yield from propose_redirects(main, known, _bypassed(view))
        spellings = [each.spelling for each in view.listing.given]
        input_types = {name: known[name] for name in known if name in spellings}
        yield from merge_equal_inputs(main, input_types, _merged_before(view))
        yield from composed_views(main, known)
        yield from remove_operands(main)
        before = {name: view.operands(name) for name in view.operators}
        yield from return_operands(main, known, before)


def _bypassed(view: View) -> frozenset[tuple[str, str]]:
    """Collect the bypasses that were queried before the program was printed."""
    return frozenset(
        (name, operand)
        for name in view.operators
        for operand in view.operands(name)
        if view.same_value_type(name, operand)
    )


def _merged_before(view: View) -> frozenset[tuple[str, str]]:
    """Collect pairs of inputs whose merge was queried: they had one type before."""
    types = {name: view.skeleton.node(name).value for name in view.inputs}
    pairs = permutations(types, 2)
    return frozenset((one, two) for one, two in pairs if types[one] == types[two])


# Simplify the arguments of operators.
#
#     max_pool2d(x, [3, 3], [2, 2], [0, 0], [1, 1], True)    becomes
#     max_pool2d(x, [1, 1])
#
# Arguments with a default are omitted; numbers become 1 or 0, and lists become empty or
# lists of these. A reader asks for each 37 why it is not 1.


_DTYPE = re.compile(r"torch\.(bool|(b?float|u?int|complex)\d+\w*)")


class SimplifyArguments:
    """Propose the simplest text that fits for each argument, the last argument first.

    It leaves alone values that a loop's condition depends on, because the loop may
    never end, and the arguments of branches and bodies.
    """

    name = "simplify_arguments"
    combines = True
    kind = Kind.ARGUMENTS

    def propose(self, view: View) -> Iterator[Rewrite]:
        calls = {(c.caller, c.statement.name) for c in all_calls(view.listing)}
        excluded = loop_control_statements(view.listing) | calls
        for block in reversed(view.listing.blocks):
            for line in reversed(block.statements):
                if line.is_operator and (block.name, line.name) not in excluded:
                    yield from _simpler_arguments(block, line)


def _simpler_arguments(block: Block, line: Statement) -> Iterator[Rewrite]:
    for leaf in reversed(line.leaves):
        texts = _texts(leaf, line)
        changes = tuple(Write(block.name, line.name, leaf.number, t) for t in texts)
        if changes:
            yield Rewrite(changes, partly=True)


def _texts(leaf: Leaf, line: Statement) -> list[str]:
    """List the possible texts of an argument, the simplest first."""
    parts = [part for part in line.leaves if part.parent == leaf.number]
    texts = [""] if leaf.parent is None else []
    match leaf.kind:
        case LeafKind.LIST if all(part.kind is LeafKind.NUMBER for part in parts):
            return [*texts, "[]"] if parts else texts
        case LeafKind.WORD:
            return [*texts, "torch.float32"] if _is_dtype(leaf) else texts
        case LeafKind.NUMBER:
            return [*texts, "1", "0"] if _is_number(leaf) else texts
    return []


def _is_number(leaf: Leaf) -> bool:
    """Tell whether an argument is a number other than 0 and 1."""
    plain = {"0", "1", "None", "True", "False"}
    return leaf.text not in plain and leaf.text[:1] not in "'\""


def _is_dtype(leaf: Leaf) -> bool:
    return leaf.text != "torch.float32" and _DTYPE.fullmatch(leaf.text) is not None


# Rewrites of statements: operands, redirects, loops and subgraphs.


def merge_equal_inputs(
    main: Block, inputs: Likes, tried: Container[tuple[str, str]]
) -> Iterator[Rewrite]:
    """Propose to read the first input or weight of a type instead of the others."""
    first: dict[object, str] = {}
    for name, like in inputs.items():
        other = first.setdefault(like, name)
        if other != name and (name, other) not in tried:
            yield Rewrite(redirect_readers(main, name, other))


def return_operands(
    main: Block, known: Likes, before: Mapping[str, Collection[str]]
) -> Iterator[Rewrite]:
    """Propose to return an operand of the operator that computes a returned value.

    Args:
        before: the operands of operators before the program was printed. A query that
            dropped an operator has already tested returning these.
    """
    lines = {line.name: line for line in main.statements if line.is_operator}
    computed = lines.keys() | _results(main)
    for leaf in returned_leaves(main):
        line = lines.get(leaf.text)
        operands = [part.text for part in line.leaves] if line else []
        tried = before.get(leaf.text, ())
        for other in dict.fromkeys(operands):
            if other in computed and other in known and other not in tried:
                yield Rewrite((Write(main.name, RETURN, leaf.number, other),))


_RESHAPES = r"view|_unsafe_view|reshape|expand"
_SHAPED = re.compile(rf"torch\.ops\.aten\.({_RESHAPES})\.")
"""Operators that take the shape of the result as an argument."""
_MOVES = re.compile(
    rf"torch\.ops\.aten\.({_RESHAPES}|permute|transpose|t|squeeze|unsqueeze|clone)\."
)
"""Operators that move elements without computing."""


def composed_views(main: Block, known: Likes) -> Iterator[Rewrite]:
    """Propose that the second of two consecutive views reads the input of the first."""
    lines = {line.name: line for line in main.statements if line.is_operator}
    for line in reversed(lines.values()):
        if not _SHAPED.match(line.callee):
            continue
        operand = line.leaves[0]
        made = lines.get(operand.text)
        if made is None or not _MOVES.match(made.callee):
            continue
        source = made.leaves[0].text
        if source in known and known[source] != known.get(operand.text):
            yield Rewrite((Write(main.name, line.name, operand.number, source),))


def _results(main: Block) -> set[str]:
    """Collect the names of projections."""
    results = (projections(main, line.name) for line in main.statements)
    return {line.name for selected in results for line in selected.values()}


def remove_operands(main: Block) -> Iterator[Rewrite]:
    """Propose to remove an operand, or to pass None; not in calls of subgraphs."""
    for line in reversed(main.statements):
        members = {f"self.{attribute}" for attribute, _ in main.members}
        if line.reads & members:
            continue
        kinds = {leaf.number: leaf.kind for leaf in line.leaves}
        for leaf in reversed(line.leaves):
            if leaf.kind is not LeafKind.VALUE:
                continue
            if leaf.parent is None and line.is_operator:
                yield _alternatives(main, line.name, leaf.number, ("", "None"))
            elif leaf.parent is not None and kinds[leaf.parent] is LeafKind.LIST:
                yield _alternatives(main, line.name, leaf.number, ("",))


def _alternatives(
    block: Block, line: str, leaf: int, texts: tuple[str, ...]
) -> Rewrite:
    """Propose several texts for a leaf; the first valid one is used."""
    changes = tuple(Write(block.name, line, leaf, text) for text in texts)
    return Rewrite(changes, partly=True)


# Redirects: the readers of a value read another value of the same type.
#
#     a -> relu -> b        becomes        a -> b
#
# A value without readers is removed, and so are values that only it has read.

Like = tuple[str, tuple[int, ...], str]
"""Dtype, shape and device, which two interchangeable values must have in common."""

Likes = Mapping[str, Like]
"""The types of a block's values, by their expressions in statements.

They are in the order of definition, inputs and weights first.
"""


def types_in_block(listing: PrintedProgram, types: Types, block: Block) -> Likes:
    """Return the types of a block's values, as far as they are known."""
    by_name = {}
    if block is listing.main:
        for tensor in (*listing.inputs, *listing.weights):
            spec = tensor.recipe()
            by_name[tensor.spelling] = spec.dtype, spec.shape, spec.device
    computed = (line.name for line in block.statements if line.yields)
    for name in (*block.arguments, *computed):
        if known := types.get((block.name, name)):
            by_name[name] = known.dtype, known.shape, known.device
    return by_name


def redirect_readers(block: Block, name: str, to: str) -> tuple[Write, ...]:
    """Replace a value by another one in all its readers."""
    return tuple(
        Write(block.name, line.name, leaf.number, to)
        for line in block.statements
        for leaf in line.leaves
        if leaf.kind is LeafKind.VALUE and leaf.text == name
    )


def find_replacements(block: Block, known: Likes, name: str) -> list[str]:
    """List replacements for a value that a block computes, the best first.

    These are an earlier statement with the same code; then operands of the same type;
    else the nearest value of that type upstream, or the first one of the block.
    """
    lines = {line.name: line for line in block.statements}
    end = _index(block, name)
    equal = [n.name for n in block.statements[:end] if n.code == lines[name].code]
    earlier = {line.name for line in block.statements[:end]}
    before = [other for other in known if other not in lines or other in earlier]
    like = known.get(name)
    fitting = [other for other in before if like and known[other] == like]
    upstream = [other for other in block.upstream_of(name) if other in fitting]
    operands = [other for other in upstream if other in lines[name].reads]
    return [*equal[:1], *(operands or [*upstream, *fitting][:1])]


def _of_one_element(block: Block, known: Likes, name: str) -> list[str]:
    """List the first one-element operand of a one-element value with another rank."""
    line, like = block.statement(name), known.get(name)
    operands = (leaf.text for leaf in line.leaves if leaf.text in line.reads)
    return [other for other in operands if _are_single(like, known.get(other))][:1]


def _are_single(one: Like | None, other: Like | None) -> bool:
    """Return whether two values have one element each and differ only in rank."""
    if one is None or other is None:
        return False
    return (one[0], one[2]) == (other[0], other[2]) and {*one[1], *other[1]} <= {1}


def propose_redirects(
    block: Block, known: Likes, tried: Container[tuple[str, str]] = ()
) -> Iterator[Rewrite]:
    """Propose for each statement, the last one first, that nothing reads it.

    Args:
        tried: pairs of a value and a replacement that was already tested.
    """
    ranked = []
    for line in reversed(block.statements):
        if not line.yields or line.may_have_effects:
            continue
        others = find_replacements(block, known, line.name)
        untried = [other for other in others if (line.name, other) not in tried]
        others = [] if others else _of_one_element(block, known, line.name)
        untried += [other for other in others if (line.name, other) not in tried]
        ranked += [
            (n, redirect_readers(block, line.name, o)) for n, o in enumerate(untried)
        ]
        results = projections(block, line.name).values()
        pairs = [(r.name, find_replacements(block, known, r.name)) for r in results]
        if len(pairs) > 1 and all(instead for _, instead in pairs):
            writes = [
                redirect_readers(block, name, instead[0]) for name, instead in pairs
            ]
            ranked.append((0, tuple(write for each in writes for write in each)))
    # Second choices come last, because all first choices can be made at once.
    yield from (Rewrite(w) for _, w in sorted(ranked, key=lambda pair: pair[0]) if w)


def _index(block: Block, name: str) -> int:
    """Return the index of a value's statement; for a projection, of its operator."""
    places = {line.name: place for place, line in enumerate(block.statements)}
    for line in block.statements:
        if name in (result.name for result in projections(block, line.name).values()):
            return places[line.name]
    return places[name]


def while_loops(listing: PrintedProgram) -> Iterator[tuple[Call, Block, Block]]:
    """Yield the while loops, each with its test and its body."""
    for call in all_calls(listing):
        if call.statement.callee.endswith(".while_loop") and len(call.blocks) == 2:
            test, body = (listing.block(name) for name in call.blocks)
            yield call, test, body


def tested_arguments(test: Block) -> list[int]:
    """Return the positions of the arguments that a loop's test reads."""
    reads = frozenset[str]().union(*(line.reads for line in test.statements))
    return [n for n, argument in enumerate(test.arguments) if argument in reads]


def results_tested(listing: PrintedProgram) -> dict[str, set[int]]:
    """Map bodies to the leaves of the results that the loop's test reads."""
    tested = {}
    for _, test, body in while_loops(listing):
        results = returned_leaves(body)
        places = [place for place in tested_arguments(test) if place < len(results)]
        tested[body.name] = {results[place].number for place in places}
    return tested


def loop_control_statements(listing: PrintedProgram) -> frozenset[tuple[str, str]]:
    """Collect the statements of bodies that a test depends on, as (block, name).

    Simplifying them may make a loop run forever.
    """
    statements = set()
    for _, test, body in while_loops(listing):
        results = returned_leaves(body)
        names = {results[n].text for n in tested_arguments(test) if n < len(results)}
        statements |= {(body.name, name) for name in body.ancestors(names)}
    return frozenset(statements)


def literals(test: Block) -> Iterator[tuple[str, int, str]]:
    """Yield the numbers that a test compares with: statement, leaf and text."""
    for line in test.statements:
        for leaf in line.leaves:
            is_number = leaf.kind is LeafKind.NUMBER and leaf.text.isdecimal()
            if line.is_operator and is_number:
                yield line.name, leaf.number, leaf.text


def reduce_iterations(listing: PrintedProgram) -> Iterator[Rewrite]:
    """Propose that a loop iterates once, or twice."""
    for _, test, _ in while_loops(listing):
        for line, leaf, text in literals(test):
            yield from (
                Rewrite((Write(test.name, line, leaf, str(count)),))
                for count in (1, 2)
                if count < int(text)
            )


def is_endless(rewrite: Rewrite, block: Block, tests: Collection[int]) -> bool:
    """Return whether a rewrite makes a loop test an argument that never changes."""
    return any(
        isinstance(change, Write)
        and (change.statement, change.text in block.arguments) == (RETURN, True)
        and change.leaf in tests
        for change in rewrite.changes
    )


def drop_unread(listing: PrintedProgram) -> Iterator[Rewrite]:
    """Propose to drop unread results and arguments: all at once, then each alone."""
    drops: list[Change] = []
    for call in all_calls(listing):
        block = listing.block(call.caller)
        results = len(returned_leaves(listing.block(call.returning[0])))
        taken = projections(block, call.statement.name)
        drops += [
            DropResult(block.name, call.statement.name, place)
            for place in range(results)
            if place not in taken
        ]
        arguments = listing.block(call.blocks[0]).arguments
        drops += [DropArgument(call.blocks[0], n) for n in arguments[call.carried :]]
    if len(drops) > 1:
        yield Rewrite(tuple(drops), partly=True)
    yield from (Rewrite((drop,)) for drop in drops)


def merge_arguments(
    listing: PrintedProgram, known: Mapping[str, Likes]
) -> Iterator[Rewrite]:
    """Propose that blocks read the first argument of a type instead of another one."""
    for call in all_calls(listing):
        blocks = [listing.block(name) for name in call.blocks]
        first: dict[object, int] = {}
        for place, name in enumerate(blocks[-1].arguments):
            same = first.setdefault(known[blocks[-1].name].get(name, place), place)
            if same == place or any(len(b.arguments) <= place for b in blocks):
                continue
            changes: list[Change] = []
            for block in blocks:
                arguments = block.arguments
                changes += redirect_readers(block, arguments[place], arguments[same])
            if place < call.carried:
                changes += [DropResult(call.caller, call.statement.name, place)]
            else:
                changes += [DropArgument(blocks[-1].name, name)]
            yield Rewrite(tuple(changes))


def one_branch(listing: PrintedProgram) -> Iterator[Rewrite]:
    """Propose to call one branch in place of both."""
    for call in all_calls(listing):
        if call.statement.callee != "torch.cond" or len(call.blocks) != 2:
            continue
        for chosen in call.callees:
            writes = (
                Write(call.caller, call.statement.name, leaf.number, chosen.text)
                for leaf in call.callees
            )
            yield Rewrite(tuple(writes))


def return_arguments(
    block: Block, known: Likes, tests: Collection[int]
) -> Iterator[Rewrite]:
    """Propose to return the arguments of a block: for all results whose types match."""
    writes = tuple(
        Write(block.name, RETURN, leaf.number, argument)
        for leaf in returned_leaves(block)
        if leaf.text not in block.arguments and leaf.number not in tests
        for argument in block.arguments
        if leaf.text in known and known.get(argument) == known[leaf.text]
    )
    if writes:
        yield Rewrite(writes, partly=True)

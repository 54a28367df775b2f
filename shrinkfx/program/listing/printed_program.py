"""The printed program: statements, calls of blocks, and what is known to be minimal."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.display_text import join_words
from shrinkfx.program.listing.tensor_specs import TensorSpec
from shrinkfx.program.record import Record, to_json

# It is the form in which people read a program, as data. Only the worker knows the
# semantics of operators and whether a printed program is valid; this module knows
# only names.

MAIN = "Repro"
"""The block that is run; the others are called by its higher-order operators."""


class Run(StrEnum):
    """A call of the program; an input may have other values in each call."""

    EXAMPLE = "example"
    """The inputs that the program is exported with."""
    PASSING = "passing"
    """An earlier call, on which the program passes."""
    FAILING = "failing"
    """The failing call; an input without its own value has that of the example."""


@dataclass(frozen=True)
class InputOrWeight(Record):
    """An input or a weight.

    Attributes:
        kind: ``input``, ``parameter``, ``trainable_parameter``, ``buffer``,
            ``non_persistent_buffer``, ``constant``, ``script_object`` or
            ``saved_object``.
        recipes: tensor specs by run; a weight has only that of the example.
        open_dims: dynamic dims, each with the expression of its declaration.
    """

    name: str
    kind: str
    recipes: tuple[tuple[Run, TensorSpec], ...]
    open_dims: tuple[tuple[int, str], ...] = ()

    @property
    def is_input(self) -> bool:
        return self.kind == "input"

    @property
    def spelling(self) -> str:
        """The expression that statements use for it."""
        return self.name if self.is_input else f"self.{self.name}"

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "recipes": to_json(dict(self.recipes))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return super().from_json({**data, "recipes": data["recipes"].items()})

    def recipe(self, run: Run = Run.EXAMPLE) -> TensorSpec:
        """Return the tensor spec in a run."""
        known = dict(self.recipes)
        return known.get(run, known[Run.EXAMPLE])

    def with_recipe(self, run: Run, recipe: TensorSpec) -> Self:
        """Change the tensor spec in a run; one that equals the example's is dropped."""
        known = {**dict(self.recipes), run: recipe}
        example = known[Run.EXAMPLE]
        pairs = [(r, known[r]) for r in Run if r in known]
        unique = [(r, spec) for r, spec in pairs if r is Run.EXAMPLE or spec != example]
        return replace(self, recipes=tuple(unique))

    def with_single_run(self, run: Run) -> Self:
        """Make the values of a run the failing ones, and drop those of other runs."""
        example = ((Run.EXAMPLE, self.recipe()),)
        alone = replace(self, recipes=example)
        return alone.with_recipe(Run.FAILING, self.recipe(run))


@dataclass(frozen=True)
class Dim:
    """The declaration of a dynamic dim.

    Attributes:
        high: the upper bound; None if there is none.
    """

    name: str
    low: int
    high: int | None

    def to_json(self) -> list[str | int | None]:
        return [self.name, self.low, self.high]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Self:
        return cls(*data)

    def holds(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    def line(self) -> str:
        span = [f"min={self.low}"] if self.low > 0 else []
        span += [] if self.high is None else [f"max={self.high}"]
        return f"{self.name} = torch.export.Dim({', '.join([f'{self.name!r}', *span])})"


@dataclass(frozen=True)
class Block(Record):
    """The ``forward`` of a module: of the program, or of a branch or loop body.

    Attributes:
        name: the name of the class.
        members: attribute and class of each submodule.
        statements: the statements; the last one is the return.
    """

    name: str
    arguments: tuple[str, ...]
    members: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]

    def find(self, name: str) -> Statement | None:
        """Return the first statement with a name, or None."""
        return next((each for each in self.statements if each.name == name), None)

    def statement(self, name: str) -> Statement:
        """Return the statement with a name.

        Raises:
            InvalidEdit: there is none.
        """
        if (found := self.find(name)) is None:
            raise InvalidEdit(f"{self.name} has no statement {name}")
        return found

    def upstream_of(self, name: str) -> Iterator[str]:
        """Yield the values upstream of a value, the nearest first."""
        lines = {line.name: line for line in self.statements}
        waiting, seen = deque([name]), {name}
        while waiting:
            line = lines.get(waiting.popleft())
            for operand in (leaf.text for leaf in line.leaves) if line else ():
                if line and operand in line.reads and operand not in seen:
                    seen.add(operand)
                    waiting.append(operand)
                    yield operand

    def ancestors(self, names: Iterable[str]) -> frozenset[str]:
        """Collect values and all values that they are computed from."""
        return frozenset(names).union(*map(self.upstream_of, names))

    @cached_property
    def needed_statements(self) -> tuple[Statement, ...]:
        """The statements that are needed by the return or have side effects."""
        names: set[str] = set()
        needed = []
        for statement in reversed(self.statements):
            if (
                not statement.yields
                or statement.name in names
                or statement.may_have_effects
            ):
                needed.append(statement)
                names |= statement.reads
        return tuple(reversed(needed))

    def normalised(self) -> Self:
        """Remove unneeded statements and members.

        The arguments stay, because callers pass them.
        """
        reads = frozenset[str]().union(*(s.reads for s in self.needed_statements))
        members = [pair for pair in self.members if f"self.{pair[0]}" in reads]
        return replace(self, members=tuple(members), statements=self.needed_statements)


@dataclass(frozen=True)
class PrintedProgram(Record):
    """A program as statements, with its inputs and weights.

    Attributes:
        blocks: the blocks; each follows those that it calls, so ``MAIN`` is last.
        given: the weights, then the arguments of ``forward`` in order.
        dims: the declarations that ``open_dims`` refer to.
    """

    blocks: tuple[Block, ...]
    given: tuple[InputOrWeight, ...]
    dims: tuple[Dim, ...] = ()

    @property
    def main(self) -> Block:
        return self.blocks[-1]

    @property
    def nbytes(self) -> int:
        """The bytes of all inputs and weights, in all runs."""
        return sum(recipe.nbytes for each in self.given for _, recipe in each.recipes)

    def block(self, name: str) -> Block:
        """Return the block with a name.

        Raises:
            InvalidEdit: there is none.
        """
        for each in self.blocks:
            if each.name == name:
                return each
        raise InvalidEdit(f"there is no block {name}")

    def find(self, name: str) -> InputOrWeight:
        """Return the input or weight with a name.

        Raises:
            InvalidEdit: there is none.
        """
        for each in self.given:
            if each.name == name:
                return each
        raise InvalidEdit(f"there is no input or weight {name}")

    @property
    def inputs(self) -> tuple[InputOrWeight, ...]:
        return tuple(each for each in self.given if each.is_input)

    @property
    def weights(self) -> tuple[InputOrWeight, ...]:
        return tuple(each for each in self.given if not each.is_input)

    def operators(self) -> Iterator[tuple[Block, Statement]]:
        """Yield the operators of all blocks, in order."""
        lines = ((block, line) for block in self.blocks for line in block.statements)
        yield from ((block, line) for block, line in lines if line.is_operator)

    def with_single_run(self, run: Run) -> Self:
        """Return the program with the inputs of one run as its only inputs."""
        return replace(
            self, given=tuple(each.with_single_run(run) for each in self.given)
        )

    def normalised(self) -> Self:
        """Remove unneeded statements, blocks, inputs and dims.

        Raises:
            InvalidEdit: no operator would remain.
        """
        main = self.main.normalised()
        reads = frozenset[str]().union(*(s.reads for s in main.statements))
        tensors = tuple(each for each in self.given if each.spelling in reads)
        arguments = tuple(name for name in main.arguments if name in reads)
        declared = " ".join(how for each in tensors for _, how in each.open_dims)
        named = set(re.findall(r"\w+", declared))
        if not any(s.is_operator for s in main.statements):
            raise InvalidEdit("nothing would be left")
        return replace(
            self,
            blocks=(*_called(main, self.blocks), replace(main, arguments=arguments)),
            given=tensors,
            dims=tuple(dim for dim in self.dims if dim.name in named),
        )

    @cached_property
    def cost(self) -> tuple[int, int, int, int]:
        """The cost that an edit may lower, compared lexicographically.

        It consists of the number of operators, the number of elements of inputs and
        weights, the complexity of specs, statements and arguments, and the sum of the
        integers in statements. It counts elements and not bytes, because a simple dtype
        may need more bytes, and a contiguous tensor more than an expanded one.
        """
        operators = sum(1 for _ in self.operators())
        recipes = [recipe for each in self.given for _, recipe in each.recipes]
        plainness = sum(recipe.complexity for recipe in recipes)
        plainness += sum(s.weight for block in self.blocks for s in block.statements)
        plainness += sum(16 + 4 * len(each.open_dims) for each in self.given)
        plainness += 4 * len(self.weights) + sum(len(dim.line()) for dim in self.dims)
        elements = sum(recipe.elements for recipe in recipes)
        total = sum(s.total for block in self.blocks for s in block.statements)
        return operators, elements, plainness, total

    def with_block(self, block: Block) -> Self:
        """Replace the block of the same name."""
        blocks = tuple(block if b.name == block.name else b for b in self.blocks)
        return replace(self, blocks=blocks)

    def with_given(self, tensor: InputOrWeight) -> Self:
        """Replace the input or weight of the same name."""
        tensors = tuple(tensor if g.name == tensor.name else g for g in self.given)
        return replace(self, given=tensors)


def _called(main: Block, blocks: Sequence[Block]) -> list[Block]:
    """List the blocks that a block calls, also indirectly, in normal form."""
    wanted = {kind for _, kind in main.members}
    called = []
    for block in reversed(blocks[:-1]):
        if block.name in wanted:
            called.append(block.normalised())
            wanted |= {kind for _, kind in called[-1].members}
    return called[::-1]


# Statements of a printed program, and their leaves, which an edit can replace.
#
# A statement is Python in the normal form of ``ast.unparse``. Its leaves are the
# arguments of the call and their parts, numbered from 0 in text order:
#
#     view = torch.ops.aten.view.default(x, [2, 12])  0: x   1: [2, 12]   2: 2   3: 12

RETURN = "return"
"""The name of the statement that ends a block."""


class LeafKind(StrEnum):
    """The kind of a leaf."""

    VALUE = "value"
    """A name, or an attribute of ``self``: a value that is defined before."""
    NUMBER = "number"
    """A literal: number, truth value, None or string."""
    WORD = "word"
    """A name in torch, such as ``torch.float32``."""
    LIST = "list"
    """A list, tuple or dict; its items are leaves, too."""
    SIZE = "size"
    """An expression such as ``x.shape[0]``; its operands are leaves, too."""


@dataclass(frozen=True)
class Leaf:
    """A leaf of a statement.

    Attributes:
        text: the present text.
        parent: the number of the list that contains it, or None.
        keyword: the keyword that it is passed by, or None.
    """

    number: int
    kind: LeafKind
    text: str
    parent: int | None = None
    keyword: str | None = None

    @property
    def weight(self) -> int:
        """The complexity: all names are equal, and 2 is less than 5."""
        match self.kind:
            case LeafKind.VALUE:
                return 2
            case LeafKind.LIST:
                return 1
        if self.text in _USUAL:
            return 1
        is_integer = self.text.isdecimal()
        length = int(self.text).bit_length() if is_integer else len(self.text)
        return 2 + min(length, 16)


_USUAL = frozenset({"0", "1", "None", "False", "True", "torch.float32"})


@dataclass(frozen=True)
class Statement:
    """One line of a block.

    Attributes:
        name: the value that it defines; for a statement without a value, its callee;
            for the last one, ``RETURN``.
        code: the right side; the whole line of a statement without a value; the
            returned expression of the last one.
        origin: the user's line that it comes from, or ''.
        acts: whether it has side effects, according to the worker.
    """

    name: str
    code: str
    origin: str = ""
    acts: bool = False

    @classmethod
    def parse_line(cls, line: str) -> Self:
        """Parse a line, with its comment.

        Raises:
            ValueError: the line is no such statement.
        """
        tree = ast.parse(line).body
        match tree:
            case [ast.Assign([ast.Name(name)], value)]:
                pass
            case [ast.Return(ast.expr() as value)]:
                name = RETURN
            case [ast.Expr(ast.Call(function) as value)]:
                name = ast.unparse(function)
            case _:
                raise ValueError(f"no statement of a program: {line:.80}")
        rest = line.encode()[tree[0].end_col_offset or 0 :].decode()
        return cls(name, ast.unparse(value), rest.strip().removeprefix("# "))

    @property
    def yields(self) -> bool:
        """Whether it defines a value."""
        return self.name.isidentifier() and self.name != RETURN

    @cached_property
    def callee(self) -> str:
        """The callee, such as ``torch.ops.aten.add.Tensor``; '' if there is none."""
        tree = _tree(self.code)
        return ast.unparse(tree.func) if isinstance(tree, ast.Call) else ""

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator, and no projection or arithmetic on sizes."""
        return self.yields and self.callee.startswith(("torch.ops.", "torch.cond"))

    @property
    def may_have_effects(self) -> bool:
        """Whether it may have side effects.

        The worker reports side effects. In addition, in-place operators end in an
        underscore, assertions have it in their names, and methods of objects may do
        anything.
        """
        parts = self.callee.split(".")
        named = parts[0] == "self" or any(map(_ACTS.search, parts[-2:]))
        return self.acts or named

    @cached_property
    def weight(self) -> int:
        """The complexity of all leaves, plus a constant."""
        return 8 + sum(leaf.weight for leaf in self.leaves)

    @cached_property
    def total(self) -> int:
        """The sum of the integers: 974 weighs as much as 975, but its sum is lower."""
        return sum(int(x.text) for x in self.leaves if x.text.isdecimal())

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf, _ in _leaves(_tree(self.code)))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names that it reads; an attribute of ``self`` as ``self.name``."""
        names = set()
        tree = _tree(self.code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _is_self(node.value):
                names.add(f"self.{node.attr}")
            elif isinstance(node, ast.Name) and node.id not in _WORDS:
                names.add(node.id)
        return frozenset(names)

    def written(self, texts: Mapping[int, str]) -> Self:
        """Replace leaves by texts; '' removes an argument or an item of a list.

        Raises:
            InvalidEdit: there is no such leaf, the text is no expression, or the leaf
                cannot be removed.
        """
        tree = ast.parse(self.code, mode="eval").body
        leaves = {leaf.number: node for leaf, node in _leaves(tree)}
        if missing := sorted(texts.keys() - leaves.keys()):
            raise InvalidEdit(f"{self.name} has no leaf {missing[0]}")
        wanted = {id(leaves[number]): text for number, text in texts.items()}
        return replace(self, code=ast.unparse(_Writer(wanted).visit(tree)))

    def to_json(self) -> list[str | bool]:
        """Return the fields; ``acts`` only if it is true."""
        return [self.name, self.code, self.origin, *([True] if self.acts else [])]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Self:
        return cls(*data)

    def line(self) -> str:
        """Return the line, with its comment."""
        if self.name == RETURN:
            code = f"return {self.code}"
        else:
            code = f"{self.name} = {self.code}" if self.yields else self.code
        return f"{code}  # {self.origin}" if self.origin else code


_ACTS = re.compile(r"[^_]_$|^__i\w+__$|_mutation$|assert")
"""Patterns in names of mutating operators: ``add_``, ``__ior__``; not ``__or__``."""

_WORDS = frozenset({"torch", "self", "operator", "math", "float", "slice"})


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@cache
def _tree(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


def _leaves(tree: ast.expr) -> Iterator[tuple[Leaf, ast.expr]]:
    """Yield the numbered leaves of an expression; the callee is not a leaf."""
    count = 0

    def walk(
        node: ast.expr, parent: int | None = None, keyword: str | None = None
    ) -> Iterator[tuple[Leaf, ast.expr]]:
        nonlocal count
        number, kind = count, _kind(node)
        count += 1
        yield Leaf(number, kind, ast.unparse(node), parent, keyword), node
        if kind in (LeafKind.LIST, LeafKind.SIZE):
            for child in _parts(node):
                yield from walk(child, number)

    if isinstance(tree, ast.Call) and _kind(tree) is LeafKind.SIZE:
        for argument in tree.args:
            yield from walk(argument)
        for word in tree.keywords:
            yield from walk(word.value, keyword=word.arg)
    else:
        yield from walk(tree)


def _parts(node: ast.expr) -> list[ast.expr]:
    """List the parts of an expression, in text order."""
    callee = node.func if isinstance(node, ast.Call) else None
    parts = [part for part in ast.iter_child_nodes(node) if part is not callee]
    nodes = [p.value if isinstance(p, ast.keyword) else p for p in parts]
    operands = [part for part in nodes if isinstance(part, ast.expr)]
    return sorted(operands, key=lambda part: (part.lineno, part.col_offset))


def _kind(node: ast.expr) -> LeafKind:
    match node:
        case ast.Name() | ast.Attribute(ast.Name("self")):
            return LeafKind.VALUE
        case ast.Constant() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return LeafKind.NUMBER
        case ast.Call(ast.Name("float")) | ast.BinOp(right=ast.Constant(complex())):
            return LeafKind.NUMBER
        case ast.Attribute() if ast.unparse(node).startswith("torch."):
            return LeafKind.WORD
        case ast.Call(ast.Attribute(ast.Name("torch"), "device")):
            return LeafKind.WORD
        case ast.List() | ast.Tuple() | ast.Dict():
            return LeafKind.LIST
    return LeafKind.SIZE


class _Writer(ast.NodeTransformer):
    """Replace some expressions."""

    def __init__(self, wanted: Mapping[int, str]) -> None:
        self._wanted = wanted

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - as its base has it
        text = self._wanted.get(id(node))
        if text is None:
            return super().visit(node)
        if not text:
            raise InvalidEdit("that cannot be taken away")
        try:
            return ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise InvalidEdit(f"no expression: {text:.80}") from error

    def visit_List(self, node: ast.List) -> ast.AST:
        node.elts = self._kept(node.elts)
        return self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        node.elts = self._kept(node.elts)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = self._kept(node.args)
        node.keywords = [k for k in node.keywords if self._is_kept(k.value)]
        return self.generic_visit(node)

    def _kept(self, items: list[ast.expr]) -> list[ast.expr]:
        return [item for item in items if self._is_kept(item)]

    def _is_kept(self, node: ast.expr) -> bool:
        return self._wanted.get(id(node)) != ""


@dataclass(frozen=True)
class ListedType:
    """The type of a value in a printed program, at the sizes of its example."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cpu"


Types = Mapping[tuple[str, str], ListedType]
"""Types by the name of a block and of an argument or a statement in it."""

UNTYPED: Types = MappingProxyType({})
"""No types are known."""


class Kind(StrEnum):
    """A kind of simplification; each kind is minimal or not, independently."""

    SIZES = "sizes"
    """Sizes of inputs, weights and computed values; ranges of dynamic dims."""
    VALUES = "values"
    """Elements of inputs."""
    WEIGHTS = "weights"
    """Elements of weights, and whether they are weights at all."""
    DTYPES = "dtypes"
    LAYOUTS = "layouts"
    ARGUMENTS = "arguments"
    """Numbers, flags and lists that are passed to operators."""
    OPERANDS = "operands"
    """The values that operators read, if others of the same type are available."""
    BRANCHES = "branches"
    """Statements of branches and loop bodies."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Accept the word of earlier versions."""
        return cls.BRANCHES if value == OLD_BRANCHES else None


OLD_BRANCHES = "insides"
"""What versions before 0.2 call branches."""

# Claims about a result: the kinds that are minimal, and the kinds not tested.
#
# Each kind has a text: ``1-minimal``, ``kept``, or ``not tested: minutes are short``.

OPERATORS = "operators"
"""The kind that is tested before all kinds of printed programs."""

MINIMAL = "1-minimal"

PLAINEST = "no simpler values fail"
"""The claim for numbers, because not all of them can be tested."""

KEPT = "kept"
"""The claim for a kind that is unchanged because the user asked for that."""

_NOT_TESTED = "not tested: "
_OLD_NOT_TESTED = "not asked: "


def claim_not_tested(why: str) -> str:
    """Return the claim for a kind that was not tested."""
    return f"{_NOT_TESTED}{why}"


def group_untested_kinds(claims: Mapping[str, str]) -> dict[str, list[str]]:
    """Group the kinds that were not tested by the reason."""
    groups: dict[str, list[str]] = {}
    for kind, claim in claims.items():
        if claim.startswith((_NOT_TESTED, _OLD_NOT_TESTED)):
            groups.setdefault(claim.partition(": ")[2], []).append(str(kind))
    return groups


def group_kinds_by_claim(claims: Mapping[str, str]) -> list[tuple[str, str]]:
    """Group kinds by their claims."""
    kinds: dict[str, list[str]] = {}
    for kind, claim in claims.items():
        kinds.setdefault(claim, []).append(str(kind))
    return [(", ".join(some), claim) for claim, some in kinds.items()]


def describe_minimality(claims: Mapping[str, str]) -> str:
    """State in a sentence what was tested without success, and what was not tested."""
    minimal = [
        str(kind) for kind, claim in claims.items() if claim in (MINIMAL, PLAINEST)
    ]
    untested = [
        kind for kinds in group_untested_kinds(claims).values() for kind in kinds
    ]
    if not minimal:
        return "It is not known whether a smaller program fails."
    suffix = f" Not tested: {join_words(untested)}." if untested else ""
    tried = ", or ".join(_tried(minimal, untested))
    return f"The failure disappears {tried}.{suffix}"


def _tried(minimal: Sequence[str], untested: Sequence[str]) -> Iterator[str]:
    if OPERATORS in minimal:
        yield "without any one operator"
    if Kind.SIZES in minimal:
        yield "with a size at its minimum or smaller by one"
    if simpler := [kind for kind in minimal if kind not in (OPERATORS, Kind.SIZES)]:
        is_all = {*untested} <= {OPERATORS, str(Kind.SIZES)}
        forms = "forms" if is_all else f"{join_words(simpler)}"
        yield f"with any of the simpler {forms} that were tried"


# Calls of branches and loop bodies: their arguments and results.
#
#     loop = while_loop(self.test, self.body, (i, h), (w,))    calls test(i, h, w)
#     getitem = loop[1]                                        and body(i, h, w)
#
# The operands of a call are in its lists, in the order of the blocks' arguments. The
# values that a loop carries come first; the body returns them, and the next iteration
# gets them.

_CARRIES = re.compile(r"\.(while_loop|scan)$")
_RETURNS_LAST = re.compile(r"\.while_loop$")
"""The first of its two blocks only decides whether the loop continues."""

_PROJECTION = re.compile(r"(\w+)\[(\d+)\]")


@dataclass(frozen=True)
class Call:
    """A statement that calls blocks.

    Attributes:
        caller: the name of the block that contains the statement.
        callees: the leaves that name the called blocks.
        blocks: the names of those blocks, each once, in order.
        operands: the leaves that are passed to the blocks, by position.
        carried: how many of the operands, from the first, are carried by a loop.
    """

    caller: str
    statement: Statement
    callees: tuple[Leaf, ...]
    blocks: tuple[str, ...]
    operands: tuple[Leaf, ...]
    carried: int

    @property
    def returning(self) -> tuple[str, ...]:
        """The blocks whose results are those of the call."""
        last = _RETURNS_LAST.search(self.statement.callee)
        return self.blocks[-1:] if last else self.blocks


def calls_of(block: Block) -> Iterator[Call]:
    """Yield the calls in a block."""
    kinds = {f"self.{attribute}": kind for attribute, kind in block.members}
    for line in block.statements:
        top_level = [leaf for leaf in line.leaves if leaf.parent is None]
        callees = [leaf for leaf in top_level if _method(leaf) in kinds]
        if callees and line.is_operator:
            called = dict.fromkeys(kinds[_method(leaf)] for leaf in callees)
            lists = [leaf.number for leaf in top_level if leaf.kind is LeafKind.LIST]
            operands = [leaf for leaf in line.leaves if leaf.parent in lists]
            carries = _CARRIES.search(line.callee) and lists
            carried = sum(o.parent == lists[0] for o in operands) if carries else 0
            parts = tuple(callees), tuple(called), tuple(operands), carried
            yield Call(block.name, line, *parts)


def _method(leaf: Leaf) -> str:
    return leaf.text.removesuffix(".forward")


def all_calls(listing: PrintedProgram) -> list[Call]:
    return [call for block in listing.blocks for call in calls_of(block)]


def projections(block: Block, name: str) -> dict[int, Statement]:
    """Map result numbers to the statements that select these results of a statement."""
    by_number = {}
    for statement in block.statements:
        match = _PROJECTION.fullmatch(statement.code)
        if match and match[1] == name:
            by_number[int(match[2])] = statement
    return by_number


def returned_leaves(block: Block) -> list[Leaf]:
    """List the returned values of a block, if it returns a list."""
    leaves = block.statement(RETURN).leaves
    return [leaf for leaf in leaves if leaf.parent == leaves[0].number]


def cut_before(listing: PrintedProgram, names: Collection[str]) -> PrintedProgram:
    """Remove operators of the main block, and return the tensors that they read.

    If they read a size, the tensor that has this size is returned. Statements that are
    computed from their results are removed, too.

    Raises:
        InvalidEdit: they read no result of another operator.
    """
    main = listing.main
    removed: set[str] = set()
    remaining: list[Statement] = []
    needed: set[str] = set()
    for line in main.statements[:-1]:
        if line.name not in names and not line.reads & removed:
            remaining.append(line)
            continue
        needed |= line.reads if line.name in names else set()
        removed |= {line.name} if line.yields else set()
    for line in reversed(remaining):
        needed |= line.reads if line.name in needed and _is_number(line) else set()
    tensors: list[str] = []
    for line in remaining:
        if line.name in needed and not _is_number(line):
            results = projections(main, line.name).values()
            tensors += [each.name for each in results] or [line.name]
    tensors = list(dict.fromkeys(tensors))
    if not tensors:
        raise InvalidEdit("nothing would be returned")
    end = Statement.parse_line(f"return ({', '.join(tensors)},)")
    return listing.with_block(replace(main, statements=(*remaining, end))).normalised()


_NUMBER = re.compile(r"\.(item|_local_scalar_dense|sym_\w+)\.")
"""Operators whose result is a number."""


def _is_number(line: Statement) -> bool:
    """Return whether a statement yields a number, such as a size, and not a tensor."""
    if line.is_operator:
        return bool(_NUMBER.search(line.callee))
    return not _PROJECTION.fullmatch(line.code)


def require_results(old: PrintedProgram, new: PrintedProgram) -> None:
    """Check that a program with results still has results.

    A program without results can be exported, but ``torch.export.save`` does not save
    it.

    Raises:
        InvalidEdit: all results are gone.
    """
    if returned_leaves(old.main) and new.main.statement(RETURN).code in ("()", "[]"):
        raise InvalidEdit("nothing would be returned")


def without_argument(
    listing: PrintedProgram, name: str, argument: str
) -> PrintedProgram:
    """Remove an argument from the block ``name`` and from all blocks called with it.

    Raises:
        InvalidEdit: a block reads the argument, or it is carried by a loop.
    """
    if argument not in listing.block(name).arguments:
        raise InvalidEdit(f"{name} has no argument {argument}")
    place = listing.block(name).arguments.index(argument)
    calls = [call for call in all_calls(listing) if name in call.blocks]
    for call in calls:
        if place < call.carried:
            raise InvalidEdit("what is carried is a result, too")
        listing = _without_operand(listing, call, place)
    if not calls:
        raise InvalidEdit(f"nothing calls {name}")
    return listing


def without_result(
    listing: PrintedProgram, caller: str, name: str, place: int
) -> PrintedProgram:
    """Remove a result from a call and its blocks; a carried one also as an argument.

    Raises:
        InvalidEdit: the result is read, or it is the only one.
    """
    block = listing.block(caller)
    call = next((c for c in calls_of(block) if c.statement.name == name), None)
    picks = projections(block, name)
    if call is None or place in picks or _is_read_whole(block, name):
        raise InvalidEdit(f"no result {place} of {name} can go")
    for each in call.returning:
        listing = _without_return(listing, listing.block(each), place)
    if place < call.carried:
        listing = _without_operand(listing, call, place)
    lines = {s.name: _renumbered(s, name, n - 1) for n, s in picks.items() if n > place}
    return _with_lines(listing, caller, lines)


def _is_read_whole(block: Block, name: str) -> bool:
    """Return whether a statement other than a projection reads ``name``."""
    selected = {statement.name for statement in projections(block, name).values()}
    others = [s for s in block.statements if s.name not in selected]
    return any(name in statement.reads for statement in others)


def _without_operand(listing: PrintedProgram, call: Call, place: int) -> PrintedProgram:
    for name in call.blocks:
        block = listing.block(name).normalised()
        if len(block.arguments) != len(call.operands):
            raise InvalidEdit(f"{name} is not called with its arguments one by one")
        removed = block.arguments[place]
        if any(removed in statement.reads for statement in block.statements):
            raise InvalidEdit(f"{name} reads {removed}")
        arguments = (*block.arguments[:place], *block.arguments[place + 1 :])
        listing = listing.with_block(replace(block, arguments=arguments))
    line = call.statement.written({call.operands[place].number: ""})
    return _with_lines(listing, call.caller, {line.name: line})


def _without_return(
    listing: PrintedProgram, block: Block, place: int
) -> PrintedProgram:
    leaves = returned_leaves(block)
    if not place < len(leaves) or len(leaves) == 1:
        raise InvalidEdit(f"{block.name} has no result {place} besides others")
    line = block.statement(RETURN).written({leaves[place].number: ""})
    return _with_lines(listing, block.name, {RETURN: line})


def _renumbered(statement: Statement, of: str, place: int) -> Statement:
    return replace(statement, code=f"{of}[{place}]")


def _with_lines(
    listing: PrintedProgram, name: str, lines: dict[str, Statement]
) -> PrintedProgram:
    block = listing.block(name)
    new = tuple(lines.get(each.name, each) for each in block.statements)
    return listing.with_block(replace(block, statements=new))

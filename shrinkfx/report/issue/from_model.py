"""The parts of a user's model that a repro still contains, to review before sharing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.program.display_text import cut_text
from shrinkfx.program.listing.tensor_specs import is_power
from shrinkfx.program.skeleton import PYTORCH_NAMESPACES
from shrinkfx.protocol.record import Message
from shrinkfx.report.issue.code import find_program_class
from shrinkfx.report.issue.plain import PLACEHOLDER_NAME

_SHOWN = 6
"""Maximum entries of each kind that a line names."""


@dataclass(frozen=True)
class ModelRemains(Message):
    """The parts of a user's model that a repro still contains.

    Attributes:
        names: names of inputs, weights and sizes.
        operators: custom operators.
        constants: numbers and texts among the arguments of operators.
        values: inputs and weights with their exact values.
        sources: preloads and modules with their text, libraries next to the script, and
            an embedded program.
        places: files and modules in comments, which ISSUE.md omits.
        header: words of the header, which ISSUE.md omits too.
    """

    names: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    header: tuple[str, ...] = ()

    def in_words(self) -> str:
        """Return one line that lists all of it; '' if there is nothing."""
        remains = {
            "names": (*self.names, *self.operators),
            "constants": self.constants,
            "values of": self.values,
            "source of": self.sources,
            "comments that name": _unique([*self.places, *self.header]),
        }
        return "; ".join(
            f"{what} {', '.join(some[:_SHOWN])}" + _more(some)
            for what, some in remains.items()
            if some
        )


def _more(some: Sequence[str]) -> str:
    return f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""


def find_model_remains(script: str, carried: PreloadBundle) -> ModelRemains:
    """Find the parts of a user's model that a repro contains."""
    tree = ast.parse(script)
    module = find_program_class(tree) or ast.Module([], [])
    inputs = [n for n in tree.body if isinstance(n, ast.Assign) and _name(n) in _INPUTS]
    return ModelRemains(
        names=_unique([*_names(module), *_dims(tree)]),
        operators=_unique(_operators(module)),
        constants=_unique(_constants(module)),
        values=_unique([*_values(module), *_values(*inputs), *_numbers(*inputs)]),
        sources=(*_sources(carried), *_embedded(tree)),
        places=_unique(_places(script)),
        header=_unique([n for n in _FILE.findall(script) if n != PLACEHOLDER_NAME]),
    )


_FILE = re.compile(r"^# Made by: .*?([\w.-]+\.(?:pt2|py))\b", re.MULTILINE)

_INPUTS = ("args", "passing", "failing", "exported")

GENERIC = re.compile(
    r"(x|y|z|arg|args|arg\d+|[sux]\d+|[NMKL]\d*|weight|buffer|constant|object)(_\d+)*"
)
"""Matches names that shrinkfx or export generates."""


def _names(module: ast.AST) -> Iterator[str]:
    """Yield the names of inputs and weights that are not generated."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            yield from _own(each.arg for each in node.args.args)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            is_torch = _called(node.value).startswith("torch")
            if is_torch and isinstance(target, ast.Attribute):
                yield from _own([target.attr])
        elif isinstance(node, ast.Call) and _called(node) == "self.register_buffer":
            yield from _own([str(ast.literal_eval(node.args[0]))])


def _own(names: Iterator[str] | list[str]) -> Iterator[str]:
    yield from (n for n in names if n != "self" and not GENERIC.fullmatch(n))


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func) if isinstance(call.func, ast.Attribute) else ""


def _dims(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            is_dim = _called(node.value) == "torch.export.Dim"
            yield from _own([_name(node)]) if is_dim else ()


def _name(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def _operators(module: ast.AST) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            found = re.fullmatch(r"torch\.ops\.((\w+)\.\w+)", ast.unparse(node))
            if found and found[2] not in {*PYTORCH_NAMESPACES, "higher_order"}:
                yield found[1]


_PLAIN = {None, "cpu", "cuda", "none", "nan", "inf", "-inf", 0.5, *range(-16, 17)}
"""Constants that say nothing about a model."""


def _constants(module: ast.AST) -> Iterator[str]:
    """Yield the constants among the arguments of operators that may be the model's."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _called(node).startswith("torch.ops."):
            for argument in (*node.args, *(each.value for each in node.keywords)):
                for leaf in ast.walk(argument):
                    if isinstance(leaf, ast.Constant) and leaf.value not in _PLAIN:
                        yield cut_text(repr(leaf.value), 40)


def _values(*places: ast.AST) -> Iterator[str]:
    """Yield the names of tensors with exact values, instead of seeded ones."""
    for place in places:
        for node in ast.walk(place):
            if isinstance(node, ast.Call) and _is_literal(node):
                yield cut_text(ast.unparse(node), 40)
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "data":
                yield str(ast.literal_eval(node.slice))


def _is_literal(node: ast.Call) -> bool:
    name = ast.unparse(node.func)
    if name not in _OF_VALUES:
        return name == "unpack"
    values = ast.walk(node.args[_OF_VALUES[name]])
    leaves = (n.value for n in values if isinstance(n, ast.Constant))
    if name == "torch.full":  # the search simplifies values to powers
        leaves = (
            n for n in leaves if not isinstance(n, float | int) or not is_power(n)
        )
    return any(leaf not in _PLAIN for leaf in leaves)


_OF_VALUES = {"torch.tensor": 0, "torch.full": 1}
"""Constructors of tensors from values, and the position of that argument."""


def _numbers(*assigned: ast.Assign) -> Iterator[str]:
    """Yield inputs that are numbers or texts instead of tensors."""
    rest = [each.value for each in assigned]
    while rest:
        node = rest.pop(0)
        if isinstance(node, (ast.Tuple, ast.List)):
            rest[:0] = node.elts
        elif isinstance(node, ast.Dict):
            rest[:0] = node.values
        elif isinstance(node, ast.UnaryOp):
            rest[:0] = [node.operand]
        elif isinstance(node, ast.Constant) and node.value not in _PLAIN:
            yield cut_text(repr(node.value), 40)


def _sources(carried: PreloadBundle) -> tuple[str, ...]:
    used = [name for name, how in carried.kept.items() if how not in _NOT_THERE]
    names = [name.rpartition("/")[2] for name in used]
    return _unique([*names, *carried.modules, *carried.files])


def _embedded(tree: ast.Module) -> Iterator[str]:
    """Yield ``the embedded program`` if the script loads one instead of printing it."""
    if any(isinstance(n, ast.Assign) and _name(n) == "exported" for n in tree.body):
        yield "the embedded program"


_NOT_THERE = ("not needed", "imported")


def _places(script: str) -> Iterator[str]:
    for line in script.splitlines():
        if found := re.search(r"\)  # ([\w.-]+\.py):\d+(?:, (\S+))?$", line):
            yield from filter(None, found.groups())


def _unique(names: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))

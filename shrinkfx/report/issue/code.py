"""The repro as an issue quotes it: the code without comments about the user's model."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass

MODULE = "Repro"
"""Name of the program's class in a repro."""


def find_program_class(tree: ast.Module) -> ast.ClassDef | None:
    """Return the program's class in a repro; None if the repro embeds the program."""
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.name == MODULE), None)


_OR_THIS_TOOL = " or `shrinkfx --verify`"


def quote_script(script: str) -> str:
    """Remove a repro's header, comments on the user's model, and advice on shrinkfx.

    The code is unchanged.
    """
    text = _without_header(script).replace(_OR_THIS_TOOL, "")
    spans = _classes(text)
    rows = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line, column = token.start
        inside = any(first <= line <= last for first, last in spans)
        if token.type == tokenize.COMMENT and inside:
            rows[line - 1] = rows[line - 1][:column].rstrip() + "\n"
    return "".join(rows).strip() + "\n"


def lines_left_out(script: str) -> int:
    """Return the number of lines above the quoted code."""
    return script.count("\n") - _without_header(script).count("\n")


def _without_header(script: str) -> str:
    return re.sub(r"\A(?:#.*\n)+", "", script).lstrip("\n")


def _classes(text: str) -> list[tuple[int, int]]:
    """Return line ranges of the program's class and of the subgraph classes it uses."""
    tree = ast.parse(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if MODULE not in classes:
        return []
    wanted, found = [MODULE], dict[str, ast.ClassDef]()
    while wanted:
        name = wanted.pop()
        if name in classes and name not in found:
            found[name] = classes[name]
            called = ast.walk(classes[name])
            wanted += [node.id for node in called if isinstance(node, ast.Name)]
    return [(node.lineno, node.end_lineno or node.lineno) for node in found.values()]


@dataclass(frozen=True)
class Traits:
    """Properties of a program that the issue's title and first sentence mention.

    Attributes:
        dtype: the dtype of all inputs, if it is one and not float32; or ''.
        dynamic: some sizes are dynamic.
        writes: the value that an operator changes in place, as ``a parameter``; or ''.
    """

    dtype: str = ""
    dynamic: bool = False
    writes: str = ""


def traits_of(script: str, *, dynamic: bool) -> Traits:
    """Derive the traits of a program from its repro; ``dynamic`` is passed through."""
    tree = ast.parse(script)
    assigned = [n for n in tree.body if isinstance(n, ast.Assign) and _is_given(n)]
    tensors = [t for each in assigned for t in _tensors(each.value)]
    kinds = {_DTYPE.sub(r"\1", found[0]) if found else "" for found in tensors}
    dtype = kinds.pop() if len(kinds) == 1 else ""
    return Traits(dtype, dynamic, _mutated_kind(tree))


_DTYPE = re.compile(r"torch\.((?:u?int|b?float|complex)\d+|bool)\b")


def _is_given(node: ast.Assign) -> bool:
    return ast.unparse(node.targets[0]) in ("args", "failing")


def _tensors(value: ast.expr) -> list[re.Match[str] | None]:
    items = value.elts if isinstance(value, ast.Tuple) else []
    texts = [ast.unparse(item) for item in items]
    return [_DTYPE.search(text) for text in texts if text.startswith("torch.")]


_IN_PLACE = re.compile(r"torch\.ops\.\w+\.\w+_\.\w+")


def _mutated_kind(tree: ast.Module) -> str:
    """Return the kind of value that the first in-place operator changes, or ''."""
    module = find_program_class(tree)
    text = ast.unparse(module) if module else ""
    for node in ast.walk(module) if module else ():
        if isinstance(node, ast.Call) and _IN_PLACE.fullmatch(ast.unparse(node.func)):
            operand = ast.unparse(node.args[0]) if node.args else ""
            attribute = operand.removeprefix("self.")
            if f"{operand} = torch.nn.Parameter(" in text:
                return "a parameter"
            if f"self.register_buffer('{attribute}'," in text:
                return "a buffer"
            if re.search(rf"def forward\(self, .*\b{re.escape(operand)}\b.*\):", text):
                return "an input"
    return ""

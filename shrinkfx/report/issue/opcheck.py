"""Lines with ``torch.library.opcheck`` for a custom operator, to paste into a repro."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from shrinkfx.report.issue.code import MODULE


@dataclass(frozen=True)
class OpcheckLines:
    """Lines that test an operator without compiling anything.

    Attributes:
        text: the lines.
        below: the variable of the script after whose assignment the lines belong, such
            as ``model``.
    """

    text: str
    below: str


def write_opcheck(operator: str, test: str, script: str) -> OpcheckLines | None:
    """Write an opcheck test of an operator with the arguments that a repro passes.

    Arguments that are inputs, weights or constants are written out. If ``forward``
    computes them, or calls the operator several times, the lines run the model, record
    each call of the operator, and test each.

    Args:
        operator: as ``mine.mix.default``.
        test: the test of opcheck that shows the error, such as ``test_schema``.
        script: the text of the repro.

    Returns:
        None if no call can be tested so: for example a call in a branch of
        ``torch.cond``, which does not run as written.
    """
    tree = ast.parse(script)
    assigned = list(_assigned(tree))
    inputs = "failing" if "failing" in assigned else "args"
    if "model" not in assigned or inputs not in assigned:
        return None
    below = max("model", inputs, key=lambda name: _last(assigned, name))
    module = _class(tree)
    if module is None:  # the script embeds the program
        return OpcheckLines(_watched(operator, test, inputs), below)
    forward = next(n for n in module.body if getattr(n, "name", "") == "forward")
    assert isinstance(forward, ast.FunctionDef)
    calls = list(_calls(forward, operator))
    if not calls:
        return None
    if len(calls) == len(list(_calls(tree, operator))) == 1:
        written = _format_arguments(calls[0], forward, inputs)
        if written is not None:
            return OpcheckLines(_direct(operator, test, *written), below)
    return OpcheckLines(_watched(operator, test, inputs), below)


def _assigned(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id


def _last(names: list[str], name: str) -> int:
    return len(names) - names[::-1].index(name)


def _class(tree: ast.Module) -> ast.ClassDef | None:
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.name == MODULE), None)


def _calls(tree: ast.AST, operator: str) -> Iterator[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    yield from (c for c in calls if ast.unparse(c.func) == f"torch.ops.{operator}")


def _format_arguments(
    call: ast.Call, forward: ast.FunctionDef, inputs: str
) -> tuple[str, str] | None:
    """Return the arguments of a call as text; None if the script cannot state them."""
    names = [each.arg for each in forward.args.args]
    before = [n for n in forward.body if n.lineno < call.lineno]
    if any("_." in ast.unparse(node) for node in before):
        return None  # an in-place write changes the value before the call
    if any(isinstance(n.ctx, ast.Store) and n.id in names for n in _names(before)):
        return None
    known = {name: f"{inputs}[{place}]" for place, name in enumerate(names[1:])}
    known["self"] = "model"
    writer = _ArgumentWriter(known)
    args = [writer.written(each) for each in call.args]
    kwargs = [(each.arg, writer.written(each.value)) for each in call.keywords]
    if not writer.is_all or any(name is None for name, _ in kwargs):
        return None
    positional = f"({', '.join(args)}{',' if len(args) == 1 else ''})"
    named = ", ".join(f'"{name}": {value}' for name, value in kwargs)
    return positional, f"{{{named}}}" if named else ""


def _names(statements: list[ast.stmt]) -> Iterator[ast.Name]:
    for statement in statements:
        yield from (n for n in ast.walk(statement) if isinstance(n, ast.Name))


class _ArgumentWriter(ast.NodeTransformer):
    """Replaces names of inputs and weights by the script's expressions for them."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.is_all = True

    def written(self, node: ast.expr) -> str:
        return ast.unparse(self.visit(node))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.known:
            return ast.parse(self.known[node.id], mode="eval").body
        self.is_all = self.is_all and node.id == "torch"
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.is_all = self.is_all and ast.unparse(node.func) == "torch.device"
        return node


def _direct(operator: str, test: str, args: str, kwargs: str) -> str:
    parts = [f"torch.ops.{operator}", args, kwargs, f'test_utils="{test}"']
    return _call([part for part in parts if part])


def _call(parts: list[str]) -> str:
    line = f"torch.library.opcheck({', '.join(parts)})"
    if len(line) <= 88:
        return line
    return "\n".join(["torch.library.opcheck(", *(f"    {p}," for p in parts), ")"])


def _watched(operator: str, test: str, inputs: str) -> str:
    packet, _, overload = f"torch.ops.{operator}".rpartition(".")
    return f"""\
operator, calls = {packet}.{overload}, []


def noted(*args, **kwargs):
    calls.append((args, kwargs))
    return operator(*args, **kwargs)


{packet}.{overload} = noted  # for one run of the model
with torch.no_grad():
    model(*{inputs})
{packet}.{overload} = operator
for call in calls:
    torch.library.opcheck(operator, *call, test_utils="{test}")"""

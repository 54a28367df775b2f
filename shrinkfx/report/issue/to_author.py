"""Issues for other authors than PyTorch.

The recipient is the author of a custom operator that violates its declaration, or of
custom code in the compiler.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from shrinkfx.failure.signature import Kind
from shrinkfx.findings.operator_mismatch import OperatorMismatch
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation
from shrinkfx.protocol.operators import (
    VALUE_DEPENDENCIES,
    Misbehavior,
    differing_properties,
)
from shrinkfx.report.in_compiler import (
    capitalize_sentence,
    describe_custom_code,
    format_stops_in_function,
    name_sources,
)
from shrinkfx.report.issue.code import find_program_class
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.plain import strip_default_overload


@dataclass(frozen=True)
class IncorrectOperator:
    """A custom operator that is at fault.

    Attributes:
        what: the incorrect part: ``fake kernel``, ``schema`` or ``kernel``.
        does: the incorrect behavior of that part.
        so: the consequence for compiled code.
        mismatch: the result that is not as declared; None if the schema is incorrect.
        writes: the argument that it writes to without declaring that; or ''.
    """

    operator: Operator
    what: str
    does: str
    mismatch: OperatorMismatch | None = None
    writes: str = ""
    so: str = "compiled code relies on it"

    @property
    def name(self) -> str:
        """Name of the operator, without ``.default``."""
        return strip_default_overload(self.operator.operator)

    @property
    def title(self) -> str:
        """Title of the issue: the operator, and its incorrect part."""
        is_fake = self.what == "fake kernel"
        fault = "fake-kernel mismatch" if is_fake else f"incorrect {self.what}"
        return f"{self.name}: {fault}"

    @property
    def test(self) -> str:
        """The test of opcheck that shows the error."""
        return "test_faketensor" if self.mismatch is not None else "test_schema"

    @property
    def expected(self) -> str:
        """The expected behavior of the operator."""
        if self.what == "fake kernel":
            return "The fake kernel declares what the operator returns."
        return f"The {self.what} of the operator is correct."

    def place(self, facts: IssueFacts) -> str:
        """Return file and line of the incorrect part in parentheses, or ''."""
        place = self.mismatch.place if self.mismatch is not None else ""
        return f" (`{place}`)" if place and not facts.anonymous else ""


def find_incorrect_operator(explanation: Explanation) -> IncorrectOperator | None:
    """Return the operator whose author is the recipient; None for PyTorch."""
    diff, values = explanation.culprit_mismatch, explanation.values
    if diff is not None and diff.is_of_values:
        does, so = VALUE_DEPENDENCIES[diff.what], _SO.get(diff.what, _NO_MEASURE)
        return IncorrectOperator(diff.operator, "kernel", does, mismatch=diff, so=so)
    if diff is not None and diff.operator.is_custom:
        promises = "declares a result different from the one that the operator returns"
        return IncorrectOperator(diff.operator, "fake kernel", promises, mismatch=diff)
    if values is not None and values.overwrites and len(explanation.culprits) == 1:
        (culprit,) = explanation.culprits
        value = values.value
        writes = f"does not declare that the operator writes to `{value}`"
        wrong = IncorrectOperator(culprit, "schema", writes, writes=value)
        return wrong if culprit.is_custom else None
    return None


_NO_MEASURE = "the result of eager is therefore no valid reference for compiled code"

_SO = {Misbehavior.LAYOUT: "compiled code can change these strides"}

_IN_EAGER = "Call the operator in eager with the arguments of the script below"

_HOW = {
    Misbehavior.STRAYS: f"{_IN_EAGER}, either under AddressSanitizer (a compiler tool "
    "that reports out-of-bounds accesses) or with arguments that end at a page "
    "boundary.",
    Misbehavior.UNFILLED: f"{_IN_EAGER} after "
    "`torch.use_deterministic_algorithms(True, warn_only=True)`, with which PyTorch "
    "fills new memory with NaN.",
    Misbehavior.UNSTEADY: "Call the operator in eager twice, with the arguments of the "
    "script below and the same seed, and compare the results.",
    Misbehavior.LAYOUT: f"{_IN_EAGER}. Call it again with the same values in tensors "
    "with different strides, and compare the results. For a contiguous tensor, "
    "`x.transpose(0, -1).contiguous().transpose(0, -1)` changes the strides; for any "
    "other tensor, `x.contiguous()` does.",
}
"""How to reproduce errors that ``opcheck`` does not test."""


def format_recipient_note(facts: IssueFacts, wrong: IncorrectOperator) -> str:
    """Return the note that names the recipient and the error."""
    # A compile error without a GPU ran no kernel, on the interpreter or elsewhere.
    is_interpreted = facts.interpreted and facts.kind is not Kind.COMPILE_ERROR
    return (
        "> **Do not file this with PyTorch: send it to the author of "
        f"`{wrong.name}`.** The {wrong.what} of `{wrong.name}`{wrong.place(facts)} "
        f"{wrong.does}, and {wrong.so}.{_INTERPRETED if is_interpreted else ''}"
    )


_INTERPRETED = (
    " Triton's interpreter, which runs Triton kernels on the CPU, found the failure; "
    "no GPU has confirmed it."
)


def format_custom_code_note(facts: IssueFacts) -> str:
    """Return the note that custom Inductor code takes part in the failure."""
    known, anonymous = facts.in_compiler, facts.anonymous
    sources = name_sources(known, anonymous=anonymous, mark="`")
    does = capitalize_sentence(
        describe_custom_code(known, anonymous=anonymous, mark="`")
    )
    shown = [
        f"The script registers custom Inductor code ({sources}), and the failure "
        f"disappears without it. {does}."
    ] * facts.needs_own
    if facts.inside:
        args = facts.kind, facts.inside
        shown.append(format_stops_in_function(*args, anonymous=anonymous, mark="`"))
    return (
        "> **Do not file this with PyTorch as it is: send it to the author of "
        f"{_custom_code_owner(facts)} first.** {' '.join(shown)} "
        "Please rule out a bug in that code before filing against PyTorch."
    )


def _custom_code_owner(facts: IssueFacts) -> str:
    """Return the code whose author is the recipient."""
    if facts.anonymous:
        return "the custom code"
    if facts.inside:
        return f"`{facts.inside}`"
    known = facts.in_compiler
    return name_sources(known, mark="`") if known.sources else "the custom code"


def format_contradiction(facts: IssueFacts, wrong: IncorrectOperator) -> str:
    """Return the declared and the actual result as a list."""
    diff = wrong.mismatch
    if diff is None:
        return (
            "- declared: the schema names no argument that the operator writes to\n"
            f"- actual: the operator writes to `{wrong.writes}`"
        )
    if diff.declared is None or diff.made is None:
        return f"- {diff.difference}"
    result = f" (result {diff.result})" if diff.result else ""
    # ``said`` may repeat both; the arguments of the call come after them.
    _, is_known, arguments = diff.difference.rpartition(", for ")
    rows = [
        f"- declared by the fake kernel{wrong.place(facts)}: `{diff.declared}`{result}",
        f"- returned by the operator: `{diff.made}`{result}",
    ]
    if diff.declared.device != diff.made.device:
        devices = f"`{diff.declared.device}`, actual `{diff.made.device}`"
        rows.append(f"- device: declared {devices}")
    rows += [f"- called with: `{arguments}`"] * bool(is_known)
    rows += ["- observed in the input program, before the reduction"] * diff.in_original
    return "\n".join(rows)


def format_reproduction(wrong: IncorrectOperator, script: str) -> Iterator[str]:
    """Yield instructions that reproduce the error without compiling."""
    mismatch = wrong.mismatch
    if mismatch is not None and mismatch.is_of_values:
        yield _HOW[mismatch.what]
        return
    operator = wrong.operator.operator
    pasted = write_opcheck(operator, wrong.test, script)
    if pasted is None:
        yield (
            f"Run `torch.library.opcheck(torch.ops.{operator}, args, kwargs, "
            f'test_utils="{wrong.test}")` with the arguments of its call in the '
            "script below, as a tuple and a dict (not the script's own `args`)."
        )
        return
    yield (
        "Insert these lines into the script below, after the assignment to "
        f"`{pasted.below}`. As long as the {wrong.what} is wrong, they raise an error, "
        "before anything is compiled."
    )
    yield f"```python\n{pasted.text}\n```"
    if mismatch is None:
        return
    # A fake kernel that fixes a dynamic dim is right at one size.
    if mismatch.in_original or " fixes dim " in mismatch.difference:
        yield (
            "The mismatch was observed at sizes different from those in the script, so "
            "this check can pass. In that case, call the operator at those sizes."
        )
    if _is_of_strides(mismatch):
        yield "`opcheck` detects wrong strides in torch 2.13 and newer, not in 2.11."


def _is_of_strides(mismatch: OperatorMismatch) -> bool:
    if mismatch.declared is None or mismatch.made is None:
        return False
    return differing_properties(mismatch.declared, mismatch.made) == ("strides",)


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
    module = find_program_class(tree)
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
    nodes = (node for statement in before for node in ast.walk(statement))
    stored = (n for n in nodes if isinstance(n, ast.Name) and n.id in names)
    if any(isinstance(name.ctx, ast.Store) for name in stored):
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
    texts = [f"torch.ops.{operator}", args, kwargs, f'test_utils="{test}"']
    parts = [text for text in texts if text]
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

"""The repro and its output, as an issue quotes them; what the issue reads in them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.program.display_text import cut_text
from shrinkfx.program.listing.tensor_specs import is_power
from shrinkfx.program.pytorch_names import PYTORCH_NAMESPACES
from shrinkfx.report.anonymous import GENERIC, PLACEHOLDER_NAME, strip_paths
from shrinkfx.report.header import remove_header
from shrinkfx.report.record import ModelRemains

MODULE = "Repro"
"""Name of the program's class in a repro."""


def find_program_class(tree: ast.Module) -> ast.ClassDef | None:
    """Return the program's class in a repro; None if the repro embeds the program."""
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.name == MODULE), None)


_ADVICE = re.compile(r", as above(?:, or `[^`]*`)?| or `shrinkfx (?:--)?verify`")
"""Advice on shrinkfx, or that refers to the header."""


def quote_script(script: str) -> str:
    """Remove a repro's header, comments on the user's model, and advice on shrinkfx.

    The code is unchanged.
    """
    text = _ADVICE.sub("", remove_header(script))
    spans = _classes(text)
    rows = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line, column = token.start
        inside = any(first <= line <= last for first, last in spans)
        if token.type == tokenize.COMMENT and inside:
            rows[line - 1] = rows[line - 1][:column].rstrip() + "\n"
    return "".join(rows).strip() + "\n"


def drop_comments(log: str, script: str) -> str:
    """Remove from the lines of a repro that a log shows what ``quote_script`` does."""
    rows = remove_header(script).strip().splitlines()
    for row, quoted in zip(rows, quote_script(script).splitlines(), strict=True):
        if row != quoted:
            log = log.replace(row.strip(), quoted.strip())
    return log


def lines_left_out(script: str) -> int:
    """Return the number of lines above the quoted code."""
    return script.count("\n") - remove_header(script).count("\n")


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
        dtype: the dtypes of the inputs; '' if one is float32, or for more than two.
        dynamic: some sizes are dynamic.
        writes: the value that an operator changes in place, as ``a parameter``; or ''.
        written: its name.
        strided: an input is not contiguous.
    """

    dtype: str = ""
    dynamic: bool = False
    writes: str = ""
    written: str = ""
    strided: bool = False


def traits_of(script: str, *, dynamic: bool) -> Traits:
    """Derive the traits of a program from its repro; ``dynamic`` is passed through."""
    tree = ast.parse(script)
    assigned = [n for n in tree.body if isinstance(n, ast.Assign) and _is_given(n)]
    kinds = {t[1] if t else "" for each in assigned for t in _tensors(each.value)}
    dtype = " and ".join(sorted(kinds)) if all(kinds) and len(kinds) <= 2 else ""
    strided = any(".as_strided(" in ast.unparse(each.value) for each in assigned)
    return Traits(dtype, dynamic, *_find_written(tree), strided)


_DTYPE = re.compile(r"torch\.(?!float32)((?:u?int|b?float|complex)\d+|bool)\b")


def _is_given(node: ast.Assign) -> bool:
    return ast.unparse(node.targets[0]) in ("args", "failing")


def _tensors(value: ast.expr) -> list[re.Match[str] | None]:
    items = value.elts if isinstance(value, ast.Tuple) else []
    texts = [ast.unparse(item) for item in items]
    return [_DTYPE.search(text) for text in texts if text.startswith("torch.")]


_IN_PLACE = re.compile(r"torch\.ops\.\w+\.\w+_\.\w+|(?P<buffer>self\.\w+)\.copy_")

_VIEW = re.compile(
    r"(\w+) = torch\.ops\.aten\.(?:alias|as_strided|detach|diagonal|expand|narrow"
    r"|permute|select|slice|squeeze|t|transpose|unfold|unsqueeze|view)\.\w+\(([\w.]+)"
)


def _find_written(tree: ast.Module) -> tuple[str, str]:
    """Return the kind and name of the first value that is changed in place, or ''."""
    module = find_program_class(tree)
    text = ast.unparse(module) if module else ""
    functions = module.body if module else []
    forward = [f for f in functions if isinstance(f, ast.FunctionDef)][-1:]
    viewed = dict(_VIEW.findall("".join(map(ast.unparse, forward))))
    for node in (n for f in forward for n in ast.walk(f) if isinstance(n, ast.Call)):
        if found := _IN_PLACE.fullmatch(ast.unparse(node.func)):
            first = ast.unparse(node.args[0]) if node.args else ""
            operand = found["buffer"] or first
            for _ in viewed:
                operand = viewed.get(operand, operand)
            name = operand.removeprefix("self.")
            if f"{operand} = torch.nn.Parameter(" in text:
                return "a parameter", name
            if f"self.register_buffer('{name}'," in text:
                return "a buffer", name
            if name in [argument.arg for argument in forward[0].args.args]:
                return "an input", name
    return "", ""


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


def write_opcheck(operator: str, script: str) -> OpcheckLines | None:
    """Write an opcheck test of an operator with the arguments that a repro passes.

    Arguments that are inputs, weights or constants are written out. If ``forward``
    computes them, or calls the operator several times, the lines run the model, record
    each call of the operator, and test each.

    Args:
        operator: as ``mine.mix.default``.
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
        return OpcheckLines(_watched(operator, inputs), below)
    forward = next(n for n in module.body if getattr(n, "name", "") == "forward")
    assert isinstance(forward, ast.FunctionDef)
    calls = list(_calls(forward, operator))
    if not calls:
        return None
    if len(calls) == len(list(_calls(tree, operator))) == 1:
        written = _format_arguments(calls[0], forward, inputs)
        if written is not None:
            return OpcheckLines(_direct(operator, *written), below)
    return OpcheckLines(_watched(operator, inputs), below)


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


def _direct(operator: str, args: str, kwargs: str) -> str:
    texts = [f"torch.ops.{operator}", args, kwargs, 'test_utils="test_faketensor"']
    parts = [text for text in texts if text]
    line = f"torch.library.opcheck({', '.join(parts)})"
    if len(line) <= 88:
        return line
    return "\n".join(["torch.library.opcheck(", *(f"    {p}," for p in parts), ")"])


def _watched(operator: str, inputs: str) -> str:
    packet, _, overload = f"torch.ops.{operator}".rpartition(".")
    return f"""\
import copy

operator, calls = {packet}.{overload}, []


def noted(*args, **kwargs):
    calls.append(copy.deepcopy((args, kwargs)))  # the call may write to them
    return operator(*args, **kwargs)


{packet}.{overload} = noted  # for one run of the model
with torch.no_grad():
    model(*{inputs})
{packet}.{overload} = operator
for call in calls:
    torch.library.opcheck(operator, *call, test_utils="test_faketensor")"""


# --- what the repro contains of the user's model


def find_model_remains(script: str, carried: PreloadBundle) -> ModelRemains:
    """Find the parts of a user's model that a repro contains."""
    tree = ast.parse(script)
    module = find_program_class(tree) or ast.Module([], [])
    assigned = [(n, _name(n)) for n in tree.body if isinstance(n, ast.Assign)]
    inputs = [node for node, name in assigned if name in _INPUTS]
    found: dict[str, list[str]] = {kind: [] for kind in ModelRemains.__annotations__}
    for node in (module, *inputs):
        for kind, text in _list_remains(node):
            if node is module or kind == "values":
                found[kind].append(text)
    found["names"] += [
        name for node, name in assigned if _called(node.value) == "torch.export.Dim"
    ]
    found["names"] = [
        n for n in found["names"] if n != "self" and not GENERIC.fullmatch(n)
    ]
    found["values"] += [text for node in inputs for text in _list_numbers(node.value)]
    used = (name for name, how in carried.kept.items() if how not in _NOT_THERE)
    found["sources"] = [name.rpartition("/")[2] for name in used]
    found["sources"] += [*carried.modules, *carried.files]
    if any(name == "exported" for _, name in assigned):
        found["sources"].append("the embedded program")
    for place in _PLACE.findall(script):
        found["places"] += filter(None, place)
    found["header"] = [n for n in _FILE.findall(script) if n != PLACEHOLDER_NAME]
    return ModelRemains(**{k: tuple(dict.fromkeys(v)) for k, v in found.items()})


_FILE = re.compile(r"^# Made by: .*?([\w.-]+\.(?:pt2|py))\b", re.MULTILINE)

_PLACE = re.compile(r"\)  # ([\w.-]+\.py):\d+(?:, (\S+))?$", re.MULTILINE)

_INPUTS = ("args", "passing", "failing", "exported")

_NOT_THERE = ("not needed", "imported")

_PLAIN = {None, "cpu", "cuda", "none", "nan", "inf", "-inf", 0.5, *range(-16, 17)}
"""Constants that say nothing about a model."""


def _list_remains(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield names, operators, constants and tensors with exact values, by kind."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name="forward"):
                yield from (("names", each.arg) for each in node.args.args)
            case ast.Assign(targets=[ast.Attribute(attr=name), *_]):
                if _called(node.value).startswith("torch"):
                    yield "names", name
            case ast.Subscript(value=ast.Name("data")):
                yield "values", str(ast.literal_eval(node.slice))
            case ast.Attribute():
                found = re.fullmatch(r"torch\.ops\.((\w+)\.\w+)", ast.unparse(node))
                if found and found[2] not in {*PYTORCH_NAMESPACES, "higher_order"}:
                    yield "operators", found[1]
            case ast.Call():
                if _called(node) == "self.register_buffer":
                    yield "names", str(ast.literal_eval(node.args[0]))
                if _is_literal(node):
                    yield "values", cut_text(ast.unparse(node), 40)
                if _called(node).startswith("torch.ops."):
                    for argument in (*node.args, *(k.value for k in node.keywords)):
                        for leaf in _list_constants(argument):
                            if leaf not in _PLAIN:
                                yield "constants", cut_text(repr(leaf), 40)


def _list_constants(tree: ast.AST) -> list[object]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]


def _called(call: ast.expr) -> str:
    is_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    return ast.unparse(call.func) if is_call else ""  # type: ignore[attr-defined]


def _name(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def _is_literal(node: ast.Call) -> bool:
    """Return whether a call makes a tensor from exact values."""
    name = ast.unparse(node.func)
    if name not in _OF_VALUES:
        return name == "unpack"
    leaves = _list_constants(node.args[_OF_VALUES[name]])
    if name == "torch.full":  # the search simplifies values to powers
        leaves = [n for n in leaves if not (isinstance(n, float | int) and is_power(n))]
    return any(leaf not in _PLAIN for leaf in leaves)


_OF_VALUES = {"torch.tensor": 0, "torch.full": 1}
"""Constructors of tensors from values, and the position of that argument."""


def _list_numbers(node: ast.expr) -> Iterator[str]:
    """Yield inputs that are numbers or texts instead of tensors."""
    match node:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Dict(values=items):
            for item in items:
                yield from _list_numbers(item)
        case ast.UnaryOp(operand=operand):
            yield from _list_numbers(operand)
        case ast.Constant(value=value) if value not in _PLAIN:
            yield cut_text(repr(value), 40)


# --- the error log

TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "([^"]+)", line \d+,? in ')
_ABORTS = "terminate called "
"""The first line of what a destructor says after CUDA has failed: the same failure."""
_DEATH = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_WARNING = re.compile(
    r"^\S+:\d+: \w*Warning: |^\[?W\d{4} |^\[W\d+ |^\S+:\d+:\d+: (?:warning|note): "
)
"""The first line of a warning of Python, of PyTorch's C++ or of a C++ compiler."""
_QUOTED = re.compile(r"^  | *\d* \|")
"""A line of code that Python or a C++ compiler quotes below a warning."""
_GENERATED = re.compile(r"\bc[a-z2-7]{51}\.(?=\w)")
"""The hash in the name of a generated file, which differs on other machines."""
_LEADS_TO = re.compile(
    r"^In file included from |^ +from \S+:\d+[:,]|^\S+: (?:In|At) .*:$"
    r"|^\S+:\d+:\d+:   required from "
)
"""Lines of a C++ compiler before a warning or error that say where it is."""


def error_log(log: str, script: str, above: int = 0, lines: int = 60) -> str:
    """Return the part of a script's output that describes its failure.

    Frames of callers of the script, frames of the interpreter, and warnings are
    removed. Generated files are called ``generated``. For a crash without a traceback,
    the log is faulthandler's stack of the crashed thread.

    Args:
        script: the name of the script.
        above: the number of lines to subtract from the script's line numbers; negative
            if the reader's copy has more lines.
        lines: the maximum length; the first and last lines are kept.
    """
    death = _DEATH.search(log)
    before = log[: death.start()] if death else log
    rows = without_warnings(before.rstrip()).splitlines()
    opened = [i for i, row in enumerate(rows) if row == TRACEBACK]
    if opened:
        # The first one is the traceback of the exception that caused the last one.
        known, last = rows[: opened[-1] + 1], rows[opened[-1] + 1 :]
        last = list(takewhile(lambda row: not row.startswith(_ABORTS), last))
        rows = [*known, *_drop_shrinkfx_frames(_from_script(last, script))]
    elif death:
        rows = [*rows, *_crash_stack(log[death.start() :].splitlines(), script)]
    rows = [_GENERATED.sub("generated.", strip_paths(row)) for row in rows]
    rows = [cut_text(_renumber_line(row, script, above), 300) for row in rows]
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"... ({len(rows) - 2 * half} lines)", *rows[-half:]]
    return "\n".join(rows).strip()


def without_warnings(log: str) -> str:
    """Remove warnings, with their location lines and the code quoted below them."""
    return "\n".join(_rows_without_warnings(log.splitlines()))


def _rows_without_warnings(rows: list[str]) -> Iterator[str]:
    quotes, leading = False, list[str]()
    for row in rows:
        is_warning = bool(_WARNING.match(row))
        if _LEADS_TO.match(row):
            leading.append(row)
        elif is_warning:
            leading.clear()
        elif not (quotes and _QUOTED.match(row)):
            yield from (*leading, row)
            leading.clear()
        quotes = is_warning or (quotes and bool(_QUOTED.match(row)))
    yield from leading


def _crash_stack(rows: list[str], script: str) -> list[str]:
    """Keep the fatal error and the frames of its thread, down to the script's frame."""
    opened = [i for i, row in enumerate(rows) if row.startswith("Current thread ")]
    # Two threads that die at the same time write this line at the same time.
    head = re.sub(r"^(Fatal Python error: )\1*(.+?)\2*$", r"\1\2", rows[0])
    if not opened:
        return [head]
    frames = list(takewhile(_FRAME.match, rows[opened[0] + 1 :]))
    hits = [i for i, row in enumerate(frames) if _FRAME.match(row)[1].endswith(script)]  # type: ignore[index]
    frames = frames[: hits[-1] + 1] if hits else frames
    return [head, "", "Current thread (most recent call first):", *frames]


def _renumber_line(row: str, script: str, above: int) -> str:
    """Convert a line number of the script to the number in the quoted code."""
    match = re.match(rf'(\s*File "{re.escape(script)}", line )(\d+)(.*)', row)
    return f"{match[1]}{int(match[2]) - above}{match[3]}" if match else row


def _from_script(rows: list[str], script: str) -> list[str]:
    """Remove the frames of the script's callers."""
    frames = [i for i, row in enumerate(rows) if _FRAME.match(row)]
    hits = [i for i in frames if _FRAME.match(rows[i])[1].endswith(script)]  # type: ignore[index]
    return rows[hits[0] :] if hits else rows


_OURS = re.compile(r"/shrinkfx/worker/\w")
_REPORT = re.compile(r"^shrinkfx\.[\w.]+: ")


def _drop_shrinkfx_frames(rows: list[str]) -> list[str]:
    """Remove the frames of the code that runs kernels without a GPU."""
    remaining, is_ours = list[str](), False
    for row in rows:
        if frame := _FRAME.match(row):
            is_ours = bool(_OURS.search(frame[1]))
        elif not row.startswith(" "):
            is_ours = False
        if not is_ours:
            remaining.append(_REPORT.sub("", row))
    return remaining

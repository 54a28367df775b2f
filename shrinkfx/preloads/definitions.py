"""Extract the statements of a preloaded file that the needed operators depend on.

A repro that needs ``mylib::mix`` takes these lines of the user's ``ops.py``:

    SCALE = 2.0                             kept: mix reads it
    @custom_op("mylib::mix", ...)           kept: names the operator
    def mix(x): return x * SCALE
    @mix.register_fake ...                  kept: extends the operator
    class Net(nn.Module): ...               left out: only uses mix
    torch.manual_seed(0)                    kept: has a side effect

A statement with a side effect is kept, with the names that it reads, until a test shows
that the failure does not need it. A file that looks names up at run time
(``globals()``) is kept whole because it may need any line. In all cases of doubt a line
is kept, because an extra line is harmless and a missing line changes the failure.
"""

import ast
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from shrinkfx.preloads.statements import (
    Place,
    Statement,
    aliases_of,
    at_import,
    imported_by,
    names_of,
    read_source,
    statements_of,
    strings_of,
    text_of,
)

# Patterns for the last part of a dotted name: ``torch.library.define`` and, after
# ``from torch.library import define``, plain ``define`` are the same thing.
REGISTRAR = re.compile(r"custom_op|triton_op|define|impl|impl_abstract|register_\w+")
HARMLESS = re.compile(
    r"(lru_)?cache|(cached_)?property|setter|(abstract|class|static)method|dataclass"
    r"|contextmanager|overload|partial|wraps|no_grad|inference_mode|compile"
    r"|jit|autotune|heuristics|filterwarnings|simplefilter|basicConfig|getLogger|setLevel"
)
# An unused import is kept for its side effect, unless the module is one of these.
HARMLESS_MODULES = sys.stdlib_module_names | {"torch", "triton"}
# The custom operators may call PyTorch's operators that the graph does not show.
BUILT_IN = ("aten::", "prim::", "prims::")
QUALIFIED_NAME = re.compile(r"\s*([\w.]+::\w+)(?:\.\w+)?\s*(?:\(|\Z)")
LIBRARY = re.compile(r"(\w+) = (?:[\w.]+\.)?Library\('(\w+)'")
OPERATOR_PATH = re.compile(r"\bops\.(\w+)\.(\w+)")
COMPUTED_STRING = (ast.JoinedStr, ast.BinOp)  # f"mylib::mix{i}" may be any operator


# Code that matches this may refer to any name of the file.
REFLECTION = re.compile(r"\b(globals|locals|vars|eval|exec|__dict__|modules)\b")


@dataclass(frozen=True)
class Definitions:
    """The part of a preloaded file that a repro must carry.

    Attributes:
        text: the source. It never contains a ``from __future__`` import, which is legal
            only at the top of the repro.
        whole: the text is the whole file.
        reason: why more than the operators' definitions is kept, or ''.
        future: the ``__future__`` features to enable at the top of the repro.
        acts: places of the statements that are kept only for their side effects.
        loads: the text also loads a library.
    """

    text: str
    whole: bool
    reason: str
    future: tuple[str, ...]
    acts: tuple[Place, ...] = ()
    loads: bool = False


def slice_file(
    path: Path,
    operators: Collection[str],
    *,
    without: Collection[Place] = (),
    acting: Collection[int] = (),
    local: Collection[str] = (),
    named: Collection[str] = (),
    text: str | None = None,
) -> Definitions:
    """Slice ``path`` down to the registrations of ``operators``, or take all of it.

    The file is read but never executed. ``mylib::mix.out`` selects all of
    ``mylib::mix``.

    Args:
        without: places of statements that are known to have no side effect.
        acting: line numbers that are known to have a side effect.
        local: modules whose import may have a side effect.
        named: names that other modules may read from this file.
        text: the content of the file, if already known.

    Raises:
        OSError, SyntaxError: the file cannot be read or parsed.
    """
    statements = _statements(path, text)
    body = [each for each in statements if not each.is_future and not each.is_main]
    vocabulary = Vocabulary(body)
    wanted = {*(operator.partition(".")[0] for operator in operators), *named}
    selected = _slice(body, vocabulary, wanted, ())
    silent = _unused_imports(statements)
    rest = [each for each in body if each not in selected]
    acts = [
        each
        for each in rest
        if next(vocabulary.find_effects(each.node), None)
        or silent & each.binds
        or set(acting) & set(each.lines)
        or set(local) & set(imported_by(at_import(each.node)))
    ]
    acts = [each for each in acts if each.place not in without]
    effect = next(
        (e for each in acts for e in vocabulary.find_effects(each.node)), None
    )
    reason = ""
    if effect:
        code = ast.unparse(effect).partition("\n")[0]
        reason = f"line {effect.lineno} acts when imported: {code[:60]}"
    selected = _slice(body, vocabulary, wanted, acts)
    loads = any(set(acting) & set(each.lines) for each in selected)
    if any(REFLECTION.search(ast.unparse(each.node)) for each in acts):
        reason, selected, acts = reason or "it looks names up", body, []
    taken = _make_definitions(selected, statements, reason, is_full=selected is body)
    return replace(taken, acts=tuple(s.place for s in acts), loads=loads)


def take_whole_file(path: Path, text: str | None = None) -> Definitions:
    """Take all of ``path``, because its slice was shown to be insufficient.

    Raises:
        OSError, SyntaxError: the file cannot be read or parsed.
    """
    statements = _statements(path, text)
    selected = [each for each in statements if not each.is_future and not each.is_main]
    return _make_definitions(
        selected, statements, "its slice does not fail", is_full=True
    )


def _statements(path: Path, text: str | None) -> Sequence[Statement]:
    return _cut_up(read_source(path) if text is None else text, str(path))


@functools.lru_cache(maxsize=256)
def _cut_up(text: str, name: str) -> tuple[Statement, ...]:
    """Parse a file; cached because a search asks for the same files many times."""
    return tuple(statements_of(text, name))


def _make_definitions(
    selected: Iterable[Statement],
    statements: Iterable[Statement],
    reason: str,
    *,
    is_full: bool,
) -> Definitions:
    text = text_of(selected).lstrip("\n")
    futures = [each.node for each in statements if each.is_future and text]
    return Definitions(
        text=text + "\n" * bool(text),
        whole=is_full,
        reason=reason,
        future=tuple(alias.name for node in futures for alias in aliases_of(node)),
    )


class Vocabulary:
    """Maps the names of a file to the operators that they stand for."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        """Collect names in file order: a name stands for operators once it is bound."""
        self.spaces: defaultdict[str, set[str]] = defaultdict(set)
        self.handles: defaultdict[str, set[str]] = defaultdict(set)
        for statement in statements:
            for part in at_import(statement.node):
                if library := LIBRARY.match(ast.unparse(part)):
                    self.spaces[library[1]].add(library[2])
                if isinstance(part, (ast.FunctionDef, ast.Assign, ast.AnnAssign)):
                    is_function = isinstance(part, ast.FunctionDef)
                    meaning = self.find_extended if is_function else self.find_mentioned
                    for name in names_of(part)[0]:
                        self.handles[name] |= meaning(part)

    def registered(self, root: ast.AST) -> set[str]:
        """Return operators named in strings, in full or through a library object."""
        matches = map(QUALIFIED_NAME.match, strings_of(root))
        found = {match[1] for match in matches if match}
        for call in (part for part in ast.walk(root) if isinstance(part, ast.Call)):
            receiver = getattr(call.func, "value", call.func)
            # lib.impl("mix", f, "CPU") or torch.library.impl(lib, "mix", "CPU")
            for pair in pairwise([receiver, *call.args]):
                match pair:
                    case ast.Name(id=name), ast.Constant(value=str(schema)):
                        operator = re.split(r"[.(]", schema)[0].strip()
                        found |= {f"{space}::{operator}" for space in self.spaces[name]}
        return found

    def find_mentioned(self, root: ast.AST) -> set[str]:
        """Add the operators that ``torch.ops.mylib.mix`` or a variable refers to."""
        paths = OPERATOR_PATH.findall(ast.unparse(root))
        names = [part for part in ast.walk(root) if isinstance(part, ast.Name)]
        read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
        found = self.registered(root).union(*(self.handles[name] for name in read))
        return found | {"::".join(path) for path in paths}

    def find_extended(self, node: ast.stmt) -> set[str]:
        """Return the operators that a statement registers or extends.

        An operator that it merely calls is not among them.
        """
        actions = (act for part in at_import(node) for act in _actions(part))
        return self.registered(node).union(*map(self.find_mentioned, actions))

    def find_effects(self, node: ast.stmt) -> Iterator[ast.stmt | ast.expr]:
        """Yield what a statement does at import beyond binding names."""
        for part in at_import(node):
            yield from (act for act in _actions(part) if not self._is_harmless(act))
            match part:
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                    # mix = custom_op(f"{NAMESPACE}::mix")(f) may register a needed
                    # operator.
                    registers = REGISTRAR.fullmatch(_last_name(part.value))
                    unknown = registers and not self._is_harmless(part.value)
                    if unknown or _patches(part):
                        yield part
                case ast.Delete() | ast.For() | ast.While() | ast.With():
                    yield part

    def _is_harmless(self, action: ast.AST | None) -> bool:
        """Return whether an action has no side effect that the repro needs.

        Harmless are known helpers, and registrations of operators that are left out.
        """
        name = _last_name(action)
        if action is None or not REGISTRAR.fullmatch(name):
            return isinstance(action, ast.Constant) or bool(HARMLESS.fullmatch(name))
        computed = any(isinstance(part, COMPUTED_STRING) for part in ast.walk(action))
        operators = set() if computed else self.find_mentioned(action)
        return bool(operators) and not any(o.startswith(BUILT_IN) for o in operators)


def _actions(node: ast.stmt) -> list[ast.expr]:
    """List expressions evaluated for a side effect: decorators, or the statement's."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return [node.value] if isinstance(node, ast.Expr) else decorators


def _last_name(action: ast.AST | None) -> str:
    """Reduce ``torch.library.impl(lib, "mix")`` to ``impl``."""
    while isinstance(action, ast.Call):
        action = action.func
    return getattr(action, "attr", getattr(action, "id", ""))


def _patches(node: ast.stmt) -> bool:
    """Return whether a statement has ``module.name = ...`` or ``table[key] = ...``."""
    stored = [p for p in ast.walk(node) if isinstance(getattr(p, "ctx", 0), ast.Store)]
    return any(isinstance(part, (ast.Attribute, ast.Subscript)) for part in stored)


def _slice(
    body: Iterable[Statement],
    vocabulary: Vocabulary,
    wanted: set[str],
    acts: Collection[Statement],
) -> list[Statement]:
    """Select statements that provide the wanted names and operators, transitively.

    One set holds both kinds because no Python name contains the ``::`` of an operator.
    """
    chosen: list[Statement] = []
    while True:
        for each in chosen:
            wanted = wanted | each.reads | vocabulary.find_mentioned(each.node)
        wider = [
            s
            for s in body
            if s in acts or wanted & (s.binds | vocabulary.find_extended(s.node))
        ]
        if wider == chosen:
            return chosen
        chosen = wider


def _unused_imports(statements: Iterable[Statement]) -> set[str]:
    """Return unused imported names, such as ``mylib._C``, which registers operators."""
    names: set[str] = set()
    for each in statements:
        if set(imported_by(at_import(each.node))) - HARMLESS_MODULES:
            names |= each.binds
    return names.difference(*(each.reads - {"*"} for each in statements))

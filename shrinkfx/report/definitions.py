"""Cut out of a preloaded file what the kept operators need.

A repro that keeps ``mylib::mix`` takes these lines of the user's ``ops.py``:

    SCALE = 2.0                             kept: mix reads it
    @custom_op("mylib::mix", ...)           kept: names the operator
    def mix(x): return x * SCALE
    @mix.register_fake ...                  kept: extends the operator
    class Net(nn.Module): ...               left out: only uses mix

That is right only while what is left out does nothing but bind names. If it does more
(``torch.manual_seed(0)``) the failure may hang on it, so the whole file is taken. All
doubts are settled so: a line too many is harmless, one too few is another failure.
"""

import ast
import importlib.util
import re
import symtable
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# Patterns for the last part of a dotted name: ``torch.library.define`` and, after
# ``from torch.library import define``, plain ``define`` are the same thing.
REGISTRAR = re.compile(r"custom_op|triton_op|define|impl|impl_abstract|register_\w+")
HARMLESS = re.compile(
    r"(lru_)?cache|(cached_)?property|setter|(abstract|class|static)method|dataclass"
    r"|contextmanager|overload|partial|wraps|no_grad|inference_mode|compile"
    r"|jit|autotune|heuristics|filterwarnings|simplefilter|basicConfig|getLogger|setLevel"
)
# An import that nothing reads is made for its effect, unless it is one of these.
HARMLESS_MODULES = sys.stdlib_module_names | {"torch", "triton"}
# PyTorch's own operators run beneath the kept ones, whatever the graph shows.
BUILT_IN = ("aten::", "prim::", "prims::")
QUALIFIED_NAME = re.compile(r"\s*([\w.]+::\w+)(?:\.\w+)?\s*(?:\(|\Z)")
LIBRARY = re.compile(r"(\w+) = (?:[\w.]+\.)?Library\('(\w+)'")
OPERATOR_PATH = re.compile(r"\bops\.(\w+)\.(\w+)")
COMPUTED_STRING = (ast.JoinedStr, ast.BinOp)  # f"mylib::mix{i}" may be any operator


@dataclass(frozen=True)
class Definitions:
    """What a repro must carry of a preloaded file.

    ``text`` never holds a ``from __future__`` import, which is legal only at the
    top of the repro: ``future`` has the features to switch on there.
    """

    text: str
    whole: bool
    reason: str
    local_imports: tuple[str, ...]
    future: tuple[str, ...]


def definitions(path: Path, operators: Collection[str]) -> Definitions:
    """Slice ``path`` down to what registers ``operators``, or take all of it.

    The file is read, never run. ``mylib::mix.out`` means all of ``mylib::mix``.

    Raises:
        OSError, SyntaxError: the file cannot be read or parsed.
    """
    statements = _statements(path)
    body = [each for each in statements if not each.is_future and not each.is_main]
    vocabulary = Vocabulary(body)
    wanted = {operator.partition(".")[0] for operator in operators}
    kept = _slice(body, vocabulary, wanted | _imported_but_never_read(statements))
    left_out = (each.node for each in body if each not in kept)
    effect = next((act for node in left_out for act in vocabulary.effects(node)), None)
    reason = ""
    if effect:
        code = ast.unparse(effect).partition("\n")[0]
        reason = f"line {effect.lineno} acts when imported: {code[:60]}"
        kept = body
    futures = [each.node for each in statements if each.is_future and kept]
    return Definitions(
        text="\n".join(each.text for each in kept).lstrip("\n") + "\n" * bool(kept),
        whole=effect is not None,
        reason=reason,
        local_imports=_local_imports(kept, path.parent),
        future=tuple(alias.name for node in futures for alias in _aliases(node)),
    )


def whole_file(path: Path) -> Definitions:
    """Take all of ``path``: for when its slice has been shown not to do.

    Raises:
        OSError, SyntaxError: the file cannot be read or parsed.
    """
    statements = _statements(path)
    kept = [each for each in statements if not each.is_future and not each.is_main]
    futures = [each.node for each in statements if each.is_future]
    return Definitions(
        text="\n".join(each.text for each in kept).lstrip("\n") + "\n" * bool(kept),
        whole=True,
        reason="its slice does not fail",
        local_imports=_local_imports(kept, path.parent),
        future=tuple(alias.name for node in futures for alias in _aliases(node)),
    )


@dataclass(frozen=True, eq=False)
class Statement:
    """Say what one top-level statement binds in the module and reads from it.

    A star import may bind any name: it binds ``*``, which every statement reads.
    """

    node: ast.stmt
    text: str
    binds: frozenset[str]
    reads: frozenset[str]

    @property
    def is_future(self) -> bool:
        return getattr(self.node, "module", "") == "__future__"

    @property
    def is_main(self) -> bool:
        if not isinstance(self.node, ast.If) or self.node.orelse:
            return False  # an else branch does run at import
        return ast.unparse(self.node.test) == "__name__ == '__main__'"


def _statements(path: Path) -> list[Statement]:
    """Cut a file after each top-level statement: comments go with what follows."""
    raw = path.read_bytes()
    tree = ast.parse(raw, str(path))
    lines = importlib.util.decode_source(raw).split("\n")
    statements = []
    end = 0
    for node in tree.body:
        start, end = end, node.end_lineno or end
        text = "\n".join(lines[start:end])
        after = lines[end - 1].encode()[node.end_col_offset :].lstrip()
        if node.lineno <= start or after.startswith(b";"):
            text = ast.unparse(node)  # "a = 1; b = 2": lines cannot tell them apart
        statements.append(Statement(node, text, *_names(node)))
    return statements


def _names(node: ast.stmt) -> tuple[frozenset[str], frozenset[str]]:
    """Ask the compiler which module names a statement binds and reads.

    Its tables know a local variable from the module's variable of the same name.
    """
    module = symtable.symtable(ast.unparse(node), "<statement>", "exec")
    names = module.get_symbols()
    binds = {n.get_name() for n in names if n.is_assigned() or n.is_imported()}
    binds |= {"*" for alias in _aliases(node) if alias.name == "*"}
    fields = [vars(part).items() for part in ast.walk(node)]
    hints = (v for each in fields for k, v in each if k in ("annotation", "returns"))
    # torch evaluates x: "Tensor" when it infers an operator's schema.
    reads = {"*", *re.findall(r"\w+", " ".join(" ".join(_strings(h)) for h in hints))}
    scopes = [module]
    for scope in scopes:
        scopes += scope.get_children()
        for name in scope.get_symbols():
            # "class C: x = x" reads the module's x, yet the table calls x local.
            outer = name.is_global() or isinstance(scope, symtable.Class)
            if (name.is_referenced() and outer) or name.is_declared_global():
                reads.add(name.get_name())
    augmented = (part for part in _at_import(node) if isinstance(part, ast.AugAssign))
    reads |= {ast.unparse(part.target) for part in augmented}
    return frozenset(binds), frozenset(reads)


def _strings(root: ast.AST | None) -> Iterator[str]:
    for part in ast.walk(root) if root else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _at_import(node: ast.AST) -> Iterator[ast.stmt]:
    """Walk the statements that run when the module is imported."""
    if isinstance(node, ast.stmt):
        yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
        for child in ast.iter_child_nodes(node):
            yield from _at_import(child)


class Vocabulary:
    """Know which operators a piece of code is about, in this file's names."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        """Read in file order: a name stands for operators once it is bound."""
        self.spaces: defaultdict[str, set[str]] = defaultdict(set)
        self.handles: defaultdict[str, set[str]] = defaultdict(set)
        for statement in statements:
            for part in _at_import(statement.node):
                if library := LIBRARY.match(ast.unparse(part)):
                    self.spaces[library[1]].add(library[2])
                if isinstance(part, (ast.FunctionDef, ast.Assign, ast.AnnAssign)):
                    is_function = isinstance(part, ast.FunctionDef)
                    meaning = self.acted_on if is_function else self.mentioned
                    for name in _names(part)[0]:
                        self.handles[name] |= meaning(part)

    def registered(self, root: ast.AST) -> set[str]:
        """Collect the operators spelt out in strings, whole or through a library."""
        matches = map(QUALIFIED_NAME.match, _strings(root))
        found = {match[1] for match in matches if match}
        for call in (part for part in ast.walk(root) if isinstance(part, ast.Call)):
            receiver = getattr(call.func, "value", call.func)
            # Either lib.impl("mix", f, "CPU") or torch.library.impl(lib, "mix", "CPU").
            for pair in pairwise([receiver, *call.args]):
                match pair:
                    case ast.Name(id=name), ast.Constant(value=str(schema)):
                        operator = re.split(r"[.(]", schema)[0].strip()
                        found |= {f"{space}::{operator}" for space in self.spaces[name]}
        return found

    def mentioned(self, root: ast.AST) -> set[str]:
        """Add those meant by ``torch.ops.mylib.mix`` or by a name bound to one."""
        paths = OPERATOR_PATH.findall(ast.unparse(root))
        names = [part for part in ast.walk(root) if isinstance(part, ast.Name)]
        read = {name.id for name in names if isinstance(name.ctx, ast.Load)}
        found = self.registered(root).union(*(self.handles[name] for name in read))
        return found | {"::".join(path) for path in paths}

    def acted_on(self, node: ast.stmt) -> set[str]:
        """Tell what a statement registers or extends from what it merely calls."""
        actions = (act for part in _at_import(node) for act in _actions(part))
        return self.registered(node).union(*map(self.mentioned, actions))

    def effects(self, node: ast.stmt) -> Iterator[ast.stmt | ast.expr]:
        """Yield what a statement does at import beyond binding names."""
        for part in _at_import(node):
            yield from (act for act in _actions(part) if not self._is_harmless(act))
            match part:
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                    # mix = custom_op(f"{NAMESPACE}::mix")(f) may well be a kept one.
                    registers = REGISTRAR.fullmatch(_last_name(part.value))
                    unknown = registers and not self._is_harmless(part.value)
                    if unknown or _patches(part):
                        yield part
                case ast.Delete() | ast.For() | ast.While() | ast.With():
                    yield part

    def _is_harmless(self, action: ast.AST | None) -> bool:
        """Recognise helpers, and registrations of operators that are left out."""
        name = _last_name(action)
        if action is None or not REGISTRAR.fullmatch(name):
            return isinstance(action, ast.Constant) or bool(HARMLESS.fullmatch(name))
        computed = any(isinstance(part, COMPUTED_STRING) for part in ast.walk(action))
        operators = set() if computed else self.mentioned(action)
        return bool(operators) and not any(o.startswith(BUILT_IN) for o in operators)


def _actions(node: ast.stmt) -> list[ast.expr]:
    """Find what runs for its effect: decorators, or an expression on its own."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return [node.value] if isinstance(node, ast.Expr) else decorators


def _last_name(action: ast.AST | None) -> str:
    """Reduce ``torch.library.impl(lib, "mix")`` to ``impl``."""
    while isinstance(action, ast.Call):
        action = action.func
    return getattr(action, "attr", getattr(action, "id", ""))


def _patches(node: ast.stmt) -> bool:
    """Find ``module.name = ...`` and ``table[key] = ...``, also within a tuple."""
    stored = [p for p in ast.walk(node) if isinstance(getattr(p, "ctx", 0), ast.Store)]
    return any(isinstance(part, (ast.Attribute, ast.Subscript)) for part in stored)


def _slice(
    body: Iterable[Statement], vocabulary: Vocabulary, wanted: set[str]
) -> list[Statement]:
    """Take what provides the wanted names and operators and, in turn, what it needs.

    One set holds both kinds: no name in Python has the ``::`` of an operator.
    """
    chosen: list[Statement] = []
    while True:
        for each in chosen:
            wanted = wanted | each.reads | vocabulary.mentioned(each.node)
        wider = [s for s in body if wanted & (s.binds | vocabulary.acted_on(s.node))]
        if wider == chosen:
            return chosen
        chosen = wider


def _imported_but_never_read(statements: Iterable[Statement]) -> set[str]:
    """Name ``mylib._C``, imported because that registers operators."""
    names: set[str] = set()
    for each in statements:
        if set(_imported(_at_import(each.node))) - HARMLESS_MODULES:
            names |= each.binds
    return names.difference(*(each.reads - {"*"} for each in statements))


def _local_imports(statements: Iterable[Statement], folder: Path) -> tuple[str, ...]:
    names = _imported(part for each in statements for part in ast.walk(each.node))
    files = {name: (f"{name}.py", f"{name}/__init__.py") for name in names}
    return tuple(n for n in files if any((folder / file).exists() for file in files[n]))


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Name the modules at the top: ``a`` for ``import a.b``."""
    for node in nodes:
        module = getattr(node, "module", None)
        for name in [module] if module else [each.name for each in _aliases(node)]:
            yield name.partition(".")[0]


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []

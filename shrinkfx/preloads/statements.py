"""The top-level statements of a file: the names that each binds and reads.

    SCALE = 2.0                             binds SCALE
    @custom_op("mylib::mix", ...)           acts: its decorator may register something
    def mix(x): return x * SCALE            binds mix, reads custom_op and SCALE
    class Net(nn.Module): ...               binds Net
    torch.manual_seed(0)                    acts

A statement acts if it may do more than bind names when the file is imported. Whether
that is needed is up to a test.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

Place = tuple[int, int]
"""Line and column of a statement, or of one name that an import binds."""

REGISTRAR = re.compile(r"custom_op|triton_op|define|impl|impl_abstract|register_\w+")
"""The last part of a dotted name that registers an operator or a part of one."""

_HARMLESS = re.compile(
    r"(lru_)?cache|(cached_)?property|setter|(abstract|class|static)method|dataclass"
    r"|contextmanager|overload|partial|wraps|no_grad|inference_mode|compile"
    r"|jit|autotune|heuristics|filterwarnings|simplefilter|basicConfig|getLogger|setLevel"
)
_HARMLESS_MODULES = sys.stdlib_module_names | {"torch", "triton"}

REFLECTION = re.compile(r"\b(globals|locals|vars|eval|exec|__dict__|modules)\b")
"""Code that matches this may refer to any name of its file."""


@dataclass(frozen=True, eq=False)
class Statement:
    """A top-level statement, with the module names that it binds and reads.

    A star import may bind any name: it binds ``*``, which every statement reads. An
    import of several names becomes one statement per name, each with the ``text`` of
    all.

    Attributes:
        origin: the statement that this one is part of, or ``node`` itself.
    """

    node: ast.stmt
    text: str
    origin: ast.stmt

    @property
    def place(self) -> Place:
        return self.node.lineno, self.node.col_offset

    @property
    def lines(self) -> range:
        return range(self.origin.lineno, (self.origin.end_lineno or 0) + 1)

    @functools.cached_property
    def code(self) -> str:
        return ast.unparse(self.node)

    @functools.cached_property
    def binds(self) -> frozenset[str]:
        names = symtable.symtable(self.code, "<statement>", "exec").get_symbols()
        binds = {n.get_name() for n in names if n.is_assigned() or n.is_imported()}
        return frozenset(binds | {"*" for a in aliases_of(self.node) if a.name == "*"})

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """The module names that the statement, or a function in it, may read."""
        return _read_names(self.node, self.code)

    @functools.cached_property
    def words(self) -> frozenset[str]:
        """Names that the statement may read from a module object."""
        nodes = [*ast.walk(self.node)]
        attributes = {part.attr for part in nodes if isinstance(part, ast.Attribute)}
        return frozenset(attributes.union(filter(str.isidentifier, _strings(nodes))))

    @functools.cached_property
    def acts(self) -> bool:
        """Whether importing the file may do more here than bind names."""
        return any(map(_acts, at_import(self.node)))

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, (ast.Import, ast.ImportFrom))

    @property
    def is_main(self) -> bool:
        if not isinstance(self.node, ast.If) or self.node.orelse:
            return False  # an else branch does run at import
        return ast.unparse(self.node.test) == "__name__ == '__main__'"

    @property
    def is_future(self) -> bool:
        return getattr(self.node, "module", "") == "__future__"

    def names_from(self, package: str) -> Mapping[str, set[str]]:
        """Return the names that the statement imports at any depth, by module.

        Args:
            package: the package that relative imports start from.
        """
        names: dict[str, set[str]] = {}
        for node in ast.walk(self.node):
            for alias in aliases_of(node):
                if isinstance(node, ast.ImportFrom):
                    names.setdefault(home_of(node, package), set()).add(alias.name)
                else:
                    names.setdefault(alias.name, set())
        return names

    def modules(self, package: str) -> set[str]:
        """Return all modules that the statement may import, with their packages."""
        names = self.names_from(package)
        inner = (f"{home}.{name}" for home, each in names.items() for name in each)
        return {each for name in (*names, *inner) for each in with_packages(name)}


def read_source(path: Path) -> str:
    """Read a file in the encoding that it declares.

    Raises:
        OSError, SyntaxError: the file cannot be read or decoded.
    """
    return importlib.util.decode_source(path.read_bytes())


@functools.lru_cache(maxsize=256)
def statements_of(text: str, name: str) -> tuple[Statement, ...]:
    """Split a file after each top-level statement; comments join the next one.

    This is cached because a search needs the same files many times.
    """
    tree = ast.parse(text, name)
    lines = text.split("\n")
    statements: list[Statement] = []
    end = 0
    for node in tree.body:
        start, end = end, node.end_lineno or end
        text = "\n".join(lines[start:end])
        after = lines[end - 1].encode()[node.end_col_offset :].lstrip()
        if node.lineno <= start or after.startswith(b";"):
            text = ast.unparse(node)  # "a = 1; b = 2": both are on one line
        statements += (Statement(part, text, node) for part in _parts(node))
    return tuple(statements)


def text_of(statements: Iterable[Statement]) -> str:
    """Return the source of statements; an import lists only its remaining names."""
    texts = []
    for _, parts in groupby(statements, lambda each: id(each.origin)):
        first, *others = parts
        text, node = first.text, first.origin
        names = [alias for each in (first, *others) for alias in aliases_of(each.node)]
        if len(names) < len(aliases_of(node)):
            above = len(text) - len(text.lstrip("\n"))
            text = "\n" * above + ast.unparse(_importing(node, names))
        texts.append(text)
    text = "\n".join(texts).lstrip("\n")
    return text + "\n" * bool(text)


def _parts(node: ast.stmt) -> list[ast.stmt]:
    """Split an import of several names into one import per name."""
    aliases = aliases_of(node)
    if len(aliases) < 2 or getattr(node, "module", "") == "__future__":
        return [node]
    return [ast.copy_location(_importing(node, [each]), each) for each in aliases]


def _importing(node: ast.stmt, names: list[ast.alias]) -> ast.stmt:
    if isinstance(node, ast.ImportFrom):
        return ast.ImportFrom(node.module, names, node.level)
    return ast.Import(names)


def _read_names(node: ast.stmt, code: str) -> frozenset[str]:
    """Return the module names that a statement reads.

    The compiler's symbol tables distinguish a local variable from a module variable of
    the same name.
    """
    fields = [vars(part).items() for part in ast.walk(node)]
    hints = [v for each in fields for k, v in each if k in ("annotation", "returns")]
    # torch evaluates x: "Tensor" when it infers an operator's schema.
    quoted = _strings(part for hint in hints if hint for part in ast.walk(hint))
    reads = {"*", *re.findall(r"\w+", " ".join(quoted))}
    scopes = [symtable.symtable(code, "<statement>", "exec")]
    for scope in scopes:
        scopes += scope.get_children()
        for name in scope.get_symbols():
            # "class C: x = x" reads the module's x, yet the table calls x local.
            outer = name.is_global() or isinstance(scope, symtable.Class)
            if (name.is_referenced() and outer) or name.is_declared_global():
                reads.add(name.get_name())
    augmented = (part for part in at_import(node) if isinstance(part, ast.AugAssign))
    return frozenset(reads | {ast.unparse(part.target) for part in augmented})


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for part in nodes:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def at_import(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported."""
    if isinstance(node, ast.stmt):
        yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
        for child in ast.iter_child_nodes(node):
            yield from at_import(child)


def _acts(node: ast.stmt) -> bool:
    match node:
        case ast.Expr():
            return not _is_harmless(node.value)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return not all(map(_is_harmless, node.decorator_list))
        case ast.Import():
            names = {each.name.partition(".")[0] for each in node.names}
            return bool(names - _HARMLESS_MODULES)
        case ast.ImportFrom():
            module = (node.module or "").partition(".")[0]
            return bool(node.level) or module not in _HARMLESS_MODULES
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            # mix = custom_op("mylib::mix")(f), module.name = ... or table[key] = ...
            registers = REGISTRAR.fullmatch(last_name(node.value))
            stored = [
                p for p in ast.walk(node) if isinstance(getattr(p, "ctx", 0), ast.Store)
            ]
            return bool(registers) or any(
                isinstance(part, (ast.Attribute, ast.Subscript)) for part in stored
            )
    return isinstance(node, (ast.Delete, ast.For, ast.While, ast.With))


def _is_harmless(action: ast.expr) -> bool:
    is_constant = isinstance(action, ast.Constant)
    return is_constant or bool(_HARMLESS.fullmatch(last_name(action)))


def last_name(action: ast.AST | None) -> str:
    """Reduce ``torch.library.impl(lib, "mix")`` to ``impl``."""
    while isinstance(action, ast.Call):
        action = action.func
    return getattr(action, "attr", getattr(action, "id", ""))


def span_of(node: ast.expr) -> tuple[int, int, int, int]:
    """Return first line and column, and last line and column."""
    end, end_column = node.end_lineno or 0, node.end_col_offset or 0
    return node.lineno, node.col_offset, end, end_column


def aliases_of(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []


def home_of(node: ast.ImportFrom, package: str) -> str:
    """Return the name of the module in ``from module import ...``.

    Args:
        package: the package that relative imports start from.
    """
    above = package.split(".")[: -(node.level - 1) or None] if node.level else []
    return ".".join(filter(None, [*above, node.module]))


def with_packages(name: str) -> Iterator[str]:
    """Yield the packages that contain a module, then the module's name."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        if parts[end - 1]:
            yield ".".join(parts[:end])

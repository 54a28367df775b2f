"""Find the modules that a program needs in order to run and compile as in the script.

A module is needed for one of four reasons: it registered an operator of the program, it
is a loaded library that holds such an operator, it put code of the user into Inductor,
or it defines a class that the program takes or returns.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import mmap
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from types import FrameType, FunctionType, ModuleType
from typing import Any

from ....program.pytorch_names import PYTORCH_NAMESPACES
from ....protocol.captured import MAIN, Origin
from .event_log import torch_folder

Names = Mapping[str, object]
"""The namespace of a module."""

_INDUCTOR = "torch._inductor."
_LOWERINGS = "torch._inductor.lowering"
_GENERATED = "torch._inductor.runtime.compile_tasks."
"""Prefix of the modules with code that Inductor itself generated."""

_SKIP = ("torch", "triton", "_shrinkfx_watching", "shrinkfx")


@dataclass(frozen=True)
class Entry:
    """A function, class or object of the user in Inductor.

    Attributes:
        module: the module of Inductor that holds it.
        place: an expression to assign to; '' if there is none.
        origin: the module that defines the value.
    """

    module: str
    place: str
    value: object
    origin: Origin


class Origins:
    """Records which modules register operators, and finds the other modules."""

    def __init__(self) -> None:
        self._registrars: dict[str, dict[str, Origin]] = {}
        self._compiled: dict[str, Origin] = {}
        self._calls: dict[str, dict[str, None]] = {}

    def watch(self, library: ModuleType) -> None:
        """Record each creation of a ``torch.library.Library``.

        All operators that are registered from Python go through that class.
        """
        original = library.Library.__init__

        def __init__(made: object, ns: str, *args: object, **kwargs: object) -> None:
            if ns not in PYTORCH_NAMESPACES:
                origin = _registrar(sys._getframe(1), f"operators of {ns}")
                if origin is not None:
                    known = self._registrars.setdefault(ns, {})
                    known.setdefault(origin.module, origin)
            original(made, ns, *args, **kwargs)

        __init__.__wrapped__ = original  # type: ignore[attr-defined]
        library.Library.__init__ = __init__

    def watch_compiling(self, extension: ModuleType) -> None:
        """Record which module compiles a library by ``load_inline`` during its import.

        Calls from inside a function are not recorded, because an import does not repeat
        them.
        """
        original = extension.load_inline

        @wraps(original)
        def load_inline(*args: object, **kwargs: object) -> object:
            frame = sys._getframe(1)
            before = set(_mapped())
            result = original(*args, **kwargs)
            if frame.f_code.co_name == "<module>":
                origin = _origin_of(frame.f_globals, "operators in C++")
                new = (path for path in _mapped() if path not in before)
                self._compiled.update(dict.fromkeys(new, origin))
            return result

        extension.load_inline = load_inline  # type: ignore[attr-defined]

    def watch_patterns(self, matcher: ModuleType) -> None:
        """Record the functions of the user that register patterns of custom passes."""
        original = matcher.PatternEntry.register

        @wraps(original)
        def register(*args: object, **kwargs: object) -> object:
            module, call = _find_registering_call(sys._getframe(1))
            if call:
                self._calls.setdefault(module, {})[call] = None
            return original(*args, **kwargs)

        matcher.PatternEntry.register = register

    def list_origins(
        self, exported: Any, settings: Iterable[object], entries: Iterable[Entry]
    ) -> list[Origin]:
        """List the origins that a program needs, in an order that can be imported."""
        operators = find_custom_operators(exported)
        spaces = dict.fromkeys(name.partition("::")[0] for name in operators)
        origins = [self._compiled.get(o.library, o) for o in find_libraries(operators)]
        for space in spaces:
            origins += self._registrars.get(space, {}).values()
        origins += _of_classes(_classes(exported))
        origins += find_origins_in_inductor(settings, entries)
        first: dict[tuple[str, str], Origin] = {}
        for origin in origins:
            first.setdefault((origin.module, origin.library), origin)
        return [
            replace(origin, registering_calls=tuple(self._calls.get(origin.module, ())))
            for origin in first.values()
        ]


_REGISTERING = (
    "_inductor/pattern_matcher.py",
    "utils/_config_module.py",
    "utils/_contextlib.py",
)
"""The files of PyTorch that are between a user's call and the registration."""


def _find_registering_call(frame: FrameType | None) -> tuple[str, str]:
    """Return the user's module that registers a pattern, and its call that does so.

    It is the outermost call in the module that can be written as source code.

    Returns:
        ``("", "")`` if there is no such call, if PyTorch itself registers, or if an
        import of the module repeats the call.
    """
    frames: list[FrameType] = []
    while frame is not None:
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__")
        is_users = not file.startswith((torch_folder(), "<")) and is_local(file)
        if frames and module != frames[-1].f_globals.get("__name__"):
            break
        if is_users:
            frames.append(frame)
        elif file.startswith(torch_folder()) and not file.endswith(_REGISTERING):
            return "", ""
        frame = frame.f_back
    name = str(frames[-1].f_globals.get("__name__")) if frames else MAIN
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    importer = frame.f_globals.get("__name__") if frame is not None else MAIN
    is_repeated = f"{name}.".startswith(f"{importer}.")
    if name == MAIN or is_repeated or frames[-1].f_code.co_name == "<module>":
        return "", ""
    calls = (_write_call(each) for each in reversed(frames))
    return name, next(filter(None, calls), "")


def _write_call(frame: FrameType) -> str:
    """Return a running call of a module's function as source code, or ''."""
    code = frame.f_code
    count, first = code.co_argcount + code.co_kwonlyargcount, code.co_posonlyargcount
    names = code.co_varnames[:count]
    takes_more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    stored = (i for i in dis.get_instructions(code) if "STORE_FAST" in i.opname)
    changed = {str(name) for i in stored for name in _as_tuple(i.argval)}
    values = [frame.f_locals.get(name) for name in names]
    if takes_more or changed.intersection(names) or not all(map(_is_literal, values)):
        return ""
    if code.co_name != getattr(code, "co_qualname", ""):
        return ""  # no function of the module itself
    texts = [repr(value) for value in values]
    named = map("{}={}".format, names[first:], texts[first:])
    return f"{code.co_name}({', '.join([*texts[:first], *named])})"


def _as_tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_literal(value: object) -> bool:
    """Return whether the text of a value is Python code for the same value."""
    with contextlib.suppress(ValueError, SyntaxError):
        read = ast.literal_eval(repr(value))
        return type(read) is type(value) and bool(read == value)
    return False


def find_custom_operators(exported: Any) -> list[str]:
    """Return the names of a program's operators that do not come with PyTorch."""
    names: dict[str, None] = {}
    for graph in exported.graph_module.modules():
        for node in getattr(getattr(graph, "graph", None), "nodes", ()):
            # Operators are arguments of ``auto_functionalized`` and ``with_effects``.
            for called in (node.target, *node.args):
                name = getattr(getattr(called, "_schema", None), "name", "")
                if name and name.partition("::")[0] not in PYTORCH_NAMESPACES:
                    names[name] = None
    return list(names)


def _registrar(frame: FrameType | None, why: str) -> Origin | None:
    """Return the module whose import is running; None if torch itself registers.

    If a helper function of another module registers, the importing caller counts. If no
    import is running, the nearest frame's module is returned as ``called``.
    """
    nearest: FrameType | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        is_import = file.startswith("<frozen importlib")
        if nearest is None and is_import:
            return None
        if not is_import and not file.startswith(torch_folder()):
            nearest = nearest or frame
            if frame.f_code.co_name == "<module>":
                return _origin_of(frame.f_globals, why)
        elif is_import and nearest is not None:
            break
        frame = frame.f_back
    if nearest is None:
        return None
    return replace(_origin_of(nearest.f_globals, why), called=True)


def _origin_of(names: Names, why: str) -> Origin:
    file = names.get("__file__")
    path = os.path.abspath(file) if isinstance(file, str) else ""
    return _origin(str(names.get("__name__", "")), path, why)


def _origin(module: str, file: str, why: str, library: str = "") -> Origin:
    place = file or library
    return Origin(module, file, library, bool(place) and is_local(place), why)


def find_libraries(operators: Iterable[str]) -> Iterator[Origin]:
    """Yield the libraries that hold operators which no Python file has defined."""
    import torch

    unlocated = []
    for name in operators:
        dump = torch._C._dispatch_dump(name)
        debug = dump.partition("debug: ")[2].partition("\n")[0]
        if ".py:" not in debug and "/dev/null" not in debug:
            unlocated.append(name)
    if not unlocated:
        return
    for path in _mapped():
        registered = _named_in(path, unlocated)
        if registered:
            why = f"operators {', '.join(registered)}"
            module = _module_at(path)
            if module is None:
                yield _origin("", "", why, path)
            else:
                yield _origin(module, path, why)


_REGISTERS = (b"5torch7Library", b"RegisterOperators", b"aoti_torch_library_")
"""Symbols of the functions that a library calls to register operators.

Other libraries may contain the same strings as the operator names, such as ``ops`` and
``add``, without defining the operators.
"""


def _named_in(path: str, operators: Iterable[str]) -> list[str]:
    """Return the operators that a library registers.

    The namespace and the name of such an operator both occur in the file.
    """
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if not any(content.find(symbol) >= 0 for symbol in _REGISTERS):
            return []
        return [
            name
            for name in operators
            if all(content.find(part.encode()) >= 0 for part in name.split("::"))
        ]


def _mapped() -> list[str]:
    """List the libraries in this process's memory that did not come with torch."""
    with open("/proc/self/maps", errors="replace") as file:
        paths = [line.split(maxsplit=5)[5].strip() for line in file if "/" in line]
    skipped = (torch_folder(), *_SYSTEM)
    libraries = [p for p in dict.fromkeys(paths) if ".so" in os.path.basename(p)]
    return [p for p in libraries if not p.startswith(skipped) and os.path.isfile(p)]


_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/local/cuda")


def _module_at(path: str) -> str | None:
    """Return the module of an extension library, or the installed package with it."""
    folder, package = os.path.dirname(path), None
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.realpath(file) == os.path.realpath(path):
            return name
        if file and folder == os.path.dirname(file) and hasattr(module, "__path__"):
            package = name
    return None if is_local(path) else package


def _classes(exported: Any) -> Iterator[type]:
    """Yield the container classes in a program's inputs and outputs."""
    call = exported.call_spec
    stack = [call.in_spec, call.out_spec] if call is not None else []
    while stack:
        spec = stack.pop()
        kind = getattr(spec, "type", None)
        if isinstance(kind, type):
            yield kind
        if hasattr(spec, "children"):
            stack += spec.children()
        else:
            stack += getattr(spec, "children_specs", ())


def _of_classes(classes: Iterable[type]) -> Iterator[Origin]:
    for kind in classes:
        if kind.__module__ not in ("builtins", "collections"):
            yield from _of_module(kind.__module__, f"class {kind.__name__}")


def _of_module(name: str, why: str) -> Iterator[Origin]:
    """Yield the origin of a module, unless it is of torch or the standard library."""
    top = name.partition(".")[0]
    if top in _SKIP or (top in sys.stdlib_module_names and top != MAIN):
        return
    module = sys.modules.get(name)
    if module is not None and (name == MAIN or hasattr(module, "__file__")):
        yield _origin_of(vars(module), why)


def find_origins_in_inductor(
    settings: Iterable[object], entries: Iterable[Entry]
) -> Iterator[Origin]:
    """Yield the origins of code that is in Inductor, or in values of its settings."""
    first: dict[str, Origin] = {}
    for origin in (*(entry.origin for entry in entries), *_of_values(settings)):
        first.setdefault(origin.module, origin)
    yield from first.values()


def find_entries() -> Iterator[Entry]:
    """Yield the user's functions in Inductor: lowerings, printers, passes.

    Functions of installed packages do not count, because an import of the package puts
    them there again.
    """
    seen: set[tuple[int, object]] = set()  # a table has names in several modules
    modules = list(sys.modules.items())
    modules.sort(key=lambda item: item[0] != _LOWERINGS)  # others refer to its tables
    for name, module in modules:
        if not name.startswith(_INDUCTOR) or not isinstance(module, ModuleType):
            continue
        if name.startswith(_GENERATED):
            continue
        for attribute, value in list(vars(module).items()):
            where = f"{name}.{attribute}"
            for holder, key, part in _within(value, name):
                if holder is not None and (id(holder), key) in seen:
                    continue
                for origin in _of_values([part]):
                    if origin.is_local:
                        seen.add((id(holder), key))
                        place = _write_place(where, holder, key)
                        yield Entry(name, place, part, replace(origin, why=where))


def _within(value: Any, module: str) -> Iterator[tuple[object, object, object]]:
    """Yield a value of a module, and the entries of the table or class that it is.

    Each comes with its holder, which is None for the value itself, and its key there.
    """
    yield None, "", value
    if isinstance(value, dict):
        yield from ((value, key, entry) for key, entry in list(value.items()))
    elif isinstance(value, (list, set)):
        yield from ((value, i, entry) for i, entry in enumerate(list(value)))
    elif isinstance(value, type) and value.__module__ == module:
        yield from ((value, key, entry) for key, entry in list(vars(value).items()))


def _write_place(where: str, holder: object, key: object) -> str:
    """Return an expression to assign to; '' if there is none.

    Args:
        where: an expression for the holder, or for the value itself.
    """
    if holder is None:
        return where
    if isinstance(holder, type):
        return f"{where}.{key}"
    if isinstance(holder, dict) and isinstance(key, (str, int)):
        return f"{where}[{key!r}]"
    if isinstance(holder, dict) and type(key).__module__ == "torch._ops":
        return f"{where}[torch.ops.{key}]"
    return ""


def _of_values(values: Iterable[object]) -> Iterator[Origin]:
    """Yield the modules that define functions, classes or objects."""
    for value in values:
        while isinstance(value, (staticmethod, classmethod, partial)):
            value = value.func if isinstance(value, partial) else value.__func__
        modules = {getattr(value, "__module__", None): None}
        while isinstance(value, FunctionType):
            # functools.wraps copies __module__ from the wrapped function
            modules[value.__globals__.get("__name__")] = None
            value = getattr(value, "__wrapped__", None)
        for module in modules:
            if isinstance(module, str) and module:
                yield from _of_module(module, "its code is in a setting of Inductor")


@cache
def is_local(path: str) -> bool:
    """Return whether a file is the user's own: no installation contains it."""
    real = os.path.realpath(path)
    installed = [os.path.realpath(each) for each in sysconfig.get_paths().values()]
    return "-packages/" not in real and not real.startswith(
        tuple(f"{each}/" for each in installed)
    )

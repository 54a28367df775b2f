"""Run a registering script as the repro's user would, and report its effects."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.protocol.answers import Registered
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker import bare_script
from shrinkfx.worker.aoti.shared_libraries import shared_extensions
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.model import Program
from shrinkfx.worker.preloads.files_used import FileRecorder
from shrinkfx.worker.private_api import graph_api, operator_api
from shrinkfx.worker.private_api.graph_api import pytree


def register(script: Path, setup: Setup, operators: Sequence[str]) -> Registered:
    """Run ``script``, then load, export and run the program of ``setup`` with it.

    Args:
        operators: the program's operators, as ``mylib::mix``.
    """
    os.chdir(script.parent)
    home = Path(setup.directory)
    bare_script.set_environment_and_path(
        bare_script.environment(home), str(script.parent)
    )
    before, known = first_snapshot(), _registered()
    before.note_state()
    with FileRecorder() as recorder:
        with shared_extensions(home, script):
            _run(script)
        registered = sorted(_registered() - known)
        new = {name.partition(".")[0] for name in registered}
        custom = {
            name: describe_registrations(name) for name in sorted(new & set(operators))
        }
        changes = before.changes(custom)
        program = load(setup)
        exported = _describe_outcome(_export, program)
        if setup.backend == Backend.INTERPRETER:
            interpreter.switch_on(setup.arch)
        outcome = _describe_outcome(_eager, program)
    used = recorder.collect_files()
    files, elsewhere = _used(used, script.parent)
    return Registered(
        changes=changes.places,
        own=changes.own,
        registered=tuple(registered),
        exported=exported,
        outcome=outcome,
        modules=tuple(sorted(used.modules)),
        files=tuple(sorted(files)),
        elsewhere=tuple(sorted(elsewhere)),
    )


def _used(used: UninstalledFiles, home: Path) -> tuple[set[str], set[str]]:
    """Return the used files in the script's folder by name, and those elsewhere."""
    real = home.resolve()
    paths = [Path(file).resolve() for file in (*used.libraries, *used.files)]
    files = {path.name for path in paths if path.parent == real}
    return files, {str(path) for path in paths if path.parent != real}


def _registered() -> set[str]:
    missing = operator_api.FEATURE.missing
    return set() if missing else set(operator_api.all_operator_names())


def _run(script: Path) -> None:
    """Run the script as ``__main__``, which its functions need while they exist."""
    module = ModuleType("__main__")
    module.__file__ = str(script)
    sys.modules["__main__"] = module
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), vars(module))


def _describe_outcome(describe: Callable[[Program], str], program: Program) -> str:
    """Return what ``describe`` returns, or a line with the exception's type.

    Programs that fail in the same way give the same line.
    """
    try:
        with torch.no_grad():
            return describe(program)
    except Exception as error:  # noqa: BLE001 - the user's operators may raise anything
        return f"raises {type(error).__name__}"


def _export(program: Program) -> str:
    module = program.original.module(check_guards=False)
    example = program.example
    exported = torch.export.export(module, example.args, dict(example.kwargs))
    values = [
        str(getattr(node.meta.get("val"), "shape", ""))
        for node in exported.graph.nodes
        if node.op == "call_function"
    ]
    return f"{exported.graph}\n{values}"


def _eager(program: Program) -> str:
    torch.manual_seed(0)
    module = program.original.module(check_guards=False)
    example = program.example
    returned = module(*example.args, **example.kwargs)
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(returned):
        digest.update(_bytes(leaf))
    return digest.hexdigest()[:16]


def _bytes(value: object) -> bytes:
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    header = f"{value.dtype} {tuple(value.shape)}".encode()
    if value.layout != torch.strided or value.is_quantized:
        return header + repr(value).encode()
    flat = value.detach().cpu().contiguous().resolve_conj().resolve_neg().reshape(-1)
    return header + bytes(flat.view(torch.uint8).numpy().tobytes())


# Find what a preload changes in PyTorch, place by place.
#
#     lowerings[aten.roll.default] = f  torch._inductor.lowering.lowerings[aten.roll...]
#     CppOverrides.hypot = g            torch._inductor.codegen.cpp.CppOverrides.hypot
#
# Eager mode sees none of these changes, while the compiler may see all of them. Two
# forks of one process share the objects from before the fork; an object that was made
# later is compared by the code that made it.

SEARCHED_PACKAGES = ("torch", "triton")
"""The top-level packages to search for changes."""

_COMPILER = (
    "torch._inductor.lowering",
    "torch._inductor.decomposition",
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp",
    "torch._inductor.codegen.triton",
    "torch._decomp",
)
"""Modules to import before the snapshot.

The snapshot knows nothing about modules that are imported later.
"""

_CONFIGS = ("torch._inductor.config", "torch._dynamo.config", "torch._functorch.config")
_CONTAINERS = (
    *(staticmethod, classmethod, partial),
    *(list, tuple, set, frozenset, dict),
)
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))

_IGNORED = (
    "torch.ao.",
    "torch.distributed.",
    "torch.jit.",
    "torch.onnx.",
    "torch.ops.",
    "torch.optim.",
    "torch.testing.",
    "triton.runtime.jit.",
)
"""Modules that do not affect compilation, or that only list names."""

_TRACING = re.compile(
    r" (cached_ops|_SCHEMA_TO_SIGNATURE_CACHE): | DESCRIBER_NEXT_ID$| current_meta\b"
    r"| _loader: next_id$| FakeTensorMode: cache_(hits|misses)$| \w+: __slotnames__$"
)
"""Places of caches and counters that change when a preload traces a pattern."""

Place = tuple[int, Hashable]
"""The id of the object that holds a value, and the key or name in it."""


_COMPILERS = ("torch._inductor", "torch._decomp", "torch._functorch", "triton")
"""Prefixes of places where code is part of the compiler."""


@dataclass(frozen=True)
class Changes:
    """The differences to a snapshot.

    Attributes:
        places: each changed place, with a description of its current value.
        own: the places where code from outside PyTorch is part of the compiler.
    """

    places: Mapping[str, str]
    own: tuple[str, ...]


class Snapshot:
    """The values of all places at one time, for comparison with a later state."""

    def __init__(self) -> None:
        for name in _COMPILER:
            importlib.import_module(name)
        self._modules = set(_modules())
        self._values = {place: (at, value) for place, at, _, value in _values()}
        self.note_state()

    def note_state(self) -> None:
        """Note the settings and environment variables of this moment."""
        self._state = _state()

    def changes(self, operators: Mapping[str, str]) -> Changes:
        """Describe the values that are new or changed since the snapshot, by place.

        Args:
            operators: descriptions of the registrations of operators of interest.
        """
        places, missing = dict(operators), dict(self._values)
        user = [name for name, value in _settings() if _is_own(value)]
        for place, holder, key, value in _values():
            known = missing.pop(place, None)
            if isinstance(value, ModuleType) or (known and _is_same(known[1], value)):
                continue
            module = holder.partition(" ")[0]
            if known or module in self._modules or _is_foreign(value):
                description = _description(value)
                # An index is no stable key: removing an element moves the next ones.
                name = f"{holder} {description if isinstance(key, int) else _key(key)}"
                if _TRACING.search(name):
                    continue
                places[name] = places.get(name, "") + description
                if _is_own(value) or (known and self._is_replacement(key, value)):
                    user.append(name)
        for (_, key), (holder, value) in missing.items():
            places[name := f"{holder} {_key(key)} (removed)"] = "is gone"
            if self._is_replacement(key, value):
                user.append(name)
        state = _state()
        places |= {k: v for k, v in state.items() if self._state.get(k) != v}
        own = {name for name in user if name in places and name.startswith(_COMPILERS)}
        return Changes(places, tuple(sorted(own)))

    def _is_replacement(self, key: Hashable, value: object) -> bool:
        """Return whether only the user's code can have set or removed this entry.

        It is PyTorch's code for an operator, from a module that was loaded before, and
        the operator had an entry. PyTorch changes one only when it imports a module.
        """
        is_operator = isinstance(key, graph_api.OpOverload)
        home = getattr(value, "__module__", "")
        return is_operator and isinstance(value, FunctionType) and home in self._modules


@functools.cache
def first_snapshot() -> Snapshot:
    """Return the first snapshot of this process, or of the server that forked it."""
    return Snapshot()


def describe_registrations(operator: str) -> str:
    """Describe the kernels and the fake kernel registered for ``mylib::mix``."""
    if operator_api.FEATURE.missing:
        return ""
    dump = operator_api.dispatch_dump(operator)
    dispatched = re.sub(r"0x[0-9a-f]+|registered at \S+", "", dump)
    if not operator.partition(".")[0]:
        return dispatched
    entries = getattr(operator_api.simple_registry.singleton, "_data", {})
    entry = entries.get(operator.partition(".")[0])
    return dispatched + (_description(entry) if entry is not None else "")


def _modules() -> list[str]:
    """Return the compiler's modules; searching all modules takes twice as long."""
    names = (
        name
        for name in list(sys.modules)
        if name.partition(".")[0] in SEARCHED_PACKAGES
    )
    return [name for name in names if not f"{name}.".startswith(_IGNORED)]


def _values() -> Iterator[tuple[Place, str, Hashable, Any]]:
    """Yield the values in modules, and in their tables and classes."""
    seen: set[int] = set()
    for module in _modules():
        loaded = sys.modules[module]
        if not isinstance(loaded, ModuleType):
            continue
        for name, value in list(vars(loaded).items()):
            yield (id(loaded), name), module, name, value
            if id(value) not in seen and _is_table(value):
                seen.add(id(value))
                holder = f"{module} {name}:"
                for key, entry in _entries(value):
                    yield (id(value), key), holder, key, entry


def _is_table(value: object) -> bool:
    kind = type(value)
    if kind in (dict, list, set):
        return value is not sys.modules
    if issubclass(kind, (ModuleType, torch.Tensor, FunctionType)):
        return False
    home = getattr(value if issubclass(kind, type) else kind, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in SEARCHED_PACKAGES


def _entries(value: Any) -> Iterator[tuple[Hashable, Any]]:
    if isinstance(value, dict):
        yield from list(value.items())
    elif isinstance(value, list):
        yield from enumerate(list(value))
    elif isinstance(value, set):
        yield from ((each, True) for each in list(value))
    else:
        yield from list(getattr(value, "__dict__", {}).items())


def _key(key: object) -> str:
    if isinstance(key, (*_SIMPLE, graph_api.OpOverload, graph_api.OpOverloadPacket)):
        return str(key)
    return getattr(key, "__qualname__", "") or type(key).__qualname__


def _is_same(before: object, now: object) -> bool:
    return before is now or (isinstance(now, _SIMPLE) and before == now)


def _is_foreign(value: object) -> bool:
    is_code = isinstance(value, (FunctionType, MethodType, type))
    return is_code and _is_of_others(value)


def _is_of_others(value: object) -> bool:
    """Return whether a value names another module than PyTorch's as its home.

    ``functools.wraps`` copies the name of the wrapped function's module, so a wrapper
    around a function of PyTorch tells its home by its globals only.
    """
    names = [getattr(value, "__module__", None)]
    if isinstance(value, FunctionType):
        names.append(value.__globals__.get("__name__"))
    packages = {str(name).partition(".")[0] for name in names if name}
    return bool(packages - {*SEARCHED_PACKAGES, *sys.stdlib_module_names})


def _is_own(value: object, depth: int = 3) -> bool:
    """Return whether a value is, holds or calls non-PyTorch code.

    A function of PyTorch calls what is in its closure, such as the function that
    ``make_pointwise`` was given.
    """
    if isinstance(value, _CONTAINERS):
        return any(map(_is_own, _parts(value)))
    if depth and isinstance(value, FunctionType):
        closure = _read_closure(value)
        if any(_is_own(each, depth - 1) for each in closure if callable(each)):
            return True
    return _is_of_others(value) or _is_of_others(type(value))


def _settings() -> Iterator[tuple[str, object]]:
    """Yield Inductor's, Dynamo's and AOTAutograd's settings with their values."""
    for name in _CONFIGS:
        config = sys.modules.get(name)
        if config is not None and hasattr(config, "get_config_copy"):
            for option, value in config.get_config_copy().items():
                yield f"{name} {option}", value


def _state() -> dict[str, str]:
    """Return the settings that are not stored as attributes of a module."""
    return {
        **{f"variable {name}": value for name, value in os.environ.items()},
        **{name: _description(value) for name, value in _settings()},
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "threads": str(torch.get_num_threads()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "precision": torch.get_float32_matmul_precision(),
    }


def _description(value: object, depth: int = 3) -> str:
    """Describe a value; equal statements in another process give the same text."""
    if isinstance(value, _SIMPLE):
        return repr(value)[:200]
    kind = _kind(type(value))
    if not depth:
        return kind
    parts = [_description(each, depth - 1) for each in _parts(value)[:100]]
    name = getattr(value, "__qualname__", "")
    return f"{kind} {name} ({', '.join(parts)})"


def _kind(kind: type) -> str:
    """Return the name of a class; for a user's class also digests of its methods."""
    if not _is_of_others(kind):
        return f"{kind.__module__}.{kind.__qualname__}"
    methods = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    code = [_digest(method.__code__) for method in methods]
    counts = [count for method in methods for count in _count_patterns(method)]
    return " ".join([kind.__qualname__, *code, *counts])


def _count_patterns(function: FunctionType) -> Iterator[str]:
    """Yield the number of patterns in each global pattern table of a function."""
    for name in function.__code__.co_names:
        table = function.__globals__.get(name)
        if type(table).__module__ == "torch._inductor.pattern_matcher":
            patterns = getattr(table, "patterns", {})
            yield str(sum(map(len, patterns.values())))


def _parts(value: object) -> list[object]:
    match value:
        case FunctionType():
            counts = _count_patterns(value)
            return [_digest(value.__code__), *_read_closure(value), *counts]
        case partial():
            return [value.func, *value.args, *value.keywords.values()]
        case MethodType() | staticmethod() | classmethod():
            return [value.__func__]
        case list() | tuple():
            return list(value)
        case set() | frozenset():
            return sorted(value, key=_key)
        case dict():
            return [part for row in value.items() for part in row]
        case type() | BuiltinFunctionType() | ModuleType() | torch.Tensor():
            return []
    return [part for row in getattr(value, "__dict__", {}).items() for part in row]


def _read_closure(function: FunctionType) -> list[object]:
    """Return the values in a function's closure; skip cells that are still empty."""
    contents = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            contents.append(cell.cell_contents)
    return contents


def _digest(code: CodeType) -> str:
    """Hash a function's code, independent of where the function was written."""
    digest = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        text = _digest(constant) if isinstance(constant, CodeType) else repr(constant)
        digest.update(text.encode())
    digest.update(" ".join(code.co_names).encode())
    return digest.hexdigest()[:16]

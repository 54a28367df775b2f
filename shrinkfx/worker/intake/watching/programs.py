"""Save programs and inputs on their way to Inductor."""

from __future__ import annotations

import ast
import inspect
import io
import operator
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from ....program.pytorch_names import (
    ARITHMETIC,
    COMPILERS,
    SECRETS,
    SIZE_FUNCTIONS,
    VARIABLES,
)
from ....protocol.captured import (
    MAIN,
    SAVE,
    STACK_TRACES,
    CapturedProgram,
    ImportedValue,
    Settings,
)
from .event_log import EventLog, find_calling_line, report_errors
from .origins import Entry, Origins, find_entries


def save_program(
    log: EventLog, origins: Origins, exported: Any, options: Settings | None
) -> int:
    """Save a program with its record, and return its number."""
    return _save_with_record(log, origins, exported, options, partial(_saved, exported))


@dataclass(frozen=True)
class _Graph:
    """A graph that torch.compile passes to Inductor, with the fields of a program."""

    graph_module: Any
    call_spec: None = None


def save_graph(
    log: EventLog, origins: Origins, module: Any, inputs: Sequence[Any], part: str
) -> int:
    """Save a graph of torch.compile with its record, and return its number.

    Args:
        inputs: fake tensors and symbolic sizes.
        part: ``backward``, or ''.
    """
    save = partial(_saved_as_script, module, inputs)
    return _save_with_record(log, origins, _Graph(module), None, save, part)


def _save_with_record(
    log: EventLog,
    origins: Origins,
    exported: Any,
    options: Settings | None,
    save: Callable[[str], str],
    part: str = "",
) -> int:
    number = 0
    with report_errors():
        number = log.claim()
        with log.step(SAVE, number):
            unsaved = save(log.path(f"program-{number}"))
        record = CapturedProgram(
            number,
            ", ".join(filter(None, (find_calling_line(), part))),
            unsaved,
            _read_environment(),
        )
        settings: Settings = {}
        with report_errors():
            settings = {**read_changed_settings(), **(options or {})}
            inductor, others = split_settings(settings)
            record = replace(record, inductor=inductor, others=others)
        entries: list[Entry] = []
        with report_errors():
            entries += find_entries()
            described = describe_entries(entries)
            record = replace(record, others={**record.others, **described})
        with report_errors():
            record = replace(
                record,
                operators=count_operators(exported),
                origins=tuple(
                    origins.list_origins(exported, settings.values(), entries)
                ),
            )
        log.write(f"program-{number}.json", record)
    return number


def _saved(exported: Any, path: str) -> str:
    """Save a program; return why it could not be saved, or ''."""
    import torch

    draft = _draft(path)
    try:
        torch.export.save(exported, f"{draft}.pt2")
        os.replace(f"{draft}.pt2", f"{path}.pt2")
    except Exception as error:  # noqa: BLE001 - what torch cannot save, the script can do
        reason = _in_short(error)
        try:
            _save_as_source(exported, draft)
            os.replace(draft, f"{path}.zip")
        except Exception as second:  # noqa: BLE001 - as above
            return f"{reason}; as source code: {_in_short(second)}"
    return ""


def _saved_as_script(module: Any, inputs: Sequence[Any], path: str) -> str:
    """Save a graph as the script that PyTorch writes of it (``fx_graph_runnable``).

    A table of the lines of the user's code is added. The values of constant tensors are
    in a file next to the script, which only makes them up.
    """
    import torch

    dumps, draft = import_module("torch._dynamo.repro.after_aot"), _draft(path)
    constants = module.state_dict()
    if any(value.is_mkldnn for value in constants.values()):
        return "freezing has packed its weights (torch._inductor.config.freezing)"
    try:
        text = io.StringIO()
        dumps.save_graph_repro(text, module, inputs, "inductor")
        # PyTorch writes no body if there are no inputs.
        script = _LOADS_NOTHING.sub(r"\g<0> pass", text.getvalue())
        with open(draft, "w", encoding="utf-8") as file:
            file.write(script)
            file.write(f"\n{STACK_TRACES} = {_list_stack_traces(module)!r}\n")
        if constants:
            torch.save(constants, f"{path}.pt")
        os.replace(draft, f"{path}.py")
    except Exception as error:  # noqa: BLE001 - what cannot be written may still be compiled
        return _in_short(error)
    return ""


_LOADS_NOTHING = re.compile(r"^def load_args\(reader\):(?=\n\S)", re.MULTILINE)


def _list_stack_traces(module: Any) -> dict[str, str]:
    """Map the nodes of a graph and its subgraphs to their lines in the user's code.

    A name that nodes of different lines have is omitted.
    """
    found: dict[str, set[str]] = {}
    for part in module.modules():
        for node in getattr(getattr(part, "graph", None), "nodes", ()):
            found.setdefault(node.name, set()).add(node.stack_trace or "")
    return {name: traces.pop() for name, traces in found.items() if len(traces) == 1}


def _draft(path: str) -> str:
    return os.path.join(os.path.dirname(path), f"draft-{os.path.basename(path)}")


def _save_as_source(exported: Any, path: str) -> None:
    """Write a source archive, with shrinkfx on ``sys.path``, which may lack it."""
    folder = str(Path(__file__).resolve().parents[4])
    before = list(sys.path)
    if folder not in before:
        sys.path.append(folder)
    try:
        import_module("shrinkfx.worker.printing.module").save_as_source(exported, path)
    finally:
        sys.path[:] = before


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


_SPARED_BYTES = 2 << 30
"""Free bytes of the disk below which no inputs are saved."""


def save_call_inputs(
    path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """Save the inputs of a call, with devices, strides and shared storage.

    Returns:
        Why they could not be saved, or ''.
    """
    import torch

    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured: nothing can be copied"
    if shutil.disk_usage(os.path.dirname(path)).free < _SPARED_BYTES:
        return f"less than {_SPARED_BYTES >> 30} GiB of the disk is free"
    inputs = {"args": args, "kwargs": dict(kwargs)} if kwargs else args
    draft = f"{path}.{threading.get_ident()}"
    try:
        torch.save(inputs, draft)
        os.replace(draft, path)
    except Exception as error:  # noqa: BLE001 - what cannot be saved may still be run
        return _in_short(error)
    return ""


def count_operators(exported: Any) -> int:
    """Count a program's operators in the same way as the search does."""
    graphs = (getattr(each, "graph", None) for each in exported.graph_module.modules())
    nodes = (node for graph in graphs if graph is not None for node in graph.nodes)
    return sum(map(is_operator, nodes))


def is_operator(node: Any) -> bool:
    """Return whether shrinkfx counts a graph node as an operator."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if getattr(node.target, "__name__", "") in SIZE_FUNCTIONS:
        return False
    computes = getattr(node.target, "__module__", "") in ARITHMETIC
    return not computes or hasattr(node.meta.get("val"), "dtype")


def _read_environment() -> dict[str, str]:
    """Return the current environment variables that may matter."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith((*VARIABLES, *COMPILERS))
        and not any(word in name for word in SECRETS)
    }


_default_threads: list[int] = []


def note_default_threads() -> None:
    """Note the number of threads, before a script can change it."""
    _default_threads.append(sys.modules["torch"].get_num_threads())


def read_changed_settings() -> dict[str, Any]:
    """Return Inductor's settings that differ from the default; {} without Inductor.

    A setting that was changed and set back to the default counts as unchanged. The
    setting for threads also states what ``torch.set_num_threads`` has changed.
    """
    config = sys.modules.get("torch._inductor.config")
    if config is None or not hasattr(config, "_is_default"):
        return {}
    entries = getattr(config, "_config", {})
    threads = sys.modules["torch"].get_num_threads()
    is_set = _default_threads and threads != _default_threads[0]
    of_threads = {"cpp.threads": threads} if is_set else {}
    return of_threads | {
        name: value
        for name, value in config.get_config_copy().items()
        if not config._is_default(name)
        and not (name in entries and _is_same(value, entries[name].default))
    }


def split_settings(settings: Settings) -> tuple[Settings, dict[str, ImportedValue]]:
    """Return the settings with simple values, and how an import makes the others."""
    plain = {k: v for k, v in settings.items() if _is_plain(v)}
    others = {k: _describe_import(v) for k, v in settings.items() if k not in plain}
    return plain, others


def describe_entries(entries: Iterable[Entry]) -> dict[str, ImportedValue]:
    """Describe how an import makes the functions in Inductor, by their places."""
    found = {}
    for entry in entries:
        value: Any = entry.value
        wrapper = ""
        if isinstance(value, (staticmethod, classmethod)):
            value, wrapper = value.__func__, type(value).__name__
        if not entry.place or not callable(value):
            continue
        described = _describe_import(value, entry.place)
        wrapper = wrapper or described.wrapper
        found[entry.place] = replace(described, holder=entry.module, wrapper=wrapper)
    return found


_LOWERING = "_register_lowering.<locals>.wrapped"
"""The function that ``register_lowering`` puts into the table for the user's."""

_OPTIONS = ("broadcast", "type_promotion_kind", "convert_input_to_bool")


def _as_lowering(value: Any, place: str) -> ImportedValue | None:
    """Describe a lowering by the call of ``register_lowering`` that has made it."""
    table, _, key = place.removesuffix("]").partition("[")
    code = getattr(value, "__code__", None)
    if not key or getattr(code, "co_qualname", "") != _LOWERING:
        return None
    bound = dict(inspect.getclosurevars(value).nonlocals)
    kind = bound["type_promotion_kind"]
    bound["type_promotion_kind"] = kind and f"torch._prims_common.{kind}"
    options = "".join(f", {name}={bound[name]}" for name in _OPTIONS)
    call = f"{table.rpartition('.')[0]}.register_lowering({key}{options})"
    return replace(_describe_import(bound["decomp_fn"]), wrapper=call)


def _is_same(a: object, b: object) -> bool:
    """Compare two values of a setting; a comparison that raises counts as unequal."""
    try:
        return a is b or bool(a == b)
    except Exception:  # noqa: BLE001 - values of a user's own may compare in any way
        return False


def _is_plain(value: object) -> bool:
    """Return whether a setting consists of simple values that JSON can hold."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    return isinstance(value, (bool, int, float, str, type(None)))


# Describe how an import recreates a function, a class or an object.
#
# A value that is found by its qualified name in its module needs only the import. For
# an object of an importable class, the attributes are restored if they have Python
# literals. Any other value exists only in its own process.


def _describe_import(value: object, place: str = "") -> ImportedValue:
    """Describe how an import recreates a value.

    Args:
        place: the entry of a table of lowerings that the value is.
    """
    try:
        return _by_name(value) or _as_lowering(value, place) or _as_object(value)
    except Exception as error:  # noqa: BLE001 - classes of a user's own may do anything
        return ImportedValue(why_not=f"it cannot be inspected: {type(error).__name__}")


def _by_name(value: object) -> ImportedValue | None:
    module, name = _names(value)
    target: object = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    return ImportedValue(module, name) if target is value else None


def _names(value: object) -> tuple[str, str]:
    """Return the module and the qualified name of a value; '' if it has none.

    functools.wraps gives a patch those of the function that it replaces. In another
    process, they lead to PyTorch's function. So the names in the patch's code count.
    """
    module = str(getattr(value, "__module__", None) or "")
    if isinstance(value, FunctionType) and module.startswith("torch."):
        home = str(value.__globals__.get("__name__"))
        if not home.startswith("torch."):
            return home, value.__code__.co_qualname
    return module, str(getattr(value, "__qualname__", None) or "")


def _as_object(value: object) -> ImportedValue:
    """Describe an object by its class and state, in the way that unpickling does."""
    described = _bound_in_its_module(value)
    if described is not None:
        return described
    name = _names(value)[1]
    if inspect.ismethod(value):
        return ImportedValue(why_not=f"it is {name} of an object")
    if name:
        what = "a lambda" if name.endswith("<lambda>") else name
        why_not = f"it is {what}, which no module has by a name"
        return ImportedValue(name=name, why_not=why_not)
    kind = type(value)
    noun = f"it is an object of {kind.__qualname__}"
    if _by_name(kind) is None:
        return ImportedValue(why_not=f"{noun}, a class made in a function")
    made_by = object.__reduce_ex__(value, 2)
    factory, arguments, state = (*made_by, None)[:3]
    is_plain = getattr(factory, "__name__", "") == "__newobj__" and arguments == (kind,)
    if not is_plain or any(made_by[3:]):
        return ImportedValue(why_not=f"{noun}, which holds more than attributes")
    if state is not None and not isinstance(state, dict):
        return ImportedValue(why_not=f"{noun}, which has slots")
    texts = {name: _written(attribute) for name, attribute in (state or {}).items()}
    for name, text in texts.items():
        if text is None or not name.isidentifier():
            return ImportedValue(why_not=f"{noun}, whose {name} is no plain value")
    call = "()" if _takes_nothing(kind) else ".__new__"
    known_texts = {name: text for name, text in texts.items() if text is not None}
    return ImportedValue(kind.__module__, kind.__qualname__, call, known_texts)


def _bound_in_its_module(value: object) -> ImportedValue | None:
    """Find a module-level name of an object; not in a script, which would run again."""
    module = _names(value)[0]
    names = vars(sys.modules[module]) if module in sys.modules else {}
    file = names.get("__file__")
    if module == MAIN or not isinstance(file, str) or not os.path.isfile(file):
        return None
    with open(file, "rb") as source:
        text = source.read().decode(errors="replace")
    for name, one in names.items():
        if one is value and re.search(rf"^{name}\b[^=\n]*=[^=]", text, re.MULTILINE):
            return ImportedValue(module, name)
    return None


def _takes_nothing(kind: type) -> bool:
    try:
        inspect.signature(kind).bind()
    except (TypeError, ValueError):
        return False
    return True


def _written(value: object) -> str | None:
    """Return a value as a literal; None if that does not evaluate to an equal value."""
    try:
        text = repr(value)
        read = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return text if type(read) is type(value) and read == value else None

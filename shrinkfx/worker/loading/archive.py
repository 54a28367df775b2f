"""Read a program's archive, refusing what is made to be executed.

``torch.export.load`` falls back to an unrestricted unpickler if the example inputs, or
the weights and constants of tensor subclasses, need one, and it unpickles opaque
constants. It also loads the libraries of a compiled package. Here, pickles may only
name what ``weights_only`` allows and what a preload has registered, and libraries are
refused.

torch still evaluates texts of the file, such as sizes: a program from somebody else
belongs in a sandbox (``docs/trust.md``).
"""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import logging
import math
import operator
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader

from shrinkfx.errors import LoadError
from shrinkfx.protocol.source import SOURCE, Source
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.origin import graphs_of, operator_nodes, origin_of, set_origin
from shrinkfx.worker.private_api.archive_api import serialize
from shrinkfx.worker.private_api.graph_api import pytree

PRELOAD_ADVICE = "--preload the module, .py or .so that registers it"
"""Advice for content that is not registered."""


class Refused(Exception):
    """A file holds something that must not be loaded; says what, with advice."""

    def __init__(self, what: str, advice: str) -> None:
        self.advice = advice
        super().__init__(what)


_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORCE_NOT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def read_program(path: str, model: str) -> ExportedProgram:
    """Load the file at ``path``, whose name in messages is ``model``.

    Raises:
        LoadError: the file cannot be read or is refused; says why.
    """
    try:
        with restrict_unpickling(), _collect_causes() as causes:
            _require_plain_members(path)
            with _reading_unregistered_as_tuples():
                return torch.export.load(path)
    except BaseException as error:
        reason, advice = _explain_failure(causes[0] if causes else error, model)
        raise LoadError(model, reason, advice) from error


@contextlib.contextmanager
def _collect_causes() -> Iterator[list[BaseException]]:
    """Collect exceptions that torch logs before it raises a less specific one."""
    causes: list[BaseException] = []
    handler = logging.Handler()
    handler.emit = lambda record: causes.extend(  # type: ignore[method-assign]
        error for error in (record.exc_info or ()) if isinstance(error, BaseException)
    )
    logger = logging.getLogger(torch.export.__name__)
    logger.addHandler(handler)
    try:
        yield causes
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def restrict_unpickling() -> Iterator[None]:
    """Let unpickling look up only what ``weights_only`` and the preloads allow."""
    global _reading
    _install_hook()
    before = {name: os.environ.pop(name, None) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    _reading = True
    try:
        with torch.serialization.safe_globals(_safe_to_unpickle()):
            yield
    finally:
        _reading = False
        os.environ.pop(_FORCE)
        os.environ.update({k: v for k, v in before.items() if v is not None})


_reading = False
_REGISTER = (
    "--preload the module that registers it with torch.utils._pytree "
    "or torch.serialization.add_safe_globals, or export with plain "
    "tensors"
)


@functools.cache
def _install_hook() -> None:
    """Install an audit hook that runs before Python's unpickler looks up a name."""
    sys.addaudithook(_refuse_pickle)


def _refuse_pickle(event: str, arguments: tuple[Any, ...]) -> None:
    if _reading and event == "pickle.find_class":
        raise _refuse_name(".".join(map(str, arguments)))


def _safe_to_unpickle() -> list[Any]:
    """Return the classes that a pickle may name: registered ones, enums of preloads."""
    registered = [kind for kind in pytree.SUPPORTED_NODES if isinstance(kind, type)]
    preloaded = (vars(sys.modules[name]) for name in _preloaded if name in sys.modules)
    enums = [
        kind
        for names in preloaded
        for kind in list(names.values())
        if isinstance(kind, type) and issubclass(kind, enum.Enum)
    ]
    return [*registered, *enums]


_preloaded: set[str] = set()


def trust(modules: Iterable[str]) -> None:
    """Let pickles name the enums of these modules, which preloads have imported."""
    _preloaded.update(modules)


def _require_plain_members(path: str) -> None:
    """Refuse an archive of another format, or one that needs more than data.

    If torch's reader fails, torch tries ``zipfile``, for a format that it wrote up to
    2.7.
    """
    with zipfile.ZipFile(path) as older:
        if "version" in older.namelist():
            raise ValueError("the format of torch 2.7 and before")
    archive = PT2ArchiveReader(path)
    for name in archive.get_file_names():
        # Torch's reader ignores the case of member names.
        if name.lower().startswith("data/aotinductor/"):
            what = "contains a compiled library, and loading the library would run it"
            raise Refused(what, "pass the program from which the package was compiled")
        if name.startswith("models/"):
            program = json.loads(archive.read_bytes(name))
            calls = program["graph_module"]["module_call_graph"]
            for signature in filter(None, (call["signature"] for call in calls)):
                _require_registered(_read_treespec(signature["in_spec"]))


# --- treespecs
#
# Results may have unregistered classes, such as those of Hugging Face models. They are
# read as tuples, because only the order of their values matters.


@contextlib.contextmanager
def _reading_unregistered_as_tuples() -> Iterator[None]:
    names = vars(serialize)
    nested = names["treespec_loads"]
    names["treespec_loads"] = lambda text: nested(replace_unregistered(text))
    try:
        yield
    finally:
        names["treespec_loads"] = nested


def replace_unregistered(text: str) -> str:
    """Replace unregistered classes in a treespec by tuples."""
    return json.dumps([1, _with_tuples(_read_treespec(text))])


def _with_tuples(tree: dict[str, Any]) -> dict[str, Any]:
    children = [_with_tuples(child) for child in tree["children_spec"]]
    if _is_registered(tree):
        return {**tree, "children_spec": children}
    return {"type": "builtins.tuple", "context": "null", "children_spec": children}


def _is_registered(tree: dict[str, Any]) -> bool:
    name, known = _class_named_by(tree), pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    nameless = pytree.NO_SERIALIZED_TYPE_NAME_FOUND
    return name is None or (name in known and name != nameless)


def _class_named_by(tree: dict[str, Any]) -> Any:
    """Return the class of a container; a named tuple has it in its context."""
    return tree["context" if tree["type"] == "collections.namedtuple" else "type"]


def _read_treespec(text: str) -> dict[str, Any]:
    protocol, tree = json.loads(text)
    if protocol != 1 or not isinstance(tree, dict):
        raise ValueError(f"a treespec of protocol {protocol!r:.20}")
    return tree


def _require_registered(tree: dict[str, Any]) -> None:
    """Refuse inputs of classes that nothing has registered."""
    if not _is_registered(tree):
        name = str(_class_named_by(tree))
        module = name.rpartition(".")[0]
        advice = "--preload the module that does"
        advice = f"--preload {module}" if module else advice
        raise Refused(
            f"has an input of type {name:.200}, which is not registered",
            f"{advice}, if importing that registers it with torch.utils._pytree",
        )
    for child in tree["children_spec"]:
        _require_registered(child)


# --- messages

_UNRESOLVED = re.compile(r"failed to resolve torch\.ops\.([\w.]+) to an operator")
_CLASS = re.compile(r"resolve type '__torch__\.torch\.classes\.([\w.]+)'")
_GLOBAL = re.compile(r"GLOBAL ([\w.]+) (?:was not an allowed|whose module)")
_TORCH_OPS = ("aten.", "prims.", "higher_order.", "inductor.", "quantized.")


def _explain_failure(error: BaseException, model: str) -> tuple[str, str]:
    """Return why a file did not load, and what the user can do."""
    if isinstance(error, Refused):
        return str(error), error.advice
    if is_out_of_memory(error):
        return TOO_LARGE, "check that torch.export.save wrote the file"
    if refused := _find_refused_name(str(error)):
        return str(refused), refused.advice
    found = _UNRESOLVED.search(str(error))
    if found and not found[1].startswith(_TORCH_OPS):
        advice = PRELOAD_ADVICE
        return f"the operator {found[1]} is not registered", advice
    if missing := _CLASS.search(str(error)):
        what = f"holds a script object of {missing[1]:.100}, which is not registered"
        return what, PRELOAD_ADVICE
    if newer := _advice_if_newer(model):
        return f"cannot be read by torch {torch.__version__}", newer
    if found:
        reason = f"this torch has no operator {found[1]}"
        return reason, "save it again, with the torch that runs shrinkfx"
    if damaged := _find_damaged_member(model):
        return f"is damaged: {damaged}", "copy or save it again"
    return (
        f"cannot be loaded: {type(error).__name__}: {_sentence(str(error))}",
        "save it again with torch.export.save, with the torch that runs shrinkfx",
    )


TOO_LARGE = "needs far more memory to load than its size"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, by Python's exception or by torch's messages."""
    if isinstance(error, MemoryError):
        return True
    phrases = ("MemoryError", "can't allocate memory", "bad_alloc")
    return any(words in str(error) for words in phrases)


def why_unreadable(error: BaseException) -> str:
    """Return a sentence that says why ``torch.load`` did not read a data file."""
    if isinstance(error, Refused):
        return str(error)
    if refused := _find_refused_name(str(error)):
        return str(refused)
    if is_out_of_memory(error):
        return TOO_LARGE
    # torch's message goes on to explain how to execute code from the file.
    text = str(error).rpartition("WeightsUnpickler error: ")[2]
    return f"cannot be read: {_sentence(text) or type(error).__name__}"


def _find_refused_name(text: str) -> Refused | None:
    found = _GLOBAL.search(text)
    return _refuse_name(found[1]) if found else None


NESTED = (
    "holds a nested tensor",
    "convert it with torch.nested.to_padded_tensor",
)


def _refuse_name(name: str) -> Refused:
    if name.partition(".")[0] == "numpy":
        what = f"holds an array or number of NumPy ({name}), which is not a tensor"
        return Refused(what, "save torch.from_numpy(array), or array.item()")
    if name.startswith("torch.nested."):  # not on the allow list since torch 2.15
        return Refused(*NESTED)
    what = f"holds {name}, which loading would call"
    return Refused(f"{what}: neither a tensor nor simple data", _REGISTER)


def _sentence(text: str) -> str:
    text = re.sub(r"\[enforce fail [^]]*\]\W*", "", text.strip())
    return text.partition("\n")[0].partition(". ")[0][:300]


def _advice_if_newer(model: str) -> str:
    """Return advice if a newer torch has written the file, otherwise ''."""
    try:
        with zipfile.ZipFile(model) as archive:
            name = next(n for n in archive.namelist() if "/models/" in n)
            made_by = str(json.loads(archive.read(name))["torch_version"])
    except Exception:  # noqa: BLE001 - a damaged file; others say how
        return ""
    is_newer = _numbers(made_by) > _numbers(torch.__version__)
    advice = f"torch {made_by} wrote it: use that version, or export it again with this"
    return advice if is_newer else ""


def _numbers(version: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", version.partition("+")[0])[:2]]


def _find_damaged_member(model: str) -> str:
    """Return the first damaged member of an archive, or ''."""
    try:
        with zipfile.ZipFile(model) as archive:
            name = archive.testzip()
    except Exception as error:  # noqa: BLE001 - damaged in any way
        return str(error).partition("\n")[0]
    return f"{name} does not match its checksum" if name else ""


# A program as source code and tensors, in one file.
#
# ``torch.export.save`` has no form for some arguments, such as the nested tuples of
# ``flex_attention`` or the Python numbers that a ``while_loop`` carries (torch 2.15).
# A source archive holds any program that can be printed:
#
#     source.json    the source code
#     call.json      the names of the arguments, and the lines that operators come from
#     devices.json   the devices that the program uses
#     tensors.pt     weights and example inputs, as torch.save writes them
#
# Reading a source archive executes its code.

_CALL, _DEVICES, _TENSORS = "call.json", "devices.json", "tensors.pt"
_GPU = re.compile(r"torch\.device\(\"cuda(:\d+)?\"\)")
"""A GPU as ``GraphPrinter`` writes it."""


@dataclass(frozen=True)
class SourceProgram:
    """The content of a source archive.

    Attributes:
        source: the code, without the values of weights and inputs.
        arguments: the names of the program's arguments, which ``source`` takes flat.
        origins: by graph name, the operators and the lines that they come from.
        devices: the devices that the program uses.
        weights: the values of the attributes in ``source``.
        example: the example inputs, in the structure of the arguments.
    """

    source: Source
    arguments: list[str]
    origins: dict[str, list[tuple[str, str]]]
    devices: set[torch.device]
    weights: dict[str, Any]
    example: Inputs


def origins_of(module: fx.GraphModule) -> dict[str, list[tuple[str, str]]]:
    """Return the operators of each graph, and the lines that they come from."""
    return {
        name: [(str(node.target), origin_of(node)) for node in operator_nodes(graph)]
        for name, graph in graphs_of(module).items()
    }


def write_source_archive(program: SourceProgram, path: Path) -> None:
    """Write a program to a file; the bytes depend only on the program."""
    devices = [{"type": each.type, "index": each.index} for each in program.devices]
    call = {"arguments": program.arguments, "origins": program.origins}
    texts = {
        SOURCE: program.source.to_line(),
        _CALL: json.dumps(call),
        _DEVICES: json.dumps(sorted(devices, key=str)),
    }
    example = {"args": program.example.args, "kwargs": program.example.kwargs}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        with archive.open(zipfile.ZipInfo(_TENSORS), "w", force_zip64=True) as file:
            torch.save({"weights": program.weights, **example}, file)


def calls_triton_kernels(program: ExportedProgram) -> bool:
    """Return whether a program calls Triton kernels by their index in the process.

    No file holds these kernels.
    """
    return any(
        getattr(node.target, "__name__", "").startswith("triton_kernel_wrapper")
        for graph in graphs_of(program.graph_module).values()
        for node in graph.nodes
    )


def read_source_archive(path: str, model: str) -> ExportedProgram:
    """Export the program in the file at ``path``, whose name in messages is ``model``.

    Raises:
        LoadError: the file cannot be read, or its program cannot be exported.
    """
    try:
        return _read(path)
    except Exception as error:
        raise LoadError(model, why_unreadable(error), _ADVICE) from error


_ADVICE = (
    "capture the script again, or call minify() again, with this "
    "torch; --preload the modules that register its operators or the "
    "classes of its inputs"
)


def _read(path: str) -> ExportedProgram:
    with zipfile.ZipFile(path) as archive, restrict_unpickling():
        source = Source.from_line(archive.read(SOURCE))
        call = json.loads(archive.read(_CALL))
        devices = json.loads(archive.read(_DEVICES))
        with archive.open(_TENSORS) as file:
            data = torch.load(file, weights_only=True)
    module, shapes = execute_source(source, _device(devices))
    for weight in source.weights:
        value = data["weights"][weight.attribute]
        set_weight(module, weight.attribute, weight.kind, value)
    example = data["args"], data["kwargs"]
    flat = tuple(pytree.tree_leaves(example))
    with torch.no_grad():
        exported = torch.export.export(module.eval(), flat, dynamic_shapes=shapes)
    for name, graph in graphs_of(exported.graph_module).items():
        _set_origins(graph, call["origins"].get(name, []))
    signature = exported.module_call_graph[0].signature
    assert signature is not None
    signature.in_spec = pytree.tree_structure(example)
    signature.forward_arg_names = call["arguments"]
    exported.example_inputs = example
    return exported


def _device(devices: list[dict[str, Any]]) -> str:
    """Return the GPU that a program is for, or ``cpu`` if there is none."""
    gpus = [each["index"] or 0 for each in devices if each["type"] == "cuda"]
    return f"cuda:{gpus[0]}" if gpus else "cpu"


def _set_origins(graph: fx.Graph, origins: list[tuple[str, str]]) -> None:
    """Copy origins to the operators, up to the first operator that differs."""
    for node in graph.nodes:
        set_origin(node, "")  # its origin is the code in the archive
    for node, (target, origin) in zip(operator_nodes(graph), origins, strict=False):
        if str(node.target) != target:
            return
        set_origin(node, origin)


def execute_source(source: Source, gpu: str = "") -> tuple[torch.nn.Module, Any]:
    """Execute source code.

    Args:
        gpu: the device that replaces each GPU in the code, or '' for no change.

    Returns:
        The module without its weights, and the dynamic shapes of the inputs.
    """
    scope: dict[str, Any] = {"torch": torch, "operator": operator, "math": math}
    names = ", ".join(["self", *(i.name for i in source.inputs)])
    body = "\n        ".join(source.body)
    text = "\n\n".join(
        [
            *source.branches,
            f"class Repro(torch.nn.Module):\n    def forward({names}):\n        {body}",
            "\n".join(source.dims),
            f"dynamic_shapes = {source.dynamic_shapes}",
        ]
    )
    exec(_GPU.sub(f'torch.device("{gpu}")', text) if gpu else text, scope)
    module = scope["Repro"]()
    for attribute, kind in source.members.items():
        setattr(module, attribute, scope[kind]())
    return module, scope["dynamic_shapes"]


def set_weight(module: torch.nn.Module, name: str, kind: str, value: Any) -> None:
    """Add a weight to a module, as the kind that ``Weight`` names."""
    match kind:
        case "parameter" | "trainable_parameter":
            trains = kind == "trainable_parameter"
            module.register_parameter(name, torch.nn.Parameter(value, trains))
        case "buffer" | "non_persistent_buffer":
            module.register_buffer(name, value, persistent=kind == "buffer")
        case _:
            setattr(module, name, value)

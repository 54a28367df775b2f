"""Read a program's archive without executing code from it.

``torch.export.load`` executes code from a file in many ways (torch 2.13):

- it falls back to an unrestricted unpickler if the example inputs, or the weights and
  constants of tensor subclasses, need one, and it unpickles opaque constants;
- it loads the libraries of a compiled package;
- it evaluates sizes, imports modules that treespecs name, and follows the names of
  functions wherever they lead;
- it writes names into Python source that it compiles, and code that uses the program
  evaluates its guards.

Here, pickles may only name what ``weights_only`` allows and what a preload has
registered; libraries are refused; sizes and guards are parsed (``formulas``,
``guards``); functions are looked up in torch's own modules (``named``); and the rest of
the JSON must be what export writes (``document``, ``containers``).
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader

from shrinkfx.errors import LoadError
from shrinkfx.wording import Flag, MessagePart, MessageText
from shrinkfx.worker.loading import (
    containers,
    document,
    formulas,
    guards,
    script_objects,
    torch_names,
)
from shrinkfx.worker.loading.refused import PRELOAD_ADVICE, Refused
from shrinkfx.worker.private_api.archive_api import serialize
from shrinkfx.worker.private_api.graph_api import pytree

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORCE_NOT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def read_program(path: str, model: str) -> ExportedProgram:
    """Load the file at ``path``, whose name in messages is ``model``.

    Raises:
        LoadError: the file cannot be read or is refused; says why.
    """
    try:
        with restrict_unpickling(), _collect_causes() as causes:
            _require_safe_members(path)
            with _replace_torch_readers(), torch_names.resolve_sources_here():
                program = torch.export.load(path)
            _require_plain_inputs(program)
            program._guards_code = _guards(program)
            return program
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
        with torch.serialization.safe_globals(containers.safe_to_unpickle()):
            yield
    finally:
        _reading = False
        os.environ.pop(_FORCE)
        os.environ.update({k: v for k, v in before.items() if v is not None})


_reading = False
_REGISTER = MessageText(
    Flag("--preload"),
    " the module that registers it with torch.utils._pytree or "
    "torch.serialization.add_safe_globals, or export with plain tensors",
)


@functools.cache
def _install_hook() -> None:
    """Install an audit hook that runs before Python's unpickler looks up a name."""
    sys.addaudithook(_refuse_pickle)


def _refuse_pickle(event: str, arguments: tuple[Any, ...]) -> None:
    if _reading and event == "pickle.find_class":
        raise _refuse_name(".".join(map(str, arguments)))


def _require_safe_members(path: str) -> None:
    """Check the members of an archive with torch's reader, which will load them.

    Another reader might see another archive. If torch's reader fails, torch tries
    ``zipfile``, for a format that it wrote up to 2.7.
    """
    with zipfile.ZipFile(path) as older:
        if "version" in older.namelist():
            raise ValueError("the format of torch 2.7 and before")
        sizes = {e.filename.partition("/")[2]: e.file_size for e in older.infolist()}
    archive = PT2ArchiveReader(path)
    names = archive.get_file_names()
    _require_same_list(archive, names, sizes)
    if any(name.startswith("data/aotinductor/") for name in names):
        what = "contains a compiled library, and loading the library would run it"
        raise Refused(what, "pass the program from which the package was compiled")
    for name in names:
        if name.startswith("models/"):
            document.require_program(json.loads(archive.read_bytes(name)))
        elif name.endswith(("_weights_config.json", "_constants_config.json")):
            document.require_payload(json.loads(archive.read_bytes(name)))
        # Torch's reader ignores the case of member names.
        elif name.lower().startswith("data/constants/custom_obj_"):
            script_objects.require_trusted(archive.read_bytes(name))


def _require_same_list(
    archive: PT2ArchiveReader, names: list[str], sizes: dict[str, int]
) -> None:
    """Refuse an archive whose members or sizes differ between torch and ``zipfile``."""
    size = getattr(archive.archive_file, "get_record_size", None)
    seen = {name: size(name) for name in names} if size else dict.fromkeys(names)
    if seen != (sizes if size else dict.fromkeys(sizes)):
        what = "is an archive that different readers read differently"
        raise Refused(what, "save it again with torch.export.save")


class _Sympy:
    """SymPy for torch's reader, without the evaluation of text by ``sympify``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sympy, name)

    @staticmethod
    def sympify(value: Any, **_: Any) -> Any:
        return value if isinstance(value, sympy.Basic) else formulas.build_size(value)


def _unpickle_artifact(serialized: Any, by_torch: Any) -> Any:
    """Unpickle with torch, and check the size, because torch visits each reference."""
    read = by_torch(serialized)
    containers.require_tree(read)
    return read


@contextlib.contextmanager
def _replace_torch_readers() -> Iterator[None]:
    """Make torch's reader build sizes with ``formulas`` instead of ``eval``, and read
    results of unregistered classes as tuples.
    """
    names = vars(serialize)
    load = names["deserialize_torch_artifact"]
    nested = names["treespec_loads"]
    replacements = {
        "sympy": _Sympy(),
        "deserialize_torch_artifact": functools.partial(
            _unpickle_artifact, by_torch=load
        ),
        # Inputs of such classes have been refused before.
        "treespec_loads": lambda text: nested(containers.replace_unregistered(text)),
    }
    before = {name: names[name] for name in replacements}
    names.update(replacements)
    try:
        yield
    finally:
        names.update(before)


def _require_plain_inputs(program: ExportedProgram) -> None:
    """Check values that torch writes into guards: dict keys, and texts as inputs."""
    paths = pytree.tree_flatten_with_path(program.example_inputs)[0]
    for key in (key for path, _ in paths for key in path):
        if isinstance(key, pytree.MappingKey):
            containers.require_plain_key(key.key)
    for node in program.graph.find_nodes(op="placeholder"):
        if isinstance(node.meta.get("val"), str):
            document.require_argument(node.meta["val"])


def _guards(program: ExportedProgram) -> list[str]:
    """Return the guards that are arithmetic, rewritten, and leave out the others."""
    written = []
    for text in program._guards_code or []:
        try:
            written.append(guards.rewrite_guard(text))
        except formulas.NotASize as error:
            print(f"shrinkfx: left out a guard: {error}", flush=True)
    return written


_UNRESOLVED = re.compile(r"failed to resolve torch\.ops\.([\w.]+) to an operator")
_GLOBAL = re.compile(r"GLOBAL ([\w.]+) (?:was not an allowed|whose module)")
_TORCH_OPS = ("aten.", "prims.", "higher_order.", "inductor.", "quantized.")


def _explain_failure(error: BaseException, model: str) -> tuple[str, MessagePart]:
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

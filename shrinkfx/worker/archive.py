"""Read a program's archive without running what it holds.

``torch.export.load`` would run code from a file in four ways (torch 2.13): it falls
back to an unrestricted unpickler where the example inputs, or weights and constants of
tensor subclasses, do not load without; it unpickles opaque constants; it loads the
libraries of a compiled package; and it evaluates expressions of sizes. Here pickles may
name what ``weights_only`` allows and what a preload has registered, libraries are
refused, and expressions must be arithmetic.
"""

from __future__ import annotations

import ast
import builtins
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

import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader
from torch.utils import _pytree as pytree

from shrinkfx.errors import LoadError

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORCE_NOT = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_FUNCTIONS = frozenset({"abs", "bool", "float", "int", "max", "min", "pow", "round"})
"""Builtins that an expression of sizes may call; others are sympy's and torch's."""


class Refused(Exception):
    """A file holds what would run code: says what, and what to do."""

    def __init__(self, what: str, advice: str) -> None:
        self.advice = advice
        super().__init__(f"holds {what}, and reading that would run code from the file")


def read_program(path: str, model: str) -> ExportedProgram:
    """Load the file at ``path``, which the user knows as ``model``.

    Raises:
        LoadError: with what is wrong with it.
    """
    try:
        with disarmed(), _causes() as causes:
            _require_harmless(path)
            return torch.export.load(path)
    except BaseException as error:
        reason, advice = _why(causes[0] if causes else error, model)
        raise LoadError(model, reason, advice) from error


@contextlib.contextmanager
def _causes() -> Iterator[list[BaseException]]:
    """Collect what torch logs instead of raising it: something general follows."""
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
def disarmed() -> Iterator[None]:
    """Let no pickle look up more than ``weights_only`` and the preloads allow."""
    global _reading
    _install_hook()
    before = {name: os.environ.pop(name, None) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    registered: list[Any] = [t for t in pytree.SUPPORTED_NODES if isinstance(t, type)]
    _reading = True
    try:
        with torch.serialization.safe_globals(registered):
            yield
    finally:
        _reading = False
        os.environ.pop(_FORCE)
        os.environ.update({k: v for k, v in before.items() if v is not None})


_reading = False
_REGISTER = (
    "--preload the module that registers it with torch.utils._pytree or "
    "torch.serialization.add_safe_globals, or export with plain tensors"
)


@functools.cache
def _install_hook() -> None:
    """Be asked whenever Python's own unpickler is about to look something up."""
    sys.addaudithook(_refuse_pickle)


def _refuse_pickle(event: str, arguments: tuple[Any, ...]) -> None:
    if _reading and event == "pickle.find_class":
        raise Refused(".".join(map(str, arguments)), _REGISTER)


def _require_harmless(path: str) -> None:
    """Look through torch's own reader: another one might see another archive.

    Torch tries ``zipfile`` where its own fails, for a format that it wrote up to 2.7.
    """
    with zipfile.ZipFile(path) as older:
        if "version" in older.namelist():
            raise ValueError("the format of torch 2.7 and before")
    archive = PT2ArchiveReader(path)
    names = archive.get_file_names()
    if any(name.startswith("data/aotinductor/") for name in names):
        raise Refused("a compiled library", "give the program it was made from")
    for name in names:
        if name.startswith("models/"):
            json.loads(archive.read_bytes(name), object_pairs_hook=_pairs)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """See each expression as it is parsed, also where a name comes twice."""
    for name, value in pairs:
        if name == "expr_str" and not is_arithmetic(str(value)):
            raise Refused(f"the size {value!r:.60}", "export the program again")
    return dict(pairs)


def is_arithmetic(text: str) -> bool:
    """Tell whether an expression can do nothing but calculate."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError):
        return False
    return all(_is_harmless(node) for node in nodes)


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _FUNCTIONS or not hasattr(builtins, name)
        case ast.Name(id=name):
            return not name.startswith("__")
        case ast.Constant(value=str(text)):
            # A name, or a number; sympy would evaluate more.
            return bool(re.fullmatch(r"[\w.+-]+", text))
        case ast.Constant(value=value):
            return isinstance(value, (int, float))
    return isinstance(node, _ARITHMETIC)


_ARITHMETIC = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.keyword),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Tuple, ast.expr_context),
)


_UNRESOLVED = re.compile(r"failed to resolve torch\.ops\.([\w.]+) to an operator")
_GLOBAL = re.compile(r"GLOBAL ([\w.]+) (?:was not an allowed|whose module)")
_OWN = ("aten.", "prims.", "higher_order.", "inductor.", "quantized.")


def _why(error: BaseException, model: str) -> tuple[str, str]:
    """Say what is wrong with a file that did not load, and what to do."""
    if isinstance(error, Refused):
        return str(error), error.advice
    if refused := _refused_in(str(error)):
        return str(refused), refused.advice
    found = _UNRESOLVED.search(str(error))
    if found and not found[1].startswith(_OWN):
        advice = "--preload the module, .py or .so that registers it"
        return f"the operator {found[1]} is not registered", advice
    if newer := _made_by_newer(model):
        return f"cannot be read by torch {torch.__version__}", newer
    if found:
        reason = f"this torch has no operator {found[1]}"
        return reason, "save it again, with the torch that runs shrinkfx"
    if damaged := _damaged(model):
        return f"is damaged: {damaged}", "copy or save it again"
    return (
        f"cannot be loaded: {type(error).__name__}: {_sentence(str(error))}",
        "save it again with torch.export.save, with the torch that runs shrinkfx",
    )


def why_unreadable(error: BaseException) -> str:
    """Say in a sentence why ``torch.load`` did not read a file of data."""
    if refused := _refused_in(str(error)):
        return str(refused)
    # torch's own words go on to explain how to run what is in the file.
    text = str(error).rpartition("WeightsUnpickler error: ")[2]
    return f"cannot be read: {_sentence(text) or type(error).__name__}"


def _refused_in(text: str) -> Refused | None:
    found = _GLOBAL.search(text)
    return Refused(found[1], _REGISTER) if found else None


def _sentence(text: str) -> str:
    text = re.sub(r"\[enforce fail [^]]*\]\W*", "", text.strip())
    return text.partition("\n")[0].partition(". ")[0][:300]


def _made_by_newer(model: str) -> str:
    """Say it if a newer torch has written the file; '' if not, or if none tells."""
    try:
        with zipfile.ZipFile(model) as archive:
            name = next(n for n in archive.namelist() if "/models/" in n)
            made_by = str(json.loads(archive.read(name))["torch_version"])
    except Exception:  # noqa: BLE001 - a damaged file; others say how
        return ""
    if _numbers(made_by) <= _numbers(torch.__version__):
        return ""
    return f"it was made by torch {made_by}: run that one, or export with this one"


def _numbers(version: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", version.partition("+")[0])[:2]]


def _damaged(model: str) -> str:
    """Name the first part of an archive that is not as it was written, or ''."""
    try:
        with zipfile.ZipFile(model) as archive:
            name = archive.testzip()
    except Exception as error:  # noqa: BLE001 - damaged in any way
        return str(error).partition("\n")[0]
    return f"{name} does not match its checksum" if name else ""

"""Run a registering script as the repro's user would, and report its effects."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import torch

from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.descriptions import Registered
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker import bare_script
from shrinkfx.worker.aoti.shared_extensions import shared_extensions
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.loading.script_objects import trust_new_classes
from shrinkfx.worker.model import Program
from shrinkfx.worker.preloads.files_used import FileRecorder
from shrinkfx.worker.preloads.registrations import Snapshot, describe_registrations
from shrinkfx.worker.private_api import operator_api
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
    before, known = Snapshot(), _registered()
    with FileRecorder() as recorder:
        with trust_new_classes(), shared_extensions(home, script):
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
            interpreter.switch_on()
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

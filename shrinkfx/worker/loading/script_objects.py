"""Script objects of C++ classes ("torchbind"), which a program holds as constants.

The file's data of a script object goes to its class (``__setstate__``). That C++ code
was written for data that the class itself has saved; ``aten.OpaqueObject`` even passes
it to Python's unpickler. So only classes are loaded that a preload has registered, or
for which a preload has registered a fake class.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickletools
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.wording import Flag, MessageText
from shrinkfx.worker.loading.refused import PRELOAD_ADVICE, Refused
from shrinkfx.worker.private_api import archive_api
from shrinkfx.worker.private_api.archive_api import global_fake_class_registry

_CLASSES = "__torch__.torch.classes."
_OPAQUE = f"{_CLASSES}aten.OpaqueObject"
_PARTS = re.compile(
    r"torch\._utils\._rebuild_(tensor_v2|qtensor)|torch\.\w+Storage|torch\.per_\w+"
    r"|torch\.device|collections\.OrderedDict"
    r"|torch\.jit\._pickle\.(build_(int|double|bool|tensor)list|restore_type_tag)"
)
"""Names other than classes in TorchScript's pickles: tensors, typed containers."""

_LONG = 1000
"""The number of characters from which a state is no easier to read than its bytes."""

_trusted: set[str] = set()


@contextlib.contextmanager
def trust_new_classes() -> Iterator[None]:
    """Allow files to hold objects of the classes that are registered in the context."""
    before = _classes(), _fake_classes()
    try:
        yield
    finally:
        after = _classes(), _fake_classes()
        new = (now - then for now, then in zip(after, before, strict=True))
        _trusted.update(*new)


def _classes() -> set[str]:
    """Return the classes that have methods; a class that can be saved has two."""
    methods: list[Any] = archive_api.custom_class_schemas()
    return {str(m.arguments[0].type) for m in methods if m.arguments}


def _fake_classes() -> set[str]:
    return set(getattr(global_fake_class_registry, "_registered_class", {}))


def require_trusted(saved: bytes) -> None:
    """Refuse the bytes of a script object if loading them needs an untrusted class.

    Raises:
        Refused: says which class, or what else the bytes name.
    """
    reader = archive_api.PyTorchFileReader(io.BytesIO(saved))
    for code, argument, _ in pickletools.genops(reader.get_record("data.pkl")):
        if "GLOBAL" in code.name or code.name == "INST":
            _require_known(str(argument).replace(" ", "."))


def _require_known(name: str) -> None:
    short = name.removeprefix(_CLASSES)
    if _PARTS.fullmatch(name) or (name in _trusted and name != _OPAQUE):
        return
    if name == _OPAQUE:
        what = f"holds a Python object ({short}), which loading would unpickle"
        raise Refused(what, "export it without that")
    if not name.startswith(_CLASSES):
        what = f"holds {name:.100} in a script object, which cannot contain it"
        raise Refused(what, "save it again with torch.export.save")
    if name not in _classes():
        what = f"holds a script object of {short:.100}, which is not registered"
        raise Refused(what, PRELOAD_ADVICE)
    raise Refused(
        f"holds a script object of {short:.100}, which no preload has registered: "
        "its C++ would receive data from the file",
        MessageText(
            "if you trust the file, ",
            Flag("--preload"),
            " a .py that registers a fake class for it "
            "(torch._library.register_fake_class), which compiling needs as well",
        ),
    )


@contextlib.contextmanager
def copy_script_objects(exported: ExportedProgram) -> Iterator[None]:
    """Let modules that are made of a program in the context hold copied objects."""
    names = exported.graph_signature.lifted_custom_objs
    before = {name: exported.constants[name] for name in names}
    exported.constants.update({n: copy_script_object(o) for n, o in before.items()})
    try:
        yield
    finally:
        exported.constants.update(before)


def copy_script_object(value: torch.ScriptObject) -> torch.ScriptObject:
    """Copy a script object, because methods may change it.

    Returns:
        The object itself if its class cannot be copied.
    """
    try:
        copied: torch.ScriptObject = copy.deepcopy(value)
    except (RuntimeError, TypeError):
        return value
    return copied


def save_script_object(value: torch.ScriptObject) -> torch.Tensor:
    """Save a script object as bytes that a repro can load with ``weights_only``."""
    return torch.frombuffer(bytearray(_pickle_object(value)), dtype=torch.uint8)


def expression_for(value: torch.ScriptObject) -> str:
    """Return an expression with the state and class of an object.

    Returns:
        '' if the state is not plain data, is long, or does not restore the object.
    """
    try:
        reduced: Any = value.__reduce_ex__(2)
        state, name = reduced[2]
        made = script_object(state, name)
        plain = _is_plain(state) and _pickle_object(made) == _pickle_object(value)
    except (RuntimeError, TypeError):
        return ""
    text = f"script_object({state!r}, {name!r})"
    return text if plain and len(text) < _LONG else ""


def script_object(state: object, name: str) -> torch.ScriptObject:
    """Make a script object of its state and its class, as a repro does."""
    made: Any = torch.ScriptObject.__new__(torch.ScriptObject)
    made.__setstate__((state, name))
    found: torch.ScriptObject = made
    return found


def _is_plain(state: Any) -> bool:
    if isinstance(state, (tuple, list)):
        return all(map(_is_plain, state))
    if isinstance(state, dict):
        return all(_is_plain(part) for pair in state.items() for part in pair)
    return state is None or isinstance(state, (bool, int, str)) or _is_finite(state)


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and repr(value)[-1].isdigit()


def _pickle_object(value: torch.ScriptObject) -> bytes:
    saved: bytes = archive_api.pickle_save(value)
    return saved

"""Describe how an import recreates a function, a class or an object.

A value that is found by its qualified name in its module needs only the import. For an
object of an importable class, the attributes are set again if they have Python
literals. Any other value exists only in its own process.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys

from ....protocol.captured import MAIN, ImportedValue


def describe_import(value: object) -> ImportedValue:
    """Describe how an import recreates a value."""
    try:
        return _by_name(value) or _as_object(value)
    except Exception as error:  # noqa: BLE001 - classes of a user's own may do anything
        return ImportedValue(why_not=f"it cannot be inspected: {type(error).__name__}")


def _by_name(value: object) -> ImportedValue | None:
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    target: object = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    return ImportedValue(module, name) if target is value else None


def _as_object(value: object) -> ImportedValue:
    """Describe an object by its class and state, in the way that unpickling does."""
    described = _bound_in_its_module(value)
    if described is not None:
        return described
    name = getattr(value, "__qualname__", "")
    if inspect.ismethod(value):
        return ImportedValue(why_not=f"it is {name} of an object")
    if name:
        what = "a lambda" if name.endswith("<lambda>") else name
        return ImportedValue(why_not=f"it is {what}, which no module has by a name")
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
    module = getattr(value, "__module__", "")
    names = vars(sys.modules[module]) if module in sys.modules else {}
    file = names.get("__file__")
    if module == MAIN or not isinstance(file, str) or not os.path.isfile(file):
        return None
    candidates = [name for name, one in names.items() if one is value]
    if not candidates:
        return None
    with open(file, "rb") as source:
        body = ast.parse(source.read()).body
    bound = {
        part.id
        for node in body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    return next(
        (ImportedValue(module, name) for name in candidates if name in bound), None
    )


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

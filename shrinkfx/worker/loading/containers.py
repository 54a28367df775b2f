"""The structure of inputs and outputs: treespecs that a file may contain.

When torch reads a treespec, it imports any module that the treespec names: that of an
enum among the keys of a dict, or of a ``defaultdict``'s factory. Here, such names are
looked up only in torch and in modules that preloads have imported. Results alone may
have unregistered classes, such as those of Hugging Face models. They are read as
tuples, because only the order of their values matters.
"""

from __future__ import annotations

import collections
import enum
import json
import sys
from collections.abc import Iterable
from typing import Any

from shrinkfx.wording import Flag, MessageText
from shrinkfx.worker.loading.formulas import is_plain
from shrinkfx.worker.loading.refused import Refused
from shrinkfx.worker.private_api.graph_api import pytree

_FACTORIES = {
    "builtins": ("bool", "dict", "float", "frozenset", "int", "list", "set", "str"),
    "collections": ("Counter", "OrderedDict", "deque"),
}
_NAMELESS = pytree.NO_SERIALIZED_TYPE_NAME_FOUND
_trusted: set[str] = set()


def trust(modules: Iterable[str]) -> None:
    """Let files name the contents of these modules, which preloads have imported."""
    _trusted.update(modules)


def is_trusted(module: str) -> bool:
    """Return whether a module is a preload or was imported by one."""
    return module in _trusted and module in sys.modules


def safe_to_unpickle() -> list[Any]:
    """Return the classes that a pickle may name: registered ones, enums of preloads."""
    registered = [kind for kind in pytree.SUPPORTED_NODES if isinstance(kind, type)]
    trusted = (vars(sys.modules[name]) for name in _trusted if name in sys.modules)
    enums = [
        kind
        for names in trusted
        for kind in list(names.values())
        if isinstance(kind, type) and issubclass(kind, enum.Enum)
    ]
    return [*registered, *enums]


def require_inputs(text: str) -> None:
    """Refuse a treespec of inputs if reading it would import or call anything.

    Raises:
        Refused: names the module or class.
    """
    tree = _read(text)
    _require_known(tree)
    positional_and_keywords = tree["children_spec"]
    if len(positional_and_keywords) == 2:
        for name in _keys(positional_and_keywords[1]):
            if not (isinstance(name, str) and name.isidentifier()):
                raise Refused(
                    f"names an input {name!r:.60}, which is not a Python name",
                    "export it again, with other names of keyword arguments",
                )
    _require_plain_keys(tree)


def require_outputs(text: str) -> None:
    """Check a treespec of outputs, with unregistered classes read as tuples."""
    _require_known(_read(replace_unregistered(text)))


def replace_unregistered(text: str) -> str:
    """Replace unregistered classes in a treespec by tuples."""
    return json.dumps([1, _with_tuples(_read(text))])


def _with_tuples(tree: dict[str, Any]) -> dict[str, Any]:
    children = [_with_tuples(child) for child in tree["children_spec"]]
    if _is_registered(tree):
        return {**tree, "children_spec": children}
    return {"type": "builtins.tuple", "context": "null", "children_spec": children}


def _is_registered(tree: dict[str, Any]) -> bool:
    name, known = _class_named_by(tree), pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    return name is None or (name in known and name != _NAMELESS)


def _class_named_by(tree: dict[str, Any]) -> Any:
    """Return the class of a container; a named tuple has it in its context."""
    return tree["context" if tree["type"] == "collections.namedtuple" else "type"]


def _read(text: str) -> dict[str, Any]:
    protocol, tree = json.loads(text)
    if protocol != 1 or not isinstance(tree, dict):
        raise ValueError(f"a treespec of protocol {protocol!r:.20}")
    return tree


def _require_known(tree: dict[str, Any]) -> None:
    name, context, children = tree["type"], tree["context"], tree["children_spec"]
    if name is not None:
        if not _is_registered(tree):
            raise _refuse_unregistered(str(_class_named_by(tree)))
        kind = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[name]
        if kind is collections.defaultdict:
            _require_factory(context)
        elif pytree.SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context is None:
            json.loads(context, object_hook=_check_enum_of)
        elif not isinstance(context, str):
            _walk(context)
    for child in children:
        _require_known(child)


def _refuse_unregistered(name: str) -> Refused:
    module = name.rpartition(".")[0]
    advice = MessageText(Flag("--preload"), " the module that does")
    advice = MessageText(Flag("--preload", module)) if module else advice
    return Refused(
        f"has an input of type {name:.200}, which is not registered",
        MessageText(
            advice, ", if importing that registers it with torch.utils._pytree"
        ),
    )


def _check_enum_of(value: dict[str, Any]) -> dict[str, Any]:
    """Check an object of a context, as torch's hook sees it, and return it."""
    if "__enum__" in value:
        _require_enum(value["fqn"])
    return value


def _walk(value: Any) -> None:
    if isinstance(value, dict):
        _check_enum_of(value)
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, (dict, list)):
            _walk(inner)


def _require_enum(name: Any) -> None:
    module, _, path = str(name).partition(":")
    owner: Any = sys.modules.get(module)
    if module.partition(".")[0] != "torch" and not is_trusted(module):
        raise _refuse_foreign(module, path)
    for attribute in path.split("."):
        owner = getattr(owner, "__dict__", {}).get(attribute)
    if not (isinstance(owner, type) and issubclass(owner, enum.Enum)):
        raise Refused(f"names {name!r:.100} as an enum, but it is not one", _AGAIN)


def _require_factory(context: Any) -> None:
    module = str(context["default_factory_module"])
    name = str(context["default_factory_name"])
    if name not in _FACTORIES.get(module, ()) and not is_trusted(module):
        raise _refuse_foreign(module, name)


_MOST_PARTS, _MOST_DEEP = 200_000, 100


def require_tree(value: Any) -> None:
    """Refuse a structure that is too large to traverse, counting each reference.

    Raises:
        Refused: it contains itself, is nested too deeply, or has too many parts.
    """
    remaining = _MOST_PARTS
    waiting = [(value, 0)]
    while waiting:
        inner, depth = waiting.pop()
        remaining -= 1
        if depth > _MOST_DEEP:
            what = f"contains itself, or is nested more than {_MOST_DEEP} deep"
            raise Refused(what, "save it again, with less nesting")
        if remaining < 0:
            what = f"has more than {_MOST_PARTS:,} inputs, or lists in lists of them"
            raise Refused(what, "save it again, with fewer of them")
        if isinstance(inner, dict):
            waiting += ((part, depth + 1) for part in inner.values())
        elif isinstance(inner, (list, tuple, collections.deque)):
            waiting += ((part, depth + 1) for part in inner)


_AGAIN = "export it again, with the torch that runs shrinkfx"


def _refuse_foreign(module: str, name: str) -> Refused:
    return Refused(
        f"names {name:.100} of the module {module:.100}, which loading would import",
        MessageText(Flag("--preload", module[:100]), " if you trust that module"),
    )


def _keys(tree: dict[str, Any]) -> list[Any]:
    """Return the keys of a dict by its treespec; [] for anything else."""
    context = tree["context"]
    if isinstance(context, dict):
        context = context.get("dict_context")
    elif tree["type"] in _DICTS:
        context = json.loads(context)
    return context if isinstance(context, list) else []


_DICTS = ("builtins.dict", "collections.OrderedDict")


def _require_plain_keys(tree: dict[str, Any]) -> None:
    for key in _keys(tree):
        require_plain_key(key)
    for child in tree["children_spec"]:
        _require_plain_keys(child)


def require_plain_key(key: Any) -> None:
    """Refuse a key of an input that torch would write into code unchanged.

    Raises:
        Refused: the key has quotes or line breaks, which would end the string there.
    """
    if isinstance(key, str) and not is_plain(key):
        raise Refused(
            f"has an input under the key {key!r:.60}, which torch writes into code",
            "export it again, with keys without quotes and backslashes",
        )

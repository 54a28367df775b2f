"""Check the JSON of a program against torch's schema before torch reads it.

torch checks no types there, and writes names unchanged into the Python source that it
makes of a graph. So each value must have its type in the schema, and each text must be
a name, unless its field is listed here as another kind of text.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from shrinkfx.wording import Flag, MessageText
from shrinkfx.worker.loading import containers, formulas, torch_names
from shrinkfx.worker.loading.refused import Refused
from shrinkfx.worker.private_api.archive_api import Union as _Union
from shrinkfx.worker.private_api.archive_api import schema

Check = Callable[[Any], None]

_LARGEST = 1 << 64
_AGAIN = "export it again, with the torch that runs shrinkfx"
_RENAME = "rename that module or weight, and export it again"


def require_program(data: Any) -> None:
    """Refuse a program that torch would not write into ``models/model.json``.

    Raises:
        Refused: a text would become code, or names something that must not be imported.
        ValueError: a value has another type than in the schema.
    """
    _check_record(schema.ExportedProgram, data)


def require_payload(data: Any) -> None:
    """Refuse a list of weights or constants that torch would not write."""
    _check_record(schema.PayloadConfig, data)


# --- texts


def _matching(pattern: str, what: str) -> Check:
    compiled = re.compile(pattern)

    def check(text: str) -> None:
        if not compiled.fullmatch(text):
            raise Refused(f"has the {what} {text!r:.60}, which is none", _AGAIN)

    return check


_name = _matching(r"\w*", "name")
_word = _matching(r"[\w.:@+<>=-]*", "name")


def _path(text: str) -> None:
    """Require the path of a weight or module, which torch writes between quotes."""
    if len(text) > formulas.MOST_OF_A_NAME:
        raise Refused(f"has a name of {len(text)} characters: too long", _RENAME)
    if not formulas.is_plain(text):
        raise Refused(f"has the name {text!r:.60}, which contains a quote", _RENAME)


def _accept_any_text(text: str) -> None:
    """Accept any text, for fields that never become code."""


def _size(text: str) -> None:
    try:
        formulas.build_size(text)
    except formulas.NotASize as error:
        what = f"has the size {text!r:.60}, which torch.export never writes"
        raise Refused(what, _AGAIN) from error


_SIZE = re.compile(r"[\w\s+*/%(),.<>=!&|~^-]*")
_COUNT = re.compile(r"(u|zuf)[0-9]{1,6}")
"""torch counts up to the number of such a symbol; ``int`` accepts more than digits."""


def _require_range_name(text: str) -> None:
    """Require the name of a range: a size as ``str`` writes it, only compared."""
    counted = text.startswith(("u", "zuf"))
    if not _SIZE.fullmatch(text) or (counted and not _COUNT.fullmatch(text)):
        raise Refused(f"has a range of {text!r:.60}, which is not a size", _AGAIN)


_ON_NUMBERS = re.compile(
    r"_operator\.(getitem|add|mul|sub|truediv|floordiv|mod|pow|neg|pos|abs|lshift|rshift"
    r"|ge|le|gt|lt|eq|ne|and_|or_|not_)"
    r"|math\.(ceil|floor|trunc)|torch\.sym_(int|float|ite|max|min|not|sqrt|sum)"
)
_GROWING = ("_operator.pow", "_operator.lshift", "_operator.rshift")
_FUNCTION = re.compile(
    r"#\w+:[\w.]+"
    r"|torch\.autograd\.grad_mode\.set_grad_enabled|torch\._C\._set_grad_enabled"
    r"|torch\.amp\.autocast_mode\._(enter|exit)_autocast"
    r"|torch\.fx\.experimental\.symbolic_shapes\.cast_symbool_to_symint_guardless"
    r"|torch\._functorch\.predispatch\._\w+"
    r"|torch\._functorch\.predispatch\.lazy_load_decompositions"
)
_AUTOGRAD_FUNCTION = (
    "torch.export.custom_ops._call_custom_autograd_function_in_pre_dispatch"
)
"""It imports a class whose name is its argument."""


def _operator(text: str) -> None:
    """Require an operator, because torch would look up any attribute of a module."""
    if not torch_names.is_operator(text):
        raise Refused(f"names {text!r:.60} as an operator", _AGAIN)


def _target(text: str) -> None:
    if text != _AUTOGRAD_FUNCTION and not (
        _ON_NUMBERS.fullmatch(text) or _FUNCTION.fullmatch(text)
    ):
        _operator(text)


_NUMBERS_IN = frozenset(
    {
        *("as_int", "as_float", "as_bool", "as_none", "as_name", "as_sym_ints"),
        *("as_sym_int", "as_sym_float", "as_sym_bool", "as_ints"),
    }
)


def _require_numbers(node: dict[str, Any]) -> None:
    """Refuse other operands than those of sizes, such as a text times a number."""
    for number, each in enumerate(node["inputs"]):
        ((kind, value),) = each["arg"].items()
        if kind not in _NUMBERS_IN and node["target"] != "_operator.getitem":
            raise Refused(
                f"has {node['target']} of something that is not a number", _AGAIN
            )
        if isinstance(value, dict):
            value = value.get("as_int")
        power = (
            number and node["target"] in _GROWING and isinstance(value, (int, float))
        )
        if power and abs(value) > formulas.MOST_TIMES:
            raise Refused(f"has {node['target']} by {value}", _AGAIN)


def require_argument(text: str) -> None:
    """Refuse a text input that would not remain one string between single quotes.

    Raises:
        Refused: the text has quotes, backslashes or line breaks.
    """
    if not formulas.is_plain(text):
        what = f"takes the text {text!r:.60}, which torch writes into code"
        raise Refused(what, "export it with a text without quotes and backslashes")


_TEXTS: dict[tuple[str, str], Check] = {
    ("Argument", "as_operator"): _operator,
    ("Argument", "as_string"): _accept_any_text,
    ("Argument", "as_strings"): _accept_any_text,
    ("ConstantValue", "as_string"): require_argument,
    ("CustomObjArgument", "class_fqn"): _word,
    ("ExportedProgram", "guards_code"): _accept_any_text,
    ("ExportedProgram", "opset_version"): _word,
    ("ExportedProgram", "range_constraints"): _require_range_name,
    ("ExportedProgram", "torch_version"): _accept_any_text,
    ("GradientToParameterSpec", "parameter_name"): _path,
    ("GraphModule", "metadata"): _accept_any_text,
    ("GraphModule", "treespec_namedtuple_fields"): _word,
    ("BufferMutationSpec", "buffer_name"): _path,
    ("InputToBufferSpec", "buffer_name"): _path,
    ("InputToCustomObjSpec", "custom_obj_name"): _path,
    ("InputToParameterSpec", "parameter_name"): _path,
    ("InputToTensorConstantSpec", "tensor_constant_name"): _path,
    ("ModuleCallEntry", "fqn"): _path,
    ("ModuleCallSignature", "in_spec"): containers.require_inputs,
    ("ModuleCallSignature", "out_spec"): containers.require_outputs,
    ("Node", "metadata"): _accept_any_text,
    ("Node", "target"): _target,
    ("ParameterMutationSpec", "parameter_name"): _path,
    ("PayloadConfig", "config"): _path,
    ("PayloadMeta", "path_name"): _word,
    ("SymExpr", "expr_str"): _size,
}
"""The checks of texts by class and field, also for keys of a dict; default: a name."""


# --- types


def _check_record(cls: Any, data: Any) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{cls.__name__} is {data!r:.60}")
    checks = _fields(cls)
    if issubclass(cls, _Union):
        if len(data) != 1 or not data.keys() <= checks.keys():
            raise ValueError(f"{cls.__name__} is {data!r:.60}")
    elif cls is schema.Node and data.get("target") == _AUTOGRAD_FUNCTION:
        _require_trusted_class(data)
    elif cls is schema.Node and _ON_NUMBERS.fullmatch(str(data.get("target"))):
        _require_numbers(data)
    for name, value in data.items():
        if name in checks:  # torch ignores other fields
            checks[name](value)


def _require_trusted_class(node: dict[str, Any]) -> None:
    name = str(node["inputs"][0]["arg"].get("as_string"))
    module = name.rpartition(".")[0]
    if not containers.is_trusted(module):
        raise Refused(
            f"calls {name:.100}, which loading would import",
            MessageText(Flag("--preload", module[:100]), " if you trust that module"),
        )


@functools.cache
def _fields(cls: Any) -> dict[str, Check]:
    hints = typing.get_type_hints(cls, globalns=vars(schema))
    return {
        field.name: _check_of(
            hints[field.name],
            _TEXTS.get((cls.__name__, field.name), _name),
            f"{cls.__name__}.{field.name}",
        )
        for field in dataclasses.fields(cls)
    }


def _check_of(kind: Any, text: Check, where: str) -> Check:
    """Return the check for a type; ``text`` is the check of the texts in it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (some,) = (each for each in inner if each is not type(None))
        return functools.partial(_check_optional, _check_of(some, text, where))
    if origin is list:
        return functools.partial(_check_list, _check_of(inner[0], text, where), where)
    if origin is dict:
        # The texts of a dict of records are its keys.
        check = _check_of(inner[1], text, where)
        return functools.partial(_check_dict, text, check, where)
    if dataclasses.is_dataclass(kind):
        return functools.partial(_check_record, kind)
    if kind is str:
        return functools.partial(_check_text, text, where)
    accepted = _NUMBERS[int if issubclass(kind, IntEnum) else kind]
    return functools.partial(_check_number, accepted, where)


_NUMBERS: dict[Any, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (int, float),
}
_NO_JSON = ("Infinity", "-Infinity", "NaN")
"""How torch writes numbers that JSON cannot represent."""


def _check_optional(check: Check, value: Any) -> None:
    if value is not None:
        check(value)


def _check_list(check: Check, where: str, value: Any) -> None:
    if not isinstance(value, list):
        raise ValueError(f"{where} is {value!r:.60}")
    for item in value:
        check(item)


def _check_dict(text: Check, check: Check, where: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r:.60}")
    for key, item in value.items():
        text(key)
        check(item)


def _check_text(check: Check, where: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{where} is {value!r:.60}")
    check(value)


def _check_number(accepted: tuple[type, ...], where: str, value: Any) -> None:
    if isinstance(value, str) and float in accepted and value in _NO_JSON:
        return
    if not isinstance(value, accepted):
        raise ValueError(f"{where} is {value!r:.60}")
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise ValueError(f"{where} is a number of more than 64 bits")

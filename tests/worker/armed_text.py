"""Programs whose JSON runs code where torch reads it alone: text, no pickle."""

from __future__ import annotations

import copy
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from damage import Made, Members, Payload, archive, members

GRAPH = "model/models/model.json"
INPUTS = "model/data/sample_inputs/model.pt"

Change = Callable[[dict[str, Any]], None]


def module_of(canary: str) -> str:
    """Name the module that leaves the canary when it is imported."""
    return "brought_" + re.sub(r"\W", "_", Path(canary).name)


def write_module(folder: Path, canary: str) -> None:
    """Put that module where Python finds it, with what a file may ask it for."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module_of(canary)}.py").write_text(
        f"import enum\nopen({canary!r}, 'w').close()\n"
        "class Kind(enum.Enum):\n    A = 1\n"
        "class Function:\n    apply = staticmethod(lambda *args: args[0])\n"
    )


def sizes(canary: str) -> Iterator[tuple[str, str]]:
    """List expressions of sizes that write the canary's file."""
    name = repr(canary)
    yield "plain", f"open({name}, 'w')"
    yield "import", f"__import__('os').system('touch {canary}')"
    # Strings of letters, put together to others by SymPy's own functions.
    relative = Path(canary).name
    for function in ("S", "sympify", "parse_expr"):
        yield function, f"{function}('open' + srepr(('{relative}', 'w')))"
    yield "preview", f"preview(Integer(1), outputTexFile='{relative}')"
    # A line break ends a comment for one reader, and is nothing to the other.
    yield "line-break", f"'a\\\n' # ' + str(open({name}, 'w'))"


def changed(good: bytes, change: Change) -> bytes:
    parts = members(good)
    graph = json.loads(parts[GRAPH])
    change(graph)
    return archive({**parts, GRAPH: json.dumps(graph).encode()})


def with_size(good: bytes, text: str) -> bytes:
    """Have the program's sizes be this text, each of them."""

    def change(value: Any) -> None:
        for key, inner in value.items() if isinstance(value, dict) else ():
            if key == "expr_str":
                value[key] = text
            else:
                change(inner)
        for inner in value if isinstance(value, list) else ():
            change(inner)

    return changed(good, change)


def armed(good: bytes, save: Callable[[Any], bytes], canary: str) -> Made:
    """Hide what runs code in each text of a program that torch takes for code."""
    for name, text in sizes(canary):
        yield f"size-{name}", with_size(good, text)
    for name, change in _changes(canary):
        yield name, changed(good, change)
    key = f'", open("{canary}", "w"), "'
    yield "key", _with_key(good, save, key)


def bombs(good: bytes) -> Made:
    """Write sizes that nobody lives to see worked out."""
    nine = "Integer(9)"
    tower = f"Pow({nine}, Pow({nine}, Pow({nine}, {nine})))"
    for name, text in (
        ("plain", "9**9**9**9"),
        ("tower", tower),
        ("shift", f"LShift({nine}, Integer(1000000000000))"),
        ("binomial", "binomial(Integer(1000000000), Integer(500000000))"),
        ("floats", "floor(" + tower.replace(nine, "Float('9e300')") + ")"),
        ("deep", "Add(" * 5000 + nine + ")" * 5000),
        ("minus", "-" * 9000 + "1"),
    ):
        yield f"bomb-{name}", with_size(good, text)

    for number, name in enumerate(("u99999999999", "u9_999_999_999", "u 9999999999")):

        def counted(graph: dict[str, Any], name: str = name) -> None:
            ranges = graph["range_constraints"]
            ranges[name] = next(iter(ranges.values()))

        yield f"bomb-counted-{number}", changed(good, counted)
    yield "bomb-text", changed(good, _called("mul", {"as_string": "a"}, 20 << 30))
    yield "bomb-shifted", changed(good, _called("lshift", {"as_int": 1}, 51 << 30))


def _called(function: str, first: dict[str, Any], second: int) -> Change:
    """Have a size be what a function of Python returns."""

    def change(graph: dict[str, Any]) -> None:
        inner = graph["graph_module"]["graph"]
        arguments = (first, {"as_int": second})
        inner["nodes"].insert(
            0,
            copy.deepcopy(inner["nodes"][0])
            | {
                "target": f"_operator.{function}",
                "name": "large",
                "inputs": [{"name": "", "arg": a, "kind": 1} for a in arguments],
                "outputs": [{"as_sym_int": {"as_name": "large"}}],
            },
        )
        inner["sym_int_values"]["large"] = {"as_int": 5}

    return change


def bomb_inputs(save: Callable[[Any], bytes]) -> Made:
    """Write inputs that are small in the file, and large or endless once read."""
    nested: list[Any] = [torch.ones(1)]
    for _ in range(36):
        nested = [nested, nested]
    endless: list[Any] = [torch.ones(1)]
    endless.append(endless)
    for name, value in (
        ("laugh", nested),
        ("endless", endless),
        ("bytes", Payload(bytearray, 20 << 30)),
    ):
        yield f"bomb-{name}", save(((value,), {"scale": torch.ones(3)}))


def bomb_programs(good: bytes, save: Callable[[Any], bytes]) -> Made:
    """Put those into a program."""
    for name, data in bomb_inputs(save):
        yield f"inputs-{name}", archive({**members(good), INPUTS: data})


def _changes(canary: str) -> Iterator[tuple[str, Change]]:
    write = f"open({canary!r}, 'w')"
    module = module_of(canary)
    kind = {"__enum__": True, "fqn": f"{module}:Kind", "name": "A"}

    def guard(graph: dict[str, Any]) -> None:
        graph["guards_code"] = [f"{write} is not None"]

    def enum(graph: dict[str, Any]) -> None:
        _edit_keywords(graph, "builtins.dict", json.dumps(["scale", kind]))

    def factory(graph: dict[str, Any]) -> None:
        context = {
            "default_factory_module": module,
            "default_factory_name": "Kind",
            "dict_context": ["scale"],
        }
        _edit_keywords(graph, "collections.defaultdict", context)

    def input_name(graph: dict[str, Any]) -> None:
        _rename(graph, "scale", f"scale={write}")

    def called_by_name(graph: dict[str, Any]) -> None:
        nodes = graph["graph_module"]["graph"]["nodes"]
        called = copy.deepcopy(nodes[0])
        by_name = "_call_custom_autograd_function_in_pre_dispatch"
        called["target"] = f"torch.export.custom_ops.{by_name}"
        text = {"as_string": f"{module}.Function"}
        tensor = {"as_tensor": {"name": "x"}}
        called["inputs"] = [
            {"name": "", "arg": arg, "kind": 1} for arg in (text, tensor)
        ]
        nodes[0] = called

    yield "guard", guard
    yield "enum", enum
    yield "factory", factory
    yield "input-name", input_name
    yield "called-by-name", called_by_name


def _signature(graph: dict[str, Any]) -> dict[str, Any]:
    signature: dict[str, Any] = graph["graph_module"]["module_call_graph"][0][
        "signature"
    ]
    return signature


def _edit_keywords(graph: dict[str, Any], kind: str, context: Any) -> None:
    """Say in the treespec what the keyword arguments are in."""
    signature = _signature(graph)
    protocol, spec = json.loads(signature["in_spec"])
    spec["children_spec"][1] |= {"type": kind, "context": context}
    signature["in_spec"] = json.dumps([protocol, spec])


def _rename(value: Any, old: str, new: str) -> None:
    """Change a name wherever it stands, as a key too."""
    items = list(value.items()) if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if inner == old and key not in ("target", "parameter_name"):
            value[key] = new
        elif isinstance(inner, (dict, list)):
            _rename(inner, old, new)
        if key == old:
            value[new] = value.pop(key)


def _with_key(good: bytes, save: Callable[[Any], bytes], key: str) -> bytes:
    """Put the example input into a dict, under a key; in the treespec as well."""

    def change(graph: dict[str, Any]) -> None:
        signature = _signature(graph)
        protocol, spec = json.loads(signature["in_spec"])
        spec["children_spec"][0]["children_spec"] = [
            {
                "type": "builtins.dict",
                "context": json.dumps([key]),
                "children_spec": spec["children_spec"][0]["children_spec"],
            }
        ]
        signature["in_spec"] = json.dumps([protocol, spec])

    data = changed(good, change)
    parts: Members = members(data)
    args, kwargs = torch.load(io.BytesIO(parts[INPUTS]), weights_only=True)
    return archive({**parts, INPUTS: save((({key: args[0]},), kwargs))})

"""Programs whose JSON runs code where torch reads it alone: text, no pickle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from damage import Made, archive, members

GRAPH = "model/models/model.json"

Change = Callable[[dict[str, Any]], None]


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


def armed(good: bytes, canary: str) -> Made:
    """Hide what runs code in texts of a program that torch takes for code."""
    write = f"open({canary!r}, 'w')"

    def guard(graph: dict[str, Any]) -> None:
        graph["guards_code"] = [f"{write} is not None"]

    yield "size", with_size(good, write)
    yield "guard", changed(good, guard)


def size_bomb(good: bytes) -> bytes:
    """Write sizes that nobody lives to see worked out."""
    return with_size(good, "9**9**9**9")


def inputs_bomb(save: Callable[[Any], bytes]) -> bytes:
    """Write inputs that are small in the file, and large once read."""
    nested: list[Any] = [torch.ones(1)]
    for _ in range(36):
        nested = [nested, nested]
    return save(((nested,), {"scale": torch.ones(3)}))

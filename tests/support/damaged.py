"""Programs and inputs that are damaged, or that run code when they are read."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

Members = dict[str, bytes]
Made = Iterator[tuple[str, bytes]]
"""A name that says what is wrong, and the file."""

_ODD: tuple[Any, ...] = (
    None,
    -1,
    2**70,
    "x",
    [],
    {},
    True,
    1e308,
    [[]],
    "torch.os.system",
)


class Payload:
    """Pickles as a call of whatever it is given."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self._call


def members(data: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(parts: Members, *, method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as new:
        for name, data in parts.items():
            new.writestr(name, data)
    return buffer.getvalue()


def truncated(good: bytes, rng: random.Random, count: int) -> Made:
    for number in range(count):
        end = rng.randrange(len(good))
        yield f"truncated-{number}", good[:end]


def flipped(good: bytes, rng: random.Random, count: int) -> Made:
    """Change bytes anywhere: then a checksum does not fit, or the archive itself."""
    for number in range(count):
        yield f"flipped-{number}", _flip(good, rng)


def flipped_inside(good: bytes, rng: random.Random, count: int) -> Made:
    """Change bytes of a member and have the checksum fit."""
    parts = members(good)
    for number in range(count):
        name = rng.choice(sorted(n for n, data in parts.items() if data))
        yield f"inside-{number}", archive({**parts, name: _flip(parts[name], rng)})


def rearranged(good: bytes, rng: random.Random, count: int) -> Made:
    """Leave members out, exchange what they hold, or rename them."""
    parts = members(good)
    names = sorted(parts)
    for name in names:
        left = {n: data for n, data in parts.items() if n != name}
        yield f"without-{names.index(name)}", archive(left)
    for number in range(count):
        a, b = rng.sample(names, 2)
        yield f"exchanged-{number}", archive({**parts, a: parts[b], b: parts[a]})
    yield "no-root", archive({n.partition("/")[2]: data for n, data in parts.items()})
    yield "two-roots", archive(parts | {f"other/{n}": d for n, d in parts.items()})
    yield "climbing", archive({**parts, "../../escaped": b"x", "/abs": b"x"})


def odd_values(good: bytes, rng: random.Random, count: int) -> Made:
    """Put another JSON value in some place of the graph or the list of weights."""
    parts = members(good)
    names = sorted(name for name in parts if name.endswith(".json"))
    for number in range(count):
        name = names[number % len(names)]
        tree = json.loads(parts[name])
        holder, key = rng.choice(list(_places(tree)))
        holder[key] = rng.choice(_ODD)
        yield f"odd-{number}", archive({**parts, name: json.dumps(tree).encode()})
    deep = b"[" * 100_000 + b"]" * 100_000
    yield "deep", archive({**parts, names[-1]: deep})


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in inside:
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def wrong_kinds(rng: random.Random) -> Made:
    """Files that are something else altogether."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("data"))
    yield "empty", b""
    yield "text", b"import torch\n" * 50
    yield "random", rng.randbytes(4096)
    yield "random-as-zip", b"PK\x03\x04" + rng.randbytes(4096)
    yield "random-as-pickle", b"\x80\x02" + rng.randbytes(4096)
    yield "tar", buffer.getvalue()
    yield "empty-zip", archive({})
    yield "other-zip", archive({"word/document.xml": b"<x/>", "mimetype": b"x"})
    yield "elf", b"\x7fELF" + bytes(4096)


def bomb() -> bytes:
    """More than a gigabyte of zeros, in a megabyte; a program and inputs by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name in ("model/models/model.json", "model/data.pkl"):
            with new.open(name, "w", force_zip64=True) as member:
                for _ in range(600):
                    member.write(bytes(1 << 20))
    return buffer.getvalue()


def _calls(canary: str) -> dict[str, Payload]:
    return {
        "system": Payload(os.system, f"touch {canary}"),
        "open": Payload(open, canary, "w"),
        "exec": Payload(exec, f"open({canary!r}, 'w')"),
        "eval": Payload(eval, f"open({canary!r}, 'w')"),
    }


def armed_pickles(save: Callable[[Any], bytes], canary: str) -> Made:
    """Write what runs code when it is unpickled, as ``save`` and as pickle do."""
    for name, call in _calls(canary).items():
        yield f"saved-{name}", save(((call,), {}))
        yield f"pickled-{name}", pickle.dumps(((call,), {}), protocol=2)


def armed_programs(good: bytes, save: Callable[[Any], bytes], canary: str) -> Made:
    """Hide what runs code in each place of a program that torch reads."""
    parts = members(good)
    weights = "model/data/weights/model_weights_config.json"
    constants = "model/data/constants/model_constants_config.json"
    for name, blob in armed_pickles(save, canary):
        yield f"inputs-{name}", archive({**parts, _INPUTS: blob})
    for name, call in _calls(canary).items():
        blob = save({"l.weight": call})
        yield f"weights-{name}", archive({**parts, "model/data/weights/model.pt": blob})
        one = _first_pickled(parts, weights, "weight_0")
        of_one = {**parts, weights: one, "model/data/weights/weight_0": blob}
        yield f"weight-{name}", archive(of_one)
        opaque = _first_pickled(parts, constants, "opaque_obj_0")
        place = "model/data/constants/opaque_obj_0"
        of_one = {**parts, constants: opaque, place: pickle.dumps(call)}
        yield f"opaque-{name}", archive(of_one)
        own = _first_pickled(parts, constants, "custom_obj_0")
        place = "model/data/constants/custom_obj_0"
        of_one = {**parts, constants: own, place: opaque_object(call)}
        yield f"opaque-scripted-{name}", archive(of_one)
        # Torch's reader finds members by any case.
        upper = place.replace("custom_obj", "CUSTOM_OBJ")
        of_one = {**parts, constants: own, upper: opaque_object(call)}
        yield f"opaque-scripted-upper-{name}", archive(of_one)


def opaque_object(call: object) -> bytes:
    """Write a script object whose class hands its state to Python's unpickler."""
    name = b"c__torch__.torch.classes.aten\nOpaqueObject\n"
    state = base64.b64encode(pickle.dumps(call))
    data = b"\x80\x02%b)\x81X%b%bb." % (name, len(state).to_bytes(4, "little"), state)
    return archive({"archive/data.pkl": data, "archive/version": b"3"})


def armed_before_2_8(good: bytes, save: Callable[[Any], bytes], canary: str) -> Made:
    """Write the format that torch falls back to, with what runs code in it."""
    parts = members(good)
    for name, blob in armed_pickles(save, canary):
        old = {
            "version": b"8.20",
            "serialized_exported_program.json": parts[_GRAPH],
            "serialized_state_dict.pt": blob,
            "serialized_constants.pt": save({}),
            "serialized_example_inputs.pt": save(((), {})),
        }
        yield f"before-2.8-{name}", archive(old)


def scripted(good: bytes, save: Callable[[Any], bytes], canary: str) -> Made:
    """Hide the same where torch has an unpickler of its own, for scripted classes."""
    parts = members(good)
    constants = "model/data/constants/model_constants_config.json"
    own = _first_pickled(parts, constants, "custom_obj_0")
    for name, blob in armed_pickles(save, canary):
        place = "model/data/constants/custom_obj_0"
        yield f"custom-{name}", archive({**parts, constants: own, place: blob})


_GRAPH = "model/models/model.json"
_INPUTS = "model/data/sample_inputs/model.pt"


def _first_pickled(parts: Members, config: str, path: str) -> bytes:
    listed = json.loads(parts[config])
    first = next(iter(listed["config"].values()))
    first |= {"path_name": path, "use_pickle": True}
    return json.dumps(listed).encode()


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

"""Leave a program's weights out of its package, and pass them when it is loaded.

AOTInductor writes weights into an object file, the library, the package and the
unpacked package, which takes six times their size for each check. Its runtime then
copies them into one block of memory, and the compiled program reads only that block.
This module builds the block, byte for byte, from the weights that the process has
loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.protocol.choices import MANY_BYTES, InductorOptions
from shrinkfx.worker.private_api import weights_api
from shrinkfx.worker.private_api.inductor_api import config

WITHOUT_WEIGHTS = {"aot_inductor.package_constants_in_so": False}
"""The Inductor option for a package without weights."""

_LAYOUT_OPTIONS = (
    "freezing",
    "aot_inductor.package_constants_in_so",
    "aot_inductor.package_constants_on_disk_format",
    "aot_inductor.package_cpp_only",
    "aot_inductor.force_mmap_weights",
    "aot_inductor.use_runtime_constant_folding",
    "aot_inductor.use_minimal_arrayref_interface",
    "aot_inductor.cross_target_platform",
    "aot_inductor.compile_standalone",
    "aot_inductor_mode.compile_standalone",
)
"""Options that change the layout of constants, or the constants themselves."""

_ALIGNMENT = 64
"""AOTI_CONST_ALIGNMENT: the runtime rounds sizes of constants up to a multiple."""

_LIBC = ctypes.CDLL(None)
_LIBC.malloc.restype = ctypes.c_void_p
_LIBC.malloc.argtypes = [ctypes.c_size_t]

Constants = Mapping[str, torch.Tensor]
"""Constants by their names in the generated code, in its order."""


class CannotKeepWeightsApart(Exception):
    """The weights must be in the package."""


def can_leave_weights_out(exported: ExportedProgram, options: InductorOptions) -> bool:
    """Return whether to leave the weights out: many bytes, strided, on the CPU.

    False if an option of the user decides where weights are, or if this torch cannot
    load a package without them.
    """
    if any(name in options for name in _LAYOUT_OPTIONS) or not _has_required_api():
        return False
    weights = _weights(exported).values()
    if any(w.device.type != "cpu" or w.layout != torch.strided for w in weights):
        return False
    return total_bytes(exported) >= MANY_BYTES


def _has_required_api() -> bool:
    """Return whether this torch can leave weights out and accept them later."""
    if weights_api.FEATURE.missing:
        return False
    defaults = config.get_config_copy()
    in_library = defaults.get("aot_inductor.package_constants_in_so") is True
    loader = weights_api.AOTIModelPackageLoader
    update = getattr(loader, "update_constant_buffer", None)
    return (
        in_library
        and not defaults.get("freezing")
        and "user_managed" in (getattr(update, "__doc__", None) or "")
    )


def total_bytes(exported: ExportedProgram) -> int:
    """Return the number of bytes that a program's weights take in a package."""
    weights = _weights(exported).values()
    return sum(_nbytes(w) for w in weights if w.layout == torch.strided)


@contextlib.contextmanager
def collect_constants() -> Iterator[dict[str, torch.Tensor]]:
    """Collect the constants of the programs that are compiled inside the context."""
    collected: dict[str, torch.Tensor] = {}
    compiler = weights_api.AotCodeCompiler
    stock, descriptor = compiler.compile, vars(compiler)["compile"]

    def compile_noted(
        graph: weights_api.GraphLowering, *args: Any, **kwargs: Any
    ) -> Any:
        for name in graph.constants:
            if name not in getattr(graph, "folded_constants", ()):
                collected[name] = graph.get_original_value_of_constant(name)
        return stock(graph, *args, **kwargs)

    compiler.compile = compile_noted
    try:
        yield collected
    finally:
        compiler.compile = descriptor


def require_plain(constants: Constants) -> None:
    """Check that each constant is a plain strided tensor on the CPU.

    Raises:
        CannotKeepWeightsApart: a constant is another kind of tensor, such as oneDNN's.
    """
    for name, value in constants.items():
        strided = value.layout == torch.strided and not value.is_mkldnn
        if value.device.type != "cpu" or not strided or value.is_quantized:
            raise CannotKeepWeightsApart(f"{name} is no plain tensor on the CPU")


def hand_over(loader: Any, constants: Constants) -> None:
    """Pass the constants to a loaded package, in the layout of its runtime."""
    # By the names in the generated code: the program's own need not be unique.
    loader.update_constant_buffer(_copy_to_one_block(constants), False, True, True)


def _copy_to_one_block(constants: Constants) -> dict[str, torch.Tensor]:
    """Copy constants, with all of their storage, as ``load_constants`` does."""
    places, total = [], 0
    for value in constants.values():
        places.append(total)
        total += -(-_nbytes(value) // _ALIGNMENT) * _ALIGNMENT
    if not total:
        return dict(constants)
    # Never freed: the compiled program uses it until the process ends.
    start = _LIBC.malloc(total)
    if not start:
        raise MemoryError(f"no memory for {total} bytes of weights")
    memory = (ctypes.c_ubyte * total).from_address(start)
    block = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    copies = {}
    for (name, value), place in zip(constants.items(), places, strict=True):
        storage = value.untyped_storage()
        size = storage.nbytes()
        ctypes.memmove(start + place, storage.data_ptr(), size)
        ctypes.memset(start + place + size, 0, -size % _ALIGNMENT)  # as in a package
        offset = place // value.element_size() + value.storage_offset()
        empty = torch.empty(0, dtype=value.dtype)
        copies[name] = empty.set_(block, offset, value.size(), value.stride())
    return copies


def save(constants: Constants, exported: ExportedProgram, path: Path) -> None:
    """Write the name of the weight that each constant is; store the others whole."""
    weights = _weights(exported)
    places = {(w.data_ptr(), *_layout(w)): name for name, w in weights.items()}
    names = {
        name: places.get((value.data_ptr(), *_layout(value))) or _equal(value, weights)
        for name, value in constants.items()
    }
    others = {name: constants[name] for name, target in names.items() if not target}
    torch.save({"names": json.dumps(names), "own": others}, path)


def read(exported: ExportedProgram, path: Path) -> Constants:
    """Return the constants that ``save`` has stored, for the same program."""
    saved = torch.load(path, weights_only=True)
    names: dict[str, str] = json.loads(saved["names"])
    weights, others = _weights(exported), saved["own"]
    return {name: weights[at] if at else others[name] for name, at in names.items()}


def _equal(value: torch.Tensor, weights: Constants) -> str:
    """Return the name of the weight with the same content, or ''.

    Constants of buffers are such copies.
    """
    layout = _layout(value)
    for name, weight in weights.items():
        if _layout(weight) == layout and torch.equal(*map(_bytes, (value, weight))):
            return name
    return ""


def _bytes(value: torch.Tensor) -> torch.Tensor:
    """Return the storage as bytes, because as numbers 0.0 equals -0.0."""
    return torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())


def _layout(value: torch.Tensor) -> tuple[Any, ...]:
    place = value.storage_offset(), _nbytes(value)
    return value.dtype, tuple(value.shape), tuple(value.stride()), place


def _weights(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the tensors that a program holds, by the names that it has for them."""
    targets = [spec.target for spec in exported.graph_signature.input_specs]
    tensors = [*exported.state_dict.items(), *exported.constants.items()]
    return {
        name: value.detach()
        for name, value in tensors
        if name in targets and isinstance(value, torch.Tensor)
    }


def _nbytes(value: torch.Tensor) -> int:
    return value.untyped_storage().nbytes()

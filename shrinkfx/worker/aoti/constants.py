"""Keep a program's weights out of its package, and hand them over where it is loaded.

AOTInductor writes weights into an object file, the library, the package, and where that
is unpacked: six times what they are, for each check. Its runtime then copies them into
one block of memory, and nothing else of the compiled program sees them. That block is
made here, byte for byte, from the weights that this process holds already.
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

LEFT_OUT = {"aot_inductor.package_constants_in_so": False}
"""AOTInductor's option for a package without weights."""

_OWN_LAYOUT = (
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
"""Options that lay constants out in a way of their own, or make others of them."""

_ALIGNMENT = 64
"""What the runtime rounds the size of a constant up to: AOTI_CONST_ALIGNMENT."""

_LIBC = ctypes.CDLL(None)
_LIBC.malloc.restype = ctypes.c_void_p
_LIBC.malloc.argtypes = [ctypes.c_size_t]

Constants = Mapping[str, torch.Tensor]
"""By their names in the generated code, in its order."""


class CannotKeepBeside(Exception):
    """The weights have to be in the package."""


def are_worth_it(exported: ExportedProgram, options: InductorOptions) -> bool:
    """Tell whether a program has many weights, and nobody says where they are to be."""
    if any(name in options for name in _OWN_LAYOUT) or not _is_as_expected():
        return False
    weights = _weights(exported).values()
    if any(w.device.type != "cpu" or w.layout != torch.strided for w in weights):
        return False
    return total_bytes(exported) >= MANY_BYTES


def _is_as_expected() -> bool:
    """Tell whether this torch can leave weights out, and take them afterwards."""
    if weights_api.FEATURE.missing:
        return False
    known = config.get_config_copy()
    usual = known.get("aot_inductor.package_constants_in_so") is True
    loader = weights_api.AOTIModelPackageLoader
    takes = getattr(loader, "update_constant_buffer", None)
    return (
        usual
        and not known.get("freezing")
        and "user_managed" in (getattr(takes, "__doc__", None) or "")
    )


def total_bytes(exported: ExportedProgram) -> int:
    """Count what a program's weights take in a package."""
    weights = _weights(exported).values()
    return sum(_nbytes(w) for w in weights if w.layout == torch.strided)


@contextlib.contextmanager
def gathered() -> Iterator[dict[str, torch.Tensor]]:
    """Gather the constants of what is compiled inside."""
    found: dict[str, torch.Tensor] = {}
    compiler = weights_api.AotCodeCompiler
    stock, usual = compiler.compile, vars(compiler)["compile"]

    def compile_noted(
        graph: weights_api.GraphLowering, *args: Any, **kwargs: Any
    ) -> Any:
        for name in graph.constants:
            if name not in getattr(graph, "folded_constants", ()):
                found[name] = graph.get_original_value_of_constant(name)
        return stock(graph, *args, **kwargs)

    compiler.compile = compile_noted
    try:
        yield found
    finally:
        compiler.compile = usual


def require_plain(constants: Constants) -> None:
    """See that a block of memory is all there is to them.

    Raises:
        CannotKeepBeside: one is oneDNN's, or the like.
    """
    for name, value in constants.items():
        strided = value.layout == torch.strided and not value.is_mkldnn
        if value.device.type != "cpu" or not strided or value.is_quantized:
            raise CannotKeepBeside(f"{name} is no plain tensor on the CPU")


def hand_over(loader: Any, constants: Constants) -> None:
    """Give a loaded package its constants, laid out as its runtime would."""
    # By names, which are unique; what the program calls them need not be.
    loader.update_constant_buffer(_as_one_block(constants), False, True, True)


def _as_one_block(constants: Constants) -> dict[str, torch.Tensor]:
    """Copy constants as AOTInductor's ``load_constants`` does, storages and all."""
    places, total = [], 0
    for value in constants.values():
        places.append(total)
        total += -(-_nbytes(value) // _ALIGNMENT) * _ALIGNMENT
    if not total:
        return dict(constants)
    # Never freed: it lives as long as the compiled program, which ends the process.
    start = _LIBC.malloc(total)
    if not start:
        raise MemoryError(f"no memory for {total} bytes of weights")
    memory = (ctypes.c_ubyte * total).from_address(start)
    block = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    laid = {}
    for (name, value), place in zip(constants.items(), places, strict=True):
        storage = value.untyped_storage()
        size = storage.nbytes()
        ctypes.memmove(start + place, storage.data_ptr(), size)
        ctypes.memset(start + place + size, 0, -size % _ALIGNMENT)  # as in a package
        offset = place // value.element_size() + value.storage_offset()
        empty = torch.empty(0, dtype=value.dtype)
        laid[name] = empty.set_(block, offset, value.size(), value.stride())
    return laid


def save(constants: Constants, exported: ExportedProgram, path: Path) -> None:
    """Write down which weight of the program each is, and those that are none."""
    weights = _weights(exported)
    places = {(w.data_ptr(), *_layout(w)): name for name, w in weights.items()}
    names = {
        name: places.get((value.data_ptr(), *_layout(value))) or _equal(value, weights)
        for name, value in constants.items()
    }
    own = {name: constants[name] for name, target in names.items() if not target}
    torch.save({"names": json.dumps(names), "own": own}, path)


def read(exported: ExportedProgram, path: Path) -> Constants:
    """Find again what ``save`` has written down, in the same program."""
    saved = torch.load(path, weights_only=True)
    names: dict[str, str] = json.loads(saved["names"])
    weights, own = _weights(exported), saved["own"]
    return {name: weights[at] if at else own[name] for name, at in names.items()}


def _equal(value: torch.Tensor, weights: Constants) -> str:
    """Name the weight that a constant is a copy of, as it is of buffers; or ''."""
    layout = _layout(value)
    for name, weight in weights.items():
        if _layout(weight) == layout and torch.equal(*map(_bytes, (value, weight))):
            return name
    return ""


def _bytes(value: torch.Tensor) -> torch.Tensor:
    """Look at what it is made of: as numbers, 0.0 is equal to -0.0."""
    return torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())


def _layout(value: torch.Tensor) -> tuple[Any, ...]:
    place = value.storage_offset(), _nbytes(value)
    return value.dtype, tuple(value.shape), tuple(value.stride()), place


def _weights(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """List the tensors that a program holds, by the names that it has for them."""
    targets = [spec.target for spec in exported.graph_signature.input_specs]
    held = [*exported.state_dict.items(), *exported.constants.items()]
    return {
        name: value.detach()
        for name, value in held
        if name in targets and isinstance(value, torch.Tensor)
    }


def _nbytes(value: torch.Tensor) -> int:
    return value.untyped_storage().nbytes()

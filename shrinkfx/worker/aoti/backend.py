"""Compile and load packages with AOTInductor, through the calls that users make."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.export import ExportedProgram

from shrinkfx.errors import SEE_DOCTOR, LoadError
from shrinkfx.protocol.choices import MANY_BYTES, Build, InductorOptions, Weights
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker import build_cache, native
from shrinkfx.worker.aoti.fast_build import fast_build, with_plain_wrapper
from shrinkfx.worker.aoti.object_store import SharedObjects
from shrinkfx.worker.disk_space import require_space_for_weights
from shrinkfx.worker.loading.devices import gpu_of
from shrinkfx.worker.private_api import fast_build_api, inductor_api, weights_api


def import_inductor() -> None:
    """Import the modules of Inductor that need no compiler to be installed."""
    for name in ("cpp_wrapper_cpu", "compile_fx", "package", "select_algorithm"):
        inductor_api.FEATURE.resolve(name)


def warm_up() -> None:
    """Do the work in the server that every child would repeat: 0.3 to 0.8 s.

    It finds the CPU's vector instruction set, which this process then remembers. No
    operator may run here, because the first parallel operator of a forked child hangs
    if the parent has an OpenMP pool.

    Raises:
        LoadError: there is no C++ compiler, or another process holds a lock.
    """
    import_inductor()
    try:
        with cache_instruction_sets():
            inductor_api.cpu_vec_isa.pick_vec_isa()
    except TimeoutError as error:  # a lock in Inductor's cache, after ten minutes
        advice = (
            "another process holds that lock: if it was stopped, have it go on or end "
            "it; else set TORCHINDUCTOR_CACHE_DIR to a folder of this run's own"
        )
        raise LoadError("Inductor's cache", str(error), advice) from error
    except (inductor_api.InvalidCxxCompiler, OSError) as error:
        advice = f"install g++, or set CXX to the path of a compiler. {SEE_DOCTOR}"
        raise LoadError("C++", str(error).partition("\n")[0], advice) from error


def compiler_version() -> str:
    """Return the version of the C++ compiler that Inductor uses, such as 12.2.0."""
    command = [*shlex.split(inductor_api.get_cpp_compiler()), "-dumpfullversion"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "none found"
    return done.stdout.strip()


def build(exported: ExportedProgram, folder: Path, options: InductorOptions) -> str:
    """Compile into a package below ``folder``; its caches are there, too.

    With its own cache, a check does not depend on earlier ones, and the disk space is
    freed with the folder, including the files of compilers that were killed.
    """
    os.environ[CACHE] = str(folder / "inductor")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    path = inductor_api.aoti_compile_and_package(
        exported,
        package_path=str(folder / "model.pt2"),
        inductor_configs=dict(options),
    )
    assert isinstance(path, str)
    return path


class CannotHandOver(Exception):
    """The package does not accept the weights that were left out of it."""


@dataclass(frozen=True)
class Package:
    """A compiled package.

    Attributes:
        path: the package file.
        folder: the folder that it is unpacked in.
        weights: the weights to pass when it is loaded; None if it contains them.
        gpu: the index of the GPU that it is loaded onto; -1 for the first, or for a
            CPU program.
    """

    path: Path
    folder: Path
    weights: Constants | None = None
    gpu: int = -1


def build_once(
    exported: ExportedProgram,
    folder: Path,
    inductor: InductorOptions,
    options: CheckOptions,
) -> Package:
    """Compile as the options require, or return the package that an earlier check kept.

    A program that fails only in some runs is compiled once and run many times.

    Raises:
        StepPassed: the request asks about one step, and it has passed.
    """
    stored = Path(options.package) if options.package else None
    gpu = gpu_of(exported)
    if stored and stored.exists():
        notes = _weights_file(stored)
        weights = read(exported, notes) if notes.exists() else None
        return Package(stored, folder, weights, gpu)
    built = replace(_build_package(exported, folder, inductor, options), gpu=gpu)
    return _keep_package(built, exported, stored) if stored else built


def _build_package(
    exported: ExportedProgram,
    folder: Path,
    inductor: InductorOptions,
    options: CheckOptions,
) -> Package:
    """Compile; leave many weights out of the package to save time and disk space."""
    separate = options.weights is Weights.BESIDE
    if separate and can_leave_weights_out(exported, inductor):
        with contextlib.suppress(CannotKeepWeightsApart):
            with collect_constants() as collected:
                settings = {**inductor, **WITHOUT_WEIGHTS}
                path = _compile_package(exported, folder, settings, options)
            require_plain(collected)
            return Package(path, folder, collected)
    require_space_for_weights(total_bytes(exported), folder)
    return Package(_compile_package(exported, folder, inductor, options), folder)


def _compile_package(
    exported: ExportedProgram,
    folder: Path,
    inductor: InductorOptions,
    options: CheckOptions,
) -> Path:
    if options.build is Build.FAST and not options.sanitize:
        with fast_build(folder, options.only, SharedObjects(folder)):
            return Path(build(exported, folder, with_plain_wrapper(inductor)))
    return Path(build(exported, folder, inductor))


@contextlib.contextmanager
def instrument_kernels(flags: str) -> Iterator[None]:
    """Compile kernels, and link the libraries that hold them, with more flags.

    Only a process under AddressSanitizer can load a library that is instrumented for
    it, but that process would take several times as long to compile the library.
    """
    stock = fast_build_api.CppBuilder.get_command_line

    def command(builder: fast_build_api.CppBuilder) -> str:
        line = stock(builder)
        is_kernel = builder.get_target_file_path().endswith((".kernel.o", ".so"))
        return f"{line} {flags}" if is_kernel else line

    with mock.patch.object(fast_build_api.CppBuilder, "get_command_line", command):
        yield


def _keep_package(built: Package, exported: ExportedProgram, place: Path) -> Package:
    """Move a package to the path where later checks find it, in one step.

    The file is moved, not copied, because a package that contains weights may be large.
    """
    if built.weights is None:
        _weights_file(place).unlink(missing_ok=True)
    else:
        save(built.weights, exported, _weights_file(place))
    draft = place.with_name(f"{place.name}.part")  # a child may be killed
    shutil.move(built.path, draft)
    os.replace(draft, place)
    return replace(built, path=place)


def _weights_file(package: Path) -> Path:
    return package.with_name(f"{package.name}.weights")


def temporary_folder_variables(folder: Path) -> dict[str, str]:
    """Put all temporary files below a folder that is deleted after the check.

    Neither compilers nor AOTInductor's loader remove their files if they are killed.
    Inductor's cache would be below the folder, too, but it holds precompiled headers
    that serve all programs, so a link leads to the usual cache.

    Returns:
        Environment variables.
    """
    caches = Path(inductor_api.default_cache_dir())
    caches.mkdir(parents=True, exist_ok=True)
    (folder / caches.name).symlink_to(caches)
    return {"TMPDIR": str(folder)}


CACHE = "TORCHINDUCTOR_CACHE_DIR"


def own_cache_variables(folder: Path) -> dict[str, str]:
    """Put the temporary files and the Inductor cache of a process below a folder.

    AOTInductor writes a program's files in place, and packs them after it has released
    their lock. If two processes compile the same program into one cache, one packs
    files that the other has just emptied, and cannot load the package. Links share the
    files that are written in one step or under a lock until they are complete:
    precompiled headers, Triton's cache, and the folders with two-letter names, whose
    files are named by their content.

    Returns:
        Environment variables.
    """
    default = Path(inductor_api.default_cache_dir())
    shared = Path(os.environ.get(CACHE) or default)
    for place in (default / _HEADERS, shared / _LOCKS):
        place.mkdir(parents=True, exist_ok=True)
    cache = folder / default.name
    cache.mkdir()
    linked = [*shared.glob("??"), *shared.glob(_TRITONS)]
    for place in (default / _HEADERS, shared / _LOCKS, *linked):
        (cache / place.name).symlink_to(place.resolve())
    return {"TMPDIR": str(folder), CACHE: str(cache)}


_HEADERS, _LOCKS, _TRITONS = "precompiled_headers", "locks", "triton"
"""Names of folders in Inductor's cache."""


def load(package: Package) -> Callable[..., Any]:
    """Load a package into this process.

    Raises:
        CannotHandOver: the package does not accept the weights that were left out.
    """
    os.environ["TMPDIR"] = str(package.folder)  # it is unpacked there
    path = str(package.path)
    if package.gpu > 0:
        loaded = inductor_api.aoti_load_package(path, device_index=package.gpu)
    else:  # a preload may have replaced the function by one without device_index
        loaded = inductor_api.aoti_load_package(path)
    if package.weights is not None:
        try:
            hand_over(loaded.loader, package.weights)
        except Exception as error:
            raise CannotHandOver(str(error)) from error
    compiled: Callable[..., Any] = loaded
    return compiled


# Find the usable vector instruction sets once for all runs of a user.
#
# Inductor compiles a few lines for each instruction set, and loads the result in a
# new Python process: 1.5 CPU-seconds for every process, though it compiles them only
# once.

_CPU_LINES = ("vendor", "model", "flags", "Features", "features", "CPU", "cpu\t")
"""Prefixes of the lines of ``/proc/cpuinfo`` that identify a kind of CPU."""

_PATHS = ("PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
"""Variables with search paths of compilers; those of the loader count, too."""


@contextlib.contextmanager
def cache_instruction_sets() -> Iterator[None]:
    """Cache in files which instruction sets Inductor can use.

    Only successes are stored, because a failure may be temporary.
    """
    if fast_build_api.FEATURE.missing:
        yield
        return
    original = fast_build_api.VecISA.check_build

    def check_build(isa: fast_build_api.VecISA, code: str) -> bool:
        note = _note(isa, code)
        if note and note.exists():
            build_cache.note_use(note)
            return True
        usable = bool(original(isa, code))
        if usable and note:
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()
        return usable

    with mock.patch.object(fast_build_api.VecISA, "check_build", check_build):
        yield


def _note(isa: fast_build_api.VecISA, code: str) -> Path | None:
    """Return the file that records a success; None if the machine is not known."""
    try:
        identity = repr((code, isa.build_arch_flags(), isa.build_macro(), _machine()))
    except (OSError, RuntimeError, AttributeError):  # no compiler: Inductor reports it
        return None
    digest = hashlib.sha256(identity.encode()).hexdigest()[:24]
    return build_cache.folder() / f"instruction-set-{digest}"


def _machine() -> tuple[object, ...]:
    """Return values that identify the CPU, the compiler and PyTorch."""
    compiler = inductor_api.get_cpp_compiler()
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    variables = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name in _PATHS or name.startswith("LD_")
    )
    libtorch = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return (
        sorted({line for line in lines if line.startswith(_CPU_LINES)}),
        compiler,
        build_cache.identity(native.find_compiler(compiler) or compiler),
        fast_build_api.get_compiler_version_info(compiler),
        torch.__version__,
        build_cache.identity(str(libtorch)),
        variables,
    )


# Leave a program's weights out of its package, and pass them when it is loaded.
#
# AOTInductor writes weights into an object file, the library, the package and the
# unpacked package, which takes six times their size for each check. Its runtime then
# copies them into one block of memory, and the compiled program reads only that
# block. This module builds the block, byte for byte, from the weights that the
# process has loaded.

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
    defaults = inductor_api.config.get_config_copy()
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
    stock = compiler.compile

    def compile_noted(
        graph: weights_api.GraphLowering, *args: Any, **kwargs: Any
    ) -> Any:
        for name in graph.constants:
            if name not in getattr(graph, "folded_constants", ()):
                collected[name] = graph.get_original_value_of_constant(name)
        return stock(graph, *args, **kwargs)

    with mock.patch.object(compiler, "compile", compile_noted):
        yield collected


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

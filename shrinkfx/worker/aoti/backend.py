"""AOTInductor, exactly as a user calls it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from shrinkfx.errors import SEE_DOCTOR, LoadError
from shrinkfx.protocol.choices import Build, InductorOptions, Weights
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.aoti import constants
from shrinkfx.worker.aoti.fast_build import fast_build, with_plain_wrapper
from shrinkfx.worker.aoti.instruction_sets import asked_once
from shrinkfx.worker.aoti.object_store import SharedObjects
from shrinkfx.worker.disk_space import require_space_for_weights
from shrinkfx.worker.loading.devices import gpu_of
from shrinkfx.worker.private_api import inductor_api
from shrinkfx.worker.private_api.inductor_api import default_cache_dir


def import_inductor() -> None:
    """Import what compiles and loads, all that needs no compiler."""
    for name in ("cpp_wrapper_cpu", "compile_fx", "package", "select_algorithm"):
        inductor_api.FEATURE.resolve(name)


def warm_up() -> None:
    """Pay once in the server for what every child would pay: 0.3 to 0.8 s.

    Which vector instructions there are is known to this process from then on. No
    operator may run here: the OpenMP pool of a parent makes the first parallel operator
    of a forked child hang.

    Raises:
        LoadError: there is no C++ compiler, or another process keeps us from asking.
    """
    from shrinkfx.worker.private_api.inductor_api import InvalidCxxCompiler

    import_inductor()
    try:
        with asked_once():
            inductor_api.cpu_vec_isa.pick_vec_isa()
    except TimeoutError as error:  # of a lock in Inductor's cache, after ten minutes
        advice = (
            "another process holds that lock: if it was stopped, have it go on or end "
            "it; else set TORCHINDUCTOR_CACHE_DIR to a folder of this run's own"
        )
        raise LoadError("Inductor's cache", str(error), advice) from error
    except (InvalidCxxCompiler, OSError) as error:
        advice = f"install g++, or set CXX to the path of a compiler. {SEE_DOCTOR}"
        raise LoadError("C++", str(error).partition("\n")[0], advice) from error


def compiler_version() -> str:
    """Ask the C++ compiler that Inductor uses for its version, such as 12.2.0."""
    from shrinkfx.worker.private_api.inductor_api import get_cpp_compiler

    command = [*shlex.split(get_cpp_compiler()), "-dumpfullversion"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "none found"
    return done.stdout.strip()


def build(exported: ExportedProgram, folder: Path, options: InductorOptions) -> str:
    """Compile into a package below ``folder``, caches included.

    A cache of its own makes a check independent of the ones before it, and its
    disk space goes with the folder. So does what compilers leave when they are killed.
    """
    os.environ[_CACHE] = str(folder / "inductor")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    path = inductor_api.aoti_compile_and_package(
        exported,
        package_path=str(folder / "model.pt2"),
        inductor_configs=dict(options),
    )
    assert isinstance(path, str)
    return path


class CannotHandOver(Exception):
    """A package does not take the weights that were left out of it."""


@dataclass(frozen=True)
class Package:
    """What AOTInductor has made of a program.

    Attributes:
        folder: where it is unpacked.
        weights: what it is to be given when it is loaded; None if they are in it.
        gpu: the number of the one that it is loaded onto; -1 for the first, or none.
    """

    path: Path
    folder: Path
    weights: constants.Constants | None = None
    gpu: int = -1


def build_once(
    exported: ExportedProgram,
    folder: Path,
    inductor: InductorOptions,
    options: CheckOptions,
) -> Package:
    """Compile as a request says, or take what an earlier check left.

    A program that fails in some runs only is compiled once and run often.

    Raises:
        StepPassed: the one step that the request is about has passed.
    """
    kept = Path(options.package) if options.package else None
    gpu = gpu_of(exported)
    if kept and kept.exists():
        notes = _notes_of(kept)
        weights = constants.read(exported, notes) if notes.exists() else None
        return Package(kept, folder, weights, gpu)
    built = replace(_built(exported, folder, inductor, options), gpu=gpu)
    return _kept(built, exported, kept) if kept else built


def _built(
    exported: ExportedProgram,
    folder: Path,
    inductor: InductorOptions,
    options: CheckOptions,
) -> Package:
    """Compile with the weights beside the package where that saves much."""
    beside = options.weights is Weights.BESIDE
    if beside and constants.are_worth_it(exported, inductor):
        with contextlib.suppress(constants.CannotKeepBeside):
            with constants.gathered() as found:
                without = {**inductor, **constants.LEFT_OUT}
                path = _compiled(exported, folder, without, options)
            constants.require_plain(found)
            return Package(path, folder, found)
    require_space_for_weights(constants.total_bytes(exported), folder)
    return Package(_compiled(exported, folder, inductor, options), folder)


def _compiled(
    exported: ExportedProgram,
    folder: Path,
    inductor: InductorOptions,
    options: CheckOptions,
) -> Path:
    if options.build is Build.FAST and not options.sanitize:
        with fast_build(folder, options.only, SharedObjects(folder)):
            return Path(build(exported, folder, with_plain_wrapper(inductor)))
    return Path(build(exported, folder, inductor))


def _kept(built: Package, exported: ExportedProgram, place: Path) -> Package:
    """Move a package to where others find it, all of it or nothing.

    Not a copy: one with its weights inside may be large.
    """
    if built.weights is None:
        _notes_of(place).unlink(missing_ok=True)
    else:
        constants.save(built.weights, exported, _notes_of(place))
    draft = place.with_name(f"{place.name}.part")  # a child may be killed
    shutil.move(built.path, draft)
    os.replace(draft, place)
    return replace(built, path=place)


def _notes_of(package: Path) -> Path:
    return package.with_name(f"{package.name}.weights")


def temporary_below(folder: Path) -> dict[str, str]:
    """Have whatever is temporary lie below a folder, which goes after the check.

    Neither compilers nor AOTInductor's loader clear anything away where the process
    is killed. Inductor's cache would be there as well, but has precompiled headers,
    which serve all programs: it stays where it is.

    Returns:
        Environment variables.
    """
    caches = Path(default_cache_dir())
    caches.mkdir(parents=True, exist_ok=True)
    (folder / caches.name).symlink_to(caches)
    return {"TMPDIR": str(folder)}


_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def own_cache_below(folder: Path, kept: Path | None = None) -> dict[str, str]:
    """Have what a process compiles by itself lie below a folder, its cache too.

    AOTInductor writes a program's files in place, and packs them when it has let go of
    their lock: where two processes compile the same program into one cache, one packs
    what the other has just emptied, and cannot load that. What is written in one step,
    or under a lock until it is whole, serves all: precompiled headers, Triton's cache,
    and the folders of two letters that hold single files, named for what is in them.

    Args:
        kept: where the cache itself is to lie, if it is to outlast the folder.

    Returns:
        Environment variables.
    """
    usual = Path(default_cache_dir())
    shared = Path(os.environ.get(_CACHE) or usual)
    for place in (usual / _HEADERS, shared / _LOCKS):
        place.mkdir(parents=True, exist_ok=True)
    own = folder / usual.name
    if kept:
        kept.mkdir()
        (kept / usual.name).mkdir()
        own.symlink_to(kept / usual.name)
    else:
        own.mkdir()
    single = [*shared.glob("??"), *shared.glob(_TRITONS)]
    for place in (usual / _HEADERS, shared / _LOCKS, *single):
        (own / place.name).symlink_to(place.resolve())
    return {"TMPDIR": str(folder), _CACHE: str(own)}


_HEADERS, _LOCKS, _TRITONS = "precompiled_headers", "locks", "triton"
"""What Inductor calls these."""


def load(package: Package) -> Callable[..., Any]:
    """Load a package into this process.

    Raises:
        CannotHandOver: it does not take the weights that were left out of it.
    """
    os.environ["TMPDIR"] = str(package.folder)  # where it is unpacked
    path = str(package.path)
    if package.gpu > 0:
        loaded = inductor_api.aoti_load_package(path, device_index=package.gpu)
    else:  # what a preload puts in that function's place need not know of GPUs
        loaded = inductor_api.aoti_load_package(path)
    if package.weights is not None:
        try:
            constants.hand_over(loaded.loader, package.weights)
        except Exception as error:
            raise CannotHandOver(str(error)) from error
    compiled: Callable[..., Any] = loaded
    return compiled

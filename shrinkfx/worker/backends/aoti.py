"""AOTInductor, exactly as a user calls it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch._inductor.codecache  # settles where precompiled headers lie
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.program.messages import Build, Step
from shrinkfx.worker.backends.fast_build import fast_build, with_plain_wrapper


def warm_up() -> None:
    """Pay once in the server for what every child would pay: 0.3 to 0.8 s.

    Probing the vector instruction set compiles a few lines per set; the answer
    stays in this process. No operator may run here: the OpenMP pool of a parent
    makes the first parallel operator of a forked child hang.

    Raises:
        LoadError: there is no C++ compiler.
    """
    import torch._inductor.codegen.cpp_wrapper_cpu
    import torch._inductor.compile_fx
    import torch._inductor.cpu_vec_isa
    import torch._inductor.package
    import torch._inductor.select_algorithm
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        torch._inductor.cpu_vec_isa.pick_vec_isa()
    except (InvalidCxxCompiler, OSError) as error:
        advice = "install g++, or set CXX to the path of a compiler"
        raise LoadError("C++", str(error).partition("\n")[0], advice) from error


def compiler_version() -> str:
    """Ask the C++ compiler that Inductor uses for its version, such as 12.2.0."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    command = [get_cpp_compiler(), "-dumpfullversion"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "none found"
    return done.stdout.strip()


def build(exported: ExportedProgram, folder: Path, options: Mapping[str, Any]) -> str:
    """Compile into a package below ``folder``, caches included.

    A cache of its own makes a check independent of the ones before it, and its
    disk space goes with the folder. So does what compilers leave when they are killed.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    path = torch._inductor.aoti_compile_and_package(
        exported,
        package_path=str(folder / "model.pt2"),
        inductor_configs=dict(options),
    )
    assert isinstance(path, str)
    return path


def build_once(
    exported: ExportedProgram,
    folder: Path,
    options: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> str:
    """Compile as a request says, or take what an earlier check left.

    A program that fails in some runs only is compiled once and run often.

    Raises:
        Stopped: the one step that the request is about has passed.
    """
    package, kept = folder / "model.pt2", arguments.get("package")
    if kept and Path(kept).exists():
        shutil.copy(kept, package)
        return str(package)
    if arguments.get("build") == Build.FAST and not arguments.get("sanitize"):
        only = arguments.get("only")
        with fast_build(folder, Step(only) if only else None):
            built = build(exported, folder, with_plain_wrapper(options))
    else:
        built = build(exported, folder, options)
    if kept:  # all of it or nothing: a child may be killed
        shutil.copy(built, f"{kept}.part")
        os.replace(f"{kept}.part", kept)
    return built


def temporary_below(folder: Path) -> dict[str, str]:
    """Have whatever is temporary lie below a folder, which goes after the check.

    Neither compilers nor AOTInductor's loader clear anything away where the process
    is killed. Precompiled
    headers would be there as well, but serve all programs: they stay where they are.

    Returns:
        Environment variables.
    """
    caches = Path(default_cache_dir())
    caches.mkdir(parents=True, exist_ok=True)
    (folder / caches.name).symlink_to(caches)
    return {"TMPDIR": str(folder)}


def load(package: str) -> Callable[..., Any]:
    """Load a package into this process."""
    os.environ["TMPDIR"] = str(Path(package).parent)  # where it is unpacked
    loaded: Callable[..., Any] = torch._inductor.aoti_load_package(package)
    return loaded

"""Load the program of a dump of PyTorch's AOTI minifier."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.check.preflight import require_program
from shrinkfx.errors import LoadError
from shrinkfx.intake.found import PROGRAM, ResolvedProgram
from shrinkfx.intake.script import Script
from shrinkfx.intake.worker import bare_worker, find_changed_settings
from shrinkfx.options.options import Options


def take_program(script: Script, options: Options, folder: Path) -> ResolvedProgram:
    """Copy the dump's program into the folder of a run, without executing the script.

    The program is copied because the minifier overwrites the file with each program
    that it tries.

    Raises:
        LoadError: the program does not exist, or is not a ``.pt2``.
    """
    file = locate(script.program, script.path)
    if file is None:
        raise LoadError(
            str(script.path),
            f"loads {script.program}, which does not exist, not even next to the "
            "script",
            f"put {Path(script.program).name} next to {script.path.name}",
        )
    require_program(file)
    program = folder / PROGRAM
    shutil.copyfile(file, program)
    with bare_worker(options, script.environment) as ask:
        inductor, notes = find_changed_settings(ask, script)
    return ResolvedProgram(
        program=program,
        inductor=inductor,
        environment=script.environment,
        notes=(f"{script.path} loads {file}", *script.notes, *notes),
    )


def locate(name: str, script: Path) -> Path | None:
    """Find a file that a script names, also if both were moved.

    If the path no longer exists, its ends are tried next to the script, the longest
    first: ``minifier/checkpoints/x.pt2``, ``checkpoints/x.pt2``, ``x.pt2``.
    """
    if not name:
        return None
    return next((path for path in _places(name, script) if path.exists()), None)


def _places(name: str, script: Path) -> Iterator[Path]:
    parts, is_absolute = Path(name).parts, Path(name).is_absolute()
    if is_absolute:
        yield Path(name)
    for first in range(int(is_absolute), len(parts)):
        yield script.parent.joinpath(*parts[first:])

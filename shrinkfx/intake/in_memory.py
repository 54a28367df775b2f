"""Save an ExportedProgram or a module of the user's process as the input of a run.

    minify(module, args=(x,))  ->  DIR/intake/program.pt2  ->  a run like any other

This is the only module outside the worker that imports worker modules. They need torch
for an object of this process, which already has torch (``docs/decisions.md``).
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.errors import UsageError
from shrinkfx.intake.dump import holds_run
from shrinkfx.intake.found import PROGRAM, SOURCE_ARCHIVE, ResolvedProgram, is_setting
from shrinkfx.intake.preload_choice import choose_session_preloads
from shrinkfx.options.options import Options
from shrinkfx.protocol.captured import MAIN, CapturedProgram
from shrinkfx.system.folders import (
    DRAFT,
    INTAKE,
    lock_folder,
    output_folder,
    remove_if_empty,
)


@dataclass(frozen=True)
class ObjectInput:
    """An object to reduce, and its arguments.

    Attributes:
        args: for a module, the arguments of the export; for a program, the failing
            inputs.
    """

    program: object
    args: tuple[Any, ...] | None = None
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None

    @property
    def is_path(self) -> bool:
        return isinstance(self.program, (str, os.PathLike))

    def path(self) -> Path:
        """Return the program as the path of a ``.pt2``.

        Raises:
            UsageError: there are arguments, which do not apply to a path.
        """
        assert isinstance(self.program, (str, os.PathLike))
        if self.args is not None or self.kwargs is not None:
            raise UsageError(
                "args= and kwargs= only apply to a module or a program; for a path, "
                "use inputs=FILE"
            )
        if self.dynamic_shapes is not None:
            raise UsageError(
                "dynamic_shapes= only applies to a module: a .pt2 has "
                "its own dynamic shapes"
            )
        return Path(self.program)


@contextlib.contextmanager
def save_object(
    source: ObjectInput, options: Options
) -> Iterator[tuple[Options, ResolvedProgram]]:
    """Yield the options of a run of the object, saved in the folder of the run.

    The files are removed at the end of the block if no run began.

    Raises:
        UsageError: the object is not a program, no other process can import one of its
            operators, or the folder contains another run.
        LoadError: the object cannot be exported or saved.
    """
    from shrinkfx.worker.intake.objects import export_program, name_program

    name = name_program(source.program)
    args, kwargs = source.args, source.kwargs
    program = export_program(source.program, args, kwargs, source.dynamic_shapes)
    session = _describe_session(program, options)
    out = output_folder(options.out, Path(f"{name}.pt2"))
    try:
        with lock_folder(out):
            try:
                resolved = _write_input(source, program, session, options, out)
                command = options.command or _command(source)
                options = replace(options, name=name, command=command)
                request = replace(resolved.to_options(options), out=out)
                yield request, resolved
            finally:
                _remove_unused_files(out)
    finally:
        remove_if_empty(out)


def watch_session(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Record what this process passes to Inductor during the block, in a folder."""
    from shrinkfx.worker.intake.objects import watch_session as watch

    return watch(folder)


def _write_input(
    source: ObjectInput,
    program: Any,  # noqa: ANN401 - a program
    session: CapturedProgram,
    options: Options,
    out: Path,
) -> ResolvedProgram:
    """Write all files that a run needs."""
    from shrinkfx.worker.intake.objects import remarks

    folder, cwd = out / INTAKE, options.cwd or Path.cwd()
    _save(source, program, folder, has_run=holds_run(out))
    preloads = choose_session_preloads(session, folder, cwd, options.preload)
    inputs, archive = folder / _INPUTS, folder / SOURCE_ARCHIVE
    return ResolvedProgram(
        program=archive if archive.exists() else folder / PROGRAM,
        inputs=inputs if inputs.exists() else None,
        inductor={k: v for k, v in session.inductor.items() if is_setting(k)},
        preload=preloads.names,
        notes=(
            *remarks(source.program, program),
            *preloads.notes,
            *preloads.lacking,
        ),
        lacking=preloads.lacking,
    )


def _remove_unused_files(out: Path) -> None:
    if holds_run(out):
        return
    written = [path.name for path in (out / INTAKE).glob("preload_*.py")]
    for file in (*_FILES, *written):
        (out / INTAKE / file).unlink(missing_ok=True)
    remove_if_empty(out / INTAKE)


_INPUTS = "inputs.pt"
_FILES = (PROGRAM, SOURCE_ARCHIVE, _INPUTS)


def _command(source: ObjectInput) -> str:
    """Return the call that started the run, for the header of its repro."""
    called = ", args=..." if source.args is not None else ""
    called += ", kwargs=..." if source.kwargs is not None else ""
    called += ", dynamic_shapes=..." if source.dynamic_shapes is not None else ""
    return f"shrinkfx.minify({'module' if called else 'program'}{called})"


def _save(source: ObjectInput, program: Any, folder: Path, *, has_run: bool) -> None:  # noqa: ANN401 - a program
    """Write the program and its inputs atomically; raise if another run's would change.

    Equal programs have equal bytes, so that the run in the folder can resume.
    """
    from shrinkfx.worker.intake.objects import save_inputs, save_program

    fails_otherwise = program is source.program and (source.args or source.kwargs)
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=folder) as draft:
        save_program(program, Path(draft) / PROGRAM, Path(draft) / SOURCE_ARCHIVE)
        if fails_otherwise:
            save_inputs(source.args, source.kwargs, Path(draft) / _INPUTS)
        for name in _FILES:
            saved, place = Path(draft) / name, folder / name
            if has_run:
                _require_same(saved, place)
            elif saved.exists():
                saved.replace(place)
            else:  # left by a run that was killed before it began
                place.unlink(missing_ok=True)


def _require_same(saved: Path, place: Path) -> None:
    both = saved.exists(), place.exists()
    if all(both) and filecmp.cmp(saved, place, shallow=False):
        return
    if any(both):
        out = place.parent.parent
        raise UsageError(
            f"--out {out}",
            " contains a run of another program: ",
            f"--resume {out}",
            " resumes it; or choose an empty folder",
        )


def _describe_session(program: Any, options: Options) -> CapturedProgram:  # noqa: ANN401 - a program
    """Describe what other processes need to run and compile a program.

    Raises:
        UsageError: an operator was registered where no other process can import it.
    """
    from shrinkfx.worker.intake.objects import describe_session, find_registrations

    # A user who names preloads names all of them.
    registered = [] if options.preload else find_registrations(program)
    if in_main := [each for each in registered if each.module == MAIN]:
        file = next((each.file for each in in_main if each.file.endswith(".py")), "")
        place = f"{Path(file).name}, which runs as __main__"
        raise UsageError(
            f"{', '.join(each.why for each in in_main)}: registered in "
            f"{place if file else 'a notebook cell'}, and no other process can import "
            "it: move it into a module (in a notebook, a cell that begins with "
            f"%%writefile my_ops.py, then `import my_ops`), or {_ADVICE}"
        )
    for each in registered:
        if not (each.module or each.file or each.library):
            raise UsageError(
                f"{each.why}: the module that registers these operators is unknown: "
                f"{_ADVICE}"
            )
    return describe_session(program, registered)


_ADVICE = "pass preload=['module or file']"

"""Save an ExportedProgram or a module of the user's process as the input of a run.

    minify(module, args=(x,))  ->  DIR/intake/program.pt2  ->  a run like any other

This is the only module outside the worker that imports worker modules. They need torch
for an object of this process, which already has torch (``docs/decisions.md``).
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shrinkfx.errors import Flag, UsageError
from shrinkfx.intake.dump import holds_run
from shrinkfx.intake.found import PROGRAM, SOURCE_ARCHIVE, ResolvedProgram, is_setting
from shrinkfx.intake.in_session import SessionCopy, Source, copy_session
from shrinkfx.intake.modules import Preload, RestoredValue, choose_preloads
from shrinkfx.options.options import Options
from shrinkfx.system.atomic_files import DRAFT
from shrinkfx.system.folder_lock import lock_folder
from shrinkfx.system.output_folder import (
    INTAKE,
    output_folder,
    remove_if_empty,
)

if TYPE_CHECKING:
    from shrinkfx.worker.intake.objects import Registration


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
    preloads = _preloads(program, options)
    settings, session = _read_session(options)
    imported = choose_preloads(session.modules, options.cwd or Path.cwd())
    preloads += [each for each in imported if each not in preloads]
    preloads += [session.setting] if session.setting else []
    out = output_folder(options.out, Path(f"{name}.pt2"))
    try:
        with lock_folder(out):
            try:
                resolved = _write_input(source, program, preloads, out)
                resolved = replace(
                    resolved,
                    inductor=settings,
                    notes=(*resolved.notes, *session.notes),
                    lacking=session.lacking,
                )
                command = options.command or _command(source)
                options = replace(options, name=name, command=command)
                request = replace(resolved.to_options(options), out=out)
                yield request, resolved
            finally:
                _remove_unused_files(out)
    finally:
        remove_if_empty(out)


def _write_input(
    source: ObjectInput,
    program: Any,  # noqa: ANN401 - a program
    preloads: Sequence[Preload],
    out: Path,
) -> ResolvedProgram:
    """Write all files that a run needs."""
    from shrinkfx.worker.intake.objects import remarks

    folder = out / INTAKE
    _save(source, program, folder, has_run=holds_run(out))
    inputs, archive = folder / _INPUTS, folder / SOURCE_ARCHIVE
    return ResolvedProgram(
        program=archive if archive.exists() else folder / PROGRAM,
        inputs=inputs if inputs.exists() else None,
        preload=tuple(preload.write_to(folder) for preload in preloads),
        notes=tuple(remarks(source.program, program)),
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
            Flag("--out", str(out)),
            " contains a run of another program: ",
            Flag("--resume", str(out)),
            " resumes it; or choose an empty folder",
        )


def _preloads(program: Any, options: Options) -> list[Preload]:  # noqa: ANN401 - a program
    """Choose the preloads that register the program's operators in other processes.

    Raises:
        UsageError: an operator was registered where no other process can import it.
    """
    from shrinkfx.worker.intake.objects import find_registrations, libraries

    if options.preload:  # a user who names preloads names all of them
        return []
    registered = find_registrations(program)
    if in_main := [each for each in registered if each.module == "__main__"]:
        raise UsageError(_typed(in_main))
    native = [each for each in registered if not _of_python(each)]
    loaded = libraries() if native else []
    if native and not loaded:
        names = ", ".join(each.operator for each in native)
        raise UsageError(
            f"{names}: the module that registers these operators is unknown: {_ADVICE}"
        )
    python = dict.fromkeys(filter(None, map(_of_python, registered)))
    modules = [(name, _file_of(name)) for name in python if not name.endswith(".py")]
    imported = iter(choose_preloads(modules, options.cwd or Path.cwd()))
    return [
        *(Preload(n) if n.endswith(".py") else next(imported) for n in python),
        *map(Preload, loaded),
    ]


def _read_session(options: Options) -> tuple[dict[str, Any], SessionCopy]:
    """Return Inductor's settings in this process, and its other state in Inductor."""
    from shrinkfx.worker.intake.objects import read_inductor_state

    state = read_inductor_state()
    sources = [Source(o.module, o.file, o.why) for o in state.origins if _is_own(o)]
    made = {name: RestoredValue(**asdict(each)) for name, each in state.others.items()}
    others = {name: each for name, each in made.items() if is_setting(name)}
    settings = {k: v for k, v in state.settings.items() if is_setting(k)}
    return settings, copy_session(sources, others, options.preload)


def _is_own(origin: Any) -> bool:  # noqa: ANN401 - an origin, of the worker
    return origin.module == "__main__" or (origin.is_local and not origin.library)


_ADVICE = "pass preload=['module or file']"


def _of_python(each: Registration) -> str:
    """Return the module to import, or else its Python file; '' if there is neither."""
    return each.module or (each.file if each.file.endswith(".py") else "")


def _file_of(module: str) -> str:
    return getattr(sys.modules.get(module), "__file__", None) or ""


def _typed(registrations: Sequence[Registration]) -> str:
    names = ", ".join(each.operator for each in registrations)
    file = next((each.file for each in registrations if each.file.endswith(".py")), "")
    where = f"{Path(file).name}, which runs as __main__" if file else "a notebook cell"
    return (
        f"{names}: registered in {where}, and no other process can import it: move it "
        "into a module (in a notebook, a cell that begins with %%writefile my_ops.py, "
        f"then `import my_ops`), or {_ADVICE}"
    )

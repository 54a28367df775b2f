"""Resolve a path that the user passes to a program in the folder of a run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from shrinkfx.errors import NotCuttable, NotReproducible, UsageError
from shrinkfx.intake import minifier, runnable
from shrinkfx.intake.found import DOES_NOT_FAIL, PROGRAM, ResolvedProgram
from shrinkfx.intake.recognise import holds_run, read_dump
from shrinkfx.intake.script import Kind, Script, read_script
from shrinkfx.options.options import Options
from shrinkfx.system.folder_lock import lock_folder
from shrinkfx.system.output_folder import (
    INTAKE,
    output_folder,
    remove_if_empty,
)
from shrinkfx.wording import Flag, MessageText


@contextlib.contextmanager
def resolve_program(
    options: Options,
    add_note: Callable[[str], None],
    require_others: Callable[[], None] = lambda: None,
) -> Iterator[Options]:
    """Yield the options of a run of the program that ``options.model`` stands for.

    Options whose ``model`` is a ``.pt2`` are yielded unchanged. The run takes place
    inside the ``with`` block. This process locks the folder from before the first file
    is written until the end of the block.

    Args:
        add_note: called with sentences about what was read, and what could not be.
        require_others: checks the other requirements of the run before any file is
            written.

    Raises:
        LoadError: the input cannot be read, run or exported.
        UsageError: the input cannot be reduced; or it is code that the user has not
            allowed to run; or another process uses the folder.
    """
    script = read_dump(options.model)
    if script is None:
        yield options
        return
    if script.kind is Kind.RUNNABLE:
        runnable.require_consent(script, options)
    require_others()
    out = output_folder(options.out, options.model.resolve())
    try:
        with lock_folder(out):
            resolved = _write_program(script, options, out)
            for sentence in resolved.notes:
                add_note(sentence)
            request = replace(resolved.to_options(options), out=out)
            with _note_if_passing(request):
                yield request
    finally:
        remove_if_empty(out)


@contextlib.contextmanager
def _note_if_passing(request: Options) -> Iterator[None]:
    """Leave a note next to a program that does not fail, because its folder stays."""
    try:
        yield
    except NotCuttable:  # the program does fail
        raise
    except NotReproducible:
        note = request.model.with_name(DOES_NOT_FAIL)
        with contextlib.suppress(OSError):  # the error is reported in any case
            note.write_text(json.dumps({"program": request.called}))
        raise


def _write_program(script: Script, options: Options, out: Path) -> ResolvedProgram:
    """Write the program into a folder without a run; on failure remove its files."""
    if holds_run(out):
        raise UsageError(
            Flag("--out", str(out)),
            f" contains a run: shrinkfx --resume {out} resumes it; or choose an empty "
            "folder",
        )
    folder = out / INTAKE
    _require_own(folder)
    try:
        return _load_dump(script, options, folder)
    except BaseException:
        for name in _OUR_FILES:
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


_OUR_FILES = (PROGRAM, runnable.CODE, DOES_NOT_FAIL)
"""Files that this module writes into the folder ``intake``."""


def _require_own(folder: Path) -> None:
    """Raise a UsageError if the folder contains files that shrinkfx did not write."""
    foreign = {path.name for path in folder.glob("*")} - {*_OUR_FILES}
    if foreign:
        raise UsageError(
            Flag("--out", str(folder.parent)),
            f": {folder} contains other files ({min(foreign)}): choose an empty folder",
        )


def _load_dump(script: Script, options: Options, folder: Path) -> ResolvedProgram:
    folder.mkdir(exist_ok=True)
    (folder / DOES_NOT_FAIL).unlink(missing_ok=True)
    if script.kind is Kind.RUNNABLE:
        return runnable.export(script, options, folder)
    return minifier.take_program(script, options, folder)


def with_torch_compile(error: NotReproducible, options: Options) -> NotReproducible:
    """Add to an error whether the graph fails as torch.compile runs it.

    Returns:
        The error unchanged if the program is not from a torch.compile dump.
    """
    code = options.model.with_name(runnable.CODE)
    from_here = options.run_code and code.parent.name == INTAKE and code.is_file()
    if not from_here or isinstance(error, NotCuttable):
        return error
    script = read_script(code, code.read_text(encoding="utf-8"))
    outcome = runnable.run_as_torch_compile(code, script.save_dir, options)
    kind = "" if error.wanted == "any" else f" with '{error.wanted}'"
    comparison = (
        f"the program does not fail{kind} under AOTInductor; run as torch.compile runs "
        f"it, {outcome}"
    )
    advice = MessageText.lines([comparison, error.advice])
    return NotReproducible(error.wanted, error.runs, error.seen, advice, error.seconds)

"""From what a user names to a program in the folder of a run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from shrinkfx.errors import NotCuttable, NotReproducible, UsageError
from shrinkfx.folder_lock import taken
from shrinkfx.intake import minifier, runnable
from shrinkfx.intake.found import DOES_NOT_FAIL, PROGRAM, Found
from shrinkfx.intake.recognise import holds_run, recognise
from shrinkfx.intake.script import Kind, Script, read_script
from shrinkfx.options.options import Options
from shrinkfx.report.output import INTAKE, output_folder, remove_if_empty
from shrinkfx.wording import Flag, Words


@contextlib.contextmanager
def take_in(
    options: Options,
    told: Callable[[str], None],
    require_others: Callable[[], None] = lambda: None,
) -> Iterator[Options]:
    """Have a run reduce what its ``model`` stands for, if that is no ``.pt2``.

    The folder is this process's from before anything is written there until the end
    of the block, which is where the run is.

    Args:
        told: takes sentences on what was read, and what could not be.
        require_others: looks at what the run needs besides, before anything is made.

    Raises:
        LoadError: it cannot be read, run or exported.
        UsageError: it is none that can be, or code that the user has not said may run;
            or another process is at work in the folder.
    """
    script = recognise(options.model)
    if script is None:
        yield options
        return
    if script.kind is Kind.RUNNABLE:
        runnable.require_word(script, options)
    require_others()
    out = output_folder(options.out, options.model.resolve())
    try:
        with taken(out):
            found = _found(script, options, out)
            for sentence in found.said:
                told(sentence)
            asked = replace(found.asked_with(options), out=out)
            with _noted_where_it_does_not_fail(asked):
                yield asked
    finally:
        remove_if_empty(out)


@contextlib.contextmanager
def _noted_where_it_does_not_fail(asked: Options) -> Iterator[None]:
    """Leave beside a program that its run came to nothing: its folder stays."""
    try:
        yield
    except NotCuttable:  # which fails
        raise
    except NotReproducible:
        note = asked.model.with_name(DOES_NOT_FAIL)
        with contextlib.suppress(OSError):  # that is told in any case
            note.write_text(json.dumps({"program": asked.called}))
        raise


def _found(script: Script, options: Options, out: Path) -> Found:
    """Take a program into a folder where no run is; what fails leaves nothing there."""
    if holds_run(out):
        raise UsageError(
            Flag("--out", str(out)),
            f" contains a run: shrinkfx --resume {out} resumes it; or choose an empty "
            "folder",
        )
    folder = out / INTAKE
    _require_own(folder)
    try:
        return _taken(script, options, folder)
    except BaseException:
        for name in _OWN:
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


_OWN = (PROGRAM, runnable.CODE, DOES_NOT_FAIL)
"""What doors for dumps leave in their folder."""


def _require_own(folder: Path) -> None:
    """Refuse a folder that somebody else has made."""
    foreign = {path.name for path in folder.glob("*")} - {*_OWN}
    if foreign:
        raise UsageError(
            Flag("--out", str(folder.parent)),
            f": {folder} contains other files ({min(foreign)}): choose an empty folder",
        )


def _taken(script: Script, options: Options, folder: Path) -> Found:
    folder.mkdir(exist_ok=True)
    (folder / DOES_NOT_FAIL).unlink(missing_ok=True)
    if script.kind is Kind.RUNNABLE:
        return runnable.export(script, options, folder)
    return minifier.take_program(script, options, folder)


def with_torch_compile(error: NotReproducible, options: Options) -> NotReproducible:
    """Say whether a graph of torch.compile's that AOTInductor runs well fails there.

    Returns:
        What was raised, where the program comes from elsewhere.
    """
    code = options.model.with_name(runnable.CODE)
    from_here = options.run_code and code.parent.name == INTAKE and code.is_file()
    if not from_here or isinstance(error, NotCuttable):
        return error
    script = read_script(code, code.read_text(encoding="utf-8"))
    how = runnable.as_torch_compile_does(code, script.save_dir, options)
    so = "" if error.wanted == "any" else f" with '{error.wanted}'"
    said = (
        f"the program does not fail{so} under AOTInductor; run as torch.compile runs "
        f"it, {how}"
    )
    advice = Words.lines([said, error.advice])
    return NotReproducible(error.wanted, error.runs, error.seen, advice, error.seconds)

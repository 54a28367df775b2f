"""From a script that fails to the program that a run is asked to reduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from shrinkfx.api.in_python import in_python, public
from shrinkfx.events import Begun, Doing, Listener, Noted, ignore
from shrinkfx.intake.capture import door
from shrinkfx.options.options import Options
from shrinkfx.run.folder import begun
from shrinkfx.run.storage import storage_told
from shrinkfx.validation import (
    require_files_beside,
    require_sense,
    require_sense_of_sweep,
    require_surroundings,
)


@public
@contextmanager
def capture(
    options: Options,
    command: Sequence[str],
    listener: Listener = ignore,
    *,
    program: int | None = None,
    stdout: IO[str] | None = None,
) -> Iterator[Options]:
    """Run a failing script, and find the program that fails in it.

    The script runs as it is; each program that it hands to AOTInductor is on disk, in
    ``capture/`` of the run's folder, before it is compiled, loaded or called. That
    folder is this process's until the end of the block, which is where the run is.

    Args:
        options: those of the run that is to follow; their ``model`` is none.
        command: what is run, word by word.
        program: the number of the program to reduce; None means the one that failed.
        stdout: where the command's output goes, if not where it would have gone.

    Yields:
        What ``reduce`` takes.

    Raises:
        UsageError: there is no such command, or no such program.
        NothingToReduce: the command does not fail, or not in what can be captured.
        LoadError: the inputs or a preload cannot be read, or there is no C++ compiler.
        StorageError: the disk is full, say.
    """
    with in_python():
        require_surroundings()
        words = tuple(command)
        options = replace(options, model=door.name_of(words))
        # Whether a script fails may take long to find out, and inputs come of it.
        require_sense(replace(options, inputs=options.inputs or options.model))
        if options.sweeping:
            require_sense_of_sweep(options)
        require_files_beside(options)
        with begun(options) as folder:
            listener(Begun("capture", str(options.model), str(folder)))
            options = replace(options, out=folder)
            told = teller(listener)
            with storage_told(folder):
                asked = door.capture(options, words, program, folder, told, stdout)
            yield asked


@public
def recaptured(
    options: Options, listener: Listener = ignore, *, program: int | None = None
) -> Options:
    """Find a program that an earlier ``capture`` has left in a folder.

    Args:
        options: ``model`` is that folder.

    Raises:
        UsageError: the folder holds none, or none of that number.
        NothingToReduce: the script did not fail, and none is named.
    """
    return door.recaptured(options, options.model, program, teller(listener))


def is_capture(path: str | Path) -> bool:
    """Tell whether ``recaptured`` takes a folder."""
    return door.place_of(Path(path)) is not None


def teller(listener: Listener) -> door.Teller:
    """Let a door tell a run's listener what it does."""
    return door.Teller(
        say=lambda text: listener(Noted(text)),
        doing=lambda text: listener(Doing(text)),
    )

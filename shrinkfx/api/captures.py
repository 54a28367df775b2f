"""Find the failing program of a script, for a run that reduces it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from shrinkfx.api.keyword_errors import api_function
from shrinkfx.api.validation import (
    require_environment,
    require_other_files,
    require_valid_options,
    require_valid_sweep,
)
from shrinkfx.events import (
    ActivityStarted,
    Listener,
    NoteAdded,
    RunStarted,
    ignore_event,
)
from shrinkfx.intake.capture import script_capture
from shrinkfx.options.options import Options
from shrinkfx.run.folder import create_run_folder, raise_storage_errors


@api_function
@contextmanager
def capture(
    options: Options,
    command: Sequence[str],
    listener: Listener = ignore_event,
    *,
    program: int | None = None,
    stdout: IO[str] | None = None,
) -> Iterator[Options]:
    """Run a failing command, and find the program that fails in it.

    The command runs unchanged. shrinkfx saves each program that the command passes to
    AOTInductor before the program is compiled, loaded or called; the saved programs are
    in ``capture/`` of the run's folder. Reduce the program inside the ``with`` block,
    because the folder is locked for this process until the end of the block::

        with shrinkfx.api.capture(options, ["python", "serve.py"]) as captured:
            shrinkfx.api.reduce(captured)

    Args:
        options: options of the run that reduces the program; ``model`` is ignored.
        command: the words of the command.
        listener: called with each event (``shrinkfx.events``).
        program: number of the captured program to reduce; None means the program that
            failed.
        stdout: file for the output of the command; None leaves it unchanged.

    Yields:
        The options for ``reduce``.

    Raises:
        UsageError: the command or the program with this number does not exist, or an
            option is invalid.
        NothingToReduce: the command does not fail, or its failure is not one of a
            program that shrinkfx can capture.
        LoadError: the inputs or a preload cannot be read, or there is no C++ compiler.
        StorageError: a file cannot be written, for example because the disk is full.
    """
    require_environment()
    words = tuple(command)
    options = replace(options, model=script_capture.name_run(words))
    # The script may run for a long time, so options are checked before it starts.
    # The capture supplies the inputs, so options that need inputs are accepted.
    require_valid_options(replace(options, inputs=options.inputs or options.model))
    if options.sweeping:
        require_valid_sweep(options)
    require_other_files(options)
    with create_run_folder(options) as folder:
        listener(RunStarted("capture", str(options.model), str(folder)))
        options = replace(options, out=folder)
        reporter = make_teller(listener)
        with raise_storage_errors(folder):
            captured = script_capture.capture(
                options, words, program, folder, reporter, stdout
            )
        yield captured


@api_function
def recaptured(
    options: Options, listener: Listener = ignore_event, *, program: int | None = None
) -> Options:
    """Find a program that an earlier ``capture`` saved, without running the script.

    Args:
        options: options of the run that reduces the program; ``model`` is the folder of
            the captured run, or ``capture`` in it.
        listener: called with each event (``shrinkfx.events``).
        program: number of the captured program to reduce; None means the program that
            failed.

    Returns:
        The options for ``reduce``.

    Raises:
        UsageError: the folder contains no captured program, or none with this number.
        NothingToReduce: the script did not fail, and ``program`` is None.
    """
    return script_capture.resolve_earlier_capture(
        options, options.model, program, make_teller(listener)
    )


def is_capture(path: str | Path) -> bool:
    """Return whether a folder contains a capture, which ``recaptured`` can use."""
    return script_capture.find_capture_folder(Path(path)) is not None


def make_teller(listener: Listener) -> script_capture.Reporter:
    """Make a ``Reporter`` that passes its messages to a listener as events."""
    return script_capture.Reporter(
        say=lambda text: listener(NoteAdded(text)),
        doing=lambda text: listener(ActivityStarted(text)),
    )

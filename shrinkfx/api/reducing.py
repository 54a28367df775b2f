"""Runs that reduce a program or sweep its sizes, begun or gone on with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from shrinkfx.api.captures import teller
from shrinkfx.api.in_python import in_python, public
from shrinkfx.api.settings import with_what_shows_it
from shrinkfx.errors import NotReproducible, UsageError
from shrinkfx.events import Begun, Listener, Noted, ignore
from shrinkfx.failure.signature import Kind
from shrinkfx.flags import options_in, require_values
from shrinkfx.intake.capture import door
from shrinkfx.intake.door import take_in, with_torch_compile
from shrinkfx.options.options import Options, Reduction
from shrinkfx.options.running import BudgetOptions
from shrinkfx.options.values import SHOWN_BY
from shrinkfx.run.folder import JOURNAL, begun, resumed
from shrinkfx.run.pipeline import run
from shrinkfx.run.sweep.conclude import Swept
from shrinkfx.run.sweep.pipeline import run_sweep
from shrinkfx.validation import (
    require_files,
    require_files_beside,
    require_sense,
    require_sense_of_sweep,
    require_surroundings,
)
from shrinkfx.wording import Flag


@public
def reduce(options: Options, listener: Listener = ignore) -> Reduction:
    """Do what ``minify`` does, with its arguments in one record."""
    require_surroundings()
    require_sense(options)
    if options.inputs and options.inputs.suffix == ".py":
        asked = Flag("--inputs", stands="FILE.py"), " is for ", Flag("--dynamic-sweep")
        raise UsageError(*asked, ": name a .pt")
    with _taken_in(options, listener) as options:
        require_files(options)
        options = with_what_shows_it(options)
        return _in_its_folder("reduce", _run, options, listener)


@public
def sweep(options: Options, listener: Listener = ignore) -> Swept:
    """Find the sizes at which a program with dynamic shapes fails.

    Args:
        options: ``sweeping`` says how; ``until``, if set, which failures count.
            ``inputs`` may be a ``.py`` that defines ``inputs(**sizes)``.

    Raises:
        UsageError: an option makes no sense, or the program has no free sizes.
        LoadError: the program, its inputs or a preload could not be read.
        NotReproducible: the program does not compile, whatever its sizes.
        Finished: ``out`` holds this very sweep.
        StorageError: the disk is full; ``resume`` goes on from there.
        WorkerError: the process that holds torch died; ``resume`` goes on from there.
    """
    require_surroundings()
    require_sense(options)
    require_sense_of_sweep(options)
    with _taken_in(options, listener) as options:
        require_files(options)
        options = with_what_shows_it(options)
        return _in_its_folder("sweep", run_sweep, options, listener)


@public
@contextmanager
def taken_in(options: Options, listener: Listener = ignore) -> Iterator[Options]:
    """Ask for the program that a dump holds; for one of a ``.pt2``, what was asked.

    ``reduce`` and ``sweep`` do so themselves: this is for who sweeps a dump and has
    ``reduce_found`` reduce it, both in the block: the folder is kept for it.

    Raises:
        UsageError: an option makes no sense, or code has no word to be run.
        LoadError: it cannot be read, run or exported.
    """
    with in_python():
        require_surroundings()
        require_sense(options)
        if options.sweeping:
            require_sense_of_sweep(options)
        with _taken_in(options, listener) as asked:
            yield asked


def _taken_in(options: Options, listener: Listener) -> AbstractContextManager[Options]:
    """Make a program of a dump, once all else that may be missing is there."""
    beside = partial(require_files_beside, options)
    return take_in(options, lambda sentence: listener(Noted(sentence)), beside)


def _run(options: Options, folder: Path, listener: Listener) -> Reduction:
    """Run; of a graph of torch.compile's that does not fail, say whether it does there.

    Raises:
        NotReproducible: the program does not fail as asked.
    """
    try:
        return run(options, folder, listener)
    except NotReproducible as error:
        said = with_torch_compile(error, options)
        if said is error:
            raise
        raise said from error


Came = TypeVar("Came", Reduction, Swept)


def _in_its_folder(
    task: str,
    work: Callable[[Options, Path, Listener], Came],
    options: Options,
    listener: Listener,
) -> Came:
    with begun(options) as folder:
        listener(Begun(task, str(options.model), str(folder)))
        return work(options, folder, listener)


@public
def reduce_found(
    options: Options, swept: Swept, listener: Listener = ignore
) -> Reduction:
    """Reduce the failure that a sweep was asked for, at the sizes that it found.

    The result goes into the sweep's folder. Its inputs are as small as the failure
    lets them be, and at the nearest sizes at which the program passes it passes, too.

    Args:
        options: those of the sweep.

    Raises:
        UsageError: the sweep has found nothing to reduce.
        NotReproducible: the program does not fail so outside of the sweep.
        StorageError: the disk is full; ``resume`` goes on from there.
        WorkerError: the process that holds torch died; ``resume`` goes on from there.
    """
    if swept.target is None:
        raise UsageError("the sweep found no failure to reduce")
    options = replace(options, inputs=swept.target.failing, sweeping=None)
    if swept.target.found.missing_guard:  # where the program was told to look at them
        environment = {**options.environment, **SHOWN_BY[Kind.CHECK_INPUTS]}
        options = replace(options, environment=environment)
    return run(with_what_shows_it(options), swept.folder, listener)


@public
def resume(
    folder: str | Path,
    *,
    model: str | Path | None = None,
    max_checks: int | None = None,
    max_minutes: float | None = None,
    max_disk: float | None = None,
    jobs: int | None = None,
    swept: Callable[[Swept], None] | None = None,
    listener: Listener = ignore,
) -> Reduction | Swept:
    """Go on with a run that was killed, stopped or interrupted, at any moment.

    No question is asked again to which there is an answer. All that the run was asked
    for is in its folder; what it has used counts.

    Args:
        folder: what the run was told as ``out``.
        model: where the program is now, if it has been moved.
        max_checks: in all, instead of what the run was told.
        max_minutes: in all, instead of what the run was told.
        max_disk: gigabytes, instead of what the run was told.
        jobs: candidates to ask about at once, instead of what the run was told.
        swept: told of a sweep that is over, before what it has found is reduced.

    Raises:
        Finished: there is nothing left to do.
        BudgetExhausted: it has used up its budget.
        UsageError: there is no run, or something has changed since.
        LoadError: the program, its inputs or a preload is not there any more.
        StorageError: the disk is full, or the journal damaged.
    """
    require_surroundings()
    where = Path(model) if model else Path()
    given = Options(
        where,
        max_checks=max_checks,
        max_minutes=max_minutes,
        max_disk=max_disk,
        jobs=jobs,
    )
    require_values(given)
    options = _captured(Path(folder), given, listener)
    options = options or resumed(Path(folder), given)
    task = "sweep" if options.sweeping else "reduce"
    listener(Begun(task, str(options.model), str(folder)))
    if not options.sweeping:
        return _run(options, Path(folder), listener)
    over = run_sweep(options, Path(folder), listener)
    if not over.goes_on:
        return over
    if swept:
        swept(over)
    return reduce_found(options, over, listener)


def _captured(folder: Path, given: Options, listener: Listener) -> Options | None:
    """Ask for what was captured in a folder where its reduction has not begun."""
    has_begun = os.path.isfile(folder / JOURNAL)
    asked = None if has_begun else door.resumable(folder, teller(listener))
    if asked is None:
        return None
    budget = {option.name for option in options_in(BudgetOptions)}
    anew = {n: v for n, v in vars(given).items() if n in budget and v is not None}
    return with_what_shows_it(replace(asked, **anew))

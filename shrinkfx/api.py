"""The library: one call from a failing program to a verified repro."""

from __future__ import annotations

import re
from pathlib import Path

from shrinkfx.errors import (
    LoadError,
    UsageError,
)
from shrinkfx.failure.signature import UNTIL, Kind
from shrinkfx.report.output import (
    output_folder,
    remove_if_empty,
)
from shrinkfx.run import Options, Reduction, Run
from shrinkfx.search.events import Listener, ignore
from shrinkfx.search.strategy import choose

__all__ = ["Options", "Reduction", "minify"]


def minify(
    path: str | Path, *, listener: Listener = ignore, **options: object
) -> Reduction:
    """Reduce the program in ``path`` to the smallest that fails in the same way.

    Args:
        path: a ``.pt2`` as ``torch.export.save`` writes it.
        listener: told of every check and step (``shrinkfx.search.events``).
        **options: the other fields of ``shrinkfx.run.Options``.

    Raises:
        UsageError: an option makes no sense.
        LoadError: the program, its inputs or a preload could not be read.
        NotReproducible: the program does not fail as asked.
        WorkerError: the process that holds torch died.
    """
    chosen = Options(model=Path(path), **options)  # type: ignore[arg-type]
    _check(chosen)
    out = output_folder(chosen.out, chosen.model)
    try:
        return Run(chosen, out, listener).go()
    finally:
        remove_if_empty(out)


def _check(options: Options) -> None:
    """Refuse what cannot work before anything is started."""
    if options.until is not None and options.until not in UNTIL:
        raise UsageError(f"no kind '{options.until}': one of {', '.join(UNTIL)}")
    try:
        re.compile(options.match)
    except re.error as error:
        raise UsageError(f"--match {options.match!r}: {error}") from error
    if options.until == Kind.HANG and options.timeout_s is None:
        raise UsageError("--until hang needs --timeout: how long is a hang?")
    if not options.model.is_file():
        raise LoadError(str(options.model), "no such file", "give the path of a .pt2")
    for name in ("timeout_s", "max_checks", "max_minutes", "baseline_runs"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise UsageError(f"{name} must be above 0, not {value}")
    choose(options.strategies)

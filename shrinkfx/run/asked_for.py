"""What a run was asked for, as its journal keeps it, and whether that is still so."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from shrinkfx.errors import LoadError, UsageError
from shrinkfx.flags import options_in
from shrinkfx.options.options import Options
from shrinkfx.options.running import BudgetOptions, ExplainOptions
from shrinkfx.run.settings import inherited
from shrinkfx.wording import Flag, Said, Words

BUDGET = tuple(option.name for option in options_in(BudgetOptions))
"""What may be another when a run goes on."""

_EXPLAIN = tuple(option.name for option in options_in(ExplainOptions))
"""What is asked of a result, and changes nothing of it."""

_OF_THE_START = "title", "name", "command", "cwd", "lacking", "in_script"
"""What is said of how a run was started; no answer in its journal rests on that."""


def described(options: Options) -> dict[str, Any]:
    """State all that the answers of a run depend on, as JSON can hold it."""
    said = {
        "options": options.to_json(),
        "content": content_of(options),
        "tuning": inherited(),
    }
    read: dict[str, Any] = json.loads(json.dumps(said))  # where lists are lists
    return read


def identity(run: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a description what may change in the middle of a run."""
    free = {*BUDGET, *_EXPLAIN, *_OF_THE_START}
    options = {k: v for k, v in run["options"].items() if k not in free}
    return {**run, "options": options}


def content_of(options: Options) -> str:
    """Make a digest of what is reduced: program, inputs and preloads."""
    digest = hashlib.sha256()
    for name in map(str, (options.model, options.inputs, *options.preload)):
        if os.path.isfile(name):  # which may have been moved
            with open(name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            digest.update(hashlib.sha256(name.encode()).digest())
    return digest.hexdigest()


_TAKES_THE_PROGRAM = ("--resume", "--candidate")
"""Tasks for a run's folder that are told where its program has been moved to."""


def require_unchanged(asked: Said, run: dict[str, Any], options: Options) -> None:
    """See that a run would be asked the same today.

    Args:
        asked: what was typed: ``--resume out``.
        run: as the journal keeps it.

    Raises:
        LoadError: a file is gone.
        UsageError: one has changed, or a variable of the shell has.
    """
    if options.cwd and not options.cwd.is_dir():
        raise UsageError(
            asked,
            ": the run's working folder no longer exists, and the run imports modules "
            f"from it: mkdir -p {options.cwd}, or start a new run",
        )
    for path in options.files:
        if not path.is_file():
            anew = "restore the file, or start a new run with another "
            advice = Words(anew, Flag("--out"))
            if path == options.model and str(asked).startswith(_TAKES_THE_PROGRAM):
                advice = Words(f"if the file has moved: shrinkfx NEW.pt2 {asked}")
            raise LoadError(str(path), "the file no longer exists", advice)
    if content_of(options) != run["content"]:
        names = ", ".join(str(path) for path in options.files)
        raise UsageError(
            asked,
            f": one of these files changed since that run: {names}. Start a new run "
            "with another ",
            Flag("--out"),
        )
    now, then = inherited(), inherited(run["tuning"])
    for name in sorted({*now, *then}):
        was = then.get(name)
        if now.get(name) != was:
            how = f"unset {name}" if was is None else f"export {name}={was}"
            raise UsageError(
                asked,
                f": the environment variable {name} had another "
                f"value in that run: {how}",
            )

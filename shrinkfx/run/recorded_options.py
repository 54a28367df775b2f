"""The options that the journal records for a run, and the test that they still hold.

Environment variables that may change a failure count as options.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from shrinkfx.check.client.environment import select_tuning_variables
from shrinkfx.errors import LoadError, UsageError
from shrinkfx.flags import list_record_options
from shrinkfx.options.options import Options
from shrinkfx.options.running import BudgetOptions, ExplainOptions
from shrinkfx.protocol.requests import HASH_SEED
from shrinkfx.wording import Flag, MessagePart, MessageText

BUDGET = tuple(option.name for option in list_record_options(BudgetOptions))
"""Options that may differ when a run is resumed."""

_EXPLAIN = tuple(option.name for option in list_record_options(ExplainOptions))
"""Options about the analysis of a result, which do not change the result."""

_START_OPTIONS = "title", "name", "command", "cwd", "lacking", "in_script"
"""Options about how the run was started; no verdict in the journal depends on them."""


def describe_request(options: Options) -> dict[str, Any]:
    """Return all that the verdicts of a run depend on, as JSON-serializable data."""
    request = {
        "options": options.to_json(),
        "content": digest_inputs(options),
        "tuning": inherited_variables(),
    }
    read: dict[str, Any] = json.loads(json.dumps(request))  # tuples become lists
    return read


def request_identity(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run's description without the options that may change during a run."""
    free = {*BUDGET, *_EXPLAIN, *_START_OPTIONS}
    options = {k: v for k, v in run["options"].items() if k not in free}
    return {**run, "options": options}


def digest_inputs(options: Options) -> str:
    """Return a digest of the program, the inputs and the preloads."""
    digest = hashlib.sha256()
    for name in map(str, (options.model, options.inputs, *options.preload)):
        if os.path.isfile(name):  # the content, because the file may have moved
            with open(name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            digest.update(hashlib.sha256(name.encode()).digest())
    return digest.hexdigest()


_TAKES_THE_PROGRAM = ("--resume", "--candidate")
"""Options for the folder of a run that also accept a new path of its program."""


def require_unchanged(flag: MessagePart, run: dict[str, Any], options: Options) -> None:
    """Require that the files and the environment of a run are still the same.

    Args:
        flag: the option that the user typed, such as ``--resume out``.
        run: the description in the journal.

    Raises:
        LoadError: a file does not exist any more.
        UsageError: a file or an environment variable has changed.
    """
    if options.cwd and not options.cwd.is_dir():
        raise UsageError(
            flag,
            ": the run's working folder no longer exists, and the run imports modules "
            f"from it: mkdir -p {options.cwd}, or start a new run",
        )
    for path in options.files:
        if not path.is_file():
            remedy = "restore the file, or start a new run with another "
            advice = MessageText(remedy, Flag("--out"))
            if path == options.model and str(flag).startswith(_TAKES_THE_PROGRAM):
                advice = MessageText(f"if the file has moved: shrinkfx NEW.pt2 {flag}")
            raise LoadError(str(path), "the file no longer exists", advice)
    if digest_inputs(options) != run["content"]:
        names = ", ".join(str(path) for path in options.files)
        raise UsageError(
            flag,
            f": one of these files changed since that run: {names}. Start a new run "
            "with another ",
            Flag("--out"),
        )
    now, then = inherited_variables(), inherited_variables(run["tuning"])
    for name in sorted({*now, *then}):
        was = then.get(name)
        if now.get(name) != was:
            how = f"unset {name}" if was is None else f"export {name}={was}"
            raise UsageError(
                flag,
                f": the environment variable {name} had another "
                f"value in that run: {how}",
            )


ONLY_SHOWN = {
    "what PyTorch logs": (
        "TORCH_LOGS",
        "TORCH_LOGS_FORMAT",
        "TORCH_CPP_LOG_LEVEL",
        "TORCHDYNAMO_VERBOSE",
    ),
    "how an error is shown": (
        "TORCH_SHOW_CPP_STACKTRACES",
        "TORCH_SHOW_CPP_STACKTRACES_WITH_LINENO",
        "TORCH_SYMBOLIZE_MODE",
        "TORCH_DISABLE_ADDR2LINE",
    ),
    "what other libraries print": (
        "TRITON_PRINT_AUTOTUNING",
        "MKL_VERBOSE",
        "OMP_DISPLAY_AFFINITY",
        "OMP_DISPLAY_ENV",
        "KMP_SETTINGS",
        "KMP_VERSION",
        "KMP_WARNINGS",
    ),
}
"""Variables that change only what is printed, not what is compiled or run."""

_SHOWN = frozenset(name for names in ONLY_SHOWN.values() for name in names)


def inherited_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that may have changed the failure."""
    variables = select_tuning_variables(environment)
    return {name: variables[name] for name in variables if name not in _SHOWN}


def variables_to_test(
    preset: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return the environment variables without which a repro may still fail.

    The hash seed is not among them, because one run tells nothing about other seeds.

    Args:
        preset: variables that the user has set with ``--env``. They are set for the
            input program, so the repro may not need them.
    """
    return sorted({*inherited_variables(environment), *preset} - {HASH_SEED})

"""Start a worker without a program, to read Inductor's default settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from shrinkfx.check.client.server import Server
from shrinkfx.intake.script import Script
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Settings
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.requests import ReadSettings, Request, Task
from shrinkfx.system.host_memory import estimate_available_bytes
from shrinkfx.system.sandbox import Sandbox

_TIMEOUT_S = 600.0

AskWorker = Callable[[Task], Ending]


@contextlib.contextmanager
def bare_worker(
    options: Options,
    environment: Mapping[str, str],
    preloads: Sequence[str] = (),
    *,
    writable: Sequence[Path] = (),
    readable: Sequence[Path] = (),
) -> Iterator[AskWorker]:
    """Start a worker with the variables of a failing run; yield its ``ask`` function.

    Args:
        writable: the folders that its tasks write to.
        readable: the files and folders that its tasks read.

    Raises:
        LoadError: a preload cannot be read.
        WorkerError: the worker died.
    """
    variables = {**environment, **options.environment}
    sandbox = Sandbox.choose(
        options.sandbox, _note_nothing, writable, (*options.files, *readable)
    )
    with Server(
        preloads=preloads, environment=variables, cwd=options.cwd, sandbox=sandbox
    ) as server:

        def ask(task: Task) -> Ending:
            timeout_s = options.timeout_s or _TIMEOUT_S
            memory = estimate_available_bytes() * 3 // 4
            return server.ask(Request(task, timeout_s=timeout_s, max_rss_bytes=memory))

        yield ask


def _note_nothing(_: str) -> None:
    """Leave it to the run to say that there is no sandbox."""


def find_changed_settings(
    ask: AskWorker, script: Script
) -> tuple[InductorOptions, tuple[str, ...]]:
    """Return a script's settings that differ from the values without the script.

    This is needed because PyTorch dumps each setting that was ever set, even to its
    default.

    Returns:
        The settings of Inductor that differ, and sentences about them and the others.
    """
    wanted = {**script.inductor, **script.others}
    if not wanted:
        return {}, ()
    answer = ask(ReadSettings(wanted)).answer
    if not isinstance(answer, Settings):
        return script.inductor, (_NO_DEFAULTS,)
    values = answer.values
    differ = {
        name: value
        for name, value in wanted.items()
        if name in values and values[name] not in (value, repr(value))
    }
    inductor = {k: v for k, v in differ.items() if k in script.inductor}
    others = {k: v for k, v in differ.items() if k in script.others}
    unknown = sorted(wanted.keys() - values.keys())
    sections = (
        ("with the settings", _listed(inductor)),
        ("omitted settings that are not of Inductor", _listed(others)),
        (
            "omitted settings that this version of PyTorch lacks",
            ", ".join(unknown),
        ),
    )
    return inductor, tuple(f"{title}: {names}" for title, names in sections if names)


_NO_DEFAULTS = "with all of its settings: the worker could not read the defaults"


def _listed(settings: InductorOptions) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())

"""The main function of a forked child: answer the request, or become another program.

A script, a command, and a check that needs its own interpreter (under a sanitizer, or
with guard pages from the start) replace the child by ``exec``, so that the limits and
the handling of signals stay the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from shrinkfx.protocol.answers import Answer, NotSanitized, Unresolved
from shrinkfx.protocol.choices import Backend, Guard
from shrinkfx.protocol.requests import (
    HASH_SEED,
    CheckCandidate,
    CheckOriginal,
    Job,
    Request,
    RunCommand,
    RunScript,
    Setup,
)
from shrinkfx.worker import bare_script
from shrinkfx.worker.cpu_memory import asan, guard_pages
from shrinkfx.worker.cuda_memory import red_zones, sanitizer
from shrinkfx.worker.forkserver import last_words
from shrinkfx.worker.forkserver.supervise import Note, Work

if TYPE_CHECKING:  # it imports torch
    from shrinkfx.worker.model import Program

JOB = "job.json"
"""The file, in the folder of a check, with the job of a fresh interpreter."""


class AnyWorker(Protocol):
    """The interface of ``tasks.Worker``, which this module does not import.

    That module imports torch.
    """

    setup: Setup
    program: Program | None

    @property
    def on_gpu(self) -> bool: ...

    def settle(self, request: Request) -> None: ...

    def perform(self, request: Request, note: Note, folder: Path) -> Answer: ...

    def compile_for_sanitizer(
        self, request: Request, note: Note, folder: Path
    ) -> Request: ...


def choose_work(worker: AnyWorker, request: Request) -> Work:
    """Return what the forked child does: answer itself, or in a fresh interpreter."""

    def here(note: Note, folder: Path) -> Answer:
        return worker.perform(request, note, folder)

    library = os.environ.get(guard_pages.LIBRARY, "")
    tool = _sanitizer_tool(worker, request)

    def fresh(note: Note, folder: Path) -> Answer:
        overrides, job_request = request.options.environment, request
        environment = {**os.environ, **overrides}  # Python reads some when it starts
        for name in overrides:
            if not overrides[name]:
                del environment[name]
        environment.pop(guard_pages.LIBRARY, None)
        if request.options.sanitize:
            try:
                environment = asan.sanitizer_environment(environment, folder)
            except asan.CannotSanitize as error:
                return NotSanitized(str(error))
        elif library:
            environment = guard_pages.guarded_environment(environment, library)
        if request.options.sanitize or tool:
            job_request = worker.compile_for_sanitizer(request, note, folder)
        (folder / JOB).write_text(Job(worker.setup, job_request).to_line())
        once = "-P", "-m", "shrinkfx.worker", "--once", str(folder)
        return _exec_under(tool, environment, *once)

    is_fresh = request.fresh or bool(tool)
    bare = worker.setup.backend != Backend.INTERPRETER
    match request.task:
        case RunCommand() as task:
            return _work_of_command(task)
        case RunScript() as task if is_fresh and bare:
            return _work_of_script(task, request, library, tool, on_gpu=worker.on_gpu)
    return fresh if is_fresh else here


def _sanitizer_tool(worker: AnyWorker, request: Request) -> str:
    """Return the tool of compute-sanitizer to run the check under, or ''."""
    side, task = request.options.guard_pages, request.task
    runs = isinstance(task, (CheckCandidate, CheckOriginal, RunScript))
    return side.value if side.is_sanitizer and runs and worker.on_gpu else ""


def _work_of_script(
    task: RunScript, request: Request, library: str, tool: str, *, on_gpu: bool
) -> Work:
    """Return the work that replaces the child by a Python running the script."""

    def work(note: Note, folder: Path) -> Answer:
        from shrinkfx.worker.aoti import backend as aoti
        from shrinkfx.worker.aoti.object_store import path_with_compiler

        os.chdir(task.cwd)
        note("run")
        temporary = aoti.own_cache_variables(folder)
        environment = {**bare_script.environment(folder), **temporary}
        environment |= path_with_compiler(folder, environment)
        environment.pop(HASH_SEED, None)  # users have none, and the script sets it
        environment |= {"PADDING": "x" * task.padding} if task.padding else {}
        side = request.options.guard_pages
        script = [task.path]
        if side != Guard.OFF and on_gpu:
            script = red_zones.script_with_red_zones(task.path, side)
        elif side != Guard.OFF:
            environment = guard_pages.guarded_environment(environment, library, side)
        if request.one_thread:
            environment |= last_words.ONE_THREAD
        return _exec_under(tool, environment, "-X", "faulthandler", *script)

    return work


def _work_of_command(task: RunCommand) -> Work:
    """Return the work that replaces the child by the user's command."""

    def work(note: Note, folder: Path) -> NoReturn:
        from shrinkfx.worker.aoti import backend as aoti
        from shrinkfx.worker.loading import devices

        os.chdir(task.cwd)
        note("run")
        # The server's PYTHONPATH is the user's with one folder before it.
        user_path = os.environ.pop("PYTHONPATH", "").partition(os.pathsep)[2]
        for name in bare_script.SERVER_VARIABLES:
            os.environ.pop(name, None)
        devices.restore_gpus()
        if user_path:
            os.environ["PYTHONPATH"] = user_path
        # A command that is killed leaves its temporary files.
        os.environ.update(aoti.own_cache_variables(folder))
        os.execvp(task.words[0], task.words)

    return work


def _exec_under(
    tool: str, environment: Mapping[str, str], *arguments: str
) -> Unresolved:
    """Replace the process by Python, under a tool of compute-sanitizer if one is named.

    Returns:
        The reason, if compute-sanitizer cannot run.
    """
    try:
        before = sanitizer.command(tool) if tool else []
    except sanitizer.CannotSanitize as error:
        return Unresolved(str(error))
    command = [*before, sys.executable, *arguments]
    return os.execve(command[0], command, environment)

"""Run a script, such as a repro, to its end in this process."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Done, Unresolved
from shrinkfx.protocol.choices import Backend, Build, Probe
from shrinkfx.protocol.requests import CheckOptions, RunScript, Setup
from shrinkfx.worker import bare_script
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.fast_build import fast_build, with_plain_wrapper
from shrinkfx.worker.aoti.object_store import SharedObjects
from shrinkfx.worker.aoti.shared_libraries import shared_extensions, shared_objects
from shrinkfx.worker.cuda_memory import red_zones
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.interpreter.repro_script import replace_cuda
from shrinkfx.worker.private_api import inductor_api


def run_script(
    task: RunScript, setup: Setup, options: CheckOptions, note: Note, folder: Path
) -> Done | Unresolved:
    """Run a script as a new Python would; its failure ends this process alike."""
    os.chdir(task.cwd)
    temporary = aoti.own_cache_variables(folder)
    environment = {**bare_script.environment(folder), **temporary}
    note(Stage.RUN)
    if setup.backend == Backend.INTERPRETER:
        if reason := interpreter.find_missing_api():
            return Unresolved(reason)
        probe = options.probe or Probe.REAL
        replace_cuda(Path(task.path), setup, probe)
    sys.argv = [task.path]
    try:
        shared = shared_extensions(folder, Path(task.path))
        with _choose_build(options.build, folder), shared:
            bare_script.act_as_new_interpreter(environment, task.cwd)
            runpy.run_path(task.path, run_name="__main__")
        red_zones.log_zone_protection()
        red_zones.check_zones(" of a script")  # this process skips its exit handlers
    except interpreter.Unsupported as error:
        return Unresolved(str(error))
    return Done()


@contextlib.contextmanager
def _choose_build(build: Build, folder: Path) -> Iterator[None]:
    """Compile with the given kind of build, and share objects with other children."""
    if build is Build.STOCK:
        with shared_objects(folder):
            yield
    else:
        plain = inductor_api.config.patch(dict(with_plain_wrapper({})))
        with plain, fast_build(folder, None, SharedObjects(folder)):
            yield

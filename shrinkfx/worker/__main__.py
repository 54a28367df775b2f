"""The entry point of the worker process: ``python -P -m shrinkfx.worker``.

The worker reads a ``Setup`` from stdin, loads the program, answers ``Ready``, then
serves requests. With ``--once FOLDER``, it answers the one request in that folder, in a
fresh interpreter, and exits. With ``--versions``, it only imports torch, reports the
version of torch in ``Ready``, and exits.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shrinkfx.errors import REPORT_BUG, SEE_DOCTOR, LoadError
from shrinkfx.protocol.answers import Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import ForkServer, Job, Request, RunPreload, Setup
from shrinkfx.versions import RANGE, why_too_old, why_untested
from shrinkfx.worker.child_main import JOB, AnyWorker, choose_work
from shrinkfx.worker.forkserver import last_words
from shrinkfx.worker.forkserver.serve import (
    Line,
    ParentGone,
    open_connection,
    serve,
)
from shrinkfx.worker.forkserver.supervise import (
    Work,
    describe_error,
    open_stages,
    restore_sigchld,
    write_answer,
)
from shrinkfx.worker.forkserver.zygote import fork_zygote
from shrinkfx.worker.loading.import_advice import advice_on, summarize_error

if TYPE_CHECKING:  # it imports torch
    from shrinkfx.worker.cuda_memory.contexts import Contexts


def main() -> None:
    _prepend_current_folder()
    if sys.argv[1:2] == ["--once"]:
        _answer_once(Path(sys.argv[2]))
        return
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        setup = Setup.from_line(stdin.readline())
    directory = Path(setup.directory)
    line = open_connection(directory / "server.log")
    try:
        try:
            with _collecting_once():
                threads = _import_torch()
                if sys.argv[1:2] == ["--versions"]:
                    line.write(Ready(versions={"torch": _torch_version()}))
                    return
                _import_worker()
                setup, line, zygote = fork_zygote(setup, line)
                directory = Path(setup.directory)
                worker, ready = _start(setup, threads)
        except Exception as error:  # noqa: BLE001 - the boundary: all becomes data
            traceback.print_exc()  # into the server's log
            line.write(_ready_with_error(error))
            return
        # A garbage collection in a child would visit all objects of torch and so copy
        # their pages: 0.24 of the 0.37 CPU-seconds that a small check took.
        gc.freeze()
        line.write(replace(ready, zygote=zygote))
        _serve(line, worker, directory)
    except ParentGone:
        return


def _prepend_current_folder() -> None:
    """Put the current folder first on the module path, as Python does without ``-P``.

    Modules that preloads import may be there, and so may another copy of ``shrinkfx``.
    ``-P`` makes the process import its own package first, which stays imported.
    """
    if sys.flags.safe_path and not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, os.getcwd())


def _serve(line: Line, worker: AnyWorker, directory: Path) -> None:
    from shrinkfx.worker.aoti.first_lowering import FirstLowering
    from shrinkfx.worker.preloads.alone import first_snapshot

    backend = worker.setup.backend
    lowers_first = backend != Backend.INTERPRETER and worker.setup.first_lowering
    first = FirstLowering(worker.program if lowers_first else None, directory, backend)

    def work(request: Request) -> Work:
        first.lower_before(request)
        if isinstance(request.task, RunPreload):
            with contextlib.suppress(Exception):  # each child raises it, too
                first_snapshot()
        return choose_work(worker, request)

    settle = functools.partial(_configure_fork, worker.setup.gpus)
    serve(line, work, directory, first.note_ending, settle, _device(worker))


def _device(worker: AnyWorker) -> Contexts | None:
    """Return how children get a context on the program's GPU; None without a GPU."""
    from shrinkfx.worker.cuda_memory.contexts import Contexts
    from shrinkfx.worker.loading.devices import wanted_gpu

    if worker.setup.model is None or not worker.on_gpu:
        return None
    return Contexts(worker.settle, f"cuda:{wanted_gpu(worker.setup)}")


def _configure_fork(names: Sequence[str], task: ForkServer) -> None:
    """Move temporary files into this fork's folder, and set its share of the disk.

    The disk limit applies to all files in the server's folder, which contains this
    fork's folder.

    Args:
        names: the GPUs that checks are spread over.
    """
    from shrinkfx.worker.aoti import backend as aoti
    from shrinkfx.worker.disk_space import divide_free_space
    from shrinkfx.worker.loading import devices

    if names:
        devices.show_one_gpu(names[task.gpu])

    os.environ.update(aoti.temporary_folder_variables(Path(task.directory)))
    tempfile.tempdir = None
    divide_free_space(task.servers)


@contextlib.contextmanager
def _collecting_once() -> Iterator[None]:
    """Collect garbage once at the end, not repeatedly while torch is imported.

    The import creates 400,000 objects that stay alive; without this, a start took one
    CPU-second in five more. A caller that freezes them before the end saves the half
    CPU-second that the final collection takes.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def _ready_with_error(error: Exception) -> Ready:
    """Return the ``Ready`` message that says why the worker cannot serve."""
    if isinstance(error, LoadError):
        return Ready(error.reason, error.subject, error.advice)
    advice = advice_on(error) or f"the program is not the cause: {REPORT_BUG}"
    reason = f"cannot start: {summarize_error(error)}"
    return Ready(reason, "the worker", advice)


def _import_torch() -> int:
    """Import torch, and return its number of threads.

    Raises:
        LoadError: torch cannot be imported, or is too old.
    """
    try:
        import torch

        version = _torch_version()
    except Exception as error:
        advice = advice_on(error) or f"try: {sys.executable} -c 'import torch'"
        reason = f"cannot be imported: {summarize_error(error)}"
        raise LoadError("PyTorch", reason, f"{advice}\n{SEE_DOCTOR}") from error
    if why := why_too_old(version):
        advice = f"{sys.executable} imports {torch.__file__}: install torch {RANGE}"
        raise LoadError("PyTorch", why, f"{advice}\n{SEE_DOCTOR}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    return threads


def _torch_version() -> str:
    import torch

    return torch.__version__


def _import_worker() -> None:
    """Import the modules of shrinkfx and of torch that a worker needs.

    Raises:
        LoadError: a module cannot be imported, or lacks a name.
    """
    try:
        importlib.import_module("shrinkfx.worker.starting")  # it imports all the others
    except Exception as error:
        version = _torch_version()
        reason = f"cannot be imported with torch {version}: {summarize_error(error)}"
        advice = advice_on(error) or REPORT_BUG
        if why_untested(version):
            advice = f"install a version with which shrinkfx is tested: torch {RANGE}"
        raise LoadError("the worker", reason, f"{advice}\n{SEE_DOCTOR}") from error


def _start(setup: Setup, threads: int) -> tuple[AnyWorker, Ready]:
    from shrinkfx.worker.starting import start

    return start(setup, threads)


def _answer_once(folder: Path) -> None:
    job = Job.from_line((folder / JOB).read_text())
    setup, request, note = job.setup, job.request, open_stages(folder)
    import faulthandler

    with _collecting_once():
        import torch

        from shrinkfx.worker.aoti import backend as aoti
        from shrinkfx.worker.disk_space import limit_folder_size
        from shrinkfx.worker.loading.load import preload
        from shrinkfx.worker.tasks import Worker

        faulthandler.enable(2)
        package = request.options.package
        if package and Path(package).exists():
            aoti.import_inductor()  # under a sanitizer, each compiler probe takes 1 s
        else:
            aoti.warm_up()  # before the process has its own cache, which is empty
        if not request.options.sanitize:  # AddressSanitizer reports signals itself
            last_words.log_thread_exceptions()
        gc.freeze()
    try:
        preload(setup.preloads)
        restore_sigchld()  # compiler processes are children
        worker = Worker(setup, torch.get_num_threads())
        limit_folder_size(Path(setup.directory), setup.max_disk_bytes)
        write_answer(folder, worker.perform(request, note, folder))
    except Exception as error:  # noqa: BLE001 - the boundary: all becomes data
        write_answer(folder, describe_error(error))
        traceback.print_exc()  # it names the line of the script
    os._exit(0)


if __name__ == "__main__":
    main()

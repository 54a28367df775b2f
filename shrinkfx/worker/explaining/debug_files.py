"""Keep the generated code and the logs of a check in a folder.

The code is copied before the program runs, because the run may kill the child.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.worker.aoti.shared_libraries import compile_everything
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.private_api import codegen_api

_SOURCES = ("*.wrapper.cpp", "*.kernel.cpp")
_KERNEL = re.compile(r"^@triton\.jit.*?^def (\w+)\(", re.MULTILINE | re.DOTALL)
_WRAPPER = "AsyncCompile"
"""A name that wrappers import and kernels do not."""


@contextlib.contextmanager
def save_debug_files(home: Path, note: Note, folder: Path) -> Iterator[Note]:
    """Keep the code and logs of a compilation in the block.

    Args:
        home: the folder that receives them.
        folder: the child's own folder, below which everything is compiled.

    Yields:
        The function with which to note stages.
    """
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_save_interpreter_code(home / ArtifactFile.SOURCES))
        stack.enter_context(compile_everything())
        stack.callback(_copy_sources, folder, home / ArtifactFile.SOURCES)
        stack.enter_context(_logging(home))

        def noted(stage: str) -> None:
            _copy_sources(folder, home / ArtifactFile.SOURCES)
            note(stage)

        yield noted


@contextlib.contextmanager
def _logging(home: Path) -> Iterator[None]:
    """Log as TORCH_LOGS=+inductor,output_code and TORCH_TRACE do, into files.

    They do not go to stderr, because the program's stderr is used to classify its
    failure, and generated code contains the same words.
    """
    codegen_api.logs.set_logs(inductor=logging.DEBUG, output_code=True)
    registry = codegen_api.logs.log_registry
    names = [*registry.get_log_qnames(), *registry.get_artifact_log_qnames()]
    with (home / ArtifactFile.LOG).open("w") as log:
        redirected = [
            pair
            for name in names
            for pair in _redirect_logger(logging.getLogger(name), log)
        ]
        (home / ArtifactFile.TRACE).mkdir(exist_ok=True)
        trace = codegen_api.logs.LazyTraceHandler(str(home / ArtifactFile.TRACE))
        trace.setFormatter(codegen_api.logs.TorchLogsFormatter(trace=True))
        codegen_api.logs.trace_log.addHandler(trace)
        try:
            yield
        finally:
            codegen_api.logs.trace_log.removeHandler(trace)
            trace.close()
            for logger, handler in redirected:
                logger.removeHandler(handler)
            codegen_api.logs.set_logs()


def _redirect_logger(
    logger: logging.Logger, log: TextIO
) -> list[tuple[logging.Logger, logging.Handler]]:
    """Redirect the output of a logger of PyTorch from stderr to a file.

    Returns:
        Pairs of the logger and its new handler.
    """
    redirected: list[tuple[logging.Logger, logging.Handler]] = []
    for old_handler in list(logger.handlers):
        # Since torch 2.14 the handler looks up sys.stderr for each record.
        stream = getattr(old_handler, "stream", None)
        if type(old_handler) is logging.StreamHandler or stream is sys.stderr:
            new_handler = logging.StreamHandler(log)
            new_handler.setFormatter(old_handler.formatter)
            new_handler.setLevel(old_handler.level)
            logger.removeHandler(old_handler)
            logger.addHandler(new_handler)
            redirected.append((logger, new_handler))
    return redirected


def _copy_sources(folder: Path, home: Path) -> None:
    """Copy AOTInductor's C++ files, and Triton kernels as files named after them."""
    with contextlib.suppress(OSError):  # the check goes on if the disk is full
        home.mkdir(exist_ok=True)
        for pattern in _SOURCES:
            for path in folder.rglob(pattern):
                if not (home / path.name).exists():
                    shutil.copy(path, home)
        for path in folder.rglob("*.py"):
            text = path.read_text(errors="replace")
            if _WRAPPER not in text and (found := _KERNEL.search(text)):
                (home / f"{found[1]}.py").write_text(text)


@contextlib.contextmanager
def _save_interpreter_code(home: Path) -> Iterator[None]:
    """Keep the interpreter's wrapper as it is before it is rewritten for the CPU."""
    generate = interpreter.generate

    def generated(*args: Any, **kwargs: Any) -> interpreter.GeneratedCode:
        code = generate(*args, **kwargs)
        home.mkdir(exist_ok=True)
        if code.wrapper:
            (home / "wrapper.py").write_text(code.wrapper)
        if code.tuning is not None:
            text = f"{code.tuning.definitions}\n\n{code.tuning.calls}"
            (home / "benchmark.py").write_text(text)
        return code

    with mock.patch.object(interpreter, "generate", generated):
        yield

"""What a check leaves in a folder for whoever reads the code of a program.

A child may die of the program that it runs: its code is copied before that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.files import Left
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.aoti.shared_objects import nothing_taken
from shrinkfx.worker.explaining.kernel_alone import keeping_launches
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.private_api import codegen_api

_SOURCES = ("*.wrapper.cpp", "*.kernel.cpp")
_KERNEL = re.compile(r"^@triton\.jit.*?^def (\w+)\(", re.MULTILINE | re.DOTALL)
_WRAPPER = "AsyncCompile"
"""What a wrapper imports, and no kernel."""


@contextlib.contextmanager
def leaving(
    home: Path, setup: Setup, kernels: Collection[str], note: Note, folder: Path
) -> Iterator[Note]:
    """Leave code and logs of what is compiled inside.

    Args:
        home: where.
        kernels: those whose arguments are left as well.
        folder: the child's own, below which everything is compiled.

    Yields:
        What to note stages with.
    """
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        saved = stack.enter_context(_saving_arguments(kernels))
        stack.enter_context(_code_kept(home / Left.SOURCES))
        stack.enter_context(nothing_taken())
        if setup.backend == Backend.INTERPRETER:
            kept = keeping_launches(home, kernels, setup.arch)
            stack.enter_context(kept)
        stack.callback(_copy_sources, folder, home / Left.SOURCES)
        stack.enter_context(_logging(home))

        def noted(stage: str) -> None:
            _copy_sources(folder, home / Left.SOURCES)
            if stage == Stage.RUN and saved:
                # The compiled program saves below the folder that it runs in.
                (home / Left.INPUTS).mkdir(exist_ok=True)
                os.chdir(home / Left.INPUTS)
            note(stage)

        yield noted


@contextlib.contextmanager
def _logging(home: Path) -> Iterator[None]:
    """Log as TORCH_LOGS=+inductor,output_code and TORCH_TRACE do, into files.

    Not to stderr: what a program says there tells how it fails, and generated code is
    full of such words.
    """
    codegen_api.logs.set_logs(inductor=logging.DEBUG, output_code=True)
    registry = codegen_api.logs.log_registry
    names = [*registry.get_log_qnames(), *registry.get_artifact_log_qnames()]
    with (home / Left.LOG).open("w") as log:
        moved = [
            pair for name in names for pair in _moved(logging.getLogger(name), log)
        ]
        (home / Left.TRACE).mkdir(exist_ok=True)
        trace = codegen_api.logs.LazyTraceHandler(str(home / Left.TRACE))
        trace.setFormatter(codegen_api.logs.TorchLogsFormatter(trace=True))
        codegen_api.logs.trace_log.addHandler(trace)
        try:
            yield
        finally:
            codegen_api.logs.trace_log.removeHandler(trace)
            trace.close()
            for logger, handler in moved:
                logger.removeHandler(handler)
            codegen_api.logs.set_logs()


def _moved(
    logger: logging.Logger, log: TextIO
) -> list[tuple[logging.Logger, logging.Handler]]:
    """Redirect the output of a logger of PyTorch from stderr to a file."""
    found: list[tuple[logging.Logger, logging.Handler]] = []
    for printing in list(logger.handlers):
        # Since torch 2.14 the handler looks up sys.stderr for each record.
        stream = getattr(printing, "stream", None)
        if type(printing) is logging.StreamHandler or stream is sys.stderr:
            writing = logging.StreamHandler(log)
            writing.setFormatter(printing.formatter)
            writing.setLevel(printing.level)
            logger.removeHandler(printing)
            logger.addHandler(writing)
            found.append((logger, writing))
    return found


def _copy_sources(folder: Path, home: Path) -> None:
    """Copy what AOTInductor has written, and Triton kernels by their names."""
    with contextlib.suppress(OSError):  # of a full disk: the check goes on
        _copy(folder, home)


def _copy(folder: Path, home: Path) -> None:
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
def _code_kept(home: Path) -> Iterator[None]:
    """Keep the wrapper that the interpreter runs, before it is made to fit the CPU."""
    generate = interpreter.generate

    def generated(*args: Any, **kwargs: Any) -> interpreter.Code:
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


@contextlib.contextmanager
def _saving_arguments(kernels: Collection[str]) -> Iterator[list[str]]:
    """Have code that prints what kernels are given save it as well, before a launch.

    Yields:
        The kernels for which there is such code.
    """
    saved: list[str] = []
    printer = codegen_api.debug_utils.DebugPrinterManager
    name = "codegen_intermediate_tensor_value_print"
    printing = printer.codegen_intermediate_tensor_value_print
    saving = printer.codegen_intermediate_tensor_value_save
    if not kernels:
        yield saved
        return

    def both(
        self: Any,
        args: list[str],
        kernel: str,
        before_launch: bool = True,
        arg_signatures: Any = None,
    ) -> None:
        known = (before_launch, arg_signatures)
        if (
            args
            and before_launch
            and kernel in kernels
            and codegen_api.V.graph.cpp_wrapper
        ):
            saving(self, args, kernel, *known)
            saved.append(kernel)
        printing(self, args, kernel, *known)

    with mock.patch.object(printer, name, both):
        yield saved

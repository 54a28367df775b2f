"""Keep the generated code, logs and kernel arguments of a check in a folder.

The code is copied before the program runs, because the run may kill the child.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, TextIO
from unittest import mock

import torch

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.files import ArtifactFile, KernelRun
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.aoti.shared_objects import compile_everything
from shrinkfx.worker.explaining import kernel_checks
from shrinkfx.worker.explaining.kernel_checks import LARGE
from shrinkfx.worker.explaining.kernel_memory import ArgumentMemory, write_literal
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.interpreter.codegen.cuda_device import make_device_properties
from shrinkfx.worker.interpreter.emulation import (
    assembly,
    constants,
    libdevice,
    logic,
)
from shrinkfx.worker.interpreter.findings import Report
from shrinkfx.worker.interpreter.launch import LAUNCH_OBSERVERS, GeneratedLaunch
from shrinkfx.worker.private_api import codegen_api

_SOURCES = ("*.wrapper.cpp", "*.kernel.cpp")
_KERNEL = re.compile(r"^@triton\.jit.*?^def (\w+)\(", re.MULTILINE | re.DOTALL)
_WRAPPER = "AsyncCompile"
"""A name that wrappers import and kernels do not."""


@contextlib.contextmanager
def save_debug_files(
    home: Path, setup: Setup, kernels: Collection[str], note: Note, folder: Path
) -> Iterator[Note]:
    """Keep the code and logs of a compilation in the block.

    Args:
        home: the folder that receives them.
        kernels: the kernels whose arguments are kept as well.
        folder: the child's own folder, below which everything is compiled.

    Yields:
        The function with which to note stages.
    """
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        saved = stack.enter_context(_save_arguments(kernels))
        stack.enter_context(_save_interpreter_code(home / ArtifactFile.SOURCES))
        stack.enter_context(compile_everything())
        if setup.backend == Backend.INTERPRETER:
            keeper = keep_failing_kernel(home, kernels, setup.arch)
            stack.enter_context(keeper)
        stack.callback(_copy_sources, folder, home / ArtifactFile.SOURCES)
        stack.enter_context(_logging(home))

        def noted(stage: str) -> None:
            _copy_sources(folder, home / ArtifactFile.SOURCES)
            if stage == Stage.RUN and saved:
                # The compiled program saves below the folder that it runs in.
                (home / ArtifactFile.INPUTS).mkdir(exist_ok=True)
                os.chdir(home / ArtifactFile.INPUTS)
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


@contextlib.contextmanager
def _save_arguments(kernels: Collection[str]) -> Iterator[list[str]]:
    """Generate code that saves the arguments of kernels before their launches.

    Inductor generates code that prints the arguments; this adds code that saves them.

    Yields:
        A list of the kernels for which such code was generated.
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


CopiedLaunch = tuple[GeneratedLaunch, Mapping[str, ArgumentMemory]]
"""A launch, and copies of its tensor arguments as they were before it."""

_KEY_PHRASES = re.compile(
    r"out-of-bounds \w+ of \d+ bytes|through \w+|declared divisible by 16, is \d+"
    r"|device-side assert(?= in )|(?<=\): )[^:\n]+(?= \[program )"
    r"|out of resource: [\w ]+|NameError\([^)]*\)|CompilationError"
)
"""The parts of a failure's message that a repro of the kernel must reproduce."""

_RUN_S, _INTERPRET = 300.0, "TRITON_INTERPRET"


@dataclass
class _Launches:
    """The last launch, and the last launch of a requested kernel."""

    kernels: Collection[str]
    last: CopiedLaunch | None = None
    requested: CopiedLaunch | None = None

    def watch(self, launch: GeneratedLaunch) -> None:
        """Copy the tensor arguments of a launch."""
        items = launch.arguments.items()
        tensors = {k: v for k, v in items if isinstance(v, torch.Tensor)}
        self.last = launch, ArgumentMemory.copy_arguments(tensors)
        if launch.name in self.kernels:
            self.requested = self.last


@contextlib.contextmanager
def keep_failing_kernel(
    home: Path, kernels: Collection[str], arch: str
) -> Iterator[None]:
    """Write ``kernel.py`` for the kernel that fails in the block.

    If none fails, it is the last launch of one of ``kernels``.
    """
    seen = _Launches(kernels)
    LAUNCH_OBSERVERS.append(seen.watch)
    try:
        yield
    except Exception as error:
        _write_and_run(
            home, functools.partial(_make_failure_script, seen, error, arch), str(error)
        )
        raise
    else:
        _write_and_run(
            home,
            lambda: write_launch_script(*seen.requested) if seen.requested else None,
            "",
        )
    finally:
        LAUNCH_OBSERVERS.remove(seen.watch)


def _make_failure_script(
    seen: _Launches, error: Exception, arch: str
) -> KernelScript | None:
    """Return the script of the kernel that failed to compile or to run, or None."""
    if isinstance(error, Report):
        name = error.findings[0].kernel
        is_last = seen.last is not None and seen.last[0].name == name
        return write_launch_script(*seen.last) if seen.last and is_last else None
    tuner = _tuner_in(error)
    return (
        write_compile_script(tuner, arch)
        if tuner is not None and not seen.last
        else None
    )


def _tuner_in(error: BaseException) -> Any:
    """Return the ``CachingAutotuner`` that was running at the error, or None."""
    cause: BaseException | None = error
    while cause is not None:
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            worker = frame.f_locals.get("self")
            if type(worker).__name__ == "CachingAutotuner":
                return worker
        cause = cause.__cause__ or cause.__context__
    return None


def _write_and_run(
    home: Path, make: Callable[[], KernelScript | None], message: str
) -> None:
    """Write the script, run it, and write how it ended."""
    try:
        if (script := make()) is None:
            return
        if script.data:
            torch.save(script.data, home / ArtifactFile.KERNEL_DATA)
        (home / ArtifactFile.KERNEL).write_text(script.text)
        result = _run(home / ArtifactFile.KERNEL, script, message)
    except Exception as error:  # noqa: BLE001 - the program's failure matters more
        result = KernelRun("", "", message=f"it could not be written: {error}")
    (home / ArtifactFile.KERNEL_RUN).write_text(result.to_line())


def _run(path: Path, script: KernelScript, message: str) -> KernelRun:
    """Run the script as a user without shrinkfx and without a GPU would."""
    environment = dict(os.environ)
    for name in ("PYTHONPATH", _INTERPRET):
        environment.pop(name, None)
    command = f"python {path.name}"
    if not script.compiles:
        environment[_INTERPRET] = "1"
        command = f"{_INTERPRET}=1 {command}"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", path.name],
            cwd=path.parent,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RUN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return KernelRun(script.kernel, command, message=str(error))
    last_line = (done.stderr or done.stdout).strip().rpartition("\n")[2]
    is_same = has_same_ending(message, done.returncode, done.stderr)
    return KernelRun(script.kernel, command, is_same, last_line)


def has_same_ending(message: str, code: int, output: str) -> bool:
    """Return whether a kernel alone ends as in its program, which raised ``message``.

    A kernel that computes wrong values raises nothing, so an empty message matches exit
    status 0.
    """
    wanted = _KEY_PHRASES.findall(message)
    if not message:
        return code == 0
    return code != 0 and bool(wanted) and all(word in output for word in wanted)


_BOOKMARK = "# " + "-" * 70 + "\n# {}\n# " + "-" * 70 + "\n"
_FUTURE = "from __future__ import annotations\n"
_OURS = "from shrinkfx.worker.interpreter.findings import Unsupported\n"
_DRIVER = re.compile(r"^triton_helpers\.set_driver_to_gpu\(\)$", re.MULTILINE)
_GLOBAL = re.compile(r"^\w+ = tl\.constexpr\(", re.MULTILINE)
_LOGIC = re.compile(r"\b(?:and|or|not)\b")


@dataclass(frozen=True)
class KernelScript:
    """The script of one kernel.

    Attributes:
        data: tensors that it reads from a file next to it.
        compiles: the script only compiles the kernel, to show that this fails.
    """

    kernel: str
    text: str
    data: Mapping[str, torch.Tensor] = field(default_factory=dict)
    compiles: bool = False


def write_launch_script(
    launch: GeneratedLaunch, copies: Mapping[str, ArgumentMemory]
) -> KernelScript:
    """Write a script with the kernel and its launch: arguments, grid and constants."""
    function = launch.tuner.fn.fn
    source = _source_of(function)
    memory = {m.name: m.all_of_it for m in copies.values()}
    data = {name: v for name, v in memory.items() if not write_literal(v)}
    load = f"data = torch.load({str(ArtifactFile.KERNEL_DATA)!r})\n" if data else ""
    names = {id(v): k for k, v in launch.arguments.items() if k in copies}
    passed = (names.get(id(v), v) for v in launch.passed)
    text = _LAUNCHING.substitute(
        name=launch.name,
        signature=launch.tuner.triton_meta["signature"],
        lacking=_write_missing_features(source),
        left_out="".join(
            f"\nZeros stand for what was in {name}: it is too large to be kept."
            for name, value in memory.items()
            if value.nbytes >= LARGE
        ),
        source=_BOOKMARK.format("The kernel, as Inductor wrote it") + source,
        function=function.__name__,
        memory=load
        + "memory = "
        + _block({k: write_literal(v) or f"data[{k!r}]" for k, v in memory.items()}),
        arguments=_block(
            {k: str(copies.get(k, repr(v))) for k, v in launch.arguments.items()}
        ),
        spans=_block(
            {k: f"(arguments[{k!r}], memory[{m.name!r}])" for k, m in copies.items()}, 1
        ),
        passed=", ".join(
            f"arguments[{p!r}]" if p in copies else repr(p) for p in passed
        ),
        grid=tuple(launch.grid),
        aligned=list(launch.aligned),
    )
    return KernelScript(launch.name, text, data)


def write_compile_script(tuner: Any, arch: str) -> KernelScript:
    """Write a script that compiles a kernel without a GPU, to show that this fails."""
    function, device = tuner.fn.fn, make_device_properties(arch)
    name = str(tuner.inductor_meta.get("kernel_name") or function.__name__)
    text = _COMPILING.substitute(
        name=name,
        signature=tuner.triton_meta["signature"],
        source=_BOOKMARK.format("The kernel, as Inductor wrote it")
        + _source_of(function),
        function=function.__name__,
        arch=arch,
        capability=10 * device.major + device.minor,
        shared=device.shared_memory_per_block_optin,
    )
    return KernelScript(name, text, compiles=True)


def _source_of(function: Any) -> str:
    """Return the text of a kernel's file; Inductor writes one file for each kernel."""
    text = Path(function.__code__.co_filename).read_text()
    with_gpu = "if torch.cuda.is_available():\n    triton_helpers.set_driver_to_gpu()"
    return _DRIVER.sub(with_gpu, text).strip() + "\n"


def _write_missing_features(source: str) -> str:
    """Write the code that lets Triton's interpreter run a kernel as a GPU does."""
    parts, calls = [_read_module_text(kernel_checks)], ["", "", "if INTERPRETED:"]
    calls += ["    _apart, _aligned, _watch = apart, require_aligned, watch"]
    if "libdevice." in source:
        parts.append(_read_module_text(libdevice))
        calls.append("    give_bodies()")
    if "inline_asm_elementwise" in source:
        parts.append(_read_module_text(assembly))
        calls.append("    run_assembly()")
    if _GLOBAL.search(source):
        parts.append(_read_module_text(constants))
        calls.append("    mix_constants()")
    if _LOGIC.search(source):
        parts.append(_read_module_text(logic))
        calls.append("    compile_logic()")
    title = _BOOKMARK.format("What Triton's interpreter lacks; a GPU needs none of it")
    return title + "\n\n".join(parts) + "\n".join(calls) + "\n"


def _read_module_text(module: Any) -> str:
    """Return the text of one of our modules, changed to run without shrinkfx."""
    text = inspect.getsource(module).replace(_FUTURE, "")
    return text.replace(_OURS, "\nUnsupported = NotImplementedError\n")


def _block(items: Mapping[str, str], indent: int = 0) -> str:
    """Write a dict with one item per line."""
    outer = "    " * indent
    lines = [f"{outer}    {name!r}: {value},\n" for name, value in items.items()]
    return "".join(["{\n", *lines, outer, "}"])


_LAUNCHING = Template(
    '''"""$name alone, as it was launched.

On a GPU:        compute-sanitizer python kernel.py
Without a GPU:   TRITON_INTERPRET=1 python kernel.py

Signature: $signature
Grid: $grid$left_out
Written by shrinkfx.
"""

import os
import sys

# Else a GPU notices late what a kernel does, or not at all.
os.environ.setdefault("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not INTERPRETED and not torch.cuda.is_available():
    sys.exit("there is no GPU: run it with TRITON_INTERPRET=1")

$lacking

$source

# ----------------------------------------------------------------------
# Its launch
# ----------------------------------------------------------------------
$memory
# Memory around each tensor is unused, so that an access out of bounds shows.
memory = {
    name: _apart(value) if INTERPRETED else value.cuda()
    for name, value in memory.items()
}


def part(name, dtype, size, stride, offset):
    whole = memory[name].view(dtype)
    return whole.as_strided(size, stride, whole.storage_offset() + offset)


arguments = $arguments
if INTERPRETED:
    _aligned(arguments.items(), $aligned)
    _watch($spans)
    $function.fn[$grid](**arguments)
else:
    stream = torch.cuda.current_stream().cuda_stream
    $function.run($passed, stream=stream)
    torch.cuda.synchronize()
for name, value in arguments.items():
    if isinstance(value, torch.Tensor):
        print(name, value)
print("$name runs to its end")
'''
)

_COMPILING = Template(
    '''"""$name alone, which does not compile for $arch: python kernel.py

It takes no GPU.
Signature: $signature
Written by shrinkfx.
"""

import os
import sys

import torch

if os.environ.get("TRITON_INTERPRET") == "1":
    sys.exit("run it without TRITON_INTERPRET: it is about Triton's compiler")

$source

# ----------------------------------------------------------------------
# Its compilation, in each configuration
# ----------------------------------------------------------------------
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.errors import OutOfResources

SHARED = $shared  # bytes that a block may have

for config in $function.configs:
    meta = $function.triton_meta
    constants = {**meta["constants"], **config.kwargs}
    signature = {
        name: "constexpr" if name in constants else kind
        for name, kind in meta["signature"].items()
    }
    attributes = meta["configs"][0]
    kernel = ASTSource($function.fn, signature, constants, attributes)
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    target = GPUTarget("cuda", $capability, 32)
    compiled = triton.compile(kernel, target=target, options=options)
    if compiled.metadata.shared > SHARED:
        raise OutOfResources(compiled.metadata.shared, SHARED, "shared memory")
print("$name compiles")
'''
)

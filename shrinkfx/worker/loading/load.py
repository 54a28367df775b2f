"""Load preloads, the program and the failing inputs from files."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import math
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.program.uninstalled_files import is_library, is_path
from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.requests import Setup
from shrinkfx.protocol.source import is_source_archive
from shrinkfx.worker.loading import devices
from shrinkfx.worker.loading.archive import (
    NESTED,
    calls_triton_kernels,
    read_program,
    read_source_archive,
    restrict_unpickling,
    trust,
    why_unreadable,
)
from shrinkfx.worker.loading.import_advice import advice_on
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.private_api import inductor_api
from shrinkfx.worker.private_api.graph_api import ValueRanges, int_oo
from shrinkfx.worker.sizes.read_space import require_declared_sizes

_FACTOR, _EXTRA_BYTES = 16, 4 << 30
"""The memory for reading: a multiple of the size of the files, and a constant."""

_CHECKS_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"
"""If this variable makes the compiled program check its inputs, any may be passed."""


def preload(names: Sequence[str]) -> dict[str, str]:
    """Import the modules and libraries that register custom operators.

    Returns:
        The Python file behind each name; '' for installed modules and libraries.

    Raises:
        LoadError: a preload is missing or fails.
    """
    files = {}
    before = set(sys.modules)
    for name in names:
        try:
            files[name] = _preload(name)
        except LoadError:
            raise
        except BaseException as error:
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                advice = (
                    f"install it for {sys.executable}, give the path of a .py, or set "
                    "PYTHONPATH"
                )
                raise LoadError(
                    name, "no module of this name to preload", advice
                ) from None
            reason = f"the preload raised {type(error).__name__}: {error}"
            advice = advice_on(error) or f"try: {_command_to_try(name)}"
            raise LoadError(name, reason, advice) from error
    trust({*names, *(sys.modules.keys() - before)})
    return files


def _preload(name: str) -> str:
    if is_path(name) and not Path(name).is_file():
        which = "check the path given to --preload"
        raise LoadError(name, "no such file", which)
    if is_library(name):
        torch.ops.load_library(name)
        return ""
    if name.endswith(".py"):
        return str(import_file(name).__file__)
    module = importlib.import_module(name)
    path = getattr(module, "__file__", None) or ""
    installed = "site-packages" in path or "dist-packages" in path
    return "" if installed or not path.endswith(".py") else path


def _command_to_try(name: str) -> str:
    """Return a command that runs the preload alone."""
    if name.endswith(".py"):
        return f"{sys.executable} {name}"
    if is_library(name):
        return f"{sys.executable} -c \"import torch; torch.ops.load_library('{name}')\""
    return f"{sys.executable} -c 'import {name}'"


def import_file(name: str) -> ModuleType:
    """Import a file under its own name, with its folder importable."""
    path = Path(name).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def load(setup: Setup) -> Program:
    """Load the program, and convert it to the form that candidates are cut from.

    Raises:
        LoadError: names the file at fault, and what to try.
    """
    _require_known_options(setup.inductor)
    archive = _prepare_archive(setup)
    files = (archive, setup.inputs) if setup.inputs else (archive,)
    length = sum(os.path.getsize(file) for file in files if os.path.exists(file))
    try:
        # An allocation beyond this limit fails.
        most = _data_bytes() + _EXTRA_BYTES + _FACTOR * length
        with _limit(resource.RLIMIT_DATA, most):
            return _load(setup, archive)
    except MemoryError:
        more = f"more memory than {_FACTOR} times its size and {_EXTRA_BYTES >> 30} GiB"
        raise LoadError(str(setup.model), f"takes {more} to read", "") from None


def _load(setup: Setup, archive: str) -> Program:
    runs = _read_inputs_file(setup)
    original = _add_example_inputs(_read(archive, setup), setup, runs)
    functional = functionalise(original)
    if functional is None:
        # The attempt may have fixed sizes in objects that both programs share.
        original = functional = _add_example_inputs(_read(archive, setup), setup, runs)
    assert original.example_inputs is not None
    example = Inputs(
        tuple(original.example_inputs[0]), dict(original.example_inputs[1])
    )
    if runs is None:
        return Program(original, functional, example, example)
    program = Program(original, functional, example, example)
    failing, passing = runs
    return replace(
        program,
        failing=_in_program_order(setup, program, failing),
        passing=_in_program_order(setup, program, passing) if passing else None,
    )


def _add_example_inputs(
    program: ExportedProgram, setup: Setup, runs: tuple[Inputs, Inputs | None] | None
) -> ExportedProgram:
    """Use the failing inputs as example inputs if the program was saved without any."""
    if program.example_inputs:
        return program
    if runs is None:
        raise LoadError(
            str(setup.model),
            "holds no example inputs",
            (
                "name some with --inputs FILE, or export it again with "
                "torch.export.export(module, args) and save that"
            ),
        )
    example = _move_inputs(setup, runs[0])
    try:
        program._graph_module_flat_inputs(example.args, example.kwargs)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        advice = (
            "the program has no example inputs: the file must hold all of its inputs"
        )
        raise LoadError(str(setup.inputs), reason, advice) from error
    program.example_inputs = example.args, example.kwargs
    return program


def _read_inputs_file(setup: Setup) -> tuple[Inputs, Inputs | None] | None:
    """Read the failing inputs, if a file holds them; that needs less than a program."""
    if not setup.inputs or setup.inputs.endswith(".py"):
        return None
    return read_inputs(setup.inputs)


def _in_program_order(setup: Setup, program: Program, inputs: Inputs) -> Inputs:
    """Move inputs to the program's device, and put them in its order.

    Raises:
        LoadError: the program does not take these inputs.
    """
    assert setup.inputs
    inputs = sort_keywords_like(program.example, inputs)
    inputs = _move_inputs(setup, inputs, example=program.example)
    names = _names(program.original)
    require_same_structure(setup.inputs, program.example, inputs, names)
    if os.environ.get(_CHECKS_INPUTS) != "1":
        require_declared_sizes(setup.inputs, program.original, program.example, inputs)
    return inputs


def _names(program: ExportedProgram) -> list[str]:
    """Return the names of the inputs in ``forward``, if the program still has them."""
    for entry in program.module_call_graph[:1]:
        if entry.signature is not None:
            return entry.signature.forward_arg_names or []
    return []


def _move_inputs(setup: Setup, inputs: Inputs, example: Inputs | None = None) -> Inputs:
    """Move inputs to the program's device.

    Args:
        example: inputs of the program, to whose devices to move; they may differ.
    """
    if not setup.device or setup.backend == Backend.INTERPRETER:
        return inputs
    leaves, spec = inputs.flatten()
    others = leaves if example is None else example.flat()
    if len(others) != len(leaves):
        return inputs  # a later check refuses them
    pairs = zip(leaves, others, strict=True)
    moved = [_move_tensor(leaf, setup.device, like) for leaf, like in pairs]
    return Inputs.unflatten(moved, spec)


def _move_tensor(leaf: Any, device: str, like: Any) -> Any:
    """Move a tensor to the device of another tensor, or else to a given device."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    is_other = isinstance(like, torch.Tensor) and like is not leaf
    return leaf.to(like.device if is_other else device)


def _prepare_archive(setup: Setup) -> str:
    """Prepare torch to place weights on their device; return the archive to read."""
    assert setup.model is not None
    folder = Path(setup.directory)
    on_cpu = setup.backend == Backend.INTERPRETER or setup.device == "cpu"
    if on_cpu or not devices.is_for_cuda(setup):
        # On the interpreter, tensors are on the CPU; only compiled code is for CUDA.
        if on_cpu:
            devices.read_cuda_storages_on("cpu")
        return devices.archive_on(setup.model, folder, "cpu")
    device = f"cuda:{devices.wanted_gpu(setup)}"
    if setup.device:
        devices.read_cuda_storages_on(device)
    return devices.archive_on(setup.model, folder, device)


def _read(archive: str, setup: Setup) -> ExportedProgram:
    """Read a program, and move it to the device that it runs on.

    Only the GPU tensors of a program for GPUs are moved; those on the CPU stay there.
    """
    assert setup.model is not None
    read = read_source_archive if is_source_archive(archive) else read_program
    original = read(archive, setup.model)
    if calls_triton_kernels(original):
        raise LoadError(
            setup.model,
            "calls a Triton kernel directly, and torch.export.save does not save "
            "kernels",
            "wrap the kernel with torch.library.triton_op, and export it again",
        )
    add_symbol_values(original)
    on_device = devices.device_type(archive) == (setup.device or "").partition(":")[0]
    if setup.device and setup.backend != Backend.INTERPRETER and not on_device:
        return _move(original, setup.device)
    return original


def _require_known_options(options: InductorOptions) -> None:
    known = inductor_api.config.get_config_copy()
    for name, value in options.items():
        if name not in known and _is_alias(name):
            continue
        if name not in known:
            matches = difflib.get_close_matches(name, known, n=3)
            raise LoadError(
                f"--inductor-config {name}={value}",
                "torch._inductor.config has no such option",
                f"did you mean {', '.join(matches)}?" if matches else "",
            )
        default = known[name]
        if isinstance(default, (bool, int, float)) and isinstance(value, str):
            kind = type(default).__name__
            raise LoadError(
                f"--inductor-config {name}={value}",
                f"{value!r} is no {kind}",
                f"such as {default}",
            )


def _is_alias(name: str) -> bool:
    """Return whether a name is an old one of an option, which ``known`` omits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about the old name
        return hasattr(inductor_api.config, name)


def _move(program: ExportedProgram, device: str) -> ExportedProgram:
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, device)


@contextlib.contextmanager
def limit_cpu_time(cpu_seconds: float) -> Iterator[None]:
    """End this process by SIGXCPU if the block uses more CPU time.

    A signal handler could not do it, because Python runs none during a single C call.
    """
    end = math.ceil(time.process_time() + cpu_seconds)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    with _limit(resource.RLIMIT_CORE, 0), _limit(resource.RLIMIT_CPU, end):
        yield


@contextlib.contextmanager
def _limit(kind: int, most: int) -> Iterator[None]:
    """Lower a resource limit of this process in the block."""
    soft, hard = resource.getrlimit(kind)
    finite = [limit for limit in (soft, hard, most) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(finite), hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def _data_bytes() -> int:
    """Return the data size of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def functionalise(original: ExportedProgram) -> ExportedProgram | None:
    """Remove in-place operators, because candidates cannot be cut around them.

    Returns:
        None if that fails or fixes dynamic dims; then ``original`` may have changed and
        must be read again.
    """
    dynamic = _dynamic(original)
    try:
        with torch.no_grad():
            functional: ExportedProgram = original.run_decompositions({})
    except Exception as error:  # noqa: BLE001 - a decomposition may raise anything
        print(f"shrinkfx: no functional form: {error}", flush=True)
        return None
    if _dynamic(functional) != dynamic:
        # A write into one result of unbind or split causes that (torch 2.13).
        print("shrinkfx: no functional form: it fixes dynamic dims", flush=True)
        return None
    if functional.graph_signature.input_tokens:
        # Tokens keep the calls of script objects' methods in order.
        print("shrinkfx: no functional form: it needs tokens", flush=True)
        return None
    return functional


def _dynamic(program: ExportedProgram) -> list[bool]:
    """Return for each dim of each input, in order, whether it is dynamic."""
    values = (n.meta["val"] for n in program.graph.nodes if n.op == "placeholder")
    sizes = (size for v in values for size in getattr(v, "shape", ()))
    return [
        isinstance(size, torch.SymInt) and bool(size.node.expr.free_symbols)
        for size in sizes
    ]


def add_symbol_values(program: ExportedProgram) -> None:
    """Add the values of symbols that no dim consists of alone, which loading omits.

    A symbol may occur only in sizes like ``2*s0 + 1``, or only in strides, for which no
    range is stored. Decomposition fails where it needs the symbol's own value or range,
    and so does Inductor since torch 2.14: ``RuntimeError: ('unexpected None!', 2*s0 +
    1)``. Before 2.14, loading registered such sizes as if they were symbols.
    """
    try:
        _add_symbol_values(program)
    except Exception as error:  # noqa: BLE001 - most programs compile without this
        print(f"shrinkfx: no values of symbols: {error!r}", flush=True)


def _add_symbol_values(program: ExportedProgram) -> None:
    metadata = (node.meta.get("val") for node in program.graph.nodes)
    shapes = (size for v in metadata for size in getattr(v, "shape", ()))
    sizes = [size.node for size in shapes if isinstance(size, torch.SymInt)]
    if not sizes:
        return
    env = sizes[0].shape_env
    assert env is not None
    numbers = dict(env.backed_var_to_val)
    numbers |= {size.expr: size.hint for size in sizes if size.has_hint()}
    for size, number in numbers.items():
        unknown = size.free_symbols - set(env.backed_var_to_val)
        if len(unknown) == 1:
            (symbol,) = unknown
            solutions = sympy.solve(size - number, symbol)
            if len(solutions) == 1:
                env.backed_var_to_val[symbol] = solutions[0]
    for symbol in env.backed_var_to_val:
        if symbol.is_Symbol and symbol not in env.var_to_range:
            env._update_var_to_range(symbol, ValueRanges(0, int_oo))
    for computed in [s for s in env.var_to_range if not s.is_Symbol]:
        del env.var_to_range[computed]


def read_inputs(path: str) -> tuple[Inputs, Inputs | None]:
    """Read a file that ``torch.save`` wrote, if it holds only data.

    Returns:
        The failing inputs, and the passing inputs if the file has any.

    Raises:
        LoadError: the file has other content.
    """
    try:
        with restrict_unpickling():
            data = torch.load(path, weights_only=True)
    except BaseException as error:
        raise LoadError(path, why_unreadable(error), _ADVICE) from error
    passing = data.pop("passing", None) if isinstance(data, dict) else None
    return as_inputs(path, data), as_inputs(path, passing) if passing else None


_ADVICE = (
    "torch.save((arg, ...), file), or a dict with 'args' and 'kwargs', of tensors, "
    "numbers and strings"
)


def as_inputs(path: str, data: object) -> Inputs:
    """Convert the content of a file to the arguments of a call.

    Raises:
        LoadError: the content has another form.
    """
    if isinstance(data, dict) and set(data) <= {"args", "kwargs"}:
        args, kwargs = data.get("args", ()), data.get("kwargs", {})
        if isinstance(args, (tuple, list)) and isinstance(kwargs, dict):
            return _require_passable(path, Inputs(tuple(args), dict(kwargs)))
    if isinstance(data, (tuple, list)):
        return _require_passable(path, Inputs(tuple(data), {}))
    raise LoadError(path, f"holds a {type(data).__name__}", _ADVICE)


def _require_passable(path: str, inputs: Inputs) -> Inputs:
    """Refuse inputs that no exported program takes, with the file as the subject."""
    for name in inputs.kwargs:
        if not isinstance(name, str):
            reason = f"'kwargs' has the key {name!r:.60}, which is not a string"
            raise LoadError(path, reason, _ADVICE)
    for leaf in inputs.flat():
        if isinstance(leaf, torch.Tensor) and leaf.is_nested:
            raise LoadError(path, *NESTED)
    return inputs


def sort_keywords_like(example: Inputs, inputs: Inputs) -> Inputs:
    """Put keyword arguments in the program's order, if the names are the same."""
    if set(inputs.kwargs) != set(example.kwargs):
        return inputs
    return replace(
        inputs, kwargs={name: inputs.kwargs[name] for name in example.kwargs}
    )


def require_same_structure(
    path: str, example: Inputs, inputs: Inputs, names: Sequence[str] = ()
) -> None:
    """Refuse inputs of another number, structure, dtype, rank or device.

    Args:
        names: the program's names of its positional inputs, as far as they are known.

    Raises:
        LoadError: the inputs do not fit; says which, and what the program expects.
    """
    _require_same_number(path, example, inputs, names)
    expected, spec = example.flatten()
    leaves, inputs_spec = inputs.flatten()
    if spec != inputs_spec:
        raise LoadError(
            path,
            f"the inputs are nested as {inputs_spec}",
            f"the program expects {spec}",
        )
    for position, (a, b) in enumerate(zip(expected, leaves, strict=True)):
        if not isinstance(a, torch.Tensor):
            continue
        if not isinstance(b, torch.Tensor) or _type_of(a) != _type_of(b):
            raise LoadError(
                path,
                f"input {position} is {_describe(b)}",
                f"the program expects {_describe(a)}",
            )
        if a.device != b.device:
            raise LoadError(
                path,
                f"input {position} is on {b.device}, not on {a.device}",
                (
                    "the program expects it there, and what is compiled for one device "
                    f"takes no other: --device {a.device} moves both"
                ),
            )


def _require_same_number(
    path: str, example: Inputs, inputs: Inputs, names: Sequence[str]
) -> None:
    count, expected = len(inputs.args), len(example.args)
    if count == expected and set(inputs.kwargs) == set(example.kwargs):
        return
    named = [*names[:expected], *(f"input{n}" for n in range(len(names), expected))]
    listed = f" ({', '.join(named)})" if named else ""
    actual = f"{count} positional input{'' if count == 1 else 's'}"
    takes = f"the program takes {expected}{listed}{_by_keyword(example)}"
    call = f"({named[0]},)" if expected == 1 else f"({', '.join(named)})"
    if example.kwargs:
        keywords = ", ".join(f"{name!r}: {name}" for name in example.kwargs)
        call = f"{{'args': {call}, 'kwargs': {{{keywords}}}}}"
    raise LoadError(
        path,
        f"{actual}{_by_keyword(inputs)}, {takes}",
        f"the program expects what torch.save({call}, file) writes",
    )


def _by_keyword(inputs: Inputs) -> str:
    return f" and by keyword {', '.join(inputs.kwargs)}" if inputs.kwargs else ""


def _type_of(tensor: torch.Tensor) -> tuple[torch.dtype, int]:
    return tensor.dtype, tensor.dim()


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)} on {value.device.type}"
    return type(value).__name__

"""Switch Triton to interpretation in this process, for good.

Kernels that are decorated afterwards are interpreted by Triton itself; kernels that
were decorated before are converted when they are launched or called. Code generation
must be over by then, because functions of ``triton.language`` are replaced by functions
on NumPy arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from shrinkfx.protocol.choices import Probe
from shrinkfx.worker.interpreter.emulation.assembly import run_assembly
from shrinkfx.worker.interpreter.emulation.constants import mix_constants
from shrinkfx.worker.interpreter.emulation.floats import (
    patch_float_conversions,
    patch_reductions,
)
from shrinkfx.worker.interpreter.emulation.libdevice import give_bodies
from shrinkfx.worker.interpreter.emulation.logic import compile_logic
from shrinkfx.worker.interpreter.findings import Unsupported
from shrinkfx.worker.interpreter.launch import (
    get_interpreted,
    get_tensor,
    grid_size,
    launch,
    name_arguments,
)
from shrinkfx.worker.interpreter.memory_checks.bounds import CHECKER, SPARSE_BYTES
from shrinkfx.worker.interpreter.memory_checks.hooks import install_hooks
from shrinkfx.worker.model import Keywords


@functools.cache
def switch_on() -> None:
    """Interpret every kernel from now on, and check its accesses.

    Raises:
        Unsupported: a package is missing, or the checks fail their self-test.
    """
    for package in ("triton", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise Unsupported(f"Triton's interpreter needs the package {package}")
    try:
        _patch_triton()
    except AttributeError as error:
        reason = f"this version of Triton's interpreter is not known: {error}"
        raise Unsupported(reason) from error
    import_self_test().run_self_test()


@functools.cache
def import_self_test() -> ModuleType:
    """Import the self-test, which imports Triton.

    A process that will run a script calls this first, because it cannot import
    shrinkfx's modules once the script runs.
    """
    from shrinkfx.worker.interpreter.memory_checks import selftest

    return selftest


def _patch_triton() -> None:
    import triton

    from shrinkfx.worker.private_api.triton_api import interpreter

    os.environ["TRITON_INTERPRET"] = "1"  # Inductor reads the variable
    triton.knobs.runtime.interpret = True
    options = interpreter.interpreter_builder.options
    # ``debug`` enables assertions and overflow checks. The latter stay off: data
    # may overflow, and an index that overflows shows as an out-of-bounds access.
    interpreter.interpreter_builder.options = dataclasses.replace(
        options, debug=True, sanitize_overflow=False
    )
    give_bodies()
    run_assembly()
    patch_reductions()
    compile_logic()
    patch_float_conversions()
    install_hooks()
    _patch_language_once()
    mix_constants()
    _patch_launches()
    _patch_inductor_launches()


def _patch_language_once() -> None:
    """Patch Triton's language once instead of in each launch and each call."""
    import triton.language as tl

    from shrinkfx.worker.private_api.triton_api import interpreter

    def kernel() -> None: ...

    names = {"__globals__": {"tl": tl, "core": tl.core}}
    interpreter._patch_lang(type("Kernel", (), names))
    interpreter._patch_lang = lambda _: _NothingToRestore()
    # Triton 3.6 calls int() on the array, which NumPy 2.4 refuses for one element.
    tl.tensor.__index__ = lambda self: int(self.handle.data.squeeze())


class _NothingToRestore:
    def restore(self) -> None: ...


def _patch_launches() -> None:
    """Send all launches, also of kernels decorated before the switch, to ``launch``."""
    from shrinkfx.worker.private_api.triton_api import (
        Autotuner,
        JITFunction,
        interpreter,
    )

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return get_interpreted(self)(*args, **kwargs)

    def run(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> None:
        if not warmup:
            kernel = get_interpreted(self)
            launch(kernel, grid, {**name_arguments(kernel.arg_names, args), **kwargs})

    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Run an autotuner's first configuration, because none is benchmarked."""
        config = self.configs[0]
        arguments = name_arguments(self.arg_names, args)
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **{**config.all_kwargs(), **kwargs})

    JITFunction.__call__ = call
    JITFunction.run = run
    interpreter.InterpretedFunction.run = run
    Autotuner.run = run_first


def _patch_inductor_launches() -> None:
    """Send the launches of Inductor's kernels to ``launch_generated_kernel``."""
    from shrinkfx.worker.private_api.cuda_api import CachingAutotuner, triton_helpers

    triton_helpers.set_driver_to_gpu = lambda: None
    setattr(CachingAutotuner, "run", launch_generated_kernel)  # noqa: B010 - typed as method


# Launch the kernels that Inductor generates, in each of their configurations.
#
# A GPU times several block sizes of a kernel and keeps one of them, which need not be
# the first. A fault may show in only one of them, so the interpreter runs them all.

MAX_TRIED_PROGRAMS = 1_000
"""The most programs of further configurations in one call; a program takes 0.2 to 3
ms."""


def launch_generated_kernel(
    self: Any, *args: Any, stream: Any = None, benchmark_run: Any = False, **more: Any
) -> None:
    """Launch a generated kernel, in place of ``CachingAutotuner.run``.

    The results are those of the first configuration; the other configurations run on
    copies of the arguments. Where AOTInductor would time the kernel (the hints probe),
    each configuration runs on the arguments themselves, as it would in AOTInductor.
    """
    first, *others = _configurations(self)
    prepared = _prepare(self, first, args, more)
    if CHECKER.probe is None or not others:
        return _run(prepared)
    name, count = prepared.name, 1 + len(others)
    as_timed = CHECKER.probe is Probe.HINTS
    copies = args if as_timed else _copy_written(prepared, args)
    _run(prepared)
    for number, config in enumerate(others, 2):
        size = _programs(_prepare(self, config, args, more))
        if copies is None or not (
            as_timed or CHECKER.tried + size <= MAX_TRIED_PROGRAMS
        ):
            CHECKER.untried.append(name)
            return None
        CHECKER.tried += size
        settings = ", ".join(f"{k}={v}" for k, v in sorted(config.kwargs.items()))
        text = f"configuration {number} of {count}: {settings}"
        with CHECKER.try_configuration(text, alone=not as_timed):
            _run(_prepare(self, config, copies, more))
    return None


@dataclass(frozen=True)
class _PreparedLaunch:
    """One launch in one configuration.

    Attributes:
        named_arguments: the arguments without constants, by name.
        arguments: all arguments of the kernel with constants, by name.
    """

    tuner: Any
    name: str
    named_arguments: Keywords
    arguments: Keywords
    grid: Any


def _configurations(self: Any) -> Sequence[Any]:
    """List a kernel's configurations, also if this process has compiled it already."""
    return self.configs or [result.config for result in self.compile_results]


def _prepare(
    self: Any, config: Any, args: Sequence[Any], more: Keywords
) -> _PreparedLaunch:
    from shrinkfx.worker.private_api.cuda_api import GridExpr

    meta = self.triton_meta
    signature = dict(meta["signature"])
    names = list(signature)
    constants = {
        names[key[0]] if isinstance(key, tuple) else key: value
        for key, value in meta.get("constants", {}).items()
    }
    # A numel that is a constant (xnumel = 1) is passed by position all the same.
    passed = [name for name in names if name not in config.kwargs]
    extra = list(self.inductor_meta.get("extra_launcher_args", ()))
    if len(args) < len(passed) + len(extra):
        passed = [name for name in passed if signature[name] != "constexpr"]
    named = name_arguments(passed, args)
    grid = GridExpr.from_meta(self.inductor_meta, config).eval_slow(
        {**constants, **name_arguments(passed + extra, args)}
    )
    name = str(self.inductor_meta.get("kernel_name") or self.fn.__name__)
    arguments = {**constants, **config.kwargs, **named, **more}
    return _PreparedLaunch(self, name, named, arguments, grid)


def _run(prepared: _PreparedLaunch) -> None:
    tuner, name = prepared.tuner, prepared.name
    signature = dict(tuner.triton_meta["signature"])
    aligned = _aligned(tuner.triton_meta, list(signature))
    arguments, grid = prepared.arguments, prepared.grid
    writes = _list_written(prepared)
    launch(
        get_interpreted(tuner.fn),
        grid,
        arguments,
        name=name,
        signature=signature,
        aligned=aligned,
        writes=writes,
    )
    operators = CHECKER.operators.get(name, ())
    for argument in writes or ():
        CHECKER.roles.set_result_role(prepared.named_arguments[argument], operators)


def _programs(prepared: _PreparedLaunch) -> int:
    x, y, z = grid_size(prepared.grid, prepared.arguments)
    return x * y * z


def _aligned(meta: Keywords, names: list[str]) -> list[str]:
    """List the parameters that compiled code may assume to be divisible by 16."""
    for declared in meta.get("configs", ()):
        if isinstance(declared, Mapping):
            return [
                names[key[0]]
                for key, attributes in declared.items()
                if ["tt.divisibility", 16] in [list(a) for a in attributes]
            ]
        numbers = getattr(declared, "divisible_by_16", ())
        return [names[n] if isinstance(n, int) else n for n in numbers]
    return []


def _list_written(prepared: _PreparedLaunch) -> list[str] | None:
    """List the parameters that a generated kernel writes; None for a user kernel."""
    if prepared.tuner.custom_kernel:
        return None
    mutated = set(prepared.tuner.mutated_arg_names)
    output = ("out_ptr", "in_out_ptr")
    return [k for k in prepared.named_arguments if k in mutated or k.startswith(output)]


def _copy_written(
    prepared: _PreparedLaunch, args: Sequence[Any]
) -> tuple[Any, ...] | None:
    """Copy the arguments that a kernel may write; None if they are too large."""
    writes = _list_written(prepared)
    arguments = prepared.named_arguments
    written = [v for name, v in arguments.items() if writes is None or name in writes]
    tensors = [t for value in written if (t := get_tensor(value)) is not None]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    if sum(storage.nbytes() for storage in storages.values()) >= SPARSE_BYTES:
        return None
    copies = {place: storage.clone() for place, storage in storages.items()}
    return tuple(_with_storage(value, copies) for value in args)


def _with_storage(value: Any, copies: Mapping[int, torch.UntypedStorage]) -> Any:
    """Move a tensor or TMA descriptor onto the copy of its storage, if there is one."""
    tensor = get_tensor(value)
    if tensor is None:
        return value
    storage = copies.get(tensor.untyped_storage().data_ptr())
    if storage is None:
        return value
    moved = torch.empty(0, dtype=tensor.dtype)
    moved.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    CHECKER.roles.set_role(moved, CHECKER.roles.get_role(tensor))
    return moved if value is tensor else dataclasses.replace(value, base=moved)

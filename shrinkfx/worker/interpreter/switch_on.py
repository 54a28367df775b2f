"""Switch Triton over to interpretation in this process, for good.

Kernels that are decorated from now on are interpreted, and those decorated before
are where they are launched or called. Code generation must be over by then: what
Triton's language offers to kernels is replaced by what runs on NumPy arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
from types import ModuleType
from typing import Any

from shrinkfx.worker.interpreter.emulation.assembly import run_assembly
from shrinkfx.worker.interpreter.emulation.constants import mix_constants
from shrinkfx.worker.interpreter.emulation.floats import round_to_nearest
from shrinkfx.worker.interpreter.emulation.libdevice import give_bodies
from shrinkfx.worker.interpreter.emulation.logic import compile_logic
from shrinkfx.worker.interpreter.emulation.reductions import combine_blocks
from shrinkfx.worker.interpreter.findings import Unsupported
from shrinkfx.worker.interpreter.generated import run_generated
from shrinkfx.worker.interpreter.launch import interpreted, launch, named
from shrinkfx.worker.interpreter.memory_checks.hooks import hook


@functools.cache
def switch_on() -> None:
    """Interpret every kernel from now on, and check what it accesses.

    Raises:
        Unsupported: a package is missing, or the checks do not find what they must.
    """
    for package in ("triton", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise Unsupported(f"Triton's interpreter needs the package {package}")
    try:
        _patch_triton()
    except AttributeError as error:
        reason = f"this version of Triton's interpreter is not known: {error}"
        raise Unsupported(reason) from error
    self_test().check_the_checks()


@functools.cache
def self_test() -> ModuleType:
    """Import what needs Triton; before a script runs, which finds nothing of ours."""
    from shrinkfx.worker.interpreter.memory_checks import selftest

    return selftest


def _patch_triton() -> None:
    import triton

    from shrinkfx.worker.private_api.triton_api import interpreter

    os.environ["TRITON_INTERPRET"] = "1"  # Inductor asks for the variable
    triton.knobs.runtime.interpret = True
    options = interpreter.interpreter_builder.options
    # Assertions come with checks that arithmetic on data does not overflow, which
    # it may; an index that does shows where it leads.
    interpreter.interpreter_builder.options = dataclasses.replace(
        options, debug=True, sanitize_overflow=False
    )
    give_bodies()
    run_assembly()
    combine_blocks()
    compile_logic()
    round_to_nearest()
    hook()
    _speak_once()
    mix_constants()
    _launch_here()
    _launch_for_inductor()


def _speak_once() -> None:
    """Patch Triton's language once, not in each launch and each call."""
    import triton.language as tl

    from shrinkfx.worker.private_api.triton_api import interpreter

    def kernel() -> None: ...

    names = {"__globals__": {"tl": tl, "core": tl.core}}
    interpreter._patch_lang(type("Kernel", (), names))
    interpreter._patch_lang = lambda _: _NothingToRestore()
    # Triton 3.6 takes the array as it is, and NumPy 2.4 wants none of one element.
    tl.tensor.__index__ = lambda self: int(self.handle.data.squeeze())


class _NothingToRestore:
    def restore(self) -> None: ...


def _launch_here() -> None:
    """Run what was decorated before the switch, and all launches, by ``launch``."""
    from shrinkfx.worker.private_api.triton_api import (
        Autotuner,
        JITFunction,
        interpreter,
    )

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return interpreted(self)(*args, **kwargs)

    def run(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> None:
        if not warmup:
            kernel = interpreted(self)
            launch(kernel, grid, {**named(kernel.arg_names, args), **kwargs})

    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Take an autotuner's first configuration: none is benchmarked."""
        config = self.configs[0]
        given = named(self.arg_names, args)
        if config.pre_hook is not None:
            config.pre_hook({**given, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **{**config.all_kwargs(), **kwargs})

    JITFunction.__call__ = call
    JITFunction.run = run
    interpreter.InterpretedFunction.run = run
    Autotuner.run = run_first


def _launch_for_inductor() -> None:
    from shrinkfx.worker.private_api.cuda_api import CachingAutotuner, triton_helpers

    triton_helpers.set_driver_to_gpu = lambda: None
    setattr(CachingAutotuner, "run", run_generated)  # noqa: B010 - typed as method

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
from types import ModuleType
from typing import Any

from shrinkfx.worker.interpreter.emulation.assembly import run_assembly
from shrinkfx.worker.interpreter.emulation.constants import mix_constants
from shrinkfx.worker.interpreter.emulation.floats import patch_float_conversions
from shrinkfx.worker.interpreter.emulation.libdevice import give_bodies
from shrinkfx.worker.interpreter.emulation.logic import compile_logic
from shrinkfx.worker.interpreter.emulation.reductions import patch_reductions
from shrinkfx.worker.interpreter.findings import Unsupported
from shrinkfx.worker.interpreter.generated_kernels import launch_generated_kernel
from shrinkfx.worker.interpreter.launch import get_interpreted, launch, name_arguments
from shrinkfx.worker.interpreter.memory_checks.hooks import install_hooks


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

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
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from shrinkfx.protocol.choices import Probe
from shrinkfx.worker.interpreter.emulation.constants import mix_constants
from shrinkfx.worker.interpreter.emulation.floats import round_to_nearest
from shrinkfx.worker.interpreter.emulation.libdevice import give_bodies
from shrinkfx.worker.interpreter.emulation.logic import compile_logic
from shrinkfx.worker.interpreter.emulation.reductions import combine_blocks
from shrinkfx.worker.interpreter.findings import Unsupported
from shrinkfx.worker.interpreter.launch import WATCHING, Generated, launch
from shrinkfx.worker.interpreter.memory_checks.bounds import CHECKER, hook
from shrinkfx.worker.model import Keywords


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
    from triton.runtime import interpreter

    os.environ["TRITON_INTERPRET"] = "1"  # Inductor asks for the variable
    triton.knobs.runtime.interpret = True
    options = interpreter.interpreter_builder.options
    # Assertions come with checks that arithmetic on data does not overflow, which
    # it may; an index that does shows where it leads.
    interpreter.interpreter_builder.options = dataclasses.replace(
        options, debug=True, sanitize_overflow=False
    )
    give_bodies()
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
    from triton.runtime import interpreter

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
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    @functools.cache
    def twin(function: Any) -> Any:
        return interpreter.InterpretedFunction(function)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return twin(self.fn)(*args, **kwargs)

    def run(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> None:
        if not warmup:
            names = twin(self.fn).arg_names
            launch(twin(self.fn), grid, {**_named(names, args), **kwargs})

    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Take an autotuner's first configuration: none is benchmarked."""
        config = self.configs[0]
        given = _named(self.arg_names, args)
        if config.pre_hook is not None:
            config.pre_hook({**given, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **{**config.all_kwargs(), **kwargs})

    JITFunction.__call__ = call
    JITFunction.run = run
    interpreter.InterpretedFunction.run = run
    Autotuner.run = run_first


def _named(names: Sequence[str], args: Sequence[Any]) -> Keywords:
    """Name arguments passed by position; there may be fewer, or none for options."""
    return dict(zip(names, args, strict=False))


def _launch_for_inductor() -> None:
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    triton_helpers.set_driver_to_gpu = lambda: None
    setattr(CachingAutotuner, "run", _run_generated)  # noqa: B010 - typed as method


def _run_generated(
    self: Any, *args: Any, stream: Any = None, benchmark_run: Any = False, **more: Any
) -> None:
    """Launch a generated kernel with its first configuration.

    Where AOTInductor would time them all, all are run.
    """
    timed = self.configs if CHECKER.probe is Probe.HINTS else self.configs[:1]
    for config in timed:
        _run_configured(self, config, args, more)


def _run_configured(
    self: Any, config: Any, args: Sequence[Any], more: Keywords
) -> None:
    from torch._inductor.runtime.triton_heuristics import GridExpr

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
    given = _named(passed, args)
    grid = GridExpr.from_meta(self.inductor_meta, config).eval_slow(
        {**constants, **_named(passed + extra, args)}
    )
    name = str(self.inductor_meta.get("kernel_name") or self.fn.__name__)
    arguments = {**constants, **config.kwargs, **given, **more}
    aligned = _aligned(meta, names)
    for watch in WATCHING:
        watch(Generated(self, name, args, arguments, grid, aligned))
    launch(self.fn, grid, arguments, name=name, signature=signature, aligned=aligned)
    _name_results(self, given)


def _aligned(meta: Keywords, names: list[str]) -> list[str]:
    """List the parameters that code may take to be divisible by 16."""
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


def _name_results(self: Any, given: Keywords) -> None:
    """Say of the memory that a kernel has written whose results it holds."""
    name = str(self.inductor_meta.get("kernel_name") or self.fn.__name__)
    operators = CHECKER.operators.get(name, ())
    written = set(self.inductor_meta.get("mutated_arg_names", ()))
    for argument, value in given.items():
        if argument in written or argument.startswith(("out_ptr", "in_out_ptr")):
            CHECKER.roles.name_result(value, operators)

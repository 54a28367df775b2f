"""Run Triton kernels on CPU tensors with checks, one program after the other.

``interpret_kernels`` switches Triton to interpretation in this process, for good.
Kernels that are decorated afterwards are interpreted by Triton itself; kernels that
were decorated before are converted when they are launched or called. Code generation
must be over by then, because functions of ``triton.language`` are replaced by functions
on NumPy arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import itertools
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any

import torch

from shrinkfx.protocol.choices import Probe
from shrinkfx.worker.interpreter.emulation import emulate_gpu
from shrinkfx.worker.interpreter.findings import Fault, Report, Unsupported
from shrinkfx.worker.interpreter.memory_checks import (
    CHECKER,
    SPARSE_BYTES,
    UNWRITTEN_MEMORY,
    Argument,
    install_hooks,
    tag_pointer,
)
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import cuda_api, operator_api, triton_api

_INTEGERS = {
    f"{sign}{bits}": (bits, sign == "i") for sign in "iu" for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, in one configuration.

    Attributes:
        kernel: a ``triton.runtime.interpreter.InterpretedFunction``.
        grid: up to three numbers, or a function of the arguments that returns them.
        arguments: all arguments of the kernel with constants, by name.
        signature: the declared types; without them an integer has the type that its
            value needs, as Triton chooses it.
        aligned: the parameters that are declared to be divisible by 16.
        writes: the parameters that the kernel may write; None for any.
    """

    kernel: Any
    grid: Any
    arguments: Keywords
    name: str
    signature: Mapping[str, str] = field(default_factory=dict)
    aligned: Sequence[str] = ()
    writes: Collection[str] | None = None

    def run(self) -> None:
        """Run the kernel.

        A kernel that cannot be run under a probe is recorded as unseen, and the memory
        that it would have written counts as unwritten from then on.

        Raises:
            Report: the kernel has a fault; the program that showed it has ended.
            Unsupported: Triton's interpreter cannot run the kernel, outside of a probe.
        """
        function = self.kernel.rewrite()
        constants = _constants(self.kernel.fn, self.signature)
        bound = _bind_arguments(self.kernel.fn, self.arguments)
        for hook in self.kernel.pre_run_hooks:
            hook(**bound)
        tensors = {k: t for k, v in bound.items() if (t := get_tensor(v)) is not None}
        pointers = {k: Argument.from_tensor(k, v) for k, v in tensors.items()}
        size = self._grid_size(bound)
        with CHECKER.run_launch(self.name, size, pointers) as running:
            _check_alignment(bound, self.aligned)
            converted = {
                k: v
                if k in constants
                else _convert_argument(k, v, self.signature, pointers)
                for k, v in bound.items()
            }
            triton_api.interpreter.interpreter_builder.set_grid_dim(*size)
            blocks = [
                v for k, v in bound.items() if k in constants and _is_block_size(v)
            ]
            takes_partial = tensors in CHECKER.partial
            try:
                sampled = _run(self.name, function, converted, size, blocks)
            except Report:
                if not takes_partial:
                    raise
                CHECKER.findings.clear()
                self._skip(f"takes {UNWRITTEN_MEMORY}", tensors)
            except Unsupported as error:
                if CHECKER.runs_all:
                    raise
                self._skip(error.reason, tensors)
            else:
                if sampled or takes_partial:
                    written = [tensors[argument] for argument in running.written]
                    CHECKER.partial.add(written)

    @property
    def programs(self) -> int:
        """The number of programs."""
        return math.prod(self._grid_size(self.arguments))

    def _grid_size(self, arguments: Keywords) -> Place:
        """Return the number of programs along each axis of the grid."""
        grid = self.grid(dict(arguments)) if callable(self.grid) else self.grid
        numbers = tuple(grid) if isinstance(grid, Sequence) else (grid,)
        x, y, z = (*(int(n) for n in numbers), 1, 1)[:3]
        return x, y, z

    def _skip(self, why: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Record the reason, and mark the memory that it writes as unwritten."""
        CHECKER.unseen.append(f"{self.name}: {why}")
        CHECKER.partial.add(
            [v for k, v in tensors.items() if self.writes is None or k in self.writes]
        )


def _run(
    name: str,
    function: Callable[..., Any],
    arguments: Keywords,
    grid: Place,
    blocks: Sequence[int],
) -> bool:
    """Run the programs of a grid, or a sample of a large grid.

    Returns:
        Whether only a sample ran.

    Raises:
        Report: the checks found a fault in a program.
        Unsupported: Triton's interpreter failed.
    """
    import numpy as np

    if CHECKER.runs_all:
        chosen, sample = list_all_programs(grid), ""
    else:
        chosen, sample = choose_programs(grid, blocks)
    if sample:
        CHECKER.unseen.append(f"{name}: only {sample} ran")
    builder = triton_api.interpreter_builder
    with np.errstate(all="ignore"):
        for place in chosen:
            builder.set_grid_idx(*place)
            try:
                function(**arguments)
            except (Report, Unsupported):
                raise
            except Exception as error:
                raise _unwrap_error(error, name) from error
            if CHECKER.probe and CHECKER.findings:
                raise Report(CHECKER.findings)
    return bool(sample)


def _unwrap_error(error: BaseException, name: str) -> Exception:
    """Return the innermost cause of an error of Triton's interpreter.

    Returns:
        The ``Report`` or ``Unsupported`` that Triton wrapped, or a new ``Unsupported``.
    """
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    if isinstance(innermost, (Report, Unsupported)):
        return innermost
    text = str(innermost) or type(innermost).__name__
    return Unsupported(f"Triton's interpreter: {text[:300]}")


def _constants(function: Any, signature: Mapping[str, str]) -> set[str]:
    """Name the parameters that are ``tl.constexpr`` by annotation or by signature."""
    annotated = {
        name
        for name, annotation in function.__annotations__.items()
        if "constexpr" in str(getattr(annotation, "__name__", annotation))
    }
    return annotated | {name for name, kind in signature.items() if kind == "constexpr"}


def _bind_arguments(function: Any, arguments: Keywords) -> Keywords:
    """Bind arguments to parameters; drop launch options such as ``num_warps``."""
    signature = inspect.signature(function)
    accepted = {k: v for k, v in arguments.items() if k in signature.parameters}
    bound = signature.bind(**accepted)
    bound.apply_defaults()
    return dict(bound.arguments)


def _check_alignment(arguments: Keywords, aligned: Sequence[str]) -> None:
    """Report arguments that are declared to be divisible by 16 but are not."""
    for name in aligned:
        value = arguments.get(name)
        if isinstance(value, torch.Tensor) and value.numel():
            number, unit = value.data_ptr() % 16, " bytes"
            role = CHECKER.roles.get_role(value)
        elif isinstance(value, int):
            number, unit, role = value % 16, "", "a size"
        else:
            continue
        if number:
            text = f"declared divisible by 16, but is {number}{unit} past a multiple"
            CHECKER.report(
                Fault.MISALIGNED, argument=name, role=role or "memory", message=text
            )
    if CHECKER.probe and CHECKER.findings:
        raise Report(CHECKER.findings)


def _convert_argument(
    name: str,
    value: Any,
    signature: Mapping[str, str],
    pointers: Mapping[str, Argument],
) -> Any:
    """Convert an argument to the interpreter's value of the declared type."""
    import triton.language as tl

    declared = signature.get(name, "")
    if type(value) is int and declared in _INTEGERS:
        return _integer(value, declared)
    if type(value) is bool and declared == "i1":
        value = int(value)
    converted = triton_api.interpreter._implicit_cvt(value)
    if name not in pointers:
        return converted
    if declared.startswith("*"):  # the compiled dtype, not that of the tensor
        kind = tl.str_to_ty(declared, None)
        converted = tl.tensor(
            triton_api.TensorHandle(converted.handle.data, kind), kind
        )
    tag_pointer(getattr(converted.handle, "base", converted.handle), pointers[name])
    return converted


def get_tensor(value: Any) -> torch.Tensor | None:
    """Return an argument that is a tensor, the tensor of a TMA descriptor, or None."""
    tensor = getattr(value, "base", None) if hasattr(value, "block_shape") else value
    return tensor if isinstance(tensor, torch.Tensor) else None


def _integer(value: int, declared: str) -> Any:
    """Truncate an integer to the declared type, as hardware does."""
    import numpy as np
    import triton.language as tl

    bits, is_signed = _INTEGERS[declared]
    value &= (1 << bits) - 1
    if is_signed and value >> (bits - 1):
        value -= 1 << bits
    number = "int" if is_signed else "uint"
    kind = getattr(tl, f"{number}{bits}")
    data = np.array([value], dtype=getattr(np, f"{number}{bits}"))
    return tl.tensor(triton_api.TensorHandle(data, kind), kind)


def get_interpreted(kernel: Any) -> Any:
    """Return a kernel's interpreted function, creating one if it has none yet."""
    return kernel if hasattr(kernel, "rewrite") else _make_interpreted(kernel.fn)


@functools.cache
def _make_interpreted(function: Any) -> Any:
    return triton_api.InterpretedFunction(function)


def name_arguments(names: Sequence[str], args: Sequence[Any]) -> Keywords:
    """Pair parameter names with positional arguments, of which there may be fewer."""
    return dict(zip(names, args, strict=False))


def _is_block_size(value: Any) -> bool:
    return type(value) is int and value > 1


MAX_PROGRAMS = 10_000
"""The largest grid that is run in full; a program takes 0.2 to 3 ms."""

_EDGE = 32
_RANDOM = 256
_SEED = 0
_WRAPS = (1 << 31, 1 << 32)

Place = tuple[int, int, int]


def choose_programs(grid: Place, blocks: Iterable[int]) -> tuple[Iterator[Place], str]:
    """Return the programs to run, and a description of the sample.

    Args:
        blocks: block sizes that a program may step by. The sample includes the programs
            where such steps reach 2^31 and 2^32, because a 32-bit index wraps there.

    Returns:
        The positions in the grid, and a text that is '' if all programs run.
    """
    total = grid[0] * grid[1] * grid[2]
    if total <= MAX_PROGRAMS:
        return list_all_programs(grid), ""
    chosen = _sample_programs(grid, set(blocks))
    return iter(chosen), f"{len(chosen)} of {total} programs"


def list_all_programs(grid: Place) -> Iterator[Place]:
    """Return the positions of all programs."""
    return itertools.product(range(grid[0]), range(grid[1]), range(grid[2]))


def _sample_programs(grid: Place, blocks: set[int]) -> list[Place]:
    """Sample positions: both ends of each axis, the last one, and random ones."""
    axes = [sorted(_sample_axis(n, blocks)) for n in grid]
    corners = {
        tuple(axis[i] if k == along else 0 for k in range(3))
        for along, axis in enumerate(axes)
        for i in range(len(axis))
    }
    last = (grid[0] - 1, grid[1] - 1, grid[2] - 1)
    random = Random(_SEED)
    anywhere = {
        (
            random.randrange(grid[0]),
            random.randrange(grid[1]),
            random.randrange(grid[2]),
        )
        for _ in range(_RANDOM)
    }
    return sorted({(x, y, z) for x, y, z in corners} | {last} | anywhere)


def _sample_axis(count: int, blocks: set[int]) -> set[int]:
    """Return an axis's first and last indices, and those where a 32-bit index wraps."""
    indices = {*range(min(count, _EDGE)), *range(max(0, count - _EDGE), count)}
    for limit, block in itertools.product(_WRAPS, blocks):
        at = limit // block
        indices |= {i for i in (at - 1, at, at + 1) if 0 <= i < count}
    return indices


# Switch Triton to interpretation.


@functools.cache
def interpret_kernels() -> None:
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
    _run_cuda_operators_on_cpu()


def _run_cuda_operators_on_cpu() -> None:
    """Let custom operators that only have a CUDA kernel run it on CPU tensors."""
    if operator_api.FEATURE.missing:
        return
    for name, operator in operator_api.custom_ops.OPDEFS.items():
        kernels = operator._backend_fns
        if "cuda" in kernels and not {"cpu", None} & kernels.keys():
            operator.register_kernel("cpu")(_run_on_cpu(name, kernels["cuda"]))


def _run_on_cpu(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return kernel(*args, **kwargs)
        except (Report, Unsupported):
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            reason = f"the CUDA kernel of {name} fails on CPU tensors: {what:.200}"
            raise Unsupported(reason) from error

    return run


@functools.cache
def import_self_test() -> ModuleType:
    """Import the self-test, which imports Triton.

    A process that will run a script calls this first, because it cannot import
    shrinkfx's modules once the script runs.
    """
    from shrinkfx.worker.interpreter import selftest

    return selftest


def _patch_triton() -> None:
    import triton

    os.environ["TRITON_INTERPRET"] = "1"  # Inductor reads the variable
    triton.knobs.runtime.interpret = True
    options = triton_api.interpreter.interpreter_builder.options
    # ``debug`` enables assertions and overflow checks. The latter stay off: data
    # may overflow, and an index that overflows shows as an out-of-bounds access.
    triton_api.interpreter.interpreter_builder.options = dataclasses.replace(
        options, debug=True, sanitize_overflow=False
    )
    emulate_gpu()
    install_hooks()
    _patch_language_once()
    _patch_launches()
    _patch_inductor_launches()


def _patch_language_once() -> None:
    """Patch Triton's language once instead of in each launch and each call."""
    import triton.language as tl

    def kernel() -> None: ...

    names = {"__globals__": {"tl": tl, "core": tl.core}}
    triton_api.interpreter._patch_lang(type("Kernel", (), names))
    triton_api.interpreter._patch_lang = lambda _: _NothingToRestore()
    # Triton 3.6 calls int() on the array, which NumPy 2.4 refuses for one element.
    tl.tensor.__index__ = lambda self: int(self.handle.data.squeeze())


class _NothingToRestore:
    def restore(self) -> None: ...


def _patch_launches() -> None:
    """Send all launches, also of kernels decorated before the switch, to ``Launch``."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return get_interpreted(self)(*args, **kwargs)

    def run(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> None:
        if not warmup:
            kernel = get_interpreted(self)
            arguments = {**name_arguments(kernel.arg_names, args), **kwargs}
            Launch(kernel, grid, arguments, kernel.fn.__name__).run()

    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Run an autotuner's first configuration, because none is benchmarked."""
        config = self.configs[0]
        arguments = name_arguments(self.arg_names, args)
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **kwargs, **config.all_kwargs()})
        return self.fn.run(*args, **{**config.all_kwargs(), **kwargs})

    triton_api.JITFunction.__call__ = call
    triton_api.JITFunction.run = run
    triton_api.interpreter.InterpretedFunction.run = run
    triton_api.Autotuner.run = run_first


def _patch_inductor_launches() -> None:
    """Send the launches of Inductor's kernels to ``launch_generated_kernel``."""
    cuda_api.triton_helpers.set_driver_to_gpu = lambda: None
    setattr(cuda_api.CachingAutotuner, "run", launch_generated_kernel)  # noqa: B010 - typed as method


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
    launch = _prepare(self, first, args, more)
    if CHECKER.probe is None or not others:
        return _run_generated(launch)
    as_timed = CHECKER.probe is Probe.HINTS
    copies = args if as_timed else _copy_written(launch, args)
    _run_generated(launch)
    for number, config in enumerate(others, 2):
        size = _prepare(self, config, args, more).programs
        if copies is None or not (
            as_timed or CHECKER.tried + size <= MAX_TRIED_PROGRAMS
        ):
            CHECKER.untried.append(launch.name)
            return None
        CHECKER.tried += size
        settings = ", ".join(f"{k}={v}" for k, v in sorted(config.kwargs.items()))
        text = f"configuration {number} of {1 + len(others)}: {settings}"
        with CHECKER.try_configuration(text, alone=not as_timed):
            _run_generated(_prepare(self, config, copies, more))
    return None


def _run_generated(launch: Launch) -> None:
    launch.run()
    operators = CHECKER.operators.get(launch.name, ())
    for argument in launch.writes or ():
        CHECKER.roles.set_result_role(launch.arguments[argument], operators)


def _configurations(self: Any) -> Sequence[Any]:
    """List a kernel's configurations, also if this process has compiled it already."""
    return self.configs or [result.config for result in self.compile_results]


def _prepare(self: Any, config: Any, args: Sequence[Any], more: Keywords) -> Launch:
    meta = self.triton_meta
    signature = dict(meta["signature"])
    names = list(signature)
    constants = {
        names[key[0]] if isinstance(key, tuple) else key: value
        for key, value in meta.get("constants", {}).items()
    }
    extra = list(self.inductor_meta.get("extra_launcher_args", ()))
    # A number that is a constant, because it is 1, is passed by position all the same.
    declared, constants_too = (_constants(self.fn.fn, s) for s in ({}, signature))
    for omitted in (set[str](), declared, constants_too):
        passed = [n for n in names if n not in config.kwargs and n not in omitted]
        if len(args) >= len(passed) + len(extra):
            break
    named = name_arguments(passed, args)
    grid = cuda_api.GridExpr.from_meta(self.inductor_meta, config).eval_slow(
        {**name_arguments(passed + extra, args), **constants}
    )
    mutated = {*self.mutated_arg_names}
    output = ("out_ptr", "in_out_ptr")
    writes = [k for k in named if k in mutated or k.startswith(output)]
    return Launch(
        get_interpreted(self.fn),
        grid,
        {**named, **constants, **config.kwargs, **more},  # -1 is passed for None
        str(self.inductor_meta.get("kernel_name") or self.fn.__name__),
        signature,
        _aligned(meta, names),
        None if self.custom_kernel else writes,
    )


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


def _copy_written(launch: Launch, args: Sequence[Any]) -> tuple[Any, ...] | None:
    """Copy the arguments that a kernel may write; None if they are too large."""
    writes, arguments = launch.writes, launch.arguments
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

"""Launch a Triton kernel on CPU tensors with checks, one program after the other."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import torch

from shrinkfx.worker.interpreter.findings import Fault, Report, Unsupported
from shrinkfx.worker.interpreter.memory_checks.bounds import (
    CHECKER,
    UNWRITTEN_MEMORY,
    Argument,
    LaunchRecord,
    Layout,
    RunningLaunch,
    tag_pointer,
)
from shrinkfx.worker.model import Keywords

_INTEGERS = {
    f"{sign}{bits}": (bits, sign == "i") for sign in "iu" for bits in (8, 16, 32, 64)
}


def launch(
    kernel: Any,
    grid: Any,
    arguments: Keywords,
    *,
    name: str = "",
    signature: Mapping[str, str] | None = None,
    aligned: Sequence[str] = (),
    writes: Collection[str] | None = None,
) -> None:
    """Run a kernel, a ``triton.runtime.interpreter.InterpretedFunction``.

    A kernel that cannot be run under a probe is recorded as unseen, and the memory that
    it would have written counts as unwritten from then on.

    Args:
        grid: up to three numbers, or a function of the arguments that returns them.
        arguments: all arguments of the kernel with constants, by name.
        signature: the declared types; without them an integer has the type that its
            value needs, as Triton chooses it.
        aligned: the parameters that are declared to be divisible by 16.
        writes: the parameters that the kernel may write; None for any.

    Raises:
        Report: the kernel has a fault; the program that showed it has ended.
        Unsupported: Triton's interpreter cannot run the kernel, outside of a probe.
    """
    from shrinkfx.worker.private_api.triton_api import interpreter

    function = kernel.rewrite()
    constants = _constants(kernel.fn, signature or {})
    bound = _bind_arguments(kernel.fn, arguments)
    for hook in kernel.pre_run_hooks:
        hook(**bound)
    name = name or kernel.fn.__name__
    tensors = {k: t for k, v in bound.items() if (t := get_tensor(v)) is not None}
    pointers = {
        k: Argument.from_tensor(
            k, CHECKER.roles.get_role(v) or "memory of an operator", v
        )
        for k, v in tensors.items()
    }
    outer = CHECKER.launch
    # A kernel that Inductor does not know is launched by a user's operator.
    operators = tuple(CHECKER.operators.get(name, (f"user kernel {name}",)))
    running = RunningLaunch(name, operators, tuple(pointers.values()))
    CHECKER.launch = running
    try:
        size = grid_size(grid, bound)
        if CHECKER.probe:
            layouts = {
                k: Layout(tuple(v.shape), tuple(v.stride())) for k, v in tensors.items()
            }
            tried = bool(CHECKER.configuration)
            CHECKER.launched.append(LaunchRecord(name, size, layouts, tried))
        _check_alignment(bound, aligned)
        converted = {
            k: v
            if k in constants
            else _convert_argument(k, v, signature or {}, pointers)
            for k, v in bound.items()
        }
        interpreter.interpreter_builder.set_grid_dim(*size)
        blocks = [v for k, v in bound.items() if k in constants and _is_block_size(v)]
        takes_partial = tensors in CHECKER.partial
        try:
            sampled = _run(function, converted, size, blocks)
        except Report:
            if not takes_partial:
                raise
            CHECKER.findings.clear()
            _skip_kernel(name, f"takes {UNWRITTEN_MEMORY}", tensors, writes)
        except Unsupported as error:
            if CHECKER.probe is None:
                raise
            _skip_kernel(name, error.reason, tensors, writes)
        else:
            if sampled or takes_partial:
                CHECKER.partial.add([tensors[argument] for argument in running.written])
    finally:
        CHECKER.launch = outer


def _skip_kernel(
    name: str,
    why: str,
    tensors: Mapping[str, torch.Tensor],
    writes: Collection[str] | None,
) -> None:
    """Skip a kernel: record the reason, and mark the memory it writes as unwritten."""
    CHECKER.unseen.append(f"{name}: {why}")
    written = [v for k, v in tensors.items() if writes is None or k in writes]
    CHECKER.partial.add(written)


def _run(
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

    from shrinkfx.worker.private_api.triton_api import interpreter_builder

    assert CHECKER.launch is not None
    name = CHECKER.launch.kernel
    if CHECKER.probe is None:  # eager: its results are used, so all programs run
        chosen, sample = list_all_programs(grid), ""
    else:
        chosen, sample = choose_programs(grid, blocks)
    if sample:
        CHECKER.unseen.append(f"{name}: only {sample} ran")
    with np.errstate(all="ignore"):
        for place in chosen:
            interpreter_builder.set_grid_idx(*place)
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
            number, what, role = (
                value.data_ptr(),
                "bytes past",
                CHECKER.roles.get_role(value),
            )
            number %= 16
        elif isinstance(value, int):
            number, what, role = value % 16, "past", "a size"
        else:
            continue
        if number:
            text = f"declared divisible by 16, is {number} {what}"
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

    from shrinkfx.worker.private_api.triton_api import TensorHandle, interpreter

    declared = signature.get(name, "")
    if type(value) is int and declared in _INTEGERS:
        return _integer(value, declared)
    if type(value) is bool and declared == "i1":
        value = int(value)
    converted = interpreter._implicit_cvt(value)
    if name not in pointers:
        return converted
    if declared.startswith("*"):  # the compiled dtype, not that of the tensor
        kind = tl.str_to_ty(declared, None)
        converted = tl.tensor(TensorHandle(converted.handle.data, kind), kind)
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

    from shrinkfx.worker.private_api.triton_api import TensorHandle

    bits, is_signed = _INTEGERS[declared]
    value &= (1 << bits) - 1
    if is_signed and value >> (bits - 1):
        value -= 1 << bits
    number = "int" if is_signed else "uint"
    kind = getattr(tl, f"{number}{bits}")
    data = np.array([value], dtype=getattr(np, f"{number}{bits}"))
    return tl.tensor(TensorHandle(data, kind), kind)


def get_interpreted(kernel: Any) -> Any:
    """Return a kernel's interpreted function, creating one if it has none yet."""
    return kernel if hasattr(kernel, "rewrite") else _make_interpreted(kernel.fn)


@functools.cache
def _make_interpreted(function: Any) -> Any:
    from shrinkfx.worker.private_api.triton_api import InterpretedFunction

    return InterpretedFunction(function)


def name_arguments(names: Sequence[str], args: Sequence[Any]) -> Keywords:
    """Pair parameter names with positional arguments, of which there may be fewer."""
    return dict(zip(names, args, strict=False))


def grid_size(grid: Any, arguments: Keywords) -> Place:
    """Return the number of programs along each axis of a grid.

    Args:
        grid: up to three numbers, or a function of the arguments that returns them.
    """
    numbers = grid(dict(arguments)) if callable(grid) else grid
    numbers = tuple(numbers) if isinstance(numbers, Sequence) else (numbers,)
    x, y, z = (*(int(n) for n in numbers), 1, 1)[:3]
    return x, y, z


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

"""Check each access of an interpreted kernel against the memory of its pointer.

The hooks at the end install the checks in Triton's interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import linecache
import mmap
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shrinkfx.program.listing.tensor_specs import storage_span
from shrinkfx.worker.interpreter.findings import (
    Fault,
    KernelFinding,
    Probe,
    Unsupported,
)
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import triton_api
from shrinkfx.worker.private_api.graph_api import TorchDispatchMode, pytree

# Memory that kernels have not fully written, because they were skipped or sampled.
#
# The unwritten part holds implausible values, and an index read there may point
# anywhere. So findings in a kernel that reads such memory, or values computed from
# it, are ignored.


class PartialMemory:
    """The storages that are not fully written, or computed from such storages."""

    def __init__(self) -> None:
        # Kept alive: another storage could get the address of a freed one.
        self._by_address: dict[int, torch.UntypedStorage] = {}

    def __contains__(self, values: Any) -> bool:
        return any(s.data_ptr() in self._by_address for s in _storages(values))

    def __bool__(self) -> bool:
        return bool(self._by_address)

    def add(self, values: Any) -> None:
        """Add the storages of all tensors in a value."""
        self._by_address |= {s.data_ptr(): s for s in _storages(values)}

    def copy_state(self) -> dict[int, torch.UntypedStorage]:
        """Return a copy of the state, for ``restore``."""
        return dict(self._by_address)

    def restore(self, state: dict[int, torch.UntypedStorage]) -> None:
        """Restore the state that ``copy_state`` returned."""
        self._by_address = state


def _storages(values: Any) -> Iterable[torch.UntypedStorage]:
    tensors = (v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor))
    return [t.untyped_storage() for t in tensors if t.numel()]


class PartialPropagation(TorchDispatchMode):
    """Marks the results of operators that read partial memory as partial, too.

    Raises:
        Unsupported: an operator fails on partial memory, or reads a number from it.
    """

    def __init__(self, partial: PartialMemory) -> None:
        super().__init__()
        self._partial = partial

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Keywords | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if (args, kwargs) not in self._partial:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            raise Unsupported(f"{func} takes {UNWRITTEN_MEMORY}") from error
        if not isinstance(result, bool | int | float):
            self._partial.add(result)
            return result
        raise Unsupported(
            f"{func} reads {UNWRITTEN_MEMORY}"
        )  # the number may be a size


UNWRITTEN_MEMORY = "what a kernel that was not run, or in part, has left unwritten"


SPARSE_BYTES = 1 << 30
"""From this size on, memory is mapped without reserve and takes only touched pages."""

_POISON_BYTE = 0x7B
UNWRITTEN = "buffer"
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def allocate(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Allocate a tensor of exactly the size it needs, filled with implausible values.

    Floats are NaN, so that a read of unwritten memory shows in the results.
    """
    count = storage_span(size, stride)
    if count * dtype.itemsize >= SPARSE_BYTES:
        flat = map_sparse_vector(count, dtype)
    else:
        flat = torch.empty(count, dtype=dtype)
        _poison(flat)
    return flat.as_strided(tuple(size), tuple(stride))


def map_sparse_vector(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Map a vector of zeros that may exceed the memory: pages are allocated lazily."""
    memory = mmap.mmap(
        -1,
        max(1, count) * dtype.itemsize,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    return torch.frombuffer(memory, dtype=dtype, count=count)


def _poison(flat: torch.Tensor) -> None:
    if flat.dtype.is_floating_point or flat.dtype.is_complex:
        flat.fill_(float("nan"))
    elif flat.dtype is torch.bool:
        flat.fill_(True)
    else:
        flat.view(torch.uint8).fill_(_POISON_BYTE)


def copy_to_exact_size(value: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its strides into memory that ends at its last element.

    A tensor of ``SPARSE_BYTES`` or more is returned uncopied, because memory may not
    hold it twice.
    """
    span = storage_span(value.shape, value.stride())
    if span * value.element_size() >= SPARSE_BYTES:
        return value
    copied = allocate(value.shape, value.stride(), value.dtype)
    if copied.numel():
        drop_expanded_dims(copied).copy_(drop_expanded_dims(value.detach()))
    return copied


def drop_expanded_dims(value: torch.Tensor) -> torch.Tensor:
    """Narrow expanded dims (stride 0) to one element, so that elements are distinct."""
    for dim, step in enumerate(value.stride()):
        value = value.narrow(dim, 0, 1) if step == 0 else value
    return value


def _is_result(role: str) -> bool:
    return role in ("", UNWRITTEN) or role.startswith("result of ")


class Roles:
    """The role of each storage in the program, such as ``input 0``."""

    def __init__(self) -> None:
        self._by_storage: dict[int, str] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def set_role(self, value: Any, role: str) -> None:
        """Set the role of a tensor's storage.

        The storage is kept alive, because another one could get its address if it were
        freed.
        """
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            self._by_storage[storage.data_ptr()] = role
            self._storages[storage.data_ptr()] = storage

    def set_role_once(self, value: Any, role: str) -> None:
        """Set the role of a tensor's storage unless it has one."""
        if isinstance(value, torch.Tensor) and not self.get_role(value):
            self.set_role(value, role)

    def set_result_role(self, value: Any, operators: Sequence[str]) -> None:
        """Record that operators wrote a tensor; inputs keep their role."""
        if isinstance(value, torch.Tensor) and _is_result(self.get_role(value)):
            of = ", ".join(operators) or "a kernel"
            self.set_role(value, f"result of {of}")

    def get_role(self, value: torch.Tensor) -> str:
        """Return the role of a tensor's storage, or '' if it is unknown."""
        return self._by_storage.get(value.untyped_storage().data_ptr(), "")


# A pointer carries its kernel argument (``ROOT``) through arithmetic and changes of
# shape, so that an overrun is found even if it hits another tensor. Out-of-bounds
# lanes are masked out, so that nothing crashes.

ROOT = "shrinkfx_root"
_INTERPRETER = os.path.dirname(__file__)
_MOST_FINDINGS = 50


@dataclass(frozen=True)
class Argument:
    """A tensor argument of a launch, as addresses.

    Attributes:
        low: the first address of its storage; ``high`` is the first one after the
            storage.
        base: the address of its first element.
        stride: in elements.
    """

    name: str
    role: str
    low: int = 0
    high: int = 0
    base: int = 0
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()

    @staticmethod
    def from_tensor(name: str, value: torch.Tensor) -> Argument:
        """Describe a tensor argument."""
        storage = value.untyped_storage()
        low = storage.data_ptr()
        high = low + storage.nbytes() if value.numel() else low
        role = CHECKER.roles.get_role(value) or "memory of an operator"
        layout = tuple(value.shape), tuple(value.stride())
        return Argument(name, role, low, high, value.data_ptr(), *layout)

    def distance(self, address: int) -> int:
        """Return the distance in bytes from an address to the storage's nearer end."""
        return min(abs(address - self.low), abs(address - self.high))


@dataclass(frozen=True)
class LaunchRecord:
    """A launch of a kernel.

    Attributes:
        arguments: its tensor arguments by parameter.
        tried: it ran on copies, in a configuration other than the first.
        written: the names of the arguments that it has stored to; all arguments if it
            stored through a pointer of unknown origin.
    """

    kernel: str
    grid: tuple[int, int, int]
    arguments: Mapping[str, Argument]
    operators: tuple[str, ...] = ()
    tried: bool = False
    written: set[str] = field(default_factory=set)


@dataclass
class Checker:
    """The state of the running launch, and the findings so far.

    Attributes:
        probe: None while nothing is reported. Out-of-bounds lanes are masked all the
            same, because an eager run must not crash in a user's kernel.
        roles: the roles of the storages in the program.
        operators: the source operators of each kernel.
        in_eager: a user's kernels are checked in eager, whose results are used.
        unseen: one line for each kernel that was skipped or ran in part.
        partial: the memory that is not fully written because of that.
        accesses: the number of vector accesses that were checked.
        launched: the launches so far.
        configuration: the launch configuration, where it is not the kernel's first.
        tried: the number of programs that ran in further configurations.
        untried: the kernels of which some configurations were not run.
    """

    probe: Probe | None = None
    launch: LaunchRecord | None = None
    roles: Roles = field(default_factory=Roles)
    operators: Mapping[str, Sequence[str]] = field(default_factory=dict)
    in_eager: bool = False
    unseen: list[str] = field(default_factory=list)
    partial: PartialMemory = field(default_factory=PartialMemory)
    accesses: int = 0
    findings: list[KernelFinding] = field(default_factory=list)
    launched: list[LaunchRecord] = field(default_factory=list)
    configuration: str = ""
    tried: int = 0
    untried: list[str] = field(default_factory=list)

    @property
    def runs_all(self) -> bool:
        """Whether launches run in full, because their results are used."""
        return self.probe is None or self.in_eager

    def start(
        self,
        probe: Probe,
        operators: Mapping[str, Sequence[str]] | None = None,
        *,
        in_eager: bool = False,
    ) -> None:
        """Start to report, and forget earlier findings."""
        fresh = Checker(probe, operators=operators or {}, in_eager=in_eager)
        vars(self).update(vars(fresh))

    def stop(self) -> None:
        """Stop to report; keep the findings."""
        self.probe = None

    @contextlib.contextmanager
    def run_launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        arguments: Mapping[str, Argument],
    ) -> Iterator[LaunchRecord]:
        """Run a kernel in a block; launches may be nested."""
        # A kernel that Inductor does not know is launched by a user's operator.
        operators = tuple(self.operators.get(kernel, (f"user kernel {kernel}",)))
        tried = bool(self.configuration)
        running = LaunchRecord(kernel, grid, arguments, operators, tried)
        if self.probe:
            self.launched.append(running)
        outer, self.launch = self.launch, running
        try:
            yield running
        finally:
            self.launch = outer

    @contextlib.contextmanager
    def try_configuration(self, configuration: str, *, alone: bool) -> Iterator[None]:
        """Run a further configuration of a kernel in a block.

        Args:
            alone: it runs on copies, so memory that it leaves unwritten does not
                matter.
        """
        self.configuration, saved = configuration, self.partial.copy_state()
        try:
            yield
        finally:
            self.configuration = ""
            if alone:
                self.partial.restore(saved)

    @property
    def _arguments(self) -> Collection[Argument]:
        """The arguments of the running launch."""
        return self.launch.arguments.values() if self.launch else ()

    def mask_in_bounds(self, fault: Fault, pointers: Any, mask: Any) -> Any:
        """Return the mask of the requested lanes whose access is in bounds.

        Args:
            pointers: the interpreter's handle of the addresses.
            mask: the lanes that the kernel requests, as a bool or an array.
        """
        import numpy as np

        self.accesses += 1
        addresses = pointers.data
        requested = np.broadcast_to(np.asarray(mask, dtype=bool), addresses.shape)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        root = pointers.attr.get(ROOT)
        known = self._arguments
        if self.launch and fault is not Fault.LOAD:
            self.launch.written.update(a.name for a in ((root,) if root else known))
        in_bounds = np.zeros(addresses.shape, dtype=bool)
        for argument in (root,) if root else known:
            if argument.high - argument.low >= size:
                low, last = np.uint64(argument.low), np.uint64(argument.high - size)
                in_bounds |= (addresses >= low) & (addresses <= last)
        bad = requested & ~in_bounds
        if bad.any():
            self._report_access(fault, bad, addresses, size, root)
        return requested & in_bounds

    def _report_access(
        self, fault: Fault, bad: Any, addresses: Any, size: int, root: Argument | None
    ) -> None:
        """Report an out-of-bounds access, with the values of the first bad lane."""
        import numpy as np

        first = tuple(np.argwhere(bad)[0])
        address = int(addresses[first])
        known = self._arguments
        nearest = root or min(known, key=lambda a: a.distance(address), default=None)
        nearest = nearest or Argument("?", "unknown")
        offset = address - nearest.base
        if offset >= 1 << 63:
            offset -= 1 << 64
        self.report(
            fault,
            argument=nearest.name,
            role=nearest.role,
            offset=offset // size,
            elements=(nearest.high - nearest.base) // size,
            item_bytes=size,
            lanes=int(bad.sum()),
            values=read_integers(_kernel_frame(), bad),
        )

    def check_assertion(self, condition: Any, message: str) -> None:
        """Report a ``tl.device_assert`` that fails in any lane."""
        import numpy as np

        fails = ~np.asarray(condition.data, dtype=bool)
        if fails.any():
            facts = {"message": message, "lanes": int(fails.sum())}
            self.report(
                Fault.ASSERT, **facts, values=read_integers(_kernel_frame(), fails)
            )

    def report(self, fault: Fault, **facts: Any) -> None:
        """Record a fault of the running launch, with its line and program."""
        if self.probe is None or len(self.findings) >= _MOST_FINDINGS:
            return
        if launch := self.launch:
            facts |= {"kernel": launch.kernel, "operators": launch.operators}
        file, line = _find_kernel_line()
        if file and fault is not Fault.MISALIGNED:
            source = linecache.getline(file, line).strip()
            facts |= {"file": file, "line": line, "source": source}
        facts |= {"configuration": self.configuration}
        facts.setdefault("program", _get_grid_position())
        self.findings.append(KernelFinding(probe=self.probe, fault=fault, **facts))


CHECKER = Checker()
"""The only checker of the process, because Triton has one interpreter for all
launches."""


def place_of_launch(finding: KernelFinding) -> int:
    """Return the number of a finding's launch among those of its kernel, from 1.

    Returns:
        0 for the hints probe, because it launches each kernel once for each of its
        configurations.
    """
    if finding.probe is Probe.HINTS:
        return 0
    real = [launched for launched in CHECKER.launched if not launched.tried]
    return sum(launched.kernel == finding.kernel for launched in real)


def _get_grid_position() -> tuple[int, int, int]:
    """Return the position in the grid of the running program."""
    place = getattr(triton_api.interpreter_builder, "grid_idx", None) or (0, 0, 0)
    x, y, z = (int(i) for i in place)
    return x, y, z


def _find_kernel_line() -> tuple[str, int]:
    """Return the file and line that runs in the kernel, or in a helper of it."""
    frame = _kernel_frame()
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def _kernel_frame() -> Any:
    """Return the innermost frame of a kernel, or None."""
    import triton

    internal = (os.path.dirname(triton.__file__), _INTERPRETER, "<")
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(internal):
            # Outside of a launch, the innermost such frame belongs to the runtime.
            return frame if _is_kernel(frame) else None
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def _is_kernel(frame: Any) -> bool:
    return (
        "interpreter_semantic" in frame.f_globals
        and Path(frame.f_code.co_filename).suffix == ".py"
    )


def tag_pointer(handle: Any, argument: Argument) -> None:
    """Record which kernel argument a pointer comes from."""
    handle.attr[ROOT] = argument


def read_integers(frame: Any, lanes: Any) -> tuple[tuple[str, int], ...]:
    """Return the integer variables of a kernel's frame, by name, in one lane.

    Args:
        lanes: a bool array; the values are those of its first true lane.
    """
    import numpy as np

    if frame is None or not np.any(lanes):
        return ()
    first = tuple(np.argwhere(lanes)[0])
    integers = {}
    for name, local in frame.f_locals.items():
        value = getattr(local, "value", local)  # unwrap a tl.constexpr
        data = getattr(getattr(local, "handle", None), "data", value)
        if not isinstance(data, (int, np.ndarray, np.integer)):
            continue
        numbers = np.asarray(data)
        if numbers.dtype.kind not in "iu":
            continue
        try:
            integers[name] = int(np.broadcast_to(numbers, np.shape(lanes))[first])
        except ValueError:  # another shape, so it has no such lane
            continue
    return tuple(integers.items())


# Install the checks in Triton's interpreter: loads, stores, atomics, assertions.
#
# The hooks also propagate a pointer's kernel argument through pointer arithmetic.

_POINTER_OPERATIONS = (
    "create_addptr",
    "create_splat",
    "create_unsplat",
    "create_broadcast",
    "create_expand_dims",
    "create_reshape",
    "create_trans",
    "create_bitcast",
    "create_select",
    "create_join",
)


def install_hooks() -> None:
    """Install the checks in Triton's interpreter, for the rest of this process."""
    builder = triton_api.interpreter.InterpreterBuilder
    for name in _POINTER_OPERATIONS:
        if name in builder.__dict__:
            setattr(builder, name, _propagate_root(builder.__dict__[name]))
    _hook_accesses(builder, triton_api.interpreter.TensorHandle)
    for blocks in ("BlockPointerHandle", "TensorDescHandle"):
        if owner := getattr(triton_api.interpreter, blocks, None):
            owner.materialize_pointers = _propagate_block_root(
                owner.materialize_pointers
            )


def _propagate_root(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operation on pointers to propagate the kernel argument to its result."""

    handle = triton_api.TensorHandle

    def wrapped(builder: Any, *args: Any, **kwargs: Any) -> Any:
        made = operation(builder, *args, **kwargs)
        if isinstance(made, handle) and ROOT not in made.attr:
            tags = (getattr(argument, "attr", {}).get(ROOT) for argument in args)
            roots = {root for root in tags if root is not None}
            if len(roots) == 1:  # a select between two arguments is ambiguous
                made.attr[ROOT] = roots.pop()
        return made

    return wrapped


def _propagate_block_root(materialize: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a block pointer's materialization to propagate the kernel argument."""

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        pointers, masks = materialize(self, *args, **kwargs)
        if root := self.base.attr.get(ROOT):
            pointers.attr[ROOT] = root
        return pointers, masks

    return wrapped


def _hook_accesses(builder: Any, handle: Any) -> None:
    """Replace the builder's loads, stores, atomics and assertions by checked ones."""
    import triton.language as tl

    load, store = builder.create_masked_load, builder.create_masked_store
    change, swap = builder.create_atomic_rmw, builder.create_atomic_cas

    def inside(fault: Fault, pointers: Any, mask: Any) -> Any:
        # The mask of a block pointer is a bare array.
        array = mask.data if isinstance(mask, handle) else mask
        return handle(CHECKER.mask_in_bounds(fault, pointers, array), tl.int1)

    def checked_load(self: Any, p: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        return load(self, p, inside(Fault.LOAD, p, mask), *rest, **more)

    def checked_store(
        self: Any, p: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        return store(self, p, value, inside(Fault.STORE, p, mask), *rest, **more)

    def checked_change(
        self: Any, op: Any, p: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        in_bounds = inside(Fault.ATOMIC, p, mask)
        if is_bfloat16_sum(op, value):
            before = add_bfloat16(p.data, value.data, in_bounds.data)
            return handle(before, value.dtype.scalar)
        return change(self, op, p, value, in_bounds, *rest, **more)

    def checked_swap(self: Any, p: Any, old: Any, *rest: Any, **more: Any) -> Any:
        if CHECKER.mask_in_bounds(Fault.ATOMIC, p, True).all():
            return swap(self, p, old, *rest, **more)
        return old

    def checked_assert(
        self: Any, condition: Any, message: Any, *_: Any, **__: Any
    ) -> None:
        CHECKER.check_assertion(condition, str(message))

    builder.create_masked_load = checked_load
    builder.create_masked_store = checked_store
    builder.create_atomic_rmw = checked_change
    builder.create_atomic_cas = checked_swap
    builder.create_assert = checked_assert


# Emulate atomic additions of bfloat16, which Triton's interpreter lacks.
#
# The interpreter runs programs one after the other, so adding lane by lane is atomic.

CELL = ctypes.c_uint16
"""The interpreter stores a bfloat16 as the upper 16 bits of a float32."""


def is_bfloat16_sum(operation: Any, value: Any) -> bool:
    """Return whether an atomic operation adds bfloat16 numbers."""
    is_sum = getattr(operation, "name", "") == "FADD"
    return is_sum and str(value.dtype.scalar) == "bf16"


def add_bfloat16(pointers: Any, value: Any, mask: Any) -> Any:
    """Add ``value`` to the memory at ``pointers``, in the lanes of ``mask``.

    Args:
        pointers, value, mask: NumPy arrays that broadcast to one shape: addresses,
            bits, bools.

    Returns:
        The bits before the addition, 0 in the other lanes.
    """
    import numpy as np

    addresses, bits, wanted = np.broadcast_arrays(pointers, value, mask)
    before = np.zeros(addresses.shape, dtype=np.uint16)
    for lane in map(tuple, np.argwhere(wanted)):
        cell = CELL.from_address(int(addresses[lane]))
        before[lane] = cell.value
        cell.value = _bits(_number(cell.value) + _number(int(bits[lane])))
    return before


def _number(bits: int) -> Any:
    """Convert the bits of a bfloat16 to a float32."""
    import numpy as np

    return np.array(bits << 16, dtype=np.uint32).view(np.float32)


def _bits(number: Any) -> int:
    """Round a float32 to the nearest bfloat16, ties to even, and return its bits."""
    import numpy as np

    if np.isnan(number):
        return 0x7FC0
    bits = int(np.float32(number).view(np.uint32))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16

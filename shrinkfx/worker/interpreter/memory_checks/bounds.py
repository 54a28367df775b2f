"""Check every access of an interpreted kernel against what its pointer points to.

A pointer carries the argument it came from (``_ROOT``) through arithmetic and
changes of shape, so that an overrun is found even where it hits another tensor.
Lanes that would leave their memory are masked out: nothing crashes.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shrinkfx.worker.interpreter.emulation.atomics import add_bfloat16, is_bfloat16_sum
from shrinkfx.worker.interpreter.findings import Fault, KernelFinding, Probe
from shrinkfx.worker.interpreter.memory_checks.arena import Roles
from shrinkfx.worker.interpreter.memory_checks.launched import Launched
from shrinkfx.worker.interpreter.memory_checks.partial import Partial
from shrinkfx.worker.interpreter.memory_checks.values import values

_ROOT = "shrinkfx_root"
_INTERPRETER = os.path.dirname(os.path.dirname(__file__))
_MOST_FINDINGS = 50

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


@dataclass(frozen=True)
class Argument:
    """A tensor that a kernel was launched with, as addresses."""

    name: str
    role: str
    low: int
    high: int
    base: int

    @staticmethod
    def of(name: str, role: str, value: torch.Tensor) -> Argument:
        storage = value.untyped_storage()
        low = storage.data_ptr()
        high = low + storage.nbytes() if value.numel() else low
        return Argument(name, role, low, high, value.data_ptr())

    def distance(self, address: int) -> int:
        return min(abs(address - self.low), abs(address - self.high))


@dataclass(frozen=True)
class Launch:
    """A kernel that is being run.

    Attributes:
        written: the arguments that it has stored through, by name; all, where a
            pointer's origin is not known.
    """

    kernel: str
    operators: tuple[str, ...]
    arguments: Sequence[Argument]
    written: set[str] = field(default_factory=set)


@dataclass
class Checker:
    """What is known of the launch that runs, and what was found so far.

    Attributes:
        probe: None while nothing is to be reported (bad lanes are masked all the
            same): eager must not crash where a user's kernel goes astray.
        roles: what the memory of tensors is to the program.
        operators: the source operators of each kernel.
        sampled: the launches of which only some programs were run.
        partial: the memory that those have not written in full.
        accesses: how many vector accesses were checked.
        launched: the launches so far.
    """

    probe: Probe | None = None
    launch: Launch | None = None
    roles: Roles = field(default_factory=Roles)
    operators: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sampled: list[str] = field(default_factory=list)
    partial: Partial = field(default_factory=Partial)
    accesses: int = 0
    findings: list[KernelFinding] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)

    def start(
        self, probe: Probe, operators: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Report from now on; what was seen before is forgotten."""
        self.probe, self.launch, self.operators = probe, None, operators or {}
        self.accesses, self.findings, self.sampled, self.launched = 0, [], [], []
        self.roles.clear()
        self.partial.clear()

    def stop(self) -> None:
        """Report nothing more; what was seen stays."""
        self.probe = None

    def inside(self, fault: Fault, pointers: Any, mask: Any) -> Any:
        """Tell which of the lanes that ``mask`` lets through stay inside."""
        import numpy as np

        self.accesses += 1
        addresses = pointers.data
        wanted = np.broadcast_to(np.asarray(mask, dtype=bool), addresses.shape)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        root = pointers.attr.get(_ROOT)
        known = self.launch.arguments if self.launch else ()
        if self.launch and fault is not Fault.LOAD:
            self.launch.written.update(a.name for a in ((root,) if root else known))
        ok = np.zeros(addresses.shape, dtype=bool)
        for argument in (root,) if root else known:
            if argument.high - argument.low >= size:
                low, last = np.uint64(argument.low), np.uint64(argument.high - size)
                ok |= (addresses >= low) & (addresses <= last)
        bad = wanted & ~ok
        if bad.any():
            self._report_access(fault, bad, addresses, size, root)
        return wanted & ok

    def _report_access(
        self, fault: Fault, bad: Any, addresses: Any, size: int, root: Argument | None
    ) -> None:
        import numpy as np

        first = tuple(np.argwhere(bad)[0])
        address = int(addresses[first])
        known = self.launch.arguments if self.launch else ()
        near = root or min(known, key=lambda a: a.distance(address), default=None)
        near = near or Argument("?", "unknown", 0, 0, 0)
        offset = address - near.base
        if offset >= 1 << 63:
            offset -= 1 << 64
        self.report(
            fault,
            argument=near.name,
            role=near.role,
            offset=offset // size,
            elements=(near.high - near.base) // size,
            item_bytes=size,
            lanes=int(bad.sum()),
            values=values(_kernel_frame(), bad),
        )

    def require(self, condition: Any, message: str) -> None:
        """Report a ``tl.device_assert`` that does not hold in each lane."""
        import numpy as np

        fails = ~np.asarray(condition.data, dtype=bool)
        if fails.any():
            facts = {"message": message, "lanes": int(fails.sum())}
            self.report(Fault.ASSERT, **facts, values=values(_kernel_frame(), fails))

    def report(self, fault: Fault, **facts: Any) -> None:
        """Note a fault of the launch that runs."""
        if self.probe is None or len(self.findings) >= _MOST_FINDINGS:
            return
        if launch := self.launch:
            facts |= {"kernel": launch.kernel, "operators": launch.operators}
        file, line = _site()
        if file and fault is not Fault.MISALIGNED:
            source = linecache.getline(file, line).strip()
            facts |= {"file": file, "line": line, "source": source}
        facts.setdefault("program", _program())
        self.findings.append(KernelFinding(self.probe, fault, **facts))


CHECKER = Checker()
"""The process's own: Triton has one interpreter for all launches, too."""


def place_of_launch(finding: KernelFinding) -> int:
    """Number a finding's launch among those of its kernel, from 1; 0: not known.

    Where kernels are timed, each is launched once for each of its configurations.
    """
    if finding.probe is Probe.HINTS:
        return 0
    return sum(launched.kernel == finding.kernel for launched in CHECKER.launched)


def _program() -> tuple[int, int, int]:
    from triton.runtime.interpreter import interpreter_builder

    place = getattr(interpreter_builder, "grid_idx", None) or (0, 0, 0)
    x, y, z = (int(i) for i in place)
    return x, y, z


def _site() -> tuple[str, int]:
    """Find the line of the kernel, or of its helper, that runs."""
    frame = _kernel_frame()
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def _kernel_frame() -> Any:
    """Find the innermost frame of a kernel, or None."""
    import triton

    ours = (os.path.dirname(triton.__file__), _INTERPRETER, "<")
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(ours):
            # Outside of a launch, the innermost such frame is the runtime's.
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


def tag(handle: Any, argument: Argument) -> None:
    """Say which argument a pointer comes from."""
    handle.attr[_ROOT] = argument


def hook() -> None:
    """Put the checks into Triton's interpreter, for the rest of this process."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    for name in _POINTER_OPERATIONS:
        if name in builder.__dict__:
            setattr(builder, name, _keeping_root(builder.__dict__[name]))
    _hook_accesses(builder, interpreter.TensorHandle)
    for blocks in ("BlockPointerHandle", "TensorDescHandle"):
        if owner := getattr(interpreter, blocks, None):
            owner.materialize_pointers = _rooted(owner.materialize_pointers)


def _keeping_root(operation: Callable[..., Any]) -> Callable[..., Any]:
    from triton.runtime.interpreter import TensorHandle

    def wrapped(builder: Any, *args: Any, **kwargs: Any) -> Any:
        made = operation(builder, *args, **kwargs)
        if isinstance(made, TensorHandle) and _ROOT not in made.attr:
            tags = (getattr(argument, "attr", {}).get(_ROOT) for argument in args)
            roots = {root for root in tags if root is not None}
            if len(roots) == 1:  # of a choice between two, either may be meant
                made.attr[_ROOT] = roots.pop()
        return made

    return wrapped


def _rooted(materialize: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        pointers, masks = materialize(self, *args, **kwargs)
        if root := self.base.attr.get(_ROOT):
            pointers.attr[_ROOT] = root
        return pointers, masks

    return wrapped


def _hook_accesses(builder: Any, handle: Any) -> None:
    """Replace what loads, stores, adds atomically and asserts."""
    import triton.language as tl

    load, store = builder.create_masked_load, builder.create_masked_store
    change, swap = builder.create_atomic_rmw, builder.create_atomic_cas

    def inside(fault: Fault, pointers: Any, mask: Any) -> Any:
        # Block pointers come with a bare array for a mask.
        array = mask.data if isinstance(mask, handle) else mask
        return handle(CHECKER.inside(fault, pointers, array), tl.int1)

    def checked_load(self: Any, p: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        return load(self, p, inside(Fault.LOAD, p, mask), *rest, **more)

    def checked_store(
        self: Any, p: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        return store(self, p, value, inside(Fault.STORE, p, mask), *rest, **more)

    def checked_change(
        self: Any, how: Any, p: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        kept = inside(Fault.ATOMIC, p, mask)
        if is_bfloat16_sum(how, value):
            before = add_bfloat16(p.data, value.data, kept.data)
            return handle(before, value.dtype.scalar)
        return change(self, how, p, value, kept, *rest, **more)

    def checked_swap(self: Any, p: Any, old: Any, *rest: Any, **more: Any) -> Any:
        if CHECKER.inside(Fault.ATOMIC, p, True).all():
            return swap(self, p, old, *rest, **more)
        return old

    def checked_assert(
        self: Any, condition: Any, message: Any, *_: Any, **__: Any
    ) -> None:
        CHECKER.require(condition, str(message))

    builder.create_masked_load = checked_load
    builder.create_masked_store = checked_store
    builder.create_atomic_rmw = checked_change
    builder.create_atomic_cas = checked_swap
    builder.create_assert = checked_assert

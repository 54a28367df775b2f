"""What a fake kernel promises, and whether the operator keeps that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._library.fake_class_registry import maybe_to_fake_obj
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from shrinkfx.failure.classify import first_line
from shrinkfx.worker.graph.describe import tensor_type
from shrinkfx.worker.model import Keywords


def promised_by(
    target: Any, args: Sequence[Any], kwargs: Keywords
) -> list[Any] | str | None:
    """Call the fake kernel of an operator at the sizes of real arguments.

    Returns:
        Its results; the exception that it raises; None if nobody could tell.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(value: Any) -> Any:
        if isinstance(value, torch.ScriptObject):
            return maybe_to_fake_obj(mode, value)
        if not isinstance(value, Tensor):
            return value
        return mode.from_tensor(value, static_shapes=True)

    try:
        faked = pytree.tree_map(fake, (tuple(args), kwargs))
    except Exception:  # noqa: BLE001 - no fault of the operator's
        return None
    try:
        with mode:
            return pytree.tree_leaves(target(*faked[0], **faked[1]))
    except Exception as error:  # noqa: BLE001 - whatever the user's kernel raises
        return f"{type(error).__name__}: {first_line(str(error)):.200}"


@dataclass
class Promises:
    """Shapes of one result, promised and real, from run to run."""

    seen: list[tuple[list[Any], list[int]]] = field(default_factory=list)

    def see(self, fake: Tensor, real: Tensor) -> None:
        """Note what was promised in a run, and what there is."""
        promised = [s if isinstance(s, int) else None for s in fake.shape]
        if fake.dim() == real.dim():
            self.seen.append((promised, list(real.shape)))

    def fixed(self) -> str:
        """Say which dim was promised to be the same in all runs, and is not; or ''."""
        for dim, size in enumerate(self.seen[-1][0] if self.seen else ()):
            said = {promised[dim] for promised, _ in self.seen}
            was = {real[dim] for _, real in self.seen}
            is_here = self.seen[-1][1][dim]
            if size not in (None, is_here) and len(said) == 1 < len(was):
                return f"dim {dim} of {{}} to {size}: not SymInt-aware; it is {is_here}"
        return ""


def broken(fake: Tensor, real: Tensor) -> str:
    """Say how a promise is broken, or ''; sizes that depend on data cannot be."""
    if _is_like(fake, real):
        return ""
    return f"promises {_words(fake)}; {{}} is {_words(real)}"


def _is_like(fake: Tensor, real: Tensor) -> bool:
    """Compare dtype, device and sizes, and strides of dims that have steps."""
    if (fake.dtype, fake.device.type, fake.dim()) != (
        *(real.dtype, real.device.type, real.dim()),
    ):
        return False
    if real.layout != torch.strided or fake.layout != torch.strided:
        return fake.layout == real.layout
    known = [isinstance(size, int) for size in fake.shape]
    if any(k and a != b for k, a, b in zip(known, fake.shape, real.shape, strict=True)):
        return False
    steps = zip(real.shape, fake.stride(), real.stride(), strict=True)
    return not real.numel() or all(
        size < 2 or not isinstance(told, int) or told == step
        for size, told, step in steps
    )


def _words(tensor: Tensor) -> str:
    kind = tensor_type(tensor)
    sizes = ", ".join(kind.shape)
    return f"{kind.dtype}[{sizes}] with strides {list(tensor.stride())}"
